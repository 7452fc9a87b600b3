//! Where a sandbox stands and what comes next: one pure function from what was seen to a step. The end of a sandbox is
//! first recorded in its status and then acted on, so that whoever dies in between finds it again.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::{
    Plan, Refusal,
    podview::{PodEnd, PodView},
    world::World,
};
use crate::api::{AgentSandbox, ConditionType, Isolation, Phase, Reason, Span};

mod living;
mod pending;

pub(super) use living::fence_seen_by;
pub use pending::breach_message;

/// A start that takes longer than this is told in the status; a quicker one needs no write of its own.
const SLOW_START: SignedDuration = SignedDuration::from_secs(10);
/// How long after its grace period a pod may still be there before that is called stalled.
const STALLED: SignedDuration = SignedDuration::from_secs(60);
/// How soon a clock that jumped is noticed.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// How soon something is looked at again that no event will tell of.
const SHORT_WAIT: Duration = Duration::from_secs(1);

/// What comes next, and what is true now.
#[derive(Clone, Debug, PartialEq)]
pub struct Next {
    /// What to do.
    pub step: Step,
    /// What to say.
    pub state: State,
    /// When to look again, if nothing happens before.
    pub wait: Duration,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing.
    Nothing,
    /// Make all objects, the pod last, with this deadline in seconds.
    Create(i64),
    /// Keep the objects around a living pod as they should be.
    Keep,
    /// Close what the rules had opened: they are not valid any more.
    Close,
    /// As `Keep`, and lower the pod's own deadline to so many seconds after its start.
    LowerDeadline(i64),
    /// Delete the pod; before the status is written only if `at_once`.
    DeletePod {
        /// The time is over, and will be however often this is computed: act first, tell later.
        at_once: bool,
    },
    /// Delete the object.
    DeleteSandbox,
}

/// What is true of the sandbox.
#[derive(Clone, Debug, PartialEq)]
pub enum State {
    /// Refused, or waiting for something outside, before there is a pod.
    Pending(Refusal),
    /// The pod is being made or started.
    Starting {
        /// What holds it up.
        problem: Option<(Reason, String)>,
        /// Whether it is worth a write.
        tell: bool,
    },
    /// The workload runs. A refusal is of an edit that came later.
    Running {
        /// Since when.
        since: Timestamp,
        /// The kernel below.
        isolation: Isolation,
        /// What is wrong with the spec as it is now.
        refused: Option<Refusal>,
    },
    /// It ended.
    Ended(Ending),
    /// It had ended before; the status stays, but for a pod that does not go.
    Over {
        /// The pod should have gone by then.
        stalled_since: Option<Timestamp>,
    },
    /// The object is being deleted.
    Deleting,
}

/// How a sandbox ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ending {
    /// Summary.
    pub phase: Phase,
    /// Why.
    pub reason: Reason,
    /// In words.
    pub message: String,
    /// The workload's exit code.
    pub exit_code: Option<i32>,
    /// When.
    pub at: Timestamp,
}

impl Ending {
    fn new(reason: Reason, message: impl Into<String>, at: Timestamp) -> Self {
        let phase = match reason {
            Reason::Completed => Phase::Succeeded,
            Reason::TtlExpired | Reason::IdleTimeout => Phase::Expired,
            _ => Phase::Failed,
        };
        Self { phase, reason, message: message.into(), exit_code: None, at }
    }

    fn of_pod(end: &PodEnd, now: Timestamp) -> Self {
        Self { exit_code: end.exit_code, ..Self::new(end.reason, end.message.clone(), end.at.unwrap_or(now)) }
    }
}

/// When the sandbox's time is over. A living pod's deadline bounds it: it can only be lowered.
#[must_use]
pub fn expires_at(world: &World, plan: Result<&Plan, &Refusal>, pod: Option<&PodView>) -> Option<Timestamp> {
    let default = world.class.as_ref().ok().map(|class| class.spec.ttl.default);
    let ttl = plan.map(|plan| plan.ttl).ok().or(world.sandbox.spec.ttl).or(default);
    let own = ttl.map(|ttl| after(world.created(), ttl));
    let of_pod = pod.and_then(|pod| {
        Some(after(
            pod.started_at.unwrap_or(pod.created),
            Span::from_secs(u64::try_from(pod.active_deadline?).ok()?),
        ))
    });
    let known =
        world.sandbox.status.as_ref().and_then(|status| status.expires_at.as_ref()).map(|time| time.0);
    // A ttl that was raised against the class's will has no plan: what was known stays.
    let bound = if plan.is_err() { [known, of_pod] } else { [of_pod, None] };
    own.into_iter().chain(bound.into_iter().flatten()).min()
}

