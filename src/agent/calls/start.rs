//! Owns the start of a call's command: its environment, its pipes or its terminal, and the stage between where it is held to
//! something.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Instant;

use nix::poll::{PollFd, PollFlags};
use nix::pty::{OpenptyResult, Winsize, openpty};
use nix::sys::signal::SigSet;
use nix::unistd::Pid;
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::pipe::{PipeFlags, pipe_with};

use super::stage::{Said, read_said};
use super::streams::{Input, Output};
use crate::agent::descriptor::{HANDED, above_standard};
use crate::agent::environment::Variables;
use crate::agent::launch::{LaunchError, helper, locate, spawn};
use crate::agent::signals::wait;
use crate::call::{Exec, Held, Kind, Size};

/// What a terminal is called where nothing else is said, as by Kubernetes.
const TERM: &str = "xterm";

/// A command that was started.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) first: Pid,
    pub(super) input: Input,
    pub(super) outputs: [Output; 2],
    /// The terminal's own end.
    pub(super) terminal: Option<File>,
    pub(super) write: Option<Held>,
    pub(super) network: Option<Held>,
}

/// Starts the command.
pub(super) fn start(exec: &Exec, deadline: Instant) -> Result<Started, LaunchError> {
    if let Some(cwd) = &exec.cwd {
        // Not made where it is missing: that is a mistake of whoever calls.
        env::set_current_dir(cwd).map_err(|error| {
            LaunchError::cannot_execute(format!("cannot use {cwd} as working directory: {error}"))
        })?;
    }
    let variables = variables(exec);
    let command: Vec<OsString> = exec.command.iter().map(OsString::from).collect();
    let file = locate(&command, &variables)?;
    let (mine, theirs) = ends(exec).map_err(|error| no("pipe or terminal", &error))?;
    let descriptors = theirs.descriptors();
    let held = exec.terminal.is_some() || exec.access.is_some();
    let (first, said) = if held {
        staged(exec, &file, variables, &descriptors, deadline)?
    } else {
        (spawn(&file, &command, variables, &descriptors, &SigSet::empty())?, Said::default())
    };
    let input = Input::new(mine.input, mine.terminal.is_some());
    let outputs = [Output::new(Kind::Stdout, mine.output), Output::new(Kind::Stderr, mine.error)];
    Ok(Started { first, input, outputs, terminal: mine.terminal, write: said.write, network: said.network })
}

fn no(what: &str, error: &std::io::Error) -> LaunchError {
    LaunchError::cannot_execute(format!("the kernel gives no {what}: {error}"))
}

/// This process has the workload's variables; the call's own go over them.
fn variables(exec: &Exec) -> Variables {
    let mut all: Variables =
        env::vars_os().filter(|(name, _)| !exec.env.keys().any(|own| name == OsStr::new(own))).collect();
    if exec.terminal.is_some()
        && !exec.env.contains_key("TERM")
        && !all.iter().any(|(name, _)| name == "TERM")
    {
        all.push(("TERM".into(), TERM.into()));
    }
    all.extend(exec.env.iter().map(|(name, value)| (name.into(), value.into())));
    all
}

/// Our ends, which wait for nobody.
#[derive(Debug)]
struct Mine {
    input: Option<File>,
    output: Option<File>,
    /// None with a terminal, which has one output for both.
    error: Option<File>,
    terminal: Option<File>,
}

/// The command's ends.
#[derive(Debug)]
struct Theirs {
    input: OwnedFd,
    output: OwnedFd,
    error: OwnedFd,
}

impl Theirs {
    fn descriptors(&self) -> [(BorrowedFd<'_>, i32); 3] {
        [(self.input.as_fd(), 0), (self.output.as_fd(), 1), (self.error.as_fd(), 2)]
    }
}

fn ends(exec: &Exec) -> std::io::Result<(Mine, Theirs)> {
    let (their_input, my_input) = pipe_with(PipeFlags::CLOEXEC)?;
    if let Some(size) = exec.terminal {
        return terminal(size, exec.stdin, their_input);
    }
    let (my_output, output) = pipe_with(PipeFlags::CLOEXEC)?;
    let (my_error, error) = pipe_with(PipeFlags::CLOEXEC)?;
    // Without input the writing end goes now: the command reads an end at once.
    let mine = Mine {
        input: exec.stdin.then_some(my_input).map(patient).transpose()?,
        output: Some(patient(my_output)?),
        error: Some(patient(my_error)?),
        terminal: None,
    };
    Ok((mine, Theirs { input: their_input, output, error }))
}

fn terminal(size: Size, input: bool, empty: OwnedFd) -> std::io::Result<(Mine, Theirs)> {
    let size = Winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 };
    let OpenptyResult { master, slave } = openpty(Some(&size), None)?;
    fcntl_setfd(&master, FdFlags::CLOEXEC)?;
    fcntl_setfd(&slave, FdFlags::CLOEXEC)?;
    let master = patient(master)?;
    let mine = Mine {
        input: input.then(|| master.try_clone()).transpose()?,
        output: Some(master.try_clone()?),
        error: None,
        terminal: Some(master),
    };
    let theirs = Theirs {
        input: if input { above_standard(&slave)? } else { empty },
        output: above_standard(&slave)?,
        error: slave,
    };
    Ok((mine, theirs))
}

fn patient(end: OwnedFd) -> std::io::Result<File> {
    fcntl_setfl(&end, OFlags::NONBLOCK)?;
    Ok(end.into())
}

/// Starts the stage, which becomes the command once it is held to what was asked for.
fn staged(
    exec: &Exec,
    file: &Path,
    variables: Variables,
    descriptors: &[(BorrowedFd<'_>, i32); 3],
    deadline: Instant,
) -> Result<(Pid, Said), LaunchError> {
    let (report, told) = pipe_with(PipeFlags::CLOEXEC).map_err(|errno| no("pipe", &errno.into()))?;
    let mut words = vec![OsStr::new("stage")];
    if exec.terminal.is_some() {
        words.push(OsStr::new("--terminal"));
    }
    if let Some(access) = &exec.access {
        if !access.network {
            words.push(OsStr::new("--no-network"));
        }
        if let Some(write) = &access.write {
            words.push(OsStr::new("--write-nowhere"));
            words.extend(write.iter().flat_map(|path| [OsStr::new("--write"), OsStr::new(path)]));
        }
    }
    words.extend([OsStr::new("--file"), file.as_os_str(), OsStr::new("--")]);
    words.extend(exec.command.iter().map(OsStr::new));
    let [input, output, error] = *descriptors;
    let pid = helper(&words, variables, &[input, output, error, (told.as_fd(), HANDED)])?;
    drop(told);
    let said = read_said(&hear(report.into(), deadline));
    match said.error {
        Some(error) => Err(LaunchError { exit_code: error.exit_code, message: error.message }),
        None => Ok((pid, said)),
    }
}

/// All that the stage says, which ends when it becomes the command, or at the deadline.
fn hear(report: File, deadline: Instant) -> Vec<u8> {
    let (mut all, mut chunk) = (Vec::new(), [0; 4096]);
    let mut report = report;
    while Instant::now() < deadline {
        let mut ear = [PollFd::new(report.as_fd(), PollFlags::POLLIN)];
        if wait(&mut ear, Some(deadline)).is_err() || !ear.iter().any(|ear| ear.any().unwrap_or(false)) {
            continue;
        }
        match report.read(&mut chunk) {
            Ok(length @ 1..) => all.extend(chunk.iter().take(length)),
            Ok(_) | Err(_) => break,
        }
    }
    all
}
