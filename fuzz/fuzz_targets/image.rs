//! An image's name and a class's patterns, one a line: one canonical form, and no pattern that allows by accident.
#![no_main]

use glovebox::policy::{ImageRef, image_allowed};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &str| {
    let mut lines = input.lines();
    let image = lines.next().unwrap_or_default();
    let patterns: Vec<String> = lines.map(ToOwned::to_owned).collect();
    let Ok(parsed) = ImageRef::parse(image) else { return };
    assert!(parsed.repository.contains('/') && parsed.repository.bytes().all(|byte| byte.is_ascii_graphic()));
    // What was judged is what is pulled: the canonical form is its own.
    let again = ImageRef::parse(&parsed.repository).expect("the canonical form is a name");
    assert_eq!(again.repository, parsed.repository);
    assert!(image_allowed(&parsed, std::slice::from_ref(&parsed.repository)));
    if image_allowed(&parsed, &patterns) {
        // Somebody else's registry is never meant: the pattern names the image's own, or Docker Hub by silence.
        let host = parsed.repository.split('/').next().expect("a registry");
        let names = |pattern: &String| pattern.to_ascii_lowercase().starts_with(host) || host == "docker.io";
        assert!(patterns.iter().any(names), "{patterns:?} allow {parsed:?}");
    }
});
