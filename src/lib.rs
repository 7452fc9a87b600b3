//! Glovebox: ephemeral, fenced sandboxes for AI agents on Kubernetes. The map, one line a module.

/// What runs inside each sandbox: the kernel report and the supervisor. Linux only; trusts nothing it meets.
#[cfg(feature = "agent")]
pub mod agent;
/// Custom resource types, their defaults, bounds and CEL rules. Pure.
#[cfg(feature = "api")]
pub mod api;
/// The record of what was done, and the trail that can't be altered unseen.
#[cfg(feature = "evidence")]
pub mod audit;
/// What a session says to a sandbox's agent and what comes back: frames, requests, results, parsed as hostile input. Pure.
#[cfg(any(feature = "agent", feature = "controller", feature = "session"))]
pub mod call;
/// What a person runs: sandboxes made, used, looked at and ended from a terminal, and a cluster examined.
#[cfg(feature = "cli")]
pub mod cli;
/// observe -> plan -> desired -> apply -> status, against an API server.
#[cfg(feature = "controller")]
pub mod controller;
/// Signs that a sandbox does what looks like an attack: what they are, how they are counted, and how replicas tell them.
#[cfg(feature = "evidence")]
#[cfg_attr(
    not(all(feature = "controller", feature = "gateway")),
    allow(dead_code, unused_imports, reason = "some roles tell, another asks")
)]
pub mod detect;
/// Hashes as text. Pure.
#[cfg(feature = "api")]
mod digest;
/// All that leaves a sandbox: DNS answers, the proxy, transparent TLS and HTTP, limits. Sockets; no rule.
#[cfg(feature = "gateway")]
pub mod gateway;
/// What every role needs of an API server.
#[cfg(feature = "client")]
#[cfg_attr(
    not(any(feature = "controller", feature = "gateway")),
    allow(dead_code, reason = "of all roles the session needs the least of it")
)]
mod kubernetes;
/// Files that the kubelet keeps current.
#[cfg(feature = "client")]
mod mounted;
/// Certificates as text, taken out of what stands around them. Pure.
#[cfg(any(feature = "agent", feature = "api"))]
pub mod pem;
/// May this go out, may this image be used? Pure.
#[cfg(feature = "api")]
pub mod policy;
/// POSTs to whom the installation names.
#[cfg(feature = "evidence")]
#[cfg_attr(
    not(all(feature = "audit", feature = "gateway")),
    allow(dead_code, reason = "collectors of the trail, and the gateway's providers of credentials")
)]
mod post;
/// What a sandbox's pod says about itself: the kernel report and the exit record, parsed as hostile input. Pure.
#[cfg(any(feature = "agent", feature = "api"))]
pub mod report;
/// One sandbox: plan, desired objects, lifecycle, status. Pure.
#[cfg(feature = "client")]
pub mod sandbox;
/// Commands in sandboxes for tools: who asks, whether they may, and the agent's answer, which nobody trusts.
#[cfg(feature = "session")]
pub mod session;
/// Logs, health and metrics, with bounded labels.
#[cfg(feature = "role")]
pub mod telemetry;
/// A fake API server with faults, a node and a clock, and checks written apart from the code. Tests only.
#[cfg(feature = "testkit")]
pub mod testkit;
/// Whom a role trusts when it connects, and the TLS that takes nothing less.
#[cfg(feature = "evidence")]
pub mod trust;
/// When a sandbox was last used: how replicas of gateway and session say it, and how the controller asks.
#[cfg(feature = "role")]
#[cfg_attr(
    not(all(feature = "controller", feature = "gateway", feature = "session")),
    allow(dead_code, reason = "one role asks, the others answer")
)]
mod used;
