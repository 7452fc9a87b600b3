//! Faults of the cluster: the controller killed, the API server restarted, the enforcer gone, a node that dies.

use std::{collections::BTreeSet, sync::Arc};

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, future, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt, api::ListParams};
use serde_json::json;
use tokio::sync::oneshot;

use glovebox::api::{AgentSandbox, Phase};

use crate::{
    attacks,
    harness::{Cases, Outcome, Runtime, Sandbox, Test, audit::Audit, sandbox::told, skip, wait},
};

const FIFTY: usize = 50;

pub(super) fn cases(cases: &mut Cases) {
    cases.add("alone::faults::controller_killed_during_fifty_creations", 1100, killed);
    cases.add("alone::faults::api_server_restarted", 800, api_server);
    cases.add("alone::faults::enforcer_restarted", 300, enforcer);
    cases.add("alone::faults::node_dies", 500, node_dies);
}

async fn killed(test: Arc<Test>) -> Outcome {
    test.renew_controller().await?;
    let audit = Audit::from_now(&test)?;
    let small = json!({"resources": {"default": {"cpu": "10m", "memory": "64Mi"}}, "workspace": {"defaultSize": "1Mi"}});
    let class = test.class(Runtime::Runc, "fifty", &small).await?;
    let create = |numbers: std::ops::Range<usize>| {
        let each =
            stream::iter(numbers).map(|number| {
                let (test, class) = (&test, &class);
                async move {
                    test.sandbox(Runtime::Runc, &format!("s{number}"), &json!({"className": class})).await
                }
            });
        each.buffered(2).try_collect::<Vec<Sandbox>>()
    };
    // Killed while it makes the first half, and once more while it makes the second, which nobody asks for before.
    let (again, first_is_over) = oneshot::channel();
    let create = async {
        let mut made = create(0..FIFTY / 2).await?;
        first_is_over.await?;
        made.extend(create(FIFTY / 2..FIFTY).await?);
        Ok::<_, anyhow::Error>(made)
    };
    let kill = async {
        let pods: Api<Pod> = test.api();
        let kill_once_made = async |least: usize| {
            wait::poll("pods are made", async || {
                Ok((pods.list(&ListParams::default()).await?.items.len() >= least).then_some(()))
            })
            .await?;
            let kill = async || Ok(Some(test.kill_controller().await?).filter(|killed| *killed > 0));
            wait::poll("the controller runs, to be killed", kill).await
        };
        kill_once_made(3).await?;
        let _ = again.send(());
        kill_once_made(FIFTY / 2 + 1).await?;
        Ok::<_, anyhow::Error>(())
    };
    let (made, killed) = future::join(create, kill).await;
    killed?;
    let made = made?;
    for sandbox in &made {
        sandbox.running_within(3 * wait::PATIENCE).await?;
    }
    all_right(&test, &made).await?;
    let entries = audit.entries(&test).await?;
    let created = entries.iter().filter(|entry| {
        entry.namespace() == test.namespace
            && entry.resource() == "pods"
            && entry.verb == "create"
            && entry.good()
    });
    // Of a creation whose client dies before the answer, the log tells no good end, though the pod is there.
    let created = created.count();
    ensure!(created <= FIFTY, "{created} pods were created for {FIFTY} sandboxes");
    let gone = entries.iter().filter(|entry| {
        entry.namespace() == test.namespace && entry.resource() == "pods" && entry.verb == "delete"
    });
    ensure!(gone.count() == 0, "a pod was deleted, so that one was created twice");
    test.renew_controller().await
}