/// A span after a time; the end of all times where that is later.
pub(super) fn after(start: Timestamp, span: Span) -> Timestamp {
    SignedDuration::try_from(span.duration())
        .ok()
        .and_then(|span| start.checked_add(span).ok())
        .unwrap_or(Timestamp::MAX)
}

/// Whether a refusal takes back what egress rules had opened: half of them, or older ones, are nobody's intent.
pub(super) const fn closes(refusal: &Refusal) -> bool {
    matches!(refusal.reason, Reason::EgressRejected | Reason::PolicyNotFound)
}

/// Whether the status says that the sandbox ended.
#[must_use]
pub fn is_finished(sandbox: &AgentSandbox) -> bool {
    let conditions = sandbox.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    conditions
        .iter()
        .any(|condition| condition.type_ == ConditionType::Finished.as_str() && condition.status == "True")
}

/// The step to take now.
#[must_use]
pub fn next(world: &World, plan: Result<&Plan, &Refusal>, now: Timestamp) -> Next {
    let pod = world.own_pod().map(|pod| PodView::read(pod, world.pod_node().map(AsRef::as_ref)));
    if world.sandbox.metadata.deletion_timestamp.is_some() {
        return Next { step: Step::Nothing, state: State::Deleting, wait: LONGEST_WAIT };
    }
    if is_finished(&world.sandbox) {
        return over(world, pod.as_ref(), now);
    }
    let expires = expires_at(world, plan, pod.as_ref());
    if let Some(expires) = expires
        && now >= expires
        && !pod.as_ref().is_some_and(|pod| pod.ended_before(expires))
    {
        let ending =
            Ending::new(Reason::TtlExpired, format!("the time to live was over at {expires:.0}"), now);
        let step = if pod.is_some() { Step::DeletePod { at_once: true } } else { Step::Nothing };
        return Next { step, state: State::Ended(ending), wait: SHORT_WAIT };
    }
    let mut next = match pod {
        Some(pod) => living::next(world, plan, &pod, now),
        None => pending::next(world, plan, expires, now),
    };
    if let Some(expires) = expires.filter(|expires| now < *expires) {
        next.wait = next.wait.min(until(expires, now));
    }
    next.wait = next.wait.min(LONGEST_WAIT);
    next
}

fn until(then: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(then.duration_since(now)).unwrap_or(Duration::ZERO)
}

fn over(world: &World, pod: Option<&PodView>, now: Timestamp) -> Next {
    let finished = world
        .sandbox
        .status
        .as_ref()
        .and_then(|status| status.finished_at.as_ref())
        .map_or(now, |time| time.0);
    let keep_until = after(finished, world.sandbox.spec.ttl_after_finished);
    let stalled_since = pod
        .and_then(|pod| pod.deleting_until)
        .and_then(|until| until.checked_add(STALLED).ok())
        .filter(|stalled| now >= *stalled);
    let state = State::Over { stalled_since };
    // A pod whose workload ended by itself stays as long as the object, so that its log can be read. One that we end goes,
    // even if the kubelet was first to end it.
    match pod {
        Some(pod) if (ended_by_us(&world.sandbox) || !pod.is_ended()) && pod.deleting_until.is_none() => {
            Next { step: Step::DeletePod { at_once: false }, state, wait: SHORT_WAIT }
        }
        Some(PodView { deleting_until: Some(gone), .. }) => {
            let stalled = gone.checked_add(STALLED).unwrap_or(*gone);
            Next { step: Step::Nothing, state, wait: until(stalled, now).clamp(SHORT_WAIT, LONGEST_WAIT) }
        }
        _ if now >= keep_until => Next { step: Step::DeleteSandbox, state, wait: LONGEST_WAIT },
        _ => Next { step: Step::Nothing, state, wait: until(keep_until, now).min(LONGEST_WAIT) },
    }
}

/// Whether the recorded end is one that the controller brings about.
fn ended_by_us(sandbox: &AgentSandbox) -> bool {
    let reason = sandbox.status.as_ref().and_then(|status| status.reason.as_deref());
    [
        Reason::TtlExpired,
        Reason::IdleTimeout,
        Reason::StartupDeadlineExceeded,
        Reason::IsolationMismatch,
        Reason::FenceOpen,
        Reason::Suspected,
    ]
    .iter()
    .any(|ours| reason == Some(ours.as_str()))
}

fn seconds_ceil(span: SignedDuration) -> i64 {
    span.as_secs() + i64::from(span.subsec_nanos() > 0)
}

fn slow(world: &World, now: Timestamp) -> bool {
    now.duration_since(world.created()) >= SLOW_START
}
