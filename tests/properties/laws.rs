//! The laws.

use std::time::Duration;

use glovebox::{
    sandbox::{
        World, desired, lifecycle,
        lifecycle::{Next, State, Step},
        plan,
        podview::PodView,
        status::status,
        world::PodSlot,
    },
    testkit::hardening,
};
use jiff::{SignedDuration, Timestamp};
use proptest::{prelude::*, strategy::ValueTree, test_runner::TestRunner};
use serde_json::{Value, json};

use crate::any::{moment, world};

fn next(world: &World, now: Timestamp) -> Next {
    lifecycle::next(world, plan(world).as_ref(), now)
}

fn objects(world: &World, seconds: i64) -> Option<[Value; 3]> {
    let desired = desired(plan(world).as_ref().ok()?, seconds);
    let text = |object: &dyn std::fmt::Debug| json!(format!("{object:?}"));
    Some([serde_json::to_value(&desired.pod).unwrap(), text(&desired.quota), text(&desired.cidr_policy)])
}

fn root(world: &World) -> bool {
    world.class.as_ref().is_ok_and(|class| class.spec.security.run_as_user == 0)
}

/// Written down, as the API server would keep it.
fn after(world: &World, now: Timestamp) -> Option<World> {
    let planned = plan(world);
    let new = status(world, planned.as_ref(), &next(world, now), now)?;
    let mut sandbox = world.sandbox.as_ref().clone();
    sandbox.status = Some(serde_json::from_value(serde_json::to_value(new).unwrap()).unwrap());
    Some(World { sandbox: sandbox.into(), ..world.clone() })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.max(512), failure_persistence: None, ..ProptestConfig::default() })]

    /// A plan or a refusal that says something; never a panic.
    #[test]
    fn plan_judges_everything(world in world()) {
        if let Err(refusal) = plan(&world) {
            prop_assert!(!refusal.message.is_empty());
            prop_assert!(refusal.message.len() < 16_000, "{} bytes", refusal.message.len());
        }
    }

    /// Whatever is planned is hardened, whole, and the same each time.
    #[test]
    fn every_planned_pod_is_hardened(world in world(), seconds: i64) {
        if let Some(objects) = objects(&world, seconds) {
            prop_assert_eq!(hardening::faults(&objects[0], root(&world)), Vec::<String>::new(), "{:#}", objects[0]);
            prop_assert_eq!(Some(objects), self::objects(&world, seconds));
        }
    }

    /// No pod for what ended, is over, is going, has one, or whose name is taken; and never another look without a wait.
    #[test]
    fn pods_are_asked_for_only_in_time(world in world(), now in moment()) {
        let next = next(&world, now);
        prop_assert!(next.wait > Duration::ZERO && next.wait <= Duration::from_secs(60), "{next:?}");
        if let Step::Create(seconds) = next.step {
            prop_assert!(seconds > 0);
            prop_assert!(matches!(world.pod, PodSlot::Free));
            prop_assert!(!lifecycle::is_finished(&world.sandbox));
            prop_assert!(world.sandbox.metadata.deletion_timestamp.is_none());
            prop_assert!(world.sandbox.status.as_ref().is_none_or(|status| status.started_at.is_none()));
            prop_assert!(world.breach.is_none());
            let planned = plan(&world);
            prop_assert!(lifecycle::expires_at(&world, planned.as_ref(), None).is_some_and(|expires| now < expires));
        }
        if lifecycle::is_finished(&world.sandbox) {
            let over = matches!(next.state, State::Over { .. } | State::Deleting);
            prop_assert!(over, "{:?}", next.state);
        }
    }

    /// Said once: what was written is not written again at the same moment, and an end stays.
    #[test]
    fn statuses_settle(world in world(), now in moment()) {
        // A node's clock may be off, but not so far that a pod ends long before its sandbox.
        let ends = |world: &World| lifecycle::expires_at(world, plan(world).as_ref(), None);
        let with_pod = lifecycle::expires_at(&world, plan(&world).as_ref(), world.own_pod().map(|pod| PodView::read(pod, None)).as_ref());
        if ends(&world).zip(with_pod).is_some_and(|(own, with)| own.duration_since(with) >= SignedDuration::from_secs(10)) {
            return Ok(());
        }
        let Some(first) = after(&world, now) else { return Ok(()) };
        let second = after(&first, now);
        if lifecycle::is_finished(&first.sandbox) && !lifecycle::is_finished(&world.sandbox) {
            // What is to be said of a pod that does not go comes after the end.
            let Some(second) = second else { return Ok(()) };
            prop_assert!(lifecycle::is_finished(&second.sandbox));
            prop_assert_eq!(after(&second, now).map(|world| world.sandbox.status.clone()), None);
        } else {
            prop_assert_eq!(second.map(|world| world.sandbox.status.clone()), None, "after {:?}", first.sandbox.status);
        }
    }

    /// An end never changes: not its phase, its reason, its code or its time.
    #[test]
    fn ends_stay(world in world(), now in moment(), later in moment()) {
        let Some(ended) = after(&world, now).filter(|world| lifecycle::is_finished(&world.sandbox)) else { return Ok(()) };
        let Some(again) = after(&ended, later) else { return Ok(()) };
        let end = |world: &World| {
            let status = world.sandbox.status.clone().unwrap();
            (status.phase, status.reason, status.exit_code, status.finished_at)
        };
        prop_assert_eq!(end(&ended), end(&again));
    }

    /// Nothing that a sandbox wrote comes out as control characters, or without bound.
    #[test]
    fn statuses_are_clean(world in world(), now in moment()) {
        let Some(after) = after(&world, now) else { return Ok(()) };
        let status = after.sandbox.status.clone().unwrap();
        for condition in &status.conditions {
            let odd = |c: char| c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2028}' | '\u{2029}');
            prop_assert!(!condition.message.contains(odd), "{:?}", condition.message);
            prop_assert!(condition.message.len() < 16_000);
        }
    }
}

/// The worlds above are neither all refused nor all accepted, or the laws would say nothing.
#[test]
fn the_worlds_are_worth_it() {
    let mut runner = TestRunner::deterministic();
    let strategy = world();
    let (mut planned, mut created, mut ran, mut ended) = (0, 0, 0, 0);
    for _ in 0..2000 {
        let world = strategy.new_tree(&mut runner).unwrap().current();
        let now = Timestamp::from_second(crate::any::CREATED + 30).unwrap();
        let next = next(&world, now);
        planned += usize::from(plan(&world).is_ok());
        created += usize::from(matches!(next.step, Step::Create(_)));
        ran += usize::from(matches!(next.state, State::Running { .. }));
        ended += usize::from(matches!(next.state, State::Ended(_)));
    }
    for (what, count) in [("planned", planned), ("created", created), ("ran", ran), ("ended", ended)] {
        assert!((20..1980).contains(&count), "{what}: {count} of 2000");
    }
}
