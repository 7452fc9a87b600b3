//! Trail and producers killed at random, where nothing may be done that is not recorded first: every act that was seen to be done is on
//! the record.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use anyhow::{Context as _, Result, ensure};
use futures::future;
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};
use kube::{
    Api, ResourceExt as _,
    api::{ListParams, PatchParams},
};
use serde_json::{Value, json};

use super::{of, query, with_flag};
use crate::{
    cli::Person,
    harness::{Outcome, Runtime, Sandbox, Test, random, replicas, wait},
    session::Toolbox,
};

const CONNECTS: &str = include_str!("connects.py");
const CALLS: (&str, usize) = (include_str!("calls.py"), 1);
/// Acts: connections, which the workload counts, and calls.
const CONNECTIONS: u64 = 9000;
const ANSWERS: usize = 1000;
/// Who is killed, in turn.
const KILLED: [&str; 7] = ["audit", "gateway", "session", "audit", "gateway", "session", "audit"];
const FLAG: &str = "--audit-fail-closed";

pub(super) async fn killed(test: Arc<Test>) -> Outcome {
    test.local()?;
    test.world().await?;
    let person = super::reader(&test).await?;
    set(&test, true).await?;
    let done = acts(&test, &person).await;
    // As it was for whoever comes next, also after a failure.
    set(&test, false).await?;
    done
}

/// Whether gateway and session refuse what can't be recorded.
async fn set(test: &Test, closed: bool) -> Result<()> {
    let deployments: Api<Deployment> = Api::namespaced(test.client.clone(), &test.controller()?.namespace);
    future::try_join_all(
        ["glovebox-gateway", "glovebox-session"].map(|name| renew(&deployments, name, closed)),
    )
    .await
    .map(drop)
}

async fn renew(deployments: &Api<Deployment>, name: &str, closed: bool) -> Result<()> {
    let found = deployments.get(name).await?;
    let template = found.spec.as_ref().map(|spec| &spec.template);
    let patch = with_flag(template, FLAG, closed.then(|| FLAG.to_owned()))?;
    deployments.patch(name, &PatchParams::default(), &patch).await?;
    let renewed = |deployment: Option<&Deployment>| {
        deployment.is_some_and(|deployment| {
            let (Some(spec), Some(status)) = (&deployment.spec, &deployment.status) else { return false };
            let counted = [status.updated_replicas, status.replicas, status.ready_replicas];
            status.observed_generation == deployment.metadata.generation
                && counted.iter().all(|count| *count == spec.replicas)
        })
    };
    let what = format!("{name} is renewed");
    wait::until_within(deployments.clone(), name, &what, 3 * wait::PATIENCE, renewed).await.map(|_| ())
}

async fn acts(test: &Arc<Test>, person: &Person) -> Outcome {
    let rule = json!({"name": "opaque", "hosts": ["allowed.example"], "protocol": "TCP"});
    let spec = json!({"command": ["python3", "-c", CONNECTS], "egress": {"allow": [rule]}, "ttl": "15m"});
    let connects = test.running(Runtime::Runc, "connects", &spec).await?;
    let calls = test.running(Runtime::Runc, "calls", &json!({"ttl": "15m"})).await?;
    let facts = json!({"sandbox": "calls", "calls": ANSWERS});
    let toolbox = Toolbox::open(test).await?.with(&facts);
    let (said, killed) = future::join(toolbox.carry_out(CALLS, 240), kill(test)).await;
    let kills = killed?;
    let said = said?;
    let opened = connects.logged("connections ").await?;
    let opened: u64 = opened.trim().rsplit(' ').next().unwrap_or_default().parse().context(opened.clone())?;
    let ids: BTreeSet<&str> =
        said.lines().find_map(|line| line.strip_prefix("ids ")).context("no ids")?.split(' ').collect();
    println!("figure: {opened} connections and {} calls, {kills} processes killed", ids.len());
    ensure!(opened >= CONNECTIONS && ids.len() == ANSWERS, "{opened} connections, {} calls", ids.len());
    let recorded = of_sandbox(person, &connects, "EgressOpened").await?.len() as u64;
    ensure!(recorded >= opened, "{opened} connections were opened, and {recorded} are on the record");
    let begun = of_sandbox(person, &calls, "CallStarted").await?;
    let begun: BTreeSet<&str> = begun.iter().filter_map(|call| call["process"]["uid"].as_str()).collect();
    let missing: Vec<_> = ids.difference(&begun).collect();
    ensure!(missing.is_empty(), "calls that were answered and are not on the record: {missing:?}");
    person.glovebox(&["audit", "verify"]).await?.is(0)
}

async fn of_sandbox(person: &Person, sandbox: &Sandbox, act: &str) -> Result<Vec<Value>> {
    let all = query(person, &["--uid", &sandbox.uid, "--act", act]).await?;
    Ok(of(&all, act).into_iter().cloned().collect())
}

/// Kills each in turn, at times that nobody chose; how many processes that were.
async fn kill(test: &Test) -> Result<usize> {
    let pods: Api<Pod> = Api::namespaced(test.client.clone(), &test.controller()?.namespace);
    let mut killed = 0;
    for role in KILLED {
        let pause = u64::from_str_radix(random()?.get(..4).unwrap_or("8"), 16)? % 4000;
        tokio::time::sleep(Duration::from_millis(1000 + pause)).await;
        let labels = format!("app.kubernetes.io/name=glovebox,app.kubernetes.io/component={role}");
        let mut found = pods.list(&ListParams::default().labels(&labels)).await?.items;
        // Another one each time, where there are several.
        found.sort_by_key(|pod| (restarts(pod), pod.name_any()));
        let pod = found.first().context(role)?;
        killed += replicas::kill(test.local()?, pod).await?;
    }
    Ok(killed)
}

fn restarts(pod: &Pod) -> i32 {
    let all = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
    all.into_iter().flatten().map(|container| container.restart_count).sum()
}
