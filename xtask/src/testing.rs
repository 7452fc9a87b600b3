//! `cargo xtask test`: the suites, one after the other, each closing with a line `N passed, N failed`.

mod chart;
mod proxy;
mod rival;
mod suite;

use std::{path::PathBuf, process::Command};

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::Value;

use self::{proxy::ProxyArgs, suite::Suite};
use crate::{
    cargo::cargo,
    install::{self, Installation, TargetArgs},
    paths, python,
    ui::Step,
};

/// The release of cargo-deny that is installed where there is none.
const CARGO_DENY: &str = "0.20.2";
/// Features with which all tests are built: with the same ones, the library is compiled once for all.
const FEATURES: &str = "testkit,e2e";
/// The tests that need a cluster.
const E2E: &str = "e2e";

/// The tests of the end-to-end suite that are about calls, files and logs, and who asks for them.
const SESSION: [&str; 3] = ["session::", "cli::", "client::"];
/// The tests of the end-to-end suite that are about the record.
const EVIDENCE: [&str; 1] = ["evidence::"];
/// The tests of the end-to-end suite that attack the gateway and the fence.
const CONFORMANCE: [&str; 2] = ["conformance::", "alone::fence::"];

/// Run the suites: checks, unit tests, the chart, and the end-to-end suite on a real cluster.
#[derive(Args, Debug)]
pub(crate) struct TestArgs {
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    proxy: ProxyArgs,
    /// Nothing for all suites; `check`, `unit`, `python`, `chart` or `e2e` for one, followed by names for single tests of it; or only
    /// names. `session` is the part of `e2e` about calls, files and logs, the command line and the client for Python. `evidence` is that about the record. `conformance` is the part of `e2e` that attacks the gateway and the fence; it ends with a table.
    #[arg(value_name = "SUITE|NAME")]
    what: Vec<String>,
}

/// Runs what was asked for. An error means that something failed.
pub(crate) fn run(args: &TestArgs) -> Result<()> {
    install::ensure_tools()?;
    if args.proxy.is_meant() {
        return proxy::run(&args.proxy, &args.what, &args.target.cluster)?
            .map_or(Ok(()), |suite| close(&[suite]));
    }
    let (conformance, session) = (CONFORMANCE.map(str::to_owned), SESSION.map(str::to_owned));
    let evidence = EVIDENCE.map(str::to_owned);
    let (suite, names) = match args.what.split_first() {
        None => (None, &[][..]),
        Some((first, rest)) if ["check", "unit", "python", "chart", "e2e"].contains(&first.as_str()) => {
            (Some(first.as_str()), rest)
        }
        Some((first, [])) if first == "session" => (Some("e2e"), session.as_slice()),
        Some((first, [])) if first == "evidence" => (Some("e2e"), evidence.as_slice()),
        Some((first, [])) if first == "conformance" => (Some("e2e"), conformance.as_slice()),
        Some(_) => (Some("names"), args.what.as_slice()),
    };
    let wants = |name: &str| {
        suite.is_none_or(|suite| suite == name || (suite == "names" && ["unit", "e2e"].contains(&name)))
    };
    let mut suites = Vec::new();
    if wants("check") {
        suites.push(check()?);
    }
    if wants("unit") {
        suites.push(unit(names)?);
    }
    if wants("python") {
        suites.push(python()?);
    }
    if wants("chart") || wants("e2e") {
        let installation = Installation::prepare(&args.target)?;
        if wants("chart") {
            suites.push(chart::run(&installation)?);
        }
        if wants("e2e") {
            installation.install()?;
            suites.push(e2e(&installation, names)?);
        }
    }
    close(&suites)
}

fn close(suites: &[Suite]) -> Result<()> {
    let passed: u64 = suites.iter().map(|suite| suite.passed).sum();
    let failed: u64 = suites.iter().map(|suite| suite.failed).sum();
    for suite in suites.iter().filter(|suite| suite.failed > 0) {
        println!("\nfailed in suite {}", suite.name);
        suite.failures.iter().for_each(|line| println!("{line}"));
    }
    // Once more in brief: of a long log only the end is kept in many places.
    for line in suites.iter().flat_map(|suite| suite::brief(&suite.failures)) {
        println!("{line}");
    }
    if suites.len() > 1 {
        println!("\nall suites");
        println!("{passed} passed, {failed} failed");
    }
    if failed > 0 {
        bail!("{failed} failed");
    }
    if passed == 0 {
        bail!("no test has such a name");
    }
    Ok(())
}

