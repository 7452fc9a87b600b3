//! Owns the proof of the fence: from inside the pod, what must be unreachable is tried beside what must be reachable.
//!
//! A round proves nothing unless the gateway answered in it: a network that is down closes everything. Must take no
//! answer for more than "something answered", and must never send what could mean something to whoever gets it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, connect, recv, send, socket_with,
    sockopt,
};

use super::args::FenceArgs;
use crate::report::FenceProof;

/// How long a round waits for answers: a network that drops what it forbids gives none.
const ROUND: Duration = Duration::from_millis(500);
/// From a round to the next while the fence is being proven.
const PAUSE: Duration = Duration::from_millis(120);
/// So many rounds in a row must find the fence closed: a policy that is being programmed flickers.
const ROUNDS: u16 = 3;
/// How long the network may take to program its policies. Seen: some seconds, and over 20 on a node of two busy cores that was
/// given a hundred pods at once. Nothing runs meanwhile, so that patience costs no more than a late diagnosis.
const OPEN_LIMIT: Duration = Duration::from_secs(30);
/// DNS response code of a gateway that does not know this pod's address yet (RFC 1035, 4.1.1).
const REFUSED: u8 = 5;

/// What one round saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Round {
    /// Nothing forbidden could be reached, all that must be reachable was.
    Closed,
    /// This could be reached and must not be.
    Open(SocketAddr),
    /// This could not be reached and must be.
    Missing(SocketAddr),
    /// This process could not even try.
    Blind,
}

/// Tries until the fence is proven, or its time is over.
#[must_use]
pub fn prove(fence: &FenceArgs) -> FenceProof {
    let start = Instant::now();
    let mut closed: u16 = 0;
    loop {
        let seen = round(fence);
        closed = if seen == Round::Closed { closed + 1 } else { 0 };
        if closed == ROUNDS {
            return FenceProof { rounds: closed, open: None, missing: None };
        }
        let waited = start.elapsed();
        match seen {
            Round::Open(address) if waited >= OPEN_LIMIT.min(fence.within) => {
                return FenceProof { rounds: 0, open: Some(address.to_string()), missing: None };
            }
            Round::Missing(address) if waited >= fence.within => {
                return FenceProof { rounds: 0, open: None, missing: Some(address.to_string()) };
            }
            Round::Blind if waited >= fence.within => {
                return FenceProof { rounds: 0, open: None, missing: None };
            }
            _ => std::thread::sleep(PAUSE),
        }
    }
}

/// Tries everything once, at the same time.
#[must_use]
pub fn round(fence: &FenceArgs) -> Round {
    let deadline = Instant::now() + ROUND;
    let forbidden = fence.forbidden.iter().map(|address| Attempt::connect(*address, true));
    let gateway = fence.gateway.iter().map(|address| Attempt::connect(*address, false));
    let dns = fence.dns.iter().map(|address| Attempt::ask(*address));
    let mut attempts: Vec<Attempt> = forbidden.chain(gateway).chain(dns).collect();
    wait(&mut attempts, deadline);
    judge(&attempts)
}

