//! What a pod's status is taken to mean, honest and forged.

use serde_json::{Value, json};

use super::{
    NODE_BOOT_ID, OTHER_BOOT_ID, at, exit_record, init_ended, kernel_report, pod, read, running_status, with,
    workload,
};
use crate::{
    api::{Isolation, Reason},
    sandbox::podview::{Kernel, PodEnd, PodState, PodView},
};

fn ended(status: Value) -> PodEnd {
    match read(pod(status)).state {
        PodState::Ended(end) => end,
        other => panic!("not ended: {other:?}"),
    }
}

fn problem(status: Value) -> Option<(Reason, String)> {
    match read(pod(status)).state {
        PodState::Starting(problem) => problem,
        other => panic!("not starting: {other:?}"),
    }
}

/// A workload that ended after a good start.
fn exited(code: i32, reason: &str, message: &str) -> Value {
    let phase = if code == 0 { "Succeeded" } else { "Failed" };
    let state = json!({"terminated": {"exitCode": code, "reason": reason, "message": message, "startedAt": at(3).to_string(), "finishedAt": at(9).to_string()}});
    with(running_status(), &[("/phase", json!(phase)), ("/containerStatuses", workload(state))])
}

#[test]
fn exits() {
    let signal = r#"{"v":1,"exitCode":null,"signal":9,"spawnError":null,"oom":null}"#;
    let unborn = r#"{"v":1,"exitCode":127,"signal":null,"spawnError":"no such file","oom":false}"#;
    for (code, reason, message, expected, exit_code, word) in [
        (0, "Completed", exit_record(0, Some(false)), Reason::Completed, Some(0), "exit code 0"),
        (0, "Completed", String::new(), Reason::Error, None, "proves nothing"),
        (0, "Completed", exit_record(3, None), Reason::Error, None, "proves nothing"),
        (0, "Completed", "{".repeat(4096), Reason::Error, None, "proves nothing"),
        (0, "Completed", " ".repeat(5000), Reason::Error, None, "proves nothing"),
        (3, "Error", exit_record(3, Some(false)), Reason::Error, Some(3), "ended with exit code 3"),
        (3, "Error", exit_record(0, Some(false)), Reason::Error, Some(3), "without the record"),
        (3, "Error", String::new(), Reason::Error, Some(3), "without the record"),
        (137, "Error", signal.to_owned(), Reason::Error, Some(137), "signal 9"),
        (127, "Error", unborn.to_owned(), Reason::Error, Some(127), "no such file"),
        (137, "OOMKilled", String::new(), Reason::OOMKilled, Some(137), "more memory than its limit"),
        (137, "OOMKilled", exit_record(0, Some(false)), Reason::OOMKilled, Some(137), "more memory"),
        (1, "Error", exit_record(1, Some(true)), Reason::OOMKilled, Some(1), "more memory"),
        (1, "Error", exit_record(2, Some(true)), Reason::Error, Some(1), "without the record"),
        (0, "Completed", exit_record(0, Some(true)), Reason::Completed, Some(0), "exit code 0"),
    ] {
        let end = ended(exited(code, reason, &message));
        assert_eq!(
            (end.reason, end.exit_code, end.at),
            (expected, exit_code, Some(at(9))),
            "{code} {reason} {message:.60}"
        );
        assert!(end.message.contains(word), "{word:?} is not in {:?}", end.message);
    }
}

/// What a sandbox writes is never repeated but for what was parsed.
#[test]
fn forged_messages_are_not_passed_on() {
    let secret = "hunter2";
    for message in [
        secret.to_owned(),
        format!("{{\"v\":1,\"exitCode\":0,\"{secret}\":1}}"),
        format!("{{\"v\":2,\"{secret}\":1}}"),
    ] {
        let end = ended(exited(3, "Error", &message));
        assert!(!end.message.contains(secret), "{}", end.message);
        let view = read(pod(with(running_status(), &[("/initContainerStatuses", init_ended(0, &message))])));
        let Some(Kernel::Unreadable(why)) = view.kernel else { panic!("{:?}", view.kernel) };
        assert!(!why.contains(secret), "{why}");
    }
}

