//! A chunked body: the same whole and in pieces, and what is written reads back as itself.
#![no_main]

use glovebox::gateway::framing::{Body, Framing, Malformed};
use libfuzzer_sys::fuzz_target;

fn read(input: &[u8], size: usize) -> Result<(Vec<u8>, usize, bool), Malformed> {
    let (mut body, mut out, mut taken) = (Body::new(Framing::Chunked), Vec::new(), 0);
    for piece in input.chunks(size) {
        taken += body.feed(piece, &mut out)?;
    }
    Ok((out, taken, body.is_done()))
}

fuzz_target!(|input: &[u8]| {
    let whole = read(input, input.len().max(1));
    assert_eq!(whole, read(input, 1));
    if let Ok((out, taken, true)) = whole {
        assert!(taken <= input.len());
        assert_eq!(read(&out, 3), Ok((out.clone(), out.len(), true)));
    }
});
