//! Address rules: what a sandbox asks for, cut down to what may be granted.
//!
//! Two prefixes are nested or disjoint, never crossing: so a denied range either holds a rule's range (refused) or lies
//! in it (carved out as an exception).

use std::{fmt, net::IpAddr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::bounds::Bounds;
use crate::api::EgressRule;

/// Rules, and where they come from.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// Name of the EgressPolicy; `None` for a sandbox's own rules.
    pub policy: Option<&'a str>,
    /// The rules.
    pub rules: &'a [EgressRule],
}

/// One granted rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressRule {
    /// The rule's name.
    pub name: String,
    /// What it opens.
    pub blocks: Vec<Block>,
    /// TCP ports, ascending.
    pub ports: Vec<u16>,
}

/// A range without the parts that stay denied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// The range.
    pub cidr: IpNet,
    /// Parts of it that stay denied, ascending.
    pub except: Vec<IpNet>,
}

impl Block {
    /// Whether the address is open.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        self.cidr.contains(&address) && !self.except.iter().any(|range| range.contains(&address))
    }
}

/// Why a rule was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The EgressPolicy that it is in; `None` for a sandbox's own.
    pub policy: Option<String>,
    /// The rule's name; empty where the class itself is wrong.
    pub rule: String,
    /// Which field has which value, and what would be right.
    pub why: String,
}

impl Rejection {
    pub(super) fn class(why: String) -> Self {
        Self { policy: None, rule: String::new(), why }
    }

    pub(super) fn of(source: &Source<'_>, rule: &EgressRule, why: String) -> Self {
        Self { policy: source.policy.map(ToOwned::to_owned), rule: rule.name.clone(), why }
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.policy {
            _ if self.rule.is_empty() => f.write_str(&self.why),
            None => write!(f, "spec.egress.allow[{}]: {}", self.rule, self.why),
            Some(policy) => write!(f, "EgressPolicy {policy:?} spec.rules[{}]: {}", self.rule, self.why),
        }
    }
}

impl std::error::Error for Rejection {}

impl AddressRule {
    /// Grants one rule.
    pub(super) fn one(bounds: &Bounds<'_>, rule: &EgressRule) -> Result<Self, String> {
        if rule.cidrs.is_empty() {
            return Err(
                "hosts and cidrs are empty, which means nothing; name what to reach, such as hosts: [api.example.com]"
                    .into(),
            );
        }
        let ports = bounds.ports(rule)?;
        let blocks = rule.cidrs.iter().map(|text| bounds.block(text)).collect::<Result<_, _>>()?;
        Ok(Self { name: rule.name.clone(), blocks, ports })
    }
}

pub(super) fn parse_cidrs(texts: &[String]) -> Result<Vec<IpNet>, String> {
    texts.iter().map(|text| parse_cidr(text)).collect()
}

