//! `glovebox audit serve`: takes records of the other roles, writes the trail, and lets those read it who may.
//!
//! One process writes. Must never tell a producer that a record is taken before the disk has it.

pub mod config;
pub mod export;
mod read;
mod routes;
mod run;
mod store;

pub use config::Options;
pub use run::run;
