//! A pod that does not go: said with the node's name a minute after it should have gone, and never deleted by force.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, ensure};
use serde_json::json;

use glovebox::api::{ConditionType, Phase};

use crate::harness::{
    Cases, Outcome, Runtime, Sandbox, Test,
    local::Local,
    sandbox::{says, told},
};

pub(crate) fn cases(cases: &mut Cases) {
    cases.add("lifecycle::a_pod_that_does_not_go_is_called_stalled", 250, stalled);
}

async fn stalled(test: Arc<Test>) -> Outcome {
    let local = test.local()?;
    let sandbox =
        test.running(Runtime::Runc, "stuck", &json!({"ttl": "10m", "ttlAfterFinished": "1s"})).await?;
    let node = sandbox.status().await?.node_name.context("no node")?;
    let shim = shim(local, &sandbox, &node).await?;
    local.on_node(&node, &["kill", "-STOP", &shim]).await?;
    let watched = watch(&sandbox, &node).await;
    local.on_node(&node, &["kill", "-CONT", &shim]).await?;
    watched?;
    sandbox.gone().await
}

async fn watch(sandbox: &Sandbox, node: &str) -> Outcome {
    let before = sandbox.pod().await?.metadata.uid;
    sandbox.patch(json!({"ttl": "1s"})).await?;
    sandbox.ended_as(Phase::Expired, "TtlExpired").await?;
    // A minute after the pod's grace period, not before.
    let stalled = |status: &glovebox::api::AgentSandboxStatus| {
        says(status, ConditionType::TeardownStalled, "True", "PodNotGone")
    };
    let status =
        sandbox.until_within("says that its teardown is stalled", Duration::from_secs(180), stalled).await?;
    ensure!(told(&status).contains(node), "the node is not named: {}", told(&status));
    let pod = sandbox.pod().await?;
    ensure!(
        pod.metadata.uid == before && pod.metadata.deletion_timestamp.is_some(),
        "the pod was deleted by force"
    );
    let since = pod.metadata.deletion_timestamp.context("seen")?.0;
    let said = crate::harness::sandbox::condition(&status, ConditionType::TeardownStalled)
        .context("seen")?
        .last_transition_time
        .0;
    ensure!(
        said.duration_since(since).as_secs() >= 59,
        "called stalled after {:#}",
        said.duration_since(since)
    );
    Ok(())
}

/// The process id of what holds the sandbox's containers, as the node sees it: the parent of the workload's first process.
async fn shim(local: &Local, sandbox: &Sandbox, node: &str) -> anyhow::Result<String> {
    let pod = sandbox.pod().await?;
    let containers = pod.status.and_then(|status| status.container_statuses).unwrap_or_default();
    let id =
        containers.first().and_then(|container| container.container_id.clone()).context("no container")?;
    let id = id.trim_start_matches("containerd://").to_owned();
    let tasks = local.on_node(node, &["ctr", "--namespace", "k8s.io", "task", "list"]).await?;
    let row = tasks
        .lines()
        .find(|line| line.starts_with(&id))
        .with_context(|| format!("no task {id} in:\n{tasks}"))?;
    let process = row.split_whitespace().nth(1).context("a task without process")?;
    let parent = local
        .on_node(node, &["sh", "-c", &format!("awk '$1 == \"PPid:\" {{print $2}}' /proc/{process}/status")])
        .await?;
    let name = local.on_node(node, &["cat", &format!("/proc/{}/comm", parent.trim())]).await?;
    ensure!(name.starts_with("containerd-shim"), "process {} is {name:?}, no shim", parent.trim());
    Ok(parent.trim().to_owned())
}
