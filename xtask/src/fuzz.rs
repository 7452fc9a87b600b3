//! `cargo xtask fuzz`: the parsers of hostile bytes before a fuzzer that is led by coverage, on the stable compiler.
//!
//! What was found so far is kept in the user's cache, so that each run goes on from there. A finding is kept beside it, and
//! fails the run.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::{
    cargo::{cargo, target},
    paths,
    ui::Step,
};

/// What tells libFuzzer which branches were taken. Set for the target alone: build scripts could not be linked with it.
const COVERAGE: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
                        -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
                        -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares";
/// Longest time for one input, in seconds: these parsers take microseconds.
const TIMEOUT: &str = "-timeout=10";

/// Fuzz the parsers of hostile bytes, each for some time.
#[derive(Args, Debug)]
pub(crate) struct FuzzArgs {
    /// Which; all of them if none is named.
    targets: Vec<String>,
    /// Seconds for each.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=86400))]
    seconds: u32,
}

/// Runs them one after the other.
pub(crate) fn run(args: &FuzzArgs) -> Result<()> {
    let all = targets()?;
    if let Some(unknown) = args.targets.iter().find(|target| !all.contains(target)) {
        bail!("there is no fuzz target {unknown:?}; there are {}", all.join(", "));
    }
    let chosen = if args.targets.is_empty() { &all } else { &args.targets };
    let programs = build()?;
    let mut failed = 0;
    for target in chosen {
        let step = Step::start(format!("fuzzing {target} for {} s", args.seconds));
        match fuzz(&programs, target, args.seconds) {
            Ok(said) => step.done(&said),
            Err(finding) => {
                failed += 1;
                step.done("FOUND");
                println!("{target}: {finding:#}");
            }
        }
    }
    println!("{} passed, {failed} failed", chosen.len() - failed);
    if failed > 0 {
        bail!("{failed} of the parsers fail on an input");
    }
    Ok(())
}

fn targets() -> Result<Vec<String>> {
    let folder = paths::checkout().join("fuzz/fuzz_targets");
    let files = fs::read_dir(&folder).with_context(|| folder.display().to_string())?;
    let names =
        files.map(|file| Ok(file?.path().file_stem().unwrap_or_default().to_string_lossy().into_owned()));
    let mut names: Vec<String> = names.collect::<Result<_>>()?;
    names.sort();
    Ok(names)
}

/// Builds all of them; gives the folder with the programs.
fn build() -> Result<PathBuf> {
    let step = Step::start("building the fuzz targets");
    let mut cargo = cargo(["build", "--quiet", "--release", "--bins", "--target", &target()])?;
    // Not among the rest: these programs are built otherwise, though their names may be the same.
    let folder = paths::target()?.join("fuzz");
    cargo
        .current_dir(paths::checkout().join("fuzz"))
        .env("RUSTFLAGS", COVERAGE)
        .env("CARGO_TARGET_DIR", &folder);
    if !cargo.status().context("cargo does not start")?.success() {
        bail!("cargo could not build the fuzz targets; what is wrong stands above");
    }
    step.done("");
    Ok(folder.join(target()).join("release"))
}

/// Fuzzes one; gives what the fuzzer says of its work.
fn fuzz(programs: &Path, target: &str, seconds: u32) -> Result<String> {
    let kept = paths::cache()?.join("fuzz").join(target);
    let corpus = kept.join("corpus");
    fs::create_dir_all(&corpus).with_context(|| corpus.display().to_string())?;
    let output = Command::new(programs.join(target))
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-artifact_prefix={}/", kept.display()))
        .args([TIMEOUT, "-print_final_stats=1"])
        .arg(&corpus)
        .arg(paths::checkout().join("fuzz/seeds").join(target))
        .output()
        .with_context(|| format!("{target} does not start"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        let end: Vec<&str> = said.lines().rev().take(30).collect();
        bail!("{}", end.into_iter().rev().collect::<Vec<_>>().join("\n"));
    }
    let runs = said.lines().find_map(|line| line.strip_prefix("stat::number_of_executed_units:"));
    let runs: u64 =
        runs.and_then(|runs| runs.trim().parse().ok()).context("the fuzzer says nothing of its runs")?;
    if runs == 0 {
        bail!("nothing was run");
    }
    Ok(format!("{runs} runs"))
}
