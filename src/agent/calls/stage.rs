//! Owns the stage: the process between a call and its command where more is needed than a spawn can do. It takes the terminal
//! for its own, binds itself by what the call may do, and becomes the command.
//!
//! Must say what holds before it becomes the command, and must not become it where something else failed.

use std::fs::File;
use std::io::Write;

use serde::{Deserialize, Serialize};

use nix::sys::signal::SigSet;
use rustix::process::ioctl_tiocsctty;

use super::access;
use crate::agent::args::StageArgs;
use crate::agent::descriptor;
use crate::agent::fault::Fault;
use crate::agent::launch::{LaunchError, become_program};
use crate::call::Held;

/// What a stage says, a line of JSON each time.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Said {
    /// Whether writing is held to where it was asked to.
    pub(super) write: Option<Held>,
    /// Whether sockets are denied.
    pub(super) network: Option<Held>,
    /// Why there is no command.
    pub(super) error: Option<SaidError>,
}

/// Why there is no command.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SaidError {
    pub(super) exit_code: u8,
    pub(super) message: String,
}

/// All that was said, as one. A stage that was ended before it spoke held nothing.
pub(super) fn read_said(text: &[u8]) -> Said {
    let lines = text.split(|byte| *byte == b'\n');
    let said = lines.filter_map(|line| serde_json::from_slice::<Said>(line).ok());
    said.fold(Said::default(), |before, now| Said {
        write: now.write.or(before.write),
        network: now.network.or(before.network),
        error: now.error.or(before.error),
    })
}

/// Becomes the command.
///
/// # Errors
/// A [`Fault`] when there is nobody to report to, or when it could not become the command.
pub fn stage(args: &StageArgs) -> Result<u8, Fault> {
    let mut report = descriptor::take_handed().map_err(|error| Fault::new(error.to_string()))?;
    let error = match prepare(args) {
        Ok(held) => {
            say(&mut report, &held)?;
            become_program(&args.file, &args.command)
        }
        Err(error) => error,
    };
    let exit_code = error.exit_code;
    let error = SaidError { exit_code, message: error.message };
    say(&mut report, &Said { error: Some(error), ..Said::default() })?;
    Ok(exit_code)
}

fn prepare(args: &StageArgs) -> Result<Said, LaunchError> {
    let no = |what: &str, why: &str| LaunchError::cannot_execute(format!("{what}: {why}"));
    if args.terminal {
        ioctl_tiocsctty(std::io::stdout())
            .map_err(|errno| no("the terminal can't be the command's own", &errno.to_string()))?;
    }
    let write = match &args.write {
        Some(paths) => Some(access::write_only_below(paths).map_err(|why| no("access.write", &why))?),
        None => None,
    };
    let network = args.no_network.then(access::deny_sockets);
    // They were blocked for as long as this is a program of ours.
    SigSet::empty().thread_set_mask().map_err(|errno| no("signals", errno.desc()))?;
    Ok(Said { write, network, error: None })
}

fn say(report: &mut File, said: &Said) -> Result<(), Fault> {
    let mut line = serde_json::to_vec(said).map_err(|error| Fault::new(error.to_string()))?;
    line.push(b'\n');
    report.write_all(&line).map_err(|error| Fault::new(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_later_adds_to_what_was_said_before() {
        let first = br#"{"write":"Enforced","network":"NotEnforced","error":null}"#;
        let last = br#"{"write":null,"network":null,"error":{"exit_code":126,"message":"no"}}"#;
        let said = read_said(&[&first[..], b"\n", last, b"\n"].concat());
        assert_eq!((said.write, said.network), (Some(Held::Enforced), Some(Held::NotEnforced)));
        assert_eq!(said.error, Some(SaidError { exit_code: 126, message: "no".into() }));
        for text in [&b""[..], b"{", b"\n\n", b"\xff"] {
            assert_eq!(read_said(text), Said::default());
        }
    }
}
