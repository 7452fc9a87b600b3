//! What is asked of people, and what becomes of what they say.

use super::*;
use crate::{
    api::{ApprovalPhase, EgressApproval, Protocol},
    sandbox::approvals::{Step, Wanted, hash, steps},
};

fn asks(wanted: &[(&str, u16)], approvals: Vec<EgressApproval>) -> World {
    let ask = json!({"unmatched": "Ask", "ask": {"mostPending": 2, "ttl": {"default": "1m", "max": "1h"}}});
    let class = with(class(), &[("/spec/egress", ask)]);
    let wanted = wanted.iter().map(|(host, port)| Wanted {
        host: (*host).to_owned(),
        port: *port,
        first: at(1),
        last: at(2),
        count: 3,
    });
    World {
        wanted: wanted.collect(),
        approvals: approvals.into_iter().map(Arc::new).collect(),
        ..world(class, sandbox())
    }
}

fn created(world: &World) -> Vec<EgressApproval> {
    let (steps, _) = steps(world, at(10));
    steps
        .into_iter()
        .filter_map(|step| if let Step::Create(asked) = step { Some(*asked) } else { None })
        .collect()
}

/// The status that is told, if one is.
fn told(world: &World, now: i64) -> Option<crate::api::EgressApprovalStatus> {
    let (steps, _) = steps(world, at(now));
    steps.into_iter().find_map(|step| if let Step::Tell { status, .. } = step { Some(*status) } else { None })
}

fn decided(mut asked: EgressApproval, decision: Value) -> EgressApproval {
    asked.spec.decision = Some(serde_json::from_value(decision).unwrap());
    asked.metadata.generation = Some(asked.metadata.generation.unwrap_or(1) + 1);
    asked
}

#[test]
fn what_may_be_given_is_asked_for_once_and_no_more_than_may_wait() {
    let wanted = [
        ("a.example", 443),
        ("metadata.google.internal", 443),
        ("dns.google", 443),
        ("a.example", 25),
        ("203.0.113.7", 443),
        ("*.example", 443),
        ("b.example", 80),
        ("c.example", 443),
    ];
    let asked = created(&asks(&wanted, vec![]));
    let hosts: Vec<_> = asked.iter().map(|one| (one.spec.host.as_str(), one.spec.protocol)).collect();
    assert_eq!(hosts, [("a.example", Protocol::Tls), ("b.example", Protocol::Http)]);
    assert_eq!(asked[0].spec.rule_hash, hash("sandbox-uid", "a.example", 443, Protocol::Tls));
    assert_eq!(asked[0].metadata.owner_references.as_ref().unwrap()[0].uid, "sandbox-uid");
    assert!(created(&asks(&wanted, asked)).is_empty(), "both wait");
    let mut of_a_namesake = created(&asks(&wanted[..1], vec![]));
    of_a_namesake[0].spec.sandbox.uid = "former".into();
    assert_eq!(created(&asks(&wanted[..1], of_a_namesake)).len(), 1);
}

#[test]
fn what_a_rule_allows_by_now_is_not_asked_for() {
    let rules = json!({"allow": [{"name": "given", "hosts": ["a.example"]}]});
    let world = changed(asks(&[("a.example", 443), ("b.example", 443)], vec![]), &[("/spec/egress", rules)]);
    let asked = created(&world);
    assert_eq!((asked.len(), asked[0].spec.host.as_str()), (1, "b.example"));
}

#[test]
fn a_class_that_denies_asks_nobody() {
    let mut world = asks(&[("a.example", 443)], vec![]);
    world.class = good().class;
    assert_eq!(steps(&world, at(10)), (vec![], None));
}

#[test]
fn a_decision_holds_for_its_hash_and_its_time() {
    let wanted = [("a.example", 443)];
    let asked = created(&asks(&wanted, vec![])).remove(0);
    let world = |approval: EgressApproval| asks(&wanted, vec![approval]);
    let pending = told(&world(asked.clone()), 10).unwrap();
    assert_eq!((pending.phase, pending.count), (ApprovalPhase::Pending, Some(3)));
    let hash = asked.spec.rule_hash.clone();
    let yes = json!({"verdict": "Approved", "ruleHash": hash, "by": "ada"});
    let mut approved = decided(asked.clone(), yes.clone());
    let status = told(&world(approved.clone()), 10).unwrap();
    assert_eq!((status.phase, status.expires_at.as_ref().unwrap().0), (ApprovalPhase::Approved, at(70)));
    approved.status = Some(status);
    let again = steps(&world(approved.clone()), at(20));
    assert_eq!(again, (vec![], Some(at(70))), "nothing to write, and looked at when it is over");
    let over = told(&world(approved.clone()), 70).unwrap();
    assert_eq!((over.phase, over.expires_at.as_ref().unwrap().0), (ApprovalPhase::Expired, at(70)));
    approved.status = Some(over);
    // A class that denies for a while lets nothing begin anew.
    let mut denies = world(approved.clone());
    denies.class = good().class;
    let invalid = told(&denies, 80).unwrap();
    assert_eq!((invalid.phase, invalid.expires_at.as_ref().unwrap().0), (ApprovalPhase::Invalid, at(70)));
    let back = EgressApproval { status: Some(invalid), ..approved.clone() };
    assert_eq!(told(&world(back), 90).unwrap().phase, ApprovalPhase::Expired);
    // Said once more, it holds once more.
    let renewed = told(&world(decided(approved, yes.clone())), 80).unwrap();
    assert_eq!(renewed.expires_at.unwrap().0, at(140));
    for (change, why) in [
        (json!({"verdict": "Approved", "ruleHash": "0".repeat(64), "by": "ada"}), "is not the hash"),
        (json!({"verdict": "Approved", "ruleHash": hash, "by": "ada", "ttl": "2h"}), "at most 1h"),
    ] {
        let status = told(&world(decided(asked.clone(), change)), 10).unwrap();
        assert_eq!(status.phase, ApprovalPhase::Invalid);
        assert!(status.message.as_ref().unwrap().contains(why), "{status:?}");
    }
    let mut edited = decided(asked.clone(), yes);
    edited.spec.host = "evil.example".into();
    assert_eq!(told(&world(edited), 10).unwrap().phase, ApprovalPhase::Invalid);
    let no = json!({"verdict": "Denied", "ruleHash": hash, "by": "ada"});
    assert_eq!(told(&world(decided(asked, no)), 10).unwrap().phase, ApprovalPhase::Denied);
}
