//! Objects to begin with: a cluster with one node, three classes, sandboxes.

use serde_json::{Value, json};

use super::{
    kubelet::{BOOT_ID, NODE},
    store::Key,
};

/// Image of the agent.
pub const AGENT_IMAGE: &str = "glovebox.dev/glovebox:test";
/// The controller's own namespace.
pub const SYSTEM_NAMESPACE: &str = "glovebox-system";
/// The namespace of sandboxes.
pub const NAMESPACE: &str = "team-a";

/// The key of an object that knows its kind and name.
#[must_use]
pub fn key(object: &Value) -> Key {
    let text = |field: &Value| field.as_str().unwrap_or_default().to_owned();
    Key::new(
        &text(&object["kind"]),
        &text(&object["metadata"]["namespace"]),
        &text(&object["metadata"]["name"]),
    )
}

/// The key of a sandbox.
#[must_use]
pub fn sandbox_key(name: &str) -> Key {
    Key::new("AgentSandbox", NAMESPACE, name)
}

/// The key of a sandbox's pod.
#[must_use]
pub fn pod_key(name: &str) -> Key {
    Key::new("Pod", NAMESPACE, name)
}

/// Namespaces, a node, `RuntimeClasses`.
#[must_use]
pub fn cluster() -> Vec<Value> {
    let namespace = |name: &str| json!({"kind": "Namespace", "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}}, "status": {"phase": "Active"}});
    vec![
        namespace(NAMESPACE),
        namespace(SYSTEM_NAMESPACE),
        json!({
            "kind": "Node",
            "metadata": {"name": NODE, "labels": {"kubernetes.io/hostname": NODE}},
            "spec": {"podCIDR": "10.244.0.0/24"},
            "status": {
                "nodeInfo": {"bootID": BOOT_ID, "architecture": "amd64", "containerRuntimeVersion": "", "kernelVersion": "", "kubeProxyVersion": "", "kubeletVersion": "", "machineID": "", "operatingSystem": "linux", "osImage": "", "systemUUID": ""},
                "addresses": [{"type": "InternalIP", "address": "192.0.2.10"}],
                "runtimeHandlers": [{"name": ""}, {"name": "runsc"}, {"name": "kata"}],
            },
        }),
        json!({"kind": "Service", "metadata": {"name": "glovebox-gateway", "namespace": SYSTEM_NAMESPACE}, "spec": {"clusterIP": "10.96.0.53", "selector": {"app.kubernetes.io/component": "gateway"}}}),
        json!({"kind": "RuntimeClass", "metadata": {"name": "gvisor"}, "handler": "runsc"}),
        json!({"kind": "RuntimeClass", "metadata": {"name": "kata"}, "handler": "kata", "overhead": {"podFixed": {"cpu": "250m", "memory": "128Mi"}}}),
    ]
}

fn class(name: &str, trust: &str, runtime: &Value) -> Value {
    json!({
        "apiVersion": "glovebox.dev/v1alpha1",
        "kind": "SandboxClass",
        "metadata": {"name": name},
        "spec": {
            "trust": trust,
            "runtime": runtime,
            "startupDeadline": "2m",
            "ttl": {"default": "10m", "max": "1h", "extendable": false},
            "resources": {
                "default": {"cpu": "1", "memory": "1Gi", "ephemeralStorage": "1Gi"},
                "max": {"cpu": "8", "memory": "16Gi", "ephemeralStorage": "10Gi"},
            },
            "workspace": {"defaultSize": "256Mi", "maxSize": "4Gi"},
            "quota": {"sandboxes": 200, "cpu": "400", "memory": "400Gi"},
        },
    })
}

/// `gvisor`: a kernel that is a program.
#[must_use]
pub fn gvisor_class() -> Value {
    class(
        "gvisor",
        "Restricted",
        &json!({"runtimeClassName": "gvisor", "handler": "runsc", "isolation": "UserspaceKernel"}),
    )
}

/// `vm`: a virtual machine.
#[must_use]
pub fn vm_class() -> Value {
    class(
        "vm",
        "Untrusted",
        &json!({"runtimeClassName": "kata", "handler": "kata", "isolation": "VirtualMachine"}),
    )
}

/// `shared`: the node's kernel, by the cluster's default runtime.
#[must_use]
pub fn shared_class() -> Value {
    class("shared", "Trusted", &json!({"isolation": "SharedKernel"}))
}

/// A sandbox of a class that runs something, lives 5 minutes and is kept for one.
#[must_use]
pub fn sandbox(name: &str, class: &str) -> Value {
    json!({
        "apiVersion": "glovebox.dev/v1alpha1",
        "kind": "AgentSandbox",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "className": class,
            "image": "glovebox.dev/tools:1",
            "command": ["python3", "agent.py"],
            "ttl": "5m",
            "ttlAfterFinished": "1m",
            "workspace": {"mountPath": "/workspace"},
        },
    })
}

/// An object with some fields set, by JSON pointer; what is on the way is made.
#[must_use]
pub fn with(mut object: Value, fields: &[(&str, Value)]) -> Value {
    for (pointer, value) in fields {
        let mut at = &mut object;
        for part in pointer.trim_start_matches('/').split('/') {
            at = &mut at[part];
        }
        *at = value.clone();
    }
    object
}
