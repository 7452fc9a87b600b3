//! Pods: commands run in them, and ordinary ones that stand beside sandboxes.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{AttachParams, PostParams},
};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt};

use super::{Test, wait};

/// The most that is read of what a command prints: it may be hostile.
const MOST: u64 = 1 << 20;

/// How a command ended.
#[derive(Debug)]
pub(crate) struct Output {
    /// Its exit code.
    pub(crate) code: i32,
    /// What it printed.
    pub(crate) stdout: String,
    /// What it complained of.
    pub(crate) stderr: String,
}

impl Output {
    /// What it printed, if it ended well.
    pub(crate) fn good(self) -> Result<String> {
        ensure!(self.code == 0, "a command ended with {}: {}{}", self.code, self.stdout, self.stderr);
        Ok(self.stdout)
    }
}

/// Runs a command in a container, as `kubectl exec` does.
pub(crate) async fn exec(pods: &Api<Pod>, pod: &str, container: &str, command: &[&str]) -> Result<Output> {
    exec_within(pods, pod, container, command, wait::PATIENCE).await
}

/// The same with another limit.
pub(crate) async fn exec_within(
    pods: &Api<Pod>,
    pod: &str,
    container: &str,
    command: &[&str],
    limit: Duration,
) -> Result<Output> {
    let shown = || format!("exec in {pod}: {}", command.first().copied().unwrap_or_default());
    let params = AttachParams::default().container(container).stderr(true);
    let run = async {
        let mut process = pods.exec(pod, command.to_vec(), &params).await?;
        let status = process.take_status().context("a command without status")?;
        let (stdout, stderr) = (process.stdout(), process.stderr());
        let (stdout, stderr) = tokio::join!(read(stdout), read(stderr));
        let status = status.await.context("the connection ended before the command")?;
        let code = match status.status.as_deref() {
            Some("Success") => 0,
            _ => exit_code(&status).with_context(|| format!("no exit code: {status:?}"))?,
        };
        Ok::<_, anyhow::Error>(Output { code, stdout: stdout?, stderr: stderr? })
    };
    tokio::time::timeout(limit, run).await.with_context(shown)?.with_context(shown)
}

async fn read(stream: Option<impl AsyncRead + Unpin>) -> Result<String> {
    let Some(mut stream) = stream else { bail!("a stream is missing") };
    let mut bytes = Vec::new();
    (&mut stream).take(MOST).read_to_end(&mut bytes).await?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn exit_code(status: &k8s_openapi::apimachinery::pkg::apis::meta::v1::Status) -> Option<i32> {
    let causes = status.details.as_ref()?.causes.as_ref()?;
    let cause = causes.iter().find(|cause| cause.reason.as_deref() == Some("ExitCode"))?;
    cause.message.as_ref()?.parse().ok()
}

impl Test {
    /// An ordinary pod, hardened as the Pod Security Standard "restricted" wants it, running once this returns. `change` is
    /// merged into its spec.
    pub(crate) async fn ordinary_pod(
        &self,
        namespace: &str,
        name: &str,
        script: &str,
        change: &Value,
    ) -> Result<Pod> {
        let mut spec = json!({
            "automountServiceAccountToken": false,
            "terminationGracePeriodSeconds": 0,
            "restartPolicy": "Never",
            "securityContext": {"runAsNonRoot": true, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{
                "name": "main",
                "image": self.cluster.image,
                "imagePullPolicy": "IfNotPresent",
                "command": ["python3", "-u", "-c", script],
                "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
            }],
        });
        super::classes::merge(&mut spec, change);
        let pod: Pod = serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec}))?;
        let api: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        api.create(&PostParams::default(), &pod).await.with_context(|| format!("pod {name}"))?;
        let started = |pod: Option<&Pod>| phase(pod).is_some_and(|phase| phase != "Pending");
        wait::until(api, name, &format!("pod {name} starts"), started).await?.context("it was just seen")
    }
}

/// `status.phase` of a pod.
pub(crate) fn phase(pod: Option<&Pod>) -> Option<&str> {
    pod?.status.as_ref()?.phase.as_deref()
}

/// The address of a pod that runs.
pub(crate) fn address(pod: &Pod) -> Result<String> {
    pod.status.as_ref().and_then(|status| status.pod_ip.clone()).context("the pod has no address")
}
