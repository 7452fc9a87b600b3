//! From object created to pod created, beside a bare pod in the same run. Run by `cargo xtask bench create`.
//!
//! The cluster is idle whenever something is created: what the scheduler and the controller have to say of the one before is waited
//! for. Rounds are interleaved, so that a noisy machine is noisy for both. A pod counts as created when a watch, opened before,
//! delivers it: the same clock and the same path for sandbox and reference. A sandbox counts as created when the API server
//! answers its creation; the row that begins with the request holds the API server's own time as well. Prints a table, then a JSON line a row, and
//! fails when the bound is broken.

#[path = "common/ended.rs"]
mod ended;
#[path = "common/usage.rs"]
mod usage;

use std::{
    collections::BTreeMap,
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use futures::{StreamExt, TryStreamExt};
use glovebox::api::{AgentSandbox, Reason, SandboxClass};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, PostParams, WatchParams},
    core::WatchEvent,
};
use serde_json::{Value, json};
use usage::Usage;

/// Pairs of measurements.
const ROUNDS: usize = 60;
/// The design's bound on the median, from the sandbox created to its pod created.
const MEDIAN: Duration = Duration::from_millis(20);
/// The most that a sandbox's pod may take beside a bare pod: its own creation, a watch event, and one more call.
const RATIO: f64 = 5.0;

const NAMESPACE: &str = "glovebox-bench";
const CLASS: &str = "glovebox-bench";

/// The role whose processes are measured.
const ROLE: &str = "controller";

#[tokio::main]
async fn main() -> ExitCode {
    ended::ended(run().await)
}

async fn run() -> Result<()> {
    let client = Client::try_default().await?;
    set_up(&client).await?;
    let measured = measure(&client).await;
    tear_down(&client).await?;
    let Measured { mut ours, mut asked, mut bare, used } = measured?;
    for row in [&mut ours, &mut asked, &mut bare] {
        row.sort_unstable();
    }
    report(&ours, &asked, &bare, used)
}

async fn set_up(client: &Client) -> Result<()> {
    let class: SandboxClass = serde_json::from_value(json!({
        "apiVersion": "glovebox.dev/v1alpha1", "kind": "SandboxClass", "metadata": {"name": CLASS},
        "spec": {"trust": "Trusted", "runtime": {"isolation": "SharedKernel"}, "quota": {"sandboxes": 500},
                 // Nothing is started: the control plane alone is measured.
                 "scheduling": {"nodeSelector": {"glovebox.dev/bench": "nowhere"}}},
    }))?;
    let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": NAMESPACE}}))?;
    let post = PostParams::default();
    Api::all(client.clone())
        .create(&post, &class)
        .await
        .context("can't create the class; did the last run end well?")?;
    Api::all(client.clone()).create(&post, &namespace).await?;
    // Pods are refused until the namespace has its service account.
    let accounts: Api<k8s_openapi::api::core::v1::ServiceAccount> =
        Api::namespaced(client.clone(), NAMESPACE);
    let there = |account: Option<&k8s_openapi::api::core::v1::ServiceAccount>| account.is_some();
    tokio::time::timeout(
        Duration::from_secs(30),
        kube::runtime::wait::await_condition(accounts, "default", there),
    )
    .await??;
    Ok(())
}

async fn tear_down(client: &Client) -> Result<()> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    namespaces.delete(NAMESPACE, &DeleteParams::background()).await?;
    let gone = |namespace: Option<&Namespace>| namespace.is_none();
    tokio::time::timeout(
        Duration::from_secs(120),
        kube::runtime::wait::await_condition(namespaces, NAMESPACE, gone),
    )
    .await??;
    Api::<SandboxClass>::all(client.clone()).delete(CLASS, &DeleteParams::background()).await?;
    Ok(())
}

struct Measured {
    /// From the sandbox created.
    ours: Vec<Duration>,
    /// From the sandbox asked for.
    asked: Vec<Duration>,
    /// From a bare pod asked for.
    bare: Vec<Duration>,
    used: Usage,
}

async fn measure(client: &Client) -> Result<Measured> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let sandboxes: Api<AgentSandbox> = Api::namespaced(client.clone(), NAMESPACE);
    let params = WatchParams::default().timeout(290);
    let now = kube::api::ListParams::default();
    let version = pods.list_metadata(&now).await?.metadata.resource_version.unwrap_or_default();
    let mut events = pods.watch(&params, &version).await?.boxed();
    let version = sandboxes.list_metadata(&now).await?.metadata.resource_version.unwrap_or_default();
    let mut said = sandboxes.watch(&params, &version).await?.boxed();
    let post = PostParams::default();
    let (mut ours, mut asked, mut bare) = (Vec::new(), Vec::new(), Vec::new());
    let mut before = Usage::read(ROLE);
    // The first pair makes the fence and the quota: once for a namespace, so it does not count.
    for round in 0..=ROUNDS {
        let name = format!("bare-{round}");
        let started = Instant::now();
        pods.create(&post, &bare_pod(&name)?).await?;
        let took = seen(&mut events, &name, started).await?;
        bare.push(took);
        settled(&mut events, &name).await?;
        let name = format!("sandbox-{round}");
        let started = Instant::now();
        sandboxes.create(&post, &sandbox(&name)?).await?;
        let created = Instant::now();
        let took = seen(&mut events, &name, started).await?;
        asked.push(took);
        ours.push(took.saturating_sub(created.duration_since(started)));
        settled(&mut events, &name).await?;
        told(&mut said, &name).await?;
        if round == 0 {
            ours.clear();
            asked.clear();
            bare.clear();
            before = Usage::read(ROLE);
        }
    }
    Ok(Measured { ours, asked, bare, used: Usage::read(ROLE).since(&before) })
}

