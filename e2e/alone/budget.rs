//! What a sandbox costs the API server, counted from its audit log.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anyhow::{bail, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use jiff::SignedDuration;
use kube::{Api, api::ListParams};
use serde_json::{Value, json};

use glovebox::api::{AgentSandbox, Phase, SandboxClass};

use crate::harness::{
    Cases, Outcome, Runtime, Sandbox, Test,
    audit::{Audit, Entry},
    wait,
};

/// The most that one sandbox may cost, from apply to gone.
const BUDGET: [(&str, usize); 5] = [
    ("create pods", 1),
    ("patch agentsandboxes/status", 2),
    ("delete pods", 1),
    ("delete agentsandboxes", 1),
    ("events", 3),
];
/// A start that takes as long is told in the status, which is a write more; a machine that slow measures nothing.
const SLOW_START: SignedDuration = SignedDuration::from_secs(9);
/// How many idle sandboxes there are, and how long they are watched.
const IDLE: usize = 100;
/// How many start at a time: what a crowd at once does to a node is not what is measured here.
const AT_ONCE: usize = 20;
const WATCHED: Duration = Duration::from_secs(60);

pub(super) fn cases(cases: &mut Cases) {
    cases.add("alone::budget::of_a_sandbox_that_ends_by_itself", 250, by_itself);
    cases.add("alone::budget::of_a_sandbox_that_expires", 250, expires);
    cases.add("alone::budget::a_hundred_idle_sandboxes_cause_no_write_in_a_minute", 1100, hundred);
}

async fn by_itself(test: Arc<Test>) -> Outcome {
    measure(&test, &json!({"command": ["sh", "-c", "exit 0"], "ttlAfterFinished": "1s"}), Phase::Succeeded)
        .await
}

async fn expires(test: Arc<Test>) -> Outcome {
    measure(&test, &json!({"ttl": "14s", "ttlAfterFinished": "1s"}), Phase::Expired).await
}

/// Lives one sandbox's life after another until one was not slowed down by the machine.
async fn measure(test: &Test, spec: &Value, end: Phase) -> Outcome {
    // The first in a namespace brings fence and quota with it, which stay for all that follow.
    let first = test.running(Runtime::Runc, "first", &json!({})).await?;
    first.delete().await?;
    for attempt in 0..3 {
        let audit = Audit::from_now(test)?;
        let sandbox = test.sandbox(Runtime::Runc, &format!("counted-{attempt}"), spec).await?;
        let status = sandbox.ended().await?;
        sandbox.gone().await?;
        ensure!(status.phase == Some(end), "it should end as {end:?}: {status:?}");
        let quick =
            status.ready_at.as_ref().is_none_or(|at| at.0.duration_since(sandbox.created) < SLOW_START);
        if quick {
            return within_budget(test, &audit, &sandbox).await;
        }
    }
    bail!("no sandbox of three started within {SLOW_START:#}: this machine is too slow to measure")
}

async fn within_budget(test: &Test, audit: &Audit, sandbox: &Sandbox) -> Outcome {
    let user = &test.controller()?.user;
    let entries = audit.entries(test).await?;
    let ours: Vec<&Entry> =
        entries.iter().filter(|entry| entry.user() == user && concerns(entry, test)).collect();
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for entry in &ours {
        let resource = entry.resource();
        let kind = if resource == "events" { resource } else { format!("{} {resource}", entry.verb) };
        *counts.entry(kind).or_default() += 1;
    }
    let shown = || ours.iter().map(|entry| entry.shown()).collect::<Vec<_>>().join("\n");
    for (kind, count) in &counts {
        let most = BUDGET.iter().find(|(known, _)| known == kind).map_or(0, |(_, most)| *most);
        ensure!(
            *count <= most,
            "{count} times {kind:?}, at most {most} allowed for {}:\n{}",
            sandbox.name,
            shown()
        );
    }
    ensure!(
        counts.get("create pods") == Some(&1),
        "the pod's creation is not in the log, so nothing was counted:\n{}",
        shown()
    );
    Ok(())
}

/// Whatever is in the test's namespace, or in none: a class's own status is not a sandbox's cost.
fn concerns(entry: &Entry, test: &Test) -> bool {
    let global = entry.namespace().is_empty() && !entry.resource().starts_with("sandboxclasses");
    entry.namespace() == test.namespace || global
}

async fn hundred(test: Arc<Test>) -> Outcome {
    let user = test.controller()?.user.clone();
    let class = test.class(Runtime::Runc, "hundred", &json!({"resources": {"default": {"cpu": "10m", "memory": "64Mi"}}, "workspace": {"defaultSize": "1Mi"}})).await?;
    let start = |number: usize| {
        let (test, class) = (&test, &class);
        async move {
            let spec = json!({"className": class, "ttl": "1h"});
            let sandbox = test.sandbox(Runtime::Runc, &format!("idle-{number}"), &spec).await?;
            sandbox.running().await.map(|_| ())
        }
    };
    stream::iter(0..IDLE).map(start).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
    come_to_rest(&test, &class).await?;
    let audit = Audit::from_now(&test)?;
    // This is what is measured: a minute in which nothing may happen.
    tokio::time::sleep(WATCHED).await;
    let entries = audit.entries(&test).await?;
    // Whoever writes because of them, but for the kubelet, which corrects the status of its pods at its own pace.
    let foreign =
        |entry: &&Entry| entry.namespace() == test.namespace && !entry.user().starts_with("system:node:");
    // The Service of a host outlasts the last sandbox that needed it by ten minutes: one that goes now was an earlier test's.
    let anothers = |entry: &&Entry| entry.verb == "delete" && entry.resource() == "services";
    let writes = entries.iter().filter(|entry| (entry.user() == user && !anothers(entry)) || foreign(entry));
    let writes: Vec<String> = writes.map(Entry::shown).collect();
    ensure!(writes.is_empty(), "{} writes in a minute of idleness:\n{}", writes.len(), writes.join("\n"));
    Ok(())
}

/// Waits until nothing is left to say: the class has counted its sandboxes, and no class's canary is under way.
async fn come_to_rest(test: &Test, class: &str) -> Outcome {
    let counted = |class: Option<&SandboxClass>| {
        let status = class.and_then(|class| class.status.as_ref());
        status.is_some_and(|status| status.sandboxes == i32::try_from(IDLE).ok() && status.probe.is_some())
    };
    wait::until(Api::all(test.client.clone()), class, "the class has counted and tried", counted).await?;
    let canaries: Api<AgentSandbox> = Api::namespaced(test.client.clone(), &test.controller()?.namespace);
    wait::poll("the canaries go", async || {
        Ok(canaries.list(&ListParams::default()).await?.items.is_empty().then_some(()))
    })
    .await
}
