//! Calls: what a tool has run in a sandbox through the session, asked from an ordinary pod beside it as a tool would.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use glovebox::api::{AgentSandboxStatus, ConditionType, Phase};
use k8s_openapi::api::{
    authentication::v1::TokenRequest,
    core::v1::{ConfigMap, ServiceAccount},
    rbac::v1::{Role, RoleBinding},
};
use kube::{Api, api::PostParams};
use serde_json::{Value, json};

use crate::{
    attacks::Attack,
    harness::{Cases, Outcome, Runtime, Sandbox, Test, classes::merge, pods, sandbox::condition, wait},
};

mod files;
mod node;

const BASICS: (&str, usize) = (include_str!("basics.py"), 28);
/// So many attempts of the first step, and of the second.
const BOUNDS: (&str, usize, usize) = (include_str!("bounds.py"), 7, 2);
const HOSTILE: (&str, usize) = (include_str!("hostile.py"), 18);
const RUNAWAY: (&str, usize) = (include_str!("runaway.py"), 9);
const RIGHTS: (&str, usize) = (include_str!("rights.py"), 14);
const MANY: (&str, usize) = (include_str!("many.py"), 2);
/// What a workload tries at its own agent's port.
const FORGED: Attack = Attack::new(include_str!("forged.py"), 10);
const CLIENT: &str = include_str!("client.py");

/// Calls in a row, and at once over so many sandboxes.
const ROW: usize = 10_000;
const ONCE: usize = 200;
const SANDBOXES: usize = 20;

/// The labels of the session's pods.
pub(crate) const SESSION: &str = "app.kubernetes.io/name=glovebox,app.kubernetes.io/component=session";

pub(crate) fn cases(cases: &mut Cases) {
    cases.each_runtime("session::calls_do_what_they_say", 500, basics);
    cases.each_runtime("session::a_runaway_is_gone_at_its_deadline", 700, runaway);
    cases.each_runtime("session::the_workload_gains_nothing_at_its_agents_port", 500, forged);
    cases.add("session::a_sandbox_says_what_its_calls_are_held_to", 400, bounds);
    cases.add("session::wrong_requests_are_told_what_is_wrong", 400, hostile);
    files::cases(cases);
    cases.add("session::rights_decide_and_nothing_is_told_before", 600, rights);
}

/// Those that need the cluster for themselves.
pub(crate) fn alone(cases: &mut Cases) {
    cases.add("alone::session::thousands_of_calls_and_none_is_lost", 900, many);
}

/// A pod with Python that calls, and what it has to know.
pub(crate) struct Toolbox<'a> {
    test: &'a Test,
    facts: Value,
}

const TOOLBOX: &str = "toolbox";
const EVERYTHING: &[&str] =
    &["agentsandboxes", "agentsandboxes/exec", "agentsandboxes/files", "agentsandboxes/logs"];

impl<'a> Toolbox<'a> {
    /// A pod in the test's namespace, with a token that may do everything with sandboxes there.
    pub(crate) async fn open(test: &'a Test) -> Result<Self> {
        let namespace = &test.controller()?.namespace;
        let ca = authority(test).await?;
        let idle = "import time\ntime.sleep(3600)";
        test.ordinary_pod(&test.namespace, TOOLBOX, idle, &json!({})).await?;
        let token = caller(test, "caller", EVERYTHING, &["get", "create", "update", "delete"], None).await?;
        let host = format!("glovebox-session.{namespace}.svc");
        Ok(Self { test, facts: json!({"ca": ca, "host": host, "namespace": test.namespace, "token": token}) })
    }

    /// The same pod, which has to know more.
    pub(crate) fn with(&self, more: &Value) -> Self {
        let mut facts = self.facts.clone();
        merge(&mut facts, more);
        Self { test: self.test, facts }
    }

