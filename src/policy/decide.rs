//! The decision: guardrail, then the class's denials, then rules, then no. It allocates nothing and looks nothing up
//! outside of its policy.
//!
//! Where several rules match a host and port, those of the most specific pattern speak for it: a narrow rule that has its
//! requests looked at is not undone by a wide one that passes TLS through.

use std::net::IpAddr;

use jiff::Timestamp;

use super::{
    denied::{self, Checked},
    host::{Destination, Host},
    table::{Policy, Rule},
    verdict::{Denial, DenyReason, Verdict},
};
use crate::api::Protocol;

/// What the bytes of a connection are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Wire {
    /// TLS, to be passed through unopened.
    Tls,
    /// HTTP without encryption.
    Http,
    /// Any bytes.
    Tcp,
    /// TLS that the gateway has opened or will open, with HTTP in it.
    Opened,
}

/// A connection that somebody wants.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// Where to.
    pub destination: &'a Destination,
    /// The port there.
    pub port: u16,
    /// What the bytes are.
    pub wire: Wire,
    /// When.
    pub now: Timestamp,
}

impl Policy {
    /// Judges a connection. TLS to a host of a rule with protocol HTTPS is refused with
    /// [`DenyReason::MustBeOpened`]; ask again with [`Wire::Opened`], and then [`Self::decide_request`] for each request.
    #[must_use]
    pub fn decide(&self, ask: &Ask<'_>) -> Verdict<'_> {
        if denied::denied_port(ask.port).is_some() {
            return Verdict::Deny(Denial::new(DenyReason::DeniedPort));
        }
        match ask.destination {
            Destination::Address(address) => self.address(*address, ask),
            Destination::Name(host) => match self.speaking(host, ask) {
                Ok(level) => level.connection(ask.wire),
                Err(denial) => Verdict::Deny(denial),
            },
        }
    }

    /// Judges one request on a connection that was allowed: whichever of the rules that speak for the host permits it.
    #[must_use]
    pub fn decide_request(&self, ask: &Ask<'_>, method: &str, path: &str) -> Verdict<'_> {
        let first = match self.decide(ask) {
            Verdict::Allow(rule) => rule,
            denied @ Verdict::Deny(_) => return denied,
        };
        let Destination::Name(host) = ask.destination else { return Verdict::Allow(first) };
        let Ok(level) = self.speaking(host, ask) else {
            return Verdict::Deny(Denial::new(DenyReason::NoRule));
        };
        let rules = level.rules().filter(|rule| rule.protocol == first.protocol);
        let permits = |rule: &&Rule| rule.http.as_ref().is_none_or(|http| http.permits(method, path));
        // Of those that permit it, one that lets no credential of the workload's through goes first.
        let (mut found, mut unclear) = (None::<&Rule>, false);
        for rule in rules {
            if permits(&rule) && found.is_none_or(|found| rule.require_brokered && !found.require_brokered) {
                found = Some(rule);
            }
            // What one server reads as a place of such a rule is not let through by another one.
            unclear |=
                rule.require_brokered && rule.http.as_ref().is_some_and(|http| http.is_ambiguous(path));
        }
        if let Some(rule) = found.filter(|rule| rule.require_brokered || !unclear) {
            return Verdict::Allow(rule);
        }
        let ambiguous = unclear || first.http.as_ref().is_some_and(|http| http.is_ambiguous(path));
        let reason = if ambiguous { DenyReason::AmbiguousPath } else { DenyReason::RequestNotAllowed };
        Verdict::Deny(Denial::by(reason, first))
    }

    /// Whether a name may be asked for, at any port.
    #[must_use]
    pub fn knows(&self, host: &Host, now: Timestamp) -> Verdict<'_> {
        if let Some(denial) = self.denied(host) {
            return Verdict::Deny(denial);
        }
        let mut expired = None;
        for rule in self.hosts.matching(host).flatten().filter_map(|index| self.rules.get(*index)) {
            if !rule.expired(now) {
                return Verdict::Allow(rule);
            }
            expired.get_or_insert(rule);
        }
        Verdict::Deny(match expired {
            Some(rule) => Denial::by(DenyReason::RuleExpired, rule),
            None => Denial::new(DenyReason::NoRule),
        })
    }

    /// Ports at which any bytes may be sent to a host that rules spell out: not below a wildcard, and not what has ended.
    pub fn tcp_ports(&self, host: &Host, now: Timestamp) -> impl Iterator<Item = u16> {
        let exact = self.hosts.exact(host).iter().filter_map(|index| self.rules.get(*index));
        let tcp = exact.filter(move |rule| rule.protocol == Protocol::Tcp && !rule.expired(now));
        tcp.flat_map(|rule| rule.ports.iter().copied())
    }

    /// Checks one answer of a resolver for an allowed name. Private and cluster addresses are for classes whose ceiling
    /// names them.
    ///
    /// # Errors
    /// Why the address may not be dialled.
    pub fn check_answer(&self, address: IpAddr) -> Result<Checked, DenyReason> {
        if self.denied_ranges.holding(address).next().is_some() {
            return Err(DenyReason::DeniedByClass);
        }
        let (reason, opened) = match denied::hard_denied(address, &self.cluster) {
            None => return Ok(Checked::new(address)),
            Some(reason @ DenyReason::ClusterAddress) => (reason, &self.opened.cluster),
            Some(reason @ DenyReason::PrivateAddress) => (reason, &self.opened.private),
            Some(reason) => return Err(reason),
        };
        let open = opened.iter().any(|range| range.contains(&address));
        open.then(|| Checked::new(address)).ok_or(reason)
    }

    fn address(&self, address: IpAddr, ask: &Ask<'_>) -> Verdict<'_> {
        if let Some(reason) = denied::always_denied(address) {
            return Verdict::Deny(Denial::new(reason));
        }
        if let Some(words) = self.denied_ranges.holding(address).next() {
            return Verdict::Deny(Denial { words: Some(words), ..Denial::new(DenyReason::DeniedByClass) });
        }
        let open = self.blocks.holding(address).filter(|(_, block)| block.contains(address));
        let mut near = None;
        for rule in open.filter_map(|(index, _)| self.rules.get(*index)) {
            // Nothing of an address can be opened: there is no name to open it for.
            match (rule.has_port(ask.port), ask.wire) {
                (true, Wire::Tls | Wire::Http | Wire::Tcp) => return Verdict::Allow(rule),
                (true, Wire::Opened) => near = Some(Denial::by(DenyReason::ProtocolMismatch, rule)),
                (false, _) => _ = near.get_or_insert_with(|| Denial::by(DenyReason::PortNotAllowed, rule)),
            }
        }
        let cluster = self.cluster.holding(address).map(|_| Denial::new(DenyReason::ClusterAddress));
        Verdict::Deny(near.or(cluster).unwrap_or_else(|| Denial::new(DenyReason::AddressLiteral)))
    }

    /// Guardrail and class.
    fn denied(&self, host: &Host) -> Option<Denial<'_>> {
        if let Some(reason) = denied::denied_name(host) {
            return Some(Denial::new(reason));
        }
        let words = self.denied_hosts.matching(host).flatten().next()?;
        Some(Denial { words: Some(words), ..Denial::new(DenyReason::DeniedByClass) })
    }

    /// The rules that speak for a host and port.
    fn speaking<'p>(&'p self, host: &Host, ask: &Ask<'_>) -> Result<Level<'p>, Denial<'p>> {
        if let Some(denial) = self.denied(host) {
            return Err(denial);
        }
        let (mut expired, mut elsewhere) = (None, None);
        for indices in self.hosts.matching(host) {
            let level = Level { policy: self, indices, port: ask.port, now: ask.now };
            if level.rules().next().is_some() {
                return Ok(level);
            }
            for rule in indices.iter().filter_map(|index| self.rules.get(*index)) {
                let slot = if rule.has_port(ask.port) { &mut expired } else { &mut elsewhere };
                slot.get_or_insert(rule);
            }
        }
        Err(match (expired, elsewhere) {
            (Some(rule), _) => Denial::by(DenyReason::RuleExpired, rule),
            (None, Some(rule)) if rule.expired(ask.now) => Denial::by(DenyReason::RuleExpired, rule),
            (None, Some(rule)) => Denial::by(DenyReason::PortNotAllowed, rule),
            (None, None) => Denial::new(DenyReason::NoRule),
        })
    }
}

