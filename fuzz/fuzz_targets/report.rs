//! What a sandbox's init container wrote, or somebody in its name: read whole, or refused.
#![no_main]

use glovebox::report::{MAX_INPUT_BYTES, MAX_LINE_BYTES, MAX_TEXT_CHARS, encode, parse_report};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &str| {
    match parse_report(input) {
        Ok(report) => {
            assert!(input.len() <= MAX_INPUT_BYTES);
            assert!(report.kernel.len() <= MAX_TEXT_CHARS && !report.kernel.contains(char::is_control));
            let line = encode(&report).expect("a report is always written");
            assert!(line.len() <= MAX_LINE_BYTES);
            assert_eq!(parse_report(&line), Ok(report));
        }
        // An error carries positions and names of ours, so it is short whatever came in.
        Err(error) => assert!(error.to_string().len() < 200),
    }
});
