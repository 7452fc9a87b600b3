//! What comes next, case by case.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    NODE_BOOT_ID, OTHER_BOOT_ID, at, changed, class, exit_record, good, init_ended, kernel_report,
    running_status, sandbox, vm_class, with, with_pod, workload, world,
};
use crate::{
    api::{ConditionType, Reason},
    sandbox::{
        World,
        idle::LastUse,
        lifecycle::{self, Next, State, Step},
        plan,
        world::PodSlot,
    },
};

fn next(world: &World, now: Timestamp) -> Next {
    lifecycle::next(world, plan(world).as_ref(), now)
}

fn running() -> World {
    with_pod(good(), running_status())
}

#[track_caller]
fn ends(next: &Next, reason: Reason, step: &Step) {
    let State::Ended(ending) = &next.state else { panic!("{next:?}") };
    assert_eq!((ending.reason, &next.step), (reason, step), "{}", ending.message);
}

const DELETE: Step = Step::DeletePod { at_once: false };
const DELETE_AT_ONCE: Step = Step::DeletePod { at_once: true };

/// The pod gets what remains of the time, in whole seconds, rounded up.
#[test]
fn a_pod_is_made_with_what_remains() {
    for (seconds, deadline) in [(0, 600), (1, 599), (599, 1)] {
        assert_eq!(next(&good(), at(seconds)).step, Step::Create(deadline));
    }
    let late = at(599) + jiff::SignedDuration::from_millis(999);
    assert_eq!(next(&good(), late).step, Step::Create(1));
    let extendable = world(with(class(), &[("/spec/ttl/extendable", json!(true))]), sandbox());
    assert_eq!(
        next(&extendable, at(100)).step,
        Step::Create(3500),
        "the class's most, since it can't be raised later"
    );
}

/// No gateway, no proof of a fence, no pod; what already runs runs on.
#[test]
fn without_a_gateway_nothing_is_made() {
    let world = World { gateway: None, ..good() };
    let State::Pending(refusal) = next(&world, at(1)).state else { panic!() };
    assert_eq!(
        (refusal.condition, refusal.reason),
        (ConditionType::FenceVerified, Reason::GatewayUnreachable)
    );
    assert!(refusal.message.contains("glovebox-system/glovebox-gateway"), "{}", refusal.message);
    let living = World { gateway: None, ..running() };
    assert!(matches!(next(&living, at(10)).state, State::Running { refused: None, .. }));
}

/// A quick start needs no word; a slow one does.
#[test]
fn a_start_is_told_when_it_is_slow() {
    for (seconds, tell) in [(0, false), (9, false), (10, true), (60, true)] {
        let creating = next(&good(), at(seconds));
        let starting = next(&with_pod(good(), json!({"phase": "Pending"})), at(seconds));
        for next in [creating, starting] {
            let State::Starting { tell: told, problem: None } = next.state else { panic!("{next:?}") };
            assert_eq!(told, tell, "after {seconds} s");
        }
    }
}

#[test]
fn no_pod_where_something_is_in_the_way() {
    let pending = |world: &World, condition: ConditionType, reason: Reason| {
        let next = next(world, at(1));
        let State::Pending(refusal) = &next.state else { panic!("{next:?}") };
        assert_eq!((refusal.condition, refusal.reason, &next.step), (condition, reason, &Step::Nothing));
    };
    pending(&changed(good(), &[("/spec/ttl", json!("2h"))]), ConditionType::Accepted, Reason::ExceedsClass);
    let mut no_runtime = good();
    no_runtime.runtime_class = None;
    pending(&no_runtime, ConditionType::RuntimeAvailable, Reason::RuntimeClassNotFound);
    let mut full = good();
    let quota = json!({"metadata": {"name": "q"}, "status": {"hard": {"pods": "1"}, "used": {"pods": "1"}}});
    full.quota = Some(std::sync::Arc::new(serde_json::from_value(quota).unwrap()));
    pending(&full, ConditionType::Ready, Reason::QuotaExceeded);
    let mut former = good();
    former.pod = PodSlot::Taken { by: "a former sandbox of this name".into(), former: true };
    let waits = next(&former, at(1));
    assert_eq!((waits.step, waits.state), (Step::Nothing, State::Starting { problem: None, tell: false }));
    former.pod = PodSlot::Taken { by: "Job \"x\"".into(), former: false };
    let State::Starting { problem: Some((Reason::SandboxCreationFailed, message)), tell: true } =
        next(&former, at(1)).state
    else {
        panic!()
    };
    assert!(message.contains("Job"), "{message}");
}

