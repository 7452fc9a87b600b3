//! What the record costs: how much one writer chains and stores, and what a connection costs more where it is recorded. Run by
//! `cargo xtask bench audit`, or by `cargo bench --bench audit`.
//!
//! The gateway runs twice at once, one of them recording by the product's own sender, over TLS, to a server that takes all. They are loaded by
//! turns, a second each, so that what else the machine does is felt by both. What counts is CPU time, user and system.

#![expect(clippy::cast_precision_loss, reason = "what is measured is far from 2^52")]

#[path = "common/gateway.rs"]
mod common;
#[path = "common/cpu.rs"]
mod cpu;
#[path = "common/ended.rs"]
mod ended;
#[path = "egress/load.rs"]
#[allow(dead_code, reason = "another benchmark's, of which this one needs a part")]
mod load;
#[path = "common/process.rs"]
#[allow(dead_code, reason = "another benchmark's, of which this one needs a part")]
mod process;
#[path = "egress/relay.rs"]
mod relay;
#[path = "egress/roles.rs"]
mod roles;
#[path = "audit/sink.rs"]
mod sink;
#[path = "audit/writer.rs"]
mod writer;

use std::process::ExitCode;

use anyhow::{Context as _, Result, bail, ensure};
use process::{Process, raise_files};
use serde_json::json;

/// As in the program that ships.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Where gateways run, and where load and servers do.
const CORES: [usize; 2] = [0, 1];
/// Connections of one turn, and turns of each.
const CONNECTIONS: usize = 4000;
const TURNS: usize = 15;
/// CPU of a connection that is recorded, to that of one that is not.
const MOST_RATIO: f64 = 1.10;
/// Records a second.
const LEAST_STORED: f64 = 20_000.0;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    ended::ended(match words.as_slice() {
        ["role", "sink", folder] => sink::serve(folder),
        ["role", "recorded", sink, folder, backend, dns] => sink::recorded(sink, folder, backend, dns),
        ["role", role @ ..] => roles::play(role),
        _ => run(),
    })
}

fn run() -> Result<()> {
    let stored = writer::measure()?;
    println!(
        "{:>8.0} records a second chained and stored, {:.1} us CPU each, {:.2} times the time of the same bytes without chain and signature",
        stored.rate, stored.cpu, stored.ratio
    );
    let (plain, recorded, ratio) = connections()?;
    println!("{plain:>8.1} us CPU a CONNECT, {recorded:.1} recorded, {ratio:.3} times");
    for (row, value) in [
        ("records a second", stored.rate),
        ("CPU us a record", stored.cpu),
        ("to the same bytes alone", stored.ratio),
        ("CPU us a CONNECT", plain),
        ("CPU us a CONNECT, recorded", recorded),
        ("recorded to not", ratio),
    ] {
        println!("{}", json!({"bench": "audit", "row": row, "value": value}));
    }
    ensure!(
        stored.rate >= LEAST_STORED,
        "{:.0} records a second are stored, below {LEAST_STORED}",
        stored.rate
    );
    ensure!(ratio <= MOST_RATIO, "a recorded connection takes {ratio:.3} times the CPU, over {MOST_RATIO}");
    Ok(())
}

struct Gateway {
    process: Process,
    port: u16,
}

impl Gateway {
    fn start(role: &[&str], backend: u16, dns: u16) -> Result<Self> {
        let (backend, dns) = (backend.to_string(), dns.to_string());
        let role: Vec<&str> = role.iter().copied().chain([&*backend, &*dns]).collect();
        let (process, ports) = Process::start(CORES[0], &role)?;
        let port = *ports.first().context("the gateway named no port")?;
        Ok(Self { process, port })
    }

    fn cpu(&self) -> Result<f64> {
        cpu::micros(self.process.child.id())
    }

    /// What a connection costs.
    fn turn(&self, backend: u16, connections: usize) -> Result<f64> {
        let before = self.cpu()?;
        let (port, backend, count) = (self.port.to_string(), backend.to_string(), connections.to_string());
        let load = ["load", "exchange", &port, "echo.example", &backend, &count];
        let (mut load, _) = Process::start(CORES[1], &load)?;
        load.line()?;
        Ok((self.cpu()? - before) / connections as f64)
    }
}

/// CPU of a connection, of a recorded one, and the median of their ratios by turns.
fn connections() -> Result<(f64, f64, f64)> {
    raise_files(65_536);
    let folder = std::env::temp_dir().join(format!("glovebox-bench-audit-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let path = folder.display().to_string();
    let (_servers, ports) = Process::start(CORES[1], &["servers"])?;
    let [backend, dns] = ports[..] else { bail!("the servers said {ports:?}") };
    let (_sink, ports) = Process::start(CORES[1], &["sink", &path])?;
    let sink = ports.first().context("the sink named no port")?.to_string();
    let plain = Gateway::start(&["gateway"], backend, dns)?;
    let recorded = Gateway::start(&["recorded", &sink, &path], backend, dns)?;
    for gateway in [&plain, &recorded] {
        gateway.turn(backend, 500)?;
    }
    let mut turns = Vec::new();
    for _ in 0..TURNS {
        turns.push((plain.turn(backend, CONNECTIONS)?, recorded.turn(backend, CONNECTIONS)?));
    }
    std::fs::remove_dir_all(&folder)?;
    let middle = |mut all: Vec<f64>| {
        all.sort_by(f64::total_cmp);
        all.get(all.len() / 2).copied().unwrap_or(f64::NAN)
    };
    let ratios = turns.iter().map(|(plain, recorded)| recorded / plain).collect();
    let plain = middle(turns.iter().map(|turn| turn.0).collect());
    let recorded = middle(turns.iter().map(|turn| turn.1).collect());
    Ok((plain, recorded, middle(ratios)))
}
