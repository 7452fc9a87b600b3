//! One sandbox at its limits, and another that does not notice.

use std::{
    net::IpAddr,
    time::{Duration, Instant},
};

use glovebox::gateway::{limit::Rate, tenant::Limits};
use jiff::Timestamp;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::world::{SANDBOX, Setup, World, ask, echoes, from, policy, pour, rest, soon, timing};

const OTHER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 7, 2));
const GET: &str = "GET /ok HTTP/1.1\r\nHost: web.example\r\n\r\n";

fn reason(answer: &str) -> String {
    crate::http::refusal(answer)["reason"].as_str().unwrap().to_owned()
}

async fn tunnel(world: &World) -> Result<TcpStream, String> {
    let (answer, mut stream) = world.connect(&format!("echo.example:{}", world.echo.0.port())).await;
    if answer.starts_with("HTTP/1.1 200 ") {
        Ok(stream)
    } else {
        Err(reason(&format!("{answer}{}", rest(&mut stream).await)))
    }
}

async fn other_is_served(world: &World) {
    let answer = ask(OTHER, world.at.http, GET).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn open_connections_of_a_sandbox() {
    let world = World::with(timing(), Limits { connections: 3, ..Limits::default() }, 2).await;
    let _other = world.sandbox("two", OTHER);
    let mut open = Vec::new();
    for _ in 0..3 {
        open.push(tunnel(&world).await.unwrap());
    }
    assert_eq!(tunnel(&world).await.unwrap_err(), "TooManyConnections");
    assert!(ask(SANDBOX, world.at.http, GET).await.starts_with("HTTP/1.1 429 "));
    other_is_served(&world).await;
    open.pop();
    tokio::time::sleep(Duration::from_millis(200)).await;
    echoes(&mut tunnel(&world).await.unwrap(), b"a place is free again").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_of_a_replica() {
    let world = World::made(Setup { max_connections: Some(3), ..Setup::default() }).await;
    let mut open = Vec::new();
    for _ in 0..3 {
        open.push(tunnel(&world).await.unwrap());
    }
    let mut more = from(SANDBOX, world.at.proxy).await;
    assert_eq!(rest(&mut more).await, "", "closed at once");
    assert!(world.metrics().await.contains("glovebox_gateway_full_total 1\n"), "and whoever watches knows");
    echoes(&mut open[0], b"what is open goes on").await;
    open.pop();
    tokio::time::sleep(Duration::from_millis(200)).await;
    echoes(&mut tunnel(&world).await.unwrap(), b"there is room again").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_connections_of_a_sandbox() {
    let limits = Limits { new_connections: Rate::new(1, 4), ..Limits::default() };
    let world = World::with(timing(), limits, 2).await;
    let _other = world.sandbox("two", OTHER);
    let mut refused = 0;
    for _ in 0..10 {
        let answer = ask(SANDBOX, world.at.http, GET).await;
        refused += usize::from(answer.starts_with("HTTP/1.1 429 ") && reason(&answer) == "TooManyNew");
    }
    assert!((5..=6).contains(&refused), "{refused}");
    other_is_served(&world).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_rule_may_be_used() {
    let world = World::new().await;
    let rules = |limits: serde_json::Value| {
        policy(json!([
            {"name": "echo", "hosts": ["echo.example"], "ports": [world.echo.0.port()], "protocol": "TCP", "limits": limits},
            {"name": "web", "hosts": ["web.example"], "ports": [world.http.0.port()], "protocol": "HTTP"},
        ]))
    };
    let _ = world.tenant.swap(&rules(json!({"maxConnections": 2})), Limits::default(), Timestamp::now());
    let one = tunnel(&world).await.unwrap();
    let _two = tunnel(&world).await.unwrap();
    assert_eq!(tunnel(&world).await.unwrap_err(), "TooManyConnections");
    assert!(ask(SANDBOX, world.at.http, GET).await.starts_with("HTTP/1.1 200 "), "another rule has its own");
    drop(one);
    tokio::time::sleep(Duration::from_millis(200)).await;
    let _ = tunnel(&world).await.unwrap();
    let limits = rules(json!({"connectionsPerSecond": 1, "burst": 2}));
    let _ = world.tenant.swap(&limits, Limits::default(), Timestamp::now());
    let mut refused = 0;
    for _ in 0..6 {
        refused += usize::from(tunnel(&world).await.is_err_and(|reason| reason == "TooManyNew"));
    }
    assert!((3..=4).contains(&refused), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_budget_is_for_a_life() {
    let world = World::new().await;
    let rules = policy(json!([{"name": "echo", "hosts": ["echo.example"], "ports": [world.echo.0.port()],
        "protocol": "TCP", "limits": {"uploadBudget": "1Mi"}}]));
    let _ = world.tenant.swap(&rules, Limits::default(), Timestamp::now());
    let mut stream = tunnel(&world).await.unwrap();
    echoes(&mut stream, &vec![7; 600 << 10]).await;
    // A change that changes nothing gives nothing back, nor does another connection.
    let _ = world.tenant.swap(&rules, Limits::default(), Timestamp::now());
    let got = pour(tunnel(&world).await.unwrap(), 600 << 10).await;
    assert!(got.len() <= 424 << 10, "{}", got.len());
    assert_eq!(world.tenant.sent.load(std::sync::atomic::Ordering::Relaxed), 1 << 20, "to the byte");
    assert!(world.refusals().contains(&("UploadSpent".into(), "echo.example".into())));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_a_second() {
    let world = World::new().await;
    let rules = policy(json!([{"name": "echo", "hosts": ["echo.example"], "ports": [world.echo.0.port()],
        "protocol": "TCP", "limits": {"uploadBytesPerSecond": "1Mi"}}]));
    let _ = world.tenant.swap(&rules, Limits::default(), Timestamp::now());
    let (mut read, mut write) = tunnel(&world).await.unwrap().into_split();
    let started = Instant::now();
    let writer = tokio::spawn(async move {
        write.write_all(&vec![7; 3 << 20]).await.unwrap();
        write.shutdown().await.unwrap();
    });
    let mut got = Vec::new();
    soon(read.read_to_end(&mut got)).await.unwrap();
    writer.await.unwrap();
    let took = started.elapsed().as_secs_f64();
    assert_eq!(got.len(), 3 << 20);
    // A second's worth goes at once, also through the pipe.
    assert!((1.8..3.0).contains(&took), "{took}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_a_second_from_outside() {
    let limits = Limits { download: Some(Rate::new(1 << 20, 1 << 18)), ..Limits::default() };
    let world = World::with(timing(), limits, 2).await;
    let started = Instant::now();
    echoes(&mut tunnel(&world).await.unwrap(), &vec![7; 2 << 20]).await;
    let took = started.elapsed().as_secs_f64();
    assert!((1.6..2.6).contains(&took), "{took}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_heads_of_one_harm_nobody_else() {
    let limits = Limits {
        heads: 100,
        connections: 1000,
        new_connections: Rate::new(10_000, 10_000),
        ..Limits::default()
    };
    let world = World::with(timing(), limits, 2).await;
    let _other = world.sandbox("two", OTHER);
    let median = async || {
        let mut took = Vec::new();
        for _ in 0..15 {
            let started = Instant::now();
            other_is_served(&world).await;
            took.push(started.elapsed());
        }
        took.sort();
        took[7]
    };
    let before = median().await;
    let mut slow = Vec::new();
    for i in 0..400 {
        let to = if i % 2 == 0 { world.at.tls } else { world.at.http };
        let mut stream = from(SANDBOX, to).await;
        stream.write_all(if i % 2 == 0 { b"\x16" } else { b"G" }).await.unwrap();
        slow.push(stream);
    }
    let during = median().await;
    assert!(during < before * 3 + Duration::from_millis(20), "{before:?} and then {during:?}");
    // Most were refused at once, the rest when their time was over.
    for mut stream in slow {
        rest(&mut stream).await;
    }
    let reasons: Vec<_> = world.refusals().into_iter().map(|(reason, _)| reason).collect();
    assert!(reasons.contains(&"TooManyHeads".into()) && reasons.contains(&"HelloSlow".into()), "{reasons:?}");
    assert_eq!(world.tenant.heads.now(), 0);
    assert_eq!(world.tenant.buffered.now(), 0);
    assert!(ask(SANDBOX, world.at.http, GET).await.starts_with("HTTP/1.1 200 "));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_that_are_held_are_counted() {
    let limits = Limits { buffered_bytes: 20_000, ..Limits::default() };
    let world = World::with(timing(), limits, 2).await;
    // Two hellos that never end, of 16 KiB each: together more than may be held.
    let mut record = vec![0x16, 3, 1, 0x40, 0, 1, 0, 0xff, 0xff];
    record.resize(12_000, 0);
    let mut streams = [from(SANDBOX, world.at.tls).await, from(SANDBOX, world.at.tls).await];
    streams[0].write_all(&record).await.unwrap();
    // Side by side each would hold a part, and both be too much.
    let held = async {
        while world.tenant.buffered.now() < 12_000 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    soon(held).await;
    streams[1].write_all(&record).await.unwrap();
    for stream in &mut streams {
        rest(stream).await;
    }
    let reasons: Vec<_> = world.refusals().into_iter().map(|(reason, _)| reason).collect();
    assert_eq!(reasons, ["HelloSlow", "TooManyHeads"], "one waited, the other was too much");
    assert_eq!(world.tenant.buffered.now(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metrics_name_nobody() {
    let world = World::new().await;
    ask(SANDBOX, world.at.http, "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n").await;
    ask(SANDBOX, world.at.http, GET).await;
    let metrics = world.metrics().await;
    assert!(
        metrics
            .contains("glovebox_gateway_refusals_total{entry=\"http\",reason=\"NoRule\",severity=\"S\"} 1"),
        "{metrics}"
    );
    for word in ["evil", "web.example", "team", "\"one\"", "uid-", "127.0.7"] {
        assert!(!metrics.contains(word), "{word} in {metrics}");
    }
}
