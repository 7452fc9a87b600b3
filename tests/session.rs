//! The real session on loopback, between clients, an API server and agents that are all made up: each attack with its honest twin.
#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "session/access.rs"]
mod access;
#[path = "session/agent.rs"]
mod agent;
#[path = "session/calls.rs"]
mod calls;
#[path = "session/certificates.rs"]
mod certificates;
#[path = "session/client.rs"]
mod client;
#[path = "session/cluster.rs"]
mod cluster;
#[path = "session/crowds.rs"]
mod crowds;
#[path = "session/document.rs"]
mod document;
#[path = "session/files.rs"]
mod files;
#[path = "session/files_hostile.rs"]
mod files_hostile;
#[path = "session/hostile.rs"]
mod hostile;
#[path = "session/life.rs"]
mod life;
#[path = "session/live.rs"]
mod live;
#[path = "session/logs.rs"]
mod logs;
#[path = "session/retries.rs"]
mod retries;
#[path = "session/waits.rs"]
mod waits;
#[path = "session/world.rs"]
mod world;
