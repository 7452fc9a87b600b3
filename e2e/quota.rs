//! Quotas: a class's share of a namespace, counted with the runtime's overhead, and nobody else's business.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use futures::future;
use k8s_openapi::api::{
    core::v1::{Event, LimitRange, Pod, ResourceQuota},
    node::v1::RuntimeClass,
    scheduling::v1::PriorityClass,
};
use kube::{
    Api,
    api::{ListParams, PostParams},
};
use serde_json::json;

use glovebox::api::{Phase, Quantity};

use crate::harness::{Cases, Outcome, Runtime, Sandbox, Test, wait};

pub(crate) fn cases(cases: &mut Cases) {
    cases.add("quota::over_it_says_so_with_numbers_and_starts_when_room_appears", 600, says_so);
    cases.add("quota::counts_the_runtimes_overhead", 500, overhead);
    cases.add("quota::holds_against_many_at_once", 600, many);
    cases.add("quota::leaves_a_tenants_other_pods_alone", 400, others);
    cases.add("quota::sandboxes_never_preempt", 250, never_preempts);
}

async fn says_so(test: Arc<Test>) -> Outcome {
    let class = test.class(Runtime::Runc, "two", &json!({"quota": {"sandboxes": 2}})).await?;
    let spec = json!({"className": class, "resources": {"cpu": "100m"}});
    let first = test.running(Runtime::Runc, "first", &spec).await?;
    test.running(Runtime::Runc, "second", &spec).await?;
    let third = test.sandbox(Runtime::Runc, "third", &spec).await?;
    third.pending("QuotaExceeded", &["pods: 2 used of 2, 1 more needed", "Ready=False"]).await?;
    ensure!(third.pods().get_opt(&third.name).await?.is_none(), "a pod was made over the quota");
    let events: Api<Event> = test.api();
    let about = ListParams::default().fields("involvedObject.name=third,reason=QuotaExceeded");
    wait::poll("an event tells of it", async || {
        Ok((!events.list(&about).await?.items.is_empty()).then_some(()))
    })
    .await?;
    first.delete().await?;
    third.running().await?;
    Ok(())
}

async fn overhead(test: Arc<Test>) -> Outcome {
    let name = format!("e2e-{}", test.suffix);
    test.forget_later::<RuntimeClass>(&name);
    let heavy: RuntimeClass = serde_json::from_value(json!({
        "metadata": {"name": name}, "handler": "runsc", "overhead": {"podFixed": {"cpu": "30m", "memory": "48Mi"}},
    }))?;
    Api::all(test.client.clone()).create(&PostParams::default(), &heavy).await?;
    let quota = json!({"runtime": {"runtimeClassName": name}, "quota": {"sandboxes": 2, "cpu": "200m", "memory": "384Mi"}});
    let class = test.class(Runtime::Gvisor, "heavy", &quota).await?;
    let spec = json!({"className": class, "resources": {"cpu": "100m", "memory": "192Mi"}});
    let both = future::try_join(
        test.running(Runtime::Gvisor, "first", &spec),
        test.running(Runtime::Gvisor, "second", &spec),
    );
    both.await?;
    let quotas: Api<ResourceQuota> = test.api();
    let object = format!("glovebox-{class}");
    let full = |quota: Option<&ResourceQuota>| amount(quota, "pods", true) == Some(2);
    let quota = wait::until(quotas, &object, "the quota is used up", full).await?;
    // (100m + 30m) x 2, (192Mi + 48Mi) x 2: what two of the class's sandboxes really take.
    for (key, expected) in [("limits.cpu", 260), ("limits.memory", (480 << 20) * 1000)] {
        let (hard, used) = (milli(quota.as_ref(), key, false), milli(quota.as_ref(), key, true));
        ensure!(
            hard == Some(expected) && used == Some(expected),
            "{key}: {used:?} of {hard:?}, not {expected}"
        );
    }
    let third = test.sandbox(Runtime::Gvisor, "third", &spec).await?;
    third.pending("QuotaExceeded", &["limits.cpu: 260m used of 260m, 130m more needed"]).await?;
    Ok(())
}

fn read(quota: Option<&ResourceQuota>, key: &str, used: bool) -> Option<Quantity> {
    let status = quota?.status.as_ref()?;
    let map = if used { status.used.as_ref() } else { status.hard.as_ref() };
    map?.get(key).map(Quantity::from)
}

fn amount(quota: Option<&ResourceQuota>, key: &str, used: bool) -> Option<u64> {
    read(quota, key, used)?.units().ok()
}

fn milli(quota: Option<&ResourceQuota>, key: &str, used: bool) -> Option<u64> {
    read(quota, key, used)?.milli().ok()
}

