//! Durations: what is read prints as something that reads the same.
#![no_main]

use glovebox::api::Span;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &str| {
    if let Ok(span) = input.parse::<Span>() {
        assert!(span.seconds_ceil() >= 0);
        // Nine digits a part are read; a sum of many parts may need more.
        if span.duration().as_secs() < 999_999_999 * 3600 {
            assert_eq!(span.to_string().parse::<Span>(), Ok(span), "{span}");
        }
    }
});
