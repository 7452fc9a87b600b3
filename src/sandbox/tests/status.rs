//! What is said, and that it is said once.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    OTHER_BOOT_ID, at, changed, exit_record, good, init_ended, proven, running_status, vm_class, with,
    with_pod, workload, world,
};
use crate::{
    api::{AgentSandboxStatus, ConditionType},
    report::{self, ExitRecord, FenceProof, VERSION},
    sandbox::{
        World, lifecycle,
        named::{Hosts, View, needs},
        plan,
        status::status,
    },
};

fn tell(world: &World, now: Timestamp) -> Option<AgentSandboxStatus> {
    let plan = plan(world);
    let next = lifecycle::next(world, plan.as_ref(), now);
    status(world, plan.as_ref(), &next, now)
}

/// The world after the status was written.
fn told(world: &World, now: Timestamp) -> World {
    let status = tell(world, now).unwrap_or_else(|| panic!("nothing to tell of {:?}", world.sandbox.status));
    changed(world.clone(), &[("/status", serde_json::to_value(status).unwrap())])
}

fn condition(world: &World, kind: ConditionType) -> Option<Value> {
    let conditions = &world.sandbox.status.as_ref()?.conditions;
    let found = conditions.iter().find(|condition| condition.type_ == kind.as_str());
    found.map(|condition| json!(condition))
}

fn summary(world: &World) -> Vec<String> {
    let conditions = &world.sandbox.status.as_ref().unwrap().conditions;
    conditions
        .iter()
        .map(|condition| format!("{} {} {}", condition.type_, condition.status, condition.reason))
        .collect()
}

/// Ports of hosts: nothing while they are about to be made, then that they are, or what is missing and what to do instead.
#[test]
fn ports_of_hosts_are_told_once_they_stand_or_never_will() {
    let rules = json!([{"name": "db", "hosts": ["db.example"], "ports": [5432, 80], "protocol": "TCP"}]);
    let world = changed(with_pod(good(), running_status()), &[("/spec/egress", json!({"allow": rules}))]);
    let named = |view: View| World { named: view, ..world.clone() };
    assert_eq!(
        needs(&world).into_values().collect::<Vec<_>>(),
        [[5432].into()],
        "port 80 is no port of its own"
    );
    let said = |world: &World| condition(world, ConditionType::NamedPorts).map(|said| said["reason"].clone());
    assert_eq!(said(&told(&named(View::Waiting), at(30))), None);
    let assigned = told(&named(View::Assigned), at(30));
    assert_eq!(said(&assigned), Some(json!("PortsAssigned")));
    assert_eq!(tell(&assigned, at(90)), None, "once");
    let moment = World { named: View::Waiting, ..assigned.clone() };
    assert_eq!(tell(&moment, at(90)), None, "a Service that is made anew is no news");
    let lacking = told(&World { named: View::Lacking("db.example: why".into()), ..assigned }, at(90));
    let message = condition(&lacking, ConditionType::NamedPorts).unwrap()["message"].clone();
    assert!(
        ["db.example: why", "CONNECT"].iter().all(|part| message.as_str().unwrap().contains(part)),
        "{message}"
    );
    let none = told(&World { named: View::None, ..lacking.clone() }, at(90));
    assert_eq!(said(&none), None);
    let gone = changed(lacking, &[("/metadata/deletionTimestamp", json!("2027-01-01T00:02:00Z"))]);
    assert_eq!(needs(&gone), Hosts::new());
}

