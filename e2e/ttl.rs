//! Time to live: what ends a sandbox, what moves its end, and what removes what is left of it.

use std::sync::Arc;

use anyhow::{Context, ensure};
use jiff::{SignedDuration, Timestamp};
use kube::{Api, ResourceExt};
use serde_json::json;

use glovebox::api::{AgentSandbox, ConditionType, Phase};

use crate::harness::{
    Cases, Outcome, Runtime, Sandbox, Test,
    sandbox::{condition, told},
    wait,
};

pub(crate) fn cases(cases: &mut Cases) {
    cases.each_runtime("ttl::the_end_is_told_and_the_object_goes_later", 250, expires);
    cases.add("ttl::lowered_while_it_runs", 250, lowered);
    cases.add("ttl::lowered_below_what_has_passed_ends_it_at_once", 250, lowered_below);
    cases.add("ttl::a_raise_is_refused", 250, raise_refused);
    cases.add("ttl::a_raise_is_granted_where_the_class_is_extendable", 250, raise_granted);
    cases.add("ttl::of_one_that_never_started", 0, never_started);
    cases.add("ttl::after_finished_removes_what_ended_by_itself", 250, after_finished);
    cases.add("ttl::more_than_the_class_allows", 0, too_long);
}

/// When a sandbox of that age ends.
pub(crate) fn deadline(sandbox: &Sandbox, seconds: i64) -> Timestamp {
    sandbox.created + SignedDuration::from_secs(seconds)
}

async fn expires(test: Arc<Test>, runtime: Runtime) -> Outcome {
    let spec = json!({"ttl": "10s", "ttlAfterFinished": "3s", "command": ["sleep", "600"]});
    let sandbox = test.sandbox(runtime, "brief", &spec).await?;
    let status = sandbox.ended_as(Phase::Expired, "TtlExpired").await?;
    let finished = status.finished_at.clone().context("no end")?.0;
    ensure!(finished >= deadline(&sandbox, 10), "it ended at {finished}, before its time");
    ensure!(
        status.expires_at.as_ref().is_some_and(|at| at.0 <= deadline(&sandbox, 11)),
        "{:?}",
        status.expires_at
    );
    sandbox.pod_gone().await?;
    let last = sandbox.api().get_opt(&sandbox.name).await?;
    if let Some(last) = last {
        ensure!(last.status.is_some_and(|status| status.phase == Some(Phase::Expired)), "another end");
    }
    wait::gone(sandbox.api(), &sandbox.name, "the object goes").await?;
    ensure!(
        Timestamp::now() >= finished + SignedDuration::from_secs(3),
        "the object went before ttlAfterFinished"
    );
    Ok(())
}

async fn lowered(test: Arc<Test>) -> Outcome {
    let sandbox = test.running(Runtime::Runc, "shorter", &json!({"ttl": "10m"})).await?;
    sandbox.patch(json!({"ttl": "4m"})).await?;
    let status = sandbox
        .until("says its new end", |status| {
            status.expires_at.as_ref().is_some_and(|at| at.0 == deadline(&sandbox, 240))
        })
        .await?;
    ensure!(status.phase == Some(Phase::Running), "{}", told(&status));
    // The kubelet holds it too, should the controller be gone by then.
    let guarded = wait::until(sandbox.pods(), &sandbox.name, "the pod's own deadline is lowered", |pod| {
        pod.and_then(|pod| pod.spec.as_ref()?.active_deadline_seconds).is_some_and(|seconds| seconds <= 242)
    });
    let pod = guarded.await?.context("seen")?;
    let started = pod.status.as_ref().and_then(|status| status.start_time.clone()).context("no start")?.0;
    let own = started
        + SignedDuration::from_secs(pod.spec.and_then(|spec| spec.active_deadline_seconds).context("seen")?);
    ensure!(own >= deadline(&sandbox, 240), "the pod's own deadline is before the sandbox's");
    let age = Timestamp::now().duration_since(sandbox.created).as_secs();
    let soon = age + 4;
    sandbox.patch(json!({"ttl": format!("{soon}s")})).await?;
    sandbox.ended_as(Phase::Expired, "TtlExpired").await?;
    sandbox.pod_gone().await
}

