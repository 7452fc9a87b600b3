//! The real gateway on loopback, between sandboxes and an internet that are both made up: each attack with its honest twin.
#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "gateway/answers.rs"]
mod answers;
#[path = "gateway/authority.rs"]
mod authority;
#[path = "gateway/brokered.rs"]
mod brokered;
#[path = "gateway/corpus.rs"]
mod corpus;
#[path = "gateway/crowds.rs"]
mod crowds;
#[path = "gateway/dns.rs"]
mod dns;
#[path = "gateway/fakes.rs"]
mod fakes;
#[path = "gateway/http.rs"]
mod http;
#[path = "gateway/life.rs"]
mod life;
#[path = "gateway/limits.rs"]
mod limits;
#[path = "gateway/named.rs"]
mod named;
#[path = "gateway/names.rs"]
mod names;
#[path = "gateway/opened.rs"]
mod opened;
#[path = "gateway/process.rs"]
mod process;
#[path = "gateway/suspected.rs"]
mod suspected;
#[path = "gateway/tls.rs"]
mod tls;
#[path = "gateway/world.rs"]
mod world;
