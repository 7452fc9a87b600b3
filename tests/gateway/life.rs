//! What changes while flows are open: policies, sandboxes, the gateway itself.

use std::{
    net::IpAddr,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use glovebox::{
    gateway::{
        flow::{Asked, Cause},
        tenant::{Limits, Tenant},
    },
    policy::{Destination, Host, Policy, Wire},
};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::world::{SANDBOX, World, ask, echoes, identity, policy, rest, soon, timing};

/// An open tunnel to the echo server.
async fn tunnel(world: &World) -> TcpStream {
    let (answer, stream) = world.connect(&format!("echo.example:{}", world.echo.0.port())).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    stream
}

fn bytes(length: usize) -> Vec<u8> {
    let mut seed = 7_u32;
    let next = || {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        seed.to_be_bytes()[0]
    };
    std::iter::repeat_with(next).take(length).collect()
}

/// Waits until so many directions are spliced.
async fn pipes(world: &World, count: usize) {
    let line = format!("glovebox_gateway_pipes {count}\n");
    soon(async {
        while !world.metrics().await.contains(&line) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

/// A server that the test itself is, as `echo.example`, with a rule for any bytes to it.
async fn server_of_ones_own(world: &World) -> (tokio::net::TcpListener, u16) {
    let listener = tokio::net::TcpListener::bind("127.1.0.2:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    world.authority.set("echo.example", crate::fakes::Zone::To(vec!["127.1.0.2".parse().unwrap()]));
    let rules = json!([{"name": "r", "hosts": ["echo.example"], "ports": [port], "protocol": "TCP"}]);
    let _ = world.tenant.swap(&policy(rules), Limits::default(), Timestamp::now());
    (listener, port)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bulk_arrives_as_it_was_sent_and_is_counted() {
    let world = World::new().await;
    let stream = tunnel(&world).await;
    let sent = bytes(8 << 20);
    let (mut read, mut write) = stream.into_split();
    let copy = sent.clone();
    let writer = tokio::spawn(async move {
        write.write_all(&copy).await.unwrap();
        // Half closed: what is on its way must still come back.
        write.shutdown().await.unwrap();
    });
    let mut back = Vec::new();
    soon(read.read_to_end(&mut back)).await.unwrap();
    writer.await.unwrap();
    assert!(back == sent, "{} of {}", back.len(), sent.len());
    assert_eq!(world.tenant.sent.load(Ordering::Relaxed), 8 << 20);
    assert_eq!(world.tenant.received.load(Ordering::Relaxed), 8 << 20);
    let metrics = world.metrics().await;
    assert!(metrics.contains("bytes_total{direction=\"up\"} 8388608"), "{metrics}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_either_side_is_passed_on_alone() {
    let world = World::new().await;
    // The server ends first: the client reads that, and can still send.
    let (listener, port) = server_of_ones_own(&world).await;
    let (answer, mut client) = world.connect(&format!("echo.example:{port}")).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let (mut server, _) = listener.accept().await.unwrap();
    server.write_all(b"bye").await.unwrap();
    server.shutdown().await.unwrap();
    let mut got = Vec::new();
    soon(client.read_to_end(&mut got)).await.unwrap();
    assert_eq!(got, b"bye");
    client.write_all(b"still here").await.unwrap();
    client.shutdown().await.unwrap();
    let mut got = Vec::new();
    soon(server.read_to_end(&mut got)).await.unwrap();
    assert_eq!(got, b"still here");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_reads_nothing_is_heard_and_its_end_too() {
    let world = World::new().await;
    let (listener, port) = server_of_ones_own(&world).await;
    let (_, client) = world.connect(&format!("echo.example:{port}")).await;
    let (mut server, _) = listener.accept().await.unwrap();
    let (mut read, mut write) = client.into_split();
    let flood = tokio::spawn(async move { while write.write_all(&[7; 4096]).await.is_ok() {} });
    tokio::time::sleep(Duration::from_millis(300)).await;
    server.write_all(b"too large").await.unwrap();
    let mut got = vec![0; 9];
    soon(read.read_exact(&mut got)).await.unwrap();
    assert_eq!(got, b"too large");
    // Gone with bytes unread: the client is told, and not left to send for ever.
    drop(server);
    soon(flood).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revoke_closes_a_spliced_tunnel_within_a_second_and_no_other() {
    let world = World::new().await;
    let bulk = tunnel(&world).await;
    let mut kept = world.tls_to("tls.example").await.unwrap();
    echoes(&mut kept, b"before").await;
    let (mut read, mut write) = bulk.into_split();
    let flood = tokio::spawn(async move {
        let chunk = bytes(64 << 10);
        while write.write_all(&chunk).await.is_ok() {}
    });
    let drain = tokio::spawn(async move {
        let mut buffer = vec![0; 64 << 10];
        while read.read(&mut buffer).await.is_ok_and(|read| read > 0) {}
    });
    while world.tenant.sent.load(Ordering::Relaxed) < 4 << 20 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    pipes(&world, 2).await;
    let only_tls = json!([{"name": "tls", "hosts": ["tls.example"], "ports": [world.tls.0.port()]}]);
    let started = Instant::now();
    let closed = world.tenant.swap(&policy(only_tls), Limits::default(), Timestamp::now());
    soon(flood).await.unwrap();
    soon(drain).await.unwrap();
    assert_eq!(closed, 1);
    assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
    echoes(&mut kept, b"after").await;
    pipes(&world, 0).await;
    let (answer, _) = world.connect(&format!("echo.example:{}", world.echo.0.port())).await;
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    // Granted again, it works at once.
    let _ = world.tenant.swap(&world.rules(), Limits::default(), Timestamp::now());
    echoes(&mut tunnel(&world).await, b"again").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_flows_end_within_a_second() {
    let world = World::new().await;
    let limits = Limits { connections: 20_000, ..Limits::default() };
    let _ = world.tenant.swap(&world.rules(), limits, Timestamp::now());
    let destination = Destination::Name(Host::parse(b"echo.example").unwrap());
    let asked = Asked { destination, port: world.echo.0.port(), wire: Wire::Tcp, request: None };
    let generation = world.tenant.terms().generation;
    let mut waiting = tokio::task::JoinSet::new();
    for _ in 0..10_000 {
        let open = world.tenant.open(&asked, generation, Timestamp::now()).unwrap();
        waiting.spawn(async move { open.closed().await });
    }
    // Some of them with sockets.
    let mut tunnels = Vec::new();
    for _ in 0..50 {
        tunnels.push(tunnel(&world).await);
    }
    assert_eq!(world.tenant.open_flows(), 10_050);
    let started = Instant::now();
    assert_eq!(world.tenant.swap(&Arc::new(Policy::empty()), limits, Timestamp::now()), 10_050);
    while let Some(cause) = soon(waiting.join_next()).await {
        assert_eq!(cause.unwrap(), Cause::Revoked);
    }
    for mut tunnel in tunnels {
        assert_eq!(rest(&mut tunnel).await, "");
    }
    assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
    assert_eq!(world.tenant.open_flows(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_swap_between_verdict_and_flow_is_not_missed() {
    let world = World::new().await;
    let destination = Destination::Name(Host::parse(b"echo.example").unwrap());
    let asked = Asked { destination, port: world.echo.0.port(), wire: Wire::Tcp, request: None };
    let before = world.tenant.terms().generation;
    let _ = world.tenant.swap(&Arc::new(Policy::empty()), Limits::default(), Timestamp::now());
    assert_eq!(world.tenant.open(&asked, before, Timestamp::now()).err(), Some(Cause::Revoked));
    let _ = world.tenant.swap(&world.rules(), Limits::default(), Timestamp::now());
    assert!(world.tenant.open(&asked, before, Timestamp::now()).is_ok(), "allowed by the new policy too");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rule_that_ends_closes_its_flows() {
    let world = World::new().await;
    let end = Timestamp::now() + SignedDuration::from_secs(2);
    let rules = json!([{"name": "r", "hosts": ["echo.example"], "ports": [world.echo.0.port()], "protocol": "TCP",
        "expiresAt": end.to_string()}]);
    let _ = world.tenant.swap(&policy(rules), Limits::default(), Timestamp::now());
    let mut stream = tunnel(&world).await;
    echoes(&mut stream, b"before").await;
    assert_eq!(rest(&mut stream).await, "");
    let late = Timestamp::now().duration_since(end);
    assert!(late >= SignedDuration::ZERO && late < SignedDuration::from_millis(1000), "{late}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unknown_source_is_held_then_served_or_denied() {
    let world = World::new().await;
    let late: IpAddr = "127.0.7.20".parse().unwrap();
    let request = "GET /ok HTTP/1.1\r\nHost: web.example\r\n\r\n";
    let started = Instant::now();
    let denied = ask(late, world.at.http, request).await;
    assert!(denied.contains("UnknownSource"), "{denied}");
    assert!(started.elapsed() >= timing().hold && started.elapsed() < timing().hold * 3);
    let waiting = tokio::spawn(ask(late, world.at.http, request));
    tokio::time::sleep(Duration::from_millis(200)).await;
    let _late = world.sandbox("late", late);
    let started = Instant::now();
    assert!(soon(waiting).await.unwrap().starts_with("HTTP/1.1 200 "));
    assert!(
        started.elapsed() < Duration::from_millis(350),
        "it is woken, not polled: {:?}",
        started.elapsed()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_that_is_given_again_is_somebody_else() {
    let world = World::new().await;
    let mut old = tunnel(&world).await;
    echoes(&mut old, b"old").await;
    world.directory.remove(SANDBOX, "uid-of-another");
    echoes(&mut old, b"still there").await;
    world.directory.remove(SANDBOX, "uid-one");
    assert_eq!(rest(&mut old).await, "", "its flows end with it");
    let request = "GET /ok HTTP/1.1\r\nHost: web.example\r\n\r\n";
    assert!(ask(SANDBOX, world.at.http, request).await.contains("UnknownSource"));
    let new = Tenant::new(
        identity("new"),
        Arc::new(Policy::empty()),
        Limits::default(),
        world.clock,
        Timestamp::now(),
    );
    world.directory.insert(SANDBOX, &new);
    assert!(
        ask(SANDBOX, world.at.http, request).await.contains("NoRule"),
        "and has nothing of the old one's"
    );
    // A deletion of the old one that comes late takes nothing from the new one.
    world.directory.remove(SANDBOX, "uid-one");
    assert!(world.directory.find(SANDBOX).is_some());
    // Nor can the old one open anything, whoever still holds it.
    let destination = Destination::Name(Host::parse(b"echo.example").unwrap());
    let asked = Asked { destination, port: world.echo.0.port(), wire: Wire::Tcp, request: None };
    assert_eq!(world.tenant.open(&asked, 0, Timestamp::now()).err(), Some(Cause::Gone));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_lets_flows_go_on_for_a_while() {
    let world = World::with(timing(), Limits::default(), 2).await;
    let mut one = tunnel(&world).await;
    let mut two = tunnel(&world).await;
    let started = Instant::now();
    world.stop.cancel();
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(TcpStream::connect(world.at.proxy).await.is_err(), "no new connection");
    let ready =
        ask(SANDBOX, world.at.admin, "GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await;
    assert!(ready.starts_with("HTTP/1.1 503 "), "{ready}");
    echoes(&mut one, b"goes on").await;
    drop(one);
    assert_eq!(rest(&mut two).await, "");
    let took = started.elapsed();
    assert!(took >= Duration::from_secs(2) && took < Duration::from_secs(4), "{took:?}");
    soon(world.done).await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_without_flows_ends_at_once() {
    let world = World::with(timing(), Limits::default(), 60).await;
    world.stop.cancel();
    soon(world.done).await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flow_where_nothing_happens_ends() {
    let timing = glovebox::gateway::config::Timing { idle: Duration::from_millis(500), ..timing() };
    let world = World::with(timing, Limits::default(), 2).await;
    let mut stream = tunnel(&world).await;
    for _ in 0..4 {
        tokio::time::sleep(Duration::from_millis(300)).await;
        echoes(&mut stream, b"alive").await;
    }
    let started = Instant::now();
    assert_eq!(rest(&mut stream).await, "");
    assert!(started.elapsed() >= Duration::from_millis(400));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_tripwire_tells_who_touched_it() {
    let world = World::new().await;
    let words = ask(SANDBOX, world.at.tripwire, "").await;
    assert_eq!(words.as_bytes(), glovebox::gateway::TRIPWIRE_WORDS);
    ask("127.0.7.50".parse().unwrap(), world.at.tripwire, "").await;
    assert_eq!(world.alarms.all(), [("Tripwire".into(), Some("one".into())), ("Tripwire".into(), None)]);
    assert!(world.metrics().await.contains("glovebox_gateway_tripwire_total 2"));
}

/// The agent tries the tripwire until the network has programmed the fence: that is counted and no alarm.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn before_the_workload_the_tripwire_is_tried_without_an_alarm() {
    let world = World::new().await;
    world.tenant.begun.store(false, std::sync::atomic::Ordering::Relaxed);
    ask(SANDBOX, world.at.tripwire, "").await;
    assert_eq!(world.alarms.all(), []);
    assert!(world.metrics().await.contains("glovebox_gateway_tripwire_total 1"));
}
