//! Allotment as a history: needs come and go, what nobody needs is taken away at some time, and at every step the laws hold.

use k8s_openapi::api::core::v1::Service;
use proptest::{collection::vec, prelude::*};
use serde_json::json;

use super::{allot::*, *};

fn host(name: &str) -> Host {
    Host::parse(name.as_bytes()).unwrap()
}

fn gateway() -> Service {
    let gateway = json!({
        "metadata": {"name": "glovebox-gateway", "namespace": "glovebox-system", "uid": "gateway-uid"},
        "spec": {"clusterIP": "10.96.0.53", "sessionAffinity": "ClientIP", "selector": {"app.kubernetes.io/component": "gateway"}},
    });
    serde_json::from_value(gateway).unwrap()
}

/// As the API server would have made it.
fn made(make: &Make, at: i64, address: Ipv4Addr) -> Service {
    let mut service = make.service(&gateway());
    service.metadata.uid = Some(format!("{}-{at}", make.name()));
    service.metadata.creation_timestamp =
        Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(Timestamp::from_second(at).unwrap()));
    service.spec.as_mut().unwrap().cluster_ip = Some(address.to_string());
    service
}

fn standing(make: &Make, at: i64) -> Standing {
    Standing::read(&made(make, at, [10, 96, 1, 1].into())).unwrap()
}

fn needs(all: &[(&str, &str, &[u16])]) -> Needs {
    let mut needs = Needs::new();
    for (namespace, name, ports) in all {
        let sets = needs.entry(((*namespace).to_owned(), host(name))).or_default();
        sets.insert(ports.iter().copied().collect());
    }
    needs
}

/// Whether everybody has what they need, or is told why not.
fn check(needs: &Needs, settled: &[Standing], done: &Allotment) {
    let mut ours = BTreeSet::new();
    for one in settled {
        for port in one.mapping.iter().flat_map(|mapping| mapping.ports.values()) {
            assert!(ports::NAMED.contains(port), "{port}");
            assert!(ours.insert(*port), "{port} stands for two");
        }
    }
    for (key, sets) in needs {
        for set in sets {
            let met = pick(settled, &key.1, set);
            assert!(met.is_some() || done.lacks.contains_key(key), "{key:?} {set:?} has nothing and no word");
            if let Some(met) = met {
                assert!(done.used.contains(&met.name), "{} would be taken away", met.name);
            }
        }
    }
}

/// One step: what is to be made is made; asked again, nothing is left to do.
fn step(needs: &Needs, standing: &mut Vec<Standing>, at: i64) -> Allotment {
    let before = standing.clone();
    let done = allot(needs, &settle(standing.clone()), &BTreeSet::new());
    standing.extend(done.make.iter().map(|make| self::standing(make, at)));
    let settled = settle(standing.clone());
    assert!(settled.iter().all(|one| one.mapping.is_some()), "what was made is all of use");
    assert!(before.iter().all(|one| settled.contains(one)), "what stood stands");
    let again = allot(needs, &settled, &BTreeSet::new());
    assert_eq!(again.make, [], "planning twice is no write");
    assert_eq!(again.lacks, done.lacks);
    check(needs, &settled, &again);
    again
}

fn any_needs() -> impl Strategy<Value = Vec<(u8, u8, Vec<u16>)>> {
    let ports = prop_oneof![4 => vec(1_u16..6, 1..4), 1 => vec(any::<u16>().prop_filter("forwarded", |p| !is_forwarded(*p)), 1..60)];
    vec((0_u8..4, 0_u8..6, ports), 0..14)
}

