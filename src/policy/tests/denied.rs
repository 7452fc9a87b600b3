//! The guardrail: every spelling of what is never reached.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;

use super::{class, cluster, compile, host, policy};
use crate::policy::{
    ClusterRanges, DenyReason, Severity, always_denied, check_answer, denied_name, hard_denied,
};

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Every way to write an IPv4 address as an IPv6 one.
fn spellings(address: Ipv4Addr) -> Vec<Ipv6Addr> {
    let bits = u128::from(u32::from(address));
    let at = |prefix: &str, shift: u32| {
        Ipv6Addr::from(u128::from(prefix.parse::<Ipv6Addr>().unwrap()) | bits << shift)
    };
    vec![
        at("::", 0),
        at("::ffff:0:0", 0),
        at("::ffff:0:0:0", 0),
        at("64:ff9b::", 0),
        at("64:ff9b:1::", 0),
        at("64:ff9b:1:ffff::", 0),
        at("2002::", 80),
        at("2001::", 64),
        // Teredo's client address, inverted.
        Ipv6Addr::from(
            u128::from("2001:0:4136:e378:8000:63bf::".parse::<Ipv6Addr>().unwrap()) | (bits ^ 0xffff_ffff),
        ),
        at("2001:db8::5efe:0:0", 0),
        at("2001:db8::200:5efe:0:0", 0),
        at("fe80::5efe:0:0", 0),
        at("fd00:1::5efe:0:0", 0),
    ]
}

#[test]
fn addresses_that_nothing_opens() {
    use DenyReason::*;
    for (address, want) in [
        ("169.254.169.254", MetadataAddress),
        ("169.254.169.253", MetadataAddress),
        ("169.254.170.2", MetadataAddress),
        ("169.254.170.23", MetadataAddress),
        ("169.254.20.10", MetadataAddress),
        ("100.100.100.200", MetadataAddress),
        ("168.63.129.16", MetadataAddress),
        ("192.0.0.192", MetadataAddress),
        ("fd00:ec2::254", MetadataAddress),
        ("fd00:ec2::23", MetadataAddress),
        ("fd20:ce::254", MetadataAddress),
        ("127.0.0.1", LocalAddress),
        ("127.255.255.254", LocalAddress),
        ("0.0.0.0", LocalAddress),
        ("0.1.2.3", LocalAddress),
        ("::", LocalAddress),
        ("::1", LocalAddress),
        ("224.0.0.251", LocalAddress),
        ("255.255.255.255", LocalAddress),
        ("240.0.0.1", LocalAddress),
        ("fe80::1", LocalAddress),
        ("ff02::fb", LocalAddress),
        ("fec0::1", LocalAddress),
        ("100::1", LocalAddress),
        ("4000::1", LocalAddress),
        ("5f00::1", LocalAddress),
        ("192.88.99.1", EmbeddedAddress),
    ] {
        assert_eq!(always_denied(ip(address)), Some(want), "{address}");
        assert_eq!(check_answer(ip(address), &ClusterRanges::default()), Err(want), "{address}");
        assert_eq!(policy(&[]).check_answer(ip(address)), Err(want), "{address}");
    }
    for address in
        ["93.184.216.34", "203.0.113.5", "2606:2800:220:1::1", "2001:db8::1", "10.0.0.1", "fd12::1"]
    {
        assert_eq!(always_denied(ip(address)), None, "{address}");
    }
}

#[test]
fn every_spelling_of_ipv4_in_ipv6() {
    for address in ["169.254.169.254", "10.0.0.1", "127.0.0.1", "93.184.216.34"] {
        for spelling in spellings(address.parse().unwrap()) {
            assert!(always_denied(spelling.into()).is_some(), "{address} as {spelling}");
        }
    }
}

#[test]
fn answers_of_the_cluster_and_of_intranets() {
    let cluster = cluster();
    for (address, want) in [
        ("10.244.3.4", Some(DenyReason::ClusterAddress)),
        ("198.51.100.10", Some(DenyReason::ClusterAddress)),
        ("198.51.100.11", None),
        ("10.1.2.3", Some(DenyReason::PrivateAddress)),
        ("172.16.0.1", Some(DenyReason::PrivateAddress)),
        ("172.32.0.1", None),
        ("192.168.1.1", Some(DenyReason::PrivateAddress)),
        ("100.64.0.1", Some(DenyReason::PrivateAddress)),
        ("fd12::1", Some(DenyReason::PrivateAddress)),
        ("203.0.113.5", None),
    ] {
        assert_eq!(hard_denied(ip(address), &cluster), want, "{address}");
        assert_eq!(check_answer(ip(address), &cluster).err(), want, "{address}");
        assert_eq!(
            check_answer(ip(address), &cluster).ok().map(|ok| ok.address()),
            want.is_none().then(|| ip(address))
        );
    }
}

