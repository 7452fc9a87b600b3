//! Whose kernel a sandbox meets: what the class promises, or it does not run.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, future};
use k8s_openapi::api::{
    core::v1::{Event, Node, Pod},
    node::v1::RuntimeClass,
};
use kube::{
    Api,
    api::ListParams,
    runtime::{WatchStreamExt, watcher},
};
use serde_json::{Value, json};

use glovebox::api::{EnforcedState, Phase, SandboxClass};

use crate::harness::{
    Cases, Outcome, Runtime, Test,
    classes::merge,
    sandbox::{is_over, told},
    skip, wait,
};

/// The RuntimeClass whose name promises a virtual machine.
const KATA: &str = "kata-clh-runtime-rs";

pub(crate) fn cases(cases: &mut Cases) {
    cases.each_runtime("kernel::is_the_one_the_class_says", 250, is_as_said);
    cases.add("kernel::broken_promise_ends_it_before_an_instruction_ran", 250, broken_promise);
    cases.add("kernel::a_class_that_breaks_its_promise_is_found_out_beforehand", 250, found_out);
    cases.add("kernel::accepted_weaker_isolation_is_said_everywhere", 250, accepted);
}

async fn is_as_said(test: Arc<Test>, runtime: Runtime) -> Outcome {
    let sandbox = test.running(runtime, "looks", &json!({})).await?;
    let status = sandbox.status().await?;
    let node = status.node_name.clone().context("no node")?;
    let node: Node = Api::all(test.client.clone()).get(&node).await?;
    let info = node.status.and_then(|status| status.node_info).context("the node says nothing of itself")?;
    let boot_id = sandbox.sh("cat /proc/sys/kernel/random/boot_id").await?;
    let version = sandbox.sh("cat /proc/version").await?;
    let enforcement = status.enforcement.clone().context("no enforcement in the status")?;
    let kernel = enforcement.kernel_isolation;
    match runtime {
        Runtime::Runc => {
            ensure!(
                boot_id.trim() == info.boot_id,
                "runc has the boot id {boot_id}, the node {}",
                info.boot_id
            );
            ensure!(
                version.contains(&info.kernel_version),
                "runc has {version}, the node {}",
                info.kernel_version
            );
            ensure!(status.runtime.as_deref() == Some("the node's kernel"), "{:?}", status.runtime);
            ensure!(
                kernel.state == EnforcedState::NotEnforced,
                "a shared kernel is called isolation: {kernel:?}"
            );
            ensure!(enforcement.seccomp.state == EnforcedState::Enforced, "{:?}", enforcement.seccomp);
            let seccomp = sandbox.sh("grep ^Seccomp: /proc/self/status").await?;
            ensure!(seccomp.trim().ends_with('2'), "no filter holds inside: {seccomp}");
        }
        Runtime::Gvisor => {
            ensure!(boot_id.trim() != info.boot_id, "gVisor has the node's boot id");
            ensure!(
                !version.contains(&info.kernel_version) && version.contains("gvisor"),
                "gVisor has {version}"
            );
            ensure!(status.runtime.as_deref() == Some("gVisor"), "{:?}", status.runtime);
            ensure!(kernel.state == EnforcedState::Enforced && kernel.mechanism == "gVisor", "{kernel:?}");
        }
    }
    ensure!(enforcement.read_only_root.state == EnforcedState::Enforced, "{:?}", enforcement.read_only_root);
    ensure!(
        enforcement.workspace_quota.state == EnforcedState::Enforced,
        "{:?}",
        enforcement.workspace_quota
    );
    ensure!(
        enforcement.egress_fence.state == EnforcedState::Enforced
            && enforcement.egress_fence.mechanism.contains("seen closed from inside"),
        "{:?}",
        enforcement.egress_fence
    );
    Ok(())
}

/// A class on the RuntimeClass that promises a virtual machine. On the local cluster gVisor stands behind it.
async fn vm_class(test: &Test, accept: Option<&str>, more: &Value) -> Result<String> {
    test.local()?;
    let classes: Api<RuntimeClass> = Api::all(test.client.clone());
    if classes.get_opt(KATA).await?.is_none() {
        return Err(skip(format!("needs the RuntimeClass {KATA}")));
    }
    let mut change = json!({
        "trust": "Untrusted",
        "runtime": {"runtimeClassName": KATA, "handler": KATA, "isolation": "VirtualMachine", "acceptWeakerIsolation": accept},
        "resources": {"default": {"memory": "256Mi"}},
    });
    merge(&mut change, more);
    test.class(Runtime::Gvisor, if accept.is_some() { "vm-accepted" } else { "vm-promise" }, &change).await
}

