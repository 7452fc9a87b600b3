//! The fence where it fails: a network that does not enforce, a gateway that is away, and what runs meanwhile. No workload
//! runs one instruction behind a fence that is not proven.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::api::{core::v1::Pod, networking::v1::NetworkPolicy};
use kube::{
    Api,
    api::{LogParams, PostParams},
};
use serde_json::{Value, json};

use glovebox::api::{ConditionType, Phase, Reason};

use crate::{
    conformance::{Ground, LEAK, LOAD, table},
    harness::{
        Cases, Outcome, Runtime, Sandbox, Test, pods,
        sandbox::{says, told},
        wait,
    },
};

/// Where a workload goes that must never run; nobody else does.
const PLACE: (&str, &str) = ("203.0.113.8", "8443");
/// Prints and connects: the first thing it does.
const EAGER: &str = "print('instruction', flush=True)
import socket, time
for _ in range(100):
    try:
        socket.create_connection(('203.0.113.8', 8443), 3).close()
        print('connected', flush=True)
        break
    except OSError:
        time.sleep(0.2)";
/// How long an open fence may go unnoticed.
const NOTICED: Duration = Duration::from_secs(15);
const SANDBOXES: usize = 50;
/// So many at a time, each with an ordinary pod beside it for every batch.
const BATCH: usize = 5;

pub(super) fn cases(cases: &mut Cases) {
    // What notices and what acts is the same whatever kernel is below: each is tried with one of them.
    let not_enforced_under_gvisor = |test| not_enforced(test, Runtime::Gvisor);
    cases.add("alone::fence::nothing_runs_where_nothing_is_enforced", 300, not_enforced_under_gvisor);
    let falls_under_gvisor = |test| falls(test, Runtime::Gvisor);
    let reported_under_runc = |test| reported(test, Runtime::Runc);
    cases.add("alone::fence::a_fence_that_falls_ends_the_sandbox", 300, falls_under_gvisor);
    cases.add(
        "alone::fence::a_fence_that_falls_is_reported_where_the_class_says_so",
        300,
        reported_under_runc,
    );
    cases.add("alone::fence::nothing_runs_without_the_gateway", 300, no_gateway);
    cases.add("alone::fence::nothing_leaks_from_the_first_instruction_on", 400, leaks);
    cases.add("alone::fence::a_gateway_killed_under_load_never_opens", 450, killed);
}

/// A class of this runtime on one node alone, and the node.
pub(crate) async fn pinned(test: &Test, runtime: Runtime) -> Result<(String, String)> {
    let nodes = test.cluster.node_names().await?;
    let node = nodes.into_iter().last().context("no node")?;
    let change = json!({"scheduling": {"nodeSelector": {"kubernetes.io/hostname": node}}});
    Ok((test.class(runtime, "pinned", &change).await?, node))
}

/// The node's packets pass as if no NetworkPolicy were: the enforcer is stopped and its rules are gone. Gives the moment before
/// they went.
async fn open(test: &Test, node: &str) -> Result<Timestamp> {
    let local = test.local()?;
    local.part(&["stop", "kube-router", "--node", node]).await?;
    let since = Timestamp::now();
    for chain in ["KUBE-ROUTER-FORWARD", "KUBE-ROUTER-OUTPUT", "KUBE-ROUTER-INPUT"] {
        let flush = ["iptables", "--wait", "10", "--flush", chain];
        local.on_node(node, &flush).await.with_context(|| format!("{chain} on {node}"))?;
    }
    Ok(since)
}

/// Does something on an open node, and closes the node again whatever came of it.
pub(crate) async fn while_open<T>(
    test: &Test,
    node: &str,
    act: impl AsyncFnOnce(Timestamp) -> Result<T>,
) -> Result<T> {
    let done = match open(test, node).await {
        Ok(since) => act(since).await,
        Err(error) => Err(error),
    };
    let closed = test.local()?.part(&["start", "kube-router", "--node", node]).await;
    closed.with_context(|| format!("the enforcer of {node} does not start again; later tests will fail"))?;
    done
}

/// What of the eager workload's instructions was seen. A container that never started has no log.
async fn ran(test: &Test, sandbox: &Sandbox) -> Result<Vec<String>> {
    let world = test.world().await?;
    let log = sandbox.log().await.unwrap_or_default();
    let mut seen: Vec<String> = log.lines().map(ToOwned::to_owned).collect();
    let (host, port) = PLACE;
    let arrived = world.arrivals_at(host);
    seen.extend(arrived.into_iter().filter(|arrival| arrival.contains(&format!("{host}:{port} "))));
    Ok(seen)
}

