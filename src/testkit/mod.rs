//! An API server in memory with faults, a node, and a clock, to run the controller's reconciles against. For tests only.
//!
//! What stands here imitates Kubernetes as far as the controller meets it, and must not know how the controller works:
//! the checks ([`hardening`], [`invariants`]) are written apart from it.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "only tests run this: what is not as assumed should stop the test at once"
)]

pub mod admission;
pub mod caches;
pub mod calls;
pub mod clock;
pub mod driver;
pub mod faults;
pub mod fixtures;
pub mod hardening;
pub mod housekeeping;
pub mod invariants;
pub mod kinds;
pub mod kubelet;
pub mod merge;
pub mod object;
pub mod scenarios;
pub mod server;
pub mod snapshot;
pub mod stage;
pub mod store;

pub use driver::Driver;
