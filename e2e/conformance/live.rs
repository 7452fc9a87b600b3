//! Rules given and taken while sandboxes run: what is new works at once, what is gone ends at once, and no pod is touched.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use glovebox::api::{ConditionType, EgressPolicy, Phase};

use super::{Ground, LIVE, table};
use crate::harness::{
    Cases, Outcome, Runtime, Sandbox, Test,
    sandbox::{says, told},
};

/// What is promised is one second, and each figure is printed; this is what a machine under the load of a whole suite keeps.
const BOUND: Duration = Duration::from_secs(5);
const HOST: &str = "granted.example";

pub(super) fn cases(cases: &mut Cases) {
    cases.each_runtime("conformance::a_rule_works_once_given_and_ends_once_taken", 300, inline);
    cases.add("conformance::a_policy_changes_two_sandboxes_at_once", 450, policy);
    cases.add("conformance::a_rule_that_expires_closes_what_it_opened", 300, expires);
}

/// Waits until the workload says what it saw for the so-many-th time; gives when.
async fn seen(sandbox: &Sandbox, what: &str, number: usize) -> Result<Timestamp> {
    let start = format!("{what} {number} ");
    let log = sandbox.logged(&start).await?;
    let line = log.lines().last().and_then(|line| line.strip_prefix(&start)).context("no such line")?;
    Ok(Timestamp::from_millisecond(line.trim().parse().with_context(|| line.to_owned())?)?)
}

/// Holds the time from the API server's answer to what the workload saw against the bound.
fn within(what: &str, since: Timestamp, seen: Timestamp) -> Outcome {
    let took = seen.duration_since(since).as_secs_f64();
    println!("figure: {what} took {took:.2} s");
    let good = took < BOUND.as_secs_f64();
    if what.contains("given") {
        table::twin(63, good);
    } else {
        table::attack(63, good);
    }
    ensure!(good, "{what} took {took:.2} s; {BOUND:?} is the bound, 1 s what is promised");
    Ok(())
}

async fn trying(test: &Test, runtime: Runtime, name: &str, egress: &Value) -> Result<Sandbox> {
    let spec = json!({"command": LIVE.command(&[HOST]), "egress": egress, "resources": {"cpu": "140m"}});
    let sandbox = test.running(runtime, name, &spec).await?;
    sandbox.logged("trying").await?;
    Ok(sandbox)
}

/// The pod's uid and how often its containers were started.
async fn pod(sandbox: &Sandbox) -> Result<(Option<String>, Vec<i32>)> {
    let pod = sandbox.pod().await?;
    let status = pod.status.clone().unwrap_or_default();
    let restarts = status.container_statuses.into_iter().flatten().map(|container| container.restart_count);
    Ok((pod.uid(), restarts.collect()))
}

async fn inline(test: Arc<Test>, runtime: Runtime) -> Outcome {
    let ground = Ground::open(&test).await?;
    let sandbox = trying(&test, runtime, "live", &json!({})).await?;
    let before = pod(&sandbox).await?;
    let rule = json!({"name": "granted", "hosts": [HOST]});
    for number in 1..=2 {
        sandbox.patch(json!({"egress": {"allow": [rule]}})).await?;
        let since = Timestamp::now();
        within(
            &format!("a rule given for the {number}. time"),
            since,
            seen(&sandbox, "reached", number).await?,
        )?;
        // Another rule beside it leaves what is open alone.
        sandbox
            .patch(json!({"egress": {"allow": [rule, {"name": "other", "hosts": ["allowed.example"]}]}}))
            .await?;
        if number == 1 {
            sandbox
                .patch(json!({"egress": {"allow": [{"name": "other", "hosts": ["allowed.example"]}]}}))
                .await?;
        } else {
            // The same host at another port is not the same.
            sandbox
                .patch(json!({"egress": {"allow": [{"name": "granted", "hosts": [HOST], "ports": [8443]}]}}))
                .await?;
        }
        let since = Timestamp::now();
        within(
            &format!("a rule taken for the {number}. time"),
            since,
            seen(&sandbox, "closed", number).await?,
        )?;
    }
    let log = sandbox.log().await?;
    ensure!(!log.contains("reached 3"), "it reached the host once more, without a rule:\n{log}");
    let after = pod(&sandbox).await?;
    ensure!(after == before, "the pod was touched: {before:?}, then {after:?}");
    let evil = ground.world.arrivals_at(super::EVIL);
    ensure!(evil.is_empty(), "somebody reached evil.example: {evil:?}");
    Ok(())
}

async fn policy(test: Arc<Test>) -> Outcome {
    Ground::open(&test).await?;
    let policies: Api<EgressPolicy> = test.api();
    let other = json!([{"name": "other", "hosts": ["allowed.example"]}]);
    let policy: EgressPolicy =
        serde_json::from_value(json!({"metadata": {"name": "shared"}, "spec": {"rules": other}}))?;
    policies.create(&PostParams::default(), &policy).await?;
    let egress = json!({"policies": ["shared"]});
    let both = [
        trying(&test, Runtime::Runc, "first", &egress).await?,
        trying(&test, Runtime::Gvisor, "second", &egress).await?,
    ];
    let bystander = trying(&test, Runtime::Runc, "bystander", &json!({})).await?;
    let mut before = Vec::new();
    for sandbox in &both {
        before.push(pod(sandbox).await?);
    }
    let set = async |rules: &Value| {
        let patch = Patch::Merge(json!({"spec": {"rules": rules}}));
        policies.patch("shared", &PatchParams::default(), &patch).await?;
        Ok::<_, anyhow::Error>(Timestamp::now())
    };
    let granted = json!([{"name": "granted", "hosts": [HOST]}]);
    for number in 1..=2 {
        let since = set(&granted).await?;
        for sandbox in &both {
            let at = seen(sandbox, "reached", number).await?;
            within(&format!("a policy's rule given to {}", sandbox.name), since, at)?;
        }
        let since = if number == 1 {
            set(&other).await?
        } else {
            policies.delete("shared", &DeleteParams::default()).await?;
            Timestamp::now()
        };
        for sandbox in &both {
            let at = seen(sandbox, "closed", number).await?;
            within(&format!("a policy's rule taken from {}", sandbox.name), since, at)?;
        }
    }
    for (sandbox, before) in both.iter().zip(before) {
        let status = sandbox
            .until("says that its policy is gone", |status| {
                says(status, ConditionType::ResolvedRefs, "False", "PolicyNotFound")
            })
            .await?;
        ensure!(status.phase == Some(Phase::Running), "{}", told(&status));
        let after = pod(sandbox).await?;
        ensure!(after == before, "the pod of {} was touched: {before:?}, then {after:?}", sandbox.name);
    }
    let log = bystander.log().await?;
    ensure!(!log.contains("reached"), "a sandbox that does not name the policy got its rules:\n{log}");
    Ok(())
}

async fn expires(test: Arc<Test>) -> Outcome {
    Ground::open(&test).await?;
    let sandbox = trying(&test, Runtime::Runc, "brief", &json!({})).await?;
    let end = Timestamp::from_second(Timestamp::now().as_second() + 12)?;
    let rule = json!({"name": "brief", "hosts": [HOST], "expiresAt": end.to_string()});
    sandbox.patch(json!({"egress": {"allow": [rule]}})).await?;
    let reached = seen(&sandbox, "reached", 1).await?;
    ensure!(reached < end, "it was reached at {reached}, after the rule's end {end}");
    let closed = seen(&sandbox, "closed", 1).await?;
    ensure!(closed >= end, "it was closed at {closed}, before the rule's end {end}");
    within("a rule that expired", end, closed)
}
