//! The gateway with many sandboxes, each of which is an address in 127.0.9.0/24; and the servers outside.

use std::{
    io::BufRead as _,
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
    time::Instant,
};

use anyhow::Result;
use glovebox::{
    gateway::{
        Listeners,
        clock::Clock,
        directory::Directory,
        limit::Rate,
        tenant::{Identity, Limits, Tenant},
    },
    policy::Policy,
};
use jiff::Timestamp;
use tokio::{
    io::AsyncWriteExt,
    net::{TcpListener, UdpSocket},
};

use crate::{
    common::{authority, local, options, plenty, run},
    process::say,
};

/// How many sandboxes a gateway has.
pub(crate) const SANDBOXES: u8 = 60;
/// Bytes a second that the neighbour may send, and get.
const BYTES: u64 = 4 << 20;

/// The address of one of them.
pub(crate) fn source(at: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(127, 0, 9, at + 1))
}

/// A server that sends back what it gets, and an authority for every name.
pub(crate) async fn servers() -> Result<()> {
    let listener = TcpListener::bind(local(0)).await?;
    let dns = UdpSocket::bind(local(0)).await?;
    say(format!("{} {}", listener.local_addr()?.port(), dns.local_addr()?.port()));
    tokio::spawn(authority(dns));
    loop {
        let (mut stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(async move {
            let (mut read, mut write) = stream.split();
            let _ = tokio::io::copy(&mut read, &mut write).await;
            let _ = write.shutdown().await;
        });
    }
}

/// Rules as a user writes them, compiled.
pub(crate) fn compile(rules: serde_json::Value) -> Result<Arc<Policy>> {
    crate::common::compile(&serde_json::from_value::<Vec<_>>(rules)?)
}

/// Limits that are none, or those of the product with bytes bounded too.
fn limits(kind: &str) -> Limits {
    let bytes = Some(Rate::new(BYTES, BYTES / 4));
    if kind == "unlimited" {
        Limits {
            connections: 100_000,
            new_connections: plenty(),
            queries: plenty(),
            heads: 100_000,
            ..Limits::default()
        }
    } else {
        Limits { upload: bytes, download: bytes, ..Limits::default() }
    }
}

/// The product's gateway. `revoke N` on standard input takes the rules of the first so many sandboxes away, and is answered by
/// the microseconds that it took; `grant` gives them back.
pub(crate) async fn serve_all(backend: u16, dns: u16, kind: &str) -> Result<()> {
    let options = options(dns, 443, None);
    let listeners = Listeners::bind(&options).await?;
    let at = listeners.addresses()?;
    let (clock, directory, limits) = (Clock::default(), Arc::new(Directory::default()), limits(kind));
    let echo = compile(serde_json::json!([
        {"name": "echo", "hosts": ["echo.example"], "ports": [backend], "protocol": "TCP"},
    ]))?;
    let tenants: Vec<Arc<Tenant>> = (0..SANDBOXES)
        .map(|at| {
            let name = format!("s{at}");
            let identity =
                Identity { uid: name.as_str().into(), namespace: "bench".into(), name: name.as_str().into() };
            let tenant = Tenant::new(identity, echo.clone(), limits, clock, Timestamp::now());
            directory.insert(source(at), &tenant);
            tenant
        })
        .collect();
    directory.load();
    say(format!("{} {} {}", at.proxy.port(), at.tls.port(), at.dns_udp.port()));
    std::thread::spawn(move || -> Result<()> {
        for line in std::io::stdin().lock().lines() {
            let (line, started) = (line?, Instant::now());
            let (policy, count) = match line.split_once(' ') {
                Some(("revoke", count)) => (Arc::new(Policy::empty()), count.parse()?),
                _ => (echo.clone(), usize::from(SANDBOXES)),
            };
            for tenant in tenants.iter().take(count) {
                let _ = tenant.swap(&policy, limits, Timestamp::now());
            }
            say(started.elapsed().as_micros());
        }
        Ok(())
    });
    run(options, listeners, directory, clock, glovebox::audit::Recorder::none()).await
}
