//! What holds for every sandbox, class and pod, however odd.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "properties/any.rs"]
mod any;
#[path = "properties/laws.rs"]
mod laws;
