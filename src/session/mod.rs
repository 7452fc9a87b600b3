//! `glovebox session`: how tools have commands run in sandboxes, and read and write files there. An HTTP API, and one connection to
//! the sandbox's agent a call.
//!
//! Owns who asks, whether they may, and how much at once. Contains no right of its own to a pod: it dials sandboxes, signs what it
//! says to their agents, and takes what they answer for hostile. Must never log a command, a variable, input or output, or of a
//! file its path or what it holds.

mod agent;
pub(crate) mod answer;
pub mod api;
mod body;
mod bounds;
mod cache;
pub mod certificate;
pub(crate) mod clients;
pub mod config;
pub mod directory;
mod evidence;
mod exec;
mod files;
mod input;
mod key;
pub(crate) mod listen;
mod live;
mod logs;
pub mod metrics;
mod openapi;
mod output;
mod patient;
mod problem;
mod query;
pub(crate) mod renew;
mod request;
mod retries;
pub(crate) mod reviews;
mod routes;
mod run;
mod runner;
mod shares;
mod status;
mod suspect;
mod uses;
mod watch;

pub use config::{Options, Timing};
pub use files::api::{FileDone, FileInfo, FileKind, FileList};
pub use openapi::document as openapi;
pub use problem::{Problem, Reason};
pub use routes::{ROUTES, Route};
pub use run::{Addresses, Listeners, Parts, run, serve};
