//! Bounds, signatures and frames.

use super::*;

fn exec() -> Exec {
    Exec {
        id: "a-1".into(),
        command: vec!["sh".into(), "-c".into(), "true".into()],
        env: BTreeMap::new(),
        cwd: None,
        stdin: false,
        terminal: None,
        timeout_ms: 1000,
        max_output_bytes: 1024,
        max_concurrent: None,
        on_hangup: OnHangup::Kill,
        access: None,
    }
}

#[test]
fn what_is_out_of_bounds_is_named_by_its_field() {
    assert_eq!(exec().check(), Ok(()));
    let field = |change: &dyn Fn(&mut Exec)| {
        let mut exec = exec();
        change(&mut exec);
        exec.check().err().map(|bad| bad.field)
    };
    for id in ["", "a b", "a/b", &"a".repeat(65)] {
        assert_eq!(field(&|exec| exec.id = id.into()), Some("id"), "{id:?}");
    }
    for command in [
        vec![],
        vec![String::new()],
        vec!["a\0".into()],
        vec!["a".repeat(MOST_COMMAND_BYTES)],
        vec!["a".into(); 4097],
    ] {
        assert_eq!(field(&|exec| exec.command = command.clone()), Some("command"), "{}", command.len());
    }
    for (name, value) in [("", "x"), ("A=B", "x"), ("A\0", "x"), ("A", "\0")] {
        let change = |exec: &mut Exec| exec.env = [(name.to_owned(), value.to_owned())].into();
        assert_eq!(field(&change), Some("env"), "{name:?}={value:?}");
    }
    for cwd in ["", "relative", "/a/../b", "/a\0", &format!("/{}", "a".repeat(4096))] {
        assert_eq!(field(&|exec| exec.cwd = Some(cwd.into())), Some("cwd"), "{cwd:?}");
    }
    assert_eq!(field(&|exec| exec.timeout_ms = 0), Some("timeoutMs"));
    let writes = |paths: Vec<String>| {
        field(&|exec| exec.access = Some(Access { write: Some(paths.clone()), network: true }))
    };
    assert_eq!(writes(vec!["/workspace".into()]), None);
    assert_eq!(writes(vec!["workspace".into()]), Some("access.write"));
    assert_eq!(writes(vec!["/a".into(); 65]), Some("access.write"));
}

#[test]
fn a_file_operation_leads_nowhere_but_down() {
    let request = |path: &str, mode| FileRequest {
        id: "a-1".into(),
        path: path.into(),
        operation: FileOperation::Write { mode, parents: true, replace: true },
        timeout_ms: 1,
        max_bytes: 1,
        max_entries: 1,
    };
    for path in ["", ".", "a", "a/b", "./a//b/", "...", "a..b", "\u{1}"] {
        assert_eq!(request(path, Some(0o777)).check(), Ok(()), "{path:?}");
    }
    for path in ["/", "/a", "..", "a/..", "../a", "a/../b", "a\0", &"a".repeat(4096)] {
        assert_eq!(request(path, None).check().map_err(|bad| bad.field), Err("path"), "{path:?}");
    }
    assert_eq!(request("a", Some(0o1000)).check().map_err(|bad| bad.field), Err("mode"));
    let entry = FileEntry {
        path: "\u{1}".repeat(4095),
        kind: FileKind::File,
        size: 1,
        mode: 0,
        modified_ms: i64::MIN,
    };
    let longest = serde_json::to_vec(&entry).unwrap().len();
    assert!(header(Kind::Entry, longest).is_ok(), "{longest}");
    let at = Some("\u{1}".repeat(MOST_AT_CHARS));
    let failure = Some(FileFailure { reason: FileReason::DeadlineExceeded, at });
    let result =
        FileResult { failure, bytes: u64::MAX, entries: u64::MAX, skipped: u64::MAX, truncated: true };
    assert!(header(Kind::Result, serde_json::to_vec(&result).unwrap().len()).is_ok());
    let text = serde_json::to_string(&request("a", None)).unwrap();
    assert_eq!(serde_json::from_str::<FileRequest>(&text).unwrap(), request("a", None), "{text}");
}

