//! Events: the story of a sandbox, told when something changes and only then.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{
    Client, Resource,
    runtime::events::{Event, EventType, Recorder, Reporter},
};

use super::context::CALL_TIMEOUT;
use crate::{
    api::{AgentSandbox, AgentSandboxStatus, ConditionType, Phase, Reason},
    kubernetes,
    sandbox::names,
};

/// Publishes Events; one for the process, since it folds repetitions.
pub(super) struct Storyteller {
    recorder: Recorder,
}

impl Storyteller {
    pub(super) fn new(client: Client, instance: Option<String>) -> Self {
        Self {
            recorder: Recorder::new(client, Reporter { controller: names::FIELD_MANAGER.into(), instance }),
        }
    }

    /// Tells what changed from one status to the next. An Event that can't be published is logged, never retried: the
    /// status has said it already.
    pub(super) async fn tell(&self, sandbox: &AgentSandbox, new: &AgentSandboxStatus) {
        let reference = sandbox.object_ref(&());
        let old = sandbox.status.as_ref();
        for event in chapter(old, new).into_iter().chain(ports(old, new)).chain(suspected(old, new)) {
            kubernetes::publish(&self.recorder, &event, &reference, CALL_TIMEOUT).await;
        }
    }
}

fn condition(status: &AgentSandboxStatus, kind: ConditionType) -> Option<&Condition> {
    status.conditions.iter().find(|condition| condition.type_ == kind.as_str())
}

/// A condition, if it says something else than before.
fn news(
    kind: ConditionType,
    old: Option<&AgentSandboxStatus>,
    new: &AgentSandboxStatus,
) -> Option<Condition> {
    let now = condition(new, kind)?;
    let before = old.and_then(|old| condition(old, kind));
    let same = before.is_some_and(|before| before.reason == now.reason && before.status == now.status);
    (!same).then(|| now.clone())
}

fn event(kind: ConditionType, now: Condition, good: bool) -> Event {
    Event {
        type_: if good { EventType::Normal } else { EventType::Warning },
        reason: now.reason,
        note: Some(kubernetes::cut(now.message, kubernetes::NOTE_BYTES)),
        action: kind.as_str().into(),
        secondary: None,
    }
}

/// That hosts get no ports of their own is told beside whatever else happened.
fn ports(old: Option<&AgentSandboxStatus>, new: &AgentSandboxStatus) -> Option<Event> {
    let now = news(ConditionType::NamedPorts, old, new)?;
    (now.status == "False").then(|| event(ConditionType::NamedPorts, now, false))
}

/// That it is suspected, too.
fn suspected(old: Option<&AgentSandboxStatus>, new: &AgentSandboxStatus) -> Option<Event> {
    let now = news(ConditionType::Suspected, old, new)?;
    Some(event(ConditionType::Suspected, now, false))
}

/// The Event that a change of status is worth.
fn chapter(old: Option<&AgentSandboxStatus>, new: &AgentSandboxStatus) -> Option<Event> {
    let kind = match new.phase? {
        Phase::Succeeded | Phase::Failed | Phase::Expired => {
            match condition(new, ConditionType::TeardownStalled) {
                Some(stalled) if stalled.status == "True" => ConditionType::TeardownStalled,
                _ => ConditionType::Finished,
            }
        }
        Phase::Pending | Phase::Starting => ConditionType::Ready,
        Phase::Running => match condition(new, ConditionType::Accepted) {
            Some(accepted) if accepted.status == "False" => ConditionType::Accepted,
            _ => ConditionType::Ready,
        },
    };
    let now = news(kind, old, new)?;
    let good = matches!(new.phase?, Phase::Running | Phase::Succeeded | Phase::Expired | Phase::Starting)
        && kind != ConditionType::TeardownStalled
        && kind != ConditionType::Accepted
        && now.reason != Reason::FenceOpen.as_str();
    Some(event(kind, now, good))
}
