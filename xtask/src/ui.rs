//! What a person sees while tasks work: steps with the time they took, and how much is left. Writes to
//! standard error only, so that standard output stays free for data.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::Result;

/// How often a step in progress says so where no line can be redrawn (logs, CI).
const HEARTBEAT: Duration = Duration::from_secs(20);
/// How often the line of a step is redrawn on a terminal.
const REDRAW: Duration = Duration::from_millis(500);

/// Ends the program: an error is printed with its causes and gives status 1.
pub(crate) fn exit(outcome: Result<ExitCode>) -> ExitCode {
    outcome.unwrap_or_else(|error| {
        say(&format!("error: {error:#}"));
        ExitCode::FAILURE
    })
}

/// Prints one line. A closed standard error is no reason to stop working.
pub(crate) fn say(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// A duration as a person reads it: `0.4s`, `12s`, `3m05s`, `1h02m`.
pub(crate) fn span(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..10 => format!("{:.1}s", duration.as_secs_f64()),
        10..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h{:02}m", seconds / 3600, seconds % 3600 / 60),
    }
}

/// What is known beforehand of the time a step takes.
#[derive(Clone, Copy, Default)]
pub(crate) struct Estimate {
    /// The step itself.
    pub(crate) step: Option<Duration>,
    /// What comes after it in the same task.
    pub(crate) rest: Duration,
}

/// A step under way. Dropped without `done`, it counts as broken off.
pub(crate) struct Step {
    label: String,
    started: Instant,
    ticker: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Step {
    /// Announces a step whose duration nobody knows.
    pub(crate) fn start(label: impl Into<String>) -> Self {
        Self::estimated(label, Estimate::default())
    }

    /// Announces a step and shows, while it lasts, about how much time is left.
    pub(crate) fn estimated(label: impl Into<String>, estimate: Estimate) -> Self {
        let (label, started) = (label.into(), Instant::now());
        let (stop, stopped) = mpsc::channel();
        let (text, terminal) = (label.clone(), io::stderr().is_terminal());
        if !terminal {
            say(&format!("{label} ...{}", left(estimate, Duration::ZERO)));
        }
        let ticker = thread::spawn(move || {
            let period = if terminal { REDRAW } else { HEARTBEAT };
            while stopped.recv_timeout(period) == Err(RecvTimeoutError::Timeout) {
                let elapsed = started.elapsed();
                let line = format!("{text}: {}{}", span(elapsed), left(estimate, elapsed));
                if terminal { redraw(&line) } else { say(&format!("  {line}")) }
            }
        });
        Self { label, started, ticker: Some((stop, ticker)) }
    }

    /// Ends the step well and says how long it took.
    pub(crate) fn done(mut self, note: &str) {
        let elapsed = self.started.elapsed();
        self.stop();
        let note = if note.is_empty() { String::new() } else { format!(" ({note})") };
        say(&format!("{}: {}{note}", self.label, span(elapsed)));
    }

    /// How long the step has been under way.
    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    fn stop(&mut self) {
        if let Some((stop, ticker)) = self.ticker.take() {
            drop(stop);
            let _ = ticker.join();
            if io::stderr().is_terminal() {
                redraw("");
            }
        }
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        if self.ticker.is_some() {
            self.stop();
            say(&format!("{}: broken off after {}", self.label, span(self.started.elapsed())));
        }
    }
}

fn redraw(line: &str) {
    let mut stderr = io::stderr().lock();
    let _ = write!(stderr, "\r\x1b[K{line}");
    let _ = stderr.flush();
}

fn left(estimate: Estimate, elapsed: Duration) -> String {
    let Some(step) = estimate.step else { return String::new() };
    let remaining = step.saturating_sub(elapsed);
    let all = remaining + estimate.rest;
    let own = match remaining.as_secs() {
        0 => "longer than usual".to_owned(),
        _ => format!("about {} left", span(remaining)),
    };
    if estimate.rest.is_zero() { format!(", {own}") } else { format!(", {own}; all: about {}", span(all)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_read_at_a_glance() {
        let read = |seconds| span(Duration::from_secs_f64(seconds));
        assert_eq!(
            [read(0.42), read(12.9), read(185.0), read(3725.0)],
            ["0.4s", "12s", "3m05s", "1h02m"].map(String::from)
        );
    }

    #[test]
    fn the_time_left_shrinks_and_then_admits_to_be_late() {
        let estimate = Estimate { step: Some(Duration::from_secs(60)), rest: Duration::from_secs(30) };
        assert_eq!(left(estimate, Duration::from_secs(15)), ", about 45s left; all: about 1m15s");
        assert_eq!(left(estimate, Duration::from_secs(90)), ", longer than usual; all: about 30s");
        assert_eq!(left(Estimate::default(), Duration::from_secs(1)), "");
    }
}
