//! What sandboxes wait for: room, a name, a class, what they refer to.

use serde_json::json;

use super::{gvisor, scenarios};
use crate::testkit::{
    fixtures::{self, NAMESPACE, pod_key, sandbox_key, with},
    stage::{SETTLE, Stage},
    store::Key,
};

scenarios! {
    /// The second waits for room and starts by itself.
    async fn quota_then_room(stage) {
        let class = with(fixtures::gvisor_class(), &[("/spec/quota", json!({"sandboxes": 1}))]);
        stage.begin(&class, &gvisor("a"));
        stage.stop().await;
        stage.expect("a", "Running", "Running");
        stage.driver.create(&gvisor("b"));
        stage.stop().await;
        stage.expect("b", "Pending", "QuotaExceeded");
        let message = stage.condition("b", "Ready").unwrap()["message"].to_string();
        assert!(message.contains("pods: 1 used of 1, 1 more needed"), "{message}");
        stage.driver.delete(&sandbox_key("a"));
        stage.stop().await;
        stage.expect("b", "Running", "Running");
    }

    /// Two at once for one place: one runs, the other waits, and then runs.
    async fn quota_race(stage) {
        let class = with(fixtures::gvisor_class(), &[("/spec/quota", json!({"sandboxes": 1}))]);
        stage.begin(&class, &gvisor("a"));
        stage.driver.create(&gvisor("b"));
        stage.driver.run_for(SETTLE).await;
        let phase = |stage: &Stage, name: &str| stage.driver.get(&sandbox_key(name)).unwrap()["status"]["phase"].clone();
        let (first, second) = if phase(stage, "a") == "Running" { ("a", "b") } else { ("b", "a") };
        stage.expect(first, "Running", "Running");
        stage.expect(second, "Pending", "QuotaExceeded");
        stage.driver.delete(&sandbox_key(first));
        stage.driver.run_for(SETTLE).await;
        stage.expect(second, "Running", "Running");
    }

    /// The same name again, while the old pod is still going.
    async fn namesake_within_a_second(stage) {
        stage.begin(&fixtures::gvisor_class(), &gvisor("s"));
        stage.stop().await;
        let old = stage.driver.get(&pod_key("s")).unwrap()["metadata"]["uid"].clone();
        stage.driver.delete(&sandbox_key("s"));
        stage.driver.create(&gvisor("s"));
        stage.stop().await;
        stage.expect("s", "Running", "Running");
        assert_ne!(stage.driver.get(&pod_key("s")).unwrap()["metadata"]["uid"], old);
    }

    /// A pod of somebody else has the name.
    async fn name_taken_by_another_pod(stage) {
        stage.driver.create(&json!({
            "kind": "Pod", "metadata": {"name": "s", "namespace": NAMESPACE, "labels": {"glovebox.dev/sandbox": "s"}},
            "spec": {"nodeName": "elsewhere", "containers": []},
        }));
        stage.begin(&fixtures::gvisor_class(), &gvisor("s"));
        stage.stop().await;
        stage.expect("s", "Starting", "SandboxCreationFailed");
        stage.driver.server.lock().store.remove(&pod_key("s"));
        stage.stop().await;
        stage.expect("s", "Running", "Running");
    }

    /// The same, but no watch shows that pod: only the API server's answer tells of it.
    async fn name_taken_by_an_unseen_pod(stage) {
        stage.driver.create(&json!({
            "kind": "Pod", "metadata": {"name": "s", "namespace": NAMESPACE}, "spec": {"nodeName": "elsewhere", "containers": []},
        }));
        stage.begin(&fixtures::gvisor_class(), &gvisor("s"));
        stage.stop().await;
        stage.expect("s", "Pending", "SandboxCreationFailed");
        stage.driver.server.lock().store.remove(&pod_key("s"));
        stage.stop().await;
        stage.expect("s", "Running", "Running");
    }

    /// Somebody's policy would open the fence, since policies add up; it even bears our label.
    async fn fence_breached(stage) {
        let open = Key::new("NetworkPolicy", NAMESPACE, "open");
        let policy = json!({"kind": "NetworkPolicy", "metadata": {"name": "open", "namespace": NAMESPACE, "labels": {"app.kubernetes.io/managed-by": "glovebox"}}, "spec": {"podSelector": {}, "policyTypes": ["Egress"], "egress": [{}]}});
        stage.driver.create(&policy);
        stage.begin(&fixtures::gvisor_class(), &gvisor("s"));
        stage.stop().await;
        stage.expect("s", "Pending", "FenceOpen");
        stage.gone(&pod_key("s"));
        stage.driver.delete(&open);
        stage.stop().await;
        stage.expect("s", "Running", "Running");
        stage.driver.create(&policy);
        stage.stop().await;
        let status = stage.driver.get(&sandbox_key("s")).unwrap()["status"].clone();
        assert_eq!((&status["phase"], &status["enforcement"]["egressFence"]["state"]), (&json!("Running"), &json!("NotEnforced")));
    }

    /// It waits for its class.
    async fn class_comes_later(stage) {
        stage.driver.create(&gvisor("s"));
        stage.stop().await;
        stage.expect("s", "Pending", "ClassNotFound");
        stage.driver.create(&fixtures::gvisor_class());
        stage.stop().await;
        stage.expect("s", "Running", "Running");
    }

    /// It waits for what it refers to.
    async fn reference_comes_later(stage) {
        let input = json!([{"name": "cfg", "mountPath": "/cfg", "configMap": "cfg"}, {"name": "data", "mountPath": "/data", "persistentVolumeClaim": "data"}]);
        let env = json!([{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "env", "key": "a"}}}]);
        stage.begin(&fixtures::gvisor_class(), &with(gvisor("s"), &[("/spec/workspace/inputs", input), ("/spec/env", env)]));
        let object = |kind: &str, name: &str| json!({"kind": kind, "metadata": {"name": name, "namespace": NAMESPACE}, "data": {"a": "1"}});
        for (kind, name) in [("ConfigMap", "env"), ("ConfigMap", "cfg"), ("PersistentVolumeClaim", "data")] {
            stage.wait(2).await;
            assert_eq!(stage.driver.get(&pod_key("s")), None);
            stage.driver.create(&object(kind, name));
            stage.wait(5).await;
        }
        stage.stop().await;
        stage.expect("s", "Running", "Running");
    }

    /// An object that can't be read is told so, and may go.
    async fn unreadable(stage) {
        stage.begin(&fixtures::gvisor_class(), &with(gvisor("s"), &[("/spec/ttl", json!("soon"))]));
        stage.stop().await;
        assert_eq!(stage.driver.get(&sandbox_key("s")).unwrap()["status"]["phase"], "Pending");
        assert_eq!(stage.condition("s", "Accepted").unwrap()["reason"], "InvalidSpec");
        stage.driver.edit(&sandbox_key("s"), |sandbox| sandbox["spec"]["ttl"] = json!("20m"));
        stage.stop().await;
        stage.expect("s", "Running", "Running");
    }
}