fn eager(class: &str) -> Value {
    let rule = json!({"name": "one", "cidrs": ["203.0.113.8/32"], "ports": [8443]});
    json!({"className": class, "command": ["python3", "-u", "-c", EAGER], "egress": {"allow": [rule]}})
}

/// The workload by itself would run, print and arrive: once the fence holds, with a rule, it does.
async fn twin(test: &Test, runtime: Runtime, class: &str, row: u16) -> Outcome {
    let sandbox = test.sandbox(runtime, "twin", &eager(class)).await?;
    let status = sandbox.ended_as(Phase::Succeeded, "Completed").await;
    let (host, port) = PLACE;
    let ip = sandbox.status().await?.pod_ip.context("no address")?;
    let (world, place) = (test.world().await?, format!("tcp {host}:{port}"));
    let arrived =
        wait::poll(&format!("the workload arrives at {place} behind a fence that holds"), async || {
            Ok(world.arrivals(&ip).contains(&place).then_some(()))
        })
        .await;
    table::twin(row, status.is_ok() && arrived.is_ok());
    status?;
    arrived?;
    let log = sandbox.log().await?;
    ensure!(log.contains("instruction"), "the twin ran and printed nothing: {log:?}");
    Ok(())
}

async fn not_enforced(test: Arc<Test>, runtime: Runtime) -> Outcome {
    test.world().await?;
    let (class, node) = pinned(&test, runtime).await?;
    let mut spec = eager(&class);
    spec["egress"] = json!({});
    // Each runtime has its turn at the place.
    let before: BTreeSet<String> = test.world().await?.arrivals_at(PLACE.0).into_iter().collect();
    let (status, seen) = while_open(&test, &node, async |_| {
        let sandbox = test.sandbox(runtime, "unfenced", &spec).await?;
        let status = sandbox.ended().await?;
        Ok((status, ran(&test, &sandbox).await?))
    })
    .await?;
    let seen: Vec<&String> = seen.iter().filter(|line| !before.contains(*line)).collect();
    let held = status.reason.as_deref() == Some(Reason::FenceOpen.as_str()) && seen.is_empty();
    table::attack(64, held);
    ensure!(seen.is_empty(), "the workload ran behind no fence: {seen:?}; {}", told(&status));
    ensure!(status.reason.as_deref() == Some("FenceOpen"), "it should end as FenceOpen: {}", told(&status));
    ensure!(status.phase == Some(Phase::Failed), "{}", told(&status));
    ensure!(says(&status, ConditionType::FenceVerified, "False", "FenceOpen"), "{}", told(&status));
    twin(&test, runtime, &class, 64).await
}

async fn falls(test: Arc<Test>, runtime: Runtime) -> Outcome {
    let (class, node) = pinned(&test, runtime).await?;
    let sandbox = test.running(runtime, "watched", &json!({"className": class})).await?;
    let status = sandbox.status().await?;
    ensure!(says(&status, ConditionType::FenceVerified, "True", "FenceHolds"), "{}", told(&status));
    let (took, status) = while_open(&test, &node, async |since| {
        let status = sandbox.ended().await?;
        Ok((Timestamp::now().duration_since(since).as_secs_f64(), status))
    })
    .await?;
    println!("figure: a fence that fell under {} was noticed after {took:.1} s", runtime.name());
    let noticed = took <= NOTICED.as_secs_f64() && status.reason.as_deref() == Some("FenceOpen");
    table::attack(64, noticed);
    ensure!(status.reason.as_deref() == Some("FenceOpen"), "it should end as FenceOpen: {}", told(&status));
    ensure!(noticed, "it took {took:.1} s, more than {NOTICED:?}: {}", told(&status));
    ensure!(says(&status, ConditionType::FenceVerified, "False", "FenceOpen"), "{}", told(&status));
    sandbox.pod_gone().await?;
    // The node is as it was.
    test.running(runtime, "after", &json!({"className": class})).await?.delete().await
}

