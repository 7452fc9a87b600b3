//! Tables of inputs and what comes of them. What they share: a world to change one thing in.

mod approvals;
mod lifecycle;
mod plan;
mod podview;
mod quota;
mod status;
mod storage;
mod suspicion;

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::{
    Plan, Refusal, World,
    podview::PodView,
    world::{PodSlot, Settings},
};
use crate::{
    api::{AgentSandbox, SandboxClass},
    policy::ClusterRanges,
    report::{self, ExitRecord, FenceProof, KernelReport, VERSION},
};

/// When every sandbox here was made.
const CREATED: &str = "2027-01-01T00:00:00Z";
const NODE_BOOT_ID: &str = "11111111-2222-4333-8444-555555555555";
const OTHER_BOOT_ID: &str = "99999999-2222-4333-8444-555555555555";

/// So many seconds after the sandbox was made.
fn at(seconds: i64) -> Timestamp {
    CREATED.parse::<Timestamp>().unwrap() + SignedDuration::from_secs(seconds)
}

/// An object with some fields set, by JSON pointer; what is on the way is made.
fn with(mut object: Value, fields: &[(&str, Value)]) -> Value {
    for (pointer, value) in fields {
        let place = pointer.split('/').skip(1).fold(&mut object, |place, part| &mut place[part]);
        *place = value.clone();
    }
    object
}

fn class() -> Value {
    json!({
        "apiVersion": "glovebox.dev/v1alpha1", "kind": "SandboxClass",
        "metadata": {"name": "restricted", "uid": "class-uid", "generation": 1},
        "spec": {
            "trust": "Restricted",
            "runtime": {"runtimeClassName": "gvisor", "handler": "runsc", "isolation": "UserspaceKernel"},
            "ttl": {"default": "10m", "max": "1h", "extendable": false},
        },
    })
}

fn vm_class() -> Value {
    let runtime = json!({"runtimeClassName": "kata", "handler": "kata", "isolation": "VirtualMachine"});
    with(class(), &[("/spec/trust", json!("Untrusted")), ("/spec/runtime", runtime)])
}

fn sandbox() -> Value {
    json!({
        "apiVersion": "glovebox.dev/v1alpha1", "kind": "AgentSandbox",
        "metadata": {"name": "s", "namespace": "team-a", "uid": "sandbox-uid", "generation": 1, "creationTimestamp": CREATED},
        "spec": {"className": "restricted", "image": "glovebox.dev/tools:1", "command": ["sh"], "workspace": {"mountPath": "/workspace"}},
    })
}

/// The world of a sandbox and its class, with one node and no pod.
fn world(class: Value, sandbox: Value) -> World {
    let class: SandboxClass = serde_json::from_value(class).unwrap();
    let sandbox: AgentSandbox = serde_json::from_value(sandbox).unwrap();
    let runtime = &class.spec.runtime;
    let runtime_class = runtime.runtime_class_name.as_ref().map(|name| {
        Arc::new(
            serde_json::from_value(
                json!({"metadata": {"name": name, "uid": "rc-uid"}, "handler": runtime.handler}),
            )
            .unwrap(),
        )
    });
    let info = json!({"bootID": NODE_BOOT_ID, "architecture": "", "containerRuntimeVersion": "", "kernelVersion": "", "kubeProxyVersion": "", "kubeletVersion": "", "machineID": "", "operatingSystem": "", "osImage": "", "systemUUID": ""});
    let node = json!({"metadata": {"name": "node-1"}, "status": {"nodeInfo": info}});
    World {
        sandbox: Arc::new(sandbox),
        class: Ok(Arc::new(class)),
        namespace_labels: Some([("team".to_owned(), "a".to_owned())].into()),
        runtime_class,
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
        authority: None,
        call_keys: Arc::default(),
        named: super::named::View::None,
        last_use: None,
        seen: None,
        cluster: ClusterRanges::new(["10.244.0.0/16".parse().unwrap()]),
        settings: Arc::new(Settings {
            agent_image: "glovebox.dev/glovebox:1".into(),
            namespace: "glovebox-system".into(),
            api_server: Some("10.96.0.1:443".parse().unwrap()),
            gateway_account: Some("glovebox-gateway".into()),
        }),
    }
}

/// The world in which everything is as it should be.
fn good() -> World {
    world(class(), sandbox())
}

/// Changes some of the sandbox.
fn changed(mut world: World, fields: &[(&str, Value)]) -> World {
    let sandbox = with(serde_json::to_value(world.sandbox.as_ref()).unwrap(), fields);
    world.sandbox = Arc::new(serde_json::from_value(sandbox).unwrap());
    world
}

/// Adds a pod of this status, made a second after the sandbox.
fn with_pod(mut world: World, status: Value) -> World {
    world.pod = PodSlot::Ours(Arc::new(serde_json::from_value(pod(status)).unwrap()));
    world
}

fn pod(status: Value) -> Value {
    let mut pod = json!({
        "metadata": {"name": "s", "namespace": "team-a", "uid": "pod-uid", "creationTimestamp": at(1).to_string()},
        "spec": {"nodeName": "node-1", "activeDeadlineSeconds": 600, "containers": []},
    });
    pod["status"] = status;
    pod
}

fn read(pod: Value) -> PodView {
    let pod: Pod = serde_json::from_value(pod).unwrap();
    PodView::read(&pod, good().nodes.first().map(AsRef::as_ref))
}

fn kernel_report(boot_id: &str, gvisor: bool) -> String {
    proven(boot_id, gvisor, Some(FenceProof { rounds: 3, open: None, missing: None }))
}

fn proven(boot_id: &str, gvisor: bool, fence: Option<FenceProof>) -> String {
    let report = KernelReport {
        v: VERSION,
        boot_id: boot_id.into(),
        kernel: "Linux version 6.18.0".into(),
        gvisor,
        seccomp: 2,
        no_new_privs: true,
        cap_eff: "0000000000000000".into(),
        user_namespace: true,
        fence,
    };
    report::encode(&report).unwrap()
}

fn exit_record(code: u8, oom: Option<bool>) -> String {
    report::encode(&ExitRecord {
        v: VERSION,
        exit_code: Some(code),
        signal: None,
        spawn_error: None,
        oom,
        fence_open: None,
    })
    .unwrap()
}

/// Init ended so; the message is its report.
fn init_ended(code: i32, message: &str) -> Value {
    json!([{"name": "glovebox-init", "image": "", "imageID": "", "ready": true, "restartCount": 0, "state": {"terminated": {"exitCode": code, "message": message, "finishedAt": at(2).to_string()}}}])
}

fn workload(state: Value) -> Value {
    let mut status =
        json!({"name": "workload", "image": "", "imageID": "", "ready": true, "restartCount": 0});
    status["state"] = state;
    Value::Array(vec![status])
}

/// A workload that runs under gVisor since the third second.
fn running_status() -> Value {
    json!({
        "phase": "Running", "startTime": at(1).to_string(), "podIP": "10.244.0.9",
        "initContainerStatuses": init_ended(0, &kernel_report(OTHER_BOOT_ID, true)),
        "containerStatuses": workload(json!({"running": {"startedAt": at(3).to_string()}})),
    })
}

fn planned(world: &World) -> Plan {
    super::plan(world).unwrap()
}

fn refused(world: &World) -> Refusal {
    super::plan(world).map(|_| "a plan").unwrap_err()
}
