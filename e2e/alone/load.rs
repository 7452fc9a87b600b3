//! Greed: processes, memory and processor time taken without end. The neighbour hardly feels it, the node stays well, and the
//! greedy one ends for the right reason.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Node, NodeCondition};
use kube::Api;
use serde_json::{Value, json};

use glovebox::api::{Phase, Reason};

use crate::{
    attacks,
    harness::{Cases, Outcome, Runtime, Sandbox, Test, sandbox::told},
};

/// How much slower a neighbour's work may become: the median of all measurements.
const MOST: f64 = 1.10;
/// Measurements of each kind before it is judged, and most of them. Another burden of this machine shows in some of them; one that
/// the sandbox causes shows in all.
const ROUNDS: std::ops::RangeInclusive<usize> = 2..=8;
/// Seconds that each measurement takes.
const SECONDS: &str = "1.5";

/// Uses the processor for so many seconds, and wants nothing else.
const HONEST: &str = "import sys, time
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end: pass";

pub(super) fn cases(cases: &mut Cases) {
    // What holds it is the cgroup, around either kernel; what a kernel of its own does to a fork bomb is another thing.
    let greedy_under_runc = |test| greedy(test, Runtime::Runc);
    cases.add("alone::load::greed_for_everything_is_hardly_felt_by_a_neighbour", 800, greedy_under_runc);
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

/// What a neighbour felt, in microseconds, by turns: alone, beside a sandbox that does no more than use the processor time that it was
/// given, and beside one that wants all. To be slower than alone is allowed as far as the honest one makes it so: two processors of a
/// machine may share a core, and whoever starts a sandbox makes a node work.
#[derive(Default)]
struct Felt {
    alone: Vec<f64>,
    honest: Vec<f64>,
    greedy: Vec<f64>,
}

impl Felt {
    fn ratio(&self) -> f64 {
        let given = median(self.alone.clone()).max(median(self.honest.clone()));
        median(self.greedy.clone()) / given
    }

    fn told(&self) -> String {
        let [alone, honest, greedy] =
            [&self.alone, &self.honest, &self.greedy].map(|felt| median(felt.clone()));
        format!("{alone:.0} us alone, {honest:.0} us beside an honest one, {greedy:.0} us beside it")
    }
}

/// Measures until what the neighbour felt is within the bound.
async fn compare(
    neighbour: &Sandbox,
    mut honest: impl AsyncFnMut() -> Result<f64>,
    mut greedy: impl AsyncFnMut() -> Result<f64>,
) -> Outcome {
    let mut felt = Felt::default();
    for round in 1..=*ROUNDS.end() {
        felt.alone.push(feel(neighbour).await?);
        felt.honest.push(honest().await?);
        felt.greedy.push(greedy().await?);
        if ROUNDS.contains(&round) && felt.ratio() <= MOST {
            return Ok(());
        }
    }
    anyhow::bail!(
        "the neighbour's work takes {:+.1} % longer than it may beside an honest one: {}",
        (felt.ratio() - 1.0) * 100.0,
        felt.told()
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
    // For longer than the neighbour measures.
    let honest = async || {
        let (load, felt) = futures::join!(greedy.exec(&["python3", "-c", HONEST, "4"]), feel(&neighbour));
        load?;
        felt
    };
    let wants_all = async || {
        let (load, felt) = futures::join!(attacks::GREED.by_exec(&greedy, &["4"]), feel(&neighbour));
        load?;
        felt
    };
    compare(&neighbour, honest, wants_all).await?;
    ensure!(health(&test, &node).await? == before, "the node's conditions changed");
    Ok(())
}

async fn fork_bomb(test: Arc<Test>, runtime: Runtime) -> Outcome {
    let neighbour = neighbour(&test).await?;
    let node = neighbour.status().await?.node_name.context("no node")?;
    let before = health(&test, &node).await?;
    let resources = json!({"cpu": "500m", "memory": "1Gi"});
    let spec = json!({"command": attacks::FORK.command(&[]), "ttl": "40s", "resources": resources});
    let honest = json!({"command": ["python3", "-c", HONEST, "40"], "ttl": "40s", "resources": resources});
    let number = AtomicUsize::new(0);
    let beside = async |name: &str, spec: &Value| {
        let name = format!("{name}-{}", number.fetch_add(1, Ordering::Relaxed));
        let sandbox = test.sandbox(runtime, &name, spec).await?;
        sandbox.until("runs", |status| status.ready_at.is_some()).await?;
        let felt = feel(&neighbour).await;
        sandbox.delete().await?;
        felt
    };
    compare(&neighbour, async || beside("honest", &honest).await, async || beside("bomb", &spec).await)
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
