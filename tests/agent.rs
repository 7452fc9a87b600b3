//! The real `glovebox-agent` as what it is in a pod: an init step, and process 1 of a PID namespace.
#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "agent/access.rs"]
mod access;
#[path = "agent/archives.rs"]
mod archives;
#[path = "agent/calls.rs"]
mod calls;
#[path = "agent/container.rs"]
mod container;
#[path = "agent/door.rs"]
mod door;
#[path = "agent/ending.rs"]
mod ending;
#[path = "agent/files.rs"]
mod files;
#[path = "agent/idle.rs"]
mod idle;
#[path = "agent/init.rs"]
mod init;
#[path = "agent/keeper.rs"]
mod keeper;
#[path = "agent/processes.rs"]
mod processes;
#[path = "agent/runaways.rs"]
mod runaways;
#[path = "agent/session.rs"]
mod session;
#[path = "agent/signals.rs"]
mod signals;
#[path = "agent/start.rs"]
mod start;
#[path = "agent/workspace.rs"]
mod workspace;
