//! What the API server can't see: the controller refuses it in the status, by field, value and bound, and makes no pod.

use std::sync::Arc;

use anyhow::ensure;
use futures::future;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, api::ListParams};
use serde_json::{Value, json};

use crate::harness::{Cases, Outcome, Runtime, Test};

pub(super) fn cases(cases: &mut Cases) {
    cases.add("api::what_does_not_fit_its_class_is_refused_in_the_status", 0, unfit);
    cases.add("api::what_does_not_fit_a_virtual_machine_is_refused_in_the_status", 0, unfit_for_vm);
    cases.add("api::class_that_the_namespace_may_not_use", 250, not_permitted);
}

async fn each_refused(test: &Test, class: &str, table: Vec<(Value, &str, Vec<&str>)>) -> Outcome {
    let each = table.iter().enumerate().map(async |(number, (spec, reason, words))| {
        let mut spec = spec.clone();
        spec["className"] = json!(class);
        let sandbox = test.sandbox(Runtime::Runc, &format!("s{number}"), &spec).await?;
        let judged = if *reason == "PolicyNotFound" { "ResolvedRefs=False" } else { "Accepted=False" };
        let mut all = vec![judged];
        all.extend(words);
        sandbox.pending(reason, &all).await.map(|_| ())
    });
    future::try_join_all(each).await?;
    let pods = Api::<Pod>::namespaced(test.client.clone(), &test.namespace)
        .list(&ListParams::default())
        .await?
        .items;
    ensure!(pods.is_empty(), "a pod was made for one that is refused");
    Ok(())
}

async fn unfit(test: Arc<Test>) -> Outcome {
    let change = json!({
        "images": {"allowed": ["glovebox.dev/*", test.cluster.image.split([':', '@']).next()]},
        "resources": {"max": {"cpu": "500m", "memory": "512Mi"}}, "workspace": {"maxSize": "64Mi"},
        "egress": {"ceiling": {"cidrs": ["203.0.113.0/24"], "ports": [443]}},
    });
    let class = test.class(Runtime::Runc, "narrow", &change).await?;
    let inputs = |a: &str, b: &str| {
        json!({"workspace": {"inputs": [
            {"name": "a", "mountPath": a, "configMap": "c"}, {"name": "b", "mountPath": b, "configMap": "c"},
        ]}})
    };
    let egress = |cidr: &str, port: u16| json!({"egress": {"allow": [{"name": "r", "cidrs": [cidr], "ports": [port]}]}});
    let table = vec![
        (json!({"ttl": "2h"}), "ExceedsClass", vec!["spec.ttl is 2h", "at most 1h"]),
        (json!({"resources": {"cpu": "1"}}), "ExceedsClass", vec!["spec.resources.cpu is 1", "at most 500m"]),
        (
            json!({"resources": {"memory": "1Gi"}}),
            "ExceedsClass",
            vec!["spec.resources.memory is 1Gi", "at most 512Mi"],
        ),
        (
            json!({"resources": {"memory": "8Mi"}}),
            "InvalidSpec",
            vec!["spec.resources.memory is 8Mi", "at least 32Mi"],
        ),
        (json!({"resources": {"cpu": "1m"}}), "InvalidSpec", vec!["spec.resources.cpu is 1m", "10m"]),
        (
            json!({"workspace": {"size": "65Mi"}}),
            "ExceedsClass",
            vec!["spec.workspace.size is 65Mi", "at most 64Mi"],
        ),
        (
            json!({"workspace": {"size": "64Mi"}, "resources": {"memory": "64Mi"}}),
            "InvalidSpec",
            vec!["spec.workspace.size 64Mi", "spec.resources.memory 64Mi"],
        ),
        (
            json!({"image": "evil.example/glovebox.dev/tools:1"}),
            "ExceedsClass",
            vec!["spec.image", "evil.example/glovebox.dev/tools", "images.allowed"],
        ),
        (json!({"image": "glovebox.dev/a/b:1"}), "ExceedsClass", vec!["spec.image", "glovebox.dev/a/b"]),
        (json!({"image": "http://glovebox.dev/tools:1"}), "InvalidSpec", vec!["spec.image"]),
        (json!({"image": "glovebox.dev/../tools"}), "InvalidSpec", vec!["spec.image"]),
        (
            json!({"workspace": {"mountPath": "/usr/lib"}}),
            "InvalidSpec",
            vec!["spec.workspace.mountPath \"/usr/lib\""],
        ),
        (
            json!({"workspace": {"mountPath": "/etc"}}),
            "InvalidSpec",
            vec!["spec.workspace.mountPath \"/etc\""],
        ),
        (
            json!({"workspace": {"mountPath": "/home/sandbox/x"}}),
            "InvalidSpec",
            vec!["spec.workspace.mountPath"],
        ),
        (inputs("/proc/a", "/b"), "InvalidSpec", vec!["spec.workspace.inputs[a].mountPath \"/proc/a\""]),
        (inputs("/a", "/a"), "InvalidSpec", vec!["spec.workspace.inputs[b].mountPath \"/a\""]),
        (
            inputs("/workspace/.vscode/a", "/b"),
            "InvalidSpec",
            vec!["spec.workspace.inputs[a].mountPath", "protected"],
        ),
        (
            json!({"workspace": {"protectedPaths": ["a/../b"]}}),
            "InvalidSpec",
            vec!["spec.workspace.protectedPaths \"a/../b\""],
        ),
        (
            egress("198.51.100.0/24", 443),
            "EgressRejected",
            vec!["spec.egress.allow[r]", "198.51.100.0/24", "ceiling"],
        ),
        (egress("203.0.113.0/24", 80), "EgressRejected", vec!["spec.egress.allow[r]", "80", "ceiling"]),
        (
            json!({"egress": {"allow": [{"name": "r", "hosts": ["api.example.com"]}]}}),
            "EgressRejected",
            vec!["spec.egress.allow[r]", "api.example.com", "ceiling.hosts"],
        ),
        (
            json!({"egress": {"policies": ["absent"]}}),
            "PolicyNotFound",
            vec!["spec.egress.policies", "EgressPolicy \"absent\""],
        ),
    ];
    each_refused(&test, &class, table).await
}

