//! Ten thousand tunnels whose rule goes, a quarter of them spliced, and a thousand of others that must not notice.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};

use crate::{Row, median, process::Process};

/// Milliseconds until the last tunnel is closed, as its client sees it.
const MOST: f64 = 1000.0;
/// Sandboxes whose rule goes, and those that keep theirs.
const REVOKED: u64 = 10;
const KEPT: u64 = 2;
/// Tunnels of all of the former, and of all of the latter.
const TUNNELS: (u64, u64) = (10_000, 1_000);
const FEW: (u64, u64) = (500, 50);
/// File descriptors of the gateway for each tunnel: a third of them are for pipes.
const FILES: u64 = 3;

/// A gateway, and those who hold its tunnels.
struct Replica {
    gateway: Process,
    concerned: Process,
    others: Process,
    ports: Vec<u16>,
}

impl Replica {
    fn start(backend: u16, dns: u16, tunnels: u64, kept: u64) -> Result<Self> {
        let role = ["gateway", &backend.to_string(), &dns.to_string(), "unlimited"].map(str::to_owned);
        let (gateway, ports) = Process::start(0, &role)?;
        let others = hold(ports[0], backend, REVOKED, KEPT, kept / KEPT)?;
        let concerned = hold(ports[0], backend, 0, REVOKED, tunnels / REVOKED)?;
        Ok(Self { gateway, concerned, others, ports })
    }
}

fn hold(proxy: u16, backend: u16, first: u64, sandboxes: u64, each: u64) -> Result<Process> {
    let words = [proxy.into(), backend.into(), first, sandboxes, each, each / 4].map(|word| word.to_string());
    let (mut holder, _) = Process::start(1, &[vec!["hold".to_owned()], words.to_vec()].concat())?;
    holder.line().context("the tunnels")?;
    Ok(holder)
}

pub(crate) fn run(backend: u16, dns: u16, files: u64, quick: bool) -> Result<Vec<Row>> {
    let ((tunnels, kept), rounds) = if quick { (FEW, 1) } else { (TUNNELS, 3) };
    // One process, where it may have as many files; otherwise several on the same core, which is no easier.
    let replicas = ((tunnels + kept + 200) * FILES).div_ceil(files);
    let (mut closed, mut swapped, mut lost) = (Vec::new(), Vec::new(), 0);
    for _ in 0..rounds {
        let start = |_| Replica::start(backend, dns, tunnels / replicas, kept / replicas);
        let mut all = (0..replicas).map(start).collect::<Result<Vec<_>>>()?;
        for replica in &mut all {
            replica.concerned.tell("closed?")?;
        }
        let started = Instant::now();
        for replica in &mut all {
            replica.gateway.tell(&format!("revoke {REVOKED}"))?;
        }
        for replica in &mut all {
            let said = replica.concerned.line().context("the revoked tunnels")?;
            ensure!(said == "closed", "{said:?} of the revoked tunnels");
        }
        closed.push(started.elapsed().as_secs_f64() * 1000.0);
        for replica in &mut all {
            swapped.push(replica.gateway.line()?.parse::<f64>()? / 1000.0);
            replica.others.tell("alive?")?;
            lost += kept / replicas - replica.others.line()?.parse::<u64>()?;
        }
        // What was granted again works within the same time.
        let started = Instant::now();
        for replica in &mut all {
            replica.gateway.tell("grant")?;
            drop(hold(replica.ports[0], backend, 0, REVOKED, 4)?);
        }
        let took = started.elapsed().as_secs_f64() * 1000.0;
        ensure!(took < MOST, "tunnels that were granted again took {took:.0} ms");
    }
    let worst = closed.iter().copied().fold(0.0, f64::max);
    let name = |what: &str| format!("{tunnels} tunnels of {replicas} replica(s) revoked, {what}");
    Ok(vec![
        Row::shown(name("a swap of policies"), median(&mut swapped), "ms"),
        Row::shown(name("the last one closed"), median(&mut closed), "ms"),
        Row::bound(name("the worst round"), worst, "ms", MOST),
        Row::bound("tunnels of others that were closed", lost as f64, "tunnels", 0.0),
    ])
}
