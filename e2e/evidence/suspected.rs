//! A prober is stopped at its third act, on the record, and an installer is left alone.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use glovebox::api::{AgentSandboxStatus, ConditionType, Phase, Reason, SuspicionAction};
use k8s_openapi::api::core::v1::Event;
use kube::{Api, api::ListParams};
use serde_json::json;

use super::{of, query, reader};
use crate::harness::{
    Outcome, Runtime, Sandbox, Test,
    sandbox::{says, told},
    wait,
};

const PROBER: &str = include_str!("prober.py");
const INSTALLER: &str = include_str!("installer.py");

/// A sandbox that does what a script says, under a class that does so with those who are suspected.
async fn doing(test: &Test, runtime: Runtime, script: &str, detection: serde_json::Value) -> Result<Sandbox> {
    test.world().await?;
    let class = test.class(runtime, "detects", &json!({"detection": detection})).await?;
    let spec = json!({
        "className": class,
        "command": ["python3", "-u", "-c", script],
        "egress": {"allow": [{"name": "index", "hosts": ["allowed.example"]}]},
    });
    test.running(runtime, "watched", &spec).await
}

fn is_suspected(status: &AgentSandboxStatus, action: SuspicionAction) -> bool {
    status.suspicion.as_ref().is_some_and(|suspicion| suspicion.action == Some(action))
        && says(status, ConditionType::Suspected, "True", "SevereActs")
}

pub(super) async fn prober(test: Arc<Test>, runtime: Runtime) -> Outcome {
    let person = reader(&test).await?;
    let sandbox = doing(&test, runtime, PROBER, json!({"action": "DenyAll"})).await?;
    sandbox.logged("doors").await?;
    let log = sandbox.log().await?;
    println!("figure: {}", log.lines().rfind(|line| line.starts_with("after 3")).unwrap_or("nothing"));
    for part in ["before reached", "after 1 reached", "after 2 reached", "after 3 Suspected", "doors 0 0"] {
        ensure!(log.contains(part), "{part:?} is not in\n{log}");
    }
    let status =
        sandbox.until("is suspected", |status| is_suspected(status, SuspicionAction::DenyAll)).await?;
    let suspicion = status.suspicion.clone().context("no suspicion")?;
    ensure!(suspicion.severe_acts == 3 && suspicion.since.is_some(), "{suspicion:?}");
    let signs = suspicion.signs.join("; ");
    for part in ["MetadataAddress 169.254.169.254", "MetadataName metadata.google.internal", "HeadControl"] {
        ensure!(signs.contains(part), "{part:?} is not in {signs:?}");
    }
    ensure!(status.phase == Some(Phase::Running), "{}", told(&status));
    // It can still be looked into.
    ensure!(sandbox.sh("echo looked").await?.contains("looked"), "it takes no calls");
    let events: Api<Event> = test.api();
    wait::poll("the Event is there", async || {
        let all = events.list(&ListParams::default()).await?;
        let found = all.items.into_iter().any(|event| {
            event.action.as_deref() == Some("Suspected") && event.type_.as_deref() == Some("Warning")
        });
        Ok(found.then_some(()))
    })
    .await?;
    wait::poll("it is on the record", async || {
        let all = query(&person, &["watched"]).await?;
        let refused = of(&all, "EgressRefused").iter().any(|one| one["status_detail"] == "Suspected");
        let suspected = of(&all, "SandboxSuspected");
        ensure!(suspected.len() < 2, "it is there twice: {suspected:?}");
        let right = suspected.iter().any(|one| {
            one["status_detail"] == "DenyAll" && one["message"].to_string().contains("169.254.169.254")
        });
        Ok((right && refused).then_some(()))
    })
    .await
}

pub(super) async fn terminated(test: Arc<Test>) -> Outcome {
    let sandbox = doing(&test, Runtime::Runc, PROBER, json!({"action": "Terminate"})).await?;
    let status = sandbox.ended().await?;
    let right =
        status.phase == Some(Phase::Failed) && status.reason.as_deref() == Some(Reason::Suspected.as_str());
    ensure!(right && is_suspected(&status, SuspicionAction::Terminate), "{}", told(&status));
    sandbox.pod_gone().await
}

pub(super) async fn throttled(test: Arc<Test>) -> Outcome {
    let sandbox = doing(&test, Runtime::Runc, PROBER, json!({"action": "Throttle", "severeActs": 2})).await?;
    sandbox.until("is suspected", |status| is_suspected(status, SuspicionAction::Throttle)).await?;
    let log = sandbox.logged("after 3").await?;
    ensure!(log.contains("after 3 TooManyNew"), "it is not slowed down:\n{log}");
    Ok(())
}

pub(super) async fn installer(test: Arc<Test>) -> Outcome {
    let sandbox =
        doing(&test, Runtime::Gvisor, &format!("{INSTALLER}\nimport time; time.sleep(1000)"), json!({}))
            .await?;
    sandbox.logged("installed").await?;
    // What it did was seen, and is not enough.
    let seen = |status: &AgentSandboxStatus| {
        status.suspicion.as_ref().is_some_and(|suspicion| suspicion.severe_acts == 2 && suspicion.score >= 30)
    };
    let status = sandbox.until("is seen", seen).await?;
    let suspicion = status.suspicion.clone().context("no suspicion")?;
    println!("figure: an installer has {} severe acts and {} points", suspicion.severe_acts, suspicion.score);
    ensure!(suspicion.action.is_none(), "an installer is suspected: {suspicion:?}");
    ensure!(!status.conditions.iter().any(|one| one.type_ == "Suspected"), "{}", told(&status));
    let again = sandbox.python(&format!("{INSTALLER}\nassert fetch()"), &[]).await?;
    ensure!(again.contains("installed"), "{again}");
    let after = sandbox.status().await?.suspicion.context("no suspicion")?;
    ensure!(after.action.is_none() && after.severe_acts == 2, "retries count: {after:?}");
    Ok(())
}