async fn lowered_below(test: Arc<Test>) -> Outcome {
    let sandbox = test.running(Runtime::Runc, "over", &json!({"ttl": "10m"})).await?;
    sandbox.patch(json!({"ttl": "1s"})).await?;
    sandbox.ended_as(Phase::Expired, "TtlExpired").await?;
    sandbox.pod_gone().await
}

async fn raise_refused(test: Arc<Test>) -> Outcome {
    let sandbox = test.running(Runtime::Runc, "stubborn", &json!({"ttl": "5m"})).await?;
    let before = sandbox.status().await?.expires_at.context("no end")?.0;
    let edited = sandbox.patch(json!({"ttl": "30m"})).await?.metadata.generation;
    let status = sandbox.until("has seen the edit", |status| status.observed_generation == edited).await?;
    let accepted = condition(&status, ConditionType::Accepted).context("no condition")?;
    ensure!(accepted.status == "False", "the raise is not refused: {}", told(&status));
    ensure!(accepted.message.contains("spec.ttl"), "the field is not named: {}", told(&status));
    ensure!(
        status.expires_at.as_ref().is_some_and(|at| at.0 == before),
        "the end moved to {:?}",
        status.expires_at
    );
    ensure!(status.phase == Some(Phase::Running), "{}", told(&status));
    Ok(())
}

async fn raise_granted(test: Arc<Test>) -> Outcome {
    let class = test
        .class(Runtime::Runc, "stretch", &json!({"ttl": {"default": "2m", "max": "10m", "extendable": true}}))
        .await?;
    let sandbox = test.running(Runtime::Runc, "stretched", &json!({"className": class, "ttl": "3m"})).await?;
    let carried =
        sandbox.pod().await?.spec.and_then(|spec| spec.active_deadline_seconds).context("no deadline")?;
    ensure!((500..=600).contains(&carried), "the pod carries {carried} s, not the class's most");
    sandbox.patch(json!({"ttl": "9m"})).await?;
    let moved = |at: Timestamp| at == deadline(&sandbox, 540);
    sandbox
        .until("says its new end", |status| status.expires_at.as_ref().is_some_and(|at| moved(at.0)))
        .await?;
    // Not over the class's most.
    let edited = sandbox.patch(json!({"ttl": "11m"})).await?.metadata.generation;
    let status = sandbox.until("has seen the edit", |status| status.observed_generation == edited).await?;
    ensure!(
        condition(&status, ConditionType::Accepted).is_some_and(|c| c.reason == "ExceedsClass"),
        "{}",
        told(&status)
    );
    ensure!(
        status.expires_at.as_ref().is_some_and(|at| moved(at.0)),
        "the end moved to {:?}",
        status.expires_at
    );
    Ok(())
}

async fn never_started(test: Arc<Test>) -> Outcome {
    let sandbox =
        test.sandbox(Runtime::Runc, "waits", &json!({"className": "e2e-no-such-class", "ttl": "4s"})).await?;
    let status = sandbox.ended_as(Phase::Expired, "TtlExpired").await?;
    ensure!(status.started_at.is_none(), "{status:?}");
    Ok(())
}

async fn after_finished(test: Arc<Test>) -> Outcome {
    let sandbox =
        test.sandbox(Runtime::Runc, "done", &json!({"ttlAfterFinished": "2s", "command": ["true"]})).await?;
    sandbox.ended_as(Phase::Succeeded, "Completed").await?;
    sandbox.gone().await?;
    let others: Api<AgentSandbox> = test.api();
    let left = others.list(&kube::api::ListParams::default()).await?.items;
    ensure!(left.is_empty(), "{:?}", left.iter().map(ResourceExt::name_any).collect::<Vec<_>>());
    Ok(())
}

async fn too_long(test: Arc<Test>) -> Outcome {
    let sandbox = test.sandbox(Runtime::Runc, "endless", &json!({"ttl": "2h"})).await?;
    sandbox.pending("ExceedsClass", &["spec.ttl is 2h", "at most 1h"]).await?;
    ensure!(sandbox.pods().get_opt(&sandbox.name).await?.is_none(), "a pod was made");
    Ok(())
}