/// A class opens for answers what its ceiling names: not what lies within something wider.
#[test]
fn a_class_opens_answers_by_name() {
    let wide = compile(&[], &class("ceiling: {cidrs: [0.0.0.0/0, 10.0.0.0/8, 10.244.7.0/24]}")).unwrap();
    let checked = |address: &str| wide.check_answer(ip(address)).err();
    assert_eq!(checked("10.1.2.3"), None);
    assert_eq!(checked("10.244.7.9"), None);
    assert_eq!(checked("10.244.8.9"), Some(DenyReason::ClusterAddress));
    assert_eq!(checked("192.168.1.1"), Some(DenyReason::PrivateAddress));
    assert_eq!(checked("169.254.169.254"), Some(DenyReason::MetadataAddress));
    let denied =
        class("ceiling: {cidrs: [10.0.0.0/8]}, deny: [{cidrs: [10.9.0.0/16, 203.0.113.0/24], reason: no}]");
    let denied = compile(&[], &denied).unwrap();
    assert_eq!(denied.check_answer(ip("10.1.2.3")).err(), None);
    assert_eq!(denied.check_answer(ip("10.9.2.3")).err(), Some(DenyReason::DeniedByClass));
    assert_eq!(denied.check_answer(ip("203.0.113.3")).err(), Some(DenyReason::DeniedByClass));
}

#[test]
fn names_that_nothing_opens() {
    use DenyReason::*;
    for (name, want) in [
        ("metadata.google.internal", Some(MetadataName)),
        ("x.metadata.google.internal", Some(MetadataName)),
        ("google.internal", None),
        ("dns.google", Some(DnsOverHttps)),
        ("DNS.Google.", Some(DnsOverHttps)),
        ("mozilla.cloudflare-dns.com", Some(DnsOverHttps)),
        ("dns10.quad9.net", Some(DnsOverHttps)),
        ("notquad9.net", None),
        ("cloudflare-ech.com", Some(EchPublicName)),
        ("localhost", Some(LocalName)),
        ("a.localhost", Some(LocalName)),
        ("printer.local", Some(LocalName)),
        ("kubernetes.default.svc.cluster.local", Some(ClusterName)),
        ("kubernetes.default.svc", Some(ClusterName)),
        ("8.8.8.8.in-addr.arpa", Some(LocalName)),
        ("google.com", None),
        ("svc.example.com", None),
        ("api.openai.com", None),
    ] {
        assert_eq!(denied_name(&host(name)), want, "{name}");
    }
}

#[test]
fn the_table_of_names_can_be_searched() {
    let names: Vec<_> = super::super::denied::NAMES.iter().map(|(name, _)| *name).collect();
    for pair in names.windows(2) {
        assert!(pair[0] < pair[1], "{pair:?} are not in order");
    }
    for name in names {
        assert_eq!(host(name).as_str(), name, "an entry is spelled as hosts are");
        assert!(denied_name(&host(name)).is_some(), "{name}");
    }
}

#[test]
fn reasons_are_labels_and_help() {
    let mut seen = std::collections::BTreeSet::new();
    for reason in DenyReason::ALL {
        let text = reason.as_str();
        assert!(seen.insert(text) && text.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{text}");
        assert!(reason.to_string().len() > 15 && reason.how_to_ask().len() > 15, "{text}");
    }
    assert_eq!(DenyReason::MetadataAddress.severity(), Severity::C);
    assert!(Severity::N < Severity::S && Severity::S < Severity::C);
}

proptest! {
    #[test]
    fn no_ipv4_hides_in_ipv6(bits: u32) {
        for spelling in spellings(Ipv4Addr::from(bits)) {
            prop_assert!(always_denied(spelling.into()).is_some(), "{spelling}");
        }
    }

    /// The lookup by suffix against a scan.
    #[test]
    fn denied_names_as_a_scan(prefix in "([a-z]{1,3}\\.){0,2}", at in any::<prop::sample::Index>(), junk in "[a-z]{0,1}") {
        let (entry, _) = super::super::denied::NAMES[at.index(super::super::denied::NAMES.len())];
        let name = format!("{prefix}{junk}{entry}");
        let scan = super::super::denied::NAMES.iter().any(|(entry, _)| name == *entry || name.ends_with(&format!(".{entry}")));
        prop_assert_eq!(denied_name(&host(&name)).is_some(), scan, "{}", name);
    }
}
