//! What a workload's supervisor wrote, or the workload in its name: read whole, or refused.
#![no_main]

use glovebox::report::{MAX_LINE_BYTES, encode, parse_exit_record};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &str| {
    match parse_exit_record(input) {
        Ok(record) => {
            assert!(record.exit_code.is_some() != record.signal.is_some());
            assert!(record.spawn_error.is_none() || matches!(record.process_exit_code(), 126 | 127));
            let line = encode(&record).expect("a record is always written");
            assert!(line.len() <= MAX_LINE_BYTES);
            assert_eq!(parse_exit_record(&line), Ok(record));
        }
        Err(error) => assert!(error.to_string().len() < 200),
    }
});
