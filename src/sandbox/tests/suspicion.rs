//! What was seen, and what is said and done of it.

use super::*;
use crate::{
    api::{Reason, Suspicion, SuspicionAction},
    sandbox::{
        lifecycle::{self, State, Step},
        status,
        suspicion::{Seen, judge, reason},
    },
};

fn seen(severe: u32, score: u32) -> Option<Seen> {
    Some(Seen { severe, score, signs: vec![format!("{severe} and {score}")] })
}

fn known(suspicion: &Suspicion) -> World {
    changed(good(), &[("/status", json!({"suspicion": suspicion}))])
}

#[test]
fn either_bound_is_enough_and_nothing_goes_back() {
    let world = good();
    assert_eq!(judge(&world, at(9)), None);
    let of = |severe, score| judge(&World { seen: seen(severe, score), ..world.clone() }, at(9)).unwrap();
    assert_eq!(of(2, 59).action, None);
    let severe = of(3, 45);
    assert_eq!(
        (severe.action, reason(&world, &severe)),
        (Some(SuspicionAction::DenyAll), Reason::SevereActs)
    );
    let scored = of(0, 60);
    assert_eq!(
        (scored.action, reason(&world, &scored)),
        (Some(SuspicionAction::DenyAll), Reason::ScoreReached)
    );
    assert_eq!(scored.since.as_ref().unwrap().0, at(9));
    // Replicas that know less, or nothing, and a class that is gone, change nothing.
    assert_eq!(judge(&known(&scored), at(10)), Some(scored.clone()));
    let less = World { seen: seen(1, 3), ..known(&scored) };
    assert_eq!(judge(&less, at(10)).unwrap().action, scored.action);
    let gone = Refusal::accepted(Reason::ClassNotFound, "gone");
    assert_eq!(judge(&World { class: Err(gone.clone()), ..less }, at(10)), Some(scored));
    let fresh = World { class: Err(gone), seen: seen(9, 120), ..good() };
    assert_eq!(judge(&fresh, at(10)), None, "nothing is enough while nobody says what is");
}

#[test]
fn a_few_points_more_are_not_worth_a_write() {
    let before = Suspicion { severe_acts: 1, score: 20, signs: vec![], action: None, since: None };
    let of = |severe, score| judge(&World { seen: seen(severe, score), ..known(&before) }, at(9)).unwrap();
    assert_eq!(of(1, 29), before);
    assert_eq!((of(1, 30).score, of(2, 20).severe_acts), (30, 2));
}

#[test]
fn the_class_says_what_becomes_of_it() {
    let next = |action: &str, seen: Option<Seen>| {
        let class = with(class(), &[("/spec/detection", json!({"severeActs": 2, "action": action}))]);
        let world = with_pod(world(class, sandbox()), running_status());
        let world = World { seen, ..world };
        let plan = planned(&world);
        let next = lifecycle::next(&world, Ok(&plan), at(9));
        let said = status::status(&world, Ok(&plan), &next, at(9)).unwrap();
        (next, said)
    };
    let condition = |said: &crate::api::AgentSandboxStatus| {
        said.conditions.iter().find(|one| one.type_ == "Suspected").map(|one| one.reason.clone())
    };
    let (below, said) = next("Terminate", seen(1, 15));
    assert!(below.step == Step::Keep && condition(&said).is_none());
    assert_eq!(said.suspicion.unwrap().severe_acts, 1);
    for (action, step) in [("Report", Step::Keep), ("Throttle", Step::Close), ("DenyAll", Step::Close)] {
        let (next, said) = next(action, seen(2, 30));
        assert_eq!((next.step, condition(&said).as_deref()), (step, Some("SevereActs")), "{action}");
    }
    let (over, said) = next("Terminate", seen(2, 30));
    assert_eq!(over.step, Step::DeletePod { at_once: false });
    assert!(matches!(over.state, State::Ended(ending) if ending.reason == Reason::Suspected));
    assert_eq!(
        (said.reason.as_deref(), condition(&said).as_deref()),
        (Some("Suspected"), Some("SevereActs"))
    );
}
