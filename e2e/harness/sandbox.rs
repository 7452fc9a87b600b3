//! Sandboxes of a test: made, watched, entered and read.

use anyhow::{Context, Result, ensure};
use futures::{AsyncBufReadExt, TryStreamExt};
use jiff::Timestamp;
use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::Condition};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, LogParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use glovebox::api::{AgentSandbox, AgentSandboxStatus, ConditionType, Phase};

use super::{
    Runtime, Test,
    classes::merge,
    pods::{self, Output},
    wait,
};

/// The container that the workload runs in.
const WORKLOAD: &str = "workload";

/// One sandbox.
#[derive(Clone)]
pub(crate) struct Sandbox {
    client: Client,
    /// Where it is.
    pub(crate) namespace: String,
    /// What it is called, and its pod.
    pub(crate) name: String,
    /// Which one of that name.
    pub(crate) uid: String,
    /// When it was made, in whole seconds.
    pub(crate) created: Timestamp,
}

impl Test {
    /// Makes a sandbox of a runtime's class; `spec` adds to it or changes it.
    pub(crate) async fn sandbox(&self, runtime: Runtime, name: &str, spec: &Value) -> Result<Sandbox> {
        self.sandbox_in(&self.namespace, runtime, name, spec).await
    }

    /// The same in another namespace.
    pub(crate) async fn sandbox_in(
        &self,
        namespace: &str,
        runtime: Runtime,
        name: &str,
        spec: &Value,
    ) -> Result<Sandbox> {
        let api: Api<AgentSandbox> = Api::namespaced(self.client.clone(), namespace);
        let made = api.create(&PostParams::default(), &self.draft(runtime, name, spec)?).await;
        let made = made.with_context(|| format!("sandbox {name}"))?;
        Ok(Sandbox {
            client: self.client.clone(),
            namespace: namespace.into(),
            name: name.into(),
            uid: made.uid().context("an object without uid")?,
            created: made.creation_timestamp().context("an object without time")?.0,
        })
    }

    /// A sandbox that is not made yet.
    pub(crate) fn draft(&self, runtime: Runtime, name: &str, spec: &Value) -> Result<AgentSandbox> {
        let mut all = json!({"className": runtime.class(), "image": self.cluster.image});
        merge(&mut all, spec);
        Ok(serde_json::from_value(json!({"metadata": {"name": name}, "spec": all}))?)
    }

    /// A sandbox that idles, once it runs.
    pub(crate) async fn running(&self, runtime: Runtime, name: &str, spec: &Value) -> Result<Sandbox> {
        let sandbox = self.sandbox(runtime, name, spec).await?;
        sandbox.running().await?;
        Ok(sandbox)
    }
}

impl Sandbox {
    /// Its API.
    pub(crate) fn api(&self) -> Api<AgentSandbox> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// The API of its pod.
    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Waits for a status.
    pub(crate) async fn until(
        &self,
        what: &str,
        test: impl Fn(&AgentSandboxStatus) -> bool,
    ) -> Result<AgentSandboxStatus> {
        self.until_within(what, wait::PATIENCE, test).await
    }

    /// The same with another limit.
    pub(crate) async fn until_within(
        &self,
        what: &str,
        limit: std::time::Duration,
        test: impl Fn(&AgentSandboxStatus) -> bool,
    ) -> Result<AgentSandboxStatus> {
        let same = |sandbox: &&AgentSandbox| sandbox.metadata.uid.as_ref() == Some(&self.uid);
        let what = format!("sandbox {}: {what}", self.name);
        let found =
            wait::until_within(self.api(), &self.name, &what, limit, |sandbox: Option<&AgentSandbox>| {
                sandbox.filter(same).and_then(|sandbox| sandbox.status.as_ref()).is_some_and(&test)
            });
        found.await?.and_then(|sandbox| sandbox.status).context("it was just seen")
    }

    /// Waits until it runs; one that ends before is a failure at once.
    pub(crate) async fn running(&self) -> Result<AgentSandboxStatus> {
        self.running_within(wait::PATIENCE).await
    }

    /// The same with another limit.
    pub(crate) async fn running_within(&self, limit: std::time::Duration) -> Result<AgentSandboxStatus> {
        let decided = |status: &AgentSandboxStatus| status.phase == Some(Phase::Running) || is_over(status);
        let status = self.until_within("runs", limit, decided).await?;
        ensure!(
            status.phase == Some(Phase::Running),
            "sandbox {} ended before it ran: {}",
            self.name,
            told(&status)
        );
        Ok(status)
    }

    /// Waits until it ended.
    pub(crate) async fn ended(&self) -> Result<AgentSandboxStatus> {
        self.until("ends", is_over).await
    }

    /// Waits until it ended for a reason, and holds it against that.
    pub(crate) async fn ended_as(&self, phase: Phase, reason: &str) -> Result<AgentSandboxStatus> {
        let status = self.ended().await?;
        let fits = status.phase == Some(phase) && status.reason.as_deref() == Some(reason);
        ensure!(fits, "sandbox {} should end as {phase:?}/{reason}: {}", self.name, told(&status));
        Ok(status)
    }