#[test]
fn a_life_in_conditions() {
    let quick = tell(&with_pod(good(), json!({"phase": "Pending"})), at(2));
    assert_eq!(quick, None, "a quick start needs no write");
    let starting = told(&with_pod(good(), json!({"phase": "Pending"})), at(20));
    assert_eq!(
        summary(&starting),
        [
            "Accepted True Accepted",
            "ResolvedRefs True Resolved",
            "RuntimeAvailable True Available",
            "FenceVerified False Probing",
            "Ready False Starting"
        ]
    );
    let running = told(&with_pod(starting, running_status()), at(30));
    assert_eq!(summary(&running)[3..], ["FenceVerified True FenceHolds", "Ready True Running"]);
    let state = running.sandbox.status.as_ref().unwrap();
    assert_eq!(
        (state.ready_at.as_ref().map(|time| time.0), state.started_at.as_ref().map(|time| time.0)),
        (Some(at(3)), Some(at(1)))
    );
    assert_eq!(state.expires_at.as_ref().map(|time| time.0), Some(at(600)));
    assert_eq!(
        (state.node_name.as_deref(), state.pod_ip.as_deref(), state.runtime.as_deref()),
        (Some("node-1"), Some("10.244.0.9"), Some("gVisor"))
    );
    let exit = json!({"terminated": {"exitCode": 0, "message": exit_record(0, None), "startedAt": at(3).to_string(), "finishedAt": at(40).to_string()}});
    let done = told(
        &with_pod(
            running,
            with(running_status(), &[("/phase", json!("Succeeded")), ("/containerStatuses", workload(exit))]),
        ),
        at(41),
    );
    let end = ["FenceVerified True FenceHolds", "Ready False Finished", "Finished True Completed"];
    assert_eq!(summary(&done)[3..], end);
    let state = done.sandbox.status.as_ref().unwrap();
    assert_eq!((state.exit_code, state.finished_at.as_ref().map(|time| time.0)), (Some(0), Some(at(40))));
}

/// Open before the workload existed, while it ran, or a gateway that did not answer: told as what it is.
#[test]
fn a_fence_that_does_not_hold_is_told() {
    let proof = |open: Option<&str>, missing: Option<&str>| FenceProof {
        rounds: 0,
        open: open.map(ToOwned::to_owned),
        missing: missing.map(ToOwned::to_owned),
    };
    for (code, fence, reason, word) in [
        (79, proof(Some("10.96.0.53:9099"), None), "FenceOpen", "10.96.0.53:9099 must not be reachable"),
        (
            80,
            proof(None, Some("10.96.0.53:3128")),
            "GatewayUnreachable",
            "does not answer at 10.96.0.53:3128",
        ),
    ] {
        let report = proven(OTHER_BOOT_ID, true, Some(fence));
        let failed = json!({"phase": "Failed", "startTime": at(1).to_string(), "initContainerStatuses": init_ended(code, &report)});
        let told = told(&with_pod(good(), failed), at(30));
        let fence = condition(&told, ConditionType::FenceVerified).unwrap();
        assert_eq!((&fence["status"], &fence["reason"]), (&json!("False"), &json!(reason)));
        assert!(fence["message"].as_str().unwrap().contains(word), "{fence}");
        assert_eq!(told.sandbox.status.as_ref().unwrap().reason.as_deref(), Some(reason));
    }
    let record = ExitRecord {
        v: VERSION,
        exit_code: Some(79),
        signal: None,
        spawn_error: None,
        oom: None,
        fence_open: Some("10.96.0.1:443".into()),
    };
    let exit = json!({"terminated": {"exitCode": 79, "message": report::encode(&record).unwrap(), "finishedAt": at(40).to_string()}});
    let opened =
        with(running_status(), &[("/phase", json!("Failed")), ("/containerStatuses", workload(exit))]);
    let told = told(&with_pod(good(), opened), at(41));
    assert_eq!(condition(&told, ConditionType::FenceVerified).unwrap()["reason"], "FenceOpen");
    assert_eq!(told.sandbox.status.as_ref().unwrap().reason.as_deref(), Some("FenceOpen"));
}

/// A pod that the kubelet watches, its workload running since the third second: ready or not since then.
fn watched(ready: bool, turned: i64) -> World {
    let mut status = running_status();
    status["containerStatuses"][0]["ready"] = json!(ready);
    status["conditions"] = json!([{
        "type": "ContainersReady", "status": if ready { "True" } else { "False" },
        "lastTransitionTime": at(turned).to_string(),
    }]);
    let mut pod = super::pod(status);
    pod["spec"]["containers"] = json!([{"name": "workload", "readinessProbe": {}}]);
    let mut world = good();
    world.pod =
        crate::sandbox::world::PodSlot::Ours(std::sync::Arc::new(serde_json::from_value(pod).unwrap()));
    world
}

