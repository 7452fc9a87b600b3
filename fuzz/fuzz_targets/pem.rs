//! An image's authorities: certificates alone come out, in one form, and nothing of a key beside them.
#![no_main]

use glovebox::pem::{certificates, has_private_key};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let found = certificates(input);
    let text = found.concat();
    assert!(text.len() <= input.len() * 2 && text.is_ascii() && !has_private_key(text.as_bytes()));
    assert_eq!(text.matches("-----BEGIN CERTIFICATE-----\n").count(), found.len());
    // What is written is read as the same.
    assert_eq!(certificates(text.as_bytes()), found);
});