type Events<K> = futures::stream::BoxStream<'static, kube::Result<WatchEvent<K>>>;

/// Waits for an event of the object of this name that fits; `what` did not happen if none comes. Each kind has one watch, which
/// stays open: one for each wait would take the connection along that the next request is made on.
async fn until<K: ResourceExt>(
    events: &mut Events<K>,
    name: &str,
    what: &str,
    fits: impl Fn(&WatchEvent<K>) -> bool,
) -> Result<()> {
    let wait = async {
        while let Some(event) = events.try_next().await? {
            match &event {
                WatchEvent::Added(object) | WatchEvent::Modified(object)
                    if object.name_any() == name && fits(&event) =>
                {
                    return Ok(());
                }
                WatchEvent::Error(status) => bail!("the watch ended: {}", status.message),
                _ => {}
            }
        }
        bail!("the watch ended")
    };
    let waited = tokio::time::timeout(Duration::from_secs(30), wait).await;
    waited.with_context(|| format!("{name} {what} within 30 s"))?
}

/// How long it took until a pod was there.
async fn seen(pods: &mut Events<Pod>, name: &str, started: Instant) -> Result<Duration> {
    until(pods, name, "was not made", |event| matches!(event, WatchEvent::Added(_))).await?;
    Ok(started.elapsed())
}

/// Waits until the scheduler has had its say on a pod.
async fn settled(pods: &mut Events<Pod>, name: &str) -> Result<()> {
    until(pods, name, "was not looked at by the scheduler", |event| {
        let WatchEvent::Modified(pod) = event else { return false };
        let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref());
        conditions.unwrap_or_default().iter().any(|one| one.type_ == "PodScheduled")
    })
    .await
}

/// Waits until the controller has said of a sandbox that no node takes its pod.
async fn told(sandboxes: &mut Events<AgentSandbox>, name: &str) -> Result<()> {
    until(sandboxes, name, "was not said to be unschedulable", |event| {
        let WatchEvent::Modified(sandbox) = event else { return false };
        let reason = sandbox.status.as_ref().and_then(|status| status.reason.as_deref());
        reason == Some(Reason::Unschedulable.as_str())
    })
    .await
}

fn bare_pod(name: &str) -> Result<Pod> {
    Ok(serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {"nodeSelector": {"glovebox.dev/bench": "nowhere"}, "containers": [{"name": "c", "image": "glovebox.dev/none:1"}]},
    }))?)
}

fn sandbox(name: &str) -> Result<AgentSandbox> {
    Ok(serde_json::from_value(json!({
        "apiVersion": "glovebox.dev/v1alpha1", "kind": "AgentSandbox", "metadata": {"name": name},
        "spec": {"className": CLASS, "image": "glovebox.dev/none:1", "resources": {"cpu": "100m", "memory": "512Mi"}},
    }))?)
}

fn report(ours: &[Duration], asked: &[Duration], bare: &[Duration], used: Usage) -> Result<()> {
    let at = |sorted: &[Duration], percent: usize| sorted[(sorted.len() - 1) * percent / 100];
    let ms = |duration: Duration| duration.as_secs_f64() * 1000.0;
    let ratio = at(asked, 50).as_secs_f64() / at(bare, 50).as_secs_f64();
    println!("{:<28} {:>8} {:>8} {:>8} {:>6}", "from create to pod, ms", "p50", "p90", "max", "n");
    let mut rows: BTreeMap<&str, Value> = BTreeMap::new();
    for (name, sorted) in [("bare pod", bare), ("sandbox", ours), ("sandbox, from the request", asked)] {
        let (p50, p90, max) = (ms(at(sorted, 50)), ms(at(sorted, 90)), ms(at(sorted, 100)));
        println!("{name:<28} {p50:>8.2} {p90:>8.2} {max:>8.2} {:>6}", sorted.len());
        rows.insert(name, json!({"bench": "create", "row": name, "p50_ms": p50, "p90_ms": p90, "max_ms": max, "n": sorted.len()}));
    }
    let each = ms(used.cpu) / f64::from(u32::try_from(ours.len())?);
    println!("{:<28} {ratio:>8.2}   bound {RATIO}", "ratio of medians");
    println!(
        "{:<28} {each:>8.2}   resident {} MiB, all replicas",
        "controller CPU ms a sandbox",
        used.resident >> 20
    );
    for row in rows.values() {
        println!("{row}");
    }
    println!(
        "{}",
        json!({"bench": "create", "row": "ratio", "p50": ratio, "bound": RATIO, "cpu_ms_per_sandbox": each, "resident_bytes": used.resident})
    );
    if at(ours, 50) > MEDIAN {
        bail!("the median of {:.2} ms is over the bound of {} ms", ms(at(ours, 50)), MEDIAN.as_millis());
    }
    if ratio > RATIO {
        bail!("the ratio of {ratio:.2} is over its bound of {RATIO}");
    }
    Ok(())
}
