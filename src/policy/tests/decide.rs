//! Decisions: by table, and against a scan over the rules as they are written.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use proptest::{collection::vec, option, prelude::*, sample::select};

use super::{class, compile, host, policy};
use crate::{
    api::{ClassEgress, Denial, EgressRule, Protocol},
    policy::{Ask, DenyReason, Destination, Policy, Verdict, Wire},
};

fn now() -> Timestamp {
    "2027-01-01T00:00:00Z".parse().unwrap()
}

fn ask<'a>(destination: &'a Destination, port: u16, wire: Wire) -> Ask<'a> {
    Ask { destination, port, wire, now: now() }
}

/// The rule's name, or the reason.
fn say(verdict: Verdict<'_>) -> String {
    match verdict {
        Verdict::Allow(rule) => rule.name.to_string(),
        Verdict::Deny(denial) => denial.reason.as_str().to_owned(),
    }
}

fn asked(policy: &Policy, there: &str, port: u16, wire: Wire) -> String {
    say(policy.decide(&ask(&Destination::parse(there.as_bytes()).unwrap(), port, wire)))
}

#[test]
fn nothing_is_allowed_by_silence() {
    for there in ["example.com", "203.0.113.1", "[2001:db8::1]"] {
        for wire in [Wire::Tls, Wire::Http, Wire::Tcp, Wire::Opened] {
            let reason = if there.contains("example") { "NoRule" } else { "AddressLiteral" };
            assert_eq!(asked(&Policy::empty(), there, 443, wire), reason);
        }
    }
    assert_eq!(say(Policy::empty().knows(&host("example.com"), now())), "NoRule");
}

#[test]
fn the_protocol_is_part_of_the_rule() {
    let policy = policy(&[
        "name: tls, hosts: [tls.example.com]",
        "name: https, hosts: [https.example.com], protocol: HTTPS",
        "name: http, hosts: [http.example.com], protocol: HTTP, ports: [80]",
        "name: tcp, hosts: [tcp.example.com], protocol: TCP, ports: [5432]",
        "name: range, cidrs: [203.0.113.0/24]",
    ]);
    let (mismatch, open) = ("ProtocolMismatch", "MustBeOpened");
    for (there, port, want) in [
        ("tls.example.com", 443, ["tls", mismatch, mismatch, mismatch]),
        ("https.example.com", 443, [open, mismatch, mismatch, "https"]),
        ("http.example.com", 80, [mismatch, "http", mismatch, mismatch]),
        ("tcp.example.com", 5432, ["tcp", "tcp", "tcp", mismatch]),
        ("203.0.113.9", 443, ["range", "range", "range", mismatch]),
        ("tls.example.com", 22, ["PortNotAllowed"; 4]),
        ("203.0.113.9", 22, ["PortNotAllowed"; 4]),
        ("203.0.114.9", 443, ["AddressLiteral"; 4]),
        ("10.244.0.9", 443, ["ClusterAddress"; 4]),
        ("[::ffff:203.0.113.9]", 443, ["EmbeddedAddress"; 4]),
        ("169.254.169.254", 80, ["MetadataAddress"; 4]),
        ("other.example.com", 443, ["NoRule"; 4]),
        ("tls.example.com", 25, ["DeniedPort"; 4]),
        ("tls.example.com", 853, ["DeniedPort"; 4]),
        ("dns.google", 443, ["DnsOverHttps"; 4]),
    ] {
        let got =
            [Wire::Tls, Wire::Http, Wire::Tcp, Wire::Opened].map(|wire| asked(&policy, there, port, wire));
        assert_eq!(got, want, "{there}:{port}");
    }
}

/// Nobody's wildcard reaches what the guardrail or the class denies.
#[test]
fn denials_come_first() {
    let rules = [super::rule("name: all, hosts: [\"**.umbrella.com\", \"**.example.com\"]")];
    let bounds = class("deny: [{hosts: [\"*.bad.example.com\"], reason: use the artifact store}]");
    let policy = compile(&rules, &bounds).unwrap();
    assert_eq!(asked(&policy, "www.umbrella.com", 443, Wire::Tls), "all");
    assert_eq!(asked(&policy, "doh.umbrella.com", 443, Wire::Tls), "DnsOverHttps");
    assert_eq!(asked(&policy, "a.doh.umbrella.com", 443, Wire::Tls), "DnsOverHttps");
    assert_eq!(asked(&policy, "bad.example.com", 443, Wire::Tls), "all");
    assert_eq!(asked(&policy, "x.bad.example.com", 443, Wire::Tls), "DeniedByClass");
    let denial = policy.knows(&host("x.bad.example.com"), now()).denied().unwrap();
    assert_eq!((denial.reason, denial.words), (DenyReason::DeniedByClass, Some("use the artifact store")));
    assert!(denial.to_string().ends_with("use the artifact store"), "{denial}");
}