async fn broken_promise(test: Arc<Test>) -> Outcome {
    // Of this namespace alone, so that no canary finds it out beforehand: here the sandbox's own look must do.
    let own =
        json!({"namespaces": {"selector": {"matchLabels": {"kubernetes.io/metadata.name": test.namespace}}}});
    let class = vm_class(&test, None, &own).await?;
    let spec = json!({"className": class, "command": ["sh", "-c", "echo ran; sleep 600"]});
    let ending = async {
        let sandbox = test.sandbox(Runtime::Gvisor, "promised", &spec).await?;
        sandbox.ended_as(Phase::Failed, "IsolationMismatch").await
    };
    let (seen, end) = future::try_join(states_of_pod(&test), ending).await?;
    ensure!(!seen.iter().any(workload_started), "the workload's container was started");
    ensure!(end.ready_at.is_none(), "it was ready once: {}", told(&end));
    let events: Api<Event> = test.api();
    let started = events.list(&ListParams::default().fields("reason=Started")).await?.items;
    let of = |container: &str| {
        let path = format!("{{{container}}}");
        started.iter().any(|event| {
            event.involved_object.field_path.as_ref().is_some_and(|field| field.ends_with(&path))
        })
    };
    ensure!(of("glovebox-init"), "the init container was not started, so nothing was proven: {started:?}");
    ensure!(!of("workload"), "the kubelet started the workload");
    Ok(())
}

/// A canary tries a class before anybody relies on it; whoever comes later ends at once, without a pod.
async fn found_out(test: Arc<Test>) -> Outcome {
    let class = vm_class(&test, None, &json!({})).await?;
    let failed = |class: Option<&SandboxClass>| {
        let conditions =
            class.and_then(|class| class.status.as_ref()).map(|status| status.conditions.as_slice());
        conditions.unwrap_or_default().iter().any(|condition| {
            condition.type_ == "RuntimeAvailable"
                && condition.status == "False"
                && condition.reason == "RuntimeProbeFailed"
        })
    };
    wait::until(Api::all(test.client.clone()), &class, "the class is found out", failed).await?;
    let late = test.sandbox(Runtime::Gvisor, "late", &json!({"className": class})).await?;
    let status = late.ended_as(Phase::Failed, "IsolationMismatch").await?;
    ensure!(told(&status).contains("canary"), "it is not told how it is known: {}", told(&status));
    let pod = late.pods().get_opt(&late.name).await?;
    ensure!(pod.is_none() && status.started_at.is_none(), "a pod was made on a kernel known to be weaker");
    Ok(())
}

/// Every state that the first pod of the namespace was ever in, up to its end.
async fn states_of_pod(test: &Test) -> Result<Vec<Pod>> {
    let pods: Api<Pod> = test.api();
    let mut events = Box::pin(watcher::watcher(pods, watcher::Config::default()).default_backoff());
    let mut seen = Vec::new();
    let watching = async {
        while let Some(event) = events.next().await {
            match event {
                Ok(watcher::Event::Apply(pod) | watcher::Event::InitApply(pod)) => seen.push(pod),
                Ok(watcher::Event::Delete(pod)) => {
                    seen.push(pod);
                    break;
                }
                Ok(watcher::Event::Init | watcher::Event::InitDone) | Err(_) => {}
            }
        }
    };
    tokio::time::timeout(wait::PATIENCE, watching).await.context("the pod was not seen to go")?;
    Ok(seen)
}

fn workload_started(pod: &Pod) -> bool {
    let containers = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
    containers.into_iter().flatten().filter_map(|container| container.state.as_ref()).any(|state| {
        let ended = state.terminated.as_ref().is_some_and(|terminated| terminated.container_id.is_some());
        state.running.is_some() || ended
    })
}

async fn accepted(test: Arc<Test>) -> Outcome {
    let why = "no machine here has a hypervisor";
    let class = vm_class(&test, Some(why), &json!({})).await?;
    let sandbox = test.sandbox(Runtime::Gvisor, "weaker", &json!({"className": class})).await?;
    let status = sandbox.running().await?;
    ensure!(status.runtime.as_deref() == Some("gVisor (weaker than VirtualMachine)"), "{:?}", status.runtime);
    ensure!(status.runtime_class_name.as_deref() == Some(KATA), "{:?}", status.runtime_class_name);
    let kernel = status.enforcement.clone().context("no enforcement")?.kernel_isolation;
    ensure!(kernel.state == EnforcedState::NotEnforced, "{kernel:?}");
    ensure!(kernel.mechanism.contains("weaker than VirtualMachine"), "{kernel:?}");
    ensure!(!is_over(&status), "{}", told(&status));
    let events: Api<Event> = test.api();
    let about = ListParams::default().fields("involvedObject.kind=AgentSandbox,reason=Running");
    wait::poll("an event says what it really runs on", async || {
        let list = events.list(&about).await?.items;
        Ok(list
            .iter()
            .any(|event| event.message.as_deref().unwrap_or_default().contains("gVisor"))
            .then_some(()))
    })
    .await?;
    let class: SandboxClass = Api::all(test.client.clone()).get(&class).await?;
    ensure!(class.spec.runtime.accept_weaker_isolation.as_deref() == Some(why), "{class:?}");
    Ok(())
}
