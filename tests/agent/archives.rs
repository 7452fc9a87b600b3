//! Archives up and down: all of it, or the entry that is refused.

use std::fs;
use std::io::Write;

use glovebox::call::{FileKind, FileOperation, FileReason, FileRequest};
use tar::{Builder, EntryType, Header};

use crate::workspace::{Done, SECRET, Workspace, request};

fn header(kind: EntryType, size: usize) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(0o640);
    header.set_size(size as u64);
    header
}

fn archive(files: &[(&str, &str)]) -> Builder<Vec<u8>> {
    let mut builder = Builder::new(Vec::new());
    for (path, content) in files {
        let kind = if path.ends_with('/') { EntryType::Directory } else { EntryType::Regular };
        builder.append_data(&mut header(kind, content.len()), path, content.as_bytes()).unwrap();
    }
    builder
}

/// One more entry, with a name as it is written here.
fn odd(mut builder: Builder<Vec<u8>>, kind: EntryType, name: &str) -> Vec<u8> {
    let mut header = header(kind, 0);
    header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
    header.set_link_name("/etc/passwd").unwrap();
    header.set_cksum();
    builder.append(&header, std::io::empty()).unwrap();
    builder.into_inner().unwrap()
}

fn unpack(at: &Workspace, path: &str, bytes: &[u8]) -> Done {
    at.run(&request(FileOperation::Unpack, path), &[bytes])
}

#[test]
fn what_goes_up_comes_down() {
    let at = Workspace::new(None);
    let long = format!("{}/{}", "d".repeat(120), "f".repeat(120));
    let big = "x".repeat(300_000);
    let files = [("a/", ""), ("a/empty", ""), ("a/b/c.txt", "text"), (&long, "long"), ("big", &big)];
    let done = unpack(&at, "new/here", &archive(&files).into_inner().unwrap()).ok();
    assert_eq!((done.result.entries, done.result.bytes), (5, 300_008));
    let mode = std::os::unix::fs::MetadataExt::mode(&fs::metadata(at.path.join("new/here/big")).unwrap());
    assert_eq!(mode & 0o7777, 0o640);
    let done = at.ask(FileOperation::Pack, "new/here").ok();
    let mut found: Vec<_> = done
        .files
        .iter()
        .filter(|(entry, _)| entry.kind == FileKind::File)
        .map(|(entry, content)| (entry.path.as_str(), std::str::from_utf8(content).unwrap()))
        .collect();
    found.sort_unstable();
    let mut wanted = files[1..].to_vec();
    wanted.sort_unstable();
    assert_eq!(found, wanted);
    // Once more, over what is there; and one file alone.
    unpack(&at, "new/here", &archive(&files).into_inner().unwrap()).ok();
    let one = at.ask(FileOperation::Pack, "new/here/a/b/c.txt").ok();
    assert_eq!((one.files.len(), one.files[0].0.path.as_str()), (1, "c.txt"));
}

#[test]
fn an_entry_that_is_refused_is_named_and_nothing_outside_is_touched() {
    let at = Workspace::new(None);
    at.link("out", "../beside");
    at.link("d", "../beside");
    for (kind, name) in [
        (EntryType::Regular, "../../etc/passwd"),
        (EntryType::Regular, "/etc/passwd"),
        (EntryType::Symlink, "link"),
        (EntryType::Link, "hard"),
        (EntryType::Char, "device"),
        (EntryType::Fifo, "fifo"),
    ] {
        let done = unpack(&at, "", &odd(archive(&[("before", "x")]), kind, name));
        let failure = done.result.failure.unwrap();
        assert_eq!(
            (failure.reason, failure.at.as_deref()),
            (FileReason::EntryRefused, Some(name)),
            "{kind:?}"
        );
    }
    // Through links that are there already: as a directory on the way, and in the place of a file or directory.
    for (name, reason) in [
        ("out/f", FileReason::LinkRefused),
        ("out", FileReason::NotRegular),
        ("d/", FileReason::NotADirectory),
    ] {
        let done = unpack(&at, "", &archive(&[(name, "")]).into_inner().unwrap());
        let failure = done.result.failure.unwrap();
        assert_eq!((failure.reason, failure.at.as_deref()), (reason, Some(name.trim_end_matches('/'))));
    }
    assert_eq!(
        unpack(&at, "out/x", &archive(&[]).into_inner().unwrap()).reason(),
        Some(FileReason::LinkRefused)
    );
    assert_eq!(fs::read_to_string(at.path.parent().unwrap().join("beside/f")).unwrap(), SECRET);
    assert_eq!(at.names(), ["before", "d", "out"]);
    // Links are left out of what comes down.
    let done = at.ask(FileOperation::Pack, "").ok();
    assert_eq!((done.files.len(), done.result.skipped), (1, 2));
}

#[test]
fn an_archive_has_its_bounds() {
    let at = Workspace::new(None);
    let few = FileRequest { max_entries: 3, ..request(FileOperation::Unpack, "") };
    let four = archive(&[("a", ""), ("b", ""), ("c", ""), ("d", "")]).into_inner().unwrap();
    let done = at.run(&few, &[&four]);
    let failure = done.result.failure.unwrap();
    assert_eq!((failure.reason, failure.at.as_deref()), (FileReason::TooMany, Some("d")));
    let small = FileRequest { max_bytes: 4000, ..request(FileOperation::Unpack, "") };
    let long = archive(&[("fits", "x"), ("long", &"x".repeat(5000))]).into_inner().unwrap();
    let pieces: Vec<&[u8]> = long.chunks(512).collect();
    assert_eq!(at.run(&small, &pieces).reason(), Some(FileReason::TooBig));
    assert_eq!(at.names(), ["a", "b", "c", "fits"], "nothing half-written");
    for bytes in [&b"PK\x03\x04 a zip, perhaps"[..], &four[..700], &[b'x'; 4096]] {
        let reason = unpack(&at, "", bytes).reason();
        assert_eq!(reason, Some(FileReason::BadArchive), "{:?}", &bytes[..10]);
    }
    let cut = archive(&[("cut", &"x".repeat(5000))]).into_inner().unwrap();
    assert_eq!(unpack(&at, "", &cut[..3000]).reason(), Some(FileReason::BadArchive));
    // What is said to be huge and never comes.
    let mut bomb = header(EntryType::Regular, 0);
    bomb.set_path("bomb").unwrap();
    bomb.set_size(1 << 40);
    bomb.set_cksum();
    let mut bytes = Vec::new();
    bytes.write_all(bomb.as_bytes()).unwrap();
    assert_eq!(unpack(&at, "", &bytes).reason(), Some(FileReason::BadArchive));
    assert_eq!(at.names(), ["a", "b", "c", "fits"]);
    let few = FileRequest { max_entries: 2, ..request(FileOperation::Pack, "") };
    assert_eq!(at.run(&few, &[]).reason(), Some(FileReason::TooMany));
    let small = FileRequest { max_bytes: 0, ..request(FileOperation::Pack, "") };
    assert_eq!(at.run(&small, &[]).reason(), Some(FileReason::TooBig));
}
