//! What goes over the wire of files: what is told of one, of a directory, and of what was done.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::call::{self, FileEntry, FileResult};

/// What something is.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// An ordinary file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A FIFO, a socket or a device: it can be removed, and nothing else.
    Other,
}

/// What is told of a file.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct FileInfo {
    /// Its name in the directory that is listed; otherwise its path below the workspace.
    pub path: String,
    /// What it is.
    pub kind: FileKind,
    /// Bytes that it holds.
    pub size: u64,
    /// Its mode, in octal digits.
    pub mode: String,
    /// When it was last written. Absent where the sandbox says a time that can't be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modified: Option<String>,
}

/// What is in a directory.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct FileList {
    /// By their names.
    pub entries: Vec<FileInfo>,
    /// Whether there are more than are listed.
    pub truncated: bool,
    /// How many are not listed since their names are no UTF-8.
    pub skipped: u64,
}

/// What was done.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct FileDone {
    /// The operation, as logs and audit records name it.
    pub id: String,
    /// Bytes that were written.
    pub bytes: u64,
    /// Files and directories that were written or removed.
    pub entries: u64,
}

impl FileInfo {
    pub(super) fn new(entry: FileEntry) -> Self {
        Self {
            path: entry.path,
            kind: match entry.kind {
                call::FileKind::File => FileKind::File,
                call::FileKind::Directory => FileKind::Directory,
                call::FileKind::Symlink => FileKind::Symlink,
                call::FileKind::Other => FileKind::Other,
            },
            size: entry.size,
            mode: format!("{:o}", entry.mode),
            modified: Timestamp::from_millisecond(entry.modified_ms).ok().map(|time| time.to_string()),
        }
    }
}

impl FileList {
    pub(super) fn new(mut entries: Vec<FileEntry>, result: &FileResult) -> Self {
        entries.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        let entries = entries.into_iter().map(FileInfo::new).collect();
        Self { entries, truncated: result.truncated, skipped: result.skipped }
    }
}

impl FileDone {
    pub(super) fn new(id: &str, result: &FileResult) -> Self {
        Self { id: id.to_owned(), bytes: result.bytes, entries: result.entries }
    }
}
