//! Owns the keeper: a process between process 1 and the workload, where calls come in. What the workload orphans falls to the
//! keeper, so whatever falls to process 1 was left by a call.
//!
//! Must end with the workload. Whoever kills it ends the sandbox: nobody could say any more what is whose.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::path::Path;

use nix::sys::prctl;
use nix::unistd::Pid;
use rustix::pipe::{PipeFlags, pipe_with};

use super::descriptor;
use super::environment::Variables;
use super::fault::Fault;
use super::launch::{LaunchError, enter, helper, launch};
use super::signals::{Sender, Signals};
use super::workload::{self, Ending, pass_on, reap};
use crate::report::{ExitRecord, MAX_INPUT_BYTES, parse_exit_record};

/// The keeper as process 1 knows it.
#[derive(Debug)]
pub struct Keeper {
    /// Its process.
    pub pid: Pid,
    report: File,
}

impl Keeper {
    /// Starts the keeper, which starts `command`.
    ///
    /// # Errors
    /// [`LaunchError`], when the directory or the kernel refuses. What is wrong with the command is told later.
    pub fn post(
        command: &[OsString],
        environment: Variables,
        cwd: Option<&Path>,
    ) -> Result<Self, LaunchError> {
        if let Some(cwd) = cwd {
            enter(cwd)?;
        }
        let (report, told) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)
            .map_err(|errno| LaunchError::cannot_execute(format!("cannot make a pipe: {errno}")))?;
        let mut words = vec![OsStr::new("keep"), OsStr::new("--")];
        words.extend(command.iter().map(OsString::as_os_str));
        let pid = helper(&words, environment, &[(told.as_fd(), descriptor::HANDED)])?;
        Ok(Self { pid, report: report.into() })
    }

    /// What it told of the workload's end; `None` where it was killed before it could.
    #[must_use]
    pub fn told(mut self) -> Option<ExitRecord> {
        // Written at once, hence read at once; an open end elsewhere keeps nobody waiting.
        let mut bytes = [0; MAX_INPUT_BYTES];
        let length = self.report.read(&mut bytes).ok()?;
        parse_exit_record(std::str::from_utf8(bytes.get(..length)?).ok()?).ok()
    }
}

/// The keeper itself, until the workload ends.
///
/// # Errors
/// A [`Fault`] when the kernel refuses what it needs.
pub fn keep(command: &[OsString]) -> Result<u8, Fault> {
    let no = |what: &str, errno: nix::Error| Fault::new(format!("cannot {what}: {}", errno.desc()));
    // For whoever lists processes; without it they would read "exe".
    let _ = prctl::set_name(c"glovebox-keeper");
    prctl::set_dumpable(false).map_err(|errno| no("forbid others to trace the keeper", errno))?;
    prctl::set_child_subreaper(true).map_err(|errno| no("adopt what the workload orphans", errno))?;
    let signals = Signals::open(Sender::Process1).map_err(|errno| no("listen for signals", errno))?;
    let mut report = descriptor::take_handed().map_err(|error| Fault::new(error.to_string()))?;
    let record = match launch(command, env::vars_os().collect(), None) {
        Ok(leader) => watch(&signals, leader).map_err(|errno| no("wait for signals", errno))?.record(None),
        Err(error) => workload::spawn_error(&error),
    };
    let line = crate::report::encode(&record).map_err(|error| Fault::new(error.to_string()))?;
    report.write_all(line.as_bytes()).map_err(|error| Fault::new(error.to_string()))?;
    Ok(0)
}

fn watch(signals: &Signals, leader: Pid) -> nix::Result<Ending> {
    let mut ending = None;
    loop {
        if let Some(signal) = signals.next(None, [])? {
            pass_on(leader, signal);
        }
        reap(|pid, status| {
            if pid == leader {
                ending = Ending::of(status).or(ending);
            }
        });
        if let Some(ending) = ending {
            return Ok(ending);
        }
    }
}
