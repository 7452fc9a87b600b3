//! What changes under a living sandbox: its spec, its pod, its class, its fence, its namespace.

use serde_json::json;

use super::{gvisor, scenarios};
use crate::testkit::{
    fixtures::{self, NAMESPACE, pod_key, sandbox_key, with},
    invariants::is_fence,
    stage::Stage,
    store::Key,
};

fn cidrs(ranges: &[&str]) -> serde_json::Value {
    json!([{"name": "api", "cidrs": ranges, "ports": [443]}])
}

scenarios! {
    /// Address rules open a policy; an edit that is refused closes it and leaves the workload running.
    async fn egress_edited_live(stage) {
        let policy = Key::new("NetworkPolicy", NAMESPACE, "s-cidrs");
        stage.begin(&fixtures::gvisor_class(), &with(gvisor("s"), &[("/spec/egress/allow", cidrs(&["203.0.113.0/24"]))]));
        stage.stop().await;
        stage.expect("s", "Running", "Running");
        assert_eq!(stage.driver.get(&policy).unwrap()["spec"]["egress"][0]["to"][0]["ipBlock"]["cidr"], "203.0.113.0/24");
        stage.driver.edit(&sandbox_key("s"), |sandbox| sandbox["spec"]["egress"]["allow"] = cidrs(&["169.254.169.254/32"]));
        stage.stop().await;
        stage.gone(&policy);
        stage.expect("s", "Running", "Running");
        assert_eq!(stage.condition("s", "Accepted").unwrap()["reason"], "EgressRejected");
        stage.driver.edit(&sandbox_key("s"), |sandbox| sandbox["spec"]["egress"]["allow"] = cidrs(&["198.51.100.0/24"]));
        stage.stop().await;
        assert_eq!(stage.driver.get(&policy).unwrap()["spec"]["egress"][0]["to"][0]["ipBlock"]["cidr"], "198.51.100.0/24");
        assert_eq!(stage.condition("s", "Accepted").unwrap()["status"], "True");
        stage.driver.edit(&sandbox_key("s"), |sandbox| sandbox["spec"]["egress"] = json!({}));
        stage.stop().await;
        stage.gone(&policy);
        stage.driver.delete(&sandbox_key("s"));
        stage.stop().await;
    }

    /// Rules of an EgressPolicy open and close like its own, live; without the policy all are closed.
    async fn egress_policy_edited_live(stage) {
        let cidr_policy = Key::new("NetworkPolicy", NAMESPACE, "s-cidrs");
        let rules = Key::new("EgressPolicy", NAMESPACE, "partners");
        let policy = json!({"apiVersion": "glovebox.dev/v1alpha1", "kind": "EgressPolicy", "metadata": {"name": "partners", "namespace": NAMESPACE}, "spec": {"rules": cidrs(&["198.51.100.0/24"])}});
        let ranges = |stage: &Stage| {
            let policy = stage.driver.get(&cidr_policy).unwrap();
            let rules = policy["spec"]["egress"].as_array().unwrap().clone();
            rules.iter().map(|rule| rule["to"][0]["ipBlock"]["cidr"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        let own = json!([{"name": "own", "cidrs": ["203.0.113.0/24"], "ports": [443]}, {"name": "named", "hosts": ["api.example.com"]}]);
        let spec = [("/spec/egress/allow", own), ("/spec/egress/policies", json!(["partners"]))];
        stage.begin(&fixtures::gvisor_class(), &with(gvisor("s"), &spec));
        stage.stop().await;
        stage.expect("s", "Pending", "PolicyNotFound");
        assert_eq!(stage.condition("s", "ResolvedRefs").unwrap()["reason"], "PolicyNotFound");
        stage.driver.create(&policy);
        stage.stop().await;
        stage.expect("s", "Running", "Running");
        assert_eq!(ranges(stage), ["203.0.113.0/24", "198.51.100.0/24"]);
        assert_eq!(stage.driver.get(&sandbox_key("s")).unwrap()["status"]["egressRules"], 3);
        stage.driver.edit(&rules, |policy| policy["spec"]["rules"] = cidrs(&["192.0.2.0/25"]));
        stage.stop().await;
        assert_eq!(ranges(stage), ["203.0.113.0/24", "192.0.2.0/25"]);
        stage.driver.edit(&rules, |policy| policy["spec"]["rules"][0] = json!({"name": "wide", "hosts": ["*.com"]}));
        stage.stop().await;
        stage.gone(&cidr_policy);
        stage.expect("s", "Running", "Running");
        let accepted = stage.condition("s", "Accepted").unwrap();
        assert_eq!(accepted["reason"], "EgressRejected");
        assert!(accepted["message"].as_str().unwrap().starts_with("EgressPolicy \"partners\" spec.rules[wide]: host \"*.com\""), "{accepted}");
        assert_eq!(stage.driver.get(&sandbox_key("s")).unwrap()["status"]["egressRules"], 0);
        stage.driver.edit(&rules, |policy| policy["spec"]["rules"] = json!([]));
        stage.stop().await;
        assert_eq!(ranges(stage), ["203.0.113.0/24"]);
        stage.driver.delete(&rules);
        stage.stop().await;
        stage.gone(&cidr_policy);
        stage.expect("s", "Running", "Running");
        assert_eq!(stage.condition("s", "ResolvedRefs").unwrap()["reason"], "PolicyNotFound");
        stage.driver.delete(&sandbox_key("s"));
        stage.stop().await;
    }

    /// The gateway may have what a sandbox names, from before its pod until its end, and not what was taken away meanwhile.
    async fn credentials_are_granted_for_a_life(stage) {
        let key = |kind| Key::new(kind, NAMESPACE, "glovebox-credentials-s");
        let one = |name: &str, secret: &str| json!({"name": name, "env": "API_KEY", "hosts": ["api.example.com"], "secretRef": {"name": secret, "key": "k"}});
        let mut two = one("two", "other");
        two["env"] = json!(null);
        stage.begin(&fixtures::gvisor_class(), &with(gvisor("s"), &[("/spec/credentials", json!([one("one", "mine"), two]))]));
        stage.stop().await;
        stage.expect("s", "Running", "Running");
        let role = stage.driver.get(&key("Role")).unwrap();
        assert_eq!(role["rules"], json!([{"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["mine", "other"], "verbs": ["get"]}]));
        let binding = stage.driver.get(&key("RoleBinding")).unwrap();
        assert_eq!(binding["subjects"], json!([{"kind": "ServiceAccount", "name": "glovebox-gateway", "namespace": fixtures::SYSTEM_NAMESPACE}]));
        let pod = stage.driver.get(&fixtures::pod_key("s")).unwrap();
        let env = pod["spec"]["containers"][0]["env"].as_array().unwrap().clone();
        let value = env.iter().find(|one| one["name"] == "API_KEY").unwrap()["value"].as_str().unwrap().to_owned();
        assert!(value.starts_with("glovebox-placeholder-"), "{value}");
        // Somebody widens it: it is put right.
        stage.driver.edit(&key("Role"), |role| role["rules"][0]["resourceNames"] = json!(["mine", "other", "more"]));
        stage.stop().await;
        assert_eq!(stage.driver.get(&key("Role")).unwrap()["rules"], role["rules"]);
        stage.driver.edit(&sandbox_key("s"), |sandbox| drop(sandbox["spec"]["credentials"].as_array_mut().unwrap().pop()));
        stage.stop().await;
        assert_eq!(stage.driver.get(&key("Role")).unwrap()["rules"][0]["resourceNames"], json!(["mine"]));
        stage.driver.edit(&fixtures::pod_key("s"), |pod| pod["status"]["phase"] = json!("Succeeded"));
        stage.stop().await;
        assert!(stage.driver.get(&sandbox_key("s")).is_some(), "its result can still be read");
        stage.gone(&key("Role"));
        stage.gone(&key("RoleBinding"));
        stage.driver.delete(&sandbox_key("s"));
        stage.stop().await;
    }

    /// The user gives it less time; the pod's own deadline follows.
    async fn ttl_lowered_live(stage) {
        stage.begin(&fixtures::gvisor_class(), &gvisor("s"));
        stage.stop().await;
        stage.driver.edit(&sandbox_key("s"), |sandbox| sandbox["spec"]["ttl"] = json!("5m"));
        stage.stop().await;
        stage.expect("s", "Running", "Running");
        let seconds = stage.driver.get(&pod_key("s")).unwrap()["spec"]["activeDeadlineSeconds"].as_i64().unwrap();
        assert!((250..=302).contains(&seconds), "{seconds}");
        stage.wait(110).await;
        stage.expect("s", "Expired", "TtlExpired");
        stage.stop().await;
    }

    /// Somebody deletes the pod: a sandbox is never started twice.
    async fn pod_deleted_by_somebody(stage) {
        stage.begin(&fixtures::gvisor_class(), &gvisor("s"));
        stage.stop().await;
        stage.driver.delete(&pod_key("s"));
        stage.stop().await;
        stage.expect("s", "Failed", "PodDeleted");
        stage.gone(&pod_key("s"));
    }

    /// The namespace goes, and all with it.
    async fn namespace_deleted(stage) {
        stage.begin(&fixtures::gvisor_class(), &gvisor("s"));
        stage.stop().await;
        stage.driver.delete(&Key::new("Namespace", "", NAMESPACE));
        stage.stop().await;
        stage.gone(&sandbox_key("s"));
        stage.gone(&Key::new("Namespace", "", NAMESPACE));
    }

    /// A foreground deletion waits for the pod.
    async fn foreground_deletion(stage) {
        stage.begin(&fixtures::gvisor_class(), &with(gvisor("s"), &[("/spec/egress/allow", cidrs(&["203.0.113.0/24"]))]));
        stage.stop().await;
        stage.driver.server.lock().store.delete(&sandbox_key("s"), &json!({"propagationPolicy": "Foreground"})).unwrap();
        stage.stop().await;
        stage.gone(&sandbox_key("s"));
        stage.gone(&pod_key("s"));
    }

    /// The fence and the quota come back if somebody takes them away.
    async fn fence_deleted_by_somebody(stage) {
        stage.begin(&fixtures::gvisor_class(), &gvisor("s"));
        stage.stop().await;
        let fence = Key::new("NetworkPolicy", NAMESPACE, "glovebox-fence");
        stage.driver.delete(&fence);
        stage.driver.delete(&Key::new("ResourceQuota", NAMESPACE, "glovebox-gvisor"));
        stage.stop().await;
        assert!(stage.driver.get(&fence).is_some());
        assert!(stage.driver.get(&Key::new("ResourceQuota", NAMESPACE, "glovebox-gvisor")).is_some());
        stage.driver.edit(&fence, |fence| fence["spec"]["egress"] = json!([{}]));
        stage.stop().await;
        assert!(is_fence(&stage.driver.get(&fence).unwrap()));
    }

    /// What runs goes on without its RuntimeClass; what comes does not start.
    async fn runtime_class_removed(stage) {
        stage.begin(&fixtures::gvisor_class(), &gvisor("a"));
        stage.stop().await;
        stage.driver.delete(&Key::new("RuntimeClass", "", "gvisor"));
        stage.driver.create(&gvisor("b"));
        stage.stop().await;
        stage.expect("a", "Running", "Running");
        stage.expect("b", "Pending", "RuntimeClassNotFound");
        stage.driver.create(&json!({"kind": "RuntimeClass", "metadata": {"name": "gvisor"}, "handler": "runsc"}));
        stage.stop().await;
        stage.expect("b", "Running", "Running");
    }

    /// The class goes, with its quota; what runs goes on to its end.
    async fn class_removed(stage) {
        stage.begin(&fixtures::gvisor_class(), &gvisor("s"));
        stage.stop().await;
        stage.driver.delete(&Key::new("SandboxClass", "", "gvisor"));
        stage.stop().await;
        stage.expect("s", "Running", "Running");
        stage.wait(20 * 60).await;
        stage.expect("s", "Expired", "TtlExpired");
        stage.stop().await;
        stage.gone(&pod_key("s"));
    }
}
