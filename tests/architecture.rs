//! The rules of the house: who may know whom, how big a room may be.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Most lines of a file.
const MOST_LINES: usize = 400;

/// What a module may not name: (module, words, why).
const FORBIDDEN: &[(&str, &[&str], &str)] = &[
    ("api", IMPURE, "the API is a promise, not a program"),
    ("policy", IMPURE, "what may be is judged on values alone"),
    ("sandbox", IMPURE, "time and the world come in as values"),
    ("report", IMPURE, "reading hostile input does nothing else"),
    ("call", IMPURE, "both ends read the same bytes, and nothing else"),
    ("call", &["crate::"], "sessions and agents share it, and nothing else"),
    ("pem", IMPURE, "text in, text out"),
    ("call", IMPURE, "both ends of a call read the same words, and nothing else"),
    ("call", &["crate::"], "the agent and the session share it, so it asks nobody"),
    ("pem", &["crate::"], "everybody may ask it, so it asks nobody"),
    ("digest", IMPURE, "bytes in, text out"),
    ("digest", &["crate::"], "everybody may ask it, so it asks nobody"),
    (
        "api",
        &[
            "crate::policy",
            "crate::sandbox",
            "crate::controller",
            "crate::agent",
            "crate::telemetry",
            "crate::report",
        ],
        "everything stands on the API, so it stands on nothing",
    ),
    (
        "policy",
        &["crate::sandbox", "crate::controller", "crate::gateway", "crate::agent", "crate::telemetry"],
        "rules know the API alone",
    ),
    (
        "report",
        &[
            "crate::api",
            "crate::policy",
            "crate::sandbox",
            "crate::controller",
            "crate::agent",
            "crate::telemetry",
        ],
        "the agent and the controller share it, and nothing else",
    ),
    (
        "sandbox",
        &["crate::controller", "crate::agent", "crate::telemetry", "crate::testkit"],
        "what pod do I get is answered here alone",
    ),
    (
        "agent",
        &[
            "crate::api",
            "crate::policy",
            "crate::sandbox",
            "crate::controller",
            "crate::telemetry",
            "kube::",
            "k8s_openapi",
            "tokio",
        ],
        "what runs in a sandbox has no authority",
    ),
    (
        "controller",
        &["crate::agent", "crate::testkit", "k8s_openapi::api::core::v1::Secret"],
        "the controller runs nothing and reads no secret",
    ),
    (
        "gateway",
        &[
            "crate::agent",
            "crate::controller",
            "crate::sandbox::plan",
            "crate::sandbox::desired",
            "crate::sandbox::status",
            "crate::testkit",
            "ToSocketAddrs",
            "lookup_host",
        ],
        "the gateway carries what the policy allows, decides nothing of a sandbox, and resolves no name but by its own resolver",
    ),
    (
        "session",
        &[
            "crate::agent",
            "crate::controller",
            "crate::gateway",
            "crate::policy",
            "crate::sandbox::plan",
            "crate::sandbox::desired",
            "crate::testkit",
            "k8s_openapi::api::core::v1::Secret",
            "kube::api::AttachParams",
            "ToSocketAddrs",
            "lookup_host",
        ],
        "the session carries calls: it runs nothing, reads no secret, and goes to no address but a sandbox's own",
    ),
    (
        "cli",
        &[
            "crate::agent",
            "crate::call",
            "crate::controller",
            "crate::gateway",
            "crate::policy",
            "crate::sandbox::plan",
            "crate::sandbox::desired",
            "crate::testkit",
            "k8s_openapi::api::core::v1::Secret",
            "kube::api::AttachParams",
            "println!",
            "eprintln!",
        ],
        "a person gets what the API server and the session give, and what is printed is escaped in one place",
    ),
    ("trust", &["crate::"], "everybody who connects asks it, so it asks nobody"),
    (
        "detect",
        &[
            "crate::agent",
            "crate::audit",
            "crate::cli",
            "crate::controller",
            "crate::gateway",
            "crate::policy",
            "crate::session",
            "crate::testkit",
        ],
        "it counts what it is told, and judges nothing",
    ),
    (
        "audit",
        &[
            "crate::agent",
            "crate::cli",
            "crate::controller",
            "crate::gateway",
            "crate::policy",
            "crate::sandbox",
            "crate::testkit",
        ],
        "everybody says what they did; the trail knows nobody but the API, and the session's door for those who come in",
    ),
    (
        "telemetry",
        &["crate::gateway", "crate::session", "crate::sandbox", "crate::controller", "crate::agent"],
        "counters know no rule",
    ),
];

