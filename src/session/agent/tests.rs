//! Agents over a pipe, honest and not; time is paused.

use std::time::Duration;

use ed25519_dalek::{SigningKey, pkcs8::EncodePrivateKey as _};
use proptest::prelude::*;
use serde_json::{Value, json};
use tokio::{
    io::{DuplexStream, duplex},
    time::Instant,
};

use super::*;
use crate::{
    call::{Access, OnHangup},
    session::{input::Whole, output::Collected},
};

const MOST: u64 = 100;

fn exec() -> Exec {
    Exec {
        id: "a".into(),
        command: vec!["true".into()],
        env: [].into(),
        cwd: None,
        stdin: false,
        terminal: None,
        timeout_ms: 1000,
        max_output_bytes: MOST,
        max_concurrent: None,
        on_hangup: OnHangup::Kill,
        access: None,
    }
}

fn key() -> Key {
    let pem = SigningKey::from_bytes(&[1; 32]).to_pkcs8_pem(Default::default()).unwrap();
    Key::from_pem(&pem).unwrap()
}

fn bytes(kind: Kind, payload: &[u8]) -> Vec<u8> {
    [&header(kind, payload.len()).unwrap()[..], payload].concat()
}

fn nonce() -> Vec<u8> {
    bytes(Kind::Nonce, &[7; NONCE_BYTES])
}

fn value(kind: Kind, value: &Value) -> Vec<u8> {
    bytes(kind, value.to_string().as_bytes())
}

fn good() -> Value {
    json!({"outcome": "Exited", "exitCode": 0, "stdoutBytes": 0, "stderrBytes": 0, "truncated": false, "durationMs": 1})
}

fn ended(but: &Value) -> Vec<u8> {
    let mut result = good();
    for (name, value) in but.as_object().unwrap() {
        result[name] = value.clone();
    }
    result.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    value(Kind::Result, &result)
}

async fn talk_to(far: DuplexStream, exec: &Exec) -> (Result<CallResult, Wrong>, Collected, Progress) {
    let told = Told { uid: "uid", exec, request: b"{}" };
    let mut input = Whole::new(exec.stdin.then(|| "input".into()));
    let (mut output, mut progress) = (Collected::default(), Progress::default());
    let ended =
        talk(far, &told, (&key(), &Timing::default()), (&mut input, &mut output), &mut progress).await;
    (ended, output, progress)
}

/// What is made of an agent that says this and no more, whatever it hears.
async fn heard(said: Vec<u8>, exec: &Exec) -> (Result<CallResult, Wrong>, Collected, Progress) {
    let (near, far) = duplex(1 << 20);
    let (mut read, mut write) = split(near);
    let saying = tokio::spawn(async move {
        let _ = write.write_all(&said).await;
        let _ = write.shutdown().await;
    });
    let hearing = tokio::spawn(async move { tokio::io::copy(&mut read, &mut tokio::io::sink()).await });
    let heard = talk_to(far, exec).await;
    saying.await.unwrap();
    hearing.await.unwrap().unwrap();
    heard
}

async fn of(pieces: &[Vec<u8>]) -> Result<CallResult, Wrong> {
    heard(pieces.concat(), &exec()).await.0
}

#[tokio::test]
async fn an_honest_agent_is_understood() {
    let started = bytes(Kind::Started, b"");
    let (out, err) = (bytes(Kind::Stdout, b"out"), bytes(Kind::Stderr, b"error"));
    let end = ended(&json!({"exitCode": 3, "stdoutBytes": 5, "stderrBytes": 5, "truncated": true}));
    let (result, output, progress) = heard([nonce(), started, out, err, end].concat(), &exec()).await;
    assert_eq!(result.unwrap().exit_code, Some(3));
    assert_eq!((&output.stdout[..], &output.stderr[..]), (&b"out"[..], &b"error"[..]));
    assert!(progress.told && progress.started && !progress.handing_over);
    let not_started = json!({"outcome": "NotStarted", "exitCode": 127, "message": "no such program"});
    assert_eq!(of(&[nonce(), ended(&not_started)]).await.unwrap().outcome, Outcome::NotStarted);
    for refusal in ["NotSigned", "Malformed", "Busy", "ShuttingDown", "NoResources"] {
        let refused = value(Kind::Refused, &json!(refusal));
        assert!(matches!(of(&[nonce(), refused.clone()]).await, Err(Wrong::Refused(_))));
        assert!(matches!(of(&[refused]).await, Err(Wrong::Refused(_))), "to whoever comes");
    }
}

