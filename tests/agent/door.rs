//! Who may have commands run, and what becomes of everybody else at the port.

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use ed25519_dalek::Signer;
use glovebox::call::{Kind, NONCE_BYTES, Refusal, header, signed};

use crate::container::{Recipe, eventually};
use crate::session::{Call, Sandbox, UID, command, key, shell};

#[test]
fn only_a_signature_for_this_sandbox_and_connection_counts() {
    let sandbox = Sandbox::idle(Recipe::new());
    let exec = command(&["true"]);
    for (key, uid) in [(key(3), UID), (key(1), "another")] {
        let mut call = Call::open(sandbox.connect(), &key, uid, &exec);
        assert_eq!(call.refusal(), Refusal::NotSigned);
        assert_eq!(call.try_frame(), None);
    }
    // An answer to another connection's challenge.
    let (mut one, mut other) = (Call::silent(sandbox.connect()), Call::silent(sandbox.connect()));
    let (nonce, own) = (one.nonce(), other.nonce());
    assert_ne!(nonce, own);
    let request = serde_json::to_vec(&exec).unwrap();
    let open = [&key(1).sign(&signed(UID, &nonce, &request)).to_bytes()[..], &request].concat();
    other.send(Kind::Open, &open);
    assert_eq!(other.refusal(), Refusal::NotSigned);
    one.send(Kind::Open, &open);
    assert_eq!(one.frame().kind, Kind::Started);
    // Both keys count.
    let mut call = Call::open(sandbox.connect(), &key(2), UID, &exec);
    assert_eq!(call.frame().kind, Kind::Started);
}

#[test]
fn nonsense_is_refused() {
    let sandbox = Sandbox::idle(Recipe::new());
    let long = vec![b'x'; 100_000];
    for bytes in [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
        vec![16, 0xff, 0xff, 0xff, 0xff],
        [&header(Kind::Stdin, 3).unwrap()[..], b"abc"].concat(),
        header(Kind::Nonce, NONCE_BYTES).unwrap().into_iter().chain([0; NONCE_BYTES]).collect(),
        [&[0][..], &long].concat(),
    ] {
        let mut call = Call::silent(sandbox.connect());
        call.nonce();
        call.stream.write_all(&bytes).unwrap();
        assert_eq!(call.refusal(), Refusal::Malformed);
        assert_eq!(call.try_frame(), None);
    }
    let mut out_of_bounds = command(&["true"]);
    out_of_bounds.timeout_ms = 0;
    let mut call = Call::open(sandbox.connect(), &key(1), UID, &out_of_bounds);
    assert_eq!(call.refusal(), Refusal::Malformed);
}

#[test]
fn whoever_says_nothing_is_let_go_and_whoever_is_slow_is_heard() {
    let sandbox = Sandbox::idle(Recipe::new());
    let mut silent = Call::silent(sandbox.connect());
    let mut half = Call::silent(sandbox.connect());
    half.nonce();
    half.stream.write_all(&header(Kind::Open, 1000).unwrap()).unwrap();
    let start = Instant::now();
    let mut slow = Call::silent(sandbox.connect());
    let nonce = slow.nonce();
    let request = serde_json::to_vec(&command(&["true"])).unwrap();
    let open = [&key(1).sign(&signed(UID, &nonce, &request)).to_bytes()[..], &request].concat();
    let frame = [&header(Kind::Open, open.len()).unwrap()[..], &open].concat();
    for byte in &frame {
        slow.stream.write_all(&[*byte]).unwrap();
    }
    assert_eq!(slow.frame().kind, Kind::Started);
    silent.nonce();
    assert_eq!(silent.try_frame(), None);
    assert_eq!(half.try_frame(), None);
    assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
}

#[test]
fn no_more_calls_run_than_may() {
    let sandbox = Sandbox::idle(Recipe::new().option("--calls-most", "2"));
    let exec = shell("echo ready; exec sleep 1000");
    let mut calls = [sandbox.call(&exec), sandbox.call(&exec)];
    for call in &mut calls {
        call.until("ready\n");
    }
    let mut third = Call::open(sandbox.connect(), &key(1), UID, &exec);
    assert_eq!(third.refusal(), Refusal::Busy);
    let [one, _other] = calls;
    drop(one);
    // To its end: a call that is left in the middle has its room until its processes are gone.
    eventually("there is room again", || {
        let mut call = Call::open(sandbox.connect(), &key(1), UID, &command(&["true"]));
        (call.frame().kind == Kind::Started).then(|| call.end())
    });
    // Whoever has a result may call again at once.
    for _ in 0..20 {
        assert_eq!(sandbox.run(&command(&["true"])).result.exit_code, Some(0));
    }
}

#[test]
fn a_flood_of_connections_keeps_nobody_out() {
    let sandbox = Sandbox::idle(Recipe::new());
    drop(sandbox.connect());
    let address = sandbox.address;
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let flood = std::thread::spawn(move || {
        let mut open = std::collections::VecDeque::new();
        let mut count = 0;
        while ended.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
            open.extend(TcpStream::connect(address));
            count += 1;
            if open.len() > 500 {
                open.pop_front();
            }
        }
        count
    });
    let mut calls = 0;
    let mut tries = 0;
    while calls < 20 {
        tries += 1;
        assert!(tries < 200, "{calls} calls in {tries} tries");
        let mut call = Call::silent(sandbox.connect());
        let Some(frame) = call.try_frame() else { continue };
        let nonce = frame.payload.try_into().unwrap();
        let request = serde_json::to_vec(&command(&["true"])).unwrap();
        let open = [&key(1).sign(&signed(UID, &nonce, &request)).to_bytes()[..], &request].concat();
        let frame = [&header(Kind::Open, open.len()).unwrap()[..], &open].concat();
        if call.stream.write_all(&frame).is_ok() && call.try_frame().is_some() {
            calls += 1;
        }
    }
    drop(end);
    println!(
        "{calls} calls in {tries} tries beside {} connections from the same place",
        flood.join().unwrap()
    );
}
