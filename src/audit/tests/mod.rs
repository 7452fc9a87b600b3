//! A trail on a disk: written, read, cut off, altered.
use std::{fs, path::Path};

use ed25519_dalek::SigningKey;
use proptest::prelude::*;

use super::{
    act::{Act, Role},
    directory::{Directory, What},
    entry::Source,
    note::{Checkpoint, Signer},
    record::Record,
    tree,
    walk::{Fault, Line, SEGMENT_ENTRIES, Trust, segment_name},
    writer::{WriteError, Writer},
};

mod killed;

const ORIGIN: &str = "glovebox.example/trail";

fn signer(seed: u8) -> Signer {
    Signer::new(ORIGIN, SigningKey::from_bytes(&[seed; 32])).unwrap()
}

fn trust() -> Trust {
    Trust { verifiers: vec![signer(1).verifier().clone()], origin: ORIGIN.into() }
}

fn open(path: &Path) -> Writer {
    Writer::open(path, ORIGIN, vec![signer(1)], 1000).unwrap()
}

fn source(boot: &str, seq: u64) -> Source {
    Source { role: Role::Gateway, pod: "gateway-1".into(), boot: boot.into(), seq }
}

fn say(writer: &mut Writer, boot: &str, seqs: std::ops::Range<u64>) {
    let records = seqs.map(|seq| {
        let message = Some(format!("{boot}-{seq}"));
        (Some(source(boot, seq)), Record { message, ..Record::new(Act::EgressOpened, 5) })
    });
    writer.write(records, 2000).unwrap();
}

/// Everything that was said, in order, if the trail is good.
fn said(path: &Path) -> Result<Vec<String>, What> {
    let mut all = Vec::new();
    let mut each = |_, _: &[u8], line: &Line| {
        if let Line::Entry(entry, _) = line {
            all.extend(entry.record.message.clone().filter(|_| entry.by.role != Role::Trail));
        }
    };
    Directory::at(path).verify(&trust(), &[], &mut each).map_err(|found| found.what)?;
    Ok(all)
}

/// A directory of a test's own.
pub(in crate::audit) struct Folder(pub(in crate::audit) std::path::PathBuf);

impl Folder {
    pub(in crate::audit) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("glovebox-trail-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        Self(path)
    }

