//! One sandbox: what it may be (`plan`), what it becomes (`desired`), where it stands (`lifecycle`, `podview`), what is
//! said of it (`status`).
//!
//! Pure: no client, no clock, no IO. Time and the world come in as values. "What pod do I get?" is answered by
//! [`desired`] alone.

pub mod approvals;
pub mod credentials;
pub mod desired;
mod enforcement;
mod env;
mod execution;
pub mod fence;
pub mod idle;
pub mod lifecycle;
pub mod named;
pub mod names;
pub mod plan;
mod pod;
pub mod podview;
pub mod quota;
#[cfg(any(feature = "controller", feature = "gateway"))]
pub(crate) mod ranges;
pub mod runtime;
pub mod status;
mod storage;
pub mod suspicion;
#[cfg(test)]
mod tests;
pub mod world;

pub use desired::{Applied, Desired, Planned, desired};
pub use plan::{Plan, Refusal, plan};
pub use world::World;
