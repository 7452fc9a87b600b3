//! Files of the workspace: what goes in comes out, nothing is reached outside, and nothing is left half.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::time::{Duration, Instant};

use glovebox::call::{FileKind, FileOperation, FileReason, FileRequest, Kind, Refusal};

use crate::container::eventually;
use crate::session::shell;
use crate::workspace::{SECRET, WRITE, Workspace, request};

fn noise(size: usize) -> Vec<u8> {
    let mut state = 88_172_645_463_325_252_u64;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[0]
    };
    (0..size).map(next).collect()
}

#[test]
fn what_is_written_is_read_again() {
    let at = Workspace::new(None);
    for content in [Vec::new(), vec![0], noise(10 << 20), (0..=255).collect()] {
        let done = at.write("dir-less", &content).ok();
        assert_eq!((done.result.bytes, done.result.entries), (content.len() as u64, 1));
        assert!(at.read("dir-less").unwrap() == content, "{} bytes", content.len());
    }
    assert_eq!(at.names(), ["dir-less"]);
    let done = at.ask(FileOperation::Stat, "dir-less").ok();
    let entry = &done.files[0].0;
    assert_eq!((entry.kind, entry.size, entry.mode), (FileKind::File, 256, 0o644));
    assert!(entry.modified_ms > 1_600_000_000_000);
}

#[test]
fn modes_parents_and_what_is_there_already() {
    let at = Workspace::new(None);
    let write = |path: &str, mode, parents, replace| {
        at.run(&request(FileOperation::Write { mode, parents, replace }, path), &[b"x"]).reason()
    };
    assert_eq!(write("a/b/c", None, false, true), Some(FileReason::NotFound));
    assert_eq!(write("a/b/c", Some(0o750), true, false), None);
    let mode = |path: &str| fs::metadata(at.path.join(path)).unwrap().mode() & 0o7777;
    assert_eq!((mode("a/b/c"), mode("a/b")), (0o750, 0o755));
    assert_eq!(write("a/b/c", None, false, false), Some(FileReason::Exists));
    assert_eq!(write("a/b/c", None, false, true), None);
    assert_eq!(mode("a/b/c"), 0o750, "a file that is replaced keeps its mode");
    assert_eq!(write("a/b", None, false, true), Some(FileReason::IsADirectory));
    assert_eq!(write("", None, false, true), Some(FileReason::IsADirectory));
    assert_eq!(write("a/b/c/d", None, true, true), Some(FileReason::NotADirectory));
    assert_eq!(write(&"n".repeat(256), None, true, true), Some(FileReason::NameTooLong));
    assert_eq!(write(&"d/".repeat(250), None, true, true), Some(FileReason::TooDeep));
    fs::remove_dir_all(at.path.join("d")).unwrap();
    assert_eq!(at.names(), ["a", "a/b", "a/b/c"]);
}

#[test]
fn links_are_followed_inside_and_lead_nowhere_else() {
    let at = Workspace::new(None);
    at.put("real/f", b"inside");
    let outside = at.path.parent().unwrap().join("outside");
    for (name, target) in [
        ("in", "real/f"),
        ("in-dir", "./real/"),
        ("real/up", "../real/f"),
        ("abs", outside.to_str().unwrap()),
        ("abs-in", at.path.join("real/f").to_str().unwrap()),
        ("up", "../outside"),
        ("up-dir", ".."),
        ("real/far", "../../outside"),
        ("round", "real/../../w/real/f"),
        ("ring", "ring"),
        ("dangling", "nothing"),
    ] {
        at.link(name, target);
    }
    for path in ["in", "in-dir/f", "real/up", "in-dir/../real/f"] {
        let wanted = if path.contains("..") { None } else { Some(b"inside".to_vec()) };
        if wanted.is_some() {
            assert_eq!(at.read(path).ok(), wanted, "{path}");
        }
    }
    for path in ["abs", "abs-in", "up", "up-dir/outside", "real/far", "round", "ring"] {
        assert_eq!(at.read(path), Err(FileReason::LinkRefused), "{path}");
        assert_eq!(at.write(path, b"overwritten").reason(), Some(FileReason::LinkRefused), "{path}");
    }
    assert_eq!(at.refusal(FileOperation::List, "up-dir"), FileReason::LinkRefused);
    assert_eq!(at.read("dangling"), Err(FileReason::NotFound));
    assert_eq!(fs::read_to_string(&outside).unwrap(), SECRET);
    // A write through a link that stays inside goes to what it leads to.
    at.write("in", b"changed").ok();
    assert_eq!(fs::read(at.path.join("real/f")).unwrap(), b"changed");
    assert!(fs::symlink_metadata(at.path.join("in")).unwrap().is_symlink());
    // What is told of a link, and its removal, are about the link.
    assert_eq!(at.ask(FileOperation::Stat, "abs").ok().files[0].0.kind, FileKind::Symlink);
    at.ask(FileOperation::Delete { recursive: true }, "up-dir").ok();
    at.ask(FileOperation::Delete { recursive: false }, "abs").ok();
    assert_eq!(fs::read_to_string(&outside).unwrap(), SECRET);
}

