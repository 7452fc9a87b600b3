//! Spellings of hosts and addresses, at every entry.

use std::net::IpAddr;

use glovebox::gateway::{limit::Rate, tenant::Limits};
use tokio::io::AsyncWriteExt;

use crate::world::{SANDBOX, World, ask, from, head, rest, timing};

/// One that is asked as fast as a machine can: nothing is refused for coming too fast, which would look like any other refusal.
async fn busy() -> World {
    let new_connections = Rate::new(100_000, 100_000);
    World::with(timing(), Limits { new_connections, ..Limits::default() }, 2).await
}

/// Whether CONNECT, a whole URI, and the Host field of a transparent request take a host for `web.example`.
async fn taken(world: &World, host: &[u8]) -> [bool; 3] {
    let port = world.http.0.port();
    let cat = |parts: &[&[u8]]| parts.concat();
    let port = format!(":{port}");
    let connect = cat(&[b"CONNECT ", host, port.as_bytes(), b" HTTP/1.1\r\n\r\n"]);
    let mut stream = from(SANDBOX, world.at.proxy).await;
    stream.write_all(&connect).await.unwrap();
    let connected = head(&mut stream).await.starts_with("HTTP/1.1 200 ");
    let host_field = cat(&[b"\r\nHost: ", host, port.as_bytes(), b"\r\n\r\n"]);
    let absolute = cat(&[b"GET http://", host, port.as_bytes(), b"/ok HTTP/1.1", &host_field]);
    let absolute = ask(SANDBOX, world.at.proxy, absolute).await.starts_with("HTTP/1.1 200 ");
    let origin = cat(&[b"GET /ok HTTP/1.1", &host_field]);
    let origin = ask(SANDBOX, world.at.http, origin).await.starts_with("HTTP/1.1 200 ");
    [connected, absolute, origin]
}

/// Each byte, in front of, within and behind a host that is allowed. What makes it another host or none must not be taken.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_byte_in_every_entry() {
    let world = busy().await;
    for byte in 0..=255_u8 {
        let byte = [byte];
        for (at, host) in [
            [&byte, b"web.example".as_slice()].concat(),
            [b"we".as_slice(), &byte, b"b.example"].concat(),
            [b"web.example".as_slice(), &byte].concat(),
        ]
        .iter()
        .enumerate()
        {
            let got = taken(&world, host).await;
            // A dot behind is the one honest spelling that is not the name itself. White space around a field's value is no
            // part of it, so that Host has it in front.
            let want = match (at, byte[0]) {
                (2, b'.') => [true; 3],
                (0, b' ' | b'\t') => [false, false, true],
                _ => [false; 3],
            };
            assert_eq!(got, want, "{:?}", String::from_utf8_lossy(host));
        }
    }
    assert!(
        world.authority.asked().iter().all(|name| name == "web.example."),
        "nothing else was ever asked for"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spellings_of_one_host_and_of_others() {
    let world = busy().await;
    for host in ["web.example", "WEB.EXAMPLE", "Web.Example.", "web.example."] {
        assert_eq!(taken(&world, host.as_bytes()).await, [true; 3], "{host}");
    }
    for host in [
        "web.example..",
        ".web.example",
        "web..example",
        "xweb.example",
        "web.examplex",
        "web.example.evil.example",
        "web%2eexample",
        "web.example%00",
        "web.example%00.evil.example",
        "web.example#",
        "web.example/",
        "web.example?",
        "evil.example\\@web.example",
        "evil.example@web.example",
        "web.example:80",
        "[web.example]",
        "web.example\u{3002}",
        "w\u{435}b.example",
        "\u{ff57}eb.example",
        "xn--web-.example",
        "-web.example",
        "*.example",
        "*",
    ] {
        assert_eq!(taken(&world, host.as_bytes()).await, [false; 3], "{host}");
    }
    assert!(world.authority.asked().iter().all(|name| name == "web.example."));
}

/// Addresses in every spelling that some resolver reads as one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_is_no_name() {
    let world = busy().await;
    for host in [
        "127.1.0.1",
        "127.1",
        "127.1.1",
        "2130771969",
        "0x7f010001",
        "0x7f.1",
        "0177.1.0.1",
        "017700200001",
        "127.1.0.01",
        "0x7f.0x1.0x0.0x1",
        "127.1.0.1.",
        "[::1]",
        "[::ffff:127.1.0.1]",
        "[::127.1.0.1]",
        "[64:ff9b::7f01:1]",
        "[64:ff9b:1::7f01:1]",
        "[2002:7f01:1::]",
        "[fe80::1%25eth0]",
        "[::ffff:0:127.1.0.1]",
        "0.0.0.0",
        "0",
        "[::]",
        "169.254.169.254",
        "[fd00:ec2::254]",
        "metadata.google.internal",
        "localhost",
        "10.0.0.1",
        "kubernetes.default.svc.cluster.local",
    ] {
        assert_eq!(taken(&world, host.as_bytes()).await, [false; 3], "{host}");
    }
    assert!(world.requests().is_empty() && world.authority.asked().is_empty());
    let severe: Vec<_> = world.alarms.all().into_iter().map(|(reason, _)| reason).collect();
    assert!(severe.contains(&"MetadataAddress".to_owned()), "{severe:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_anybody_else_by_what_he_says() {
    let world = busy().await;
    let port = world.http.0.port();
    let stranger: IpAddr = "127.0.7.77".parse().unwrap();
    let fields = format!("X-Forwarded-For: {SANDBOX}\r\nForwarded: for={SANDBOX}\r\nX-Real-IP: {SANDBOX}");
    for (to, text) in [
        (world.at.http, format!("GET /ok HTTP/1.1\r\nHost: web.example\r\n{fields}\r\n\r\n")),
        (world.at.proxy, format!("CONNECT web.example:{port} HTTP/1.1\r\n{fields}\r\n\r\n")),
    ] {
        let answer = ask(stranger, to, text).await;
        assert!(answer.starts_with("HTTP/1.1 403 ") && answer.contains("UnknownSource"), "{answer}");
    }
    let mut stream = from(stranger, world.at.tls).await;
    assert_eq!(
        rest(&mut stream).await.as_bytes(),
        String::from_utf8_lossy(&[0x15, 3, 3, 0, 2, 2, 49]).as_bytes()
    );
    assert!(world.requests().is_empty());
}
