//! Address rules. Lines: a port, then ranges that are asked for; after a line `ceiling`, ranges of the class. Whatever is
//! granted opens nothing that is always denied, and nothing of the cluster unless the class names just that.
#![no_main]

use std::net::IpAddr;

use glovebox::{
    api::{Ceiling, ClassEgress, EgressRule},
    policy::{ClusterRanges, Policy, Source},
};
use ipnet::IpNet;
use libfuzzer_sys::fuzz_target;

/// Addresses that no rule may open, whatever a class says.
const NEVER: &[&str] = &[
    "127.0.0.1",
    "0.0.0.1",
    "169.254.169.254",
    "169.254.0.1",
    "224.0.0.1",
    "255.255.255.255",
    "100.100.100.200",
    "::1",
    "::ffff:169.254.169.254",
    "64:ff9b::a9fe:a9fe",
    "fe80::1",
    "ff02::1",
    "2002:a9fe:a9fe::1",
    "fd00:ec2::254",
];
/// Addresses of the cluster.
const CLUSTER: &[&str] = &["10.244.3.4", "10.96.0.1", "fd10::1"];

fuzz_target!(|input: &str| {
    let (asked, class) =
        input.split_once("\nceiling").map_or((input, None), |(asked, class)| (asked, Some(class)));
    let mut lines = asked.lines();
    let port = lines.next().unwrap_or_default().parse().unwrap_or(443);
    let rule = EgressRule {
        name: "r".into(),
        cidrs: lines.map(ToOwned::to_owned).collect(),
        ports: vec![port],
        ..EgressRule::default()
    };
    let named: Vec<String> =
        class.unwrap_or_default().lines().filter(|line| !line.is_empty()).map(ToOwned::to_owned).collect();
    let ceiling = class.map(|_| Ceiling { cidrs: named.clone(), ports: vec![port], hosts: Vec::new() });
    let cluster = ClusterRanges::new(
        ["10.244.0.0/16", "10.96.0.0/16", "fd10::/64"].map(|range| range.parse().expect("a range")),
    );
    let sources = [Source { policy: None, rules: &[rule] }];
    let Ok(policy) = Policy::compile(&sources, &ClassEgress { ceiling, ..ClassEgress::default() }, &cluster)
    else {
        return;
    };
    let granted = policy.address_rules();
    let opens = |text: &&&str| {
        let address: IpAddr = text.parse().expect("an address");
        granted.iter().flat_map(|rule| &rule.blocks).any(|block| {
            block.cidr.contains(&address) && !block.except.iter().any(|except| except.contains(&address))
        })
    };
    assert_eq!(NEVER.iter().find(opens), None);
    assert!(port > 0 && port < 65_536 && port != 25);
    let within = |named: &String| {
        named.parse::<IpNet>().is_ok_and(|range| cluster.ranges().iter().any(|own| own.contains(&range)))
    };
    if !named.iter().any(within) {
        assert_eq!(CLUSTER.iter().find(opens), None);
    }
});
