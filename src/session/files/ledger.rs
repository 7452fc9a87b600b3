//! What an agent may say while something is done with files, held against what was asked and what it has said before. Pure.
//!
//! A word too many ends it: what comes from there is the workload's, if the workload likes.

use crate::call::{FileEntry, FileKind, FileOperation, FileRequest, FileResult, MOST_AT_CHARS, is_below};

/// What has been said so far.
#[derive(Debug)]
pub(super) struct Ledger<'a> {
    request: &'a FileRequest,
    entries: u64,
    bytes: u64,
    /// Of the file that is being told: bytes that are still to come.
    left: u64,
    /// Of a listing: bytes that its entries took.
    said: u64,
}

type Judged = Result<(), &'static str>;

impl<'a> Ledger<'a> {
    pub(super) const fn new(request: &'a FileRequest) -> Self {
        Self { request, entries: 0, bytes: 0, left: 0, said: 0 }
    }

    /// Something is told of a file, in so many bytes.
    pub(super) fn entry(&mut self, entry: &FileEntry, length: usize) -> Judged {
        if self.left > 0 {
            return Err("a file before the last one was whole");
        }
        self.entries += 1;
        self.said += length as u64;
        let most = match self.request.operation {
            FileOperation::Stat | FileOperation::Read => 1,
            FileOperation::List | FileOperation::Pack => self.request.max_entries,
            FileOperation::Write { .. } | FileOperation::Delete { .. } | FileOperation::Unpack => 0,
        };
        if self.entries > most {
            return Err("more files than were asked for");
        }
        if entry.mode > 0o7777 {
            return Err("a mode that can't be");
        }
        match self.request.operation {
            FileOperation::List if !is_name(&entry.path) => Err("a name that can't be"),
            FileOperation::List if self.said > self.request.max_bytes => {
                Err("a longer listing than was asked for")
            }
            FileOperation::Stat | FileOperation::Read if !entry.path.is_empty() => {
                Err("a path that nobody asked for")
            }
            FileOperation::Read if entry.kind != FileKind::File => Err("what can't be read"),
            FileOperation::Read => self.begin(entry.size),
            FileOperation::Pack if !is_packed(entry) => Err("what can't be packed"),
            FileOperation::Pack if entry.kind == FileKind::File => self.begin(entry.size),
            _ => Ok(()),
        }
    }

    fn begin(&mut self, size: u64) -> Judged {
        self.left = size;
        let all = self.bytes.checked_add(size);
        if all.is_some_and(|all| all <= self.request.max_bytes) {
            Ok(())
        } else {
            Err("more than was asked for")
        }
    }

    /// So much of the file is here.
    pub(super) fn data(&mut self, length: usize) -> Judged {
        self.left = self.left.checked_sub(length as u64).ok_or("more of a file than it holds")?;
        self.bytes += length as u64;
        Ok(())
    }

    /// It is over.
    pub(super) fn end(&self, result: &FileResult) -> Judged {
        if let Some(failure) = &result.failure {
            let at = failure.at.as_ref();
            let fits = at.is_none_or(|at| at.chars().count() <= MOST_AT_CHARS);
            let many = matches!(
                self.request.operation,
                FileOperation::Delete { .. } | FileOperation::Pack | FileOperation::Unpack
            );
            return if fits && (many || at.is_none()) { Ok(()) } else { Err("a failure that can't be") };
        }
        if self.left > 0 {
            return Err("an end before the file was whole");
        }
        let is_list = self.request.operation == FileOperation::List;
        let told = match self.request.operation {
            FileOperation::Stat => (self.entries, result.entries, result.bytes) == (1, 1, 0),
            FileOperation::Read => self.entries == 1 && (result.entries, result.bytes) == (1, self.bytes),
            FileOperation::List => (result.entries, result.bytes) == (self.entries, 0),
            FileOperation::Pack => (result.entries, result.bytes) == (self.entries, self.bytes),
            FileOperation::Write { .. } => result.entries == 1,
            FileOperation::Delete { .. } => result.entries >= 1,
            FileOperation::Unpack => result.entries <= self.request.max_entries,
        };
        if told && (is_list || !result.truncated) && result.bytes <= self.request.max_bytes {
            Ok(())
        } else {
            Err("a result that contradicts what was told")
        }
    }
}

/// One name in a directory.
fn is_name(name: &str) -> bool {
    (1..=255).contains(&name.len()) && !matches!(name, "." | "..") && !name.contains(['/', '\0'])
}

/// What an archive may have: nothing that leads out, in plain spelling, and no link.
fn is_packed(entry: &FileEntry) -> bool {
    matches!(entry.kind, FileKind::File | FileKind::Directory)
        && is_below(&entry.path)
        && entry.path.split('/').all(is_name)
}

#[cfg(test)]
mod tests;