/// One pod each, of its own, and nothing else.
async fn all_right(test: &Test, made: &[Sandbox]) -> Outcome {
    let pods = Api::<Pod>::namespaced(test.client.clone(), &test.namespace)
        .list(&ListParams::default())
        .await?
        .items;
    let owners: BTreeSet<(String, String)> = pods
        .iter()
        .flat_map(|pod| pod.owner_references().iter().map(|owner| (pod.name_any(), owner.uid.clone())))
        .collect();
    let wanted: BTreeSet<(String, String)> =
        made.iter().map(|sandbox| (sandbox.name.clone(), sandbox.uid.clone())).collect();
    ensure!(pods.len() == made.len(), "{} pods for {} sandboxes", pods.len(), made.len());
    ensure!(owners == wanted, "pods of others: {:?}", owners.symmetric_difference(&wanted));
    let sandboxes = Api::<AgentSandbox>::namespaced(test.client.clone(), &test.namespace)
        .list(&ListParams::default())
        .await?
        .items;
    for sandbox in sandboxes {
        let status = sandbox.status.unwrap_or_default();
        ensure!(
            status.phase == Some(Phase::Running),
            "{}: {}",
            sandbox.metadata.name.unwrap_or_default(),
            told(&status)
        );
    }
    Ok(())
}

async fn api_server(test: Arc<Test>) -> Outcome {
    let local = test.local()?;
    let small = json!({"resources": {"cpu": "100m"}});
    let old = test.running(Runtime::Runc, "old", &small).await?;
    let brief =
        test.running(Runtime::Runc, "brief", &json!({"resources": {"cpu": "100m"}, "ttl": "25s"})).await?;
    let before = old.pod().await?.metadata.uid;
    let mut young = Vec::new();
    for number in 0..4 {
        young.push(test.sandbox(Runtime::Runc, &format!("young{number}"), &small).await?);
    }
    local.part(&["restart", "apiserver"]).await?;
    for sandbox in &young {
        sandbox.running().await?;
    }
    brief.ended_as(Phase::Expired, "TtlExpired").await?;
    brief.pod_gone().await?;
    let status = old.status().await?;
    ensure!(
        status.phase == Some(Phase::Running) && old.pod().await?.metadata.uid == before,
        "the restart cost a sandbox: {}",
        told(&status)
    );
    // Whoever was thrown out by the restart is back at work.
    test.running(Runtime::Runc, "new", &small).await?.delete().await
}

/// Rules that stand in the kernel hold while the enforcer is gone, and what changed meanwhile holds once it is back.
async fn enforcer(test: Arc<Test>) -> Outcome {
    test.world().await?;
    let local = test.local()?;
    let sandbox = test.running(Runtime::Runc, "fenced", &json!({})).await?;
    let closed = json!({"tcp 203.0.113.7:443": false}).to_string();
    attacks::PROBE.by_exec(&sandbox, &[&closed, "60"]).await?;
    let node = sandbox.status().await?.node_name.context("no node")?;
    local.part(&["stop", "kube-router", "--node", &node]).await?;
    let held = attacks::PROBE.by_exec(&sandbox, &[&closed, "20"]).await;
    let edited = sandbox
        .patch(json!({"egress": {"allow": [{"name": "one", "cidrs": ["203.0.113.7/32"], "ports": [443]}]}}))
        .await;
    local.part(&["start", "kube-router", "--node", &node]).await?;
    held.context("while the enforcer was gone")?;
    edited?;
    let open = json!({"tcp 203.0.113.7:443": true, "tcp 203.0.113.7:8443": false}).to_string();
    attacks::PROBE.by_exec(&sandbox, &[&open, "60"]).await.map(|_| ())
}

/// A node that loses its power: its sandboxes end as drained, and none is started a second time elsewhere.
async fn node_dies(test: Arc<Test>) -> Outcome {
    let local = test.local()?;
    let nodes = test.cluster.node_names().await?;
    let victim = last_node(&nodes)?;
    let class = test
        .class(
            Runtime::Runc,
            "victim",
            &json!({"scheduling": {"nodeSelector": {"kubernetes.io/hostname": victim}}}),
        )
        .await?;
    let sandbox = test.running(Runtime::Runc, "lost", &json!({"className": class})).await?;
    local.part(&["stop", victim]).await?;
    let ended = sandbox.ended_as(Phase::Failed, "NodeDrained").await;
    local.part(&["start", victim]).await?;
    ended?;
    sandbox.pod_gone().await
}

/// The last node does not carry the control plane.
fn last_node(nodes: &[String]) -> Result<&String> {
    match nodes {
        [_, .., last] => Ok(last),
        _ => Err(skip("needs a second node: start the cluster with `cargo xtask cluster up --nodes 2`")),
    }
}