/// Clocks, tasks, clients, files, sockets, processes, the environment.
const IMPURE: &[&str] = &[
    "tokio",
    "kube::Client",
    "kube::Api",
    "kube::runtime",
    "kube::client",
    "kube::api",
    "futures::",
    "std::time::Instant",
    "SystemTime",
    "Instant::now",
    "Timestamp::now",
    "Zoned::now",
    "std::fs",
    "std::net::Tcp",
    "std::net::Udp",
    "std::net::ToSocketAddrs",
    "std::os",
    "std::process",
    "std::env",
    "std::thread",
    "std::io",
    "println!",
    "eprintln!",
    "tracing::",
    "rand::",
    "nix::",
    "rustix::",
];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Rust files below a directory of the repository, in order, with their text.
fn sources(directory: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    collect(&root().join(directory), &mut found);
    found.sort_unstable();
    assert!(!found.is_empty(), "no source in {directory}");
    found
}

fn collect(path: &Path, found: &mut Vec<(String, String)>) {
    if path.is_file() {
        let name = path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
        found.push((name, fs::read_to_string(path).unwrap()));
        return;
    }
    for entry in fs::read_dir(path).unwrap_or_else(|error| panic!("{}: {error}", path.display())) {
        let entry = entry.unwrap().path();
        if entry.is_dir() || entry.extension().is_some_and(|extension| extension == "rs") {
            collect(&entry, found);
        }
    }
}

/// Files of a module: `src/x.rs` and all below `src/x/`, without tests of its own.
fn module(name: &str) -> Vec<(String, String)> {
    let alone = format!("src/{name}.rs");
    let below = format!("src/{name}/");
    let all = sources("src").into_iter().filter(|(path, _)| *path == alone || path.starts_with(&below));
    let kept: Vec<_> =
        all.filter(|(path, _)| !path.contains("/tests")).map(|(path, text)| (path, code(&text))).collect();
    assert!(!kept.is_empty(), "no module {name}");
    kept
}