#[test]
fn an_expired_rule_is_not_there() {
    let policy = policy(&[
        "name: short, hosts: [a.example.com], expiresAt: \"2027-01-01T00:00:00Z\"",
        "name: long, hosts: [b.example.com], expiresAt: \"2027-01-01T00:00:01Z\"",
        "name: wide, hosts: [\"*.other.example\"]",
        "name: narrow, hosts: [a.other.example], expiresAt: \"2026-01-01T00:00:00Z\"",
    ]);
    assert_eq!(asked(&policy, "a.example.com", 443, Wire::Tls), "RuleExpired");
    assert_eq!(asked(&policy, "b.example.com", 443, Wire::Tls), "long");
    assert_eq!(asked(&policy, "a.other.example", 443, Wire::Tls), "wide");
    assert_eq!(say(policy.knows(&host("a.example.com"), now())), "RuleExpired");
    assert_eq!(say(policy.knows(&host("b.example.com"), now())), "long");
    let denial = policy.knows(&host("a.example.com"), now()).denied().unwrap();
    assert!(
        denial.to_string().contains("\"short\"") && denial.how_to_ask().contains("expiresAt"),
        "{denial}"
    );
}

/// A narrow rule whose requests are seen is not undone by a wide one that sees nothing.
#[test]
fn the_most_specific_pattern_speaks() {
    let policy = policy(&[
        "name: wide, hosts: [\"**.example.com\"], ports: [443, 8443]",
        "name: one, hosts: [\"*.example.com\"], protocol: HTTPS, http: {methods: [GET]}",
        "name: exact, hosts: [up.example.com], protocol: TCP",
    ]);
    assert_eq!(asked(&policy, "a.b.example.com", 443, Wire::Tls), "wide");
    assert_eq!(asked(&policy, "a.example.com", 443, Wire::Tls), "MustBeOpened");
    assert_eq!(asked(&policy, "a.example.com", 443, Wire::Opened), "one");
    assert_eq!(asked(&policy, "a.example.com", 8443, Wire::Tls), "wide");
    assert_eq!(asked(&policy, "up.example.com", 443, Wire::Tls), "exact");
}

/// Ports at which a host gets any bytes: where the name itself is spelled out, and for as long.
#[test]
fn tcp_ports_are_those_of_names_that_are_spelled_out() {
    let ended = (now() - SignedDuration::from_secs(1)).to_string();
    let policy = policy(&[
        "name: db, hosts: [db.example.com, DB2.example.com], protocol: TCP, ports: [5432, 443]",
        "name: more, hosts: [db.example.com], protocol: TCP, ports: [5433]",
        "name: web, hosts: [db.example.com, web.example.com], ports: [8443]",
        "name: wild, hosts: [\"*.example.com\", \"**.example.org\"], protocol: TCP, ports: [22]",
        "name: range, cidrs: [203.0.113.0/24], ports: [6379]",
        &format!(
            "name: ended, hosts: [db.example.com, old.example.com], protocol: TCP, ports: [6000], expiresAt: \"{ended}\""
        ),
    ]);
    for (there, want) in [
        ("db.example.com", &[443, 5432, 5433][..]),
        ("db2.example.com", &[443, 5432]),
        ("web.example.com", &[]),
        ("a.example.com", &[]),
        ("old.example.com", &[]),
        ("example.com", &[]),
    ] {
        let mut ports: Vec<u16> = policy.tcp_ports(&host(there), now()).collect();
        ports.sort_unstable();
        assert_eq!(ports, want, "{there}");
        assert!(ports.iter().all(|port| {
            policy.decide(&ask(&Destination::Name(host(there)), *port, Wire::Tcp)).allowed().is_some()
        }));
    }
    let hosts: Vec<String> =
        policy.tcp_hosts().iter().map(|(host, ports)| format!("{host} {ports:?}")).collect();
    assert_eq!(
        hosts,
        ["db.example.com {443, 5432, 5433, 6000}", "db2.example.com {443, 5432}", "old.example.com {6000}"]
    );
}