/// The rules of one pattern that have the port and have not ended.
struct Level<'p> {
    policy: &'p Policy,
    indices: &'p [usize],
    port: u16,
    now: Timestamp,
}

impl<'p> Level<'p> {
    fn rules(&self) -> impl Iterator<Item = &'p Rule> {
        let (policy, port, now) = (self.policy, self.port, self.now);
        let rules = self.indices.iter().filter_map(move |index| policy.rules.get(*index));
        rules.filter(move |rule| rule.has_port(port) && !rule.expired(now))
    }

    fn first(&self, protocol: Protocol) -> Option<&'p Rule> {
        self.rules().find(|rule| rule.protocol == protocol)
    }

    /// Of several rules, the one that looks closest counts.
    fn connection(&self, wire: Wire) -> Verdict<'p> {
        let found = match wire {
            Wire::Tls => match self.first(Protocol::Https) {
                Some(rule) => return Verdict::Deny(Denial::by(DenyReason::MustBeOpened, rule)),
                None => self.first(Protocol::Tls).or_else(|| self.first(Protocol::Tcp)),
            },
            Wire::Http => self.first(Protocol::Http).or_else(|| self.first(Protocol::Tcp)),
            Wire::Tcp => self.first(Protocol::Tcp),
            Wire::Opened => self.first(Protocol::Https),
        };
        let mismatch = |rule| Verdict::Deny(Denial::by(DenyReason::ProtocolMismatch, rule));
        match (found, self.rules().next()) {
            (Some(rule), _) => Verdict::Allow(rule),
            (None, Some(rule)) => mismatch(rule),
            (None, None) => Verdict::Deny(Denial::new(DenyReason::NoRule)),
        }
    }
}