#[test]
fn what_is_no_ordinary_file_is_refused_and_not_waited_for() {
    let at = Workspace::new(Some(
        "mkfifo fifo; python3 -c \"import socket; socket.socket(socket.AF_UNIX).bind('socket')\"; sleep 1000",
    ));
    eventually("there is a FIFO", || fs::symlink_metadata(at.path.join("fifo")).ok());
    at.link("to-fifo", "fifo");
    // Where these tests are root's.
    let _ = std::process::Command::new("mknod").arg(at.path.join("null")).args(["c", "1", "3"]).status();
    let begun = Instant::now();
    for name in ["fifo", "to-fifo", "socket", "null"] {
        if fs::symlink_metadata(at.path.join(name)).is_err() {
            println!("no {name} here: it was not tried");
            continue;
        }
        assert_eq!(at.read(name), Err(FileReason::NotRegular), "{name}");
        assert_eq!(at.write(name, b"x").reason(), Some(FileReason::NotRegular), "{name}");
        assert_eq!(at.refusal(FileOperation::List, name), FileReason::NotADirectory, "{name}");
    }
    assert_eq!(at.ask(FileOperation::Stat, "fifo").ok().files[0].0.kind, FileKind::Other);
    assert_eq!(at.ask(FileOperation::Pack, "").ok().files.len(), 0);
    at.ask(FileOperation::Delete { recursive: false }, "fifo").ok();
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}

/// Links and directories that change places while they are gone through.
#[test]
fn whatever_is_swapped_meanwhile_nothing_outside_is_read() {
    let script = "mkdir d; echo inside >d/f; ln -s ../beside e; echo inside >g; mkdir tmp
        while :; do ln -sfn ../outside l; mv d x; mv e d; sleep 0.004; ln -sfn g l; mv d e; mv x d; sleep 0.004; done";
    let at = Workspace::new(Some(script));
    eventually("it begins", || fs::symlink_metadata(at.path.join("l")).ok());
    let mut seen = [0; 3];
    for turn in 0..1000 {
        let path = if turn % 2 == 0 { "d/f" } else { "l" };
        match at.read(path) {
            Ok(content) => {
                assert_eq!(String::from_utf8_lossy(&content), "inside\n", "in turn {turn}");
                seen[0] += 1;
            }
            Err(FileReason::LinkRefused) => seen[1] += 1,
            Err(FileReason::NotFound | FileReason::Changed | FileReason::NotADirectory) => seen[2] += 1,
            Err(other) => panic!("{other:?} in turn {turn}"),
        }
    }
    println!("inside, refused, gone: {seen:?}");
    assert!(seen[0] > 20 && seen[1] > 20, "both were seen: {seen:?}");
}

#[test]
fn what_is_not_whole_is_not_there() {
    let at = Workspace::new(None);
    at.write("f", b"before").ok();
    let small = FileRequest { max_bytes: 1000, ..request(WRITE, "f") };
    assert_eq!(at.run(&small, &[&[b'x'; 600], &[b'x'; 401]]).reason(), Some(FileReason::TooBig));
    at.run(&small, &[&[b'x'; 600], &[b'x'; 400]]).ok();
    at.write("f", b"before").ok();
    // Hung up in the middle, or out of turn.
    for nonsense in [false, true] {
        let mut call = at.open(&request(WRITE, "f"));
        call.send(Kind::Stdin, b"half");
        eventually("it is begun", || at.names().iter().any(|name| name.ends_with(".part")).then_some(()));
        if nonsense {
            call.send(Kind::Signal, &[9]);
        }
        drop(call);
        eventually("nothing is left", || (at.names() == ["f"]).then_some(()));
    }
    // Silent beyond its time.
    let late = FileRequest { timeout_ms: 300, ..request(WRITE, "f") };
    let mut call = at.open(&late);
    call.send(Kind::Stdin, b"half");
    let begun = Instant::now();
    assert_eq!(crate::workspace::done(call).reason(), Some(FileReason::DeadlineExceeded));
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert_eq!((at.names(), at.read("f").unwrap()), (vec!["f".to_owned()], b"before".to_vec()));
    let big = FileRequest { max_bytes: 5, ..request(FileOperation::Read, "f") };
    assert_eq!(at.run(&big, &[]).reason(), Some(FileReason::TooBig));
}

