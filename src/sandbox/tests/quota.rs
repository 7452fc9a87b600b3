//! The quota's numbers, the runtime's overhead included, and when it is used up.

use std::sync::Arc;

use k8s_openapi::api::{core::v1::ResourceQuota, node::v1::RuntimeClass};
use serde_json::{Value, json};

use super::{good, planned, sandbox, vm_class, with, world};
use crate::sandbox::{
    World, desired,
    desired::Wanted,
    plan::Limits,
    quota::{self, Use},
};

fn overhead() -> RuntimeClass {
    serde_json::from_value(json!({"metadata": {"name": "kata"}, "handler": "kata", "overhead": {"podFixed": {"cpu": "250m", "memory": "160Mi"}}})).unwrap()
}

fn with_quota(quota: Value) -> World {
    let mut world = world(
        with(
            vm_class(),
            &[
                ("/spec/quota", quota),
                ("/spec/resources/default", json!({"cpu": "1", "memory": "1Gi", "ephemeralStorage": "1Gi"})),
            ],
        ),
        sandbox(),
    );
    world.runtime_class = Some(Arc::new(overhead()));
    world
}

fn hard(world: &World) -> Value {
    match desired(&planned(world), 60).quota {
        Wanted::Present(quota) => serde_json::to_value(quota.spec.unwrap().hard).unwrap(),
        Wanted::Absent(name) => json!(name),
    }
}

#[test]
fn the_overhead_of_each_sandbox_is_added() {
    let all = with_quota(json!({"sandboxes": 10, "cpu": "20", "memory": "10Gi"}));
    assert_eq!(hard(&all), json!({"pods": "10", "limits.cpu": "22500m", "limits.memory": "11840Mi"}));
    assert_eq!(hard(&with_quota(json!({"sandboxes": 3}))), json!({"pods": "3"}));
    assert_eq!(
        hard(&with_quota(json!({"sandboxes": 0, "cpu": "1"}))),
        json!({"pods": "0", "limits.cpu": "1"})
    );
    assert_eq!(
        hard(&world(vm_class_with_room(), sandbox())),
        json!("glovebox-restricted"),
        "no quota is wanted absent, by name"
    );
}

fn vm_class_with_room() -> Value {
    with(
        vm_class(),
        &[("/spec/resources/default", json!({"cpu": "1", "memory": "1Gi", "ephemeralStorage": "1Gi"}))],
    )
}

#[test]
fn a_quota_counts_its_class_alone() {
    let Wanted::Present(quota) = desired(&planned(&with_quota(json!({"sandboxes": 1}))), 60).quota else {
        panic!("no quota")
    };
    let scope = &quota.spec.unwrap().scope_selector.unwrap().match_expressions.unwrap()[0];
    assert_eq!((scope.scope_name.as_str(), scope.operator.as_str()), ("PriorityClass", "In"));
    assert_eq!(scope.values.as_deref(), Some(&["glovebox-restricted".to_owned()][..]));
}

#[test]
fn an_excess_is_told_in_numbers() {
    let quota = |hard: Value, used: Value| -> ResourceQuota {
        serde_json::from_value(json!({"metadata": {"name": "q"}, "status": {"hard": hard, "used": used}}))
            .unwrap()
    };
    let limits = Limits { cpu_milli: 1000, memory: 1 << 30, ephemeral_storage: 1 };
    let excess = |quota: &ResourceQuota| quota::excess(quota, limits, Some(&overhead()));
    let hard = json!({"pods": "2", "limits.cpu": "2500m", "limits.memory": "2368Mi"});
    assert_eq!(
        excess(&quota(hard.clone(), json!({"pods": "1", "limits.cpu": "1250m", "limits.memory": "1184Mi"}))),
        None,
        "just enough"
    );
    let message =
        excess(&quota(hard.clone(), json!({"pods": "2", "limits.cpu": "1251m", "limits.memory": "1185Mi"})))
            .unwrap();
    for word in [
        "\"q\"",
        "pods: 2 used of 2, 1 more needed",
        "limits.cpu: 1251m used of 2500m, 1250m more needed",
        "limits.memory: 1185Mi used of 2368Mi, 1184Mi more needed",
        "starts by itself",
    ] {
        assert!(message.contains(word), "{word:?} is not in {message:?}");
    }
    // Not known yet is not over: the API server will say.
    assert_eq!(excess(&serde_json::from_value(json!({"metadata": {"name": "q"}})).unwrap()), None);
    assert_eq!(excess(&quota(json!({}), json!({}))), None);
    assert_eq!(excess(&quota(json!({"pods": "odd"}), json!({"pods": "1"}))), None);
}

/// What the controller counts itself is told in the same words.
#[test]
fn what_is_counted_here_is_held_against_the_class_too() {
    let world = with_quota(json!({"sandboxes": 2, "cpu": "2"}));
    let plan = planned(&world);
    let one = quota::needs(plan.limits, world.runtime_class.as_deref());
    let excess = |used| quota::excess_of(&plan, used, world.runtime_class.as_deref());
    assert_eq!((excess(Use::default()), excess(one)), (None, None), "there is room for two");
    let message = excess(one.plus(one)).unwrap();
    assert!(
        message.contains("\"glovebox-restricted\" is used up: pods: 2 used of 2, 1 more needed"),
        "{message}"
    );
    assert_eq!(Use::of(&desired(&plan, 60).pod), quota::needs(plan.limits, None));
    let without = planned(&good());
    assert_eq!(quota::excess_of(&without, one.plus(one), None), None, "a class without a quota");
}

#[test]
fn a_priority_class_never_preempts() {
    let class = desired(&planned(&with_quota(json!({"sandboxes": 1}))), 60).priority_class;
    assert_eq!(
        (class.value, class.preemption_policy.as_deref(), class.global_default),
        (0, Some("Never"), Some(false))
    );
}
