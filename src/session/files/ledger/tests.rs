//! What may be said, and the same with one thing wrong.

use proptest::prelude::*;

use super::*;
use crate::call::{FileFailure, FileReason};

fn request(operation: FileOperation) -> FileRequest {
    FileRequest {
        id: "a".into(),
        path: "p".into(),
        operation,
        timeout_ms: 1,
        max_bytes: 1000,
        max_entries: 3,
    }
}

fn file(path: &str, size: u64) -> FileEntry {
    FileEntry { path: path.into(), kind: FileKind::File, size, mode: 0o644, modified_ms: 0 }
}

fn done(entries: u64, bytes: u64) -> FileResult {
    FileResult { entries, bytes, ..FileResult::default() }
}

/// The entries with as much data as is said, and the end.
fn told(operation: FileOperation, files: &[(FileEntry, usize)], result: &FileResult) -> Judged {
    let request = request(operation);
    let mut ledger = Ledger::new(&request);
    for (entry, data) in files {
        ledger.entry(entry, 300)?;
        ledger.data(*data)?;
    }
    ledger.end(result)
}

#[test]
fn what_was_asked_may_be_said() {
    let write = FileOperation::Write { mode: None, parents: false, replace: true };
    let delete = FileOperation::Delete { recursive: true };
    for (operation, files, result) in [
        (FileOperation::Read, vec![(file("", 5), 5)], done(1, 5)),
        (FileOperation::Read, vec![(file("", 0), 0)], done(1, 0)),
        (FileOperation::Stat, vec![(file("", 5), 0)], done(1, 0)),
        (FileOperation::List, vec![(file("a", 5), 0), (file("b", 5), 0)], done(2, 0)),
        (FileOperation::Pack, vec![(file("a/b", 5), 5), (file("c", 995), 995)], done(2, 1000)),
        (FileOperation::Pack, vec![], done(0, 0)),
        (write, vec![], done(1, 1000)),
        (delete, vec![], done(7, 0)),
        (FileOperation::Unpack, vec![], done(3, 1000)),
    ] {
        assert_eq!(told(operation, &files, &result), Ok(()), "{operation:?}");
    }
    let cut = FileResult { truncated: true, ..done(0, 0) };
    assert_eq!(told(FileOperation::List, &[], &cut), Ok(()));
}

#[test]
fn a_word_too_many_ends_it() {
    let directory = FileEntry { kind: FileKind::Directory, ..file("", 0) };
    let link = FileEntry { kind: FileKind::Symlink, ..file("a", 0) };
    let write = FileOperation::Write { mode: None, parents: false, replace: true };
    for (operation, files, result) in [
        (FileOperation::Read, vec![(file("", 5), 6)], done(1, 6)),
        (FileOperation::Read, vec![(file("", 5), 4)], done(1, 4)),
        (FileOperation::Read, vec![(file("", 5), 5)], done(1, 4)),
        (FileOperation::Read, vec![], done(0, 0)),
        (FileOperation::Read, vec![(file("", 1001), 0)], done(1, 0)),
        (FileOperation::Read, vec![(file("", u64::MAX), 0)], done(1, 0)),
        (FileOperation::Read, vec![(file("x", 5), 5)], done(1, 5)),
        (FileOperation::Read, vec![(directory, 0)], done(1, 0)),
        (FileOperation::Read, vec![(file("", 0), 0), (file("", 0), 0)], done(2, 0)),
        (FileOperation::Stat, vec![(file("", 0), 1)], done(1, 1)),
        (FileOperation::List, vec![(file("a", 0), 0); 4], done(4, 0)),
        (FileOperation::List, vec![(file("a/b", 0), 0)], done(1, 0)),
        (FileOperation::List, vec![(file("..", 0), 0)], done(1, 0)),
        (FileOperation::Pack, vec![(file("../a", 0), 0)], done(1, 0)),
        (FileOperation::Pack, vec![(file("/a", 0), 0)], done(1, 0)),
        (FileOperation::Pack, vec![(file("a/./b", 0), 0)], done(1, 0)),
        (FileOperation::Pack, vec![(file("a//b", 0), 0)], done(1, 0)),
        (FileOperation::Pack, vec![(link, 0)], done(1, 0)),
        (FileOperation::Pack, vec![(file("a", 600), 600), (file("b", 600), 600)], done(2, 1200)),
        (FileOperation::Pack, vec![(file("a", 5), 4), (file("b", 0), 0)], done(2, 4)),
        (write, vec![(file("", 0), 0)], done(1, 0)),
        (write, vec![], done(1, 1001)),
        (write, vec![], done(0, 0)),
        (FileOperation::Unpack, vec![], done(4, 0)),
        (write, vec![], FileResult { truncated: true, ..done(1, 0) }),
        (FileOperation::Read, vec![], FileResult { failure: Some(failure("x")), ..done(0, 0) }),
        (
            FileOperation::Unpack,
            vec![],
            FileResult { failure: Some(failure(&"x".repeat(501))), ..done(0, 0) },
        ),
    ] {
        assert!(told(operation, &files, &result).is_err(), "{operation:?} {files:?} {result:?}");
    }
    let failed = FileResult { failure: Some(failure("a/b")), ..done(0, 0) };
    assert_eq!(told(FileOperation::Unpack, &[], &failed), Ok(()));
    let request = request(FileOperation::List);
    let mut ledger = Ledger::new(&request);
    assert!(ledger.entry(&file("a", 0), 1001).is_err(), "a listing has its bytes, too");
}

fn failure(at: &str) -> FileFailure {
    FileFailure { reason: FileReason::NotFound, at: Some(at.into()) }
}

proptest! {
    /// Whatever is said, no more is handed over than was asked for.
    #[test]
    fn no_more_than_was_asked_for(steps in prop::collection::vec((any::<bool>(), 0..700_u64, "[a./]{0,4}"), 0..40)) {
        let request = request(FileOperation::Pack);
        let mut ledger = Ledger::new(&request);
        let (mut entries, mut bytes) = (0, 0);
        for (is_entry, size, path) in steps {
            let judged = if is_entry {
                ledger.entry(&file(&path, size), 10).map(|()| {
                    entries += 1;
                    assert!(is_below(&path) && !path.split('/').any(|part| matches!(part, "" | "." | "..")));
                })
            } else {
                ledger.data(usize::try_from(size).unwrap()).map(|()| bytes += size)
            };
            if judged.is_err() {
                break;
            }
            prop_assert!(entries <= 3 && bytes <= 1000);
        }
    }
}
