//! Who is called where, and who is not.

use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::session::bounds::usual;

fn sandbox(uid: &str, phase: &str, ready: bool) -> Value {
    let status = if ready { "True" } else { "False" };
    json!({
        "apiVersion": "glovebox.dev/v1alpha1", "kind": "AgentSandbox",
        "metadata": {"name": "s", "namespace": "a", "uid": uid},
        "spec": {"image": "i"},
        "status": {"phase": phase, "podName": "s", "execution": usual(), "conditions": [
            {"type": "Ready", "status": status, "reason": "Starting", "message": "the image is pulled", "lastTransitionTime": "2026-01-01T00:00:00Z"},
        ]},
    })
}

fn pod(owner: &str, phase: &str, address: &str) -> Value {
    json!({
        "metadata": {"name": "s", "namespace": "a", "ownerReferences": [
            {"apiVersion": "glovebox.dev/v1alpha1", "kind": "AgentSandbox", "name": "s", "uid": owner, "controller": true},
        ]},
        "status": {"phase": phase, "podIP": address},
    })
}

fn at() -> Place {
    ("a".into(), "s".into())
}

fn directory(sandbox: &Value, pod: &Value) -> Directory {
    let directory = Directory::default();
    directory.sandbox(&serde_json::from_value(sandbox.clone()).unwrap());
    directory.pod(&serde_json::from_value(pod.clone()).unwrap());
    directory.load();
    directory
}

#[test]
fn a_sandbox_is_called_at_its_own_running_pod_alone() {
    let (good, seat) = (sandbox("u", "Running", true), pod("u", "Running", "10.0.0.1"));
    let target = |sandbox: &Value, pod: &Value| directory(sandbox, pod).target(&at());
    let found = target(&good, &seat).unwrap();
    assert_eq!((found.uid.as_ref(), found.address), ("u", "10.0.0.1".parse().unwrap()));

    let mut uncontrolled = seat.clone();
    uncontrolled["metadata"]["ownerReferences"][0]["controller"] = json!(false);
    let mut other_kind = seat.clone();
    other_kind["metadata"]["ownerReferences"][0]["kind"] = json!("ReplicaSet");
    let mut leaving = seat.clone();
    leaving["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let mut unnamed = good.clone();
    unnamed["status"]["podName"] = Value::Null;
    let mut unbounded = good.clone();
    unbounded["status"]["execution"] = Value::Null;
    let mut unreadable = good.clone();
    unreadable["status"]["execution"]["maxOutputBytes"] = json!("much");
    for (sandbox, pod) in [
        (&good, &pod("another", "Running", "10.0.0.1")),
        (&good, &pod("u", "Pending", "10.0.0.1")),
        (&good, &pod("u", "Succeeded", "10.0.0.1")),
        (&good, &pod("u", "Running", "")),
        (&good, &pod("u", "Running", "kubernetes.default")),
        (&unbounded, &seat),
        (&unreadable, &seat),
        (&good, &uncontrolled),
        (&good, &other_kind),
        (&good, &leaving),
        (&unnamed, &seat),
        (&sandbox("u", "Running", false), &seat),
    ] {
        let problem = target(sandbox, pod).unwrap_err();
        assert_eq!(problem.reason, Reason::NotReady, "{sandbox} {pod}");
        assert!(problem.message.contains("the image is pulled"), "{problem:?}");
    }
    for phase in ["Succeeded", "Failed", "Expired"] {
        assert_eq!(target(&sandbox("u", phase, true), &seat).unwrap_err().reason, Reason::Ended, "{phase}");
    }
    let mut deleted = good.clone();
    deleted["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert_eq!(target(&deleted, &seat).unwrap_err().reason, Reason::Ended);
}

#[test]
fn before_all_is_read_nothing_is_known() {
    let directory = Directory::default();
    assert_eq!(directory.target(&at()).unwrap_err().reason, Reason::ApiUnavailable);
    directory.load();
    assert_eq!(directory.target(&at()).unwrap_err().reason, Reason::NotFound);
}

#[test]
fn the_first_thing_that_is_wrong_is_told() {
    let mut refused = sandbox("u", "Pending", false);
    refused["status"]["conditions"].as_array_mut().unwrap().push(json!(
        {"type": "Accepted", "status": "False", "reason": "ClassNotFound", "message": "there is no class x", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    ));
    let directory = directory(&refused, &pod("u", "Pending", ""));
    let found = directory.look(&at()).unwrap();
    assert_eq!(
        (found.reason.as_deref(), found.message.as_str()),
        (Some("ClassNotFound"), "there is no class x")
    );
}

#[tokio::test(start_paused = true)]
async fn it_is_told_when_a_pod_is_gone() {
    let gone = |change: &dyn Fn(&Directory)| {
        let directory = directory(&sandbox("u", "Running", true), &pod("u", "Running", "10.0.0.1"));
        let target = directory.target(&at()).unwrap();
        change(&directory);
        let patience = Duration::from_secs(1);
        async move { tokio::time::timeout(patience, directory.gone(&at(), &target)).await.is_ok() }
    };
    let new_pod =
        |directory: &Directory, value: Value| directory.pod(&serde_json::from_value(value).unwrap());
    assert!(gone(&|directory| directory.no_pod("a", "s")).await);
    assert!(gone(&|directory| directory.no_sandbox("a", "s")).await);
    assert!(gone(&|directory| new_pod(directory, pod("u", "Failed", "10.0.0.1"))).await);
    assert!(gone(&|directory| new_pod(directory, pod("u", "Running", "10.0.0.2"))).await);
    assert!(
        gone(&|directory| directory.sandbox(&serde_json::from_value(sandbox("v", "Running", true)).unwrap()))
            .await
    );
    // A sandbox that is not Ready for a moment still runs.
    let unready = |directory: &Directory| {
        directory.sandbox(&serde_json::from_value(sandbox("u", "Running", false)).unwrap())
    };
    assert!(!gone(&unready).await);
    assert!(!gone(&|directory| directory.no_pod("b", "s")).await);
}
