//! What a class allows at most: its ceiling and its denials, parsed once, and rules held against them.

use ipnet::IpNet;

use super::{
    address::{Block, parse_cidr, parse_cidrs},
    denied::{self, ClusterRanges},
    pattern::{Pattern, PatternMap, Shared},
};
use crate::api::{ClassEgress, EgressRule};

/// The shortest prefixes that a rule may have: shorter ones would be "everything" in other words.
const SHORTEST_V4: u8 = 8;
const SHORTEST_V6: u8 = 16;

/// What a class denies or bounds, parsed.
pub(super) struct Bounds<'a> {
    ceiling: Option<Ceiling<'a>>,
    denied: Vec<(IpNet, String)>,
    pub(super) denials: Vec<ClassDenial<'a>>,
    /// Places in `denials`, by pattern: thousands of rules are held against thousands of denials.
    denied_hosts: PatternMap<usize>,
    cluster: &'a ClusterRanges,
}

struct Ceiling<'a> {
    hosts: PatternMap<()>,
    cidrs: Vec<IpNet>,
    ports: &'a [i32],
}

/// One denial of a class.
pub(super) struct ClassDenial<'a> {
    pub(super) hosts: Vec<Pattern>,
    pub(super) cidrs: Vec<IpNet>,
    pub(super) reason: &'a str,
}

