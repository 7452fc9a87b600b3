//! Decisions. Lines: host patterns, each a rule with a protocol by its place; after a line `deny`, patterns of the class;
//! after a line `ask`, destinations. What is allowed is what a scan allows, and nothing that is always denied.
#![no_main]

use glovebox::{
    api::{ClassEgress, Denial, EgressRule, Protocol},
    policy::{
        Ask, ClusterRanges, Destination, Pattern, Policy, Shared, Source, Wire, always_denied, denied_name,
    },
};
use jiff::Timestamp;
use libfuzzer_sys::fuzz_target;

const PROTOCOLS: [Protocol; 4] = [Protocol::Tls, Protocol::Https, Protocol::Http, Protocol::Tcp];
const WIRES: [Wire; 4] = [Wire::Tls, Wire::Opened, Wire::Http, Wire::Tcp];
const PORT: u16 = 8443;

fn rules(text: &str) -> Vec<EgressRule> {
    let rule = |(at, line): (usize, &str)| {
        let ports = vec![i32::from(PORT)];
        let name = format!("r{at}");
        match line.strip_prefix("cidr ") {
            Some(cidr) => EgressRule { name, ports, cidrs: vec![cidr.to_owned()], ..EgressRule::default() },
            None => EgressRule {
                name,
                ports,
                hosts: vec![line.to_owned()],
                protocol: Some(PROTOCOLS[at % PROTOCOLS.len()]),
                acknowledge_shared_suffix: Some(true),
                ..EgressRule::default()
            },
        }
    };
    text.lines().enumerate().map(rule).collect()
}

fn compile(rules: &[EgressRule], denied: &[String]) -> Option<Policy> {
    let denial = Denial { hosts: denied.to_vec(), reason: "x".into(), ..Denial::default() };
    let class = ClassEgress {
        deny: if denied.is_empty() { Vec::new() } else { vec![denial] },
        ..ClassEgress::default()
    };
    let cluster =
        ClusterRanges::new(["10.244.0.0/16", "fd10::/64"].map(|range| range.parse().expect("a range")));
    Policy::compile(&[Source { policy: None, rules }], &class, &cluster).ok()
}

fuzz_target!(|input: &str| {
    let (text, asks) = input.split_once("\nask\n").unwrap_or((input, ""));
    let (text, denied) = text.split_once("\ndeny\n").unwrap_or((text, ""));
    let rules = rules(text);
    let denied: Vec<String> = denied.lines().map(ToOwned::to_owned).collect();
    let Some(policy) = compile(&rules, &denied) else { return };
    let open = compile(&rules, &[]).expect("less is denied");
    let now = Timestamp::UNIX_EPOCH;
    for destination in asks.lines().filter_map(|line| Destination::parse(line.as_bytes()).ok()) {
        for wire in WIRES {
            let ask = Ask { destination: &destination, port: PORT, wire, now };
            let Some(rule) = policy.decide(&ask).allowed() else { continue };
            assert!(open.decide(&ask).allowed().is_some(), "a denial allows {destination}");
            assert_eq!(policy.decide(&Ask { port: 25, ..ask }).allowed(), None);
            match &destination {
                Destination::Name(host) => {
                    let fits = |text: &String| {
                        Pattern::parse(text, Shared::Meant).expect("it was compiled").matches(host)
                    };
                    assert!(rules[rule.index].hosts.iter().any(fits));
                    assert!(!denied.iter().any(fits) && denied_name(host).is_none());
                    assert!(policy.knows(host, now).allowed().is_some());
                }
                Destination::Address(address) => {
                    assert_eq!(always_denied(*address), None);
                    assert!(rule.blocks.iter().any(|block| block.contains(*address)));
                }
            }
        }
    }
});
