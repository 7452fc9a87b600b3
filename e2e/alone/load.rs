//! Greed: processes, memory and processor time taken without end. The neighbour hardly feels it, the node stays well, and the
//! greedy one ends for the right reason.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Node, NodeCondition};
use kube::Api;
use serde_json::json;

use glovebox::api::{Phase, Reason};

use crate::{
    attacks,
    harness::{Cases, Outcome, Runtime, Sandbox, Test, sandbox::told},
};

/// How much slower a neighbour's work may become: the median of many samples.
const MOST: f64 = 1.10;
/// A series that another burden of this machine spoiled is repeated; one that the sandbox causes shows in each.
const SERIES: usize = 3;
/// Seconds that each measurement takes.
const SECONDS: &str = "1.5";

pub(super) fn cases(cases: &mut Cases) {
    cases.each_runtime("alone::load::greed_for_everything_is_hardly_felt_by_a_neighbour", 800, greedy);
    cases.each_runtime("alone::load::a_fork_bomb_is_hardly_felt_by_a_neighbour", 800, fork_bomb);
}

/// The neighbour whose time is measured.
async fn neighbour(test: &Test) -> Result<Sandbox> {
    test.running(Runtime::Runc, "neighbour", &json!({"resources": {"cpu": "300m"}})).await
}

/// Median microseconds of a little work.
async fn feel(neighbour: &Sandbox) -> Result<f64> {
    Ok(neighbour.python(attacks::MEASURE, &[SECONDS]).await?.trim().parse()?)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { f64::midpoint(values[middle - 1], values[middle]) }
}

/// Measures by turns, quiet and loaded, so many rounds a series, until a series stays within the bound.
async fn compare(
    neighbour: &Sandbox,
    rounds: usize,
    mut loaded: impl AsyncFnMut() -> Result<f64>,
) -> Outcome {
    let mut told = Vec::new();
    for _ in 0..SERIES {
        let (mut quiet, mut load) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            quiet.push(feel(neighbour).await?);
            load.push(loaded().await?);
        }
        let (quiet, load) = (median(quiet), median(load));
        told.push(format!(
            "{quiet:.0} us alone, {load:.0} us beside it: {:+.1} %",
            (load / quiet - 1.0) * 100.0
        ));
        if load / quiet <= MOST {
            return Ok(());
        }
    }
    anyhow::bail!(
        "the neighbour's work takes more than {:.0} % longer in each series: {}",
        (MOST - 1.0) * 100.0,
        told.join("; ")
    )
}

/// The node's conditions as they are said to be since when.
async fn health(test: &Test, node: &str) -> Result<Vec<NodeCondition>> {
    let node: Node = Api::all(test.client.clone()).get(node).await?;
    let mut conditions = node.status.and_then(|status| status.conditions).unwrap_or_default();
    for condition in &mut conditions {
        condition.last_heartbeat_time = None;
    }
    Ok(conditions)
}

async fn greedy(test: Arc<Test>, runtime: Runtime) -> Outcome {
    let neighbour = neighbour(&test).await?;
    let spec = json!({"resources": {"cpu": "500m", "memory": "256Mi"}, "workspace": {"size": "32Mi"}});
    let greedy = test.running(runtime, "greedy", &spec).await?;
    let node = greedy.status().await?.node_name.context("no node")?;
    let before = health(&test, &node).await?;
    compare(&neighbour, 3, async || {
        // For longer than the neighbour measures.
        let (load, felt) = futures::join!(attacks::GREED.by_exec(&greedy, &["4"]), feel(&neighbour));
        load?;
        felt
    })
    .await?;
    ensure!(health(&test, &node).await? == before, "the node's conditions changed");
    Ok(())
}

async fn fork_bomb(test: Arc<Test>, runtime: Runtime) -> Outcome {
    let neighbour = neighbour(&test).await?;
    let node = neighbour.status().await?.node_name.context("no node")?;
    let before = health(&test, &node).await?;
    let spec = json!({"command": attacks::FORK.command(&[]), "ttl": "40s", "resources": {"cpu": "500m", "memory": "1Gi"}});
    let mut number = 0;
    compare(&neighbour, 2, async || {
        number += 1;
        let bomb = test.sandbox(runtime, &format!("bomb-{number}"), &spec).await?;
        bomb.until("runs", |status| status.ready_at.is_some()).await?;
        let felt = feel(&neighbour).await;
        bomb.delete().await?;
        felt
    })
    .await?;
    // The last one is left to its end.
    let mut spec = spec;
    spec["ttl"] = json!("10s");
    let bomb = test.sandbox(runtime, "last", &spec).await?;
    let status =
        bomb.until_within("ends", Duration::from_secs(120), crate::harness::sandbox::is_over).await?;
    let reasons = [(Phase::Expired, Reason::TtlExpired), (Phase::Failed, Reason::OOMKilled)];
    let right = reasons.iter().any(|(phase, reason)| {
        status.phase == Some(*phase) && status.reason.as_deref() == Some(reason.as_str())
    });
    ensure!(right, "a fork bomb ends as {}", told(&status));
    if status.phase == Some(Phase::Expired) {
        bomb.pod_gone().await?;
    }
    ensure!(health(&test, &node).await? == before, "the node's conditions changed");
    Ok(())
}
