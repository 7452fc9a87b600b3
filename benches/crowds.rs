//! What many at once cost: ten thousand tunnels whose rule goes, a sandbox beside one that is at all of its limits or beside five
//! thousand heads that drip, a policy of ten thousand hosts. Run by `cargo xtask bench crowds`, or by `cargo bench --bench crowds`
//! with `-- --quick` for a short run.
//!
//! The gateway runs on one core, clients and servers on another, each in a process of its own. Prints a table, then a JSON line a
//! row, and fails when a row is over its bound.

#![expect(clippy::cast_precision_loss, reason = "what is measured is far from 2^52")]

#[path = "crowds/clients.rs"]
mod clients;
#[path = "common/gateway.rs"]
mod common;
#[path = "common/ended.rs"]
mod ended;
#[path = "crowds/gateway.rs"]
mod gateway;
#[path = "crowds/neighbour.rs"]
mod neighbour;
#[path = "crowds/policies.rs"]
mod policies;
#[path = "common/process.rs"]
mod process;
#[path = "crowds/revoke.rs"]
mod revoke;

use std::process::ExitCode;

use anyhow::{Result, bail};
use process::{Process, raise_files};
use serde_json::json;

/// File descriptors that the largest of the processes needs for ten thousand tunnels, a quarter of them spliced.
const FILES: u64 = 80_000;

/// One figure, and what it may be at most.
pub(crate) struct Row {
    name: String,
    value: f64,
    unit: &'static str,
    most: Option<f64>,
}

impl Row {
    /// A figure that is held to a bound.
    pub(crate) fn bound(name: impl Into<String>, value: f64, unit: &'static str, most: f64) -> Self {
        Self { name: name.into(), value, unit, most: Some(most) }
    }

    /// A figure to look at.
    pub(crate) fn shown(name: impl Into<String>, value: f64, unit: &'static str) -> Self {
        Self { name: name.into(), value, unit, most: None }
    }
}

/// The middle one of some values.
pub(crate) fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["role", role @ ..] => play(role),
        _ => run(words.contains(&"--quick")),
    };
    ended::ended(done)
}

fn play(role: &[&str]) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        match role {
            ["servers"] => gateway::servers().await,
            ["gateway", backend, dns, kind] => gateway::serve_all(backend.parse()?, dns.parse()?, kind).await,
            ["hold", words @ ..] => clients::hold(words).await,
            ["good", words @ ..] => clients::good(words).await,
            ["greedy", words @ ..] => clients::greedy(words).await,
            ["drip", words @ ..] => clients::drip(words).await,
            _ => bail!("no role {role:?}"),
        }
    })
}

fn run(quick: bool) -> Result<()> {
    let files = raise_files(FILES);
    let (_servers, ports) = Process::start(1, &["servers"])?;
    let [backend, dns] = ports[..] else { bail!("the servers said {ports:?}") };
    let mut rows = policies::run(quick)?;
    rows.extend(revoke::run(backend, dns, files, quick)?);
    rows.extend(neighbour::run(backend, dns, files, quick)?);
    let mut over = Vec::new();
    println!("{:<64} {:>12}", "", "figure");
    for Row { name, value, unit, most } in &rows {
        println!("{name:<64} {value:>12.2} {unit}");
        if let Some(most) = most.filter(|most| value > most) {
            over.push(format!("{name} is {value:.2} {unit}, over its bound of {most}"));
        }
    }
    for Row { name, value, unit, most } in &rows {
        println!("{}", json!({"bench": "crowds", "row": name, "value": value, "unit": unit, "bound": most}));
    }
    if over.is_empty() { Ok(()) } else { bail!(over.join("; ")) }
}
