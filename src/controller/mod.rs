//! `glovebox controller`: observe -> plan -> desired -> apply -> status, for each sandbox and each class.
//!
//! Owns every write to the cluster. Must not decide: rules are in [`crate::policy`] and [`crate::sandbox`].

mod apply;
mod approvals;
mod authority;
mod call_keys;
mod canary;
mod changes;
mod class;
pub mod cleanup;
mod context;
pub mod definitions;
mod error;
mod events;
mod evidence;
mod files;
mod idle;
mod leader;
mod named;
mod observe;
mod reconcile;
mod record;
mod replicas;
mod run;
mod seats;
mod suspects;
pub(crate) mod watches;

pub use class::{failed as class_failed, reconcile as reconcile_class};
pub use context::{Context, Guarded, Stores, Writers};
pub use error::{ApplyError, ErrorClass, Policy};
pub use named::{failed as named_failed, reconcile as reconcile_named};
pub use reconcile::{failed, reconcile};
pub use run::{Options, run};
