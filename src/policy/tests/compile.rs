//! What a rule may not say, and that the refusal names rule, field and value.

use super::{class, cluster, compile, host, policy, rule};
use crate::{
    api::{ClassEgress, EgressRule, Protocol},
    policy::{Policy, Source},
};

#[test]
fn a_rule_is_compiled_whole() {
    let policy = policy(&[
        "name: gh, hosts: [api.github.com, \"*.example.com\"], ports: [8443, 443, 443], protocol: HTTPS, http: {methods: [GET]}, limits: {connectionsPerSecond: 5, maxConnections: 32, uploadBytesPerSecond: 1Mi, uploadBudget: 200Mi}, expiresAt: \"2027-01-01T00:00:00Z\"",
        "hosts: [db.example.com], ports: [5432], protocol: TCP",
        "cidrs: [203.0.113.0/24]",
    ]);
    let [gh, db, range] = policy.rules() else { panic!("{policy:?}") };
    assert_eq!(
        (&*gh.name, gh.index, gh.protocol, gh.ports.as_slice()),
        ("gh", 0, Protocol::Https, &[443, 8443][..])
    );
    assert_eq!(
        (gh.limits.connections_per_second, gh.limits.burst, gh.limits.max_connections),
        (Some(5), Some(5), Some(32))
    );
    assert_eq!(
        (gh.limits.upload_bytes_per_second, gh.limits.upload_budget),
        (Some(1 << 20), Some(200 << 20))
    );
    assert!(gh.http.is_some() && gh.expires_at.is_some());
    assert_eq!((db.index, db.protocol, range.index, range.protocol), (1, Protocol::Tcp, 2, Protocol::Tcp));
    let granted = policy.address_rules();
    assert_eq!((granted.len(), granted[0].blocks.len()), (1, 1));
}

#[test]
fn refuses_and_says_why() {
    for (yaml, words) in [
        ("hosts: [\"*.com\"]", vec!["\"*.com\"", "two labels"]),
        ("hosts: [ok.example.com, \"a*.b.com\"]", vec!["\"a*.b.com\"", "leftmost"]),
        ("hosts: [\"*.github.io\"]", vec!["acknowledgeSharedSuffix"]),
        ("hosts: [dns.google]", vec!["dns.google", "always denied"]),
        ("hosts: [\"**.cloudflare-dns.com\"]", vec!["cloudflare-dns.com", "always denied"]),
        ("hosts: [metadata.google.internal]", vec!["metadata.google.internal"]),
        ("hosts: [x.default.svc.cluster.local]", vec!["cluster"]),
        ("hosts: [mail.example.com], ports: [25], protocol: TCP", vec!["port 25", "no mail"]),
        ("hosts: [dns.example.com], ports: [853]", vec!["port 853", "gateway"]),
        ("hosts: [a.example.com], ports: []", vec!["ports is empty"]),
        ("hosts: [a.example.com], ports: [0]", vec!["1-65535"]),
        ("hosts: [a.example.com], protocol: HTTP", vec!["port 443", "[80]"]),
        ("hosts: [a.example.com], http: {methods: [GET]}", vec!["http needs protocol HTTPS or HTTP", "TLS"]),
        ("hosts: [a.example.com], protocol: TCP, http: {methods: [GET]}", vec!["http needs protocol", "TCP"]),
        ("hosts: [a.example.com], protocol: HTTPS, http: {}", vec!["http needs methods, paths or both"]),
        ("hosts: [a.example.com], protocol: HTTPS, http: {paths: [a]}", vec!["http.paths \"a\""]),
        ("hosts: [a.example.com], cidrs: [203.0.113.0/24]", vec!["both set"]),
        ("cidrs: [203.0.113.0/24], protocol: TCP", vec!["protocol belongs to a rule with hosts"]),
        ("cidrs: [203.0.113.0/24], expiresAt: \"2027-01-01T00:00:00Z\"", vec!["expiresAt belongs"]),
        ("cidrs: [203.0.113.0/24], limits: {burst: 1}", vec!["limits belongs"]),
        ("hosts: [a.example.com], limits: {burst: 1}", vec!["limits.burst needs"]),
        ("hosts: [a.example.com], limits: {maxConnections: 0}", vec!["limits.maxConnections is 0"]),
        ("hosts: [a.example.com], limits: {uploadBudget: lots}", vec!["limits.uploadBudget", "lots"]),
        ("hosts: [a.example.com], limits: {uploadBudget: \"0\"}", vec!["limits.uploadBudget is 0"]),
        ("hosts: []", vec!["hosts and cidrs are empty"]),
    ] {
        let why = compile(&[rule("hosts: [fine.example.com]"), rule(yaml)], &ClassEgress::default())
            .unwrap_err()
            .to_string();
        assert!(why.starts_with("spec.egress.allow[r]: "), "{why}");
        words.iter().for_each(|word| assert!(why.contains(word), "{yaml}: {word:?} is not in {why:?}"));
    }
}

