//! Bodies right and wrong, and any bytes at all.

use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

const BOUNDS: Bounds = Bounds {
    default_timeout: Duration::from_secs(30),
    max_timeout: Duration::from_secs(600),
    default_output: 1 << 20,
    max_output: 64 << 20,
    max_concurrent: 8,
};

fn read_text(text: &str) -> Result<Wanted, Problem> {
    read(text.as_bytes(), "id-1".into(), &BOUNDS, Way::Answered)
}

fn read_value(value: &Value) -> Result<Wanted, Problem> {
    read_text(&value.to_string())
}

#[test]
fn what_is_absent_has_its_default() {
    let wanted = read_value(&json!({"command": ["true"]})).unwrap();
    let exec = &wanted.exec;
    assert_eq!((exec.timeout_ms, exec.max_output_bytes, exec.stdin), (30_000, 1 << 20, false));
    assert_eq!((exec.id.as_str(), &exec.access, wanted.stream), ("id-1", &None, false));
    assert_eq!(serde_json::from_slice::<Exec>(&wanted.request).unwrap(), *exec);
}

#[test]
fn what_is_asked_comes_through() {
    let wanted = read_value(&json!({
        "command": ["sh", "-c", "cat"], "env": {"A": "1"}, "cwd": "/workspace", "stdinBase64": "AP8=", "timeout": "1m30s",
        "maxOutputBytes": "2Mi", "access": {"write": [], "network": false}, "onHangup": "Keep", "stream": true,
    }))
    .unwrap();
    let exec = wanted.exec;
    assert_eq!((exec.timeout_ms, exec.max_output_bytes, exec.stdin), (90_000, 2 << 20, true));
    assert_eq!((&wanted.stdin[..], wanted.stream), (&[0, 255][..], true));
    let access = exec.access.unwrap();
    assert_eq!((access.write, access.network), (Some(vec![]), false));
    assert_eq!(exec.on_hangup, crate::call::OnHangup::Keep);
    // Input that is there and empty is still input: an end, said by us.
    assert!(read_value(&json!({"command": ["a"], "stdin": ""})).unwrap().exec.stdin);
}

#[test]
fn what_is_wrong_is_named() {
    let field = |value: Value| read_value(&value).unwrap_err().field.map(std::borrow::Cow::into_owned);
    for (value, wanted) in [
        (json!({"command": []}), "command"),
        (json!({"command": ["a\u{0}"]}), "command"),
        (json!({"command": ["a"], "env": {"A=B": ""}}), "env"),
        (json!({"command": ["a"], "cwd": "../x"}), "cwd"),
        (json!({"command": ["a"], "timeout": "0s"}), "timeout"),
        (json!({"command": ["a"], "maxOutputBytes": "1Ti"}), "maxOutputBytes"),
        (json!({"command": ["a"], "stdin": "a", "stdinBase64": "YQ=="}), "stdinBase64"),
        (json!({"command": ["a"], "stdinBase64": "!"}), "stdinBase64"),
        (json!({"command": ["a"], "access": {"write": ["x"]}}), "access.write"),
        // Within the bounds of words and of variables, but six bytes a byte once they are escaped.
        (json!({"command": ["\u{1}".repeat(100_000)], "env": {"A": "\u{1}".repeat(100_000)}}), "command"),
    ] {
        assert_eq!(field(value.clone()).as_deref(), Some(wanted), "{:.80}", value.to_string());
    }
    for text in [
        "",
        "null",
        "[]",
        "{\"command\": \"true\"}",
        "{\"command\": [\"a\"], \"root\": true}",
        "{\"command\": [\"a\"], \"access\": {\"root\": true}}",
        "{\"command\": [\"a\"], \"command\": [\"b\"]}",
        "{\"command\": [\"a\"]} x",
        "{\"command\": [\"a\"], \"timeout\": 30}",
        "{\"command\": [\"a\"], \"onHangup\": \"Ask\"}",
        &"[".repeat(100_000),
    ] {
        let problem = read_text(text).unwrap_err();
        assert_eq!(problem.reason, Reason::InvalidRequest, "{text:.80}");
        assert!(problem.message.contains("/openapi.json"), "{problem:?}");
    }
    assert!(read(b"{\"command\": [\"\xff\"]}", "id".into(), &BOUNDS, Way::Answered).is_err());
}

#[test]
fn names_are_names() {
    for text in ["a", "team-a", "review.42", &"a".repeat(63)] {
        assert_eq!(name("name", text), Ok(()));
    }
    for text in ["", "-a", "a-", ".", "..", "A", "a/b", "a b", "ä", "a%2fb", &"a".repeat(64)] {
        assert!(name("name", text).is_err(), "{text}");
    }
    assert!(idempotency_key(b"0b6e-4").is_ok());
    for bytes in [&b""[..], b"a b", b"\xff", &[b'a'; 256]] {
        assert!(idempotency_key(bytes).is_err());
    }
}

/// Values as a client might write them, right or wrong.
fn field() -> impl Strategy<Value = (String, Value)> {
    let text = prop_oneof![
        Just(String::new()),
        Just("30s".to_owned()),
        Just("/a".to_owned()),
        Just("YWJj".to_owned()),
        Just("Keep".to_owned()),
        "\\PC{0,20}",
        "[\\x00-\\x7f]{0,20}",
    ];
    let value = prop_oneof![
        text.clone().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
        Just(Value::Null),
        prop::collection::vec(text.clone(), 0..5).prop_map(Value::from),
        prop::collection::btree_map(text.clone(), text, 0..4).prop_map(|map| json!(map)),
        Just(json!({"write": ["/workspace"], "network": false})),
    ];
    let names = [
        "command",
        "env",
        "cwd",
        "stdin",
        "stdinBase64",
        "timeout",
        "maxOutputBytes",
        "access",
        "onHangup",
        "stream",
        "terminal",
    ];
    (prop::sample::select(names.to_vec()).prop_map(str::to_owned), value)
}

proptest! {
    #[test]
    fn bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = read(&bytes, "id".into(), &BOUNDS, Way::Answered);
    }

    #[test]
    fn what_is_taken_is_within_bounds(
        fields in prop::collection::vec(field(), 0..8), words in prop::collection::vec("[a-z]{1,5}", 1..3), cut in any::<prop::sample::Index>()
    ) {
        let mut value = json!({"command": words});
        for (name, field) in fields {
            value[name] = field;
        }
        match read_value(&value) {
            Ok(wanted) => {
                prop_assert_eq!(wanted.exec.check(), Ok(()));
                prop_assert!(wanted.exec.timeout_ms <= 600_000 && wanted.exec.max_output_bytes <= 64 << 20);
                prop_assert!(wanted.exec.stdin || wanted.stdin.is_empty());
                // However it is written, it is the same request.
                let again = read(&wanted.canonical, "other".into(), &BOUNDS, Way::Answered).unwrap();
                prop_assert_eq!(again.canonical, wanted.canonical);
            }
            Err(problem) => prop_assert_eq!(problem.reason, Reason::InvalidRequest),
        }
        let text = value.to_string();
        let cut = cut.index(text.len());
        prop_assert!(read(&text.as_bytes()[..cut], "id".into(), &BOUNDS, Way::Answered).is_err());
    }
}