fn check() -> Result<Suite> {
    let mut suite = Suite::open("check");
    let deny = cargo_deny()?;
    suite.command("formatting", cargo(["fmt", "--all", "--check"])?);
    // The product is held to the pedantic lints, tests to clippy's own.
    let product = ["clippy", "--quiet", "--workspace", "--lib", "--bins", "--", "-D", "warnings"];
    suite.command("clippy of the product", cargo(product)?);
    let mut tests = cargo(["clippy", "--quiet", "--workspace", "--all-targets", "--all-features", "--"])?;
    tests.args(["-D", "warnings"]);
    let allowed = ["pedantic", "unwrap_in_result", "unwrap_used", "expect_used", "panic", "or_fun_call"];
    tests.args(allowed.map(|lint| format!("-Aclippy::{lint}")));
    suite.command("clippy of everything", tests);
    for feature in ["api", "agent", "controller", "gateway", "session", "cli"] {
        let arguments = [
            "check",
            "--quiet",
            "--package",
            "glovebox",
            "--lib",
            "--no-default-features",
            "--features",
            feature,
        ];
        suite.command(&format!("feature {feature} alone"), cargo(arguments)?);
    }
    let mut command = Command::new(deny);
    command.current_dir(paths::checkout()).args([
        "--log-level",
        "error",
        "check",
        "bans",
        "licenses",
        "sources",
    ]);
    suite.command("cargo deny", command);
    Ok(suite.close())
}

/// cargo-deny, installed into the user's cache if the machine has none.
fn cargo_deny() -> Result<PathBuf> {
    let root = paths::cache()?.join(format!("tools/cargo-deny-{CARGO_DENY}"));
    let program = root.join("bin/cargo-deny");
    if !program.exists() {
        let step = Step::start(format!("installing cargo-deny {CARGO_DENY}"));
        let root = root.to_string_lossy().into_owned();
        install::run(
            cargo([
                "install",
                "--quiet",
                "--locked",
                "--root",
                &root,
                "--version",
                CARGO_DENY,
                "cargo-deny",
            ])?,
            "cargo install cargo-deny",
        )?;
        step.done("");
    }
    Ok(program)
}

fn unit(names: &[String]) -> Result<Suite> {
    let mut suite = Suite::open("unit");
    for package in ["glovebox", "xtask"] {
        let mut command = cargo(["test", "--quiet", "--no-fail-fast", "--package", package])?;
        if package == "glovebox" {
            // It has a server of S3's protocol.
            command.env("GLOVEBOX_PYTHON", python::interpreter()?);
            command.args(["--lib", "--bins", "--features", FEATURES]);
            command.args(unit_tests()?.iter().flat_map(|name| ["--test", name]));
        }
        command.arg("--").args(names);
        suite.libtest(package, command)?;
    }
    Ok(suite.close())
}

/// Every test program that needs no cluster.
fn unit_tests() -> Result<Vec<String>> {
    let text = install::run(cargo(["metadata", "--format-version", "1", "--no-deps"])?, "cargo metadata")?;
    let metadata: Value = serde_json::from_str(&text).context("cargo metadata")?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let targets = packages
        .filter(|package| package["name"] == "glovebox")
        .flat_map(|package| package["targets"].as_array().into_iter().flatten())
        .filter(|target| target["kind"][0] == "test")
        .filter_map(|target| target["name"].as_str().map(ToOwned::to_owned));
    let tests: Vec<String> = targets.filter(|name| name != E2E).collect();
    anyhow::ensure!(!tests.is_empty(), "cargo knows no tests");
    Ok(tests)
}

fn python() -> Result<Suite> {
    let mut suite = Suite::open("python");
    for (what, arguments) in [
        ("models are those of the document", &["generate.py", "--check"][..]),
        ("lints", &["-m", "ruff", "check", ".", "../../examples/agent-loop"]),
        ("formatting", &["-m", "ruff", "format", "--check", ".", "../../examples/agent-loop"]),
        ("types", &["-m", "mypy"]),
        ("unit tests", &["-m", "pytest", "-q", "tests/unit"]),
    ] {
        suite.command(&format!("client for Python: {what}"), python::command(arguments)?);
    }
    Ok(suite.close())
}

fn e2e(installation: &Installation, names: &[String]) -> Result<Suite> {
    let program = test_program(E2E, "--test")?;
    let mut command = installation.command(&program)?;
    command.env("GLOVEBOX_E2E_IMAGE", &installation.tools).env("GLOVEBOX_AGENT_IMAGE", &installation.image);
    command
        .env("GLOVEBOX_CHECKOUT", paths::checkout())
        .env("GLOVEBOX_PYTHON", python::interpreter()?)
        .args(names);
    let mut suite = Suite::open("e2e");
    suite.libtest("the cluster", command)?;
    Ok(suite.close())
}

/// Builds a test or bench target and says where its program is.
pub(crate) fn test_program(name: &str, kind: &str) -> Result<PathBuf> {
    let step = Step::start(format!("building {name}"));
    let text = install::run(
        cargo([
            "test",
            "--quiet",
            "--package",
            "glovebox",
            "--features",
            FEATURES,
            kind,
            name,
            "--no-run",
            "--message-format",
            "json",
        ])?,
        "cargo",
    )?;
    let found =
        text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()).find_map(|message| {
            let ours = message["target"]["name"] == name;
            message["executable"].as_str().filter(|_| ours).map(PathBuf::from)
        });
    step.done("");
    found.with_context(|| format!("cargo built no program for {name}"))
}