impl<'a> Bounds<'a> {
    pub(super) fn new(class: &'a ClassEgress, cluster: &'a ClusterRanges) -> Result<Self, String> {
        let ceiling = class.ceiling.as_ref().map(|ceiling| {
            let at = |why| format!("the class's egress.ceiling: {why}");
            Ok::<_, String>(Ceiling {
                hosts: set(&patterns(&ceiling.hosts, Shared::Meant).map_err(at)?),
                cidrs: parse_cidrs(&ceiling.cidrs).map_err(at)?,
                ports: &ceiling.ports,
            })
        });
        let denials = class.deny.iter().enumerate().map(|(index, denial)| {
            let at = |why| format!("the class's egress.deny[{index}]: {why}");
            Ok(ClassDenial {
                hosts: patterns(&denial.hosts, Shared::Meant).map_err(at)?,
                cidrs: parse_cidrs(&denial.cidrs).map_err(at)?,
                reason: &denial.reason,
            })
        });
        let denials = denials.collect::<Result<Vec<_>, String>>()?;
        let mut denied_hosts = PatternMap::default();
        for (at, denial) in denials.iter().enumerate() {
            denial.hosts.iter().for_each(|pattern| denied_hosts.add(pattern, at));
        }
        let always = denied::RANGES.iter().map(|(range, _, why)| (*range, format!("always denied: {why}")));
        let by_class = denials.iter().flat_map(|denial: &ClassDenial<'_>| {
            denial.cidrs.iter().map(|range| (*range, format!("denied by the class: {}", denial.reason)))
        });
        let denied = always.chain(by_class).collect();
        Ok(Self { ceiling: ceiling.transpose()?, denied, denials, denied_hosts, cluster })
    }

    /// The rule's ports, ascending.
    pub(super) fn ports(&self, rule: &EgressRule) -> Result<Vec<u16>, String> {
        let mut ports = rule.ports.iter().map(|port| self.port(*port)).collect::<Result<Vec<_>, _>>()?;
        if ports.is_empty() {
            return Err("ports is empty, which means nothing; name them, such as [443]".into());
        }
        ports.sort_unstable();
        ports.dedup();
        Ok(ports)
    }

    fn port(&self, port: i32) -> Result<u16, String> {
        let number = u16::try_from(port)
            .ok()
            .filter(|port| *port > 0)
            .ok_or_else(|| format!("port {port} is not in 1-65535"))?;
        if let Some(why) = denied::denied_port(number) {
            return Err(format!("port {port} is always denied: {why}"));
        }
        match &self.ceiling {
            Some(Ceiling { ports, .. }) if !ports.contains(&port) => {
                Err(format!("port {port} is not in the class's egress.ceiling.ports {ports:?}"))
            }
            _ => Ok(number),
        }
    }

    /// The rule's host patterns.
    pub(super) fn hosts(&self, rule: &EgressRule) -> Result<Vec<Pattern>, String> {
        let shared =
            if rule.acknowledge_shared_suffix == Some(true) { Shared::Meant } else { Shared::Refused };
        let patterns = patterns(&rule.hosts, shared)?;
        patterns.iter().try_for_each(|pattern| self.host(pattern))?;
        Ok(patterns)
    }

    fn host(&self, pattern: &Pattern) -> Result<(), String> {
        if let Some(reason) = denied::denied_name(pattern.name()) {
            return Err(format!("host {pattern}: {reason}"));
        }
        let first = self.denied_hosts.covering(pattern).flatten().min();
        if let Some(denial) = first.and_then(|at| self.denials.get(*at)) {
            return Err(format!("host {pattern} is denied by the class: {}", denial.reason));
        }
        match &self.ceiling {
            Some(ceiling) if ceiling.hosts.covering(pattern).next().is_none() => {
                Err(format!("host {pattern} is not within the class's egress.ceiling.hosts"))
            }
            _ => Ok(()),
        }
    }

    /// One of the rule's ranges, without what stays denied.
    pub(super) fn block(&self, text: &str) -> Result<Block, String> {
        let cidr = parse_cidr(text)?;
        let shortest = if matches!(cidr, IpNet::V4(_)) { SHORTEST_V4 } else { SHORTEST_V6 };
        if cidr.prefix_len() < shortest {
            return Err(format!(
                "cidr {cidr} is wider than /{shortest}; name the ranges that are really needed"
            ));
        }
        if let Some(ceiling) = &self.ceiling
            && !ceiling.cidrs.iter().any(|range| range.contains(&cidr))
        {
            return Err(format!("cidr {cidr} is not within the class's egress.ceiling.cidrs"));
        }
        let mut except = Vec::new();
        for (range, why) in &self.denied {
            if range.contains(&cidr) {
                return Err(format!("cidr {cidr} lies in {range}, {why}"));
            }
            if cidr.contains(range) {
                except.push(*range);
            }
        }
        for range in self.cluster.ranges() {
            if range.contains(&cidr) && !self.opens(range).any(|named| named.contains(&cidr)) {
                return Err(format!(
                    "cidr {cidr} lies in {range}, which is the cluster's own; only a class whose egress.ceiling.cidrs names it may open it"
                ));
            }
            if cidr.contains(range) && cidr != *range {
                except.push(*range);
            }
        }
        Ok(Block { cidr, except: IpNet::aggregate(&except) })
    }

    /// What the class's ceiling says of this very range or a part of it, rather than of something wider around it.
    fn opens(&self, range: &IpNet) -> impl Iterator<Item = &IpNet> {
        let named = self.ceiling.iter().flat_map(|ceiling| &ceiling.cidrs);
        named.filter(move |named| range.contains(*named))
    }

    /// Parts of the cluster, and parts of private ranges, that the class opens by name.
    pub(super) fn opened(&self) -> Opened {
        let named = |closed: &[IpNet]| {
            IpNet::aggregate(&closed.iter().flat_map(|range| self.opens(range)).copied().collect())
        };
        Opened { cluster: named(self.cluster.ranges()), private: named(denied::PRIVATE) }
    }
}

/// What a class opens by name of what is closed to allowed names.
#[derive(Clone, Debug, Default)]
pub(super) struct Opened {
    pub(super) cluster: Vec<IpNet>,
    pub(super) private: Vec<IpNet>,
}

fn set(patterns: &[Pattern]) -> PatternMap<()> {
    let mut set = PatternMap::default();
    for pattern in patterns {
        set.add(pattern, ());
    }
    set
}

fn patterns(texts: &[String], shared: Shared) -> Result<Vec<Pattern>, String> {
    texts.iter().map(|text| Pattern::parse(text, shared)).collect()
}
