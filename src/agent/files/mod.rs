//! Owns file operations: what a session reads, writes, lists and removes in the workspace, each in a process of its own.
//!
//! Must never touch anything outside of the workspace, whatever links and races the workload makes: each path is gone step by step
//! from descriptor to descriptor ([`walk`]). Must never wait at a FIFO or open a device, must leave no half-written file under its
//! name, and must bound what it carries by what it counts, not by what it is told.
//!
//! It is the workload's own user: what that may not, this may not either. Protected paths are read-only mounts.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::prctl;
use nix::sys::signal::SigSet;

use super::calls::{access, handover};
use super::fault::Fault;
use crate::call::{FileFailure, FileOperation, FileReason, FileRequest, FileResult};

mod error;
mod look;
mod pack;
mod remove;
pub mod tape;
mod unpack;
mod walk;
mod wire;
mod write;

use error::Stop;
use walk::Root;
use wire::Wire;

/// How deep directories are gone into. Each level holds descriptors, and an ordinary limit of them is 1024.
const MOST_DEPTH: usize = 200;

/// Serves the operation whose connection and request are standard input and output.
///
/// # Errors
/// A [`Fault`] when nothing was handed over or there is no workspace.
pub fn file(workspace: &Path) -> Result<u8, Fault> {
    let no = |what: &str, why: &str| Fault::new(format!("cannot {what}: {why}"));
    // For whoever lists processes; without it they would read "exe".
    let _ = prctl::set_name(c"glovebox-file");
    prctl::set_dumpable(false).map_err(|errno| no("forbid others to trace this", errno.desc()))?;
    // Nothing is started here: whoever ends this process ends all of it.
    SigSet::empty().thread_set_mask().map_err(|errno| no("take signals", errno.desc()))?;
    let handed = handover::take::<FileRequest>().map_err(|error| no("take over", &error.to_string()))?;
    let request = handed.asked;
    request.check().map_err(|bad| no("take over", &bad.to_string()))?;
    handover::tell_begun();
    let until = Instant::now() + Duration::from_millis(request.timeout_ms);
    let mut wire = Wire::new(handed.stream, &handed.rest, until);
    let root = Root::open(workspace).map_err(|errno| no("open the workspace", &errno.to_string()))?;
    // A second lock beside the walk, where this kernel has it.
    let _ = access::write_only_below(&[PathBuf::from(workspace)]);
    let result = match perform(&root, &request, &mut wire) {
        Ok(result) => Some(result),
        Err(Stop::Refused(failure)) => Some(FileResult { failure: Some(failure), ..FileResult::default() }),
        Err(Stop::Gone) => None,
    };
    handover::tell_done();
    if let Some(result) = result {
        wire.tell(&result);
    }
    Ok(0)
}

fn perform(root: &Root, request: &FileRequest, wire: &mut Wire) -> Result<FileResult, Stop> {
    match request.operation {
        FileOperation::Stat => look::stat(root, request, wire),
        FileOperation::List => look::list(root, request, wire),
        FileOperation::Read => look::read(root, request, wire),
        FileOperation::Write { mode, parents, replace } => {
            write::write(root, request, &write::Wish { mode, parents, replace }, wire)
        }
        FileOperation::Delete { recursive } => remove::delete(root, request, recursive, wire),
        FileOperation::Pack => pack::pack(root, request, wire),
        FileOperation::Unpack => unpack::unpack(root, request, wire),
    }
}

/// A refusal that names one of many.
fn at(reason: FileReason, path: &[u8]) -> Stop {
    let text = String::from_utf8_lossy(path);
    let cut: String = text.chars().take(crate::call::MOST_AT_CHARS).collect();
    Stop::Refused(FileFailure { reason, at: Some(cut).filter(|cut| !cut.is_empty()) })
}
