//! Patterns: by table, and against a comparison label by label.

use proptest::prelude::*;

use super::host;
use crate::policy::{Host, Pattern, Shared, pattern::PatternMap};

fn pattern(text: &str) -> Pattern {
    Pattern::parse(text, Shared::Refused).unwrap_or_else(|why| panic!("{why}"))
}

#[test]
fn labels_are_compared_whole() {
    for (text, yes, no) in [
        (
            "github.com",
            vec!["github.com"],
            vec!["a.github.com", "notgithub.com", "github.com.evil.com", "com"],
        ),
        (
            "*.example.com",
            vec!["a.example.com", "xn--a.example.com"],
            vec!["example.com", "a.b.example.com", "evilexample.com", "a.example.com.evil.com"],
        ),
        (
            "**.example.com",
            vec!["a.example.com", "a.b.example.com", "a.b.c.d.example.com"],
            vec!["example.com", "evilexample.com", "a.evilexample.com", "com"],
        ),
    ] {
        let pattern = pattern(text);
        assert_eq!(pattern.to_string(), text);
        yes.iter().for_each(|name| assert!(pattern.matches(&host(name)), "{text} {name}"));
        no.iter().for_each(|name| assert!(!pattern.matches(&host(name)), "{text} {name}"));
    }
}

#[test]
fn what_is_written_becomes_what_is_sent() {
    for (text, want) in [
        ("API.Example.com.", "api.example.com"),
        ("*.B\u{fc}cher.example", "*.xn--bcher-kva.example"),
        ("b\u{fc}cher.example", "xn--bcher-kva.example"),
        ("\u{ff21}\u{ff22}.example", "ab.example"),
        ("\u{4f8b}\u{3048}\u{3002}jp.example", "xn--r8jz45g.jp.example"),
    ] {
        assert_eq!(pattern(text).to_string(), want);
    }
}

#[test]
fn refuses_and_says_what_would_be_right() {
    for (text, word) in [
        ("*", "not the whole leftmost label"),
        ("**", "not the whole leftmost label"),
        ("*.com", "at least two labels after the wildcard"),
        ("**.com", "at least two labels after the wildcard"),
        ("*.", "host is empty"),
        ("", "host is empty"),
        ("a*.example.com", "not the whole leftmost label"),
        ("***.example.com", "not the whole leftmost label"),
        ("a.*.example.com", "not the whole leftmost label"),
        ("*.*.example.com", "not the whole leftmost label"),
        ("localhost", "one label"),
        ("127.0.0.1", "number"),
        ("0x7f.1", "number"),
        ("example.com:443", "0x3a"),
        ("https://example.com", "0x3a"),
        ("example.com/path", "0x2f"),
        ("a..example.com", "empty label"),
        ("-a.example.com", "starts or ends with '-'"),
        ("a b\u{fc}.example", "internationalized"),
        ("\u{fc}\0.example", "internationalized"),
        ("xn--\u{fc}.example", "internationalized"),
    ] {
        let why = Pattern::parse(text, Shared::Meant).unwrap_err();
        assert!(why.contains(word), "{text:?}: {why}");
        assert!(why.contains("example.com"), "{text:?}: {why} says nothing of what would be right");
    }
}

#[test]
fn a_shared_suffix_must_be_meant() {
    for (text, suffix) in [
        ("*.github.io", "github.io"),
        ("**.github.io", "github.io"),
        ("*.githubusercontent.com", "githubusercontent.com"),
        ("*.s3.amazonaws.com", "s3.amazonaws.com"),
        ("**.amazonaws.com", "amazonaws.com"),
        ("**.compute.amazonaws.com", "*.compute.amazonaws.com"),
        ("*.workers.dev", "workers.dev"),
        ("**.co.uk", "co.uk"),
        ("**.blob.core.windows.net", "blob.core.windows.net"),
        ("**.core.windows.net", "core.windows.net"),
    ] {
        let why = Pattern::parse(text, Shared::Refused).unwrap_err();
        assert!(why.contains("acknowledgeSharedSuffix: true") && why.contains(suffix), "{text}: {why}");
        assert!(Pattern::parse(text, Shared::Meant).is_ok(), "{text}");
    }
    for text in ["me.github.io", "*.me.github.io", "github.io", "*.example.com", "**.example.co.uk"] {
        pattern(text);
    }
}

/// The specification: labels, one by one.
fn naive(pattern: &str, host: &str) -> bool {
    let (pattern, host): (Vec<_>, Vec<_>) = (pattern.split('.').collect(), host.split('.').collect());
    match pattern[0] {
        "*" => host.len() == pattern.len() && host[1..] == pattern[1..],
        "**" => host.len() >= pattern.len() && host[host.len() + 1 - pattern.len()..] == pattern[1..],
        _ => host == pattern,
    }
}

/// Every pattern of two or three labels from two letters.
fn every_pattern() -> Vec<String> {
    let names = hosts().into_iter().map(|host| host.to_string()).filter(|name| matches!(name.len(), 3 | 5));
    names.flat_map(|name| [name.clone(), format!("*.{name}"), format!("**.{name}")]).collect()
}

fn hosts() -> Vec<Host> {
    let mut names = vec![vec![String::from("a"), String::from("b")]];
    for _ in 1..6 {
        let longer =
            names.last().unwrap().iter().flat_map(|name| ["a", "b"].map(|label| format!("{label}.{name}")));
        names.push(longer.collect());
    }
    names.concat().iter().map(|name| host(name)).collect()
}

#[test]
fn matches_as_specified() {
    let (patterns, hosts) = (every_pattern(), hosts());
    assert_eq!(patterns.len(), 36);
    for text in patterns {
        let pattern = pattern(&text);
        for host in &hosts {
            assert_eq!(pattern.matches(host), naive(&text, host.as_str()), "{text} {host}");
        }
    }
}

/// One pattern covers another if and only if no host tells them apart.
#[test]
fn covers_as_specified() {
    let hosts = hosts();
    for a in every_pattern() {
        for b in every_pattern() {
            let witness = hosts.iter().find(|host| naive(&b, host.as_str()) && !naive(&a, host.as_str()));
            assert_eq!(pattern(&a).covers(&pattern(&b)), witness.is_none(), "{a} {b} {witness:?}");
        }
    }
}

proptest! {
    /// The map finds what a scan finds, the most specific first.
    #[test]
    fn looks_up_what_a_scan_finds(texts in proptest::collection::vec(proptest::sample::select(every_pattern()), 0..12)) {
        let mut map = PatternMap::default();
        texts.iter().for_each(|text| map.add(&pattern(text), text.clone()));
        for host in hosts() {
            let found: Vec<_> = map.matching(&host).flatten().cloned().collect();
            let mut want: Vec<_> = texts.iter().filter(|text| naive(text, host.as_str())).cloned().collect();
            want.sort_by_key(|text| match text.split('.').next().unwrap() {
                "**" => 100 - text.len(),
                "*" => 1,
                _ => 0,
            });
            want.dedup();
            prop_assert_eq!(found, want);
        }
    }

    #[test]
    fn prints_what_it_reads(text in "\\PC{0,40}") {
        if let Ok(pattern) = Pattern::parse(&text, Shared::Meant) {
            let printed = pattern.to_string();
            prop_assert!(printed.is_ascii());
            prop_assert_eq!(Pattern::parse(&printed, Shared::Meant), Ok(pattern));
        }
    }
}
