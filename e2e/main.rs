//! The end-to-end suite: real sandboxes on a real cluster, seen from inside and from outside.
//!
//! `cargo xtask test e2e [NAME...]` runs it on the local cluster. On a cluster of one's own it needs KUBECONFIG and an image
//! (`GLOVEBOX_E2E_IMAGE`) with a shell, Python and what `images/tools` lists; tests that need powers over the nodes then say that
//! they were skipped. Each test stands alone, in a namespace of its own, and waits for events; none relies on a sleep.

mod admission;
mod alone;
mod api;
mod approvals;
mod attacks;
mod cli;
mod client;
mod conformance;
mod credentials;
mod disk;
mod egress;
mod evidence;
mod hardening;
mod harness;
mod idle;
mod kernel;
mod lifecycle;
mod promise;
mod quota;
mod session;
mod stalled;
mod ttl;
mod workspace;

use std::process::ExitCode;

use harness::{Cases, runner, world};

fn main() -> ExitCode {
    if let Some(code) = world::listen_if_asked() {
        return code;
    }
    if let Some(code) = conformance::target::judge_if_asked() {
        return code;
    }
    let mut cases = Cases::default();
    stalled::cases(&mut cases);
    api::cases(&mut cases);
    kernel::cases(&mut cases);
    hardening::cases(&mut cases);
    workspace::cases(&mut cases);
    disk::cases(&mut cases);
    egress::cases(&mut cases);
    conformance::cases(&mut cases);
    promise::cases(&mut cases);
    admission::cases(&mut cases);
    lifecycle::cases(&mut cases);
    ttl::cases(&mut cases);
    idle::cases(&mut cases);
    quota::cases(&mut cases);
    session::cases(&mut cases);
    cli::cases(&mut cases);
    client::cases(&mut cases);
    evidence::cases(&mut cases);
    approvals::cases(&mut cases);
    credentials::cases(&mut cases);
    alone::cases(&mut cases);
    let code = runner::main(cases);
    conformance::table::print();
    code
}
