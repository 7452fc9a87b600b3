//! Every story, with faults at every call: the same stops, nothing more, nothing left. Each call of a story meets every third fault, its
//! neighbours the others, so that each fault is met at each kind of call; with GLOVEBOX_EVERY_FAULT set, all of them are met at each.

use std::panic::{self, AssertUnwindSafe};

use glovebox::testkit::{
    Driver,
    faults::{Fault, Plan},
    scenarios, snapshot,
    stage::{Scenario, Stage},
};

/// A story on a runtime of its own, whose clock is paused.
pub(crate) fn play(scenario: &Scenario, prepare: impl FnOnce(&mut Driver)) -> Stage {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let mut driver = Driver::new();
        prepare(&mut driver);
        scenario.play(driver).await
    })
}

pub(crate) fn scenario(name: &str) -> &'static Scenario {
    scenarios::all().find(|scenario| scenario.name == name).unwrap_or_else(|| panic!("no story {name}"))
}

/// What differs from the run without fault, and what did not hold on the way.
pub(crate) fn wrong(plain: &Stage, faulty: &Stage) -> Vec<String> {
    let mut wrong = faulty.driver.violations();
    for (stop, (left, right)) in plain.states.iter().zip(&faulty.states).enumerate() {
        wrong.extend(
            snapshot::differences(left, right)
                .into_iter()
                .map(|difference| format!("stop {stop}: {difference}")),
        );
    }
    wrong
}

/// Whether this call of the story meets this fault.
fn meets(name: &str, call: usize, fault: usize) -> bool {
    std::env::var_os("GLOVEBOX_EVERY_FAULT").is_some() || (name.len() + call + fault).is_multiple_of(3)
}

/// Plays the story once without fault, then with each fault that a call meets.
fn converges(name: &str) {
    let scenario = scenario(name);
    let plain = play(scenario, |_| {});
    assert_eq!(plain.driver.violations(), Vec::<String>::new());
    let calls = plain.driver.calls();
    let mut failed = Vec::new();
    let all = (0..calls.len()).flat_map(|call| (0..Fault::ALL.len()).map(move |fault| (call, fault)));
    let met: Vec<_> = all.filter(|(call, fault)| meets(name, *call, *fault)).collect();
    for (call, fault) in met.iter().map(|(call, fault)| (*call, Fault::ALL[*fault])) {
        let faulty = panic::catch_unwind(AssertUnwindSafe(|| {
            wrong(&plain, &play(scenario, |driver| driver.set_faults(Plan::one(call, fault))))
        }));
        let label = calls[call].label();
        match faulty {
            Ok(wrong) if wrong.is_empty() => {}
            Ok(wrong) => failed.push(format!("{fault:?} at call {call} ({label}): {wrong:#?}")),
            Err(_) => failed.push(format!("{fault:?} at call {call} ({label}): see above")),
        }
    }
    assert!(failed.is_empty(), "{} of {} runs went wrong:\n{}", failed.len(), met.len(), failed.join("\n"));
}

/// Three faults at once, at random but repeatable calls: what a bad minute looks like.
#[test]
fn converges_through_several_faults() {
    let mut random = Random(42);
    for scenario in scenarios::all() {
        let plain = play(scenario, |_| {});
        let calls = plain.driver.calls().len();
        for _ in 0..10 {
            let faults: Vec<_> =
                (0..3).map(|_| (random.below(calls), Fault::ALL[random.below(Fault::ALL.len())])).collect();
            let stage = play(scenario, |driver| driver.set_faults(Plan::many(faults.clone())));
            assert_eq!(wrong(&plain, &stage), Vec::<String>::new(), "{} with {faults:?}", scenario.name);
        }
    }
}

/// A linear congruential generator with the constants of Knuth's MMIX.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % bound
    }
}

macro_rules! stories {
    ($($name:ident)+) => {
        $(#[test] fn $name() { converges(stringify!($name)); })+

        #[test]
        fn every_story_is_told() {
            let told = [$(stringify!($name),)+];
            let all: Vec<&str> = scenarios::all().map(|scenario| scenario.name).collect();
            assert_eq!(told.as_slice(), all);
        }
    };
}

stories! {
    ttl_ends_it
    exit_zero_completes_it
    exit_three_fails_it
    exit_zero_without_record_fails_it
    weaker_kernel_seen_from_inside
    weaker_kernel_seen_from_outside
    weaker_kernel_accepted
    startup_deadline
    teardown_stalls
    controller_away_at_the_end
    controller_away_at_an_exit
    quota_then_room
    quota_race
    namesake_within_a_second
    name_taken_by_another_pod
    name_taken_by_an_unseen_pod
    fence_breached
    class_comes_later
    reference_comes_later
    unreadable
    egress_edited_live
    egress_policy_edited_live
    credentials_are_granted_for_a_life
    ttl_lowered_live
    pod_deleted_by_somebody
    namespace_deleted
    foreground_deletion
    fence_deleted_by_somebody
    runtime_class_removed
    class_removed
    class_is_tried
    class_is_weaker
    class_is_mended
    named_ports_come_and_go
    named_ports_grow
    named_ports_are_put_back
    named_ports_run_out
}
