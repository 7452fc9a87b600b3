//! `cargo xtask bench`: benchmarks, on a real cluster where it takes one. Each prints a table and JSON lines, and fails past its bound.

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};

use crate::{
    cargo::cargo,
    deps::{self, need},
    install::{self, Installation, TargetArgs},
    testing,
};

/// Run a benchmark.
#[derive(Args, Debug)]
pub(crate) struct BenchArgs {
    /// Which one.
    #[arg(value_enum)]
    bench: Bench,
    #[command(flatten)]
    target: TargetArgs,
    /// Of `egress`: a short run, for a look; its figures are too rough to be held to.
    #[arg(long)]
    quick: bool,
    /// Of `egress`: squid and haproxy are not installed, and it is no failure if they are missing.
    #[arg(long)]
    without_others: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Bench {
    /// From object created to pod created, beside a bare pod.
    Create,
    /// A call in a warm sandbox through the session, beside one through the API server.
    Exec,
    /// The gateway beside a plain relay, on this machine alone.
    Egress,
    /// The gateway among many: tunnels revoked, neighbours at their limits, long policies; on this machine alone.
    Crowds,
    /// What the record costs: records a second, and a connection that is recorded; on this machine alone.
    Audit,
}

/// Runs it.
pub(crate) fn run(args: &BenchArgs) -> Result<()> {
    match args.bench {
        Bench::Create => on_cluster(args, "create"),
        Bench::Exec => on_cluster(args, "exec"),
        Bench::Egress => egress(args),
        Bench::Crowds => run_alone("crowds", &[]),
        Bench::Audit => run_alone("audit", &[]),
    }
}

/// A benchmark of what is installed.
fn on_cluster(args: &BenchArgs, name: &str) -> Result<()> {
    install::ensure_tools()?;
    let program = testing::test_program(name, "--bench")?;
    let installation = Installation::prepare(&args.target)?;
    installation.install()?;
    let mut command = installation.command(&program)?;
    command.env("GLOVEBOX_E2E_IMAGE", &installation.tools);
    let status = command.status().context("the benchmark does not start")?;
    if status.success() { Ok(()) } else { bail!("benchmark {name} ended with {status}") }
}

fn egress(args: &BenchArgs) -> Result<()> {
    deps::ensure(&[need("taskset", "util-linux")])?;
    if !args.without_others
        && let Err(error) = deps::ensure(&[need("squid", "squid"), need("haproxy", "haproxy")])
    {
        // The benchmark says what it could not measure, and fails for it at the end.
        eprintln!("warning: {error:#}");
    }
    let options = [args.quick.then_some("--quick"), args.without_others.then_some("--without-others")];
    run_alone("egress", &options.into_iter().flatten().collect::<Vec<_>>())
}

/// A benchmark that needs no cluster.
fn run_alone(name: &str, options: &[&str]) -> Result<()> {
    let mut command = cargo(["bench", "--bench", name, "--"])?;
    let status = command.args(options).status().context("cargo does not start")?;
    if status.success() { Ok(()) } else { bail!("benchmark {name} ended with {status}") }
}
