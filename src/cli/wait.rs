//! Waiting until a sandbox takes calls, or never will.

use std::time::Duration;

use anyhow::{Context as _, bail};
use futures::StreamExt as _;
use kube::{
    Api,
    runtime::{WatchStreamExt as _, watcher},
};

use super::{cluster::explained, progress::Progress};
use crate::api::{AgentSandbox, ConditionType, Phase};

/// Where a sandbox stands for somebody who waits for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It takes calls.
    Ready,
    /// It does not yet; this is why.
    Waiting(String),
    /// It never will, unless somebody changes something; this is why.
    Never(String),
}

/// Where it stands.
pub(super) fn standing(sandbox: &AgentSandbox) -> Standing {
    if sandbox.metadata.deletion_timestamp.is_some() {
        return Standing::Never("it was deleted".into());
    }
    let Some(status) = &sandbox.status else { return Standing::Waiting("Pending".into()) };
    let condition = |kind: ConditionType| status.conditions.iter().find(|one| one.type_ == kind.as_str());
    let is = |kind, value: &str| condition(kind).filter(|one| one.status == value);
    let why = |one: &k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition| {
        format!("{}: {}", one.reason, one.message)
    };
    let phase = status.phase.unwrap_or(Phase::Pending);
    if let Some(finished) = is(ConditionType::Finished, "True") {
        return Standing::Never(format!("it ended: {}", why(finished)));
    }
    if phase.is_terminal() {
        return Standing::Never(format!("it ended: {}", phase.as_str()));
    }
    if is(ConditionType::Ready, "True").is_some() {
        return Standing::Ready;
    }
    let refused = [ConditionType::Accepted, ConditionType::ResolvedRefs];
    if let Some(refused) = refused.into_iter().find_map(|kind| is(kind, "False")) {
        return Standing::Never(why(refused));
    }
    // What holds it up goes before the summary of all.
    let held = [ConditionType::RuntimeAvailable, ConditionType::FenceVerified];
    let held = held.into_iter().find_map(|kind| is(kind, "False"));
    let told = held.or_else(|| condition(ConditionType::Ready)).map(why);
    Standing::Waiting(
        told.map_or_else(|| phase.as_str().into(), |told| format!("{}, {told}", phase.as_str())),
    )
}

/// Waits until it takes calls, and gives it as it is then. Whoever waits is told why.
pub(super) async fn ready(
    api: Api<AgentSandbox>,
    name: &str,
    uid: Option<&str>,
    patience: Duration,
    progress: &mut Progress,
) -> anyhow::Result<AgentSandbox> {
    let mut last = "nothing was seen of it".to_owned();
    let seen = async {
        let mut states = std::pin::pin!(watcher::watch_object(api, name).default_backoff());
        while let Some(state) = states.next().await {
            let sandbox = match state {
                Ok(Some(sandbox)) if uid.is_none_or(|uid| sandbox.metadata.uid.as_deref() == Some(uid)) => {
                    sandbox
                }
                Ok(_) => bail!("sandbox {name} is gone: somebody deleted it"),
                Err(error) => match hopeless(error) {
                    Some(error) => return Err(error),
                    None => continue,
                },
            };
            match standing(&sandbox) {
                Standing::Ready => return Ok(sandbox),
                Standing::Never(why) => bail!("sandbox {name} will not take calls: {why}"),
                Standing::Waiting(why) => {
                    progress.tell(&format!("sandbox {name}: {why}"));
                    last = why;
                }
            }
        }
        bail!("the watch of sandbox {name} ended; try again")
    };
    let Ok(seen) = tokio::time::timeout(patience, seen).await else {
        bail!("sandbox {name} is not ready after {patience:?}: {last}")
    };
    progress.clear();
    seen
}

/// An error that waiting does not mend: others are of a watch that is made again.
fn hopeless(error: watcher::Error) -> Option<anyhow::Error> {
    let (watcher::Error::InitialListFailed(error) | watcher::Error::WatchStartFailed(error)) = error else {
        return None;
    };
    match &error {
        kube::Error::Api(status) if matches!(status.code, 401 | 403 | 404) => {
            Some(explained(error, "watching the sandbox"))
        }
        _ => None,
    }
}

/// The same for somebody who has a name alone.
pub(super) async fn by_name(api: &Api<AgentSandbox>, name: &str) -> anyhow::Result<AgentSandbox> {
    api.get(name)
        .await
        .map_err(|error| explained(error, &format!("sandbox {name}")))
        .context("`glovebox list` shows those that are there")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn sandbox(phase: &str, conditions: &[(&str, &str, &str)]) -> AgentSandbox {
        let conditions: Vec<Value> = conditions
            .iter()
            .map(|(kind, status, reason)| json!({"type": kind, "status": status, "reason": reason, "message": format!("of {reason}"), "lastTransitionTime": "2026-01-01T00:00:00Z"}))
            .collect();
        serde_json::from_value(json!({
            "metadata": {"name": "s"}, "spec": {"image": "i"}, "status": {"phase": phase, "conditions": conditions},
        }))
        .unwrap()
    }

    #[test]
    fn it_is_told_why_one_waits() {
        let waiting = |text: &str| Standing::Waiting(text.into());
        let never = |text: &str| Standing::Never(text.into());
        for (phase, conditions, is) in [
            ("Running", &[("Ready", "True", "Running")][..], Standing::Ready),
            ("Pending", &[], waiting("Pending")),
            (
                "Starting",
                &[("Accepted", "True", "Accepted"), ("Ready", "False", "Starting")],
                waiting("Starting, Starting: of Starting"),
            ),
            (
                "Pending",
                &[("RuntimeAvailable", "False", "NoEligibleNode"), ("Ready", "False", "Starting")],
                waiting("Pending, NoEligibleNode: of NoEligibleNode"),
            ),
            (
                "Pending",
                &[("Accepted", "False", "ExceedsClass"), ("Ready", "False", "Starting")],
                never("ExceedsClass: of ExceedsClass"),
            ),
            (
                "Pending",
                &[("ResolvedRefs", "False", "PolicyNotFound")],
                never("PolicyNotFound: of PolicyNotFound"),
            ),
            (
                "Failed",
                &[("Ready", "True", "Running"), ("Finished", "True", "OOMKilled")],
                never("it ended: OOMKilled: of OOMKilled"),
            ),
            ("Expired", &[], never("it ended: Expired")),
            // A change that was refused does not stop one that runs.
            (
                "Running",
                &[("Accepted", "False", "ExceedsClass"), ("Ready", "True", "Running")],
                Standing::Ready,
            ),
        ] {
            assert_eq!(standing(&sandbox(phase, conditions)), is, "{phase} {conditions:?}");
        }
        let mut deleted = sandbox("Running", &[("Ready", "True", "Running")]);
        deleted.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        assert_eq!(standing(&deleted), never("it was deleted"));
        deleted = serde_json::from_value(json!({"metadata": {"name": "s"}, "spec": {"image": "i"}})).unwrap();
        assert_eq!(standing(&deleted), waiting("Pending"));
    }
}