/// Where the class says Report, a workload runs on behind an open fence, and nobody is told that it holds.
#[test]
fn a_fence_that_falls_is_reported_while_the_workload_runs() {
    for (ready, turned, now, holds) in [
        (false, 1, 5, true),   // not looked at yet: the proof before the start stands
        (false, 1, 18, false), // never seen closed for too long
        (true, 6, 60, true),
        (false, 50, 60, false),
        (true, 70, 80, true), // closed again
    ] {
        let after = told(&watched(ready, turned), at(now));
        let expected = if holds { ("True", "FenceHolds") } else { ("False", "FenceOpen") };
        let fence = condition(&after, ConditionType::FenceVerified).unwrap();
        let case = format!("ready {ready} since {turned}, at {now}: {fence}");
        assert_eq!((&fence["status"], &fence["reason"]), (&json!(expected.0), &json!(expected.1)), "{case}");
        assert_eq!(condition(&after, ConditionType::Ready).unwrap()["status"], expected.0, "{case}");
        let status = after.sandbox.status.as_ref().unwrap();
        assert_eq!(status.phase, Some(crate::api::Phase::Running), "{case}");
        assert_eq!(status.reason.as_deref(), (!holds).then_some("FenceOpen"), "{case}");
        let enforced = serde_json::to_value(&status.enforcement.as_ref().unwrap().egress_fence).unwrap();
        assert_eq!(enforced["state"], if holds { "Enforced" } else { "NotEnforced" }, "{case}");
        assert_eq!(tell(&after, at(now + 1)), None, "{case}");
    }
    let world = watched(false, 1);
    let next = lifecycle::next(&world, plan(&world).as_ref(), at(5));
    assert_eq!((next.step, next.wait.as_secs()), (lifecycle::Step::Keep, 13));
}

/// A report without a proof is not our init container's.
#[test]
fn a_workload_behind_no_proof_is_ended() {
    let mut status = running_status();
    status["initContainerStatuses"] = init_ended(0, &proven(OTHER_BOOT_ID, true, None));
    let world = with_pod(good(), status);
    let next = lifecycle::next(&world, plan(&world).as_ref(), at(30));
    assert_eq!(next.step, lifecycle::Step::DeletePod { at_once: false });
    let told = told(&world, at(30));
    assert_eq!(told.sandbox.status.as_ref().unwrap().reason.as_deref(), Some("FenceOpen"));
}

/// Told again, whenever: nothing to write.
#[test]
fn nothing_is_said_twice() {
    let exit = json!({"terminated": {"exitCode": 3, "message": exit_record(3, None), "finishedAt": at(40).to_string()}});
    for before in [
        with_pod(good(), json!({"phase": "Pending"})),
        with_pod(good(), running_status()),
        with_pod(
            good(),
            with(running_status(), &[("/phase", json!("Failed")), ("/containerStatuses", workload(exit))]),
        ),
        changed(good(), &[("/spec/ttl", json!("2h"))]),
        world(vm_class(), super::sandbox()),
    ] {
        let after = told(&before, at(50));
        for later in [50, 51, 59, 110] {
            assert_eq!(tell(&after, at(later)), None, "after {later} s: {:?}", after.sandbox.status);
        }
    }
}

/// A fraction of a second is never read back, so that it would be written for ever.
#[test]
fn fractions_are_not_said_twice() {
    let after =
        told(&with_pod(changed(good(), &[("/spec/ttl", json!("90500ms"))]), running_status()), at(10));
    assert_eq!(after.sandbox.status.as_ref().unwrap().expires_at.as_ref().map(|time| time.0), Some(at(90)));
    assert_eq!(tell(&after, at(20)), None);
}

/// A transition time moves with the status of a condition, not with its reason or message.
#[test]
fn transition_times_are_kept() {
    let first = told(&changed(good(), &[("/spec/ttl", json!("2h"))]), at(10));
    let time = |world: &World, kind| condition(world, kind).unwrap()["lastTransitionTime"].clone();
    assert_eq!(time(&first, ConditionType::Accepted), at(10).to_string());
    let other = told(&changed(first, &[("/spec/ttl", json!("3h"))]), at(20));
    assert_eq!(time(&other, ConditionType::Accepted), at(10).to_string());
    assert!(condition(&other, ConditionType::Accepted).unwrap()["message"].as_str().unwrap().contains("3h"));
    let mended = told(&with_pod(changed(other, &[("/spec/ttl", json!("10m"))]), running_status()), at(30));
    assert_eq!(time(&mended, ConditionType::Accepted), at(30).to_string());
    assert_eq!(condition(&mended, ConditionType::Ready).unwrap()["observedGeneration"], 1);
}