#[test]
fn a_pod_that_is_gone_is_not_made_again() {
    let started = changed(good(), &[("/status/startedAt", json!(at(1).to_string()))]);
    ends(&next(&started, at(5)), Reason::PodDeleted, &Step::Nothing);
}

#[test]
fn the_time_is_over_at_its_end() {
    assert!(matches!(next(&running(), at(599)).state, State::Running { .. }));
    ends(&next(&running(), at(600)), Reason::TtlExpired, &DELETE_AT_ONCE);
    ends(&next(&good(), at(600)), Reason::TtlExpired, &Step::Nothing);
    let done = with(
        running_status(),
        &[
            ("/phase", json!("Succeeded")),
            (
                "/containerStatuses",
                workload(
                    json!({"terminated": {"exitCode": 0, "message": exit_record(0, None), "finishedAt": at(300).to_string()}}),
                ),
            ),
        ],
    );
    ends(&next(&with_pod(good(), done), at(900)), Reason::Completed, &Step::Nothing);
}

/// Whatever the clock does, the end comes when it shows the end, and the next look is never far.
#[test]
fn clocks_jump() {
    let back = next(&running(), at(-3600));
    assert!(matches!(back.state, State::Running { .. }) && back.wait <= Duration::from_secs(60), "{back:?}");
    assert_eq!(next(&good(), at(-3600)).step, Step::Create(4200), "by the date, which is all there is");
    ends(&next(&running(), at(86_400 * 365)), Reason::TtlExpired, &DELETE_AT_ONCE);
    assert!(next(&running(), Timestamp::MIN).wait <= Duration::from_secs(60));
    ends(&next(&running(), Timestamp::MAX), Reason::TtlExpired, &DELETE_AT_ONCE);
}

#[test]
fn a_start_has_its_own_deadline() {
    let pulling = json!({"phase": "Pending", "containerStatuses": workload(json!({"waiting": {"reason": "ErrImagePull", "message": "no such image"}}))});
    let world = with_pod(good(), pulling);
    let State::Starting { problem: Some((reason, _)), tell: true } = next(&world, at(100)).state else {
        panic!()
    };
    assert_eq!(reason, Reason::ImagePullFailed);
    // Counted from the pod's creation, a second after the sandbox's.
    assert!(matches!(next(&world, at(120)).state, State::Starting { .. }));
    let late = next(&world, at(121));
    ends(&late, Reason::StartupDeadlineExceeded, &DELETE);
    let State::Ended(ending) = late.state else { panic!() };
    assert!(
        ending.message.contains("within 2m") && ending.message.contains("no such image"),
        "{}",
        ending.message
    );
}

#[test]
fn a_ttl_that_was_lowered_lowers_the_pods_deadline() {
    let told = ("/status/expiresAt", json!(at(600).to_string()));
    let lowered = changed(running(), &[told.clone(), ("/spec/ttl", json!("5m"))]);
    // The pod started a second after the sandbox was made.
    assert_eq!(next(&lowered, at(10)).step, Step::LowerDeadline(299));
    assert!(next(&lowered, at(299)).wait <= Duration::from_secs(1));
    ends(&next(&lowered, at(300)), Reason::TtlExpired, &DELETE_AT_ONCE);
    let same = changed(running(), &[told.clone(), ("/spec/ttl", json!("10m"))]);
    assert_eq!(next(&same, at(10)).step, Step::Keep);
    // Raised against the class's will: what was told stays.
    let raised = changed(running(), &[told, ("/spec/ttl", json!("30m"))]);
    let State::Running { refused: Some(refusal), .. } = next(&raised, at(10)).state else { panic!() };
    assert_eq!(refusal.reason, Reason::ExceedsClass);
    ends(&next(&raised, at(600)), Reason::TtlExpired, &DELETE_AT_ONCE);
}

