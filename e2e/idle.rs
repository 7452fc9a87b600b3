//! What nobody uses ends: calls and bytes of egress keep a sandbox, and nothing else does.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use glovebox::api::{AgentSandboxStatus, Phase};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, api::ListParams};
use serde_json::json;

use crate::{
    harness::{Cases, Outcome, Runtime, Sandbox, Test},
    session::Toolbox,
};

/// How long they may be unused.
const IDLE: i64 = 12;
/// The promise: within so long after its moment a sandbox is told to go. Its status has whole seconds.
const WITHIN: i64 = 5 + 1;
/// What a replica does not know of when it is young: what its predecessor may still have seen.
const OVERLAP: i64 = 60;

/// Calls for longer than it may be unused, and says when the last one was.
const CALLS: &str = "
last = time.time()
began = last
while last < began + 18:
    run(ARGS['sandbox'], 'true')
    last = time.time()
    time.sleep(2)
print('last', last)
holds('calls went on', True)
done()";

/// The same with bytes of egress.
const EGRESS: &str = r#"i=0; while [ $i -lt 9 ]; do curl -sk https://allowed.example/ >/dev/null && echo "last $(date +%s)"; sleep 2; i=$((i+1)); done; sleep 600"#;

pub(crate) fn cases(cases: &mut Cases) {
    cases.each_runtime("idle::what_nobody_uses_ends", 900, ends);
}

async fn ends(test: Arc<Test>, runtime: Runtime) -> Outcome {
    let toolbox = Toolbox::open(&test).await?;
    test.world().await?;
    old_enough(&test).await?;
    let allow = json!([{"name": "allowed", "hosts": ["allowed.example"]}]);
    let spec = |command: &[&str]| {
        json!({
            "command": command, "idleTimeout": format!("{IDLE}s"), "ttl": "10m", "egress": {"allow": allow},
            "resources": {"cpu": "200m", "memory": "128Mi"},
        })
    };
    let unused = test.sandbox(runtime, "unused", &spec(&["sleep", "600"])).await?;
    let called = test.sandbox(runtime, "called", &spec(&[])).await?;
    let fetching = test.sandbox(runtime, "fetching", &spec(&["sh", "-c", EGRESS])).await?;
    called.running().await?;
    let toolbox = toolbox.with(&json!({"sandbox": "called"}));
    let calls = toolbox.carry_out((CALLS, 1), 120);
    let (calls, unused, fetched) = tokio::join!(calls, over(&unused), over(&fetching));
    let (unused, fetched) = (unused?, fetched?);
    let ready = unused.ready_at.clone().context("it ran")?.0;
    moment("unused", ready, &unused)?;
    moment("fetching", last(&fetching.log().await?)?, &fetched)?;
    moment("called", last(&calls?)?, &over(&called).await?)?;
    let message = unused.conditions.iter().find(|one| one.type_ == "Finished").map(|one| &one.message);
    ensure!(message.is_some_and(|message| message.contains("spec.idleTimeout")), "{message:?}");
    Ok(())
}

/// The replicas have to be there for longer than what they do not know of, or nothing is idle yet.
async fn old_enough(test: &Test) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(test.client.clone(), &test.controller()?.namespace);
    let selector = "app.kubernetes.io/name=glovebox,app.kubernetes.io/component in (gateway, session)";
    let pods = pods.list(&ListParams::default().labels(selector)).await?;
    let youngest =
        pods.items.iter().filter_map(|pod| pod.status.as_ref()?.start_time.as_ref()).map(|time| time.0);
    let youngest = youngest.max().context("no replica runs")?;
    let wait = (youngest + SignedDuration::from_secs(OVERLAP)).duration_since(Timestamp::now());
    if let Ok(wait) = std::time::Duration::try_from(wait) {
        tokio::time::sleep(wait).await;
    }
    Ok(())
}

async fn over(sandbox: &Sandbox) -> Result<AgentSandboxStatus> {
    sandbox.ended_as(Phase::Expired, "IdleTimeout").await
}

/// The last use, as it was printed.
fn last(printed: &str) -> Result<Timestamp> {
    let last =
        printed.lines().rev().find_map(|line| line.strip_prefix("last ")).context("no use was printed")?;
    let seconds: f64 = last.trim().parse()?;
    Ok(Timestamp::UNIX_EPOCH + SignedDuration::try_from_secs_f64(seconds)?)
}

fn moment(name: &str, used: Timestamp, status: &AgentSandboxStatus) -> Result<()> {
    let finished = status.finished_at.clone().context("no end")?.0;
    let after = finished.duration_since(used).as_secs();
    println!("figure: {name} ended {after} s after its last use, where {IDLE} s are allowed");
    // A call has ended for the session a moment before its client knows, and the status leaves a fraction of a second out.
    ensure!((IDLE - 2..=IDLE + WITHIN).contains(&after), "{name} ended {after} s after its last use");
    Ok(())
}