#[test]
fn what_the_user_may_not_is_refused() {
    let at = Workspace::new(None);
    at.put("shut/f", b"x");
    fs::set_permissions(at.path.join("shut"), fs::Permissions::from_mode(0o555)).unwrap();
    at.put("secret", b"x");
    fs::set_permissions(at.path.join("secret"), fs::Permissions::from_mode(0o600)).unwrap();
    if fs::metadata(at.path.join("shut")).unwrap().uid() != 0 {
        println!("not as root: nothing was tried");
        return;
    }
    assert_eq!(at.write("shut/g", b"x").reason(), Some(FileReason::Denied));
    assert_eq!(at.read("secret"), Err(FileReason::Denied));
    let done = at.ask(FileOperation::Delete { recursive: true }, "shut");
    let failure = done.result.failure.unwrap();
    assert_eq!((failure.reason, failure.at.as_deref()), (FileReason::Denied, Some("f")));
    assert_eq!(at.refusal(FileOperation::Delete { recursive: true }, ""), FileReason::ReadOnly);
}

#[test]
fn directories_are_listed_and_removed() {
    let at = Workspace::new(Some(
        "mkdir -p d/e; ln -s ../../beside d/e/out; touch d/e/a d/b \"d/$(printf '\\377')\"; touch ready; sleep 1000",
    ));
    eventually("all is there", || fs::metadata(at.path.join("ready")).ok());
    let done = at.ask(FileOperation::List, "d").ok();
    let mut found: Vec<_> = done.files.iter().map(|(entry, _)| (entry.path.as_str(), entry.kind)).collect();
    found.sort_by_key(|(path, _)| *path);
    assert_eq!(found, [("b", FileKind::File), ("e", FileKind::Directory)]);
    assert_eq!((done.result.entries, done.result.skipped, done.result.truncated), (2, 1, false));
    let few = FileRequest { max_entries: 1, ..request(FileOperation::List, "d/e") };
    let done = at.run(&few, &[]).ok();
    assert!(done.result.truncated && done.files.len() == 1);
    let short = FileRequest { max_bytes: 250, ..request(FileOperation::List, "d/e") };
    assert!(at.run(&short, &[]).ok().result.truncated);
    assert_eq!(at.refusal(FileOperation::Delete { recursive: false }, "d"), FileReason::NotEmpty);
    assert_eq!(at.ask(FileOperation::Delete { recursive: true }, "d").ok().result.entries, 6);
    assert_eq!(at.names(), ["ready"]);
    assert!(at.path.parent().unwrap().join("beside/f").exists(), "what a link leads to stays");
    assert_eq!(at.refusal(FileOperation::Delete { recursive: true }, "d"), FileReason::NotFound);
    assert_eq!(at.refusal(FileOperation::List, "ready"), FileReason::NotADirectory);
}

/// File operations have places of their own beside calls, and as many.
#[test]
fn calls_and_files_do_not_keep_each_other_out() {
    let at = Workspace::new(None);
    let mut calls: Vec<_> = (0..8).map(|_| at.sandbox.call(&shell("echo up; sleep 100"))).collect();
    calls.iter_mut().for_each(|call| drop(call.until("up")));
    let open: Vec<_> = (0..8)
        .map(|turn| {
            let mut call =
                at.open(&FileRequest { id: format!("f-{turn}"), ..request(WRITE, &format!("f{turn}")) });
            call.send(Kind::Stdin, b"x");
            call
        })
        .collect();
    eventually("all are begun", || (at.names().len() == 8).then_some(()));
    assert_eq!(at.open(&request(FileOperation::Stat, "")).refusal(), Refusal::Busy);
    drop(open);
    eventually("there is room", || at.names().is_empty().then_some(()));
    at.write("f", b"x").ok();
}
