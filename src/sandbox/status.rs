//! What is said of a sandbox. Computed for success and failure alike; a status that differs from the last one only in
//! times is not worth a write.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use super::{
    Plan, Refusal, enforcement,
    lifecycle::{self, Ending, Next, State},
    named::View,
    podview::{Kernel, PodEnd, PodState, PodView, Watch},
    suspicion,
    world::World,
};
use crate::api::{AgentSandboxStatus, ConditionType, Isolation, Phase, Reason};

/// What is said of a workload that runs on behind an open fence.
const FELL: &str = "from inside, what is forbidden was reached or could not be tried; the workload runs on, since the class says onFenceOpen: Report; see docs/egress.md";

/// The status to write, or `None` where the present one says it already.
#[must_use]
pub fn status(
    world: &World,
    plan: Result<&Plan, &Refusal>,
    next: &Next,
    now: Timestamp,
) -> Option<AgentSandboxStatus> {
    if matches!(next.state, State::Starting { tell: false, .. } | State::Deleting) {
        return None;
    }
    let old = world.sandbox.status.clone().unwrap_or_default();
    let pod = world.own_pod().map(|pod| PodView::read(pod, world.pod_node().map(AsRef::as_ref)));
    let mut draft = Draft { world, plan, pod: pod.as_ref(), now, status: old.clone() };
    match &next.state {
        State::Pending(refusal) => draft.pending(refusal),
        State::Starting { problem, .. } => draft.starting(problem.as_ref()),
        State::Running { since, isolation, refused } => draft.running(*since, *isolation, refused.as_ref()),
        State::Ended(ending) => draft.ended(ending),
        State::Over { stalled_since } => draft.over(*stalled_since),
        State::Deleting => {}
    }
    let new = draft.status;
    (new != old).then_some(new)
}

struct Draft<'a> {
    world: &'a World,
    plan: Result<&'a Plan, &'a Refusal>,
    pod: Option<&'a PodView>,
    now: Timestamp,
    status: AgentSandboxStatus,
}

