//! What pod do I get? Every object of three sandboxes, whole, so that a change of one line is seen in review.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use glovebox::{
    policy::ClusterRanges,
    sandbox::{
        World, desired,
        desired::Wanted,
        plan,
        world::{PodSlot, Settings},
    },
    testkit::fixtures::{self, gvisor_class, sandbox, shared_class, vm_class, with},
};
use serde::Serialize;
use serde_json::{Value, json};

fn wanted<K: Serialize>(wanted: &Wanted<K>) -> Value {
    match wanted {
        Wanted::Present(object) => serde_json::to_value(object).unwrap(),
        Wanted::Absent(name) => json!(format!("{name} is absent")),
    }
}

/// All objects of a sandbox whose pod may live 300 seconds, in the order in which they are made.
fn objects(class: Value, sandbox: Value, authority: Option<&str>) -> Vec<(&'static str, Value)> {
    let class = with(class, &[("/metadata/uid", json!("class-uid"))]);
    let sandbox = with(
        sandbox,
        &[
            ("/metadata/uid", json!("sandbox-uid")),
            ("/metadata/creationTimestamp", json!("2027-01-01T00:00:00Z")),
        ],
    );
    let runtime = class["spec"]["runtime"]["runtimeClassName"].clone();
    let mut cluster = fixtures::cluster().into_iter();
    let node = cluster.find(|object| object["kind"] == "Node").unwrap();
    let runtime_class =
        cluster.find(|object| object["kind"] == "RuntimeClass" && object["metadata"]["name"] == runtime);
    let world = World {
        sandbox: Arc::new(serde_json::from_value(sandbox).unwrap()),
        class: Ok(Arc::new(serde_json::from_value(class).unwrap())),
        namespace_labels: None,
        runtime_class: runtime_class.map(|object| Arc::new(serde_json::from_value(object).unwrap())),
        nodes: vec![Arc::new(serde_json::from_value(node).unwrap())],
        pod: PodSlot::Free,
        fence: None,
        cidr_policy: None,
        credential_grant: (None, None),
        egress_policies: Vec::new(),
        approvals: Vec::new(),
        wanted: Vec::new(),
        quota: None,
        priority_class: None,
        unresolved: None,
        breach: None,
        gateway: Some("10.96.0.53".parse().unwrap()),
        authority: authority.map(Into::into),
        call_keys: Arc::default(),
        named: glovebox::sandbox::named::View::None,
        last_use: None,
        seen: None,
        cluster: ClusterRanges::new(["10.96.0.0/16", "10.244.0.0/16"].map(|range| range.parse().unwrap())),
        settings: Arc::new(Settings {
            agent_image: fixtures::AGENT_IMAGE.into(),
            namespace: fixtures::SYSTEM_NAMESPACE.into(),
            api_server: Some("10.96.0.1:443".parse().unwrap()),
            gateway_account: Some("glovebox-gateway".into()),
        }),
    };
    let desired = desired(&plan(&world).unwrap(), 300);
    vec![
        ("fence", serde_json::to_value(&desired.fence).unwrap()),
        ("priorityClass", serde_json::to_value(&desired.priority_class).unwrap()),
        ("quota", wanted(&desired.quota)),
        ("cidrPolicy", wanted(&desired.cidr_policy)),
        ("pod", serde_json::to_value(&desired.pod).unwrap()),
    ]
}

/// The least that a user writes, on gVisor.
#[test]
fn minimal() {
    let sandbox = with(
        sandbox("minimal", "gvisor"),
        &[("/spec", json!({"className": "gvisor", "image": "glovebox.dev/tools:1"}))],
    );
    insta::assert_yaml_snapshot!(objects(gvisor_class(), sandbox, None));
}

/// Every field, on a virtual machine, where the gateway opens TLS.
#[test]
fn full() {
    let digest = format!("glovebox.dev/project@sha256:{}", "0".repeat(64));
    let spec = json!({
        "className": "vm",
        "image": "glovebox.dev/tools:1",
        "command": ["python3", "-c"],
        "args": ["print('$(HOME)')"],
        "workingDir": "/workspace/project",
        "env": [
            {"name": "TASK", "value": "42"},
            {"name": "MODEL", "valueFrom": {"configMapKeyRef": {"name": "task", "key": "model"}}},
            {"name": "PIP_CACHE_DIR", "value": "/tmp/pip"},
            {"name": "PIP_CERT", "value": "/data/authorities.pem"},
        ],
        "ports": [{"name": "preview", "containerPort": 8080}],
        "ttl": "1h",
        "ttlAfterFinished": "10m",
        "workspace": {
            "mountPath": "/workspace",
            "size": "512Mi",
            "inputs": [
                {"name": "project", "mountPath": "/workspace/project", "image": digest},
                {"name": "config", "mountPath": "/etc/agent", "configMap": "agent-config"},
                {"name": "data", "mountPath": "/data", "persistentVolumeClaim": "dataset"},
            ],
            "protectedPaths": ["ci", ".vscode/tasks"],
        },
        "resources": {"cpu": "1500m", "memory": "2Gi", "ephemeralStorage": "2Gi"},
        "egress": {"allow": [
            {"name": "internal", "cidrs": ["10.0.0.0/8"], "ports": [443, 80, 443]},
            {"name": "partner", "cidrs": ["203.0.113.0/24", "2001:db8::/32"], "ports": [8443]},
        ]},
    });
    let class = with(
        vm_class(),
        &[
            (
                "/spec/egress",
                json!({"deny": [{"cidrs": ["10.9.0.0/16"], "reason": "use the artifact store"}]}),
            ),
            (
                "/spec/scheduling",
                json!({"nodeSelector": {"glovebox.dev/trust": "hostile"}, "tolerations": [{"key": "glovebox.dev/trust", "operator": "Equal", "value": "hostile", "effect": "NoSchedule"}]}),
            ),
            (
                "/spec/security",
                json!({"runAsUser": 1000, "seccomp": "Localhost/profiles/strict.json", "userNamespaces": "Never"}),
            ),
        ],
    );
    let authority = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n";
    insta::assert_yaml_snapshot!(objects(
        class,
        with(sandbox("full", "vm"), &[("/spec", spec)]),
        Some(authority)
    ));
}

/// An idle one on the node's own kernel, without a quota, that runs on where its fence falls.
#[test]
fn shared_kernel() {
    let class = with(
        shared_class(),
        &[
            ("/spec/quota", Value::Null),
            ("/spec/ttl/extendable", json!(true)),
            ("/spec/egress", json!({"onFenceOpen": "Report"})),
        ],
    );
    let sandbox = with(
        sandbox("shared", "shared"),
        &[("/spec/command", json!([])), ("/spec/workspace/mountPath", json!("/work"))],
    );
    insta::assert_yaml_snapshot!(objects(class, sandbox, None));
}
