//! Owns the start of processes: the workload, the commands of calls, and the agent's own helpers. Where a program is, and a
//! spawn that hands over nothing of the agent but the descriptors that are named.
//!
//! `posix_spawn` and not [`Command`]: the latter keeps the parent's signal mask, has no `setsid`, and looks the
//! program up in the parent's PATH.

use std::env;
use std::ffi::{CString, OsStr, OsString};
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

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

/// This program, wherever it was started from.
const OURSELVES: &str = "/proc/self/exe";

/// Why a workload or a call did not start.
#[derive(Debug, PartialEq, Eq)]
pub struct LaunchError {
    /// [`EXIT_NOT_FOUND`] or [`EXIT_CANNOT_EXECUTE`].
    pub exit_code: u8,
    /// What was wrong and what would be right.
    pub message: String,
}

impl LaunchError {
    pub(super) fn not_found(message: String) -> Self {
        Self { exit_code: EXIT_NOT_FOUND, message }
    }

    pub(super) fn cannot_execute(message: String) -> Self {
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
    let file = locate(command, &environment)?;
    spawn(&file, command, environment, &[], &SigSet::empty())
}

/// Where the program of `command` is, by the PATH of `environment`.
///
/// # Errors
/// [`LaunchError`], when there is none that can be executed.
pub fn locate(command: &[OsString], environment: &Variables) -> Result<PathBuf, LaunchError> {
    let program = command.first().map(OsString::as_os_str).unwrap_or_default();
    let path = environment.iter().find(|(name, _)| name == "PATH").map(|(_, path)| path.as_os_str());
    find(program, path.unwrap_or_default())
}

/// Starts this program once more, with `words` after its name, `descriptors` under their new numbers and every signal blocked:
/// in a helper of ours none may come before it listens.
///
/// # Errors
/// [`LaunchError`], when the kernel refuses.
pub fn helper(
    words: &[&OsStr],
    environment: Variables,
    descriptors: &[(BorrowedFd<'_>, i32)],
) -> Result<Pid, LaunchError> {
    let command: Vec<OsString> =
        [OsStr::new("glovebox-agent")].iter().chain(words).map(OsString::from).collect();
    spawn(Path::new(OURSELVES), &command, environment, descriptors, &SigSet::all())
}

/// Starts `file` with the words of `command`, as leader of a session of its own.
///
/// # Errors
/// [`LaunchError`] with the exit status and the words for the person who wrote the command.
pub fn spawn(
    file: &Path,
    command: &[OsString],
    environment: Variables,
    descriptors: &[(BorrowedFd<'_>, i32)],
    blocked: &SigSet,
) -> Result<Pid, LaunchError> {
    let (arguments, variables) = (c_strings(command)?, c_variables(environment)?);
    let spawned = attributes(blocked).and_then(|attributes| {
        let mut actions = PosixSpawnFileActions::init()?;
        for (descriptor, number) in descriptors {
            actions.add_dup2(descriptor.as_raw_fd(), *number)?;
        }
        posix_spawn(file, &actions, &attributes, &arguments, &variables)
    });
    spawned.map_err(|errno| explain(file, errno))
}

/// Becomes `file`, which keeps what this process has been held to, and its variables. Comes back only with an error.
///
/// The one use of [`Command`]: it gives SIGPIPE back its action, which Rust's runtime took, and no safe code else can.
#[must_use]
pub fn become_program(file: &Path, command: &[OsString]) -> LaunchError {
    let (name, arguments) =
        command.split_first().map_or((file.as_os_str(), command), |(name, rest)| (name, rest));
    // A slash keeps it from being looked up once more.
    let error = Command::new(Path::new(".").join(file)).arg0(name).args(arguments).exec();
    error.raw_os_error().map_or_else(
        || LaunchError::cannot_execute(format!("{}: {error}", file.display())),
        |errno| explain(file, Errno::from_raw(errno)),
    )
}

/// A session of its own keeps the workload's group apart from the agent, so that one signal reaches all of it and a
/// terminal's signals do not reach the agent. All signals get their default action back: what the container's
/// runtime or the agent ignores (Rust ignores SIGPIPE) is no business of the workload.
fn attributes(blocked: &SigSet) -> nix::Result<PosixSpawnAttr> {
    let mut attributes = PosixSpawnAttr::init()?;
    attributes.set_sigdefault(&SigSet::all())?;
    attributes.set_sigmask(blocked)?;
    attributes.set_flags(
        PosixSpawnFlags::POSIX_SPAWN_SETSIGDEF
            | PosixSpawnFlags::POSIX_SPAWN_SETSIGMASK
            | PosixSpawnFlags::from_bits_retain(libc::c_int::from(libc::POSIX_SPAWN_SETSID)),
    )?;
    Ok(attributes)
}

/// Goes to `cwd`, which is made if it is missing, as container runtimes do. A directory that cannot be named from the
/// container's root (one reached through `/proc/self/fd`) is refused.
///
/// # Errors
/// [`LaunchError`] that names the directory.
pub fn enter(cwd: &Path) -> Result<(), LaunchError> {
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

fn c_strings(words: &[OsString]) -> Result<Vec<CString>, LaunchError> {
    words.iter().cloned().map(c_string).collect()
}

fn c_variables(environment: Variables) -> Result<Vec<CString>, LaunchError> {
    environment.into_iter().map(|pair| c_string(joined(pair))).collect()
}

fn c_string(text: OsString) -> Result<CString, LaunchError> {
    CString::new(text.into_vec())
        .map_err(|_| LaunchError::cannot_execute("an argument or a variable contains a NUL byte".into()))
}