#[test]
fn an_extendable_pod_carries_the_most_and_ends_by_the_ttl() {
    let class = with(class(), &[("/spec/ttl/extendable", json!(true))]);
    let mut world = with_pod(world(class, sandbox()), running_status());
    let long = with(super::pod(running_status()), &[("/spec/activeDeadlineSeconds", json!(3600))]);
    world.pod = PodSlot::Ours(std::sync::Arc::new(serde_json::from_value(long).unwrap()));
    assert_eq!(next(&world, at(10)).step, Step::Keep, "it may be raised again");
    ends(&next(&world, at(600)), Reason::TtlExpired, &DELETE_AT_ONCE);
    let raised =
        changed(world, &[("/spec/ttl", json!("30m")), ("/status/expiresAt", json!(at(600).to_string()))]);
    assert!(matches!(next(&raised, at(700)).state, State::Running { refused: None, .. }));
    ends(&next(&raised, at(1800)), Reason::TtlExpired, &DELETE_AT_ONCE);
}

#[test]
fn what_nobody_uses_ends_once_everybody_was_asked() {
    let span = |seconds| jiff::SignedDuration::from_secs(seconds);
    let idle = |timeout: &str| changed(running(), &[("/spec/idleTimeout", json!(timeout))]);
    let used = |world: World, at, asked| World { last_use: Some(LastUse { at, asked }), ..world };
    let runs = |world: &World, now| matches!(next(world, now).state, State::Running { .. });
    let State::Running { since, .. } = next(&running(), at(5)).state else { panic!() };
    let due = since + span(120);

    let never = |asked| used(idle("2m"), None, asked);
    assert!(runs(&never(true), due - span(1)) && runs(&never(false), due));
    ends(&next(&never(true), due), Reason::IdleTimeout, &DELETE);
    assert!(next(&never(false), due - span(30)).wait <= Duration::from_secs(30));
    assert_eq!(next(&never(false), due).wait, Duration::from_secs(5), "it is asked again soon");
    assert!(runs(&idle("2m"), due), "where nobody can be asked nothing is idle");

    let later = used(idle("2m"), Some(since + span(60)), true);
    assert!(runs(&later, due + span(59)));
    ends(&next(&later, due + span(60)), Reason::IdleTimeout, &DELETE);
    // Before its workload ran nobody could use it.
    ends(&next(&used(idle("2m"), Some(at(0)), true), due), Reason::IdleTimeout, &DELETE);
    // The ttl has the last word, and what is asked for beyond the class counts for nothing.
    ends(&next(&used(idle("9m"), Some(at(590)), true), at(600)), Reason::TtlExpired, &DELETE_AT_ONCE);
    let short = with(class(), &[("/spec/idleTimeout", json!({"default": "2m", "max": "3m"}))]);
    let short = |timeout: &str| {
        let world = with_pod(world(short.clone(), sandbox()), running_status());
        used(changed(world, &[("/spec/idleTimeout", json!(timeout))]), None, true)
    };
    assert!(runs(&short("3m"), due));
    assert_eq!(plan(&short("4m")).unwrap_err().reason, Reason::ExceedsClass);
    ends(&next(&short("4m"), due), Reason::IdleTimeout, &DELETE);
}

#[test]
fn less_isolation_than_promised_ends_it() {
    let kernel = |boot_id: &str, gvisor: bool| {
        with(running_status(), &[("/initContainerStatuses", init_ended(0, &kernel_report(boot_id, gvisor)))])
    };
    let accepting = with(vm_class(), &[("/spec/runtime/acceptWeakerIsolation", json!("no KVM here"))]);
    for (class, status, ok) in [
        (class(), kernel(OTHER_BOOT_ID, true), true),
        (class(), kernel(OTHER_BOOT_ID, false), true),
        (class(), kernel(NODE_BOOT_ID, false), false),
        (vm_class(), kernel(OTHER_BOOT_ID, false), true),
        (vm_class(), kernel(OTHER_BOOT_ID, true), false),
        (vm_class(), kernel(NODE_BOOT_ID, false), false),
        (accepting.clone(), kernel(OTHER_BOOT_ID, true), true),
        (accepting, kernel(NODE_BOOT_ID, false), true),
        (class(), with(running_status(), &[("/initContainerStatuses", init_ended(0, "forged"))]), false),
        (class(), with(running_status(), &[("/initContainerStatuses", json!([]))]), false),
    ] {
        let room = ("/spec/resources", json!({"memory": "2Gi"}));
        let next = next(&with_pod(changed(world(class, sandbox()), &[room]), status), at(10));
        if ok {
            assert!(matches!(next.state, State::Running { .. }), "{next:?}");
        } else {
            ends(&next, Reason::IsolationMismatch, &DELETE);
        }
    }
    let mut unknown = with_pod(good(), kernel(OTHER_BOOT_ID, false));
    unknown.nodes.clear();
    assert!(
        matches!(next(&unknown, at(5)).state, State::Starting { .. }),
        "not known yet is not ready, nor a mismatch"
    );
}

