//! Owns the start of the workload: where its program is, and a spawn that hands over nothing of the agent but the
//! three standard descriptors.
//!
//! `posix_spawn` and not [`std::process::Command`]: the latter keeps the parent's signal mask, has no `setsid`, and looks the
//! program up in the parent's PATH.

use std::env;
use std::ffi::{CString, OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::libc;
use nix::spawn::{PosixSpawnAttr, PosixSpawnFileActions, PosixSpawnFlags, posix_spawn};
use nix::sys::signal::SigSet;
use nix::unistd::{AccessFlags, Pid, access};

use super::environment::Variables;

/// The exit status of a command that is not there, as shells have it.
pub const EXIT_NOT_FOUND: u8 = 127;
/// The exit status of a command that is there and cannot be run.
pub const EXIT_CANNOT_EXECUTE: u8 = 126;

/// Why a workload did not start.
#[derive(Debug, PartialEq, Eq)]
pub struct LaunchError {
    /// [`EXIT_NOT_FOUND`] or [`EXIT_CANNOT_EXECUTE`].
    pub exit_code: u8,
    /// What was wrong and what would be right.
    pub message: String,
}

impl LaunchError {
    fn not_found(message: String) -> Self {
        Self { exit_code: EXIT_NOT_FOUND, message }
    }

    fn cannot_execute(message: String) -> Self {
        Self { exit_code: EXIT_CANNOT_EXECUTE, message }
    }
}

/// Starts `command` (program and arguments, not empty) in `cwd`, as leader of a session of its own, with no signal
/// blocked or ignored.
///
/// # Errors
/// [`LaunchError`] with the exit status and the words for the person who wrote the command.
pub fn launch(command: &[OsString], environment: Variables, cwd: Option<&Path>) -> Result<Pid, LaunchError> {
    if let Some(cwd) = cwd {
        enter(cwd)?;
    }
    let program = command.first().map(OsString::as_os_str).unwrap_or_default();
    let path = environment.iter().find(|(name, _)| name == "PATH").map(|(_, path)| path.as_os_str());
    let file = find(program, path.unwrap_or_default())?;
    let arguments = command.iter().cloned().map(c_string).collect::<Result<Vec<_>, _>>()?;
    let variables =
        environment.into_iter().map(|pair| c_string(joined(pair))).collect::<Result<Vec<_>, _>>()?;
    let spawned = attributes().and_then(|attributes| {
        posix_spawn(file.as_path(), &PosixSpawnFileActions::init()?, &attributes, &arguments, &variables)
    });
    spawned.map_err(|errno| explain(&file, errno))
}

/// A session of its own keeps the workload's group apart from the agent, so that one signal reaches all of it and a
/// terminal's signals do not reach the agent. All signals get their default action back: what the container's
/// runtime or the agent ignores (Rust ignores SIGPIPE) is no business of the workload.
fn attributes() -> nix::Result<PosixSpawnAttr> {
    let mut attributes = PosixSpawnAttr::init()?;
    attributes.set_sigdefault(&SigSet::all())?;
    attributes.set_sigmask(&SigSet::empty())?;
    attributes.set_flags(
        PosixSpawnFlags::POSIX_SPAWN_SETSIGDEF
            | PosixSpawnFlags::POSIX_SPAWN_SETSIGMASK
            | PosixSpawnFlags::from_bits_retain(libc::c_int::from(libc::POSIX_SPAWN_SETSID)),
    )?;
    Ok(attributes)
}

/// Goes to `cwd`, which is made if it is missing, as container runtimes do. A directory that cannot be named from the
/// container's root (one reached through `/proc/self/fd`) is refused.
fn enter(cwd: &Path) -> Result<(), LaunchError> {
    let refused = |error: &io::Error| {
        LaunchError::cannot_execute(format!("cannot use {} as working directory: {error}", cwd.display()))
    };
    match env::set_current_dir(cwd) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            fs::create_dir_all(cwd)
                .and_then(|()| env::set_current_dir(cwd))
                .map_err(|error| refused(&error))?;
        }
        other => other.map_err(|error| refused(&error))?,
    }
    env::current_dir().map(drop).map_err(|error| refused(&error))
}

/// Where `program` is: itself if it has a slash, else the first executable of that name in `path`.
fn find(program: &OsStr, path: &OsStr) -> Result<PathBuf, LaunchError> {
    let name = program.display();
    if program.is_empty() {
        return Err(LaunchError::not_found("the command is empty".into()));
    }
    if program.as_bytes().contains(&b'/') {
        return Ok(PathBuf::from(program));
    }
    let mut denied = None;
    for dir in env::split_paths(path) {
        let file = dir.join(program);
        if !file.is_file() {
            continue;
        }
        if access(&file, AccessFlags::X_OK).is_ok() {
            return Ok(file);
        }
        denied.get_or_insert(file);
    }
    Err(match denied {
        Some(file) => {
            LaunchError::cannot_execute(format!("{name}: {} is not executable by this user", file.display()))
        }
        None => LaunchError::not_found(format!("{name}: no such command in PATH ({})", path.display())),
    })
}

fn explain(file: &Path, errno: Errno) -> LaunchError {
    let name = file.display();
    match errno {
        Errno::ENOENT | Errno::ENOTDIR if !file.exists() => {
            LaunchError::not_found(format!("{name}: no such file"))
        }
        Errno::ENOENT => LaunchError::not_found(format!(
            "{name}: its interpreter is missing: look at its first line (#!) or, for a binary, at its dynamic loader"
        )),
        Errno::ENOEXEC => LaunchError::cannot_execute(format!(
            "{name}: not a program of this machine's kind; a script needs a first line that begins with #!"
        )),
        Errno::EACCES if file.is_dir() => LaunchError::cannot_execute(format!("{name}: is a directory")),
        Errno::EACCES => LaunchError::cannot_execute(format!("{name}: not executable by this user")),
        Errno::EAGAIN => LaunchError::cannot_execute(format!(
            "{name}: no process may be added; raise the limit of processes for this user or pod"
        )),
        Errno::E2BIG => {
            LaunchError::cannot_execute(format!("{name}: arguments and environment are too long together"))
        }
        other => LaunchError::cannot_execute(format!("{name}: {}", other.desc())),
    }
}

fn joined((name, value): (OsString, OsString)) -> OsString {
    let mut pair = name.into_vec();
    pair.push(b'=');
    pair.extend(value.into_vec());
    OsString::from_vec(pair)
}

fn c_string(text: OsString) -> Result<CString, LaunchError> {
    CString::new(text.into_vec())
        .map_err(|_| LaunchError::cannot_execute("an argument or a variable contains a NUL byte".into()))
}
