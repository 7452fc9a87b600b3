//! While there is a pod: whether it starts in time, runs on what was promised, and how it ended.

use std::time::Duration;

use jiff::Timestamp;

use super::{Ending, LONGEST_WAIT, Next, SHORT_WAIT, State, Step, after, closes, seconds_ceil, slow, until};
use crate::{
    api::{Isolation, Reason, Span, SuspicionAction},
    sandbox::{
        Plan, Refusal, idle,
        podview::{Kernel, PodState, PodView, Watch},
        suspicion,
        world::World,
    },
};

/// Within this an open fence must be noticed.
const FENCE_NOTICED: Span = Span::from_secs(15);
/// How soon those who may know of a use are asked again when not all of them answered.
const ASKED_AGAIN: Duration = Duration::from_secs(5);
/// How far a pod's own deadline may lie behind the sandbox's before it is lowered.
const DEADLINE_SLACK: i64 = 2;

/// What comes next with a pod.
pub(super) fn next(world: &World, plan: Result<&Plan, &Refusal>, pod: &PodView, now: Timestamp) -> Next {
    match &pod.state {
        PodState::Ended(end) => {
            let step = if pod.deleting_until.is_none() && end.reason == Reason::IsolationMismatch {
                Step::DeletePod { at_once: false }
            } else {
                Step::Nothing
            };
            Next { step, state: State::Ended(Ending::of_pod(end, now)), wait: SHORT_WAIT }
        }
        PodState::Starting(problem) => starting(world, plan, pod, problem.clone(), now),
        PodState::Running(since) => match &pod.kernel {
            // The init container ends well only behind a proven fence: one that says less is not ours.
            Some(Kernel::Seen { report, .. }) if report.fence_rounds() == 0 => {
                end(Reason::FenceOpen, "the workload runs behind a fence that was not proven", now)
            }
            Some(Kernel::Seen { isolation, .. }) => running(world, plan, pod, *since, *isolation, now),
            Some(Kernel::NodeUnknown) => Next {
                step: Step::Nothing,
                state: State::Starting { problem: None, tell: slow(world, now) },
                wait: SHORT_WAIT,
            },
            Some(Kernel::Unreadable(why)) => mismatch(format!("the kernel report can't be read: {why}"), now),
            None => mismatch("the workload runs without a kernel report", now),
        },
    }
}

/// Ends a sandbox whose pod still lives.
fn end(reason: Reason, message: impl Into<String>, now: Timestamp) -> Next {
    let ending = Ending::new(reason, message, now);
    Next { step: Step::DeletePod { at_once: false }, state: State::Ended(ending), wait: SHORT_WAIT }
}

fn mismatch(message: impl Into<String>, now: Timestamp) -> Next {
    end(Reason::IsolationMismatch, message, now)
}

fn starting(
    world: &World,
    plan: Result<&Plan, &Refusal>,
    pod: &PodView,
    problem: Option<(Reason, String)>,
    now: Timestamp,
) -> Next {
    let allowed = plan.map_or_else(
        |_| world.class.as_ref().ok().map(|class| class.spec.startup_deadline),
        |plan| Some(plan.class.startup_deadline),
    );
    let deadline = allowed.map_or(Timestamp::MAX, |allowed| after(pod.created, allowed));
    if now >= deadline {
        let why = problem.map_or_else(
            || "the runtime did not start it".to_owned(),
            |(reason, message)| format!("{}: {message}", reason.as_str()),
        );
        let allowed = allowed.map(|span| span.to_string()).unwrap_or_default();
        let message = format!("the workload did not run within {allowed}: {why}");
        return end(Reason::StartupDeadlineExceeded, message, now);
    }
    let tell = problem.is_some() || slow(world, now);
    let wait = if tell {
        until(deadline, now)
    } else {
        until(deadline, now).min(until(after(world.created(), Span::from_secs(10)), now).max(SHORT_WAIT))
    };
    Next { step: keep(plan), state: State::Starting { problem, tell }, wait }
}

/// Rules that are not valid any more open nothing, even if they did before.
fn keep(plan: Result<&Plan, &Refusal>) -> Step {
    match plan {
        Err(refusal) if closes(refusal) => Step::Close,
        Err(_) => Step::Nothing,
        Ok(_) => Step::Keep,
    }
}

fn running(
    world: &World,
    plan: Result<&Plan, &Refusal>,
    pod: &PodView,
    since: Timestamp,
    isolation: Isolation,
    now: Timestamp,
) -> Next {
    let promised =
        world.class.as_ref().ok().map(|class| {
            (class.spec.runtime.isolation, class.spec.runtime.accept_weaker_isolation.is_some())
        });
    // Without the class the promise is not known; it was checked when the sandbox became ready.
    let checked = world.sandbox.status.as_ref().is_some_and(|status| status.ready_at.is_some());
    match promised {
        Some((promised, false)) if isolation < promised => {
            let message = format!(
                "seen from inside: {}, but the class promises {}",
                isolation.as_str(),
                promised.as_str()
            );
            return mismatch(message, now);
        }
        None if !checked => {
            return mismatch("the class is gone, so its promise can't be checked", now);
        }
        _ => {}
    }
    let suspected = suspicion::judge(world, now).filter(|suspicion| suspicion.action.is_some());
    if let Some(suspicion) = suspected.as_ref().filter(|it| it.action == Some(SuspicionAction::Terminate)) {
        return end(Reason::Suspected, suspicion::message(suspicion), now);
    }
    let idle = world.last_use.and_then(|last| Some((idle::due(world, since, last.at)?, last.asked)));
    if let Some((due, true)) = idle.filter(|(due, _)| now >= *due) {
        let allowed = idle::timeout(world).map(|span| span.to_string()).unwrap_or_default();
        let message = format!(
            "no call, no file and no byte of egress for {allowed}, which was over at {due:.0}; spec.idleTimeout says how long that may be"
        );
        return end(Reason::IdleTimeout, message, now);
    }
    let refused = plan.err().cloned();
    let shut = suspected.is_some_and(|suspicion| suspicion.action > Some(SuspicionAction::Report));
    let step = match (plan, lower(world, pod)) {
        // Its addresses past the gateway, too; its time to live is seen to without the pod's own deadline.
        _ if shut => Step::Close,
        (Ok(_), Some(seconds)) => Step::LowerDeadline(seconds),
        _ => keep(plan),
    };
    let wait = match pod.watch {
        Watch::Unseen => until(fence_seen_by(since), now).max(SHORT_WAIT),
        Watch::None | Watch::Holds | Watch::Fell => LONGEST_WAIT,
    };
    let wait = match idle {
        Some((due, _)) if now >= due => wait.min(ASKED_AGAIN),
        Some((due, _)) => wait.min(until(due, now)),
        None => wait,
    };
    Next { step, state: State::Running { since, isolation, refused }, wait }
}

/// By then the kubelet has seen the fence hold, if it does.
pub(in crate::sandbox) fn fence_seen_by(since: Timestamp) -> Timestamp {
    after(since, FENCE_NOTICED)
}

/// The pod's own deadline in seconds after its start, where it lies too far behind the sandbox's.
fn lower(world: &World, pod: &PodView) -> Option<i64> {
    let class = world.class.as_ref().ok()?;
    if class.spec.ttl.extendable {
        return None;
    }
    let ttl = world.sandbox.spec.ttl.unwrap_or(class.spec.ttl.default);
    let started = pod.started_at?;
    let want = seconds_ceil(after(world.created(), ttl).duration_since(started)).max(1);
    (pod.active_deadline? > want + DEADLINE_SLACK).then_some(want)
}
