//! A TLS hello, whole and in pieces: the same name, or none.
#![no_main]

use glovebox::gateway::hello::{MOST_BYTES, Peek};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let mut whole = Peek::default();
    let came = whole.feed(input);
    let mut pieces = Peek::default();
    let size = usize::from(input.first().copied().unwrap_or(1)).max(1);
    // What follows a hello may break TLS only where it is looked at: pieces may see a hello where the whole is broken.
    let piecewise = input.chunks(size).map(|piece| pieces.feed(piece)).find(|came| *came != Ok(false));
    assert!(pieces.buffered() <= MOST_BYTES + size);
    let (whole, pieces) = (whole.into_hello(), pieces.into_hello());
    assert!(whole.bytes == input && input.starts_with(&pieces.bytes));
    assert!(came == Ok(true) || whole.server_name.is_none());
    if came == Ok(true) && piecewise == Some(Ok(true)) {
        assert_eq!(whole.server_name, pieces.server_name);
    }
    if let Some(name) = whole.server_name {
        assert!(!name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic()));
    }
});
