//! What `plan` refuses, by which reason, and that the message names field, value and bound.

use serde_json::{Value, json};

use super::{changed, class, good, planned, refused, sandbox, vm_class, with, world};
use crate::{
    api::{ConditionType, Reason},
    sandbox::Refusal,
};

#[track_caller]
fn refuses(world: &crate::sandbox::World, reason: Reason, words: &[&str]) {
    let refusal = refused(world);
    assert_eq!((refusal.condition, refusal.reason), (ConditionType::Accepted, reason), "{}", refusal.message);
    for word in words {
        assert!(refusal.message.contains(word), "{word:?} is not in {:?}", refusal.message);
    }
}

/// Field of the sandbox | value | reason | words of the message, between semicolons.
const BAD: &str = r#"
/spec/ttl | "61m" | ExceedsClass | spec.ttl; 1h1m; at most 1h
/spec/resources/cpu | "9" | ExceedsClass | spec.resources.cpu; is 9; at most 8
/spec/resources/memory | "17Gi" | ExceedsClass | spec.resources.memory; 17Gi; at most 16Gi
/spec/resources/ephemeralStorage | "21Gi" | ExceedsClass | ephemeralStorage; 21Gi; 20Gi
/spec/resources/memory | "999999999999Ti" | InvalidSpec | spec.resources.memory; 999999999999Ti
/spec/resources/cpu | "lots" | InvalidSpec | spec.resources.cpu; "lots"; 500m
/spec/resources/cpu | "9m" | InvalidSpec | spec.resources.cpu is 9m; 10m
/spec/resources/memory | "31Mi" | InvalidSpec | spec.resources.memory is 31Mi; at least 32Mi
/spec/workspace/size | "5Gi" | ExceedsClass | spec.workspace.size is 5Gi; at most 4Gi
/spec/workspace/size | "1023Ki" | InvalidSpec | spec.workspace.size is 1023Ki; at least 1Mi
/spec/workspace/size | "-1" | InvalidSpec | spec.workspace.size; "-1"
/spec/workspace/size | "300Mi" | InvalidSpec | spec.workspace.size 300Mi; 525Mi; 512Mi; more memory
/spec/image | "$(id)" | InvalidSpec | spec.image; $(id); registry.example/team/app:1.2
/spec/image | "../../etc/passwd" | InvalidSpec | spec.image; ../../etc/passwd
/spec/image | "http://evil.example/a" | InvalidSpec | spec.image
/spec/image | "UPPER/case" | InvalidSpec | spec.image
/spec/image | "a\nb" | InvalidSpec | spec.image; \n
/spec/image | "glovebox.dev/tools@sha256:0123" | InvalidSpec | spec.image; 64 lower-case
/spec/workspace/inputs | [{"name": "i", "mountPath": "/in", "image": "a b"}] | InvalidSpec | spec.workspace.inputs[i].image
/spec/egress/allow | [{"name": "x", "cidrs": ["169.254.169.254/32"], "ports": [80]}] | EgressRejected | spec.egress.allow[x]; metadata
/spec/egress/allow | [{"name": "x", "cidrs": ["10.244.3.0/24"], "ports": [80]}] | EgressRejected | cluster's own
/spec/egress/allow | [{"name": "x", "cidrs": ["0.0.0.0/0"], "ports": [80]}] | EgressRejected | wider than /8
/spec/egress/allow | [{"name": "x", "cidrs": ["203.0.113.0/24"], "ports": [25]}] | EgressRejected | port 25
/spec/egress/allow | [{"name": "x", "hosts": ["**.com"]}] | EgressRejected | spec.egress.allow[x]; "**.com"; two labels
/spec/egress/allow | [{"name": "x", "hosts": ["dns.google"]}] | EgressRejected | spec.egress.allow[x]; dns.google; always denied
/metadata/uid | null | InvalidSpec | metadata.uid
"#;

#[test]
fn bad_fields_of_a_sandbox() {
    let mut rows = 0;
    for row in BAD.trim().lines() {
        let [field, value, reason, words] = row.split(" | ").collect::<Vec<_>>()[..] else { panic!("{row}") };
        let reason = Reason::ALL.iter().find(|known| known.as_str() == reason).unwrap();
        let words: Vec<&str> = words.split("; ").collect();
        refuses(&changed(good(), &[(field, serde_json::from_str(value).unwrap())]), *reason, &words);
        rows += 1;
    }
    assert!(rows > 20);
}

