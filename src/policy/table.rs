//! Compiled rules: what a decision looks things up in. Immutable; a change makes another one.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use jiff::Timestamp;

use super::{
    address::{AddressRule, Block},
    bounds::Opened,
    credential::Credential,
    denied::ClusterRanges,
    host::Host,
    http_path::HttpMatch,
    pattern::{Pattern, PatternMap, Width},
    ranges::RangeMap,
};
use crate::api::Protocol;

/// What one sandbox may reach.
#[derive(Clone, Default)]
pub struct Policy {
    pub(super) rules: Vec<Rule>,
    /// Indices of rules by host pattern.
    pub(super) hosts: PatternMap<usize>,
    /// Rules with address ranges: which, and a range of it.
    pub(super) blocks: RangeMap<(usize, Block)>,
    /// The class's denials, each with what it says.
    pub(super) denied_hosts: PatternMap<Arc<str>>,
    pub(super) denied_ranges: RangeMap<Arc<str>>,
    pub(super) cluster: ClusterRanges,
    pub(super) opened: Opened,
    pub(super) credentials: Arc<[Credential]>,
}

impl Policy {
    /// Denies everything.
    #[must_use]
    pub fn empty() -> Self {
        Self::default()
    }

    /// The compiled rules, in the order in which they were given.
    #[must_use]
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The sandbox's credentials, in the order in which they were given.
    #[must_use]
    pub fn credentials(&self) -> &[Credential] {
        &self.credentials
    }

    /// Every host that a rule with protocol TCP spells out, with the ports of such rules.
    #[must_use]
    pub fn tcp_hosts(&self) -> BTreeMap<Host, BTreeSet<u16>> {
        let mut all = BTreeMap::<Host, BTreeSet<u16>>::new();
        for rule in self.rules.iter().filter(|rule| rule.protocol == Protocol::Tcp) {
            for host in rule.hosts.iter().filter(|pattern| pattern.width() == Width::Exact) {
                all.entry(host.name().clone()).or_default().extend(&rule.ports);
            }
        }
        all
    }

    /// The rules with address ranges, for a NetworkPolicy.
    #[must_use]
    pub fn address_rules(&self) -> Vec<AddressRule> {
        let of_ranges = self.rules.iter().filter(|rule| !rule.blocks.is_empty());
        let granted = of_ranges.map(|rule| AddressRule {
            name: rule.name.to_string(),
            blocks: rule.blocks.clone(),
            ports: rule.ports.clone(),
        });
        granted.collect()
    }
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Policy").field("rules", &self.rules).finish_non_exhaustive()
    }
}

/// A compiled rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// Its name.
    pub name: Arc<str>,
    /// The EgressPolicy that it is in; `None` for a sandbox's own.
    pub policy: Option<Arc<str>>,
    /// Where it is in [`Policy::rules`].
    pub index: usize,
    /// What may be spoken. A rule with address ranges lets any bytes through.
    pub protocol: Protocol,
    /// Which requests are let through; `None` for all.
    pub http: Option<HttpMatch>,
    /// Whether requests may carry no credential but the sandbox's own.
    pub require_brokered: bool,
    /// The most that it may be used.
    pub limits: Limits,
    /// When it ends.
    pub expires_at: Option<Timestamp>,
    /// TCP ports, ascending.
    pub ports: Vec<u16>,
    /// Host patterns; none for a rule with address ranges.
    pub hosts: Vec<Pattern>,
    /// Address ranges; none for a rule with hosts.
    pub blocks: Vec<Block>,
}

impl Rule {
    /// Whether it has ended.
    #[must_use]
    pub fn expired(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|end| end <= now)
    }

    /// Whether it has the port.
    #[must_use]
    pub fn has_port(&self, port: u16) -> bool {
        self.ports.binary_search(&port).is_ok()
    }
}

/// The most that one sandbox may use by one rule; what is `None` has no bound of the rule's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// New connections a second, in the long run.
    pub connections_per_second: Option<u32>,
    /// New connections at once; set wherever `connections_per_second` is.
    pub burst: Option<u32>,
    /// Open connections.
    pub max_connections: Option<u32>,
    /// Bytes a second that are sent out.
    pub upload_bytes_per_second: Option<u64>,
    /// Bytes that are sent out in the sandbox's whole life.
    pub upload_budget: Option<u64>,
}
