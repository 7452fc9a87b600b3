//! What a host answers to a request with a secret in it: however it is split, as long as before, and the secret is nowhere in it.
#![no_main]

use glovebox::gateway::broker::{Redactor, Secret};
use libfuzzer_sys::fuzz_target;

fn clean(secret: &Secret, answer: &[u8], size: usize) -> Vec<u8> {
    let mut redactor = Redactor::new([secret]).unwrap();
    let mut out = Vec::new();
    for piece in answer.chunks(size) {
        redactor.push(piece, &mut out);
    }
    redactor.finish(&mut out);
    out
}

fuzz_target!(|input: (Vec<u8>, Vec<u8>, u8)| {
    let (text, answer, size) = input;
    // Few letters, so that the secret is often there in part.
    let text: Vec<u8> = text.iter().take(24).map(|byte| b'a' + byte % 3).collect();
    let Ok(secret) = Secret::new(text.clone()) else { return };
    let answer: Vec<u8> = answer.iter().map(|byte| if *byte < 0xc0 { b'a' + byte % 3 } else { *byte }).collect();
    let whole = clean(&secret, &answer, answer.len().max(1));
    assert_eq!(whole, clean(&secret, &answer, usize::from(size).max(1)));
    assert_eq!(whole.len(), answer.len());
    assert!(!whole.windows(text.len()).any(|window| window == text));
    let same = whole.iter().zip(&answer).all(|(new, old)| new == old || *new == b'*');
    assert!(same);
});
