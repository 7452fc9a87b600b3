//! Records that are handed on to a collector: all of them, in order, though it fails at first.

use std::sync::Arc;

use anyhow::{Result, ensure};
use k8s_openapi::api::{apps::v1::StatefulSet, core::v1::Pod, networking::v1::NetworkPolicy};
use kube::{
    Api,
    api::{DeleteParams, LogParams, PatchParams, PostParams},
};
use serde_json::json;

use super::with_flag;
use crate::{
    cli::Person,
    harness::{Outcome, Runtime, Test, pods, wait},
};

const COLLECTOR: &str = include_str!("collector.py");
const TRAIL: &str = "glovebox-audit";
const FLAG: &str = "--export-webhook";
const POLICY: &str = "e2e-collector";

pub(super) async fn exported(test: Arc<Test>) -> Outcome {
    let person = super::reader(&test).await?;
    let pod = test.ordinary_pod(&test.namespace, "collector", COLLECTOR, &json!({})).await?;
    let address = pods::address(&pod)?;
    let policies: Api<NetworkPolicy> = Api::namespaced(test.client.clone(), &test.controller()?.namespace);
    let policy = serde_json::from_value(json!({
        "metadata": {"name": POLICY},
        "spec": {
            "podSelector": {"matchLabels": {"app.kubernetes.io/component": "audit"}},
            "policyTypes": ["Egress"],
            "egress": [{"to": [{"ipBlock": {"cidr": format!("{address}/32")}}], "ports": [{"port": 8080}]}],
        },
    }))?;
    policies.create(&PostParams::default(), &policy).await?;
    let done = handed_on(&test, &person, &address).await;
    // As it was for whoever comes next, also after a failure.
    set(&test, None).await?;
    policies.delete(POLICY, &DeleteParams::default()).await?;
    done
}

/// Where the trail hands records on to.
async fn set(test: &Test, url: Option<&str>) -> Result<()> {
    let sets: Api<StatefulSet> = Api::namespaced(test.client.clone(), &test.controller()?.namespace);
    let found = sets.get(TRAIL).await?;
    let template = found.spec.as_ref().map(|spec| &spec.template);
    let patch = with_flag(template, FLAG, url.map(|url| format!("{FLAG}={url}")))?;
    sets.patch(TRAIL, &PatchParams::default(), &patch).await?;
    let renewed = |set: Option<&StatefulSet>| {
        set.is_some_and(|set| {
            let Some(status) = &set.status else { return false };
            status.observed_generation == set.metadata.generation
                && status.current_revision == status.update_revision
                && status.ready_replicas == Some(1)
        })
    };
    wait::until_within(sets.clone(), TRAIL, "the trail is renewed", 2 * wait::PATIENCE, renewed)
        .await
        .map(|_| ())
}

async fn handed_on(test: &Test, person: &Person, address: &str) -> Outcome {
    set(test, Some(&format!("http://{address}:8080/in"))).await?;
    test.running(Runtime::Runc, "watched", &json!({})).await?;
    person.glovebox(&["exec", "watched", "--", "true"]).await?.is(0)?;
    let pods: Api<Pod> = test.api();
    let log = wait::poll("the collector has the end of the call", async || {
        let log = pods.logs("collector", &LogParams::default()).await?;
        Ok(log.contains(" CallEnded watched").then_some(log))
    })
    .await?;
    let numbers: Vec<u64> = log.lines().filter_map(|line| line.split(' ').nth(1)?.parse().ok()).collect();
    ensure!(numbers.first() == Some(&0), "it does not begin at the beginning: {numbers:?}");
    ensure!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "one is missing, or twice: {numbers:?}");
    Ok(())
}