async fn many(test: Arc<Test>) -> Outcome {
    let class = test.class(Runtime::Runc, "crowd", &json!({"quota": {"sandboxes": 2}})).await?;
    let spec = json!({"className": class, "resources": {"cpu": "100m"}});
    let names: Vec<String> = (0..6).map(|number| format!("s{number}")).collect();
    let made: Vec<Sandbox> =
        future::try_join_all(names.iter().map(|name| test.sandbox(Runtime::Runc, name, &spec))).await?;
    let settled = |status: &glovebox::api::AgentSandboxStatus| {
        status.phase == Some(Phase::Running) || status.reason.as_deref() == Some("QuotaExceeded")
    };
    let statuses =
        future::try_join_all(made.iter().map(|sandbox| sandbox.until("runs or says why not", settled)))
            .await?;
    let run = statuses.iter().filter(|status| status.phase == Some(Phase::Running)).count();
    ensure!(run == 2, "{run} run under a quota of 2");
    let pods = Api::<Pod>::namespaced(test.client.clone(), &test.namespace)
        .list(&ListParams::default())
        .await?
        .items;
    ensure!(pods.len() == 2, "{} pods under a quota of 2", pods.len());
    // Each gets its turn as another goes.
    let turn = async |sandbox: &Sandbox| {
        sandbox.running().await?;
        sandbox.delete().await
    };
    future::try_join_all(made.iter().map(turn)).await.map(|_| ())
}

async fn others(test: Arc<Test>) -> Outcome {
    let class = test
        .class(Runtime::Runc, "one", &json!({"quota": {"sandboxes": 1, "cpu": "100m", "memory": "192Mi"}}))
        .await?;
    test.running(Runtime::Runc, "ours", &json!({"className": class, "resources": {"cpu": "100m"}})).await?;
    // The quota is used up, and these ask for no limits at all: a quota that saw them would refuse them.
    for name in ["theirs", "theirs-too"] {
        let pod =
            test.ordinary_pod(&test.namespace, name, "import time; time.sleep(600)", &json!({})).await?;
        let resources =
            pod.spec.as_ref().and_then(|spec| spec.containers.first()?.resources.clone()).unwrap_or_default();
        ensure!(
            resources.limits.is_none() && resources.requests.is_none(),
            "limits were put on a tenant's pod: {resources:?}"
        );
    }
    let ranges: Api<LimitRange> = test.api();
    ensure!(ranges.list(&ListParams::default()).await?.items.is_empty(), "a LimitRange was made");
    let quotas = Api::<ResourceQuota>::namespaced(test.client.clone(), &test.namespace)
        .list(&ListParams::default())
        .await?
        .items;
    ensure!(quotas.len() == 1, "{} quotas for one class", quotas.len());
    ensure!(amount(quotas.first(), "pods", true) == Some(1), "the quota counts others: {:?}", quotas.first());
    Ok(())
}

async fn never_preempts(test: Arc<Test>) -> Outcome {
    let sandbox = test.running(Runtime::Runc, "meek", &json!({})).await?;
    let name =
        sandbox.pod().await?.spec.and_then(|spec| spec.priority_class_name).context("no priority class")?;
    let class: PriorityClass = Api::all(test.client.clone()).get(&name).await?;
    ensure!(class.preemption_policy.as_deref() == Some("Never") && class.value <= 0, "{class:?}");
    let policy = sandbox.pod().await?.spec.and_then(|spec| spec.preemption_policy);
    ensure!(policy.as_deref() == Some("Never"), "the pod may preempt: {policy:?}");
    // One that finds no room waits; nobody is sent away for it.
    let others: Vec<Option<String>> = uids(&test).await?;
    let big = test.class(Runtime::Runc, "big", &json!({"resources": {"max": {"cpu": "64"}}})).await?;
    let greedy =
        test.sandbox(Runtime::Runc, "greedy", &json!({"className": big, "resources": {"cpu": "60"}})).await?;
    greedy.until("finds no room", |status| status.reason.as_deref() == Some("Unschedulable")).await?;
    let after = uids(&test).await?;
    ensure!(others.iter().all(|uid| after.contains(uid)), "a pod was sent away");
    Ok(())
}

async fn uids(test: &Test) -> Result<Vec<Option<String>>> {
    let pods = Api::<Pod>::namespaced(test.client.clone(), &test.namespace)
        .list(&ListParams::default())
        .await?
        .items;
    Ok(pods
        .into_iter()
        .filter(|pod| {
            pod.metadata.deletion_timestamp.is_none() && pod.metadata.name.as_deref() != Some("greedy")
        })
        .map(|pod| pod.metadata.uid)
        .collect())
}