#[test]
fn each_request_is_judged_by_all_rules_that_speak() {
    let policy = policy(&[
        "name: read, hosts: [api.example.com], protocol: HTTPS, http: {methods: [GET], paths: [/repos/**]}",
        "name: write, hosts: [api.example.com], protocol: HTTPS, http: {methods: [POST], paths: [/repos/*/issues]}",
        "name: plain, hosts: [api.example.com], protocol: HTTP, ports: [80], http: {methods: [GET]}",
    ]);
    let there = Destination::Name(host("api.example.com"));
    let opened = ask(&there, 443, Wire::Opened);
    for (method, path, want) in [
        ("GET", "/repos/a?page=2", "read"),
        ("POST", "/repos/a/issues", "write"),
        ("POST", "/repos/a/keys", "RequestNotAllowed"),
        ("DELETE", "/repos/a", "RequestNotAllowed"),
        ("GET", "/repos/../admin", "AmbiguousPath"),
    ] {
        assert_eq!(say(policy.decide_request(&opened, method, path)), want, "{method} {path}");
    }
    assert_eq!(say(policy.decide_request(&ask(&there, 80, Wire::Http), "GET", "//x")), "plain");
    assert_eq!(say(policy.decide_request(&ask(&there, 443, Wire::Tls), "GET", "/repos/a")), "MustBeOpened");
    assert_eq!(
        say(policy.decide_request(&ask(&there, 22, Wire::Opened), "GET", "/repos/a")),
        "PortNotAllowed"
    );
}

const PROTOCOLS: [Option<Protocol>; 5] =
    [None, Some(Protocol::Tls), Some(Protocol::Https), Some(Protocol::Http), Some(Protocol::Tcp)];
const PORTS: [i32; 3] = [80, 443, 8443];

fn patterns() -> impl Strategy<Value = String> {
    "(\\*{1,2}\\.)?([ab]\\.){1,2}example"
}

fn rules() -> impl Strategy<Value = Vec<EgressRule>> {
    let named = (vec(patterns(), 1..3), vec(select(&PORTS), 1..3), select(&PROTOCOLS), option::of(-1_i64..2))
        .prop_map(|(hosts, ports, protocol, expires)| EgressRule {
            hosts,
            ports: ports
                .into_iter()
                .map(|port| if protocol == Some(Protocol::Http) && port == 443 { 80 } else { port })
                .collect(),
            protocol,
            expires_at: expires.map(|seconds| Time(now() + SignedDuration::from_secs(seconds))),
            ..EgressRule::default()
        });
    let ranges = (
        vec(select(vec!["203.0.113.0/24", "203.0.113.64/26", "203.0.0.0/16", "10.0.0.0/8"]), 1..3),
        vec(select(&PORTS), 1..3),
    )
        .prop_map(|(cidrs, ports)| EgressRule {
            cidrs: cidrs.into_iter().map(ToOwned::to_owned).collect(),
            ports,
            ..EgressRule::default()
        });
    vec(prop_oneof![3 => named, 1 => ranges], 0..10).prop_map(|mut rules| {
        rules.iter_mut().enumerate().for_each(|(at, rule)| rule.name = format!("r{at}"));
        rules
    })
}

fn destinations() -> impl Strategy<Value = String> {
    let address = select(vec![
        "203.0.113.1",
        "203.0.113.70",
        "203.0.7.7",
        "10.1.1.1",
        "10.244.0.1",
        "127.0.0.1",
        "[2001:db8::1]",
    ]);
    prop_oneof![4 => "([ab]\\.){0,3}example", 1 => address.prop_map(ToOwned::to_owned)]
}

fn wires() -> impl Strategy<Value = Wire> {
    select(vec![Wire::Tls, Wire::Http, Wire::Tcp, Wire::Opened])
}

/// How specific a pattern is that matches; less is more.
pub(super) fn rank(pattern: &str, host: &str) -> Option<usize> {
    let (labels, given): (Vec<_>, Vec<_>) = (pattern.split('.').collect(), host.split('.').collect());
    match labels[0] {
        "*" => (given.len() == labels.len() && given[1..] == labels[1..]).then_some(1),
        "**" => (given.len() >= labels.len() && given.ends_with(&labels[1..])).then(|| 100 - labels.len()),
        _ => (given == labels).then_some(0),
    }
}