#[test]
fn kernels() {
    for (report, node, expected) in [
        (kernel_report(NODE_BOOT_ID, false), true, Some(Isolation::SharedKernel)),
        (kernel_report(OTHER_BOOT_ID, false), true, Some(Isolation::VirtualMachine)),
        (kernel_report(OTHER_BOOT_ID, true), true, Some(Isolation::UserspaceKernel)),
        (kernel_report(NODE_BOOT_ID, true), true, Some(Isolation::UserspaceKernel)),
        (kernel_report(OTHER_BOOT_ID, true), false, Some(Isolation::UserspaceKernel)),
        (kernel_report(OTHER_BOOT_ID, false), false, None),
    ] {
        let pod = serde_json::from_value(pod(with(
            running_status(),
            &[("/initContainerStatuses", init_ended(0, &report))],
        )))
        .unwrap();
        let world = super::good();
        let view = PodView::read(&pod, node.then(|| world.nodes[0].as_ref()));
        let seen = match view.kernel {
            Some(Kernel::Seen { isolation, .. }) => Some(isolation),
            Some(Kernel::NodeUnknown) => None,
            other => panic!("{other:?}"),
        };
        assert_eq!(seen, expected, "{report} {node}");
    }
    for message in ["", "ok", &kernel_report("not-a-uuid", false), &"x".repeat(5000)] {
        let view = read(pod(with(running_status(), &[("/initContainerStatuses", init_ended(0, message))])));
        assert!(matches!(view.kernel, Some(Kernel::Unreadable(_))), "{:?}", view.kernel);
    }
    assert_eq!(read(pod(json!({"phase": "Pending"}))).kernel, None);
}

#[test]
fn what_the_init_container_says() {
    for (code, message, reason, word) in [
        (78, kernel_report(OTHER_BOOT_ID, true), Reason::IsolationMismatch, "gVisor"),
        (78, kernel_report(OTHER_BOOT_ID, false), Reason::IsolationMismatch, "a weaker kernel"),
        (78, String::new(), Reason::SandboxCreationFailed, "code 78"),
        (1, "can't write /home\n\u{202e}x".to_owned(), Reason::SandboxCreationFailed, "can't write /home  x"),
        (137, kernel_report(OTHER_BOOT_ID, true), Reason::SandboxCreationFailed, "code 137"),
    ] {
        for phase in ["Pending", "Failed"] {
            let end = ended(json!({"phase": phase, "initContainerStatuses": init_ended(code, &message)}));
            assert_eq!((end.reason, end.exit_code), (reason, None), "{code} {phase}");
            assert!(end.message.contains(word), "{}", end.message);
        }
    }
}

#[test]
fn what_the_kubelet_says_of_the_whole() {
    for (reason, message, expected, word) in [
        ("Evicted", "The node was low on resource: ephemeral-storage", Reason::Evicted, "ephemeral-storage"),
        ("DeadlineExceeded", "Pod was active on the node longer", Reason::TtlExpired, "its own deadline"),
        ("NodeShutdown", "node is shutting down", Reason::NodeDrained, "shutting down"),
        (
            "Terminated",
            "Pod was terminated in response to imminent node shutdown",
            Reason::NodeDrained,
            "imminent",
        ),
        ("NodeLost", "Node n is unresponsive", Reason::NodeDrained, "unresponsive"),
        (
            "UnexpectedAdmissionError",
            "no room",
            Reason::SandboxCreationFailed,
            "UnexpectedAdmissionError no room",
        ),
    ] {
        let end = ended(json!({"phase": "Failed", "reason": reason, "message": message}));
        assert_eq!(end.reason, expected, "{reason}");
        assert!(end.message.contains(word), "{word:?} is not in {:?}", end.message);
    }
    assert!(ended(json!({"phase": "Failed"})).message.contains("no reason given"));
}

#[test]
fn who_told_it_to_go() {
    let target = |reason: &str| json!([{"type": "DisruptionTarget", "status": "True", "reason": reason, "message": "said", "lastTransitionTime": at(5).to_string()}]);
    for (reason, expected) in [
        ("EvictionByEvictionAPI", Reason::NodeDrained),
        ("DeletionByTaintManager", Reason::NodeDrained),
        ("DeletionByPodGC", Reason::NodeDrained),
        ("TerminationByKubelet", Reason::Evicted),
        ("PreemptionByScheduler", Reason::Evicted),
        ("SomethingNew", Reason::PodDeleted),
    ] {
        let running = with(running_status(), &[("/conditions", target(reason))]);
        let failed = with(exited(137, "Error", ""), &[("/conditions", target(reason))]);
        for status in [running, failed] {
            let end = ended(status);
            assert_eq!((end.reason, end.exit_code), (expected, None), "{reason}");
            assert!(end.message.ends_with(": said"), "{}", end.message);
        }
    }
    let over =
        with(running_status(), &[("/conditions", json!([{"type": "DisruptionTarget", "status": "False"}]))]);
    assert!(matches!(read(pod(over)).state, PodState::Running(_)));
}