/// The least memory by runtime, and one byte less.
#[test]
fn the_least_memory_depends_on_the_runtime() {
    let qemu = with(vm_class(), &[("/spec/runtime/handler", json!("kata-qemu-runtime-rs"))]);
    for (class, mebibytes) in [(class(), 32_u64), (vm_class(), 128), (qemu, 256)] {
        let asks = |bytes: u64| {
            let size = if mebibytes == 32 { "1Mi" } else { "4Mi" };
            let fields =
                [("/spec/resources/memory", json!(bytes.to_string())), ("/spec/workspace/size", json!(size))];
            changed(world(class.clone(), sandbox()), &fields)
        };
        let least = mebibytes << 20;
        refuses(
            &asks(least - 1),
            Reason::InvalidSpec,
            &["spec.resources.memory", &format!("at least {mebibytes}Mi")],
        );
        // What is left to refuse at the least memory is that scratch space does not fit it.
        match crate::sandbox::plan(&asks(least)) {
            Ok(plan) => assert_eq!(plan.limits.memory, least),
            Err(refusal) => assert!(refusal.message.contains("with scratch space"), "{}", refusal.message),
        }
    }
}

#[test]
fn a_class_can_require_digests_and_bound_images() {
    let digest = format!("glovebox.dev/tools@sha256:{}", "0".repeat(64));
    let strict = world(
        with(class(), &[("/spec/images", json!({"allowed": ["glovebox.dev/*"], "requireDigest": true}))]),
        sandbox(),
    );
    refuses(&strict, Reason::ExceedsClass, &["spec.image", "no digest", "glovebox.dev/tools@sha256:..."]);
    refuses(
        &changed(strict.clone(), &[("/spec/image", json!("evil.example/tools"))]),
        Reason::ExceedsClass,
        &["images.allowed", "glovebox.dev/*"],
    );
    let pinned = changed(strict, &[("/spec/image", json!(digest))]);
    assert_eq!(planned(&pinned).image, digest);
    let input = json!([{"name": "data", "mountPath": "/in", "image": "evil.example/data"}]);
    refuses(
        &changed(pinned, &[("/spec/workspace/inputs", input)]),
        Reason::ExceedsClass,
        &["spec.workspace.inputs[data].image"],
    );
    let none = world(with(class(), &[("/spec/images", json!({"allowed": []}))]), sandbox());
    refuses(&none, Reason::ExceedsClass, &["spec.image"]);
}

#[test]
fn a_class_names_who_may_use_it() {
    let of = |labels: Value| with(class(), &[("/spec/namespaces/selector/matchLabels", labels)]);
    planned(&world(of(json!({"team": "a"})), sandbox()));
    refuses(
        &world(of(json!({"team": "b"})), sandbox()),
        Reason::ClassNotPermitted,
        &["spec.namespaces.selector", "restricted"],
    );
    let mut unknown = world(of(json!({"team": "a"})), sandbox());
    unknown.namespace_labels = None;
    refuses(&unknown, Reason::ClassNotPermitted, &["labels"]);
    let odd = with(
        class(),
        &[("/spec/namespaces/selector/matchExpressions", json!([{"key": "team", "operator": "Near"}]))],
    );
    refuses(&world(odd, sandbox()), Reason::ClassNotPermitted, &["can't be read"]);
}

#[test]
fn bad_amounts_of_a_class_are_laid_at_its_door() {
    for (field, value, words) in [
        (
            "/spec/resources/default",
            json!({"cpu": "x", "memory": "1Gi", "ephemeralStorage": "1Gi"}),
            ["class's spec.resources.default", "cpu"],
        ),
        (
            "/spec/resources/max",
            json!({"cpu": "1", "memory": "x", "ephemeralStorage": "1Gi"}),
            ["class's spec.resources", "spec.resources"],
        ),
        (
            "/spec/workspace",
            json!({"defaultSize": "1Gi", "maxSize": "x"}),
            ["class's spec.workspace.maxSize", "\"x\""],
        ),
        ("/spec/quota", json!({"sandboxes": 1, "cpu": "x"}), ["class \"restricted\"", "spec.quota.cpu"]),
    ] {
        let refusal = refused(&world(with(class(), &[(field, value)]), sandbox()));
        let words_in = words.iter().any(|word| refusal.message.contains(word));
        assert!(words_in || refusal.reason == Reason::ExceedsClass, "{field}: {}", refusal.message);
    }
    let no_uid = with(class(), &[("/metadata/uid", Value::Null)]);
    refuses(&world(no_uid, sandbox()), Reason::ClassNotFound, &["no uid"]);
}