#[test]
fn a_policys_rule_is_named_with_its_policy() {
    let (good, bad) = ([rule("hosts: [a.example.com]")], [rule("name: wide, hosts: [\"**.com\"]")]);
    let sources = [Source { policy: None, rules: &good }, Source { policy: Some("team"), rules: &bad }];
    let why = Policy::compile(&sources, &ClassEgress::default(), &cluster()).unwrap_err();
    assert_eq!((why.policy.as_deref(), why.rule.as_str()), (Some("team"), "wide"));
    assert!(why.to_string().starts_with("EgressPolicy \"team\" spec.rules[wide]: host \"**.com\""), "{why}");
}

#[test]
fn the_ceiling_bounds_patterns() {
    let bounds =
        class("ceiling: {hosts: [\"**.example.com\", api.openai.com, \"*.github.io\"], ports: [443]}");
    for yaml in [
        "hosts: [a.example.com, \"*.example.com\", \"**.b.example.com\", \"**.example.com\", api.openai.com]",
        "hosts: [me.github.io]",
        "hosts: [\"*.github.io\"], acknowledgeSharedSuffix: true",
    ] {
        compile(&[rule(yaml)], &bounds).unwrap_or_else(|why| panic!("{yaml}: {why}"));
    }
    for (yaml, word) in [
        ("hosts: [example.com]", "host example.com is not within the class's egress.ceiling.hosts"),
        ("hosts: [\"*.openai.com\"]", "*.openai.com is not within"),
        ("hosts: [\"**.github.io\"], acknowledgeSharedSuffix: true", "**.github.io is not within"),
        ("hosts: [evilexample.com]", "not within"),
        (
            "hosts: [a.example.com], ports: [8443]",
            "port 8443 is not in the class's egress.ceiling.ports [443]",
        ),
        ("cidrs: [203.0.113.0/24]", "not within the class's egress.ceiling.cidrs"),
    ] {
        let why = compile(&[rule(yaml)], &bounds).unwrap_err().to_string();
        assert!(why.contains(word), "{yaml}: {why}");
    }
    let nothing = class("ceiling: {}");
    assert!(compile(&[rule("hosts: [a.example.com]")], &nothing).is_err(), "an empty ceiling opens nothing");
}

#[test]
fn a_denial_refuses_what_lies_in_it_and_says_why() {
    let bounds =
        class("deny: [{hosts: [\"**.pastebin.com\", pastebin.com], reason: use the artifact store}]");
    for yaml in [
        "hosts: [pastebin.com]",
        "hosts: [a.pastebin.com]",
        "hosts: [\"*.pastebin.com\"]",
        "hosts: [\"**.b.pastebin.com\"]",
    ] {
        let why = compile(&[rule(yaml)], &bounds).unwrap_err().to_string();
        assert!(why.contains("denied by the class: use the artifact store"), "{yaml}: {why}");
    }
}

#[test]
fn the_ranges_of_a_sandbox_fit_into_an_object() {
    let many = EgressRule { cidrs: vec!["203.0.113.0/24".into(); 64], ..rule("cidrs: []") };
    compile(&vec![many.clone(); 16], &ClassEgress::default()).unwrap();
    let why = compile(&vec![many; 17], &ClassEgress::default()).unwrap_err().to_string();
    assert!(why.contains("1088 address ranges, at most 1024"), "{why}");
}

#[test]
fn ten_thousand_rules() {
    let rules: Vec<_> =
        (0..10_000).map(|at| rule(&format!("name: r{at}, hosts: [\"*.h{at}.example.com\"]"))).collect();
    let policy = compile(&rules, &ClassEgress::default()).unwrap();
    let now = jiff::Timestamp::UNIX_EPOCH;
    for at in [0, 4711, 9999] {
        let known = policy.knows(&host(&format!("a.h{at}.example.com")), now);
        assert_eq!(known.allowed().map(|rule| rule.index), Some(at));
    }
    assert!(policy.knows(&host("a.h10000.example.com"), now).allowed().is_none());
}

#[test]
fn a_broken_class_refuses_everything() {
    for (yaml, words) in [
        ("ceiling: {hosts: [\"*\"]}", ["egress.ceiling", "\"*\""]),
        ("ceiling: {cidrs: [x]}", ["egress.ceiling", "\"x\""]),
        (
            "deny: [{hosts: [a.example.com], reason: r}, {hosts: [\"**.com\"], reason: r}]",
            ["egress.deny[1]", "\"**.com\""],
        ),
    ] {
        let why = compile(&[], &class(yaml)).unwrap_err().to_string();
        words.iter().for_each(|word| assert!(why.contains(word), "{why}"));
    }
}