    /// Waits until it waits for something outside, for a reason that is told with these words.
    pub(crate) async fn pending(&self, reason: &str, words: &[&str]) -> Result<AgentSandboxStatus> {
        let status = self
            .until(reason, |status| {
                status.phase == Some(Phase::Pending) && status.reason.as_deref() == Some(reason)
            })
            .await?;
        let all = told(&status);
        for word in words {
            ensure!(all.contains(word), "{:?} is not told of sandbox {}: {all}", word, self.name);
        }
        Ok(status)
    }

    /// The status as it is.
    pub(crate) async fn status(&self) -> Result<AgentSandboxStatus> {
        Ok(self.api().get(&self.name).await?.status.unwrap_or_default())
    }

    /// The pod as it is.
    pub(crate) async fn pod(&self) -> Result<Pod> {
        Ok(self.pods().get(&self.name).await?)
    }

    /// The workload's log up to now.
    pub(crate) async fn log(&self) -> Result<String> {
        let params = LogParams { container: Some(WORKLOAD.into()), ..LogParams::default() };
        self.pods().logs(&self.name, &params).await.context("the workload's log")
    }

    /// Waits until the workload logs a line that starts so; gives what it logged up to there.
    pub(crate) async fn logged(&self, start: &str) -> Result<String> {
        let params = LogParams { container: Some(WORKLOAD.into()), follow: true, ..LogParams::default() };
        let read = async {
            let mut lines = self.pods().log_stream(&self.name, &params).await?.lines();
            let mut all = String::new();
            while let Some(line) = lines.try_next().await? {
                all = all + &line + "\n";
                if line.starts_with(start) {
                    return Ok(all);
                }
            }
            anyhow::bail!("the log of {} ended without a line {start:?}:\n{all}", self.name)
        };
        tokio::time::timeout(wait::PATIENCE, read)
            .await
            .with_context(|| format!("no line {start:?} in the log of {}", self.name))?
    }

    /// Runs a command in it.
    pub(crate) async fn exec(&self, command: &[&str]) -> Result<Output> {
        pods::exec(&self.pods(), &self.name, WORKLOAD, command).await
    }

    /// The same with a limit of its own.
    pub(crate) async fn exec_within(&self, command: &[&str], limit: std::time::Duration) -> Result<Output> {
        pods::exec_within(&self.pods(), &self.name, WORKLOAD, command, limit).await
    }

    /// Runs a Python script in it, which must end well; gives what it printed.
    pub(crate) async fn python(&self, script: &str, arguments: &[&str]) -> Result<String> {
        let mut command = vec!["python3", "-c", script];
        command.extend(arguments);
        self.exec(&command).await?.good()
    }

    /// Runs a shell script in it, which must end well; gives what it printed.
    pub(crate) async fn sh(&self, script: &str) -> Result<String> {
        self.exec(&["sh", "-c", script]).await?.good()
    }

    /// Changes its spec by a merge patch.
    pub(crate) async fn patch(&self, spec: Value) -> Result<AgentSandbox> {
        let patch = Patch::Merge(json!({"spec": spec}));
        self.api()
            .patch(&self.name, &PatchParams::default(), &patch)
            .await
            .with_context(|| format!("patch of {}", self.name))
    }

    /// Deletes it and waits until it and its pod are gone.
    pub(crate) async fn delete(&self) -> Result<()> {
        self.api().delete(&self.name, &DeleteParams::default()).await?;
        self.gone().await
    }

    /// Waits until it and its pod are gone.
    pub(crate) async fn gone(&self) -> Result<()> {
        wait::gone(self.api(), &self.name, &format!("sandbox {} goes", self.name)).await?;
        self.pod_gone().await
    }

    /// Waits until its pod is gone.
    pub(crate) async fn pod_gone(&self) -> Result<()> {
        wait::gone(self.pods(), &self.name, &format!("pod {} goes", self.name)).await
    }
}

/// Whether the status says that it ended.
pub(crate) fn is_over(status: &AgentSandboxStatus) -> bool {
    condition(status, ConditionType::Finished).is_some_and(|finished| finished.status == "True")
}

/// One of its conditions.
pub(crate) fn condition(status: &AgentSandboxStatus, kind: ConditionType) -> Option<&Condition> {
    status.conditions.iter().find(|condition| condition.type_ == kind.as_str())
}

/// Whether a condition has a status and a reason.
pub(crate) fn says(status: &AgentSandboxStatus, kind: ConditionType, value: &str, reason: &str) -> bool {
    condition(status, kind).is_some_and(|condition| condition.status == value && condition.reason == reason)
}

/// All that a status tells, in one line.
pub(crate) fn told(status: &AgentSandboxStatus) -> String {
    let conditions =
        status.conditions.iter().map(|c| format!("{}={} {}: {}", c.type_, c.status, c.reason, c.message));
    format!("{:?}/{:?}; {}", status.phase, status.reason, conditions.collect::<Vec<_>>().join("; "))
}