#[test]
fn what_was_not_found_is_passed_on() {
    let mut missing = good();
    missing.class = Err(Refusal::accepted(Reason::ClassNotFound, "no such class"));
    refuses(&missing, Reason::ClassNotFound, &["no such class"]);
    let mut dangling = good();
    dangling.unresolved = Some(Refusal::unresolved(Reason::ConfigMapNotFound, "ConfigMap \"c\""));
    let refusal = refused(&dangling);
    assert_eq!((refusal.condition, refusal.reason), (ConditionType::ResolvedRefs, Reason::ConfigMapNotFound));
}

/// Rules by name are planned with those of the policies; a policy that is not there is a reference that dangles.
#[test]
fn rules_come_from_policies_too() {
    let named =
        json!({"allow": [{"name": "own", "hosts": ["api.example.com"]}], "policies": ["team", "partners"]});
    let mut world = changed(good(), &[("/spec/egress", named)]);
    let policy = |name: &str, rules: Value| {
        let policy = json!({"apiVersion": "glovebox.dev/v1alpha1", "kind": "EgressPolicy", "metadata": {"name": name}, "spec": {"rules": rules}});
        std::sync::Arc::new(serde_json::from_value(policy).unwrap())
    };
    world.egress_policies = vec![policy("team", json!([{"name": "range", "cidrs": ["203.0.113.0/24"]}]))];
    let missing = refused(&world);
    assert_eq!((missing.condition, missing.reason), (ConditionType::ResolvedRefs, Reason::PolicyNotFound));
    assert!(
        missing.message.contains("spec.egress.policies: EgressPolicy \"partners\""),
        "{}",
        missing.message
    );
    world.egress_policies.push(policy("partners", json!([])));
    let plan = planned(&world);
    assert_eq!((plan.egress_rules, plan.egress.len()), (2, 1));
    world.egress_policies[1] = policy("partners", json!([{"name": "all", "hosts": ["*"]}]));
    refuses(&world, Reason::EgressRejected, &["EgressPolicy \"partners\" spec.rules[all]", "\"*\""]);
}

/// What is absent comes from the class; what the class lacks comes from the API's defaults.
#[test]
fn defaults_fill_what_is_absent() {
    let plan = planned(&good());
    assert_eq!((plan.ttl.to_string(), plan.pod_ttl.to_string()), ("10m".into(), "10m".into()));
    assert_eq!(
        (plan.limits.cpu_milli, plan.limits.memory, plan.limits.ephemeral_storage),
        (2000, 512 << 20, 1 << 30)
    );
    assert_eq!((plan.working_dir.as_str(), plan.storage.workspace_size), ("/workspace", 256 << 20));
    let extendable = planned(&world(with(class(), &[("/spec/ttl/extendable", json!(true))]), sandbox()));
    assert_eq!((extendable.ttl.to_string(), extendable.pod_ttl.to_string()), ("10m".into(), "1h".into()));
}

/// A ttl that was told may be lowered; raised only where the class says so.
#[test]
fn a_told_end_is_only_lowered() {
    let told = ("/status/expiresAt", json!("2027-01-01T00:05:00Z"));
    let asks = |ttl: &str| changed(good(), &[told.clone(), ("/spec/ttl", json!(ttl))]);
    assert_eq!(planned(&asks("5m")).ttl.to_string(), "5m");
    assert_eq!(planned(&asks("2m")).ttl.to_string(), "2m");
    refuses(&asks("6m"), Reason::ExceedsClass, &["spec.ttl is 6m", "only be lowered"]);
    let extendable = world(with(class(), &[("/spec/ttl/extendable", json!(true))]), sandbox());
    assert_eq!(planned(&changed(extendable, &[told, ("/spec/ttl", json!("6m"))])).ttl.to_string(), "6m");
}

/// The kubelet expands nothing of what a user wrote.
#[test]
fn dollars_arrive_as_they_were_written() {
    let env = json!([{"name": "A", "value": "$(B) $$ $C"}]);
    let world =
        changed(good(), &[("/spec/command", json!(["sh", "-c", "echo $(HOME) $$"])), ("/spec/env", env)]);
    let pod = crate::sandbox::desired(&planned(&world), 60).pod;
    let container = &pod.spec.unwrap().containers[0];
    let command = container.command.as_ref().unwrap();
    let value = container
        .env
        .as_ref()
        .unwrap()
        .iter()
        .find(|variable| variable.name == "A")
        .unwrap()
        .value
        .clone()
        .unwrap();
    assert_eq!(unexpand(command.last().unwrap()), "echo $(HOME) $$");
    assert_eq!(unexpand(&value), "$(B) $$ $C");
}

/// The kubelet's reading of a text in which no variable is known.
fn unexpand(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        if c == '$' {
            match rest.peek() {
                Some('$') => drop(rest.next()),
                Some('(') => panic!("a reference in {text:?}"),
                _ => {}
            }
        }
        out.push(c);
    }
    out
}
