//! Many at once: tunnels of several sandboxes and a rule that goes, connections that nobody reads, heads that drip, policies of
//! ten thousand rules. `cargo xtask bench egress` has the same in full size, with its figures.

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use glovebox::{
    gateway::{
        limit::Rate,
        tenant::{Limits, Tenant},
    },
    policy::Policy,
};
use jiff::Timestamp;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinSet,
};

use crate::world::{
    SANDBOX, Setup, World, ask, echoes, from, head, identity, policy, pour, rest, soon, timing,
};

const GET: &str = "GET /ok HTTP/1.1\r\nHost: web.example\r\n\r\n";
/// As many as one sandbox needs to have its bytes spliced in both directions.
const SPLICED: usize = 320 * 1024;

fn address(at: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(127, 0, 7, at))
}

async fn served(world: &World, source: IpAddr) {
    let answer = ask(source, world.at.http, GET).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer:?}");
}

async fn connect(world: &World, source: IpAddr) -> (String, TcpStream) {
    let target = format!("echo.example:{}", world.echo.0.port());
    let mut stream = from(source, world.at.proxy).await;
    let request = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    (head(&mut stream).await, stream)
}

async fn tunnel(world: &World, source: IpAddr) -> TcpStream {
    let (answer, stream) = connect(world, source).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    stream
}

/// Carries so much both ways at once that the rest is spliced.
async fn splice(stream: &mut TcpStream) {
    let (mut read, mut write) = stream.split();
    let bytes = vec![7; SPLICED];
    let mut back = vec![0; SPLICED];
    let (sent, got) = soon(async { tokio::join!(write.write_all(&bytes), read.read_exact(&mut back)) }).await;
    sent.unwrap();
    got.unwrap();
    assert!(back == bytes);
}

