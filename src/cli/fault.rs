//! How a command ends: exit codes, and errors that carry one.

use crate::session::api::{ExecResult, Outcome as Ended};

/// What each command gives back: the code to end with.
pub(super) type Outcome = anyhow::Result<u8>;

/// A call was ended at its deadline.
pub const DEADLINE: u8 = 124;
/// Glovebox failed, and what was asked for was not done, or it is not known whether it was.
pub const FAILED: u8 = 125;
/// The command line is wrong.
pub(super) const USAGE: u8 = 2;
/// `doctor` found something that is broken.
pub(super) const BROKEN: u8 = 1;
/// A command that can't be started, without a better word of the sandbox.
const NOT_STARTED: u8 = 126;
/// What a signal's number is added to.
const SIGNALLED: u8 = 128;

/// What `--help` says of them.
pub(super) const CODES: &str = "\
Exit codes:
  0      it was done; of run and exec: the command ended with 0
  1-255  of run and exec: what the command ended with, 128+N where signal N ended it
  1      of doctor: something is broken
  2      the command line is wrong
  124    of run and exec: the command was killed at its deadline
  125    Glovebox failed: no sandbox, no session, no right; standard error says what to do
  128+N  this program was told to end by signal N (130: Ctrl-C)";

/// An error with a code of its own. Its message may be empty where there is nothing to say.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(super) struct Fault {
    code: u8,
    message: String,
}

impl Fault {
    pub(super) fn usage(message: impl Into<String>) -> anyhow::Error {
        Self { code: USAGE, message: message.into() }.into()
    }

    /// A signal told this program to end.
    pub(super) fn signal(number: u8) -> anyhow::Error {
        Self { code: signalled(number), message: String::new() }.into()
    }
}

/// The code of an error.
#[must_use]
pub fn code(error: &anyhow::Error) -> u8 {
    error.downcast_ref::<Fault>().map_or(FAILED, |fault| fault.code)
}

fn signalled(number: u8) -> u8 {
    SIGNALLED.saturating_add(number.min(127))
}

/// The code of a call that ended, and what is to be said besides.
pub(super) fn ended(result: &ExecResult) -> (u8, Option<String>) {
    let words = |alone: &str| match result.message.as_deref() {
        Some(message) if !message.is_empty() => format!("{alone}: {message}"),
        _ => alone.to_owned(),
    };
    match result.outcome {
        Ended::Exited => (result.exit_code.unwrap_or(FAILED), None),
        Ended::Signalled => (result.signal.map_or(FAILED, signalled), None),
        Ended::DeadlineExceeded => {
            let seconds = result.duration_ms.div_ceil(1000);
            (DEADLINE, Some(format!("killed at its deadline after {seconds} s; --timeout gives it more")))
        }
        Ended::NotStarted => {
            (result.exit_code.unwrap_or(NOT_STARTED), Some(words("the command could not be started")))
        }
        Ended::ShutDown => (FAILED, Some("the sandbox ended, and the command with it".into())),
        Ended::HungUp => {
            (FAILED, Some("the session hung up on the command, which was killed; try again".into()))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn result(change: serde_json::Value) -> ExecResult {
        let mut all = json!({"id": "a", "outcome": "Exited", "stdoutBytes": 0, "stderrBytes": 0, "truncated": false, "durationMs": 1500});
        all.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        serde_json::from_value(all).unwrap()
    }

    #[test]
    fn codes_are_those_of_the_call() {
        for (change, code, word) in [
            (json!({"exitCode": 0}), 0, None),
            (json!({"exitCode": 7}), 7, None),
            (json!({"exitCode": 255}), 255, None),
            (json!({}), 125, None),
            (json!({"outcome": "Signalled", "signal": 9}), 137, None),
            (json!({"outcome": "Signalled", "signal": 64}), 192, None),
            (json!({"outcome": "Signalled", "signal": 255}), 255, None),
            (json!({"outcome": "DeadlineExceeded", "exitCode": 0}), 124, Some("after 2 s")),
            (
                json!({"outcome": "NotStarted", "exitCode": 127, "message": "x: no such program"}),
                127,
                Some("x: no such program"),
            ),
            (json!({"outcome": "NotStarted"}), 126, Some("could not be started")),
            (json!({"outcome": "ShutDown"}), 125, Some("the sandbox ended")),
            (json!({"outcome": "HungUp"}), 125, Some("try again")),
        ] {
            let (is, said) = ended(&result(change.clone()));
            assert_eq!(is, code, "{change}");
            assert_eq!(said.is_some(), word.is_some(), "{change}: {said:?}");
            assert!(word.is_none_or(|word| said.unwrap_or_default().contains(word)), "{change}");
        }
    }

    #[test]
    fn an_error_has_a_code_whatever_stands_around_it() {
        use anyhow::Context as _;
        assert_eq!(code(&anyhow::anyhow!("x")), 125);
        assert_eq!(code(&Fault::usage("x")), 2);
        assert_eq!(code(&Err::<(), _>(Fault::signal(2)).context("y").unwrap_err()), 130);
    }
}
