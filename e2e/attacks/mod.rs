//! Scripts that act as the attacker inside a sandbox, and the judge of what they report. Each prints a line an attempt, and at
//! the end how many there were, so that one that did nothing is no success.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::harness::{Runtime, Sandbox, Test, classes::merge};

/// A script, and how many attempts it makes at least.
#[derive(Clone, Copy)]
pub(crate) struct Attack {
    script: &'static str,
    least: usize,
}

const PRELUDE: &str = include_str!("prelude.py");

/// Becoming root, leaving the container, or staying in it.
pub(crate) const ROOT: Attack = Attack { script: include_str!("root.py"), least: 70 };
/// Poisoning what others trust.
pub(crate) const PROTECTED: Attack = Attack { script: include_str!("protected.py"), least: 250 };
/// Finding anything of the outside.
pub(crate) const MOUNTS: Attack = Attack { script: include_str!("mounts.py"), least: 60 };
/// Filling every writable place.
pub(crate) const FILL: Attack = Attack { script: include_str!("fill.py"), least: 4 };
/// Connecting outward.
pub(crate) const PROBE: Attack = Attack { script: include_str!("probe.py"), least: 1 };
/// Forking without end.
pub(crate) const FORK: Attack = Attack { script: include_str!("fork.py"), least: 0 };
/// Taking all of everything at once, for a while.
pub(crate) const GREED: Attack = Attack { script: include_str!("greed.py"), least: 4 };
/// No attack: what a neighbour measures meanwhile.
pub(crate) const MEASURE: &str = include_str!("measure.py");
/// Leaving something behind; it goes on until it is ended.
pub(crate) const PLANT: Attack = Attack { script: include_str!("plant.py"), least: 0 };

impl Attack {
    /// A script of another suite.
    pub(crate) const fn new(script: &'static str, least: usize) -> Self {
        Self { script, least }
    }

    /// The command that carries it out.
    pub(crate) fn command(self, arguments: &[&str]) -> Vec<String> {
        let words = ["python3", "-u", "-c", &format!("{PRELUDE}\n{}", self.script)].map(ToOwned::to_owned);
        words.into_iter().chain(arguments.iter().map(ToString::to_string)).collect()
    }

    /// Carries it out as the workload of a new sandbox.
    pub(crate) async fn as_workload(
        self,
        test: &Test,
        runtime: Runtime,
        spec: &Value,
        arguments: &[&str],
    ) -> Result<()> {
        let mut all = json!({"command": self.command(arguments)});
        merge(&mut all, spec);
        let sandbox = test.sandbox(runtime, "attacker", &all).await?;
        let status = sandbox.ended().await?;
        let log = sandbox.log().await?;
        self.judge(&log)
            .with_context(|| format!("the workload ended as {:?} with {:?}", status.reason, status.exit_code))
    }

    /// Carries it out by an exec call in a sandbox that runs; gives what it printed.
    pub(crate) async fn by_exec(self, sandbox: &Sandbox, arguments: &[&str]) -> Result<String> {
        let command = self.command(arguments);
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        let output = sandbox.exec(&words).await?;
        self.judge(&output.stdout)
            .with_context(|| format!("the attack ended with {}: {}", output.code, output.stderr))?;
        Ok(output.stdout)
    }

    /// Holds what was printed against it.
    pub(crate) fn judge(self, log: &str) -> Result<()> {
        let breaches: Vec<&str> = log.lines().filter(|line| line.starts_with("BREACH")).collect();
        ensure!(breaches.is_empty(), "{} breaches:\n{}", breaches.len(), breaches.join("\n"));
        let count = log.lines().find_map(|line| line.strip_prefix("attempts ")?.parse::<usize>().ok());
        let count = count.with_context(|| format!("the attack did not come to its end:\n{log}"))?;
        ensure!(count >= self.least, "only {count} attempts of {}:\n{log}", self.least);
        Ok(())
    }
}
