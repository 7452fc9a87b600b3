//! File operations in a sandbox's workspace: what is asked, what is told of files, and how it ended.

use serde::{Deserialize, Serialize};

use super::{BadExec, check_id};

/// Most bits of a mode: reading, writing and executing, for three; no program gets more rights than who starts it.
pub const MOST_MODE: u32 = 0o777;
/// Longest path that a failure names, in characters.
pub const MOST_AT_CHARS: usize = 500;

/// One operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FileRequest {
    /// Names the operation in records, as that of a call.
    pub id: String,
    /// Below the workspace; nothing is the workspace itself.
    pub path: String,
    /// What to do there.
    pub operation: FileOperation,
    /// From the start until it is given up.
    pub timeout_ms: u64,
    /// Most bytes that files may hold which are carried, all together; of a listing, of all its entries.
    pub max_bytes: u64,
    /// Most files and directories that are told of or made.
    pub max_entries: u64,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum FileOperation {
    /// Tell what is there, be it a link.
    Stat,
    /// Tell what is in a directory.
    List,
    /// Hand over what a file holds.
    Read,
    /// Make a file, or put another in its place, once all of it has come.
    Write {
        /// The file's mode. Absent: as it was, and 644 for a new one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mode: Option<u32>,
        /// Whether directories on the way are made.
        parents: bool,
        /// Whether a file that is there is replaced.
        replace: bool,
    },
    /// Remove a file, a link or an empty directory.
    Delete {
        /// A directory with all that is in it.
        recursive: bool,
    },
    /// Hand over all files and directories below.
    Pack,
    /// Make those that a tar archive holds.
    Unpack,
}

/// What something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileKind {
    /// An ordinary file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A FIFO, a socket, a device.
    Other,
}

/// What is told of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FileEntry {
    /// Its name in the directory that is listed, or its path below the one that is packed; otherwise nothing.
    pub path: String,
    /// What it is.
    pub kind: FileKind,
    /// Bytes that it holds.
    pub size: u64,
    /// Its mode, without its kind.
    pub mode: u32,
    /// When it was last written, in milliseconds since 1970.
    pub modified_ms: i64,
}

/// The last frame of an operation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FileResult {
    /// Why it was not done, or not to its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<FileFailure>,
    /// Bytes of files that were carried.
    pub bytes: u64,
    /// Files and directories that were told of, made or removed.
    pub entries: u64,
    /// What was left out: links and special files of an archive, names that are no UTF-8.
    pub skipped: u64,
    /// Whether a listing was cut off at its limit.
    pub truncated: bool,
}

/// Why an operation was not done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FileFailure {
    /// In one word.
    pub reason: FileReason,
    /// Which of many, where there are: a path below the operation's own, at most [`MOST_AT_CHARS`] characters of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
}

/// Why an operation was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileReason {
    /// There is nothing.
    NotFound,
    /// It is a directory.
    IsADirectory,
    /// Something on the way is no directory, or what should be one is none.
    NotADirectory,
    /// A FIFO, a socket or a device, or for what takes no links a link.
    NotRegular,
    /// A link leads out of the workspace, or in a ring.
    LinkRefused,
    /// It is protected, part of a read-only input, or a mount.
    ReadOnly,
    /// The file's own permissions.
    Denied,
    /// It is there already.
    Exists,
    /// The directory is not empty.
    NotEmpty,
    /// A name is longer than the file system takes.
    NameTooLong,
    /// Directories lie deeper in each other than is gone.
    TooDeep,
    /// More bytes than may be.
    TooBig,
    /// More files and directories than may be.
    TooMany,
    /// The workspace is full.
    NoSpace,
    /// Something else changed it at the same time.
    Changed,
    /// A name is no UTF-8.
    NotText,
    /// What came is no tar archive.
    BadArchive,
    /// An archive has a path that leads out, a link, a device, or something else that is no file and no directory.
    EntryRefused,
    /// The time is over.
    DeadlineExceeded,
    /// The kernel gave no memory or descriptor.
    NoResources,
    /// The kernel said something else.
    Failed,
}

impl FileRequest {
    /// Whether it is within its bounds. Both sides ask, as for a call.
    ///
    /// # Errors
    /// The field, and what would be right.
    pub fn check(&self) -> Result<(), BadExec> {
        check_id(&self.id)?;
        if !is_below(&self.path) {
            let expected = "a path below the workspace such as src/main.py: of at most 4095 bytes, without a leading /, .. and NUL";
            return Err(BadExec { field: "path", expected });
        }
        if self.timeout_ms == 0 {
            return Err(BadExec { field: "timeoutMs", expected: "at least 1" });
        }
        let FileOperation::Write { mode: Some(mode), .. } = self.operation else { return Ok(()) };
        if mode > MOST_MODE {
            return Err(BadExec { field: "mode", expected: "octal digits from 0 to 777" });
        }
        Ok(())
    }
}

/// Whether a path leads nowhere but down.
#[must_use]
pub fn is_below(path: &str) -> bool {
    !path.starts_with('/')
        && path.len() < 4096
        && !path.contains('\0')
        && path.split('/').all(|part| part != "..")
}
