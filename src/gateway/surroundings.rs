//! What the gateway finds around itself: its own Service's address, and the name servers of its node.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::Path,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, bail};
use k8s_openapi::api::core::v1::Service;
use kube::Api;

use super::{
    clock::Clock,
    config::{Transport, Upstream},
    directory::Directory,
};

/// How often the API server is asked: the answer's age is that of all that is known.
const EVERY: Duration = Duration::from_secs(10);
/// How long an answer may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the API server and the Service may be away at the start: a new cluster brings up both at once.
const PATIENCE: Duration = Duration::from_secs(60);
/// As many as the C library takes.
const MOST_SERVERS: usize = 3;

/// The Service's address, once it has one.
///
/// # Errors
/// When it has none in time.
pub(super) async fn address(services: &Api<Service>, name: &str) -> anyhow::Result<Ipv4Addr> {
    let end = tokio::time::Instant::now() + PATIENCE;
    loop {
        let found = look(services, name).await;
        match found {
            Ok(Some(address)) => return Ok(address),
            _ if tokio::time::Instant::now() < end => {
                tracing::debug!(service = name, "no address yet");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            Ok(None) => bail!("the Service {name:?} does not exist or has no IPv4 address"),
            Err(error) => return Err(error.context(format!("can't read the Service {name:?}"))),
        }
    }
}

/// Ends when the Service has another address: what DNS has told is wrong then, and so is what the fences let through.
///
/// # Errors
/// Always, with what happened.
pub(super) async fn guard(
    services: Api<Service>,
    name: String,
    here: Ipv4Addr,
    directory: Arc<Directory>,
) -> anyhow::Result<()> {
    loop {
        tokio::time::sleep(EVERY).await;
        match look(&services, &name).await {
            Ok(Some(address)) if address == here => directory.heard(Clock::wall()),
            Ok(Some(other)) => bail!("the Service {name:?} moved from {here} to {other}; starting anew"),
            // Gone: whoever removes it may bring it back, and meanwhile nobody can come in.
            Ok(None) => directory.heard(Clock::wall()),
            Err(error) => {
                tracing::warn!(%error, "the API server does not answer; the last known policies hold");
            }
        }
    }
}

async fn look(services: &Api<Service>, name: &str) -> anyhow::Result<Option<Ipv4Addr>> {
    let service =
        tokio::time::timeout(CALL_TIMEOUT, services.get_opt(name)).await.context("no answer in time")??;
    let spec = service.and_then(|service| service.spec);
    let mut addresses =
        spec.iter().flat_map(|spec| spec.cluster_ips.iter().flatten().chain(&spec.cluster_ip));
    Ok(addresses.find_map(|address| address.parse().ok()))
}

/// The name servers of a resolv.conf.
///
/// # Errors
/// When it can't be read or names none by address.
pub(super) fn name_servers(file: &Path) -> anyhow::Result<Vec<Upstream>> {
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("can't read {}; name DNS servers by --upstream", file.display()))?;
    let servers = parse(&text);
    if servers.is_empty() {
        bail!("{} names no name server; name one by --upstream 192.0.2.53:53", file.display());
    }
    Ok(servers)
}

fn parse(text: &str) -> Vec<Upstream> {
    let addresses = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        (words.next() == Some("nameserver")).then(|| words.next()?.parse::<IpAddr>().ok()).flatten()
    });
    let servers = addresses
        .map(|address| Upstream { address: SocketAddr::new(address, 53), transport: Transport::UdpAndTcp });
    servers.take(MOST_SERVERS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_name_servers_as_the_c_library_does() {
        let text = "# a comment\nsearch x.example\nnameserver 192.0.2.53\nnameserver\tnone\n nameserver 2001:db8::53 x\noptions ndots:5\n";
        let addresses: Vec<_> = parse(text).iter().map(|server| server.address.to_string()).collect();
        assert_eq!(addresses, ["192.0.2.53:53", "[2001:db8::53]:53"]);
        assert!(parse("nameserver dns.example\n;nameserver 192.0.2.1\n").is_empty());
    }
}
