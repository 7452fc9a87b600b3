//! Before there is a pod: what is in its way, and with what deadline it is made.

use jiff::Timestamp;

use super::{Ending, LONGEST_WAIT, Next, SHORT_WAIT, State, Step, after, seconds_ceil, slow};
use crate::{
    api::{ConditionType, Probe, ProbeOutcome, Reason},
    sandbox::{
        Plan, Refusal, names, quota, runtime,
        world::{PodSlot, World, taken},
    },
};

/// What comes next without a pod.
pub(super) fn next(
    world: &World,
    plan: Result<&Plan, &Refusal>,
    expires: Option<Timestamp>,
    now: Timestamp,
) -> Next {
    let status = world.sandbox.status.as_ref();
    if status.is_some_and(|status| status.started_at.is_some()) {
        // It had a pod. An ephemeral sandbox is replaced, not started again.
        let ending =
            Ending::new(Reason::PodDeleted, "the pod is gone; a sandbox is never started twice", now);
        return Next { step: Step::Nothing, state: State::Ended(ending), wait: SHORT_WAIT };
    }
    let pending = |refusal: Refusal, wait| Next { step: Step::Nothing, state: State::Pending(refusal), wait };
    let plan = match plan {
        Ok(plan) => plan,
        // References are looked up, not watched.
        Err(refusal) if refusal.condition == ConditionType::ResolvedRefs => {
            return pending(refusal.clone(), 5 * SHORT_WAIT);
        }
        Err(refusal) => return pending(refusal.clone(), LONGEST_WAIT),
    };
    if let Some((reason, message)) = plan.runtime.blocking() {
        let refusal =
            Refusal { condition: ConditionType::RuntimeAvailable, reason: *reason, message: message.clone() };
        return pending(refusal, LONGEST_WAIT);
    }
    if let Some(probe) = weaker(world) {
        let ending = Ending::new(Reason::IsolationMismatch, probe.message.clone(), now);
        return Next { step: Step::Nothing, state: State::Ended(ending), wait: SHORT_WAIT };
    }
    if let PodSlot::Taken { by, former } = &world.pod {
        let problem = (!former).then_some((Reason::SandboxCreationFailed, taken(&plan.name, by)));
        let state = State::Starting { tell: problem.is_some(), problem };
        return Next { step: Step::Nothing, state, wait: 5 * SHORT_WAIT };
    }
    if world.gateway.is_none() {
        let message = format!(
            "the Service {}/{} does not exist or has no address yet, and without the gateway no fence is proven; look at that namespace's Deployment of the same name",
            world.settings.namespace,
            names::GATEWAY
        );
        let refusal =
            Refusal { condition: ConditionType::FenceVerified, reason: Reason::GatewayUnreachable, message };
        return pending(refusal, LONGEST_WAIT);
    }
    if let Some(policy) = &world.breach {
        let refusal = Refusal {
            condition: ConditionType::Ready,
            reason: Reason::FenceOpen,
            message: breach_message(policy),
        };
        return pending(refusal, LONGEST_WAIT);
    }
    if let Some(message) = world
        .quota
        .as_ref()
        .and_then(|quota| quota::excess(quota, plan.limits, world.runtime_class.as_deref()))
    {
        let refusal = Refusal { condition: ConditionType::Ready, reason: Reason::QuotaExceeded, message };
        return pending(refusal, LONGEST_WAIT);
    }
    let end = if plan.pod_ttl > plan.ttl { Some(after(world.created(), plan.pod_ttl)) } else { expires };
    let remaining = end.map_or(i64::MAX, |end| seconds_ceil(end.duration_since(now)));
    let state = State::Starting { problem: None, tell: slow(world, now) };
    Next { step: Step::Create(remaining), state, wait: LONGEST_WAIT }
}

/// What to say of somebody else's policy that would open the fence.
#[must_use]
pub fn breach_message(policy: &str) -> String {
    format!(
        "NetworkPolicy {policy:?} of this namespace lets traffic through for sandbox pods, and policies add up; give its podSelector the matchExpressions entry {{key: {}, operator: DoesNotExist}}",
        names::SANDBOX_LABEL
    )
}

/// A trial of the class that met a weaker kernel: nothing more needs to be tried, least of all untrusted code.
fn weaker(world: &World) -> Option<&Probe> {
    let class = world.class.as_ref().ok()?;
    runtime::probed(class, world.runtime_class.as_deref())
        .filter(|probe| probe.outcome == ProbeOutcome::Weaker)
}