#[test]
fn what_was_signed_for_one_is_for_no_other() {
    let (one, other) = ([1; NONCE_BYTES], [2; NONCE_BYTES]);
    let all = [
        signed_file("a", &one, b"x"),
        signed("a", &one, b"x"),
        signed("b", &one, b"x"),
        signed("a", &other, b"x"),
        signed("a", &one, b"y"),
    ];
    for (at, left) in all.iter().enumerate() {
        assert!(all.iter().skip(at + 1).all(|right| left != right));
    }
    // The length of the uid is part of it: what follows can't be moved into it.
    let (mut nonce, moved) = ([7; NONCE_BYTES], signed("ab", &[7; NONCE_BYTES], b""));
    nonce[0] = b'b';
    assert_ne!(signed("a", &nonce, b"\x07"), moved);
}

#[test]
fn frames_come_out_as_they_went_in_however_they_are_split() {
    let mut bytes = Vec::new();
    for (kind, payload) in [(Kind::Stdin, &b""[..]), (Kind::Stdout, b"hello"), (Kind::Signal, b"\x0f")] {
        bytes.extend(header(kind, payload.len()).unwrap());
        bytes.extend(payload);
    }
    for size in 1..bytes.len() {
        let mut decoder = Decoder::default();
        let mut frames = Vec::new();
        for piece in bytes.chunks(size) {
            decoder.feed(piece);
            while let Some(frame) = decoder.next().unwrap() {
                frames.push((frame.kind, frame.payload));
            }
        }
        assert!(decoder.is_empty());
        let want = [(Kind::Stdin, vec![]), (Kind::Stdout, b"hello".to_vec()), (Kind::Signal, vec![15])];
        assert_eq!(frames, want, "in pieces of {size}");
    }
}

#[test]
fn what_was_not_taken_can_be_handed_on() {
    let frame = |payload: &[u8]| [&header(Kind::Stdin, payload.len()).unwrap()[..], payload].concat();
    let mut decoder = Decoder::default();
    decoder.feed(&[frame(b"one"), frame(b"two"), vec![17, 0]].concat());
    assert_eq!(decoder.next().unwrap().unwrap().payload, b"one");
    let mut other = Decoder::default();
    other.feed(decoder.left());
    assert_eq!(other.next().unwrap().unwrap().payload, b"two");
    assert_eq!((other.next(), other.left(), other.is_empty()), (Ok(None), &[17, 0][..], false));
    other.feed(&[0, 0, 0]);
    assert_eq!(other.next().unwrap().unwrap().payload, b"");
    assert!(other.is_empty());
}

#[test]
fn what_is_no_frame_is_not_waited_for() {
    for (bytes, error) in [
        (&[0][..], FrameError::UnknownKind),
        (&[200, 0, 0], FrameError::UnknownKind),
        (&[3, 255, 255, 255, 255], FrameError::WrongLength),
        (&[16, 0, 16, 0, 1], FrameError::WrongLength),
        (&[1, 0, 0, 0, 31], FrameError::WrongLength),
        (&[5, 0, 0, 0, 0], FrameError::WrongLength),
    ] {
        let mut decoder = Decoder::default();
        decoder.feed(bytes);
        assert_eq!(decoder.next(), Err(error), "{bytes:?}");
    }
    assert_eq!(header(Kind::Stdout, 0), Err(FrameError::WrongLength));
    assert_eq!(header(Kind::Open, MOST_PAYLOAD + 1), Err(FrameError::WrongLength));
}

#[test]
fn what_is_unknown_is_refused() {
    let text = serde_json::to_string(&exec()).unwrap();
    assert_eq!(serde_json::from_str::<Exec>(&text).unwrap(), exec());
    assert!(serde_json::from_str::<Exec>(&text.replacen('{', "{\"root\":true,", 1)).is_err());
}