async fn unfit_for_vm(test: Arc<Test>) -> Outcome {
    let vm = |handler: &str| {
        json!({
            "trust": "Untrusted", "runtime": {"runtimeClassName": handler, "handler": handler, "isolation": "VirtualMachine"},
        })
    };
    let class = test.class(Runtime::Gvisor, "vm", &vm("kata-clh-runtime-rs")).await?;
    let table = vec![
        (
            json!({"resources": {"memory": "64Mi"}}),
            "InvalidSpec",
            vec!["spec.resources.memory is 64Mi", "at least 128Mi"],
        ),
        // 128Mi and three times 32Mi of scratch are 224Mi, more than 0.45 of 256Mi.
        (
            json!({"workspace": {"size": "128Mi"}, "resources": {"memory": "256Mi"}}),
            "InvalidSpec",
            vec!["spec.workspace.size 128Mi", "224Mi", "0.45 of spec.resources.memory 256Mi"],
        ),
    ];
    each_refused(&test, &class, table).await?;
    let class = test.class(Runtime::Gvisor, "qemu", &vm("kata-qemu")).await?;
    let sandbox = test
        .sandbox(Runtime::Gvisor, "qemu", &json!({"className": class, "resources": {"memory": "192Mi"}}))
        .await?;
    sandbox.pending("InvalidSpec", &["spec.resources.memory is 192Mi", "at least 256Mi"]).await.map(|_| ())
}

async fn not_permitted(test: Arc<Test>) -> Outcome {
    let change = json!({"namespaces": {"selector": {"matchLabels": {"e2e.example/team": test.suffix}}}});
    let class = test.class(Runtime::Runc, "picky", &change).await?;
    let sandbox = test.sandbox(Runtime::Runc, "refused", &json!({"className": class})).await?;
    sandbox.pending("ClassNotPermitted", &["spec.namespaces.selector", &class]).await?;
    // The label makes it start by itself.
    let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(test.client.clone());
    let label = kube::api::Patch::Merge(json!({"metadata": {"labels": {"e2e.example/team": test.suffix}}}));
    namespaces.patch(&test.namespace, &kube::api::PatchParams::default(), &label).await?;
    sandbox.running().await.map(|_| ())
}
