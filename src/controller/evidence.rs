//! What the controller says of a sandbox's life: made by which class, running, ended and why, or refused.

use super::context::Context;
use crate::{
    api::{
        AgentSandbox, AgentSandboxStatus, ApprovalPhase, ConditionType, EgressApproval, EgressApprovalStatus,
        Phase, SuspicionAction,
    },
    audit::{Act, Endpoint, NotRecorded, Record, Subject, about, now, printable},
    sandbox::{Plan, World, suspicion},
};

/// Longest message, in characters.
const MOST_CHARS: usize = 512;

fn subject(world: &World, plan: &Plan) -> Subject {
    let exception =
        world.class.as_ref().ok().and_then(|class| class.spec.runtime.accept_weaker_isolation.as_ref());
    Subject {
        class: Some(plan.class.name.clone()),
        runtime: plan.class.runtime_class.clone(),
        exception: exception.map(|why| printable(why, MOST_CHARS)),
        ..about::subject(&world.sandbox)
    }
}

fn created(world: &World, plan: &Plan) -> Record {
    let message = format!("image {}", plan.image);
    Record { message: Some(printable(&message, MOST_CHARS)), ..Record::new(Act::SandboxCreated, now()) }
        .about(subject(world, plan))
}

/// Before a pod is made: on the record, where nothing may be that is not.
pub(super) async fn creates(context: &Context, world: &World, plan: &Plan) -> Result<(), NotRecorded> {
    context.recorder.before_if_closed(|| created(world, plan)).await
}

/// A pod was made.
pub(super) fn made(context: &Context, world: &World, plan: &Plan) {
    context.recorder.say(|| created(world, plan));
}

/// What changed from one status to the next, if it is worth a record.
pub(super) fn changed(context: &Context, sandbox: &AgentSandbox, new: &AgentSandboxStatus) {
    if context.recorder.is_on() {
        let records = [edited(sandbox, new), suspected(sandbox, new), news(sandbox, new)];
        for record in records.into_iter().flatten() {
            context.recorder.say(|| record);
        }
    }
}

/// What it asks for is something else than when its status was written last.
fn edited(sandbox: &AgentSandbox, new: &AgentSandboxStatus) -> Option<Record> {
    // Whoever deletes it raises the generation, too.
    if sandbox.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let before = sandbox.status.as_ref()?.observed_generation?;
    let message = format!("spec generation {}", new.observed_generation.filter(|now| *now != before)?);
    let record = Record { message: Some(message), ..Record::new(Act::SandboxChanged, now()) };
    Some(record.about(about::subject(sandbox)))
}

/// What becomes of a sandbox that came to be suspected, or of which more becomes than before.
pub(super) fn newly_suspected(
    old: Option<&AgentSandboxStatus>,
    new: &AgentSandboxStatus,
) -> Option<SuspicionAction> {
    let action = |status: &AgentSandboxStatus| status.suspicion.as_ref()?.action;
    action(new).filter(|now| Some(*now) > old.and_then(action))
}

fn suspected(sandbox: &AgentSandbox, new: &AgentSandboxStatus) -> Option<Record> {
    let action = newly_suspected(sandbox.status.as_ref(), new)?;
    let message = suspicion::message(new.suspicion.as_ref()?);
    let record = Record {
        severity_id: 4,
        message: Some(printable(&message, MOST_CHARS)),
        ..Record::new(Act::SandboxSuspected, now())
    };
    Some(record.failed(action.as_str()).about(about::subject(sandbox)))
}

fn news(sandbox: &AgentSandbox, new: &AgentSandboxStatus) -> Option<Record> {
    let old = sandbox.status.as_ref();
    let accepted = |status: &AgentSandboxStatus| {
        let mut all = status.conditions.iter();
        all.find(|one| one.type_ == ConditionType::Accepted.as_str())
            .map(|one| (one.status.clone(), one.reason.clone(), one.message.clone()))
    };
    let mut record = match new.phase? {
        phase if old.and_then(|old| old.phase) == Some(phase) => {
            let now = accepted(new)?;
            let refused = now.0 == "False" && old.and_then(accepted).is_none_or(|before| before != now);
            return refused.then(|| refusal(sandbox, now.1, &now.2));
        }
        Phase::Pending => {
            let now = accepted(new)?;
            return (now.0 == "False").then(|| refusal(sandbox, now.1, &now.2));
        }
        Phase::Starting => return None,
        Phase::Running => Record::new(Act::SandboxStarted, now()),
        Phase::Succeeded => Record::new(Act::SandboxEnded, now()),
        Phase::Failed | Phase::Expired => Record::new(Act::SandboxEnded, now()).failed(""),
    };
    record.status_detail.clone_from(&new.reason);
    record.message = new.exit_code.map(|code| format!("exit code {code}"));
    // As it is from now on.
    let told = AgentSandbox { status: Some(new.clone()), ..sandbox.clone() };
    Some(record.about(about::subject(&told)))
}

/// Who wants what, and by which name it is asked for.
fn approval(act: Act, approval: &EgressApproval) -> Record {
    let spec = &approval.spec;
    let end = Endpoint {
        hostname: Some(spec.host.clone()),
        port: u16::try_from(spec.port).unwrap_or_default(),
        ..Endpoint::default()
    };
    let subject = Subject {
        uid: spec.sandbox.uid.clone(),
        namespace: approval.metadata.namespace.clone().unwrap_or_default(),
        name: spec.sandbox.name.clone(),
        requester: spec.sandbox.requester.as_ref().map(|who| printable(who, MOST_CHARS)),
        ..Subject::default()
    };
    Record { dst_endpoint: Some(end), rule: approval.metadata.name.clone(), ..Record::new(act, now()) }
        .about(subject)
}

/// A person is asked.
pub(super) fn asked(context: &Context, asked: &EgressApproval) {
    context.recorder.say(|| approval(Act::EgressAsked, asked));
}

/// What became of a question, if that is something else than before.
pub(super) fn decided(context: &Context, known: &EgressApproval, status: &EgressApprovalStatus) {
    let before = known.status.as_ref();
    let same = before.is_some_and(|old| {
        old.phase == status.phase && old.observed_generation == status.observed_generation
    });
    if same || status.phase == ApprovalPhase::Pending {
        return;
    }
    let decision = known.spec.decision.as_ref();
    context.recorder.say(|| {
        let words = decision.and_then(|decision| decision.reason.as_deref()).or(status.message.as_deref());
        let record = Record {
            actor: decision.map(|decision| printable(&decision.by, MOST_CHARS)),
            message: words.map(|words| printable(words, MOST_CHARS)),
            status_detail: Some(status.phase.as_str().to_owned()),
            ..approval(Act::EgressDecided, known)
        };
        let good = status.phase == ApprovalPhase::Approved;
        if good { record } else { record.failed(status.phase.as_str()) }
    });
}

fn refusal(sandbox: &AgentSandbox, reason: String, message: &str) -> Record {
    Record { message: Some(printable(message, MOST_CHARS)), ..Record::new(Act::SandboxRefused, now()) }
        .failed(reason)
        .about(about::subject(sandbox))
}