/// The specification for names: a scan.
fn scan<'a>(
    rules: &'a [EgressRule],
    denied: &[String],
    host: &str,
    port: i32,
    wire: Wire,
) -> Option<&'a str> {
    if denied.iter().any(|pattern| rank(pattern, host).is_some()) {
        return None;
    }
    let alive = |rule: &&EgressRule| {
        rule.ports.contains(&port) && rule.expires_at.as_ref().is_none_or(|end| end.0 > now())
    };
    let best =
        |rule: &EgressRule| rule.hosts.iter().filter_map(|pattern| rank(pattern, host)).collect::<Vec<_>>();
    let least = rules.iter().filter(alive).flat_map(best).min()?;
    let level: Vec<_> = rules.iter().filter(alive).filter(|rule| best(rule).contains(&least)).collect();
    let of = |protocol| level.iter().find(move |rule| rule.protocol.unwrap_or_default() == protocol);
    let found = match wire {
        Wire::Tls if of(Protocol::Https).is_some() => None,
        Wire::Tls => of(Protocol::Tls).or_else(|| of(Protocol::Tcp)),
        Wire::Http => of(Protocol::Http).or_else(|| of(Protocol::Tcp)),
        Wire::Tcp => of(Protocol::Tcp),
        Wire::Opened => of(Protocol::Https),
    };
    found.map(|rule| rule.name.as_str())
}

/// The specification for addresses.
fn scan_ranges(policy: &Policy, address: std::net::IpAddr, port: u16, wire: Wire) -> bool {
    let denied = crate::policy::always_denied(address).is_some() || wire == Wire::Opened;
    !denied
        && policy
            .address_rules()
            .iter()
            .any(|rule| rule.ports.contains(&port) && rule.blocks.iter().any(|block| block.contains(address)))
}

fn denies(hosts: &[String]) -> ClassEgress {
    let deny = vec![Denial { hosts: hosts.to_vec(), reason: "x".into(), ..Denial::default() }];
    ClassEgress { deny: if hosts.is_empty() { Vec::new() } else { deny }, ..ClassEgress::default() }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2048, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn decides_as_a_scan(rules in rules(), denied in vec(patterns(), 0..2), there in destinations(), port in select(&PORTS), wire in wires()) {
        let Ok(policy) = compile(&rules, &denies(&denied)) else { return Ok(()) };
        let destination = Destination::parse(there.as_bytes()).unwrap();
        let ask = ask(&destination, u16::try_from(port).unwrap(), wire);
        let verdict = policy.decide(&ask);
        match &destination {
            Destination::Name(host) => {
                prop_assert_eq!(verdict.allowed().map(|rule| &*rule.name), scan(&rules, &denied, host.as_str(), port, wire));
                let any = PORTS.iter().any(|port| [Wire::Tls, Wire::Http, Wire::Tcp, Wire::Opened].iter().any(|wire| scan(&rules, &denied, host.as_str(), *port, *wire).is_some()));
                prop_assert_eq!(policy.knows(host, now()).allowed().is_some(), any);
            }
            Destination::Address(address) => {
                prop_assert_eq!(verdict.allowed().is_some(), scan_ranges(&policy, *address, ask.port, wire));
            }
        }
        prop_assert_eq!(policy.decide_request(&ask, "GET", "/").allowed().map(|rule| rule.index), verdict.allowed().map(|rule| rule.index));
    }

    /// A denial added never allows more.
    #[test]
    fn denials_are_monotone(rules in rules(), denied in vec(patterns(), 0..3), more in patterns(), there in destinations(), port in select(&PORTS), wire in wires()) {
        let destination = Destination::parse(there.as_bytes()).unwrap();
        let ask = ask(&destination, u16::try_from(port).unwrap(), wire);
        let allows = |denied: &[String]| compile(&rules, &denies(denied)).is_ok_and(|policy| policy.decide(&ask).allowed().is_some());
        let before = allows(&denied);
        let after = allows(&[denied, vec![more]].concat());
        prop_assert!(before || !after);
    }

    /// Whatever is allowed lies within the ceiling.
    #[test]
    fn the_ceiling_holds(rules in rules(), hosts in vec(patterns(), 0..4), ports in vec(select(&PORTS), 0..3), there in destinations(), port in select(&PORTS), wire in wires()) {
        let ceiling = crate::api::Ceiling { hosts: hosts.clone(), cidrs: vec!["203.0.113.0/24".into()], ports: ports.clone() };
        let Ok(policy) = compile(&rules, &ClassEgress { ceiling: Some(ceiling), ..ClassEgress::default() }) else { return Ok(()) };
        let destination = Destination::parse(there.as_bytes()).unwrap();
        if policy.decide(&ask(&destination, u16::try_from(port).unwrap(), wire)).allowed().is_some() {
            prop_assert!(ports.contains(&port));
            prop_assert!(there.starts_with("203.0.113.") || hosts.iter().any(|pattern| rank(pattern, &there).is_some()), "{}", there);
        }
    }
}