/// Which came first: the exit, or being told to go?
#[test]
fn an_exit_before_the_deletion_counts() {
    let deleted = |seconds: i64, grace: i64| {
        let fields = [
            ("/metadata/deletionTimestamp", json!(at(seconds + grace).to_string())),
            ("/metadata/deletionGracePeriodSeconds", json!(grace)),
        ];
        move |status: Value| with(pod(status), &fields)
    };
    let reason = |pod: Value| match read(pod).state {
        PodState::Ended(end) => end.reason,
        other => panic!("{other:?}"),
    };
    let done = exited(0, "Completed", &exit_record(0, None));
    assert_eq!(reason(deleted(20, 1)(done.clone())), Reason::Completed);
    assert_eq!(reason(deleted(5, 1)(done)), Reason::PodDeleted);
    assert_eq!(reason(deleted(8, 30)(exited(137, "Error", ""))), Reason::PodDeleted);
    assert_eq!(reason(deleted(5, 1)(running_status())), Reason::PodDeleted);
    assert_eq!(reason(deleted(5, 1)(json!({"phase": "Pending"}))), Reason::PodDeleted);
}

#[test]
fn what_a_start_waits_for() {
    let waiting = |name: &str| json!({"phase": "Pending", "containerStatuses": workload(json!({"waiting": {"reason": name, "message": "said\u{202e}\nso"}}))});
    for (name, expected) in [
        ("ErrImagePull", Some(Reason::ImagePullFailed)),
        ("ImagePullBackOff", Some(Reason::ImagePullFailed)),
        ("InvalidImageName", Some(Reason::ImagePullFailed)),
        ("CreateContainerConfigError", Some(Reason::ContainerStartFailed)),
        ("CreateContainerError", Some(Reason::ContainerStartFailed)),
        ("RunContainerError", Some(Reason::ContainerStartFailed)),
        ("ContainerCreating", None),
        ("PodInitializing", None),
    ] {
        let found = problem(waiting(name));
        assert_eq!(found.as_ref().map(|(reason, _)| *reason), expected, "{name}");
        if let Some((_, message)) = found {
            assert!(
                message.contains("\"workload\"") && message.contains("said  so") && message.contains(name),
                "{message:?}"
            );
        }
    }
    let scheduled = |message: &str| json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "message": message}]});
    assert_eq!(problem(scheduled("0/3 nodes")), Some((Reason::Unschedulable, "0/3 nodes".into())));
    let (_, long) = problem(scheduled(&"x".repeat(5000))).unwrap();
    assert_eq!(long.chars().count(), 401, "bounded, and cut visibly");
    assert_eq!(problem(json!({"phase": "Pending"})), None);
    assert_eq!(problem(json!({})), None);
}

#[test]
fn a_running_pod() {
    let view = read(pod(running_status()));
    assert_eq!(view.state, PodState::Running(at(3)));
    assert_eq!((view.created, view.started_at, view.ran_since), (at(1), Some(at(1)), Some(at(3))));
    assert_eq!(
        (view.ip.as_deref(), view.node.as_deref(), view.active_deadline),
        (Some("10.244.0.9"), Some("node-1"), Some(600))
    );
    assert_eq!(read(pod(exited(0, "Completed", ""))).ran_since, Some(at(3)), "it ran, though it ended");
}

/// Containers of other names, such as ephemeral ones, say nothing.
#[test]
fn other_containers_are_not_ours() {
    let other = json!([{"name": "sidecar", "image": "", "imageID": "", "ready": true, "restartCount": 0, "state": {"terminated": {"exitCode": 0, "message": exit_record(0, None)}}}]);
    let status =
        json!({"phase": "Running", "containerStatuses": other.clone(), "initContainerStatuses": other});
    let view = read(pod(status));
    assert_eq!((view.kernel, view.state), (None, PodState::Starting(None)));
}
