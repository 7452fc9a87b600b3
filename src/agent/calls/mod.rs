//! Owns calls: commands that a sandbox's sessions have run in it. Process 1 opens the port and asks who calls
//! ([`reception`]); for each call a process of its own ([`process`]) starts the command, carries its output and, at the end or
//! at the deadline, kills all that the command started.
//!
//! The workload runs as the same user and may connect to the port, flood it, and kill or stop whatever is not process 1. It must
//! gain nothing by that, and at most lose calls that are running: a call process that is gone or late is seen by process 1, and
//! what it leaves falls to process 1, which kills it. To tell it from the workload's own, the workload then has a keeper
//! ([`super::keeper`]). What an exec of Kubernetes leaves behind can't be told from a call's, and may go with it.
//!
//! A call leaves nothing behind: it is over when its first process has ended and nobody writes its output any more, or shortly
//! after the first process ended, and then the rest is killed. File operations come in by the same port, and are carried out
//! by a process of [`super::files`].

pub mod access;
mod door;
mod guard;
pub(in crate::agent) mod handover;
mod line;
pub mod process;
pub mod reception;
pub mod stage;
mod start;
mod streams;
mod tree;

pub use process::call;
pub use reception::Reception;
pub use stage::stage;
