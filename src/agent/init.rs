//! Owns the pod's init step: it runs from our own image before the workload's, and ends with the kernel report on the
//! termination log. Must fail rather than leave half of its work: the workload starts only after status 0.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::args::InitArgs;
use super::fault::Fault;
use super::{fence, home, kernel, record};
use crate::report::{EXIT_FENCE_OPEN, EXIT_GATEWAY_UNREACHABLE, EXIT_ISOLATION_MISMATCH, KernelReport};

/// The program's name in the agent directory.
pub const PROGRAM: &str = "glovebox-agent";

/// Prepares the pod; the status to exit with is 0, or one of those that `--help` tells of.
///
/// # Errors
/// A [`Fault`] when the kernel, a directory or a file refuses. Nothing is on the termination log then.
pub fn init(options: &InitArgs) -> Result<u8, Fault> {
    let mut report = kernel::look(Path::new("/proc"))?;
    let mismatch = kernel::mismatch(options.isolation, &report);
    if let Some(mismatch) = &mismatch
        && !options.accept_weaker
    {
        record::write(&options.termination_log, &report)?;
        eprintln!(
            "{PROGRAM}: {mismatch}; name a class that promises what this node has, or let the class accept it"
        );
        return Ok(EXIT_ISOLATION_MISMATCH);
    }
    install(Path::new("/proc/self/exe"), &options.agent_dir)?;
    let mut safe = vec![options.workspace.as_path()];
    safe.extend(options.git_safe_directories.iter().map(PathBuf::as_path));
    home::fill(&options.home_dir, &safe)?;
    home::make_directories(&options.home_dir, &options.home_mountpoints)?;
    home::make_directories(&options.workspace, &options.workspace_mountpoints)?;
    if let Some(mismatch) = mismatch {
        eprintln!("{PROGRAM}: {mismatch}; accepted");
    }
    let code = prove(options, &mut report);
    record::write(&options.termination_log, &report)?;
    Ok(code)
}

/// The last thing before the workload: what it could do to the network, it could do from its first instruction.
fn prove(options: &InitArgs, report: &mut KernelReport) -> u8 {
    if !options.fence.is_asked() {
        return 0;
    }
    let proof = fence::prove(&options.fence);
    let (code, why) = match (&proof.open, &proof.missing) {
        (Some(open), _) => (
            EXIT_FENCE_OPEN,
            format!("{open} must not be reachable and is; the network does not enforce NetworkPolicy"),
        ),
        (None, Some(missing)) => {
            (EXIT_GATEWAY_UNREACHABLE, format!("the gateway does not answer at {missing}"))
        }
        (None, None) if proof.rounds == 0 => {
            (EXIT_GATEWAY_UNREACHABLE, "no connection could be tried".into())
        }
        (None, None) => (0, String::new()),
    };
    if code != 0 {
        eprintln!("{PROGRAM}: {why}");
    }
    report.fence = Some(proof);
    code
}

/// Copies `program` to `directory` under [`PROGRAM`], complete or not at all.
fn install(program: &Path, directory: &Path) -> Result<(), Fault> {
    let partial = directory.join(".glovebox-agent.partial");
    let installed = directory.join(PROGRAM);
    copy(program, &partial)
        .and_then(|()| fs::rename(&partial, &installed))
        .map_err(|error| Fault::io("install", &installed, &error))
}

fn copy(program: &Path, partial: &Path) -> io::Result<()> {
    match fs::remove_file(partial) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut to = OpenOptions::new().write(true).create_new(true).mode(0o700).open(partial)?;
    io::copy(&mut File::open(program)?, &mut to)?;
    to.set_permissions(Permissions::from_mode(0o755))
}
