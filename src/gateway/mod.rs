//! `glovebox gateway`: all that leaves a sandbox. Listeners, the relay, the resolver, limits.
//!
//! Owns the sockets. Contains no rule: who may go where is [`crate::policy`]'s word, and each entry (DNS, CONNECT,
//! absolute-form, transparent TLS and HTTP, named TCP) asks for it by the same path, [`admit`].

pub mod admit;
mod alarms;
mod asks;
mod authority;
pub mod broker;
pub mod ca;
mod claims;
pub mod clock;
pub mod config;
pub mod directory;
pub mod dns;
pub mod entry;
mod evidence;
pub mod flow;
pub mod framing;
pub mod head;
pub mod hello;
mod index;
mod intake;
pub mod limit;
mod listen;
pub mod metrics;
mod name_server;
pub mod names;
pub mod opened;
mod proxy;
pub mod reason;
pub mod refusals;
pub mod relay;
mod renew;
pub mod resolve;
mod room;
mod rule_use;
mod run;
mod surroundings;
mod suspect;
mod tcp;
mod tell;
pub mod tenant;
mod tls;
pub mod toll;
mod tripwire;
mod watch;
mod way;
mod web;

pub use crate::trust;
pub use config::Options;
pub use run::{Addresses, Listeners, Parts, run, serve};
pub use tripwire::WORDS as TRIPWIRE_WORDS;
