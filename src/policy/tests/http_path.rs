//! Methods and paths: what is let through has one reading, and that reading fits.

use proptest::prelude::*;

use crate::{
    api::HttpRule,
    policy::{HttpMatch, PathGlob},
};

fn http(methods: &[&str], paths: &[&str]) -> HttpMatch {
    let texts = |texts: &[&str]| texts.iter().map(ToString::to_string).collect();
    HttpMatch::compile(&HttpRule { methods: texts(methods), paths: texts(paths) })
        .unwrap_or_else(|why| panic!("{why}"))
}

#[test]
fn methods_are_exact() {
    let read = http(&["GET", "HEAD"], &[]);
    assert!(read.permits("GET", "/x") && read.permits("HEAD", "//../"));
    for method in ["get", "POST", "GET ", "", "CONNECT"] {
        assert!(!read.permits(method, "/x"), "{method:?}");
    }
    assert!(!http(&[], &["/**"]).permits("CONNECT", "/x"));
}

#[test]
fn segments_are_compared_whole() {
    for (glob, yes, no) in [
        ("/", vec!["/", "/?q=/../"], vec!["/a", "", "*"]),
        ("/**", vec!["/", "/a", "/a/b/", "/a?b"], vec!["", "*", "a", "//", "/a//b"]),
        (
            "/repos/org",
            vec!["/repos/org", "/%72epos/org", "/repos/org?x"],
            vec!["/repos/org/", "/repos/orgs", "/Repos/org"],
        ),
        (
            "/repos/org/**",
            vec!["/repos/org/", "/repos/org/a", "/repos/org/a/b/"],
            vec!["/repos/org", "/repos/orgs/a", "/x/repos/org/a"],
        ),
        (
            "/repos/*/issues",
            vec!["/repos/a/issues", "/repos/%2A/issues"],
            vec!["/repos//issues", "/repos/a/b/issues", "/repos/issues"],
        ),
        ("/a%20b", vec!["/a%20b"], vec!["/a b", "/a+b", "/a%2520b"]),
    ] {
        let http = http(&[], &[glob]);
        yes.iter().for_each(|path| assert!(http.permits("GET", path), "{glob} {path}"));
        no.iter().for_each(|path| assert!(!http.permits("GET", path), "{glob} {path}"));
    }
}

#[test]
fn ambiguous_paths_are_refused() {
    let all = http(&[], &["/**"]);
    for path in [
        "/a/../b",
        "/a/./b",
        "/..",
        "/.",
        "/%2e%2e/b",
        "/%2E./b",
        "/.%2e/b",
        "/a/..;/b",
        "/a/%2e%2e;x/b",
        "/a/..?x",
        "//a",
        "/a//b",
        "/a%2fb",
        "/a%2Fb",
        "/a%5cb",
        "/a\\b",
        "/a%00",
        "/a%0d%0a",
        "/a%",
        "/a%2",
        "/a%zz",
        "/a%252e",
        "/a#b",
        "/a b",
        "/a\tb",
        "/\u{fc}",
        "/a%3fb",
        "/a%23b",
        "/a%3bb",
        "a",
        "http://x/",
        "",
        "/a?b c",
        "/a?\n",
    ] {
        assert!(!all.permits("GET", path), "{path:?}");
        assert!(all.is_ambiguous(path), "{path:?}");
    }
    assert!(!http(&["GET"], &[]).is_ambiguous("/a//b"));
}

#[test]
fn refuses_and_says_what_would_be_right() {
    for text in
        ["", "repos", "/a//b", "/a/../b", "/a?x=1", "/v*/a", "/**/a", "/a/***", "/a**", "/a%2fb", "/a b"]
    {
        let why = PathGlob::parse(text).unwrap_err();
        assert!(why.contains("http.paths") && why.contains("/repos/org/**"), "{text:?}: {why}");
    }
    for methods in [vec!["get"], vec!["CONNECT"], vec![""], vec!["GET POST"], vec![]] {
        let rule = HttpRule { methods: methods.iter().map(ToString::to_string).collect(), paths: Vec::new() };
        assert!(HttpMatch::compile(&rule).unwrap_err().contains("http"), "{methods:?}");
    }
}

/// What the laxest server makes of a path: escapes undone until none is left, parameters cut off, slashes merged, dots
/// resolved.
fn laxest(target: &str) -> Vec<String> {
    let mut path = target.split(['?', '#']).next().unwrap().replace('\\', "/");
    loop {
        let plain = unescaped(&path).replace('\\', "/");
        if plain == path {
            break;
        }
        path = plain;
    }
    let mut segments: Vec<String> = Vec::new();
    for segment in path.split('/') {
        match segment.split(';').next().unwrap() {
            "" | "." => {}
            ".." => _ = segments.pop(),
            name => segments.push(name.to_owned()),
        }
    }
    segments
}

fn unescaped(path: &str) -> String {
    let bytes = path.as_bytes();
    let mut out = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let escape = path
            .get(at + 1..at + 3)
            .filter(|_| bytes[at] == b'%')
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        out.push(escape.unwrap_or(bytes[at]));
        at += if escape.is_some() { 3 } else { 1 };
    }
    String::from_utf8_lossy(&out).into_owned()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4096, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever is let through below `/a` is below `/a` for the laxest server too.
    #[test]
    fn no_server_reads_another_path(path in "/a/([ab./;\\\\?#]|%2e|%2E|%2f|%5c|%61|%25|%252e|\\.\\.){0,8}") {
        if http(&[], &["/a/**"]).permits("GET", &path) {
            prop_assert_eq!(laxest(&path).first().cloned(), Some("a".to_owned()), "{}", path);
        }
        if http(&[], &["/a/b"]).permits("GET", &path) {
            prop_assert_eq!(laxest(&path), ["a", "b"], "{}", path);
        }
    }

    #[test]
    fn never_panics(glob in "\\PC{0,30}", path in "\\PC{0,30}") {
        if let Ok(glob) = PathGlob::parse(&glob) {
            let text = glob.to_string();
            prop_assert_eq!(PathGlob::parse(&text), Ok(glob));
            let _ = http(&[], &[&text]).permits("GET", &path);
        }
    }
}