/// Strict: a range whose host bits are set is likely a mistake, and two readers may read it differently.
pub(super) fn parse_cidr(text: &str) -> Result<IpNet, String> {
    let bad =
        || format!("cidr {text:?} is not an address range; write it like 203.0.113.0/24 or 2001:db8::/32");
    let range: IpNet = match text.parse::<Ipv4Net>() {
        Ok(range) => range.into(),
        Err(_) => text.parse::<Ipv6Net>().map_err(|_| bad())?.into(),
    };
    if range.trunc() == range {
        Ok(range)
    } else {
        Err(format!("cidr {text} has host bits set; write {}", range.trunc()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        api::{Ceiling, ClassEgress, Denial},
        policy::{ClusterRanges, Policy, denied},
    };
    use proptest::prelude::*;
    use std::net::Ipv4Addr;

    fn rule(cidr: &str, port: i32) -> EgressRule {
        EgressRule { name: "r".into(), cidrs: vec![cidr.into()], ports: vec![port], ..EgressRule::default() }
    }

    fn cluster() -> ClusterRanges {
        ClusterRanges::new(
            ["10.244.0.0/16", "10.96.0.0/16", "192.0.2.10/32"].map(|range| range.parse().unwrap()),
        )
    }

    fn ceiling(cidrs: &[&str], ports: &[i32]) -> ClassEgress {
        let cidrs = cidrs.iter().map(ToString::to_string).collect();
        ClassEgress {
            ceiling: Some(Ceiling { cidrs, ports: ports.to_vec(), hosts: Vec::new() }),
            ..ClassEgress::default()
        }
    }

    fn grant(rule: EgressRule, class: &ClassEgress) -> Result<AddressRule, String> {
        Policy::compile(&[Source { policy: None, rules: &[rule] }], class, &cluster())
            .map(|policy| policy.address_rules().remove(0))
            .map_err(|err| err.to_string())
    }

    #[test]
    fn opens_what_is_asked() {
        let granted = grant(rule("203.0.113.0/24", 443), &ClassEgress::default()).unwrap();
        assert_eq!(granted.ports, [443]);
        assert_eq!(granted.blocks, [Block { cidr: "203.0.113.0/24".parse().unwrap(), except: vec![] }]);
    }

    #[test]
    fn carves_out_what_lies_within() {
        let granted = grant(rule("10.0.0.0/8", 443), &ClassEgress::default()).unwrap();
        let except: Vec<_> = granted.blocks[0].except.iter().map(ToString::to_string).collect();
        assert_eq!(except, ["10.96.0.0/16", "10.244.0.0/16"]);
    }

    #[test]
    fn refuses_and_says_why() {
        let open = ClassEgress::default();
        for (cidr, port, word) in [
            ("169.254.169.254/32", 80, "metadata"),
            ("127.0.0.0/8", 443, "loopback"),
            ("::ffff:a9fe:a9fe/128", 443, "IPv4-mapped"),
            ("64:ff9b::a00:1/128", 443, "NAT64"),
            ("fe80::/64", 443, "link-local"),
            ("0.0.0.0/0", 443, "wider than /8"),
            ("::/0", 443, "wider than /16"),
            ("10.244.3.0/24", 443, "cluster's own"),
            ("192.0.2.10/32", 10250, "cluster's own"),
            ("203.0.113.7/24", 443, "write 203.0.113.0/24"),
            ("0x7f.1/32", 443, "not an address range"),
            ("203.0.113.0/24", 25, "no mail"),
            ("203.0.113.0/24", 0, "1-65535"),
            ("203.0.113.0/24", 70_000, "1-65535"),
        ] {
            let why = grant(rule(cidr, port), &open).unwrap_err();
            assert!(why.contains(word) && why.contains("[r]"), "{cidr}: {why}");
        }
        let nothing = EgressRule { cidrs: vec![], ..rule("", 443) };
        assert!(grant(nothing, &open).unwrap_err().contains("cidrs are empty"));
    }

    #[test]
    fn the_ceiling_bounds_and_opens_the_cluster_only_by_name() {
        let wide = ceiling(&["10.0.0.0/8"], &[443]);
        assert!(grant(rule("10.1.0.0/16", 443), &wide).is_ok());
        assert!(grant(rule("10.1.0.0/16", 80), &wide).unwrap_err().contains("ceiling.ports"));
        assert!(grant(rule("203.0.113.0/24", 443), &wide).unwrap_err().contains("ceiling.cidrs"));
        assert!(grant(rule("10.244.1.0/24", 443), &wide).unwrap_err().contains("cluster's own"));
        assert!(grant(rule("10.244.1.0/24", 443), &ceiling(&["10.244.1.0/24"], &[443])).is_ok());
        assert!(
            grant(rule("203.0.113.0/24", 443), &ceiling(&[], &[])).is_err(),
            "an empty ceiling opens nothing"
        );
    }

    #[test]
    fn a_class_can_deny_with_a_reason() {
        let denial = Denial {
            cidrs: vec!["203.0.113.0/24".into()],
            reason: "use the artifact store".into(),
            ..Denial::default()
        };
        let class = ClassEgress { deny: vec![denial], ..ClassEgress::default() };
        assert!(grant(rule("203.0.113.8/32", 443), &class).unwrap_err().contains("artifact store"));
    }

    proptest! {
        /// Whatever is granted, no always-denied or cluster address is in it.
        #[test]
        fn never_opens_what_is_denied(a: u32, prefix in 0_u8..=32, probe: u32) {
            let net = Ipv4Net::new(Ipv4Addr::from(a), prefix).unwrap().trunc();
            if let Ok(granted) = grant(rule(&net.to_string(), 443), &ClassEgress::default()) {
                let inside = Ipv4Addr::from(u32::from(net.network()) | (probe & u32::from(net.hostmask())));
                let block = &granted.blocks[0];
                let open = block.cidr.contains(&IpAddr::V4(inside))
                    && !block.except.iter().any(|except| except.contains(&IpAddr::V4(inside)));
                let denied = denied::RANGES.iter().map(|(range, ..)| *range)
                    .chain(cluster().ranges().iter().copied())
                    .any(|range: IpNet| range.contains(&IpAddr::V4(inside)));
                prop_assert!(!(open && denied), "{inside} is open by {net}");
            }
        }

        /// A denial added never opens more.
        #[test]
        fn denials_are_monotone(a: u32, prefix in 8_u8..=32, b: u32, deny_prefix in 1_u8..=32) {
            let net = Ipv4Net::new(Ipv4Addr::from(a), prefix).unwrap().trunc().to_string();
            let deny = Ipv4Net::new(Ipv4Addr::from(b), deny_prefix).unwrap().trunc();
            let class = ClassEgress { deny: vec![Denial { cidrs: vec![deny.to_string()], reason: "x".into(), ..Denial::default() }], ..ClassEgress::default() };
            let before = grant(rule(&net, 443), &ClassEgress::default());
            if let Ok(after) = grant(rule(&net, 443), &class) {
                let before = before.unwrap();
                for except in &before.blocks[0].except {
                    prop_assert!(after.blocks[0].except.iter().any(|range| range.contains(except)));
                }
            }
        }

        #[test]
        fn never_panics(text in "\\PC{0,60}", port: i32) {
            let _ = grant(rule(&text, port), &ClassEgress::default());
        }
    }
}