    fn segment(&self, first: u64) -> std::path::PathBuf {
        self.0.join(segment_name(first))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn what_was_said_is_there_once_and_in_order() {
    let folder = Folder::new("order");
    let mut writer = open(&folder.0);
    say(&mut writer, "a", 0..3);
    // Offered again, since the answer was lost, with more behind it.
    say(&mut writer, "a", 1..5);
    drop(writer);
    let mut writer = open(&folder.0);
    say(&mut writer, "a", 3..6);
    say(&mut writer, "b", 0..2);
    let all = ["a-0", "a-1", "a-2", "a-3", "a-4", "a-5", "b-0", "b-1"];
    assert_eq!(said(&folder.0).unwrap(), all);
}

#[test]
fn segments_follow_on_each_other_and_the_oldest_can_go() {
    let folder = Folder::new("segments");
    let mut writer = open(&folder.0);
    for step in 0..9 {
        say(&mut writer, "a", step * 1500..(step + 1) * 1500);
    }
    let all = said(&folder.0).unwrap();
    assert_eq!(all.len(), 13_500);
    let directory = Directory::at(&folder.0);
    assert_eq!(directory.segments().unwrap().len(), 4);
    let size = writer.committed().size;
    let note = Checkpoint::open(&writer.committed().note, &trust().verifiers).unwrap();
    // Each entry is proven to be there, also those whose segment's neighbours are known by their hash alone.
    for n in [0, 1, SEGMENT_ENTRIES - 1, SEGMENT_ENTRIES, 2 * SEGMENT_ENTRIES + 77, size - 1] {
        let proof = directory.inclusion(n, size).unwrap();
        let leaf = tree::leaf(&directory.line(n).unwrap().unwrap());
        assert_eq!(tree::root_by_inclusion(n, size, leaf, &proof), Some(note.root), "{n}");
    }
    writer.prune(0, 3000).unwrap();
    assert_eq!(directory.segments().unwrap(), [2 * SEGMENT_ENTRIES, 3 * SEGMENT_ENTRIES]);
    assert_eq!(said(&folder.0).unwrap()[..], all[usize::try_from(2 * SEGMENT_ENTRIES - 1).unwrap()..]);
    // What was vouched for before still is.
    assert!(directory.verify(&trust(), &[note], &mut |_, _, _| {}).is_ok());
    drop(writer);
    let mut writer = open(&folder.0);
    say(&mut writer, "a", 13_400..13_501);
    assert_eq!(said(&folder.0).unwrap().last().unwrap(), "a-13500");
    // The hashes of what was removed can't be exchanged.
    let roots = fs::read_to_string(folder.0.join("roots")).unwrap();
    fs::write(folder.0.join("roots"), roots.replacen(&roots[..2], "00", 1)).unwrap();
    assert!(matches!(said(&folder.0), Err(What::Fault(Fault::Root { .. }))));
    fs::write(folder.0.join("roots"), &roots).unwrap();
    fs::rename(folder.segment(3 * SEGMENT_ENTRIES), folder.0.join("hidden")).unwrap();
    fs::write(folder.0.join("roots"), format!("{roots}{}", &roots[..65])).unwrap();
    assert!(matches!(said(&folder.0), Err(What::Short { .. })), "a segment that is known was taken away");
    fs::rename(folder.0.join("hidden"), folder.segment(3 * SEGMENT_ENTRIES)).unwrap();
    fs::write(folder.0.join("roots"), &roots[..65]).unwrap();
    assert!(matches!(said(&folder.0), Err(What::Short { .. })));
}

#[test]
fn a_write_that_was_cut_off_is_repaired_and_said() {
    for left in [1, 20, 300, 700, 1500] {
        let folder = Folder::new(&format!("torn-{left}"));
        let mut writer = open(&folder.0);
        say(&mut writer, "a", 0..3);
        let before = writer.committed().bytes;
        say(&mut writer, "a", 3..6);
        drop(writer);
        let file = fs::OpenOptions::new().write(true).open(folder.segment(0)).unwrap();
        file.set_len(before + left).unwrap();
        drop(file);
        let mut writer = open(&folder.0);
        // Whoever was not told offers it again.
        say(&mut writer, "a", 3..6);
        assert_eq!(said(&folder.0).unwrap(), ["a-0", "a-1", "a-2", "a-3", "a-4", "a-5"], "{left}");
        let text = fs::read_to_string(folder.segment(0)).unwrap();
        assert!(text.contains("TrailRepaired"), "{left}");
    }
}

#[test]
fn a_trail_that_was_altered_is_not_gone_on_with() {
    let folder = Folder::new("altered");
    let mut writer = open(&folder.0);
    say(&mut writer, "a", 0..5);
    drop(writer);
    let text = fs::read_to_string(folder.segment(0)).unwrap();
    fs::write(folder.segment(0), text.replacen("a-2", "a-9", 1)).unwrap();
    let error = Writer::open(&folder.0, ORIGIN, vec![signer(1)], 1000).unwrap_err();
    assert!(matches!(error, WriteError::Altered(_)) && error.to_string().contains("entry 3"), "{error}");
    // Neither is one that somebody else has signed.
    fs::write(folder.segment(0), text).unwrap();
    assert!(Writer::open(&folder.0, ORIGIN, vec![signer(2)], 1000).is_err());
    // While a key is replaced both sign, and either is enough.
    drop(Writer::open(&folder.0, ORIGIN, vec![signer(1), signer(2)], 1000).unwrap());
    let with = |seed| Trust { verifiers: vec![signer(seed).verifier().clone()], origin: ORIGIN.into() };
    assert!(Directory::at(&folder.0).verify(&with(1), &[], &mut |_, _, _| {}).is_ok());
    let new = Directory::at(&folder.0).verify(&with(2), &[], &mut |_, _, _| {});
    assert!(new.is_err(), "the new key vouches for nothing that was before it");
}

/// Lines of a good trail of 12 entries, several to a checkpoint.
fn lines_of(folder: &Folder) -> Vec<String> {
    let mut writer = open(&folder.0);
    say(&mut writer, "a", 0..4);
    say(&mut writer, "a", 4..5);
    say(&mut writer, "a", 5..11);
    fs::read_to_string(folder.segment(0)).unwrap().lines().map(ToOwned::to_owned).collect()
}

fn put(folder: &Folder, lines: &[String]) {
    fs::write(folder.segment(0), lines.iter().map(|line| format!("{line}\n")).collect::<String>()).unwrap();
}

#[test]
fn each_tampering_is_named_with_its_place() {
    let folder = Folder::new("places");
    let good = lines_of(&folder);
    let at = |n: u64| good.iter().position(|line| line.starts_with(&format!("{{\"n\":{n},"))).unwrap();
    let fault = |lines: &[String]| {
        put(&folder, lines);
        Directory::at(&folder.0).verify(&trust(), &[], &mut |_, _, _| {}).unwrap_err()
    };
    let with = |change: &dyn Fn(&mut Vec<String>)| {
        let mut lines = good.clone();
        change(&mut lines);
        fault(&lines)
    };
    for n in 1..12_u64 {
        let found = with(&|lines| lines[at(n)] = lines[at(n)].replace("a-", "b-"));
        let named = matches!(&found.what, What::Fault(Fault::Altered(named)) if *named == n)
            || matches!(&found.what, What::Fault(Fault::AlteredNear(near)) if *near == n || *near == n + 1)
            || matches!(&found.what, What::Fault(Fault::Root { since, to }) if *since <= n && n < *to);
        assert!(named, "{n}: {found}");
        let found = with(&|lines| drop(lines.remove(at(n))));
        let named = match &found.what {
            What::Fault(Fault::Missing { from, .. }) => *from == n,
            What::Fault(Fault::Size { is, .. }) => *is == n,
            _ => false,
        };
        assert!(named, "{n}: {found}");
        let found = with(&|lines| lines.insert(at(n), good[at(n)].clone()));
        assert_eq!(found.what, What::Fault(Fault::OutOfOrder { n, expected: n + 1 }));
    }
    let found = with(&|lines| lines.swap(at(6), at(7)));
    assert_eq!((found.what, found.line), (What::Fault(Fault::Missing { from: 6, to: 7 }), at(6) as u64 + 1));
    // Cut off within a line, and behind an entry.
    put(&folder, &good);
    let mut text = fs::read(folder.segment(0)).unwrap();
    text.truncate(text.len() - 5);
    fs::write(folder.segment(0), &text).unwrap();
    assert_eq!(said(&folder.0), Err(What::Fault(Fault::Torn)));
    put(&folder, &good[..=at(8)]);
    assert_eq!(said(&folder.0), Err(What::Fault(Fault::Unsigned(6))));
    // Cut off behind a checkpoint: only whoever kept a later one can tell.
    put(&folder, &good);
    let report = Directory::at(&folder.0).verify(&trust(), &[], &mut |_, _, _| {}).unwrap();
    let kept = Checkpoint::open(&report.last.unwrap(), &trust().verifiers).unwrap();
    put(&folder, &good[..at(6)]);
    assert!(said(&folder.0).is_ok());
    let shorter = Directory::at(&folder.0).verify(&trust(), std::slice::from_ref(&kept), &mut |_, _, _| {});
    assert_eq!(shorter.unwrap_err().what, What::Shorter { says: 12, is: 6 });
}

#[test]
fn whoever_writes_all_of_it_anew_lacks_the_key() {
    let folder = Folder::new("anew");
    let good = lines_of(&folder);
    let other = Folder::new("anew-other");
    let mut writer = Writer::open(&other.0, ORIGIN, vec![signer(9)], 1000).unwrap();
    say(&mut writer, "c", 0..11);
    drop(writer);
    fs::copy(other.segment(0), folder.segment(0)).unwrap();
    assert!(matches!(said(&folder.0), Err(What::Fault(Fault::Checkpoint(_)))));
    // With the key, but not with what others kept.
    put(&folder, &good);
    let report = Directory::at(&folder.0).verify(&trust(), &[], &mut |_, _, _| {}).unwrap();
    let kept = Checkpoint::open(&report.last.unwrap(), &trust().verifiers).unwrap();
    fs::remove_dir_all(&other.0).unwrap();
    let mut writer = open(&other.0);
    say(&mut writer, "c", 0..20);
    let found = Directory::at(&other.0).verify(&trust(), &[kept], &mut |_, _, _| {}).unwrap_err();
    assert_eq!(found.what, What::OtherHistory(12));
}

#[test]
fn a_clock_that_was_set_back_does_not_set_the_trail_back() {
    let folder = Folder::new("clock");
    let mut writer = Writer::open(&folder.0, ORIGIN, vec![signer(1)], 9_000_000).unwrap();
    say(&mut writer, "a", 0..3);
    assert_eq!(said(&folder.0).unwrap().len(), 3);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever single byte is another: it is found, and the trail is not gone on with unless nothing was lost.
    #[test]
    fn no_flipped_byte_goes_unseen(at in any::<prop::sample::Index>(), bit in 0..8_u32) {
        let folder = Folder::new("flip");
        lines_of(&folder);
        let mut bytes = fs::read(folder.segment(0)).unwrap();
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        fs::write(folder.segment(0), &bytes).unwrap();
        prop_assert!(said(&folder.0).is_err());
    }
}
