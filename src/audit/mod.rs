//! The record of what was done: one shape for all acts, a trail that can't be altered unseen, and who writes, sends and reads it.
//!
//! A trail is entries, each with the hash of the one before, and checkpoints: signed roots of a Merkle tree over the entries.
//! Must never hold a secret, nor anything out of a sandbox that was not made printable and cut.

pub mod about;
pub mod act;
pub mod directory;
pub mod entry;
pub mod note;
pub mod ocsf;
pub mod query;
pub mod record;
pub mod sender;
#[cfg(feature = "audit")]
pub mod serve;
pub mod spool;
pub mod tree;
pub mod walk;
pub mod writer;

pub use act::{Act, Role};
pub use record::{Endpoint, File, Process, Record, Subject, Traffic, printable};
pub use sender::{AuditOptions, NotRecorded, Recorder, now};

#[cfg(test)]
mod tests;