fn judge(attempts: &[Attempt]) -> Round {
    if let Some(open) = attempts.iter().find(|one| one.forbidden && one.outcome == Some(Outcome::Reached)) {
        return Round::Open(open.address);
    }
    if attempts.iter().any(|one| one.outcome == Some(Outcome::Blind)) {
        return Round::Blind;
    }
    match attempts.iter().find(|one| !one.forbidden && one.outcome != Some(Outcome::Reached)) {
        Some(missing) => Round::Missing(missing.address),
        None => Round::Closed,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Reached,
    Refused,
    Blind,
}

#[derive(Debug)]
struct Attempt {
    address: SocketAddr,
    forbidden: bool,
    /// The id of the question, for one that asks.
    asks: Option<u16>,
    socket: Option<OwnedFd>,
    /// `None` while nothing was heard.
    outcome: Option<Outcome>,
}

impl Attempt {
    fn connect(address: SocketAddr, forbidden: bool) -> Self {
        let mut attempt = Self { address, forbidden, asks: None, socket: None, outcome: None };
        match open(address, SocketType::STREAM).and_then(|socket| match connect(&socket, &address) {
            Ok(()) => Ok((socket, true)),
            Err(Errno::INPROGRESS) => Ok((socket, false)),
            Err(errno) => Err(errno),
        }) {
            Ok((_, true)) => attempt.outcome = Some(Outcome::Reached),
            Ok((socket, false)) => attempt.socket = Some(socket),
            Err(errno) => attempt.outcome = Some(failed(errno)),
        }
        attempt
    }

    fn ask(address: SocketAddr) -> Self {
        let id = question_id();
        let mut attempt = Self { address, forbidden: false, asks: Some(id), socket: None, outcome: None };
        let any: SocketAddr = match address {
            SocketAddr::V4(_) => (IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0).into(),
            SocketAddr::V6(_) => (IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0).into(),
        };
        let asked = open(address, SocketType::DGRAM).and_then(|socket| {
            bind(&socket, &any)?;
            connect(&socket, &address)?;
            send(&socket, &question(id), SendFlags::NOSIGNAL)?;
            Ok(socket)
        });
        match asked {
            Ok(socket) => attempt.socket = Some(socket),
            Err(errno) => attempt.outcome = Some(failed(errno)),
        }
        attempt
    }

    fn wants(&self) -> PollFlags {
        if self.asks.is_some() { PollFlags::POLLIN } else { PollFlags::POLLOUT }
    }

    /// Reads what became of it, once the kernel says that there is news.
    fn hear(&mut self) {
        let Some(socket) = &self.socket else { return };
        self.outcome = match self.asks {
            Some(id) => answered(socket, id),
            None => match sockopt::socket_error(socket) {
                Ok(Ok(())) => Some(Outcome::Reached),
                Ok(Err(errno)) | Err(errno) => Some(failed(errno)),
            },
        };
        if self.outcome.is_some() {
            self.socket = None;
        }
    }
}

fn open(address: SocketAddr, kind: SocketType) -> rustix::io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    socket_with(family, kind, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)
}

/// What is missing here says nothing of the network: descriptors, memory, local ports, all of which the workload can use up.
fn failed(errno: Errno) -> Outcome {
    match errno {
        Errno::MFILE
        | Errno::NFILE
        | Errno::NOMEM
        | Errno::NOBUFS
        | Errno::AGAIN
        | Errno::ADDRNOTAVAIL
        | Errno::ADDRINUSE => Outcome::Blind,
        _ => Outcome::Refused,
    }
}

fn wait(attempts: &mut [Attempt], deadline: Instant) {
    loop {
        let mut open: Vec<&mut Attempt> = attempts.iter_mut().filter(|one| one.socket.is_some()).collect();
        let left = deadline.saturating_duration_since(Instant::now());
        if open.is_empty() || left.is_zero() {
            return;
        }
        let ready: Vec<bool> = {
            let mut polled: Vec<PollFd<'_>> = open
                .iter()
                .filter_map(|one| one.socket.as_ref().map(|socket| PollFd::new(socket.as_fd(), one.wants())))
                .collect();
            let timeout = PollTimeout::try_from(left.as_millis() + 1).unwrap_or(PollTimeout::MAX);
            // An interrupted or refused wait shows nothing ready, and the deadline still ends this.
            if poll(&mut polled, timeout).is_err() {
                std::thread::sleep(Duration::from_millis(1));
            }
            polled.iter().map(|one| one.any().unwrap_or(false)).collect()
        };
        for (attempt, _) in open.iter_mut().zip(ready).filter(|(_, ready)| *ready) {
            attempt.hear();
        }
    }
}

/// An id that differs from round to round. Nothing is trusted that an answer says, so it need not be secret.
fn question_id() -> u16 {
    let nanos = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.subsec_nanos());
    u16::try_from((nanos >> 7) & 0xffff).unwrap_or(1)
}

/// Asks for an address of `fence.invalid`, a name that cannot exist (RFC 6761).
fn question(id: u16) -> Vec<u8> {
    let mut packet = id.to_be_bytes().to_vec();
    packet.extend([0, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    packet.extend(b"\x05fence\x07invalid\x00");
    packet.extend([0, 1, 0, 1]);
    packet
}

/// Reached, if the answer is one to our question and of somebody who knows us; `None` where it is not.
fn answered(socket: &OwnedFd, id: u16) -> Option<Outcome> {
    let mut packet = [0_u8; 512];
    match recv(socket, &mut packet[..], RecvFlags::empty()) {
        Ok((length, _)) if length >= 12 && packet[..2] == id.to_be_bytes() && packet[2] & 0x80 != 0 => {
            let known = packet[3] & 0x0f != REFUSED;
            Some(if known { Outcome::Reached } else { Outcome::Refused })
        }
        Ok(_) | Err(Errno::AGAIN | Errno::INTR) => None,
        Err(errno) => Some(failed(errno)),
    }
}

#[cfg(test)]
mod tests;