/// Without the class its promise can't be checked; once it was, the sandbox lives on.
#[test]
fn the_class_goes() {
    let mut orphan = running();
    orphan.class = Err(crate::sandbox::Refusal::accepted(Reason::ClassNotFound, "gone"));
    ends(&next(&orphan, at(10)), Reason::IsolationMismatch, &DELETE);
    let checked = changed(
        orphan,
        &[("/status/readyAt", json!(at(3).to_string())), ("/status/expiresAt", json!(at(600).to_string()))],
    );
    assert!(matches!(next(&checked, at(10)).state, State::Running { refused: Some(_), .. }));
    ends(&next(&checked, at(600)), Reason::TtlExpired, &DELETE_AT_ONCE);
}

#[test]
fn rules_that_are_refused_open_nothing() {
    let rules = |cidr: &str| json!([{"name": "x", "cidrs": [cidr], "ports": [443]}]);
    assert_eq!(
        next(&changed(running(), &[("/spec/egress/allow", rules("203.0.113.0/24"))]), at(10)).step,
        Step::Keep
    );
    assert_eq!(
        next(&changed(running(), &[("/spec/egress/allow", rules("169.254.0.0/16"))]), at(10)).step,
        Step::Close
    );
    let dangling =
        [("/spec/egress/allow", rules("203.0.113.0/24")), ("/spec/egress/policies", json!(["gone"]))];
    assert_eq!(next(&changed(running(), &dangling), at(10)).step, Step::Close);
}

fn finished(reason: &str, seconds: i64) -> [(&'static str, Value); 3] {
    [
        (
            "/status/conditions",
            json!([{"type": "Finished", "status": "True", "reason": reason, "message": "", "lastTransitionTime": at(seconds).to_string()}]),
        ),
        ("/status/finishedAt", json!(at(seconds).to_string())),
        ("/status/reason", json!(reason)),
    ]
}

#[test]
fn what_ended_is_kept_and_then_goes() {
    let over = changed(good(), &finished("Completed", 100));
    let kept = next(&over, at(399));
    assert_eq!((kept.step, kept.state), (Step::Nothing, State::Over { stalled_since: None }));
    assert_eq!(next(&over, at(400)).step, Step::DeleteSandbox);
    let living = changed(running(), &finished("IsolationMismatch", 100));
    assert_eq!(next(&living, at(101)).step, DELETE, "the pod first");
    assert_eq!(next(&living, at(1000)).step, DELETE);
}

/// What ended by itself keeps its log; what we ended goes, even if the kubelet was first.
#[test]
fn whose_pod_stays() {
    let failed = json!({"phase": "Failed", "reason": "DeadlineExceeded"});
    for (reason, step) in [
        ("Completed", Step::Nothing),
        ("Error", Step::Nothing),
        ("OOMKilled", Step::Nothing),
        ("TtlExpired", DELETE),
        ("StartupDeadlineExceeded", DELETE),
        ("IsolationMismatch", DELETE),
    ] {
        let world = changed(with_pod(good(), failed.clone()), &finished(reason, 100));
        assert_eq!(next(&world, at(101)).step, step, "{reason}");
    }
}

#[test]
fn a_pod_that_does_not_go_is_called_stalled() {
    let going = with(
        super::pod(running_status()),
        &[
            ("/metadata/deletionTimestamp", json!(at(101).to_string())),
            ("/metadata/deletionGracePeriodSeconds", json!(1)),
        ],
    );
    let mut world = changed(good(), &finished("TtlExpired", 100));
    world.pod = PodSlot::Ours(std::sync::Arc::new(serde_json::from_value(going).unwrap()));
    for (seconds, stalled) in [(102, None), (160, None), (161, Some(at(161))), (10_000, Some(at(161)))] {
        let next = next(&world, at(seconds));
        assert_eq!(
            (next.step, next.state),
            (Step::Nothing, State::Over { stalled_since: stalled }),
            "after {seconds} s"
        );
        assert!(next.wait >= Duration::from_secs(1));
    }
}

#[test]
fn a_deleted_sandbox_is_left_to_its_owner_references() {
    let deleted = changed(running(), &[("/metadata/deletionTimestamp", json!(at(5).to_string()))]);
    let next = next(&deleted, at(1000));
    assert_eq!((next.step, next.state), (Step::Nothing, State::Deleting));
}
