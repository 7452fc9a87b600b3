//! `cargo xtask test conformance --target` and `--rival`: the conformance list against a proxy that is not Glovebox. Needs the local
//! cluster for its pretended internet; installs nothing on it.

use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, ValueEnum};
use serde_json::json;

use super::{
    rival::{self, Rival},
    suite::Suite,
    test_program,
};
use crate::{
    cluster::{Cluster, UpOptions},
    install,
};

/// What a proxy must allow to be judged, and nothing else.
const RULES: &str = "\
the proxy is expected to let through, and nothing else (docs/conformance.md tells more):
  CONNECT, or TLS by server name, port 443: allowed.example, web.example, one label below wild.example, bad.example and
    aliases.example, any labels below opendns.com and defo.ie but doh.opendns.com and cover.defo.ie
  CONNECT, port 8443, any bytes: tcp.example
  whole URIs, port 80: GET, HEAD and POST of http://web.example/ok and what is below /ok/
  no address that is private, of the cluster or the machine, whatever name leads to it; names from 198.51.100.53:53";

/// A proxy to be judged in Glovebox's place.
#[derive(Args, Debug)]
pub(crate) struct ProxyArgs {
    /// With `conformance`: judge the proxy that answers there, as seen from a node of the local cluster.
    #[arg(long = "target", value_name = "HOST:PORT", conflicts_with = "rival")]
    proxy: Option<String>,
    /// Its port for TLS that is carried by server name, without CONNECT, if it has one.
    #[arg(long, value_name = "HOST:PORT", requires = "proxy")]
    target_tls: Option<String>,
    /// It takes no CONNECT: what needs it is not offered, instead of failing.
    #[arg(long, requires = "proxy")]
    no_connect: bool,
    /// With `conformance`: start one of Debian's proxies on a node, judge it, and end it.
    #[arg(long, value_enum)]
    rival: Option<Rival>,
    /// How a proxy's table is printed.
    #[arg(long, value_enum, default_value = "text")]
    output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    Text,
    Json,
}

/// What the suite's program is told of a proxy.
pub(super) struct Judged {
    /// Where it takes CONNECT and whole URIs.
    pub(super) proxy: String,
    /// Where it takes TLS by server name.
    pub(super) tls: Option<String>,
    /// Whether it takes CONNECT.
    pub(super) connect: bool,
    /// What it is called.
    pub(super) name: String,
}

impl ProxyArgs {
    /// Whether another proxy is meant.
    pub(crate) fn is_meant(&self) -> bool {
        self.proxy.is_some() || self.rival.is_some()
    }

    fn judged(&self) -> Judged {
        let proxy = self.proxy.clone().unwrap_or_default();
        Judged { name: proxy.clone(), proxy, tls: self.target_tls.clone(), connect: !self.no_connect }
    }
}

/// Judges it; gives the suite's sums, or none where JSON was printed. An error in that case means that a row failed.
pub(crate) fn run(args: &ProxyArgs, what: &[String], cluster: &str) -> Result<Option<Suite>> {
    ensure!(what == ["conformance"], "--target and --rival go with `conformance` alone, not with {what:?}");
    let cluster = Cluster::open(cluster)?;
    cluster.ensure_up(&UpOptions { nodes: None })?;
    install::world_authority(&cluster)?;
    let program = test_program("e2e", "--test")?;
    let running = args.rival.map(|rival| rival::start(rival, &cluster)).transpose()?;
    let judged = running.as_ref().map_or_else(|| args.judged(), rival::Running::judged);
    let json = args.output == Output::Json;
    let told = json!({
        "proxy": judged.proxy, "tls": judged.tls, "connect": judged.connect, "name": judged.name, "json": json,
    });
    let mut command = cluster.node_command(program);
    command.arg("__judge").arg(told.to_string());
    let outcome = if json { printed(command).map(|()| None) } else { counted(command).map(Some) };
    match running {
        Some(running) => running.end(outcome),
        None => outcome,
    }
}

fn counted(command: Command) -> Result<Suite> {
    let mut suite = Suite::open("conformance");
    println!("{RULES}");
    suite.libtest("the proxy", command)?;
    Ok(suite.close())
}

fn printed(mut command: Command) -> Result<()> {
    let status = command.status().context("the suite does not start")?;
    if status.success() { Ok(()) } else { bail!("a row failed, or the suite did") }
}