proptest! {
    #[test]
    fn a_history_of_needs(steps in vec((any_needs(), any::<u64>()), 1..8)) {
        let mut standing = Vec::new();
        for (at, (wanted, fate)) in steps.into_iter().enumerate() {
            let mut needs = Needs::new();
            for (namespace, name, ports) in wanted {
                let key = (format!("team-{namespace}"), host(&format!("h{name}.example")));
                needs.entry(key).or_default().insert(ports.into_iter().collect());
            }
            let done = step(&needs, &mut standing, i64::try_from(at).unwrap());
            // Of what nobody needs, some has been idle for long enough.
            let mut fate = fate;
            standing.retain(|one| {
                fate = fate.rotate_left(1);
                done.used.contains(&one.name) || fate & 1 == 1
            });
            let left = allot(&needs, &settle(standing.clone()), &BTreeSet::new());
            prop_assert!(left.make.is_empty() || !done.lacks.is_empty(), "what was taken away was needed by nobody");
        }
    }

    #[test]
    fn no_two_ever_share_a_port_whatever_stands(
        all in vec((0_u8..5, vec(20000_u16..20008, 1..4), 0_i64..3), 0..8),
        wanted in any_needs(),
    ) {
        // As if several had written at once: names are unique, ports are not.
        let mut standing = BTreeMap::new();
        for (name, ours, at) in all {
            let ours: BTreeSet<u16> = ours.into_iter().collect();
            let ports = (1..).zip(ours).collect();
            let one = self::standing(&Make { host: host(&format!("h{name}.example")), ports }, at);
            standing.entry(one.name.clone()).or_insert(one);
        }
        let settled = settle(standing.into_values().collect());
        let mut needs = Needs::new();
        for (namespace, name, ports) in wanted {
            let key = (format!("team-{namespace}"), host(&format!("h{name}.example")));
            needs.entry(key).or_default().insert(ports.into_iter().collect());
        }
        let done = allot(&needs, &settled, &BTreeSet::new());
        let mut all = settled;
        all.extend(done.make.iter().map(|make| self::standing(make, 9)));
        let all = settle(all);
        let last = allot(&needs, &all, &BTreeSet::new());
        prop_assert_eq!(&last.make, &vec![]);
        check(&needs, &all, &last);
    }
}

#[test]
fn a_host_keeps_its_ports_and_gets_them_again() {
    let mut first = Vec::new();
    step(&needs(&[("a", "db.example", &[5432])]), &mut first, 1);
    let mut later = Vec::new();
    let more: &[(&str, &str, &[u16])] = &[("a", "db.example", &[5432]), ("b", "cache.example", &[6379])];
    step(&needs(more), &mut later, 2);
    assert_eq!(later.iter().find(|one| one.name == first[0].name).unwrap().mapping, first[0].mapping);
    // A sandbox with fewer ports is content with what stands, one with more gets another that has all.
    step(&needs(&[("a", "db.example", &[5432, 5433]), ("b", "db.example", &[5432])]), &mut first, 3);
    assert_eq!(first.len(), 2);
    let settled = settle(first);
    let newest = pick(&settled, &host("db.example"), &BTreeSet::from([5432])).unwrap();
    assert!(newest.mapping.as_ref().unwrap().covers([5432, 5433, 80, 443]));
    let done = allot(&needs(&[("b", "db.example", &[5432])]), &settled, &BTreeSet::new());
    assert_eq!(done.used, BTreeSet::from([newest.name.clone()]), "the older one is idle");
}

#[test]
fn nobody_takes_all_and_whoever_gets_none_is_told() {
    let many: BTreeSet<u16> = (1000..1200).collect();
    let mut needs = Needs::new();
    for namespace in ["a", "b", "c", "d", "e", "f"] {
        needs.insert(
            (namespace.into(), host(&format!("{namespace}.example"))),
            BTreeSet::from([many.clone()]),
        );
    }
    let mut standing = Vec::new();
    let done = step(&needs, &mut standing, 1);
    assert_eq!(done.lacks.values().collect::<Vec<_>>(), [&Lack::Range], "five have room");
    let greedy: Needs = (0..3)
        .map(|n| {
            (
                ("a".to_owned(), host(&format!("h{n}.example"))),
                BTreeSet::from([(1..101).filter(|p| !is_forwarded(*p)).collect()]),
            )
        })
        .collect();
    let done = step(&greedy, &mut Vec::new(), 1);
    assert_eq!(done.lacks.values().collect::<Vec<_>>(), [&Lack::Namespace]);
    // What others hold by name is left to them.
    let one = self::needs(&[("a", "db.example", &[5432])]);
    let free = allot(&one, &[], &BTreeSet::new()).make.remove(0).ports[&5432];
    let other = allot(&one, &[], &BTreeSet::from([free])).make.remove(0).ports[&5432];
    assert_ne!(free, other);
}