async fn reported(test: Arc<Test>, runtime: Runtime) -> Outcome {
    let (_, node) = pinned(&test, runtime).await?;
    let change = json!({
        "scheduling": {"nodeSelector": {"kubernetes.io/hostname": node}},
        "egress": {"onFenceOpen": "Report"},
    });
    let class = test.class(runtime, "reports", &change).await?;
    let sandbox = test.running(runtime, "goes-on", &json!({"className": class})).await?;
    let fence = |status: &glovebox::api::AgentSandboxStatus, holds: bool| {
        let (state, reason) = if holds { ("True", "FenceHolds") } else { ("False", "FenceOpen") };
        let (ready, why) = if holds { ("True", "Running") } else { ("False", "FenceOpen") };
        says(status, ConditionType::FenceVerified, state, reason)
            && says(status, ConditionType::Ready, ready, why)
    };
    let ready = async |what: &str| sandbox.until(what, |status| fence(status, true)).await;
    ready("is ready behind a fence that holds").await?;
    let took = while_open(&test, &node, async |since| {
        sandbox.until("says that its fence is open", |status| fence(status, false)).await?;
        Ok(Timestamp::now().duration_since(since).as_secs_f64())
    })
    .await?;
    println!("figure: a fence that fell under {} was reported after {took:.1} s", runtime.name());
    let status = ready("says that its fence holds again").await?;
    table::attack(64, took <= NOTICED.as_secs_f64());
    table::twin(64, status.phase == Some(Phase::Running));
    ensure!(took <= NOTICED.as_secs_f64(), "it took {took:.1} s, more than {NOTICED:?}: {}", told(&status));
    ensure!(status.phase == Some(Phase::Running), "{}", told(&status));
    sandbox.delete().await
}

async fn no_gateway(test: Arc<Test>) -> Outcome {
    test.world().await?;
    let gateway = test.gateway().await?;
    let replicas = gateway.replicas.wanted().await?;
    let class = Runtime::Runc.class();
    let mut spec = eager(class);
    spec["egress"] = json!({});
    let before: BTreeSet<String> = test.world().await?.arrivals_at(PLACE.0).into_iter().collect();
    let away = async {
        gateway.replicas.scale(0).await?;
        let sandbox = test.sandbox(Runtime::Runc, "alone", &spec).await?;
        let unreachable = |status: &glovebox::api::AgentSandboxStatus| {
            says(status, ConditionType::FenceVerified, "False", "GatewayUnreachable")
        };
        let status = sandbox.until("says that the gateway is away", unreachable).await?;
        Ok::<_, anyhow::Error>((status, ran(&test, &sandbox).await?))
    };
    let away = away.await;
    gateway
        .replicas
        .scale(replicas)
        .await
        .context("the gateway does not come back; later tests will fail")?;
    let (status, seen) = away?;
    let seen: Vec<&String> = seen.iter().filter(|line| !before.contains(*line)).collect();
    table::attack(73, seen.is_empty());
    ensure!(seen.is_empty(), "the workload ran without a gateway: {seen:?}; {}", told(&status));
    ensure!(status.phase != Some(Phase::Running), "{}", told(&status));
    twin(&test, Runtime::Runc, class, 73).await
}

/// What a workload says of its tries: how many, and how many got through.
fn counted(log: &str) -> Result<(usize, usize, String)> {
    let number = |word: &str| {
        let line = log
            .lines()
            .find_map(|line| line.strip_prefix(word))
            .with_context(|| format!("no {word:?}: {log}"))?;
        Ok::<_, anyhow::Error>((
            line.split(' ').next().unwrap_or_default().parse::<usize>()?,
            line.to_owned(),
        ))
    };
    let ((tries, _), (leaks, line)) = (number("tries ")?, number("leaks ")?);
    Ok((tries, leaks, line))
}