/// Waits until a line of the metrics says so.
async fn metric(world: &World, line: &str) {
    soon(async {
        while !world.metrics().await.contains(&format!("glovebox_gateway_{line}\n")) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rule_that_goes_closes_the_tunnels_of_its_sandboxes_and_no_other() {
    const EACH: usize = 100;
    const SPLICED_EACH: usize = 10;
    let world = World::new().await;
    let sandboxes: Vec<(IpAddr, Arc<Tenant>)> =
        (101..=105).map(|at| (address(at), world.sandbox(&format!("s{at}"), address(at)))).collect();
    let mut tunnels: Vec<Vec<TcpStream>> = Vec::new();
    for (source, _) in &sandboxes {
        let mut of_one = Vec::new();
        for at in 0..EACH {
            let mut stream = tunnel(&world, *source).await;
            if at < SPLICED_EACH {
                splice(&mut stream).await;
            }
            of_one.push(stream);
        }
        tunnels.push(of_one);
    }
    let directions = sandboxes.len() * SPLICED_EACH * 2;
    metric(&world, &format!("pipes {directions}")).await;
    metric(&world, &format!("flows_open {}", sandboxes.len() * EACH)).await;

    let (revoked, kept) = sandboxes.split_at(2);
    for (_, tenant) in revoked {
        let closed = tenant.swap(&Arc::new(Policy::empty()), Limits::default(), Timestamp::now());
        assert_eq!(closed, EACH);
    }
    let mut living = tunnels.split_off(revoked.len());
    for stream in tunnels.iter_mut().flatten() {
        assert_eq!(rest(stream).await, "", "closed, and nothing more said");
    }
    metric(&world, &format!("flows_open {}", kept.len() * EACH)).await;
    metric(&world, &format!("pipes {}", kept.len() * SPLICED_EACH * 2)).await;
    for stream in living.iter_mut().flatten() {
        echoes(stream, b"not concerned").await;
    }
    assert!(revoked.iter().all(|(_, tenant)| tenant.open_flows() == 0));
    assert!(connect(&world, revoked[0].0).await.0.starts_with("HTTP/1.1 403 "));
    // Granted again, it works at once.
    let _ = revoked[0].1.swap(&world.rules(), Limits::default(), Timestamp::now());
    echoes(&mut tunnel(&world, revoked[0].0).await, b"again").await;
    assert!(connect(&world, revoked[1].0).await.0.starts_with("HTTP/1.1 403 "), "to whom it was granted");
}

/// A sandbox that is at its limit, goes on, and neither reads its refusals nor closes: the replica's places stay for others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_were_turned_away_take_no_room() {
    const MOST: u32 = 50;
    let limits =
        Limits { connections: MOST, new_connections: Rate::new(10_000, 10_000), ..Limits::default() };
    let setup = Setup { limits, max_connections: Some(4 * MOST), ..Setup::default() };
    let world = World::made(setup).await;
    let other = address(110);
    let _other = world.sandbox("other", other);
    let mut tunnels = Vec::new();
    for _ in 0..MOST {
        tunnels.push(tunnel(&world, SANDBOX).await);
    }
    let mut unread = Vec::new();
    for at in 0..8 * MOST {
        // An entry of each kind, in turn.
        let to = [world.at.proxy, world.at.tls, world.at.http][at as usize % 3];
        unread.push(from(SANDBOX, to).await);
        if at % MOST == 0 {
            served(&world, other).await;
        }
    }
    served(&world, other).await;
    assert!(world.metrics().await.contains("glovebox_gateway_full_total 0\n"), "{}", world.metrics().await);
    echoes(&mut tunnels[0], b"what it has goes on").await;
    // Whoever reads is told, once there is room to tell it.
    drop(unread);
    metric(&world, &format!("connections {MOST}")).await;
    let (answer, _) = connect(&world, SANDBOX).await;
    assert!(answer.starts_with("HTTP/1.1 429 "), "{answer}");
}

/// Fifteen hundred heads that never end, of fifteen sandboxes, while another one works.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heads_that_drip_leave_good_traffic_alone() {
    let limits = Limits { new_connections: Rate::new(10_000, 10_000), ..Limits::default() };
    let world = World::with(timing(), limits, 2).await;
    let drippers: Vec<(IpAddr, Arc<Tenant>)> =
        (120..135).map(|at| (address(at), world.sandbox(&format!("d{at}"), address(at)))).collect();
    let mut drips = JoinSet::new();
    for (source, _) in &drippers {
        for at in 0..100 {
            let to = [world.at.proxy, world.at.tls, world.at.http][at % 3];
            let mut stream = from(*source, to).await;
            drips.spawn(async move {
                // A record's or a request's first bytes, and then one byte after the other, for ever.
                let bytes: &[u8] =
                    if at % 3 == 1 { b"\x16\x03\x01\x02\x00\x01\x00" } else { b"GET /aaaaaaaaaaaa" };
                for byte in bytes.iter().chain(std::iter::repeat(&b'a')) {
                    if stream.write_all(&[*byte]).await.is_err() {
                        return;
                    }
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            });
        }
    }
    for _ in 0..20 {
        served(&world, SANDBOX).await;
        echoes(&mut tunnel(&world, SANDBOX).await, b"good").await;
    }
    // Each drip ends by its deadline, whatever comes.
    soon(drips.join_all()).await;
    metric(&world, "connections 0").await;
    for (_, tenant) in &drippers {
        assert_eq!((tenant.heads.now(), tenant.buffered.now()), (0, 0));
    }
    served(&world, SANDBOX).await;
}

/// Ten thousand rules, swapped again and again under load: nothing that is allowed by both is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn swaps_of_ten_thousand_rules_lose_nothing() {
    let limits = Limits { new_connections: Rate::new(10_000, 10_000), ..Limits::default() };
    let world = Arc::new(World::with(timing(), limits, 2).await);
    let long = |name: &str| {
        let rule =
            |at: usize| json!({"name": format!("r{at}"), "hosts": [format!("*.{name}{at}.example.net")]});
        let echo = json!({"name": "echo", "hosts": ["echo.example"], "ports": [world.echo.0.port()], "protocol": "TCP"});
        policy((0..9_999).map(rule).chain([echo]).collect())
    };
    let policies = [long("a"), long("b")];
    let _ = world.tenant.swap(&policies[1], limits, Timestamp::now());
    let mut old = tunnel(&world, SANDBOX).await;
    let over = Arc::new(AtomicBool::new(false));
    let load: Vec<_> = (0..4)
        .map(|_| {
            let (world, over) = (world.clone(), over.clone());
            tokio::spawn(async move {
                let (mut kept, mut made) = (tunnel(&world, SANDBOX).await, 0);
                while !over.load(Ordering::Relaxed) {
                    echoes(&mut kept, b"kept").await;
                    echoes(&mut tunnel(&world, SANDBOX).await, b"new").await;
                    made += 1;
                }
                made
            })
        })
        .collect();
    for at in 0..100 {
        assert_eq!(world.tenant.swap(&policies[at % 2], limits, Timestamp::now()), 0, "closed by swap {at}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    over.store(true, Ordering::Relaxed);
    for load in load {
        assert!(soon(load).await.unwrap() > 0);
    }
    echoes(&mut old, b"from before the first swap").await;
    assert_eq!(world.tenant.terms().generation, 101);
    assert_eq!(world.refusals(), [], "nothing was refused");
}

/// Who is known again after its address was doubted goes on with what is left to it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_successor_has_what_is_left_of_a_budget() {
    let world = World::new().await;
    let rules = policy(json!([{"name": "echo", "hosts": ["echo.example"], "ports": [world.echo.0.port()],
        "protocol": "TCP", "limits": {"uploadBudget": "1Mi"}}]));
    let _ = world.tenant.swap(&rules, Limits::default(), Timestamp::now());
    let mut before = tunnel(&world, SANDBOX).await;
    echoes(&mut before, &vec![7; 700 << 10]).await;
    world.directory.remove(SANDBOX, &identity("one").uid);
    assert_eq!(rest(&mut before).await, "");
    let next = world.tenant.successor(Timestamp::now());
    world.directory.insert(SANDBOX, &next);
    pour(tunnel(&world, SANDBOX).await, 700 << 10).await;
    assert_eq!(next.sent.load(Ordering::Relaxed), 1 << 20, "to the byte");
}
