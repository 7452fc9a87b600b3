//! Why an operation stops: what the kernel said, in the words of the protocol.

use rustix::io::Errno;

use crate::call::{FileFailure, FileReason};

/// Why an operation stops before its end.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// The session is told why.
    Refused(FileFailure),
    /// There is nobody to tell.
    Gone,
}

impl From<FileReason> for Stop {
    fn from(reason: FileReason) -> Self {
        Self::Refused(FileFailure { reason, at: None })
    }
}

impl From<Errno> for Stop {
    fn from(errno: Errno) -> Self {
        reason(errno).into()
    }
}

impl From<std::io::Error> for Stop {
    fn from(error: std::io::Error) -> Self {
        Errno::from_io_error(&error).map_or_else(|| FileReason::Failed.into(), Self::from)
    }
}

/// What the kernel said.
pub(super) fn reason(errno: Errno) -> FileReason {
    match errno {
        Errno::NOENT => FileReason::NotFound,
        Errno::NOTDIR => FileReason::NotADirectory,
        Errno::ISDIR => FileReason::IsADirectory,
        Errno::LOOP => FileReason::LinkRefused,
        // A mount can't be removed or replaced.
        Errno::ROFS | Errno::BUSY | Errno::XDEV => FileReason::ReadOnly,
        Errno::ACCESS | Errno::PERM => FileReason::Denied,
        Errno::EXIST => FileReason::Exists,
        Errno::NOTEMPTY => FileReason::NotEmpty,
        Errno::NAMETOOLONG => FileReason::NameTooLong,
        Errno::NOSPC | Errno::DQUOT => FileReason::NoSpace,
        Errno::FBIG => FileReason::TooBig,
        Errno::MFILE | Errno::NFILE | Errno::NOMEM => FileReason::NoResources,
        // What opens no FIFO that nobody reads, and no socket at all.
        Errno::NXIO | Errno::NODEV => FileReason::NotRegular,
        _ => FileReason::Failed,
    }
}
