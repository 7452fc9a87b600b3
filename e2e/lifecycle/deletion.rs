//! Deletion in every way, and a name that is used again at once.

use std::sync::Arc;

use anyhow::{Context, ensure};
use futures::future;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, PostParams},
};
use serde_json::json;

use glovebox::api::AgentSandbox;

use crate::harness::{Cases, Outcome, Runtime, Sandbox, Test, audit::Audit, wait};

pub(super) fn cases(cases: &mut Cases) {
    cases.each_runtime("lifecycle::deletion_takes_the_pod", 250, background);
    cases.add("lifecycle::deletion_in_the_foreground", 250, foreground);
    cases.add("lifecycle::deletion_before_it_runs", 250, early);
    cases.add("lifecycle::namespace_deletion_with_five_live_sandboxes", 500, namespace);
    cases.add("lifecycle::same_name_ten_times_within_a_second", 500, same_name);
}

async fn background(test: Arc<Test>, runtime: Runtime) -> Outcome {
    let sandbox = test
        .running(runtime, "goes", &json!({"egress": {"allow": [{"name": "a", "cidrs": ["203.0.113.0/24"]}]}}))
        .await?;
    sandbox.delete().await?;
    let policies: Api<k8s_openapi::api::networking::v1::NetworkPolicy> = test.api();
    wait::gone(policies, "goes-cidrs", "its policy goes").await
}

async fn foreground(test: Arc<Test>) -> Outcome {
    let sandbox = test.running(Runtime::Runc, "goes", &json!({})).await?;
    let uid = sandbox.uid.clone();
    let seen = wait::until(sandbox.pods(), &sandbox.name, "the pod goes first", |pod| pod.is_none());
    let delete = async {
        sandbox.api().delete(&sandbox.name, &DeleteParams::foreground()).await.map_err(anyhow::Error::from)
    };
    let (gone, deleted) = future::join(seen, delete).await;
    gone?;
    deleted?;
    // The object went after the pod, so it was still there while the pod was; the finalizer is the API server's own.
    wait::gone(sandbox.api(), &sandbox.name, &format!("sandbox {uid} goes")).await
}

async fn early(test: Arc<Test>) -> Outcome {
    let sandbox = test.sandbox(Runtime::Gvisor, "short", &json!({})).await?;
    wait::until(sandbox.pods(), &sandbox.name, "the pod is made", |pod| pod.is_some()).await?;
    sandbox.delete().await
}

async fn namespace(test: Arc<Test>) -> Outcome {
    let name = test.another_namespace("restricted").await?;
    let names: Vec<String> = (0..5).map(|number| format!("s{number}")).collect();
    let small = json!({"resources": {"cpu": "100m"}});
    let made = future::try_join_all(
        names.iter().map(|sandbox| test.sandbox_in(&name, Runtime::Runc, sandbox, &small)),
    )
    .await?;
    future::try_join_all(made.iter().map(Sandbox::running)).await?;
    let audit = Audit::from_now(&test).ok();
    let namespaces: Api<Namespace> = Api::all(test.client.clone());
    namespaces.delete(&name, &DeleteParams::default()).await?;
    wait::gone(namespaces, &name, "the namespace goes").await?;
    // None was started again while it went.
    if let Some(audit) = audit {
        let entries = audit.entries(&test).await?;
        let again = entries.iter().find(|entry| {
            entry.namespace() == name && entry.verb == "create" && entry.resource() == "pods" && entry.good()
        });
        ensure!(again.is_none(), "a pod was made meanwhile: {}", again.context("seen")?.shown());
    }
    Ok(())
}

async fn same_name(test: Arc<Test>) -> Outcome {
    let api: Api<AgentSandbox> = test.api();
    let draft = test.draft(Runtime::Runc, "again", &json!({}))?;
    let mut last = None;
    for round in 0..10 {
        if last.is_some() {
            api.delete("again", &DeleteParams::background())
                .await
                .with_context(|| format!("deletion {round}"))?;
        }
        last = api
            .create(&PostParams::default(), &draft)
            .await
            .with_context(|| format!("creation {round}"))?
            .uid();
    }
    let last = last.context("no uid")?;
    let pods: Api<Pod> = test.api();
    let owned = |pod: &Pod| pod.owner_references().iter().any(|owner| owner.uid == last);
    let runs = |pod: Option<&Pod>| {
        pod.is_some_and(|pod| owned(pod) && crate::harness::pods::phase(Some(pod)) == Some("Running"))
    };
    wait::until(pods.clone(), "again", "the last one's pod runs", runs).await?;
    let ready = |sandbox: Option<&AgentSandbox>| {
        sandbox.is_some_and(|sandbox| {
            let running = sandbox
                .status
                .as_ref()
                .is_some_and(|status| status.phase == Some(glovebox::api::Phase::Running));
            sandbox.uid().as_ref() == Some(&last) && running
        })
    };
    wait::until(api, "again", "the last one runs", ready).await?;
    let all = pods.list(&ListParams::default()).await?.items;
    ensure!(
        all.len() == 1,
        "pods of former ones are left: {:?}",
        all.iter().map(ResourceExt::name_any).collect::<Vec<_>>()
    );
    Ok(())
}
