//! One pass over one sandbox: observe -> plan -> lifecycle -> apply -> status.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use kube::{Resource, ResourceExt};

use super::{
    apply, approvals,
    context::{Context, Guarded},
    error::ApplyError,
    evidence,
    observe::observe,
    record, seats,
};
use crate::{
    api::{AgentSandbox, AgentSandboxStatus, ConditionType, Reason},
    audit::NotRecorded,
    sandbox::{
        self, Plan, Refusal, World,
        lifecycle::{self, Next, State, Step},
        status,
    },
};

/// Brings one sandbox a step further, at the time `now`. Says when to look again, if nothing happens before.
///
/// # Errors
/// Whatever call failed; the status has been told where it is worth it.
pub async fn reconcile(
    guarded: Arc<Guarded<AgentSandbox>>,
    context: Arc<Context>,
    now: Timestamp,
) -> Result<Duration, ApplyError> {
    let sandbox = match &guarded.0 {
        Ok(sandbox) => context.newest(Arc::new(sandbox.clone())),
        Err(invalid) => {
            record::record_invalid(&context, invalid).await?;
            return Err(ApplyError::Poisoned(invalid.error.clone()));
        }
    };
    let world = observe(&context, sandbox, now).await?;
    let plan = sandbox::plan(&world);
    let plan = plan.as_ref();
    let mut next = lifecycle::next(&world, plan, now);
    let acted = if first(&next) {
        let acted = act(&context, &world, plan, &next.step, now).await;
        tell(&context, &world, plan, &mut next, acted.as_ref().err(), now).await?;
        acted
    } else {
        // The end is recorded before the pod goes: whoever takes over must not start it again.
        tell(&context, &world, plan, &mut next, None, now).await?;
        act(&context, &world, plan, &next.step, now).await
    };
    let ended = matches!(next.state, State::Ended(_) | State::Over { .. });
    if ended || sandbox::credentials::is_over(&world, plan.is_ok()) {
        apply::revoke(&context, &world).await?;
    }
    acted?;
    if let Some(wait) = approvals::keep(&context, &world, now).await {
        next.wait = next.wait.min(wait);
    }
    if let Some(uid) = world.sandbox.uid() {
        context.succeeded(&uid);
    }
    Ok(next.wait.max(Duration::from_millis(5)))
}

/// Whether to act before telling.
fn first(next: &Next) -> bool {
    !matches!(next.step, Step::DeletePod { at_once: false } | Step::DeleteSandbox)
}

async fn act(
    context: &Context,
    world: &World,
    plan: Result<&Plan, &Refusal>,
    step: &Step,
    now: Timestamp,
) -> Result<(), ApplyError> {
    match (step, plan) {
        (Step::Create(deadline), Ok(plan)) => {
            let _seat = seats::take(context, world, plan, now)?;
            let recorded = evidence::creates(context, world, plan).await;
            recorded.map_err(|NotRecorded| ApplyError::NotRecorded)?;
            let applied = apply::apply(context, world, sandbox::desired(plan, *deadline)).await?;
            context.metrics.pod_created(&plan.class.name, world.created(), now);
            let uid = applied.pod.uid();
            tracing::info!(sandbox = %plan.name, namespace = %plan.namespace, class = %plan.class.name, pod_uid = uid, "pod created");
            evidence::made(context, world, plan);
            context.made(world.sandbox.uid().as_deref().unwrap_or_default(), applied.pod, now);
            Ok(())
        }
        (Step::Keep, Ok(plan)) => apply::keep(context, world, sandbox::desired(plan, 1)).await,
        (Step::LowerDeadline(seconds), Ok(plan)) => {
            apply::keep(context, world, sandbox::desired(plan, 1)).await?;
            apply::lower_deadline(context, world, *seconds).await
        }
        (Step::Close, _) => {
            apply::fence(context, world).await?;
            apply::close(context, world).await
        }
        // A spec that is not valid any more is no reason to leave the fence as somebody made it.
        (Step::Nothing, Err(_)) if world.own_pod().is_some() => apply::fence(context, world).await,
        (Step::DeletePod { .. }, _) => apply::delete_pod(context, world).await,
        (Step::DeleteSandbox, _) => apply::delete_sandbox(context, world).await,
        (Step::Nothing, _) | (Step::Create(_) | Step::Keep | Step::LowerDeadline(_), Err(_)) => Ok(()),
    }
}

/// Writes what is true now, a failure that is worth telling included.
async fn tell(
    context: &Context,
    world: &World,
    plan: Result<&Plan, &Refusal>,
    next: &mut Next,
    failure: Option<&ApplyError>,
    now: Timestamp,
) -> Result<(), ApplyError> {
    if let Some((reason, message)) = failure.and_then(ApplyError::told)
        && world.own_pod().is_none()
        && matches!(next.state, State::Starting { .. })
    {
        next.state = State::Pending(Refusal { condition: ConditionType::Ready, reason, message });
    }
    let Some(status) = status::status(world, plan, next, now) else { return Ok(()) };
    record::record(context, &world.sandbox, &status).await?;
    evidence::changed(context, &world.sandbox, &status);
    let old = world.sandbox.status.as_ref();
    if let Some(action) = evidence::newly_suspected(old, &status) {
        context.metrics.suspected(status.class_name.as_deref().unwrap_or_default(), action.as_str());
    }
    // A workload that runs on behind an open fence stays in its phase; that it came to be open counts all the same.
    let fell = |status: &AgentSandboxStatus| status.reason.as_deref() == Some(Reason::FenceOpen.as_str());
    let news = old.and_then(|old| old.phase) != status.phase || (fell(&status) && !old.is_some_and(fell));
    if let Some(phase) = status.phase.filter(|_| news) {
        let reason = status.reason.as_deref().unwrap_or("Running");
        context.metrics.phase(status.class_name.as_deref().unwrap_or_default(), phase, reason);
        tracing::info!(sandbox = %world.sandbox.name_any(), namespace = world.sandbox.namespace(), phase = phase.as_str(), reason, "phase changed");
    }
    context.story.tell(&world.sandbox, &status).await;
    Ok(())
}

/// Counts a failure. Says when to try again: the table has the wait, doubled with each failure in a row.
pub fn failed(guarded: &Guarded<AgentSandbox>, error: &ApplyError, context: &Context) -> Duration {
    let class = error.class();
    let policy = class.policy();
    context.metrics.failure(policy.label);
    let failures = context.failed(guarded.meta().uid.as_deref().unwrap_or_default());
    let wait = policy.wait(failures);
    tracing::warn!(sandbox = %guarded.name_any(), namespace = guarded.namespace(), class = policy.label, failures, ?wait, %error, "reconcile failed");
    wait
}