async fn leaks(test: Arc<Test>) -> Outcome {
    let world = test.world().await?;
    let small = json!({"resources": {"default": {"cpu": "60m", "memory": "64Mi"}}, "workspace": {"defaultSize": "1Mi"}});
    let class = test.class(Runtime::Runc, "leaks", &small).await?;
    let elsewhere = test.another_namespace("restricted").await?;
    let policy: NetworkPolicy = serde_json::from_value(json!({
        "metadata": {"name": "deny-all"}, "spec": {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]},
    }))?;
    let policies: Api<NetworkPolicy> = Api::namespaced(test.client.clone(), &elsewhere);
    policies.create(&PostParams::default(), &policy).await?;
    let before: BTreeSet<String> = world.arrivals_at("203.0.113.8").into_iter().collect();
    let command = json!(["python3", "-u", "-c", LEAK, "GATE:9099", "203.0.113.8:443"]);
    let (mut all, mut ordinary) = (0, Vec::new());
    for batch in 0..SANDBOXES / BATCH {
        let numbers = batch * BATCH..(batch + 1) * BATCH;
        let spec = json!({"className": class, "command": command});
        let (test, spec) = (&test, &spec);
        let made = stream::iter(numbers)
            .map(async |number| test.sandbox(Runtime::Runc, &format!("s{number}"), spec).await)
            .buffered(BATCH);
        let made = async { made.try_collect::<Vec<Sandbox>>().await };
        let (made, beside) = futures::join!(made, ordinary_pod(test, &elsewhere, batch));
        ordinary.push(beside?);
        for sandbox in made? {
            let (tries, got_out, line) = fenced(&sandbox).await?;
            table::attack(62, got_out == 0);
            ensure!(got_out == 0, "sandbox {} leaked: {line}", sandbox.name);
            ensure!(tries > 20, "sandbox {} made only {tries} tries", sandbox.name);
            all += tries;
            let ip = sandbox.status().await?.pod_ip.context("no address")?;
            let arrived: Vec<String> = world.arrivals_at("203.0.113.8").into_iter().collect();
            let strange: Vec<&String> = arrived
                .iter()
                .filter(|line| !before.contains(*line) && line.contains(&format!(" from {ip}:")))
                .collect();
            ensure!(strange.is_empty(), "arrived from sandbox {} at {ip}: {strange:?}", sandbox.name);
            sandbox.delete().await?;
        }
    }
    println!("figure: {SANDBOXES} sandboxes leaked 0 of {all} connections from their first instruction on");
    println!(
        "figure: ordinary pods under the same deny-all policy leaked (pod by pod): {}",
        ordinary.join("; ")
    );
    Ok(())
}

/// What a fenced workload says, once it ended well.
async fn fenced(sandbox: &Sandbox) -> Result<(usize, usize, String)> {
    sandbox.ended_as(Phase::Succeeded, "Completed").await?;
    counted(&sandbox.log().await?)
}

/// An ordinary pod with the same loop; how many of its connections got through, in words.
async fn ordinary_pod(test: &Test, namespace: &str, batch: usize) -> Result<String> {
    let name = format!("ordinary{batch}");
    let container = json!({"containers": [{
        "name": "main", "image": test.cluster.image, "imagePullPolicy": "IfNotPresent",
        "command": ["python3", "-u", "-c", LEAK, "203.0.113.8:443"],
        "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
    }]});
    test.ordinary_pod(namespace, &name, LEAK, &container).await?;
    let api: Api<Pod> = Api::namespaced(test.client.clone(), namespace);
    let over = |pod: Option<&Pod>| matches!(pods::phase(pod), Some("Succeeded" | "Failed"));
    wait::until(api.clone(), &name, &format!("pod {name} ends"), over).await?;
    let log = api.logs(&name, &LogParams::default()).await?;
    let (tries, leaks, line) = counted(&log)?;
    Ok(format!("{leaks} of {tries} ({line})"))
}

async fn killed(test: Arc<Test>) -> Outcome {
    let ground = Ground::open(&test).await?;
    let replicas = ground.gateway.replicas.wanted().await?;
    ensure!(replicas >= 2, "the gateway has {replicas} replicas; the chart's default is 2");
    let mut spec = ground.rules();
    spec["command"] = json!(LOAD.command(&[&json!({"tunnels": 16, "seconds": 25}).to_string()]));
    spec["resources"] = json!({"cpu": "400m", "memory": "256Mi"});
    let sandbox = test.sandbox(Runtime::Runc, "busy", &spec).await?;
    sandbox.running().await?;
    sandbox.logged("steady").await?;
    let victim = ground.gateway.kill_one(&test).await?;
    let ended = sandbox.ended_as(Phase::Succeeded, "Completed").await;
    ground.gateway.replicas.work().await.context("the killed replica does not come back")?;
    ended?;
    let log = sandbox.log().await?;
    let told: Value =
        serde_json::from_str(log.lines().last().unwrap_or_default()).with_context(|| log.clone())?;
    println!("figure: {victim} killed under load: {told}");
    let number = |field: &str| told[field].as_f64().with_context(|| format!("no {field}: {told}"));
    let evil = ground.world.arrivals_at("203.0.113.9");
    let held = told["breaches"] == json!([]) && evil.is_empty();
    table::attack(73, held);
    ensure!(held, "something opened while {victim} was dead: {told}, arrived: {evil:?}");
    let works =
        number("longest_gap")? < 5.0 && number("since_last_success")? < 5.0 && number("failing_for")? < 15.0;
    table::twin(73, works);
    ensure!(works, "new connections did not work again in time after {victim} was killed: {told}");
    ensure!(
        number("broken")? > 0.0,
        "no tunnel went through {victim}, so that nothing was killed under load: {told}"
    );
    ensure!(number("alive")? > 0.0, "the tunnels of the other replica did not live: {told}");
    Ok(())
}
