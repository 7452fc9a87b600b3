//! The last rung of the runtime ladder: one sandbox of each class is tried before anybody relies on it. An ordinary sandbox
//! in the controller's own namespace, of our own image, which does nothing and ends.
//!
//! A class is tried once for each version of itself and of its RuntimeClass, and again while it fails for another reason
//! than its kernel: nodes get mended, kernels do not become stronger.

use std::{sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{api::node::v1::RuntimeClass, apimachinery::pkg::apis::meta::v1::Time};
use kube::{
    Api, Resource, ResourceExt,
    api::{DeleteParams, PostParams},
};
use serde_json::json;

use super::{context::Context, error::ApplyError};
use crate::{
    api::{AgentSandbox, Phase, Probe, ProbeOutcome, Reason, SandboxClass, Span},
    kubernetes::get,
    sandbox::{names, runtime},
};

/// Which version of a class a canary speaks of.
const CANARY_OF: &str = "glovebox.dev/canary-of";
/// How soon a failed trial is repeated.
const AGAIN: SignedDuration = SignedDuration::from_mins(5);
/// The most that a trial may take.
const LONGEST: Span = Span::from_secs(300);
/// How often a trial under way is looked at.
const LOOK: Duration = Duration::from_secs(1);

/// The trial's result so far, and when to look again.
pub(super) struct Trial {
    /// What is known.
    pub(super) probe: Option<Probe>,
    /// When to look again, if a trial is under way.
    pub(super) wait: Option<Duration>,
}

/// Tries the class if need be.
///
/// # Errors
/// Whatever call failed.
pub(super) async fn trial(
    context: &Context,
    class: &SandboxClass,
    runtime_class: Option<&RuntimeClass>,
    now: Timestamp,
) -> Result<Trial, ApplyError> {
    let of = runtime::version(class, runtime_class);
    let known = class.status.as_ref().and_then(|status| status.probe.clone()).filter(|probe| probe.of == of);
    if known.as_ref().is_some_and(|probe| settled(probe, now)) {
        return Ok(Trial { probe: known, wait: None });
    }
    let name = names::canary(&class.name_any());
    let shown = get(&context.stores.sandboxes, &name, Some(&context.settings.namespace));
    let canary = shown.map(|canary| context.newest(canary));
    let waiting = |probe| Ok(Trial { probe, wait: Some(LOOK) });
    let api: Api<AgentSandbox> = Api::namespaced(context.client.clone(), &context.settings.namespace);
    match canary {
        None => {
            let created = context
                .call(
                    "create a canary",
                    api.create(&PostParams::default(), &canary_sandbox(context, class, &of)?),
                )
                .await;
            match created {
                Err(ApplyError::Call { source, .. }) if matches!(source.as_ref(), kube::Error::Api(status) if status.code == 409) =>
                    {}
                created => drop(created?),
            }
            waiting(known)
        }
        Some(canary)
            if canary.annotations().get(CANARY_OF) == Some(&of)
                && canary.meta().deletion_timestamp.is_none() =>
        {
            let Some(probe) = outcome(&canary, &of, now) else { return waiting(known) };
            if known.as_ref().is_some_and(|known| known.at >= probe.at) {
                // This canary was counted already: it makes room for the next.
                remove(context, &api, &canary).await?;
                return waiting(known);
            }
            Ok(Trial { probe: Some(probe), wait: None })
        }
        Some(canary) => {
            remove(context, &api, &canary).await?;
            waiting(known)
        }
    }
}

fn settled(probe: &Probe, now: Timestamp) -> bool {
    probe.outcome != ProbeOutcome::Failed || now.duration_since(probe.at.0) < AGAIN
}

/// What a canary tells; `None` while it lives.
fn outcome(canary: &AgentSandbox, of: &str, now: Timestamp) -> Option<Probe> {
    let status = canary.status.as_ref()?;
    let phase = status.phase.filter(|phase| phase.is_terminal())?;
    let reason = status.reason.clone().unwrap_or_default();
    let said = status
        .conditions
        .iter()
        .find(|condition| condition.type_ == "Finished")
        .map(|condition| condition.message.clone());
    let seen = status.runtime.clone().unwrap_or_else(|| "no kernel seen".into());
    let outcome = match phase {
        Phase::Succeeded => ProbeOutcome::Passed,
        _ if reason == Reason::IsolationMismatch.as_str() => ProbeOutcome::Weaker,
        _ => ProbeOutcome::Failed,
    };
    let message = match outcome {
        ProbeOutcome::Passed => format!("a canary ran on {seen}"),
        ProbeOutcome::Weaker | ProbeOutcome::Failed => {
            format!("a canary ended with {reason}: {}", said.unwrap_or_default())
        }
    };
    let at = status.finished_at.clone().unwrap_or(Time(now));
    Some(Probe { of: of.into(), outcome, message: message.chars().take(500).collect(), at })
}

fn canary_sandbox(context: &Context, class: &SandboxClass, of: &str) -> Result<AgentSandbox, ApplyError> {
    let sandbox = json!({
        "apiVersion": AgentSandbox::api_version(&()),
        "kind": AgentSandbox::kind(&()),
        "metadata": {
            "name": names::canary(&class.name_any()),
            "labels": names::common_labels(),
            "annotations": {CANARY_OF: of},
            "ownerReferences": [class.controller_owner_ref(&())],
        },
        "spec": {
            "className": class.name_any(),
            "image": context.settings.agent_image,
            "command": ["/glovebox-agent", "--version"],
            "ttl": class.spec.ttl.max.min(LONGEST),
            // Longer than a call may take, so that its result is read before it goes.
            "ttlAfterFinished": "60s",
            "workspace": {"size": "1Mi"},
            "resources": {"cpu": "100m", "memory": "256Mi", "ephemeralStorage": "64Mi"},
        },
    });
    serde_json::from_value(sandbox).map_err(|error| ApplyError::Poisoned(error.to_string()))
}

async fn remove(
    context: &Context,
    api: &Api<AgentSandbox>,
    canary: &Arc<AgentSandbox>,
) -> Result<(), ApplyError> {
    if canary.meta().deletion_timestamp.is_some() {
        return Ok(());
    }
    match context.call("delete a canary", api.delete(&canary.name_any(), &DeleteParams::background())).await {
        Err(ApplyError::Call { source, .. }) if matches!(source.as_ref(), kube::Error::Api(status) if status.code == 404) => {
            Ok(())
        }
        answer => answer.map(|_| ()),
    }
}
