//! Owns the descriptors that a helper of ours is handed at its start, taken without a claim that only unsafe code can make.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use nix::unistd::close;
use rustix::io::fcntl_dupfd_cloexec;

/// The number of the descriptor that a helper gets beyond the standard three: the writing end of a pipe.
pub const HANDED: i32 = 3;

/// Takes it, so that nothing that is started afterwards has it.
///
/// # Errors
/// What the kernel says; also when there is none.
pub fn take_handed() -> io::Result<File> {
    // The same pipe, opened once more: the number alone is nothing that safe code can own.
    let file = OpenOptions::new().write(true).open(format!("/proc/self/fd/{HANDED}"))?;
    close(HANDED)?;
    Ok(file)
}

/// A standard descriptor once more, above the standard three and closed to what is started.
///
/// # Errors
/// What the kernel says.
pub fn above_standard(descriptor: impl AsFd) -> io::Result<OwnedFd> {
    Ok(fcntl_dupfd_cloexec(descriptor, HANDED)?)
}
