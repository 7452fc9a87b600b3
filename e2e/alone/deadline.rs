//! The deadline to the second: with the controller alive, and without it.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use futures::future;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use serde_json::json;

use glovebox::api::Phase;

use crate::{
    harness::{Cases, Outcome, Runtime, Sandbox, Test, audit::Audit, wait},
    ttl::deadline,
};

/// How long after its deadline a sandbox may still be there.
const WITH_CONTROLLER: SignedDuration = SignedDuration::from_secs(2);
/// The same when the kubelet alone ends it.
const WITHOUT: SignedDuration = SignedDuration::from_secs(5);
/// A workload that does not listen, and has children that do not either.
const STUBBORN: &str =
    "trap '' TERM INT HUP; (trap '' TERM; while :; do sleep 1; done) & while :; do sleep 1; done";

pub(super) fn cases(cases: &mut Cases) {
    cases.each_runtime("alone::ttl::gone_within_two_seconds_of_the_deadline", 600, within_two_seconds);
    cases.add("alone::ttl::without_a_controller_the_kubelet_ends_it", 500, without_controller);
}

async fn within_two_seconds(test: Arc<Test>, runtime: Runtime) -> Outcome {
    let audit = Audit::from_now(&test)?;
    let spec = json!({"ttl": "12s", "command": ["sh", "-c", STUBBORN], "resources": {"cpu": "250m"}});
    let both = [
        test.sandbox(runtime, "stubborn", &spec).await?,
        test.sandbox(runtime, "idle", &json!({"ttl": "12s"})).await?,
    ];
    for sandbox in &both {
        sandbox.running().await?;
    }
    let ends = future::try_join_all(both.iter().map(last_end)).await?;
    for (sandbox, end) in both.iter().zip(ends) {
        sandbox.ended_as(Phase::Expired, "TtlExpired").await?;
        let gone = gone_at(&test, &audit, sandbox).await?.duration_since(deadline(sandbox, 12));
        // A container's times have whole seconds: one that is said to have ended a second after may have needed two.
        let ended = end.map(|end| end.duration_since(deadline(sandbox, 12)));
        let in_time = gone <= WITH_CONTROLLER || ended.is_some_and(|ended| ended < WITH_CONTROLLER);
        let name = &sandbox.name;
        ensure!(
            in_time,
            "the pod of {name} was gone {gone:#} after the deadline, its workload had ended {ended:?} after"
        );
    }
    Ok(())
}

/// Waits until the pod is gone; gives when its workload ended, if it was seen to.
async fn last_end(sandbox: &Sandbox) -> Result<Option<Timestamp>> {
    let seen = std::cell::Cell::new(None);
    wait::until(sandbox.pods(), &sandbox.name, "the pod goes", |pod| {
        seen.set(ended(pod).or_else(|| seen.get()));
        pod.is_none()
    })
    .await?;
    Ok(seen.get())
}

/// When the kubelet reported that everything of the pod is gone, and so the object went.
async fn gone_at(test: &Test, audit: &Audit, sandbox: &Sandbox) -> Result<Timestamp> {
    let entries = audit.entries(test).await?;
    let of_pod =
        entries.iter().filter(|entry| entry.namespace() == sandbox.namespace && entry.name() == sandbox.name);
    let mut by_node = of_pod.filter(|entry| {
        entry.resource() == "pods" && entry.verb == "delete" && entry.user().starts_with("system:node:")
    });
    let last = by_node.rfind(|entry| entry.good());
    Ok(last.context("the kubelet did not remove the pod")?.stage_timestamp)
}

async fn without_controller(test: Arc<Test>) -> Outcome {
    test.controller()?;
    let spec = json!({"ttl": "25s", "command": ["sh", "-c", STUBBORN], "resources": {"cpu": "250m"}});
    let sandboxes = [
        test.sandbox(Runtime::Runc, "runc", &spec).await?,
        test.sandbox(Runtime::Gvisor, "gvisor", &spec).await?,
    ];
    for sandbox in &sandboxes {
        sandbox.running().await?;
    }
    test.scale_controller(0).await?;
    let judged = ends_without_help(&sandboxes).await;
    test.scale_controller(test.controller()?.replicas).await?;
    judged?;
    // The controller that comes back makes of it what it is.
    for sandbox in &sandboxes {
        sandbox.ended_as(Phase::Expired, "TtlExpired").await?;
    }
    Ok(())
}

async fn ends_without_help(sandboxes: &[Sandbox]) -> Outcome {
    for sandbox in sandboxes {
        let pods: Api<Pod> = sandbox.pods();
        let over = |pod: Option<&Pod>| ended(pod).is_some();
        let pod = wait::until(pods, &sandbox.name, "the kubelet ends it", over).await?;
        let ended = ended(pod.as_ref()).context("it was just seen")?;
        let late = ended.duration_since(deadline(sandbox, 25));
        ensure!(late <= WITHOUT, "{} stopped {late:#} after the deadline", sandbox.name);
        ensure!(
            late >= SignedDuration::from_secs(-1),
            "{} stopped {late:#} before the deadline",
            sandbox.name
        );
    }
    Ok(())
}

/// When the workload's container ended, if it did.
fn ended(pod: Option<&Pod>) -> Option<Timestamp> {
    let containers = pod?.status.as_ref()?.container_statuses.as_ref()?;
    let state = containers.iter().find(|container| container.name == "workload")?.state.as_ref()?;
    state.terminated.as_ref()?.finished_at.as_ref().map(|time| time.0)
}