#[test]
fn a_service_says_all_and_is_read_back() {
    let make = Make { host: host("db.example"), ports: BTreeMap::from([(5432, 20007), (6379, 20008)]) };
    let service = made(&make, 5, [10, 96, 1, 7].into());
    assert_eq!(make.name(), "glovebox-tcp-20007");
    let read = Standing::read(&service).unwrap();
    let mapping =
        Mapping { host: make.host.clone(), ports: make.ports.clone(), address: [10, 96, 1, 7].into() };
    assert_eq!(read.mapping, Some(mapping));
    let spec = service.spec.as_ref().unwrap();
    let numbers: Vec<_> =
        spec.ports.iter().flatten().map(|port| (port.port, port.target_port.clone().unwrap())).collect();
    let int = IntOrString::Int;
    assert_eq!(numbers, [(80, int(8080)), (443, int(8443)), (5432, int(20007)), (6379, int(20008))]);
    assert_eq!(spec.selector, gateway().spec.unwrap().selector);
    assert_eq!(spec.session_affinity.as_deref(), Some("ClientIP"));
    assert_eq!(service.metadata.owner_references.unwrap()[0].uid, "gateway-uid");
    assert_eq!(Standing::read(&gateway()), None);
    // Admission lets anybody make a Service that has not both of the labels.
    for (label, _) in names::NAMED_LABELS {
        let mut other = made(&make, 5, [10, 96, 1, 7].into());
        other.metadata.labels.as_mut().unwrap().remove(label);
        assert_eq!(Standing::read(&other), None, "{label}");
    }
}

/// Of two that claim a port, made by two leaders at once, the older one has it.
#[test]
fn an_older_one_keeps_its_port() {
    let make = |name: &str, first: u16| Make {
        host: host(name),
        ports: BTreeMap::from([(5432, first), (5433, 20009)]),
    };
    let (old, young) = (standing(&make("old.example", 20002), 1), standing(&make("young.example", 20001), 2));
    let settled = settle(vec![young.clone(), old.clone()]);
    assert_eq!(settled.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), [&old.name, &young.name]);
    assert_eq!((&settled[0].mapping, &settled[1].mapping), (&old.mapping, &None));
    // The other's host gets a Service of its own again, and the useless one is idle.
    let both = needs(&[("a", "old.example", &[5432]), ("a", "young.example", &[5432])]);
    let done = allot(&both, &settled, &BTreeSet::new());
    assert_eq!(done.make.len(), 1);
    assert_eq!((&done.make[0].host, &done.used), (&host("young.example"), &BTreeSet::from([old.name])));
}

/// What somebody changed leads nowhere, rather than somewhere else.
#[test]
fn what_cannot_be_read_leads_nowhere() {
    let make = Make { host: host("db.example"), ports: BTreeMap::from([(5432, 20007)]) };
    let service = serde_json::to_value(made(&make, 5, [10, 96, 1, 7].into())).unwrap();
    for (pointer, value) in [
        ("/metadata/annotations", json!({})),
        ("/metadata/annotations/glovebox.dev~1host", json!("10.0.0.1")),
        ("/metadata/annotations/glovebox.dev~1host", json!("a b")),
        ("/metadata/deletionTimestamp", json!("2027-01-01T00:00:00Z")),
        ("/spec/clusterIP", json!("None")),
        ("/spec/clusterIP", json!("fd00::1")),
        ("/spec/ports/2/targetPort", json!(8080)),
        ("/spec/ports/2/targetPort", json!(9099)),
        ("/spec/ports/2/targetPort", json!(21000)),
        ("/spec/ports/2/targetPort", json!("tls")),
        ("/spec/ports/2/protocol", json!("UDP")),
        ("/spec/ports/2/port", json!(70000)),
        ("/spec/ports", json!([])),
    ] {
        let mut changed = service.clone();
        match changed.pointer_mut(pointer) {
            Some(place) => *place = value,
            None => changed["metadata"]["deletionTimestamp"] = value,
        }
        let changed: Service = serde_json::from_value(changed).unwrap();
        let read = Standing::read(&changed).unwrap();
        assert_eq!(read.mapping, None, "{pointer}");
        assert!(read.claimed().any(|port| port == 20007), "its name is still taken");
    }
    let twice = json!({"name": "x", "port": 5433, "targetPort": 20007});
    let mut changed = service;
    changed["spec"]["ports"].as_array_mut().unwrap().push(twice);
    assert_eq!(Standing::read(&serde_json::from_value::<Service>(changed).unwrap()).unwrap().mapping, None);
}
