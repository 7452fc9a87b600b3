//! Owns the write of a line to the termination log: the file that the kubelet reads when a container has ended.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::libc;
use serde::Serialize;

use super::fault::Fault;
use crate::report;

/// Replaces what stands in `log` by one line of JSON. A symbolic link is not followed: in a container the file is
/// bind-mounted, so a link there is not the kubelet's.
///
/// # Errors
/// A [`Fault`] that names the file.
pub fn write<T: Serialize>(log: &Path, value: &T) -> Result<(), Fault> {
    let line = report::encode(value)
        .map_err(|error| Fault::new(format!("cannot encode the line for {}: {error}", log.display())))?;
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .custom_flags(libc::O_NOFOLLOW)
        .open(log)
        .and_then(|mut file| file.write_all(line.as_bytes()))
        .map_err(|error| Fault::io("report to", log, &error))
}