/// The text without comments and without its test module, which ends a file.
fn code(text: &str) -> String {
    let text = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let line = |line: &str| if line.trim_start().starts_with("//") { String::new() } else { line.to_owned() };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// Every path that a file names, with braces of `use` written out: `use a::{b, c::{d}}` names `a::b` and `a::c::d`.
fn named(code: &str) -> Vec<String> {
    let mut all: Vec<String> = code.lines().map(ToOwned::to_owned).collect();
    let mut rest = code;
    while let Some(at) = rest.find("use ") {
        rest = &rest[at + 4..];
        let end = rest.find(';').unwrap_or(rest.len());
        let mut paths = Vec::new();
        expand("", &rest[..end].split_whitespace().collect::<Vec<_>>().join(" "), &mut paths);
        all.extend(paths);
    }
    all
}

fn expand(prefix: &str, text: &str, paths: &mut Vec<String>) {
    let (mut depth, mut start) = (0, 0);
    let mut parts = Vec::new();
    for (at, c) in text.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    for part in parts.into_iter().map(str::trim).filter(|part| !part.is_empty()) {
        match part.split_once('{') {
            Some((head, tail)) => {
                expand(&format!("{prefix}{head}"), tail.strip_suffix('}').unwrap_or(tail), paths);
            }
            None => paths.push(format!("{prefix}{}", part.split(" as ").next().unwrap_or(part))),
        }
    }
}

/// The forbidden words of a text, as whole words.
fn forbidden<'a>(code: &str, words: &'a [&'a str]) -> Vec<&'a str> {
    let lines = named(code);
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let holds = |line: &str, word: &str| {
        line.match_indices(word).any(|(at, _)| {
            let before = line[..at].chars().next_back();
            let after = line[at + word.len()..].chars().next();
            !before.is_some_and(is_word) && (!word.ends_with(is_word) || !after.is_some_and(is_word))
        })
    };
    words.iter().copied().filter(|word| lines.iter().any(|line| holds(line, word))).collect()
}

#[test]
fn nobody_knows_whom_they_must_not() {
    let mut wrong = Vec::new();
    for (name, words, why) in FORBIDDEN {
        for (path, code) in module(name) {
            wrong.extend(
                forbidden(&code, words).into_iter().map(|word| format!("{path} names {word}: {why}")),
            );
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

/// The check sees what it should, however it is written.
#[test]
fn a_forbidden_edge_is_seen() {
    let edges = |text: &str| forbidden(&code(text), IMPURE).len();
    for text in [
        "use tokio::time;",
        "use std::{collections::BTreeMap, time::Instant as _};",
        "use std::{fs, fmt};",
        "use std::{\n    fmt,\n    time::{Duration, Instant},\n};",
        "use kube::{Api, Resource};",
        "let now = jiff::Timestamp::now();",
        "std::time::SystemTime::now()",
        "use kube::{core::Status, runtime::{watcher}};",
        "std::fs::read(path)",
    ] {
        assert!(edges(text) > 0, "{text}");
    }
    for text in [
        "// tokio is far away",
        "use std::time::Duration;",
        "let tokio_like = 1;",
        "use kube::{Resource, core::Selector};",
        "use std::net::IpAddr;",
    ] {
        assert_eq!(edges(text), 0, "{text}");
    }
}

/// Files of ours, tests and tools included.
fn all() -> Vec<(String, String)> {
    ["src", "tests", "xtask/src", "e2e", "benches", "fuzz/fuzz_targets"]
        .into_iter()
        .filter(|directory| root().join(directory).exists())
        .flat_map(sources)
        .collect()
}

#[test]
fn no_room_is_too_big() {
    let big: Vec<_> = all()
        .into_iter()
        .map(|(path, text)| (text.lines().count(), path))
        .filter(|(lines, _)| *lines > MOST_LINES)
        .collect();
    assert_eq!(big, Vec::<(usize, String)>::new(), "split them");
}

#[test]
fn every_room_says_what_it_is_for() {
    let silent: Vec<_> =
        all().into_iter().filter(|(_, text)| !text.starts_with("//! ")).map(|(path, _)| path).collect();
    assert_eq!(silent, Vec::<String>::new(), "begin them with //!");
}

#[test]
fn nothing_is_unsafe() {
    let word = concat!("un", "safe");
    for (path, text) in all() {
        let code = code(&text);
        let begins = |rest: &str| {
            ["{", "fn ", "impl ", "extern ", "trait "].iter().any(|next| rest.trim_start().starts_with(next))
        };
        assert!(!code.match_indices(word).any(|(at, _)| begins(&code[at + word.len()..])), "{path}");
    }
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    assert!(manifest.contains("unsafe_code = \"forbid\""), "the compiler must refuse it too");
}

/// A list that is not looked at protects nothing: every module is in the table of edges, but for the test kit.
#[test]
fn every_module_has_its_edges() {
    let text = fs::read_to_string(root().join("src/lib.rs")).unwrap();
    let modules = text.lines().filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';'));
    for name in modules.filter(|name| *name != "testkit") {
        assert!(FORBIDDEN.iter().any(|(known, ..)| *known == name), "say what {name} must not know");
    }
}
