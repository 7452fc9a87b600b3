//! Archives, honest and not.

use std::io::Cursor;

use proptest::prelude::*;
use tar::{Builder, Header};

use super::*;

fn header(kind: EntryType, size: usize) -> Header {
    let mut header = Header::new_ustar();
    header.set_entry_type(kind);
    header.set_mode(0o4755);
    header.set_size(size as u64);
    header
}

/// An entry whose name is written as it is, which no honest archiver would.
fn entry(kind: EntryType, name: &str, content: &[u8]) -> Vec<u8> {
    let mut header = header(kind, content.len());
    let place = &mut header.as_old_mut().name;
    place[..name.len()].copy_from_slice(name.as_bytes());
    header.set_cksum();
    let fill = vec![0; (512 - content.len() % 512) % 512];
    [&header.as_bytes()[..], content, &fill].concat()
}

fn end() -> Vec<u8> {
    vec![0; 1024]
}

type Seen = Vec<(Item, Vec<u8>)>;

fn read(bytes: &[u8], most: u64) -> (Seen, Result<(), (FileReason, String)>) {
    let mut seen = Vec::new();
    let ended = each(Cursor::new(bytes), most, |item, content| {
        let mut all = Vec::new();
        content.read_to_end(&mut all).map_err(|_| ())?;
        seen.push((item.clone(), all));
        Ok(())
    });
    let ended = ended.map_err(|error: TapeError<()>| match error {
        TapeError::Refused(reason, name) => (reason, String::from_utf8_lossy(&name).into_owned()),
        other => panic!("{other:?}"),
    });
    (seen, ended)
}

fn refusal(bytes: &[u8]) -> (FileReason, String) {
    read(&[bytes, &end()].concat(), 100).1.unwrap_err()
}

#[test]
fn what_archivers_write_is_read() {
    let long = format!("{}/{}", "d".repeat(150), "f".repeat(150));
    let mut builder = Builder::new(Vec::new());
    for (path, kind, content) in [
        ("./", EntryType::Directory, ""),
        ("./a/", EntryType::Directory, ""),
        ("./a/b.txt", EntryType::Regular, "text"),
        (long.as_str(), EntryType::Regular, "long"),
    ] {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(0o4755);
        header.set_size(content.len() as u64);
        builder.append_data(&mut header, path, content.as_bytes()).unwrap();
    }
    let (seen, ended) = read(&builder.into_inner().unwrap(), 100);
    assert_eq!(ended, Ok(()));
    let found: Vec<_> =
        seen.iter().map(|(item, content)| (item.path.as_str(), item.mode, content.as_slice())).collect();
    assert_eq!(found, [("a", 0o755, &b""[..]), ("a/b.txt", 0o755, b"text"), (&long, 0o755, b"long")]);
    assert_eq!(seen[0].0.kind, FileKind::Directory);
}

#[test]
fn an_extension_says_the_path() {
    let path = format!("{}/x", "ä".repeat(100));
    let mut line = format!(" path={path}\n");
    line.insert_str(0, &(line.len() + 3).to_string());
    let record = [b"30 mtime=1350244992.023960108\n", line.as_bytes()].concat();
    let bytes =
        [entry(EntryType::XHeader, "pax", &record), entry(EntryType::Regular, "cut", b"1"), end()].concat();
    let (seen, ended) = read(&bytes, 100);
    assert_eq!((seen.len(), ended), (1, Ok(())));
    assert_eq!(seen[0].0.path, path);
    for record in [
        &b"9 size=9\n"[..],
        b"22 GNU.sparse.major=1\n",
        b"x path=a\n",
        b"99999999999999999999999 a=b\n",
        b"8 path=a",
    ] {
        let bytes = [entry(EntryType::XHeader, "pax", record), entry(EntryType::Regular, "a", b"1")].concat();
        assert_eq!(refusal(&bytes).0, FileReason::EntryRefused, "{record:?}");
    }
}

#[test]
fn what_leads_out_or_is_no_file_is_refused_by_its_name() {
    for name in ["../../etc/passwd", "/etc/passwd", "a/../../b", "..", "a/.."] {
        assert_eq!(refusal(&entry(EntryType::Regular, name, b"x")), (FileReason::EntryRefused, name.into()));
    }
    for kind in [
        EntryType::Symlink,
        EntryType::Link,
        EntryType::Char,
        EntryType::Block,
        EntryType::Fifo,
        EntryType::GNUSparse,
        EntryType::new(b'V'),
    ] {
        assert_eq!(refusal(&entry(kind, "name", b"")), (FileReason::EntryRefused, "name".into()), "{kind:?}");
    }
    let long =
        [entry(EntryType::GNULongName, "l", b"../up\0"), entry(EntryType::Regular, "fine", b"")].concat();
    assert_eq!(refusal(&long), (FileReason::EntryRefused, "../up".into()));
    assert_eq!(refusal(&entry(EntryType::Regular, ".", b"x")).0, FileReason::EntryRefused);
}

#[test]
fn there_is_an_end_to_everything() {
    let many = entry(EntryType::Regular, "a", b"").repeat(101);
    assert_eq!(refusal(&many), (FileReason::TooMany, "a".into()));
    // Records that say something of an entry that never comes are entries, too.
    let names = entry(EntryType::GNULongName, "l", b"x").repeat(101);
    assert_eq!(refusal(&names).0, FileReason::TooMany);
    for kind in [EntryType::GNULongName, EntryType::GNULongLink, EntryType::XHeader, EntryType::XGlobalHeader]
    {
        let huge = entry(kind, "huge", &vec![b'x'; 64 * 1024 + 1]);
        assert_eq!(refusal(&huge), (FileReason::EntryRefused, "huge".into()), "{kind:?}");
        // Not even begun: what is said to be huge is not waited for.
        let mut header = header(kind, 0);
        header.set_size(u64::MAX / 2);
        header.set_cksum();
        assert_eq!(refusal(header.as_bytes()).0, FileReason::EntryRefused, "{kind:?}");
    }
}

#[test]
fn what_is_no_archive_is_told_so() {
    for bytes in [&b"PK\x03\x04"[..], &[0x1f; 512], &[b'x'; 5000]] {
        assert_eq!(read(bytes, 100).1.unwrap_err().0, FileReason::BadArchive);
    }
    assert_eq!(read(&[], 100), (Vec::new(), Ok(())));
}

proptest! {
    #[test]
    fn whatever_comes_leads_nowhere_but_down(mut bytes in prop::collection::vec(any::<u8>(), 0..4096), name in "[./a]{1,20}") {
        // Behind a header that is good, so that more than the first checksum is tried.
        let good = entry(EntryType::Regular, &name, &bytes);
        bytes.extend(good);
        for bytes in [&bytes[..], &bytes[bytes.len().saturating_sub(4096)..]] {
            let (seen, _) = read(bytes, 10);
            prop_assert!(seen.len() <= 10);
            for (item, content) in seen {
                prop_assert!(!item.path.is_empty() && is_below(&item.path));
                prop_assert!(item.path.split('/').all(|part| !matches!(part, "" | "." | "..")));
                prop_assert!(content.len() as u64 <= item.size && item.mode <= 0o777);
            }
        }
    }
}
