//! The processes of this program: servers, plain relays, the gateway, load.

use std::{io::BufRead as _, sync::Arc};

use anyhow::{Result, bail};
use glovebox::{
    api::EgressRule,
    audit::Recorder,
    gateway::{
        Listeners,
        clock::Clock,
        directory::Directory,
        tenant::{Identity, Limits, Tenant},
    },
    policy::Policy,
};
use jiff::Timestamp;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, UdpSocket},
};

use super::{
    common::{authority, compile, local, options, plenty, run},
    process::say,
    relay::{echo, relay},
};

/// Rules that are swapped in while connections are made, besides the two that are used: as many as a sandbox may have.
const MANY_RULES: usize = 10_000 - 2;

pub(crate) fn play(role: &[&str]) -> Result<()> {
    // One thread each: what is compared is work, not how it is spread.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        match role {
            ["servers"] => servers().await,
            ["relay", how, port, _] => relay(local(port.parse()?), *how == "splice").await,
            ["echo"] => echo().await,
            ["gateway", backend, dns] => gateway(backend.parse()?, dns.parse()?, Recorder::none()).await,
            ["load", kind, port, host, backend, count] => {
                super::load::run(kind, port.parse()?, host, backend.parse()?, count.parse()?).await
            }
            _ => bail!("no role {role:?}"),
        }
    })
}

/// A server that sends back what it gets, or zeros without end after `Z`; and an authority for every name.
async fn servers() -> Result<()> {
    let listener = TcpListener::bind(local(0)).await?;
    let dns = UdpSocket::bind(local(0)).await?;
    say(format!("{} {}", listener.local_addr()?.port(), dns.local_addr()?.port()));
    tokio::spawn(authority(dns));
    loop {
        let (mut stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(async move {
            let mut buffer = vec![0; 16 * 1024];
            while let Ok(read) = stream.read(&mut buffer).await {
                if read == 0 || stream.write_all(&buffer[..read]).await.is_err() {
                    return;
                }
                if buffer[0] == b'Z' {
                    let zeros = vec![0; 256 * 1024];
                    while stream.write_all(&zeros).await.is_ok() {}
                }
            }
        });
    }
}

/// Two rules that are used, and some more.
fn rules(port: u16, more: usize) -> Result<Vec<EgressRule>> {
    let rule = |index: usize| {
        let wildcard = if index.is_multiple_of(2) { "" } else { "*." };
        let host = format!("{wildcard}host-{index}.example");
        serde_json::json!({"name": format!("more-{index}"), "hosts": [host]})
    };
    let mut rules = vec![
        serde_json::json!({"name": "echo", "hosts": ["echo.example"], "ports": [port], "protocol": "TCP"}),
        serde_json::json!({"name": "tls", "hosts": ["tls.example"], "ports": [port]}),
    ];
    rules.extend((0..more).map(rule));
    Ok(serde_json::from_value(rules.into())?)
}

/// The real one, for one sandbox that is this machine. `revoke` on standard input takes everything back for a moment, `swap`
/// swaps many rules in; each is answered once it is done.
pub(crate) async fn gateway(port: u16, dns: u16, recorder: Recorder) -> Result<()> {
    let options = options(dns, port, Some(1_000_000));
    let listeners = Listeners::bind(&options).await?;
    let at = listeners.addresses()?;
    let (clock, directory) = (Clock::default(), Arc::new(Directory::default()));
    let identity = Identity { uid: "uid".into(), namespace: "bench".into(), name: "bench".into() };
    let limits = Limits {
        connections: 1_000_000,
        new_connections: plenty(),
        queries: plenty(),
        heads: 100_000,
        buffered_bytes: 1 << 30,
        ..Limits::default()
    };
    let tenant = Tenant::new(identity, compile(&rules(port, 0)?)?, limits, clock, Timestamp::now());
    directory.insert(local(0).ip(), &tenant);
    directory.load();
    let (few, many) = (rules(port, 0)?, rules(port, MANY_RULES)?);
    std::thread::spawn(move || -> Result<()> {
        for line in std::io::stdin().lock().lines() {
            let swap = |policy: &Arc<Policy>| tenant.swap(policy, limits, Timestamp::now());
            let closed = if line? == "swap" {
                swap(&compile(&many)?)
            } else {
                swap(&Arc::new(Policy::empty())) + swap(&compile(&few)?)
            };
            say(format!("closed {closed}"));
        }
        Ok(())
    });
    say(format!("{} {}", at.proxy.port(), at.dns_udp.port()));
    run(options, listeners, directory, clock, recorder).await
}
