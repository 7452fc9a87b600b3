//! Policies as long as they may be: refused with numbers beyond that, and decided as a scan would at any length.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use proptest::prelude::*;

use super::{class, compile, host, rule};
use crate::{
    api::{ClassEgress, EgressRule},
    policy::{Ask, Destination, Host, Pattern, Policy, Shared, Wire, pattern::PatternMap},
};

fn now() -> Timestamp {
    "2027-01-01T00:00:00Z".parse().unwrap()
}

/// Rule `at` of many, each with a name of its own; every third is a wildcard and every seventh a deep one.
fn hosts_of(at: usize) -> String {
    match at {
        at if at % 7 == 0 => format!("**.r{at}.example.com"),
        at if at % 3 == 0 => format!("*.r{at}.example.com"),
        _ => format!("r{at}.example.com"),
    }
}

fn many(count: usize) -> Vec<EgressRule> {
    let template = rule("hosts: []");
    let rule =
        |at: usize| EgressRule { name: format!("r{at}"), hosts: vec![hosts_of(at)], ..template.clone() };
    (0..count).map(rule).collect()
}

fn named(policy: &Policy, name: &Host) -> Option<usize> {
    let destination = Destination::Name(name.clone());
    let ask = Ask { destination: &destination, port: 443, wire: Wire::Tls, now: now() };
    policy.decide(&ask).allowed().map(|rule| rule.index)
}

#[test]
fn ten_thousand_hosts_are_the_most() {
    compile(&many(10_000), &ClassEgress::default()).unwrap();
    let why = compile(&many(10_001), &ClassEgress::default()).unwrap_err().to_string();
    assert!(why.contains("allow[r10000]") && why.contains("10001 host patterns, at most 10000"), "{why}");
    // As the definitions admit them: 64 rules in each of 16 policies and in the sandbox itself, of 64 hosts each.
    let rules: Vec<_> = (0..64)
        .map(|at| EgressRule {
            name: format!("r{at}"),
            hosts: (0..64).map(|of| format!("h{of}.r{at}.example.com")).collect(),
            ..rule("hosts: []")
        })
        .collect();
    let names: Vec<String> = (0..16).map(|at| format!("p{at}")).collect();
    let inline = [crate::policy::Source { policy: None, rules: &rules }];
    let named = names.iter().map(|name| crate::policy::Source { policy: Some(name), rules: &rules });
    let sources: Vec<_> = inline.into_iter().chain(named).collect();
    let compiled = Policy::compile(&sources, &ClassEgress::default(), &super::cluster());
    let why = compiled.unwrap_err().to_string();
    assert!(why.contains("EgressPolicy \"p1\"") && why.contains("host patterns, at most 10000"), "{why}");
}

/// The longest policy under the longest class: 256 hosts of a ceiling, 64 denials of 64 hosts. Held against each other one by
/// one, these would be 43 million comparisons; a lookup takes as many steps as a name has labels. The bound is far above what
/// a busy machine needs for the latter.
#[test]
fn the_longest_policy_is_compiled_in_a_moment() {
    let list =
        |hosts: Vec<String>| hosts.iter().map(|host| format!("\"{host}\"")).collect::<Vec<_>>().join(", ");
    let ceiling =
        list((0..255).map(|at| format!("**.c{at}.example.net")).chain(["**.example.com".into()]).collect());
    let deny = (0..64).map(|at| {
        format!(
            "{{hosts: [{}], reason: r}}",
            list((0..64).map(|of| format!("**.d{of}.d{at}.example.com")).collect())
        )
    });
    let bounds = format!(
        "ceiling: {{hosts: [{ceiling}], ports: [443]}}, deny: [{}]",
        deny.collect::<Vec<_>>().join(", ")
    );
    let bounds = class(&bounds);
    let rules = many(10_000);
    let started = Instant::now();
    let policy = compile(&rules, &bounds).unwrap();
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    assert_eq!(policy.rules().len(), 10_000);
}

/// A list in which one name stands ten thousand times costs no more than one with as many names.
#[test]
fn the_same_host_in_every_rule() {
    let rules: Vec<_> = (0..10_000)
        .map(|at| EgressRule { name: format!("r{at}"), ..rule("hosts: [same.example.com]") })
        .collect();
    let policy = compile(&rules, &ClassEgress::default()).unwrap();
    assert_eq!(named(&policy, &host("same.example.com")), Some(0));
}

fn pattern() -> impl Strategy<Value = String> {
    "(\\*{1,2}\\.)?([abc]\\.){1,4}example"
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    /// Thousands of rules that overlap, and the simple specification: of the patterns that match, the most specific one, and
    /// of its rules the first.
    #[test]
    fn thousands_of_rules_are_decided_as_a_scan(
        patterns in prop::collection::vec(pattern(), 2_000..4_000),
        names in prop::collection::vec("([abc]\\.){0,6}example", 50),
    ) {
        let template = rule("hosts: []");
        let rules: Vec<_> = patterns
            .iter()
            .enumerate()
            .map(|(at, pattern)| EgressRule { name: format!("r{at}"), hosts: vec![pattern.clone()], ..template.clone() })
            .collect();
        let policy = compile(&rules, &ClassEgress::default()).unwrap();
        for name in names.iter().filter(|name| name.contains('.')) {
            let ranked = patterns.iter().enumerate().filter_map(|(at, pattern)| Some((super::decide::rank(pattern, name)?, at)));
            prop_assert_eq!(named(&policy, &host(name)), ranked.min().map(|(_, at)| at), "{}", name);
        }
    }

    /// What covers a pattern is found by lookups as by a scan.
    #[test]
    fn covers_as_a_scan(bounds in prop::collection::vec(pattern(), 0..200), asked in prop::collection::vec(pattern(), 50)) {
        let parse = |text: &String| Pattern::parse(text, Shared::Meant).unwrap();
        let bounds: Vec<_> = bounds.iter().map(parse).collect();
        let mut map = PatternMap::default();
        bounds.iter().enumerate().for_each(|(at, bound)| map.add(bound, at));
        for asked in asked.iter().map(parse) {
            let mut found: Vec<usize> = map.covering(&asked).flatten().copied().collect();
            found.sort_unstable();
            let scan: Vec<usize> = (0..bounds.len()).filter(|at| bounds[*at].covers(&asked)).collect();
            prop_assert_eq!(found, scan, "{}", asked);
        }
    }
}