    /// Carries a script out; what it holds against what it got is judged. Gives what it printed.
    pub(crate) async fn carry_out(
        &self,
        (script, least): (&'static str, usize),
        limit: u64,
    ) -> Result<String> {
        let attack = Attack::new(script, least);
        let facts = self.facts.to_string();
        let mut command = attack.command(&[&facts]);
        let whole = command.get_mut(3).context("python3 -u -c SCRIPT")?;
        // After what every attack begins with, before what this one does.
        *whole = whole.replacen(script, &format!("{CLIENT}\n{script}"), 1);
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        let limit = std::time::Duration::from_secs(limit);
        let output = pods::exec_within(&self.test.api(), TOOLBOX, "main", &words, limit).await?;
        for line in output.stdout.lines().filter(|line| line.starts_with("figure:")) {
            println!("{line}");
        }
        attack
            .judge(&output.stdout)
            .with_context(|| format!("it ended with {}: {}", output.code, output.stderr))?;
        Ok(output.stdout)
    }
}

/// What vouches for the session.
pub(crate) async fn authority(test: &Test) -> Result<String> {
    let maps: Api<ConfigMap> = Api::namespaced(test.client.clone(), &test.controller()?.namespace);
    let map = maps.get("glovebox-session-ca").await.context("the session's authority")?;
    map.data.and_then(|mut data| data.remove("ca.crt")).context("no ca.crt")
}

/// A service account with these rights in the test's namespace, and a token of it.
pub(crate) async fn caller(
    test: &Test,
    name: &str,
    resources: &[&str],
    verbs: &[&str],
    audience: Option<&str>,
) -> Result<String> {
    let post = PostParams::default();
    let accounts: Api<ServiceAccount> = test.api();
    let account = serde_json::from_value(json!({"metadata": {"name": name}}))?;
    accounts.create(&post, &account).await?;
    if !resources.is_empty() {
        let role: Role = serde_json::from_value(json!({
            "metadata": {"name": name},
            "rules": [{"apiGroups": ["glovebox.dev"], "resources": resources, "verbs": verbs}],
        }))?;
        test.api().create(&post, &role).await?;
        let binding: RoleBinding = serde_json::from_value(json!({
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": test.namespace}],
        }))?;
        test.api().create(&post, &binding).await?;
    }
    let audiences: Vec<&str> = audience.into_iter().collect();
    let request: TokenRequest = serde_json::from_value(
        json!({"metadata": {}, "spec": {"audiences": audiences, "expirationSeconds": 3600}}),
    )?;
    let made = accounts.create_token_request(name, &post, &request).await?;
    made.status.map(|status| status.token).context("no token was given")
}

/// Waits for calls; with a workload beside them if it is to have one.
async fn waiting(test: &Test, runtime: Runtime, name: &str, workload: &[&str]) -> Result<Sandbox> {
    let spec = json!({"command": workload, "ttl": "10m", "resources": {"cpu": "250m", "memory": "256Mi"}});
    test.running(runtime, name, &spec).await
}

async fn basics(test: Arc<Test>, runtime: Runtime) -> Outcome {
    let toolbox = Toolbox::open(&test).await?.with(&json!({"sandbox": "calls"}));
    let _sandbox = waiting(&test, runtime, "calls", &[]).await?;
    toolbox.carry_out(BASICS, 120).await.map(|_| ())
}

async fn runaway(test: Arc<Test>, runtime: Runtime) -> Outcome {
    let mark = format!("mark-{}", test.suffix);
    // Beside a workload of its own, which goes on.
    let toolbox = Toolbox::open(&test).await?;
    for (name, workload) in [("idle", &[][..]), ("busy", &["sleep", "infinity"])] {
        let toolbox = toolbox.with(&json!({"sandbox": name, "mark": mark}));
        let sandbox = waiting(&test, runtime, name, workload).await?;
        toolbox.carry_out(RUNAWAY, 120).await.with_context(|| name.to_owned())?;
        if runtime == Runtime::Runc && test.local().is_ok() {
            let left = node::processes_with(&mark)?;
            ensure!(left.is_empty(), "the node still has processes of the runaway: {left:?}");
        }
        let status = sandbox.until("still runs", |status| status.phase.is_some()).await?;
        ensure!(status.phase == Some(Phase::Running), "the sandbox is {:?}", status.phase);
    }
    Ok(())
}

async fn forged(test: Arc<Test>, runtime: Runtime) -> Outcome {
    let toolbox = Toolbox::open(&test).await?.with(&json!({"sandbox": "forger"}));
    let command = FORGED.command(&["hold"]);
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    let sandbox = waiting(&test, runtime, "forger", &command).await?;
    // While it holds as many connections as it gets, honest calls get through.
    wait::poll("the workload holds connections", async || {
        Ok(sandbox.log().await?.contains("attempts ").then_some(()))
    })
    .await?;
    FORGED.judge(&sandbox.log().await?)?;
    toolbox
        .carry_out(
            ("holds('an honest call', run(ARGS['sandbox'], 'echo', 'x')['stdout'] == 'x\\n')\ndone()", 1),
            60,
        )
        .await?;
    Ok(())
}

async fn bounds(test: Arc<Test>) -> Outcome {
    let toolbox = Toolbox::open(&test).await?;
    let execution = json!({"timeout": "2s", "maxOutputBytes": "1Ki", "maxConcurrent": 1});
    let spec = json!({"ttl": "10m", "resources": {"cpu": "250m", "memory": "128Mi"}, "execution": execution});
    let sandbox = test.running(Runtime::Runc, "bound", &spec).await?;
    let (script, narrow, wide) = BOUNDS;
    let step = |name: &str| toolbox.with(&json!({"sandbox": "bound", "step": name}));
    step("narrow").carry_out((script, narrow), 120).await?;

    sandbox.patch(json!({"execution": {"timeout": "5s", "maxConcurrent": 2}})).await?;
    let raised =
        |status: &AgentSandboxStatus| status.execution.as_ref().is_some_and(|held| held.max_concurrent == 2);
    sandbox.until("calls are held to what was raised", raised).await?;
    step("wide").carry_out((script, wide), 120).await?;

    // Beyond the class nothing changes, and it is said.
    sandbox.patch(json!({"execution": {"timeout": "24h"}})).await?;
    let refused = |status: &AgentSandboxStatus| {
        condition(status, ConditionType::Accepted).is_some_and(|accepted| accepted.status == "False")
    };
    let status = sandbox.until("it is refused", refused).await?;
    let held = status.execution.as_ref().context("calls are held to something")?;
    ensure!(held.max_timeout.to_string() == "5s", "{held:?}");
    let message = condition(&status, ConditionType::Accepted).map_or("", |accepted| &accepted.message);
    ensure!(message.contains("spec.execution.timeout is 24h"), "{message}");
    step("wide").carry_out((script, wide), 120).await.map(|_| ())
}

async fn hostile(test: Arc<Test>) -> Outcome {
    let toolbox = Toolbox::open(&test).await?.with(&json!({"sandbox": "calls"}));
    let _sandbox = waiting(&test, Runtime::Runc, "calls", &[]).await?;
    toolbox.carry_out(HOSTILE, 120).await.map(|_| ())
}

async fn rights(test: Arc<Test>) -> Outcome {
    let elsewhere = test.another_namespace("restricted").await?;
    let sandbox = waiting(&test, Runtime::Runc, "mine", &[]).await?;
    let address = pods::address(&sandbox.pod().await?)?;
    let toolbox = Toolbox::open(&test).await?.with(&json!({
        "sandbox": "mine",
        "address": address,
        "elsewhere": elsewhere,
        "elsewhere_sandbox": "theirs",
        "nobody": caller(&test, "nobody", &[], &[], None).await?,
        "viewer": caller(&test, "viewer", &["agentsandboxes"], &["get"], None).await?,
        "other_audience": caller(&test, "other", &["agentsandboxes/exec"], &["create"], Some("another")).await?,
    }));
    toolbox.carry_out(RIGHTS, 60).await.map(|_| ())
}

async fn many(test: Arc<Test>) -> Outcome {
    let names: Vec<String> = (0..SANDBOXES).map(|number| format!("calls-{number}")).collect();
    let class = json!({"resources": {"default": {"cpu": "30m", "memory": "128Mi"}}, "workspace": {"defaultSize": "1Mi"}});
    let class = test.class(Runtime::Runc, "calls", &class).await?;
    let start = |name: &String| {
        let (test, class, name) = (&test, &class, name.clone());
        async move {
            // The first gets the long row, and is to be throttled little.
            let cpu = if name.ends_with("-0") { "500m" } else { "20m" };
            let spec = json!({"className": class, "ttl": "1h", "resources": {"cpu": cpu}});
            let sandbox = test.sandbox(Runtime::Runc, &name, &spec).await?;
            sandbox.running().await?;
            anyhow::Ok(sandbox)
        }
    };
    let sandboxes: Vec<Sandbox> = futures::future::try_join_all(names.iter().map(start)).await?;
    let facts = json!({"sandboxes": names, "row": ROW, "once": ONCE});
    let toolbox = Toolbox::open(&test).await?.with(&facts);
    let first = sandboxes.first().context("there are sandboxes")?;
    let before = node::agent(&first.uid)?;
    toolbox.carry_out(MANY, 400).await?;
    let after = node::agent(&first.uid)?;
    println!("figure: process 1 of a sandbox before and after {ROW} calls: {before:?}, {after:?}");
    ensure!(after.descriptors <= before.descriptors, "descriptors were left open: {before:?}, {after:?}");
    ensure!(after.children == 0, "processes were left: {after:?}");
    ensure!(after.resident_kib <= before.resident_kib + 1024, "memory was left: {before:?}, {after:?}");
    Ok(())
}
