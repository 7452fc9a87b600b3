//! Host patterns, and a host in the last line: compared label by label, and covered as matched.
#![no_main]

use glovebox::policy::{Host, Pattern, Shared, Width};
use libfuzzer_sys::fuzz_target;

/// The specification: labels, one by one.
fn naive(pattern: &str, host: &str) -> bool {
    let (pattern, host): (Vec<_>, Vec<_>) = (pattern.split('.').collect(), host.split('.').collect());
    match pattern[0] {
        "*" => host.len() == pattern.len() && host[1..] == pattern[1..],
        "**" => host.len() >= pattern.len() && host.ends_with(&pattern[1..]),
        _ => host == pattern,
    }
}

fuzz_target!(|input: &str| {
    let (patterns, host) = input.rsplit_once('\n').unwrap_or((input, ""));
    let host = Host::parse(host.as_bytes());
    let mut read = Vec::new();
    for text in patterns.split('\n') {
        match Pattern::parse(text, Shared::Meant) {
            Ok(pattern) => {
                let printed = pattern.to_string();
                assert!(printed.is_ascii() && pattern.name().as_str().contains('.'));
                assert_eq!(Pattern::parse(&printed, Shared::Meant).as_ref(), Ok(&pattern));
                assert!(pattern.covers(&pattern));
                // Nobody's whole country is granted by silence.
                if pattern.width() != Width::Exact
                    && psl::suffix_str(pattern.name().as_str()) == Some(pattern.name().as_str())
                {
                    assert!(Pattern::parse(text, Shared::Refused).is_err(), "{text:?}");
                }
                read.push(pattern);
            }
            Err(why) => assert!(!why.is_empty()),
        }
    }
    let Ok(host) = host else { return };
    for pattern in &read {
        assert_eq!(pattern.matches(&host), naive(&pattern.to_string(), host.as_str()), "{pattern} {host}");
        for other in &read {
            assert!(
                !(pattern.covers(other) && other.matches(&host)) || pattern.matches(&host),
                "{pattern} {other} {host}"
            );
        }
    }
});