impl Draft<'_> {
    fn generation(&self) -> Option<i64> {
        self.world.sandbox.metadata.generation
    }

    /// Sets a condition; its transition time moves only with its status.
    fn set(&mut self, kind: ConditionType, holds: bool, reason: Reason, message: impl Into<String>) {
        let status = if holds { "True" } else { "False" };
        let known = self.status.conditions.iter_mut().find(|condition| condition.type_ == kind.as_str());
        let since = known
            .as_ref()
            .filter(|known| known.status == status)
            .map(|known| known.last_transition_time.clone());
        let condition = Condition {
            type_: kind.as_str().into(),
            status: status.into(),
            reason: reason.as_str().into(),
            message: message.into(),
            last_transition_time: since.unwrap_or(Time(self.now)),
            observed_generation: self.world.sandbox.metadata.generation,
        };
        match known {
            Some(known) => *known = condition,
            None => self.status.conditions.push(condition),
        }
    }

    /// What is the same whatever the state: generation, class, what the pod says.
    fn common(&mut self) {
        self.status.observed_generation = self.generation();
        if let Ok(class) = &self.world.class {
            self.status.class_name.clone_from(&class.metadata.name);
            self.status.runtime_class_name.clone_from(&class.spec.runtime.runtime_class_name);
        }
        let expires = lifecycle::expires_at(self.world, self.plan, self.pod).map(whole_seconds);
        self.status.expires_at = expires.or_else(|| self.status.expires_at.take());
        match self.plan {
            Ok(plan) => {
                self.status.execution = Some(plan.execution.clone());
                self.status.egress_rules = i32::try_from(plan.egress_rules).ok();
            }
            Err(refusal) if lifecycle::closes(refusal) => self.status.egress_rules = Some(0),
            Err(_) => {}
        }
        self.suspicion();
        let Some(pod) = self.pod else { return };
        self.status.pod_name.clone_from(&self.world.sandbox.metadata.name);
        self.status.pod_ip = pod.ip.clone().or_else(|| self.status.pod_ip.take());
        self.status.node_name = pod.node.clone().or_else(|| self.status.node_name.take());
        self.status.started_at = self.status.started_at.take().or_else(|| pod.started_at.map(Time));
        let promised = self.world.class.as_ref().ok().map(|class| class.spec.due_isolation());
        if let Some(Kernel::Seen { isolation, .. }) = &pod.kernel {
            self.status.runtime = Some(runtime_name(*isolation, promised));
            self.status.enforcement =
                enforcement::describe(pod, promised, self.world.breach.as_deref(), self.fell());
        }
    }

    /// What it did that looks like an attack.
    fn suspicion(&mut self) {
        self.status.suspicion = suspicion::judge(self.world, self.now);
        if let Some(known) = self.status.suspicion.clone().filter(|known| known.action.is_some()) {
            let reason = suspicion::reason(self.world, &known);
            self.set(ConditionType::Suspected, true, reason, suspicion::message(&known));
        }
    }

    /// Whether the workload runs behind a fence that is open, or that nobody saw closed for too long.
    fn fell(&self) -> bool {
        self.pod.is_some_and(|pod| match (&pod.state, pod.watch) {
            (PodState::Running(_), Watch::Fell) => true,
            (PodState::Running(since), Watch::Unseen) => self.now >= lifecycle::fence_seen_by(*since),
            _ => false,
        })
    }

    /// What is known of the fence from inside.
    fn fence(&mut self) {
        let Some(pod) = self.pod else { return };
        let proven = match &pod.kernel {
            Some(Kernel::Seen { report, .. }) => report.fence_rounds(),
            _ => 0,
        };
        match &pod.state {
            PodState::Ended(PodEnd {
                reason: reason @ (Reason::FenceOpen | Reason::GatewayUnreachable),
                message,
                ..
            }) => {
                self.set(ConditionType::FenceVerified, false, *reason, message);
            }
            PodState::Running(_) if self.fell() => {
                self.set(ConditionType::FenceVerified, false, Reason::FenceOpen, FELL);
            }
            _ if proven > 0 => {
                let message = format!(
                    "seen from inside {proven} times in a row: what is forbidden is out of reach, the gateway within"
                );
                self.set(ConditionType::FenceVerified, true, Reason::FenceHolds, message);
            }
            PodState::Starting(_) => {
                let message = "the workload starts once the fence is seen to hold from inside";
                self.set(ConditionType::FenceVerified, false, Reason::Probing, message);
            }
            PodState::Running(_) | PodState::Ended(_) => {}
        }
    }

    /// Whether hosts that need ports of their own have them. Nothing is said while they are about to be made.
    fn named(&mut self) {
        match &self.world.named {
            View::None => self
                .status
                .conditions
                .retain(|condition| condition.type_ != ConditionType::NamedPorts.as_str()),
            View::Waiting => {}
            View::Assigned => {
                let message = "hosts of rules with protocol TCP are reached by name at the rules' ports";
                self.set(ConditionType::NamedPorts, true, Reason::PortsAssigned, message);
            }
            View::Lacking(which) => {
                let message = format!(
                    "no port of the gateway is left for {which}; CONNECT through the proxy reaches it, and so do TLS on port 443 and HTTP on port 80"
                );
                self.set(ConditionType::NamedPorts, false, Reason::NoPortsLeft, message);
            }
        }
    }

    /// Accepted, ResolvedRefs and RuntimeAvailable, as far as a refusal lets them be judged.
    fn judged(&mut self, refusal: Option<&Refusal>) {
        let steps = [
            (ConditionType::Accepted, Reason::Accepted, "the spec is valid within its class"),
            (ConditionType::ResolvedRefs, Reason::Resolved, "every reference exists"),
            (ConditionType::RuntimeAvailable, Reason::Available, "the runtime can start the sandbox"),
        ];
        for (kind, reason, message) in steps {
            if let Some(refusal) = refusal.filter(|refusal| refusal.condition == kind) {
                self.set(kind, false, refusal.reason, &refusal.message);
                return;
            }
            let problem = self.plan.ok().and_then(|plan| plan.runtime.problem.clone());
            match problem.filter(|_| kind == ConditionType::RuntimeAvailable) {
                Some((reason, message)) => self.set(kind, false, reason, message),
                None => self.set(kind, true, reason, message),
            }
        }
    }

    fn pending(&mut self, refusal: &Refusal) {
        self.common();
        self.status.phase = Some(Phase::Pending);
        // What was true of an older spec says nothing of this one.
        self.status
            .conditions
            .retain(|condition| condition.observed_generation == self.world.sandbox.metadata.generation);
        self.judged(Some(refusal));
        self.set(ConditionType::Ready, false, refusal.reason, &refusal.message);
        self.status.reason = Some(refusal.reason.as_str().into());
    }

    fn starting(&mut self, problem: Option<&(Reason, String)>) {
        self.common();
        // The pod may have been taken by a node meanwhile; only a running workload makes its loss final.
        self.status.started_at = None;
        self.status.phase = Some(Phase::Starting);
        self.judged(self.plan.err());
        self.fence();
        let (reason, message) =
            problem.cloned().unwrap_or_else(|| (Reason::Starting, "the pod is being started".into()));
        self.status.reason = Some(reason.as_str().into());
        self.set(ConditionType::Ready, false, reason, message);
    }

    fn running(&mut self, since: Timestamp, isolation: Isolation, refused: Option<&Refusal>) {
        self.common();
        self.status.phase = Some(Phase::Running);
        self.status.reason = None;
        self.status.ready_at = self.status.ready_at.take().or(Some(Time(since)));
        self.judged(refused);
        self.fence();
        self.named();
        if self.fell() {
            self.status.reason = Some(Reason::FenceOpen.as_str().into());
            self.set(ConditionType::Ready, false, Reason::FenceOpen, FELL);
            return;
        }
        let message = if self.world.sandbox.spec.command.is_empty() {
            format!("waits for calls on {}", enforcement::name(isolation))
        } else {
            format!("the workload runs on {}", enforcement::name(isolation))
        };
        self.set(ConditionType::Ready, true, Reason::Running, message);
    }

    fn ended(&mut self, ending: &Ending) {
        self.common();
        self.status.phase = Some(ending.phase);
        self.status.reason = Some(ending.reason.as_str().into());
        self.status.exit_code = ending.exit_code;
        // A workload that was quick ended before anybody saw it run.
        self.status.ready_at = self.status.ready_at.take().or_else(|| self.pod?.ran_since.map(Time));
        self.status.finished_at = self.status.finished_at.take().or(Some(Time(ending.at)));
        if self.pod.is_some_and(|pod| pod.kernel.is_some() || pod.is_ended()) {
            self.judged(self.plan.err());
            self.fence();
        }
        // It reaches nothing any more.
        self.status.conditions.retain(|condition| condition.type_ != ConditionType::NamedPorts.as_str());
        // One that ended before its fence was proven tries nothing any more.
        self.status.conditions.retain(|condition| condition.reason != Reason::Probing.as_str());
        self.set(ConditionType::Ready, false, Reason::Finished, "the sandbox ended");
        self.set(ConditionType::Finished, true, ending.reason, &ending.message);
    }

    fn over(&mut self, stalled_since: Option<Timestamp>) {
        let told = self
            .status
            .conditions
            .iter()
            .any(|condition| condition.type_ == ConditionType::TeardownStalled.as_str());
        match stalled_since {
            Some(_) => {
                let node = self.pod.and_then(|pod| pod.node.clone()).unwrap_or_else(|| "unknown".into());
                let message = format!(
                    "the pod was told to go and is still on node {node:?}; look at its runtime's shim there. It is not deleted by force, since its VM might run on"
                );
                self.set(ConditionType::TeardownStalled, true, Reason::PodNotGone, message);
            }
            None if told => {
                self.set(ConditionType::TeardownStalled, false, Reason::Finished, "the pod is gone");
            }
            None => {}
        }
    }
}

/// As the API keeps times: a fraction would never be read back, and be written for ever.
fn whole_seconds(at: Timestamp) -> Time {
    Time(Timestamp::from_second(at.as_second()).unwrap_or(at))
}

fn runtime_name(seen: Isolation, promised: Option<Isolation>) -> String {
    let name = enforcement::name(seen);
    match promised {
        Some(promised) if seen < promised => format!("{name} (weaker than {})", promised.as_str()),
        _ => name.to_owned(),
    }
}
