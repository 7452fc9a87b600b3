//! A path pattern, and in the second line a request's target: what is let through has one reading, which fits.
#![no_main]

use glovebox::{
    api::HttpRule,
    policy::{HttpMatch, PathGlob},
};
use libfuzzer_sys::fuzz_target;

fn below_a() -> HttpMatch {
    let rule = HttpRule { methods: vec!["GET".into()], paths: vec!["/a/**".into()] };
    HttpMatch::compile(&rule).expect("a good rule")
}

/// What the laxest server makes of a path: escapes undone until none is left, parameters cut off, slashes merged, dots
/// resolved.
fn laxest(target: &str) -> Vec<String> {
    let mut path = target.split(['?', '#']).next().unwrap_or_default().replace('\\', "/");
    loop {
        let plain = unescaped(&path).replace('\\', "/");
        if plain == path {
            break;
        }
        path = plain;
    }
    let mut segments = Vec::new();
    for segment in path.split('/') {
        match segment.split(';').next().unwrap_or_default() {
            "" | "." => {}
            ".." => _ = segments.pop(),
            name => segments.push(name.to_owned()),
        }
    }
    segments
}

fn unescaped(path: &str) -> String {
    let bytes = path.as_bytes();
    let (mut out, mut at) = (Vec::new(), 0);
    while let Some(byte) = bytes.get(at) {
        let digits =
            path.get(at + 1..at + 3).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        let escape = digits.filter(|_| *byte == b'%').and_then(|digits| u8::from_str_radix(digits, 16).ok());
        out.push(escape.unwrap_or(*byte));
        at += if escape.is_some() { 3 } else { 1 };
    }
    String::from_utf8_lossy(&out).into_owned()
}

fuzz_target!(|input: &str| {
    let (glob, target) = input.split_once('\n').unwrap_or(("/**", input));
    if below_a().permits("GET", target) {
        assert!(target.bytes().all(|byte| byte.is_ascii_graphic()));
        assert_eq!(laxest(target).first().map(String::as_str), Some("a"), "{target:?}");
    }
    assert!(!below_a().permits("POST", target));
    let Ok(read) = PathGlob::parse(glob) else { return };
    assert_eq!(PathGlob::parse(&read.to_string()), Ok(read));
    let rule = HttpRule { methods: Vec::new(), paths: vec![glob.to_owned()] };
    let http = HttpMatch::compile(&rule).expect("its path is good");
    assert!(!http.permits("CONNECT", target));
    assert!(!(http.permits("GET", target) && http.is_ambiguous(target)));
});