#[tokio::test]
async fn what_no_agent_says_ends_the_call() {
    let started = || bytes(Kind::Started, b"");
    let broken = |pieces: Vec<Vec<u8>>| async move { matches!(of(&pieces).await, Err(Wrong::Broken(_))) };
    for pieces in [
        vec![vec![99]],
        vec![vec![1, 0, 0, 0, 31]],
        vec![started()],
        vec![ended(&json!({}))],
        vec![bytes(Kind::Stdout, b"x")],
        vec![nonce(), nonce()],
        vec![nonce(), bytes(Kind::Stdout, b"x")],
        vec![nonce(), ended(&json!({}))],
        vec![nonce(), started(), started()],
        vec![nonce(), started(), value(Kind::Refused, &json!("Busy"))],
        vec![nonce(), value(Kind::Refused, &json!("Tired"))],
        vec![nonce(), bytes(Kind::Stdin, b"x")],
        vec![nonce(), started(), vec![Kind::Stdout as u8, 255, 255, 255, 255]],
        vec![nonce(), started(), vec![Kind::Stdout as u8, 0, 0, 0, 0]],
        // The beginning of a long frame that only sessions send: the rest is not waited for.
        vec![nonce(), started(), vec![Kind::Open as u8, 0, 8, 0, 0]],
        vec![nonce(), started(), bytes(Kind::Stdout, &[b'x'; 60]), bytes(Kind::Stderr, &[b'x'; 41])],
    ] {
        assert!(broken(pieces.clone()).await, "{pieces:?}");
    }
}

#[tokio::test]
async fn a_result_that_can_not_be_ends_the_call() {
    for but in [
        json!({"exitCode": null}),
        json!({"exitCode": 256}),
        json!({"exitCode": -1}),
        json!({"signal": 9}),
        json!({"outcome": "Signalled"}),
        json!({"outcome": "Signalled", "exitCode": null}),
        json!({"outcome": "DeadlineExceeded"}),
        json!({"outcome": "Won"}),
        json!({"message": "why"}),
        json!({"outcome": "NotStarted", "message": "a\nb"}),
        json!({"outcome": "NotStarted", "message": "\u{1b}[2J"}),
        json!({"outcome": "NotStarted", "message": "x".repeat(257)}),
        json!({"stdoutBytes": 1}),
        json!({"stdoutBytes": 2, "truncated": true}),
        json!({"stdoutBytes": 3, "truncated": true}),
        json!({"stdoutBytes": 3, "stderrBytes": 1}),
        json!({"stdoutBytes": u64::MAX, "stderrBytes": u64::MAX, "truncated": true}),
        json!({"durationMs": "long"}),
        json!({"root": true}),
        json!({"stdoutBytes": null}),
    ] {
        let mut said = json!({"stdoutBytes": 3});
        said.as_object_mut().unwrap().extend(but.as_object().unwrap().clone());
        let pieces = [nonce(), bytes(Kind::Started, b""), bytes(Kind::Stdout, b"out"), ended(&said)];
        assert!(matches!(of(&pieces).await, Err(Wrong::Broken(_))), "{but}");
    }
}

#[tokio::test]
async fn what_was_asked_and_is_not_said_to_hold_does_not_hold() {
    let asked = |write, network| Exec { access: Some(Access { write, network }), ..exec() };
    let held = async |exec: &Exec, but: Value| {
        let said = [nonce(), bytes(Kind::Started, b""), ended(&but)].concat();
        let result = heard(said, exec).await.0.unwrap();
        (result.write, result.network)
    };
    let (yes, no) = (Some(Held::Enforced), Some(Held::NotEnforced));
    let both = json!({"write": "Enforced", "network": "Enforced"});
    assert_eq!(held(&asked(Some(vec![]), false), both.clone()).await, (yes, yes));
    assert_eq!(held(&asked(Some(vec![]), false), json!({})).await, (no, no));
    assert_eq!(held(&asked(None, true), both.clone()).await, (None, None));
    assert_eq!(held(&exec(), both).await, (None, None));
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_does_not_greet_is_given_up() {
    for said in [&b""[..], &[1], &[1, 0, 0, 0, 32, 0]] {
        let (mut near, far) = duplex(100);
        near.write_all(said).await.unwrap();
        let began = Instant::now();
        let (ended, _, progress) = talk_to(far, &exec()).await;
        assert_eq!(ended, Err(Wrong::Silent));
        assert_eq!(began.elapsed(), Duration::from_secs(5));
        assert!(!progress.told, "it has not run");
    }
}

#[tokio::test(start_paused = true)]
async fn input_that_nobody_reads_holds_up_no_result() {
    let (mut near, far) = duplex(64);
    let exec = Exec { stdin: true, ..exec() };
    let agent = tokio::spawn(async move {
        near.write_all(&[nonce(), bytes(Kind::Started, b""), ended(&json!({}))].concat()).await.unwrap();
        near
    });
    let (ended, ..) = talk_to(far, &exec).await;
    assert_eq!(ended.unwrap().exit_code, Some(0));
    drop(agent.await.unwrap());
}

proptest! {
    #[test]
    fn nothing_that_is_said_is_more_than_an_error(
        pieces in prop::collection::vec(prop_oneof![
            Just(nonce()), Just(bytes(Kind::Started, b"")), Just(bytes(Kind::Stdout, b"xy")), Just(ended(&json!({}))),
            Just(ended(&json!({"stdoutBytes": 2}))), prop::collection::vec(any::<u8>(), 0..20),
        ], 0..8)
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let (ended, output, progress) = runtime.block_on(heard(pieces.concat(), &exec()));
        prop_assert!(output.stdout.len() as u64 <= MOST);
        if let Ok(result) = ended {
            prop_assert!(progress.told && result.stdout_bytes >= output.stdout.len() as u64);
        }
    }
}
