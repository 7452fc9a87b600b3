//! Whatever goes wrong at whichever call, the controller comes to the same end; and it says and does no more than it must.
//!
//! Runs against the fake API server of `glovebox::testkit`, on a virtual clock.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "convergence/budget.rs"]
mod budget;
#[path = "convergence/faults.rs"]
mod faults;
#[path = "convergence/prompt.rs"]
mod prompt;
#[path = "convergence/stale.rs"]
mod stale;
