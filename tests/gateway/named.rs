//! Ports that stand for hosts: a program that knows no proxy goes by name, to the address that DNS gives and to its own port.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::Duration,
};

use glovebox::{
    gateway::{directory::NamedPorts, tenant::Limits},
    policy::Host,
    sandbox::named::Mapping,
};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use tokio::net::TcpStream;

use crate::{
    dns::addresses,
    fakes::{self, Zone},
    world::{HERE, SANDBOX, World, echoes, from, policy, rest, soon},
};

/// What the Service of `echo.example` has.
const SERVICE: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 77);

fn host(name: &str) -> Host {
    Host::parse(name.as_bytes()).unwrap()
}

/// A port that nobody listens on.
fn free() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn mapping(name: &str, ports: &[(u16, u16)], address: Ipv4Addr) -> Mapping {
    Mapping { host: host(name), ports: ports.iter().copied().collect::<BTreeMap<_, _>>(), address }
}

/// Once the gateway listens on all of them and on nothing else.
async fn assign(world: &World, all: Vec<Mapping>) {
    world.directory.name_ports(NamedPorts::new(all));
    soon(async {
        while !world.directory.is_listening() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

fn at(world: &World, port: u16) -> SocketAddr {
    SocketAddr::new(world.at.tls.ip(), port)
}

/// Waits until nobody listens there.
async fn closed(world: &World, port: u16) {
    soon(async {
        while TcpStream::connect(at(world, port)).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn by_name_to_the_port_and_out() {
    let world = World::new().await;
    let (port, ours) = (world.echo.0.port(), free());
    assert_eq!(addresses(&world, SANDBOX, "echo.example").await, [HERE], "before it is assigned");
    assign(&world, vec![mapping("echo.example", &[(port, ours)], SERVICE)]).await;
    assert_eq!(addresses(&world, SANDBOX, "ECHO.example").await, [SERVICE]);
    let mut stream = from(SANDBOX, at(&world, ours)).await;
    echoes(&mut stream, b"any bytes").await;
    let metrics = world.metrics().await;
    for line in ["glovebox_gateway_named_ports 1\n", "decisions_total{entry=\"tcp\",verdict=\"allow\"} 1\n"] {
        assert!(metrics.contains(line), "{line}{metrics}");
    }
    // Other names lead where they did.
    assert_eq!(addresses(&world, SANDBOX, "tls.example").await, [HERE]);
    assert_eq!(addresses(&world, SANDBOX, "evil.example").await, [] as [Ipv4Addr; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_port_serves_those_whose_rules_say_so_and_nobody_else() {
    let world = World::new().await;
    let (port, ours) = (world.echo.0.port(), free());
    assign(&world, vec![mapping("echo.example", &[(port, ours)], SERVICE)]).await;
    let (served, other): (IpAddr, IpAddr) = ("127.0.7.31".parse().unwrap(), "127.0.7.32".parse().unwrap());
    let _served = world.sandbox("served", served);
    let refused = world.sandbox("refused", other);
    for rules in [
        json!([]),
        json!([{"name": "r", "hosts": ["other.example"], "ports": [port], "protocol": "TCP"}]),
        json!([{"name": "r", "hosts": ["echo.example"], "ports": [port, 80]}]),
        json!([{"name": "r", "hosts": ["echo.example"], "ports": [1234], "protocol": "TCP"}]),
        json!([{"name": "r", "hosts": ["echo.example"], "ports": [port], "protocol": "TCP",
            "expiresAt": (Timestamp::now() - SignedDuration::from_secs(5)).to_string()}]),
    ] {
        let _ = refused.swap(&policy(rules.clone()), Limits::default(), Timestamp::now());
        assert_ne!(addresses(&world, other, "echo.example").await, [SERVICE], "{rules}");
        assert_eq!(rest(&mut from(other, at(&world, ours)).await).await, "", "{rules}");
    }
    // A wildcard has no Service: by DNS it leads to the gateway, and to a port that others have it goes as it may.
    let wild = json!([{"name": "r", "hosts": ["*.example.org"], "ports": [port], "protocol": "TCP"}]);
    let _ = refused.swap(&policy(wild), Limits::default(), Timestamp::now());
    assert_eq!(addresses(&world, other, "a.example.org").await, [HERE]);
    assert_eq!(rest(&mut from("127.0.7.99".parse().unwrap(), at(&world, ours)).await).await, "", "nobody");
    let kept = refused.refusals.take();
    let said = |reason: &str| {
        kept.iter().any(|(key, _)| key.reason.as_str() == reason && key.host == "echo.example")
    };
    for reason in ["NoRule", "ProtocolMismatch", "PortNotAllowed", "RuleExpired"] {
        assert!(said(reason), "{reason} is not recorded: {kept:?}");
    }
    let mut stream = from(served, at(&world, ours)).await;
    echoes(&mut stream, b"the one that may").await;
    assert_eq!(*world.echo.1.lock().unwrap(), 1, "the others reached nothing");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hosts_with_one_port_are_told_apart() {
    let world = World::new().await;
    let (second, visits) = fakes::echo(&format!("127.1.0.7:{}", world.echo.0.port())).await;
    world.authority.set("cache.example", Zone::To(vec![second.ip()]));
    let port = second.port();
    let (first_ours, second_ours) = (free(), free());
    let other = Ipv4Addr::new(10, 96, 0, 78);
    let all = vec![
        mapping("echo.example", &[(port, first_ours)], SERVICE),
        mapping("cache.example", &[(port, second_ours)], other),
    ];
    assign(&world, all).await;
    let rules = json!([{"name": "r", "hosts": ["echo.example", "cache.example"], "ports": [port], "protocol": "TCP"}]);
    let _ = world.tenant.swap(&policy(rules), Limits::default(), Timestamp::now());
    assert_eq!(addresses(&world, SANDBOX, "echo.example").await, [SERVICE]);
    assert_eq!(addresses(&world, SANDBOX, "cache.example").await, [other]);
    echoes(&mut from(SANDBOX, at(&world, second_ours)).await, b"cache").await;
    assert_eq!((*visits.lock().unwrap(), *world.echo.1.lock().unwrap()), (1, 0));
    echoes(&mut from(SANDBOX, at(&world, first_ours)).await, b"echo").await;
    assert_eq!((*visits.lock().unwrap(), *world.echo.1.lock().unwrap()), (1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revoke_closes_what_came_by_a_port_and_its_name_leads_back() {
    let world = World::new().await;
    let (port, ours) = (world.echo.0.port(), free());
    assign(&world, vec![mapping("echo.example", &[(port, ours)], SERVICE)]).await;
    let mut stream = from(SANDBOX, at(&world, ours)).await;
    echoes(&mut stream, b"before").await;
    let rules = json!([{"name": "r", "hosts": ["echo.example"], "ports": [port]}]);
    assert_eq!(world.tenant.swap(&policy(rules), Limits::default(), Timestamp::now()), 1);
    assert_eq!(rest(&mut stream).await, "");
    assert_eq!(addresses(&world, SANDBOX, "echo.example").await, [HERE], "TLS alone is allowed now");
    assert_eq!(rest(&mut from(SANDBOX, at(&world, ours)).await).await, "");
    let _ = world.tenant.swap(&world.rules(), Limits::default(), Timestamp::now());
    echoes(&mut from(SANDBOX, at(&world, ours)).await, b"again").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_port_that_is_taken_away_is_closed_and_open_flows_go_on() {
    let world = World::new().await;
    let (port, ours, more) = (world.echo.0.port(), free(), free());
    let echo = mapping("echo.example", &[(port, ours)], SERVICE);
    assign(&world, vec![echo.clone()]).await;
    let mut stream = from(SANDBOX, at(&world, ours)).await;
    echoes(&mut stream, b"before").await;
    // The port is another host's from now on: judged as that one's, at once.
    assign(&world, vec![mapping("tls.example", &[(port, ours)], SERVICE)]).await;
    assert_eq!(rest(&mut from(SANDBOX, at(&world, ours)).await).await, "", "by TLS alone");
    assert_eq!(addresses(&world, SANDBOX, "echo.example").await, [HERE]);
    assign(&world, vec![echo, mapping("tls.example", &[(port, more)], SERVICE)]).await;
    echoes(&mut from(SANDBOX, at(&world, ours)).await, b"back").await;
    assign(&world, vec![]).await;
    closed(&world, ours).await;
    closed(&world, more).await;
    echoes(&mut stream, b"open flows are the policy's affair").await;
}

/// Somebody else has the port: the others are served, and it is, too, once it is free.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_port_that_cannot_be_had_harms_no_other() {
    let world = World::new().await;
    let taken = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (port, ours, late) = (world.echo.0.port(), free(), taken.local_addr().unwrap().port());
    let all = vec![
        mapping("echo.example", &[(port, ours)], SERVICE),
        mapping("evil.example", &[(port, late)], [10, 96, 0, 79].into()),
    ];
    assign(&world, all).await;
    echoes(&mut from(SANDBOX, at(&world, ours)).await, b"this one").await;
    drop(taken);
    soon(async {
        while TcpStream::connect(at(&world, late)).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

/// A host that needs more ports gets another Service; whoever needs fewer is led there too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_newest_service_that_has_all_ports_is_answered() {
    let world = World::new().await;
    let port = world.echo.0.port();
    let newer = Ipv4Addr::new(10, 96, 0, 80);
    let old = mapping("echo.example", &[(port, free())], SERVICE);
    let rules =
        json!([{"name": "r", "hosts": ["echo.example"], "ports": [port, 443, 6379], "protocol": "TCP"}]);
    let _ = world.tenant.swap(&policy(rules), Limits::default(), Timestamp::now());
    assign(&world, vec![old.clone()]).await;
    assert_eq!(addresses(&world, SANDBOX, "echo.example").await, [HERE], "it has not all");
    assign(&world, vec![old.clone(), mapping("echo.example", &[(port, free()), (6379, free())], newer)])
        .await;
    assert_eq!(addresses(&world, SANDBOX, "echo.example").await, [newer]);
    let _ = world.tenant.swap(&world.rules(), Limits::default(), Timestamp::now());
    assert_eq!(addresses(&world, SANDBOX, "echo.example").await, [newer]);
    // At 443 and 80 the gateway's own address serves as well.
    let rules = json!([{"name": "r", "hosts": ["echo.example"], "ports": [80, 443], "protocol": "TCP"}]);
    let _ = world.tenant.swap(&policy(rules), Limits::default(), Timestamp::now());
    assert_eq!(addresses(&world, SANDBOX, "echo.example").await, [HERE]);
}
