//! The DNS entry: packets by UDP and TCP, for known sandboxes, answered from policy alone.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpStream, UdpSocket},
    time::timeout,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    admit::{Gateway, Visit},
    asks,
    clock::Clock,
    dns::{self, Known, Outcome},
    entry::Entry,
    reason::{Reason, Refusal, Trouble},
    tenant::Tenant,
};
use crate::policy::{DenyReason, Verdict};

/// Longest query that is read. A question has at most 255 + 16 bytes; the rest is options.
const MOST_QUERY: usize = 4096;
/// Queries on one TCP connection.
const MOST_QUERIES: usize = 1000;
/// Packets that are answered before another task has its turn.
const TURN: usize = 32;
const UDP: usize = 1232;
const TCP: usize = 65535;

/// Answers packets until `stop`.
pub(super) async fn udp(
    gateway: Arc<Gateway>,
    socket: Arc<UdpSocket>,
    here: Ipv4Addr,
    stop: CancellationToken,
    tasks: TaskTracker,
) {
    let mut buffer = [0_u8; MOST_QUERY];
    let mut stopped = std::pin::pin!(stop.cancelled());
    loop {
        tokio::select! {
            biased;
            () = &mut stopped => return,
            _ = socket.readable() => {}
        }
        let mut left = TURN;
        let ended = loop {
            match socket.try_recv_from(&mut buffer) {
                Ok((length, peer)) => {
                    let packet = buffer.get(..length).unwrap_or_default();
                    answer_to(&gateway, &socket, &tasks, here, packet, peer);
                }
                Err(error) => break Some(error.kind()),
            }
            left -= 1;
            if left == 0 {
                break None;
            }
        };
        match ended {
            None => tokio::task::yield_now().await,
            Some(io::ErrorKind::WouldBlock) => {}
            // An ICMP error of an earlier answer, or no memory for a moment.
            Some(_) => tokio::time::sleep(Duration::from_millis(1)).await,
        }
    }
}

/// Answers one packet. Only sources that are not known yet are waited for, in tasks of their own.
fn answer_to(
    gateway: &Arc<Gateway>,
    socket: &Arc<UdpSocket>,
    tasks: &TaskTracker,
    here: Ipv4Addr,
    packet: &[u8],
    peer: SocketAddr,
) {
    let source = peer.ip().to_canonical();
    if let Some(tenant) = gateway.directory.find(source) {
        if let Some(reply) = answer(gateway, Some(&tenant), source, here, packet, UDP) {
            // A lost answer is asked for again; waiting for a slow reader would hold up the others.
            let _ = socket.try_send_to(&reply, peer);
        }
        return;
    }
    let (gateway, socket, packet) = (gateway.clone(), socket.clone(), packet.to_vec());
    tasks.spawn(async move {
        let tenant = gateway.directory.hold(source, gateway.timing.hold).await;
        if let Some(reply) = answer(&gateway, tenant.as_deref(), source, here, &packet, UDP) {
            let _ = socket.try_send_to(&reply, peer);
        }
    });
}

/// Answers on one connection, one query after the other.
pub(super) async fn tcp(gateway: Arc<Gateway>, mut client: TcpStream, source: IpAddr, here: Ipv4Addr) {
    let visit = match Visit::enter(gateway.clone(), source, Entry::Dns).await {
        Ok(visit) => Some(visit),
        Err(turned) if turned.reason == Reason::Gateway(Trouble::UnknownSource) => None,
        Err(_) => return,
    };
    let tenant = visit.as_ref().map(|visit| &*visit.tenant);
    for _ in 0..MOST_QUERIES {
        let exchanged = async {
            let length = usize::from(client.read_u16().await.ok()?);
            let mut packet = vec![0; Some(length).filter(|length| *length <= MOST_QUERY)?];
            client.read_exact(&mut packet).await.ok()?;
            // The sandbox may have gone, and its address been given to another.
            let same = gateway.directory.find(source);
            let still =
                tenant.filter(|tenant| same.is_some_and(|same| std::ptr::eq(Arc::as_ptr(&same), *tenant)));
            let reply = answer(&gateway, still, source, here, &packet, TCP)?;
            let mut framed = u16::try_from(reply.len()).ok()?.to_be_bytes().to_vec();
            framed.extend(reply);
            client.write_all(&framed).await.ok()
        };
        match timeout(gateway.timing.dns_idle, exchanged).await {
            Ok(Some(())) if tenant.is_some() => {}
            _ => return,
        }
    }
}

fn answer(
    gateway: &Gateway,
    tenant: Option<&Tenant>,
    source: IpAddr,
    here: Ipv4Addr,
    packet: &[u8],
    most: usize,
) -> Option<Vec<u8>> {
    let known = |name: dns::Named| {
        let Some(tenant) = tenant else {
            gateway.refuse(None, source, Entry::Dns, &Refusal::raw(Trouble::UnknownSource, b"", 0));
            return Known::Refused;
        };
        if tenant.queries.one(|| gateway.clock.now()) {
            of(gateway, tenant, source, here, name)
        } else {
            Known::Refused
        }
    };
    let (reply, outcome): (Vec<u8>, Outcome) = dns::answer(packet, most, known)?;
    gateway.metrics.query(outcome);
    Some(reply)
}

fn of(gateway: &Gateway, tenant: &Tenant, source: IpAddr, here: Ipv4Addr, name: dns::Named) -> Known {
    let denied = |refusal: Refusal| {
        let refusal = tenant.asks.reword(refusal);
        gateway.refuse(Some(tenant), source, Entry::Dns, &refusal);
        let reason = refusal.reason;
        Known::Denied([reason.as_str(), ": ", reason.words(), "; ", reason.how_to_ask()].concat())
    };
    let host = match name {
        Ok(host) => host,
        Err((error, bytes)) => return denied(Refusal::raw(DenyReason::from(error), &bytes, 0)),
    };
    if tenant.watch.is_shut() {
        return denied(Refusal::raw(Trouble::Suspected, host.as_str().as_bytes(), 0));
    }
    let (terms, now) = (tenant.terms(), Clock::wall());
    let verdict = terms.policy.knows(&host, now);
    let noise = verdict.denied().is_some_and(|denial| Reason::Policy(denial.reason).is_noise());
    if !noise {
        tenant.watch.asked(gateway.clock.now(), host.as_str(), verdict.denied().is_some());
    }
    let known = match verdict {
        Verdict::Allow(rule) if !tenant.admits(rule, &host) => denied(Refusal {
            rule: Some(rule.name.clone()),
            policy: rule.policy.clone(),
            ..Refusal::raw(Trouble::TooManyNames, host.as_str().as_bytes(), 0)
        }),
        Verdict::Allow(_) => {
            gateway.metrics.allowed(Entry::Dns);
            let ports = || terms.policy.tcp_ports(&host, now).collect();
            Known::Here(gateway.directory.service_of(&host, ports).unwrap_or(here))
        }
        Verdict::Deny(denial) => {
            // What is only looked up is asked for where most is: at the port of TLS.
            if asks::is_unmatched(denial.reason.into()) && tenant.asks.note(host.as_str(), 443, now) {
                tenant.watch.tell();
            }
            denied(Refusal::raw(denial.reason, host.as_str().as_bytes(), 0).by(&denial))
        }
    };
    gateway.directory.heed(tenant);
    known
}
