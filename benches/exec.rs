//! A call of `true` in a warm sandbox, through the session and through the API server's own exec, in the same run; beside what
//! starting the process costs inside. Run by `cargo xtask bench exec`.
//!
//! The session is asked by a pod with one connection, as a tool would; the API server by this program, with the client that the
//! rest of Glovebox uses, so that no start of `kubectl` is counted against it. Rounds are interleaved, so that a noisy machine
//! is noisy for all. Prints a table, then JSON lines, and fails when a bound is broken.

#[path = "exec/cluster.rs"]
mod cluster;
#[path = "common/ended.rs"]
mod ended;
#[path = "exec/recorded.rs"]
mod recorded;
#[path = "exec/report.rs"]
mod report;
#[path = "common/usage.rs"]
mod usage;

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use cluster::{Bench, output};
use report::Rows;
use serde::Deserialize;
use usage::Usage;

/// Interleaved rounds.
const ROUNDS: usize = 10;
/// Calls through the session in each.
const CALLS: usize = 100;
/// Calls through the API server in each: they are slow.
const API_CALLS: usize = 10;
/// Processes started inside in each.
const STARTS: usize = 100;

/// The role whose processes are measured.
const ROLE: &str = "session";

/// What a pod prints of its calls, in seconds.
#[derive(Debug, Deserialize)]
struct Took {
    took: Vec<f64>,
}

#[tokio::main]
async fn main() -> ExitCode {
    ended::ended(run().await)
}

async fn run() -> Result<()> {
    let bench = Bench::set_up().await?;
    let measured = measure(&bench).await;
    bench.tear_down().await?;
    measured?.report()
}

async fn measure(bench: &Bench) -> Result<Rows> {
    let mut rows = Rows::default();
    // What is made once, connections and what the API server was asked, does not count.
    session(bench, 20).await?;
    api_server(bench).await?;
    starts(bench, 20).await?;
    let before = Usage::read(ROLE);
    for _ in 0..ROUNDS {
        rows.start.extend(starts(bench, STARTS).await?);
        rows.session.extend(session(bench, CALLS).await?);
        for _ in 0..API_CALLS {
            rows.api_server.push(api_server(bench).await?);
        }
    }
    rows.used = Usage::read(ROLE).since(&before);
    rows.recorded = recorded::Recorded::measure(bench).await?;
    Ok(rows)
}

/// Calls through the session, one after the other.
async fn session(bench: &Bench, calls: usize) -> Result<Vec<Duration>> {
    let facts = bench.facts(calls).to_string();
    read(&bench.in_client(&["python3", "-c", include_str!("exec/client.py"), &facts]).await?)
}

/// The same by the API server, with the websocket protocol of `kubectl exec`.
async fn api_server(bench: &Bench) -> Result<Duration> {
    let began = Instant::now();
    let printed = bench.in_sandbox(&["true"]).await?;
    let took = began.elapsed();
    ensure!(printed.is_empty(), "true said something");
    Ok(took)
}

/// What a process's own start and end take, inside.
async fn starts(bench: &Bench, count: usize) -> Result<Vec<Duration>> {
    let count = count.to_string();
    read(&bench.in_sandbox(&["python3", "-c", include_str!("exec/starts.py"), &count]).await?)
}

fn read(printed: &str) -> Result<Vec<Duration>> {
    let Took { took } = serde_json::from_str(printed).with_context(|| output(printed))?;
    took.into_iter().map(|seconds| Duration::try_from_secs_f64(seconds).context("a time")).collect()
}