/// What was true of an older spec is not said of a newer one that is refused earlier.
#[test]
fn a_new_generation_forgets() {
    let mut missing = good();
    missing.unresolved = Some(crate::sandbox::Refusal::unresolved(
        crate::api::Reason::ConfigMapNotFound,
        "spec.env[A]: ConfigMap \"c\"",
    ));
    let first = told(&missing, at(10));
    assert_eq!(
        summary(&first),
        ["Accepted True Accepted", "ResolvedRefs False ConfigMapNotFound", "Ready False ConfigMapNotFound"]
    );
    let edited = changed(first, &[("/metadata/generation", json!(2)), ("/spec/ttl", json!("2h"))]);
    assert_eq!(summary(&told(&edited, at(20))), ["Accepted False ExceedsClass", "Ready False ExceedsClass"]);
}

#[test]
fn a_refused_edit_is_told_beside_the_running() {
    let edited = changed(with_pod(good(), running_status()), &[("/spec/ttl", json!("2h"))]);
    let after = told(&edited, at(10));
    assert_eq!(condition(&after, ConditionType::Accepted).unwrap()["reason"], "ExceedsClass");
    assert_eq!(condition(&after, ConditionType::Ready).unwrap()["status"], "True");
}

#[test]
fn weaker_isolation_is_told_everywhere() {
    let class = with(vm_class(), &[("/spec/runtime/acceptWeakerIsolation", json!("no KVM here"))]);
    let fields = [("/spec/resources", json!({"memory": "2Gi"}))];
    let after = told(&with_pod(changed(world(class, super::sandbox()), &fields), running_status()), at(10));
    let state = after.sandbox.status.as_ref().unwrap();
    assert_eq!(state.runtime.as_deref(), Some("gVisor (weaker than VirtualMachine)"));
    let kernel = serde_json::to_value(&state.enforcement.as_ref().unwrap().kernel_isolation).unwrap();
    assert_eq!(kernel["state"], "NotEnforced");
    assert!(kernel["mechanism"].as_str().unwrap().contains("accepted by the class"), "{kernel}");
}

/// Stalled, then gone: both are told, once each.
#[test]
fn a_stalled_teardown_is_told_and_taken_back() {
    let ended = told(&with_pod(good(), running_status()), at(600));
    let going =
        with(super::pod(running_status()), &[("/metadata/deletionTimestamp", json!(at(601).to_string()))]);
    let mut stalled = ended.clone();
    stalled.pod =
        crate::sandbox::world::PodSlot::Ours(std::sync::Arc::new(serde_json::from_value(going).unwrap()));
    assert_eq!(tell(&stalled, at(650)), None);
    let said = told(&stalled, at(661));
    let message = condition(&said, ConditionType::TeardownStalled).unwrap()["message"].to_string();
    assert!(message.contains("node-1"), "{message}");
    assert_eq!(tell(&said, at(700)), None);
    let mut gone = said;
    gone.pod = crate::sandbox::world::PodSlot::Free;
    let after = told(&gone, at(710));
    assert_eq!(condition(&after, ConditionType::TeardownStalled).unwrap()["status"], "False");
    assert_eq!(tell(&after, at(720)), None);
}

/// Every condition is what the API accepts: a reason in letters, a message within its bound.
#[test]
fn conditions_are_within_the_apis_bounds() {
    let hostile = "x".repeat(300);
    for world in [
        changed(good(), &[("/spec/image", json!(format!("evil/{hostile} y")))]),
        changed(good(), &[("/spec/workspace/mountPath", json!(format!("/proc/{hostile}")))]),
        with_pod(good(), json!({"phase": "Failed", "reason": hostile, "message": "x".repeat(100_000)})),
    ] {
        let state = tell(&world, at(50)).unwrap();
        for condition in state.conditions {
            assert!(condition.message.len() <= 32_768 && !condition.reason.is_empty(), "{condition:?}");
            assert!(condition.message.len() <= 2000, "a message for people: {}", condition.message.len());
        }
        assert!(state.reason.is_none_or(|reason| reason.len() <= 64));
    }
}
