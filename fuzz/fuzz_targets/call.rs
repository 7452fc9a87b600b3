//! A session's bytes, in two pieces that the first byte divides: frames come out alike however they are split, and none that its
//! kind can't be. What an opening frame asks is read whole and within its bounds, or refused without a word of it repeated.
#![no_main]

use glovebox::call::{
    CallResult, Decoder, Exec, FileEntry, FileRequest, FileResult, Frame, FrameError, HEADER_BYTES, Kind,
    MOST_PAYLOAD, Refusal, SIGNATURE_BYTES, header, is_below,
};
use libfuzzer_sys::fuzz_target;

/// All frames of what was fed so far.
fn frames(decoder: &mut Decoder, found: &mut Vec<Frame>) -> Result<(), FrameError> {
    while let Some(frame) = decoder.next()? {
        found.push(frame);
    }
    Ok(())
}

fn whole(input: &[u8]) -> (Vec<Frame>, Result<(), FrameError>, Vec<u8>) {
    let (mut decoder, mut found) = (Decoder::default(), Vec::new());
    decoder.feed(input);
    let end = frames(&mut decoder, &mut found);
    (found, end, decoder.left().to_vec())
}

fn split(input: &[u8], at: usize) -> (Vec<Frame>, Result<(), FrameError>, Vec<u8>) {
    let (mut decoder, mut found) = (Decoder::default(), Vec::new());
    let (head, tail) = input.split_at(at);
    decoder.feed(head);
    let mut end = frames(&mut decoder, &mut found);
    if end.is_ok() {
        decoder.feed(tail);
        end = frames(&mut decoder, &mut found);
    }
    (found, end, decoder.left().to_vec())
}

fn request(bytes: &[u8]) {
    let Ok(exec) = serde_json::from_slice::<Exec>(bytes) else { return };
    match exec.check() {
        Ok(()) => {
            assert!(!exec.command.is_empty() && !exec.command.iter().any(|word| word.contains('\0')));
            assert!(exec.timeout_ms > 0);
            assert!(exec.cwd.as_ref().is_none_or(|cwd| cwd.starts_with('/')));
            let again = serde_json::to_vec(&exec).expect("a request is always written");
            assert_eq!(serde_json::from_slice::<Exec>(&again).expect("and read again"), exec);
        }
        Err(error) => assert!(error.to_string().len() < 200),
    }
}

fn file_request(bytes: &[u8]) {
    let Ok(file) = serde_json::from_slice::<FileRequest>(bytes) else { return };
    if file.check().is_ok() {
        assert!(is_below(&file.path) && file.timeout_ms > 0);
        assert!(!file.path.contains('\0') && file.path.split('/').all(|part| part != ".."));
        let again = serde_json::to_vec(&file).expect("a request is always written");
        assert_eq!(serde_json::from_slice::<FileRequest>(&again).expect("and read again"), file);
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((at, bytes)) = input.split_first() else { return };
    let (found, end, left) = whole(bytes);
    let (again, other_end, other_left) = split(bytes, usize::from(*at).min(bytes.len()));
    assert_eq!((&found, end.is_ok()), (&again, other_end.is_ok()));
    if end.is_ok() {
        assert_eq!(left, other_left);
        assert!(left.len() < HEADER_BYTES + MOST_PAYLOAD);
    }
    for frame in &found {
        header(frame.kind, frame.payload.len()).expect("what was read can be written");
        match frame.kind {
            Kind::Open => request(frame.payload.get(SIGNATURE_BYTES..).expect("a signature")),
            Kind::OpenFile => file_request(frame.payload.get(SIGNATURE_BYTES..).expect("a signature")),
            // The other way: what an agent says, which a session reads.
            Kind::Result => {
                drop(serde_json::from_slice::<CallResult>(&frame.payload));
                drop(serde_json::from_slice::<FileResult>(&frame.payload));
            }
            Kind::Entry => drop(serde_json::from_slice::<FileEntry>(&frame.payload)),
            Kind::Refused => drop(serde_json::from_slice::<Refusal>(&frame.payload)),
            _ => {}
        }
    }
});
