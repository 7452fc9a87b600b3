//! One suite: runs commands, counts what passed and failed, and says so in a line that others can read.

use std::{
    io::{BufRead, BufReader},
    process::{Command, Stdio},
    time::Instant,
};

use anyhow::{Context, Result};

use crate::{
    install,
    ui::{self, Step},
};

/// A suite under way, or its outcome.
pub(crate) struct Suite {
    /// Its name.
    pub(crate) name: &'static str,
    started: Instant,
    /// How many passed.
    pub(crate) passed: u64,
    /// How many failed.
    pub(crate) failed: u64,
    /// What is known of those that failed, said again at the very end: the end of a long log is what people read first.
    pub(crate) failures: Vec<String>,
}

impl Suite {
    /// Starts one.
    pub(crate) fn open(name: &'static str) -> Self {
        println!("\nsuite {name}");
        Self { name, started: Instant::now(), passed: 0, failed: 0, failures: Vec::new() }
    }

    /// A command that is one test.
    pub(crate) fn command(&mut self, what: &str, command: Command) {
        let step = Step::start(what);
        match install::run(command, what) {
            Ok(_) => {
                step.done("");
                self.pass(what);
            }
            Err(error) => {
                drop(step);
                self.fail(what, &error);
            }
        }
    }

    /// A test by its outcome.
    pub(crate) fn judge(&mut self, what: &str, outcome: Result<()>) {
        match outcome {
            Ok(()) => self.pass(what),
            Err(error) => self.fail(what, &error),
        }
    }

    fn pass(&mut self, what: &str) {
        self.passed += 1;
        println!("test {what} ... ok");
    }

    fn fail(&mut self, what: &str, error: &anyhow::Error) {
        self.failed += 1;
        println!("test {what} ... FAILED\n{error:#}");
        self.failures.push(format!("---- {what} ----\n{error:#}"));
    }

    /// A test program whose output is shown as it comes, and counted by its closing lines. One that ends badly without
    /// counting a failure is a failure.
    pub(crate) fn libtest(&mut self, what: &str, mut command: Command) -> Result<()> {
        let mut child =
            command.stdout(Stdio::piped()).spawn().with_context(|| format!("{what} does not start"))?;
        let (mut failed, mut report) = (0, Report::default());
        for line in BufReader::new(child.stdout.take().context("no output")?).lines() {
            let line = line?;
            println!("{line}");
            report.read(&line);
            if let Some((ok, bad)) = counts(&line) {
                self.passed += ok;
                failed += bad;
            }
        }
        if !child.wait()?.success() && failed == 0 {
            println!("test {what} ... FAILED: the test program ended badly");
            report.lines.push(format!("---- {what} ----\nthe test program ended badly"));
            failed = 1;
        }
        self.failed += failed;
        self.failures.append(&mut report.lines);
        Ok(())
    }

    /// Says how it ended.
    pub(crate) fn close(self) -> Self {
        println!("\nsuite {}: {}", self.name, ui::span(self.started.elapsed()));
        println!("{} passed, {} failed", self.passed, self.failed);
        self
    }
}

/// What a test program says of its failures, between `failures:` and its closing line.
#[derive(Default)]
struct Report {
    within: bool,
    lines: Vec<String>,
}

impl Report {
    fn read(&mut self, line: &str) {
        self.within = !line.starts_with("test result: ") && (self.within || line == "failures:");
        if self.within && !line.is_empty() && line != "failures:" {
            self.lines.push(line.to_owned());
        }
    }
}

/// How many lines tell a failure in brief, and of how many characters.
const BRIEF: (usize, usize) = (6, 300);

/// The beginning of each failure: its name and what was wrong, without the story around it.
pub(crate) fn brief(failures: &[String]) -> Vec<String> {
    let lines: Vec<&str> = failures.iter().flat_map(|text| text.lines()).collect();
    let begins = |line: &str| line.starts_with("---- ") && line.ends_with(" ----");
    let starts = lines.iter().enumerate().filter(|(_, line)| begins(line)).map(|(at, _)| at);
    let of = |start: usize| {
        let more = lines.iter().skip(start + 1).take_while(move |line| !begins(line));
        lines.iter().skip(start).take(1).chain(more.take(BRIEF.0))
    };
    starts.flat_map(of).map(|line| line.chars().take(BRIEF.1).collect()).collect()
}

/// Reads `test result: ok. 12 passed; 0 failed; ...`.
fn counts(line: &str) -> Option<(u64, u64)> {
    let rest = line.strip_prefix("test result: ")?.split_once(". ")?.1;
    let number = |word: &str| {
        let part = rest.split("; ").find(|part| part.ends_with(word))?;
        part.split(' ').next()?.parse().ok()
    };
    Some((number("passed")?, number("failed")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_kept_for_the_end() {
        let mut report = Report::default();
        let text = "test a ... ok\n\nfailures:\n\n---- b ----\nleft: 1\n\nfailures:\n    b\n\ntest result: FAILED. 1 passed; 1 failed;\ntest c ... ok";
        text.lines().for_each(|line| report.read(line));
        assert_eq!(report.lines, ["---- b ----", "left: 1", "    b"]);
    }

    #[test]
    fn a_failure_in_brief_is_its_name_and_its_first_lines() {
        let long = format!("---- a ----\nit was {}\n{}", "x".repeat(400), "story\n".repeat(50));
        let told = brief(&[long, "---- b ----".into(), "left: 1".into(), "    b".into()]);
        assert_eq!(told[0], "---- a ----");
        assert_eq!(told[1].len(), 300);
        assert_eq!(told.iter().filter(|line| *line == "story").count(), 5);
        assert_eq!(told[7..], ["---- b ----", "left: 1", "    b"]);
    }

    #[test]
    fn closing_lines_are_counted() {
        let line = "test result: FAILED. 12 passed; 3 failed; 0 ignored; 0 measured; 1 filtered out; finished in 0.02s";
        assert_eq!(counts(line), Some((12, 3)));
        assert_eq!(counts("test result: ok. 0 passed; 0 failed; 0 ignored"), Some((0, 0)));
        assert_eq!(counts("12 passed, 3 failed"), None);
    }
}
