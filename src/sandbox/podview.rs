//! What a pod's status says, read once and strictly. Texts from inside a sandbox are hostile: only parsed values leave
//! this module.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{
    ContainerState, ContainerStateTerminated, ContainerStatus, Node, Pod, PodCondition,
};

use super::names;
use crate::{
    api::{Isolation, Reason},
    report::{self, ExitRecord, KernelReport},
};

mod watch;

pub use watch::Watch;

const NOT_ENFORCED: &str = "the network of this node does not enforce NetworkPolicy, see docs/egress.md";
/// How much of a message from the cluster is passed on, in characters.
const MESSAGE_CHARS: usize = 400;

/// What was seen of a pod.
#[derive(Clone, Debug, PartialEq)]
pub struct PodView {
    /// When it was made.
    pub created: Timestamp,
    /// When the kubelet took it.
    pub started_at: Option<Timestamp>,
    /// When the pod must be gone, once it was told to go (deletion time and grace).
    pub deleting_until: Option<Timestamp>,
    /// Its own deadline in seconds from `started_at`.
    pub active_deadline: Option<i64>,
    /// Its address.
    pub ip: Option<String>,
    /// Its node.
    pub node: Option<String>,
    /// The kernel that init saw; `None` until init ended well.
    pub kernel: Option<Kernel>,
    /// When the workload began to run, even if it ended since.
    pub ran_since: Option<Timestamp>,
    /// What the kubelet sees of the fence while the workload runs, where it is the one to look.
    pub watch: Watch,
    /// Where it stands.
    pub state: PodState,
}

/// What the kernel report amounts to.
#[derive(Clone, Debug, PartialEq)]
pub enum Kernel {
    /// Seen, and comparable with the node's.
    Seen {
        /// Whose kernel it is.
        isolation: Isolation,
        /// The report.
        report: Box<KernelReport>,
    },
    /// The report is good, but the node's boot id is not known yet.
    NodeUnknown,
    /// Init ended well without a report that can be read: nothing is known, so nothing may be assumed.
    Unreadable(String),
}

/// Where a pod stands.
#[derive(Clone, Debug, PartialEq)]
pub enum PodState {
    /// Not running yet; what it waits for, if that is a problem.
    Starting(Option<(Reason, String)>),
    /// The workload runs since then.
    Running(Timestamp),
    /// It ended.
    Ended(PodEnd),
}

/// How a pod ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodEnd {
    /// Why.
    pub reason: Reason,
    /// In words.
    pub message: String,
    /// The workload's exit code, if its supervisor recorded one or the runtime says so.
    pub exit_code: Option<i32>,
    /// When.
    pub at: Option<Timestamp>,
}

impl PodView {
    /// Reads a pod. `node` is the node that it runs on, if known.
    #[must_use]
    pub fn read(pod: &Pod, node: Option<&Node>) -> Self {
        let status = pod.status.clone().unwrap_or_default();
        let init = container(status.init_container_statuses.as_deref(), names::INIT_CONTAINER);
        let workload = container(status.container_statuses.as_deref(), names::WORKLOAD_CONTAINER);
        let spec = pod.spec.as_ref();
        Self {
            created: pod.metadata.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0),
            started_at: status.start_time.as_ref().map(|time| time.0),
            deleting_until: pod.metadata.deletion_timestamp.as_ref().map(|time| time.0),
            active_deadline: spec.and_then(|spec| spec.active_deadline_seconds),
            ip: status.pod_ip.clone().filter(|ip| !ip.is_empty()),
            node: spec.and_then(|spec| spec.node_name.clone()),
            kernel: init.and_then(terminated).filter(|end| end.exit_code == 0).map(|end| kernel(end, node)),
            ran_since: workload.and_then(ran_since),
            watch: Watch::read(pod, workload),
            state: state(pod, init, workload),
        }
    }

    /// Whether the pod's containers have all ended.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        matches!(self.state, PodState::Ended(_))
    }

    /// Whether the workload is known to have ended before `then`.
    #[must_use]
    pub fn ended_before(&self, then: Timestamp) -> bool {
        matches!(&self.state, PodState::Ended(PodEnd { at: Some(at), .. }) if *at < then)
    }
}

fn container<'a>(all: Option<&'a [ContainerStatus]>, name: &str) -> Option<&'a ContainerStatus> {
    all.unwrap_or_default().iter().find(|status| status.name == name)
}

fn terminated(status: &ContainerStatus) -> Option<&ContainerStateTerminated> {
    status.state.as_ref()?.terminated.as_ref()
}

fn ran_since(status: &ContainerStatus) -> Option<Timestamp> {
    let ContainerState { running, terminated, .. } = status.state.as_ref()?;
    let started = running
        .as_ref()
        .map_or_else(|| terminated.as_ref()?.started_at.as_ref(), |running| running.started_at.as_ref());
    started.map(|time| time.0)
}

fn kernel(end: &ContainerStateTerminated, node: Option<&Node>) -> Kernel {
    let report = match report::parse_report(end.message.as_deref().unwrap_or_default()) {
        Ok(report) => Box::new(report),
        Err(why) => return Kernel::Unreadable(why.to_string()),
    };
    if report.gvisor {
        return Kernel::Seen { isolation: Isolation::UserspaceKernel, report };
    }
    let boot_id =
        node.and_then(|node| node.status.as_ref()?.node_info.as_ref()).map(|info| info.boot_id.as_str());
    match boot_id {
        None | Some("") => Kernel::NodeUnknown,
        Some(id) if id.eq_ignore_ascii_case(&report.boot_id) => {
            Kernel::Seen { isolation: Isolation::SharedKernel, report }
        }
        Some(_) => Kernel::Seen { isolation: Isolation::VirtualMachine, report },
    }
}

fn state(pod: &Pod, init: Option<&ContainerStatus>, workload: Option<&ContainerStatus>) -> PodState {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("Pending");
    if matches!(phase, "Succeeded" | "Failed") {
        return PodState::Ended(end(pod, init, workload));
    }
    if let Some(end) = init.and_then(terminated).filter(|end| end.exit_code != 0) {
        return PodState::Ended(init_end(end));
    }
    let last = workload.and_then(terminated);
    if let Some(disruption) = disruption(pod, last) {
        return PodState::Ended(disruption);
    }
    if let Some(last) = last {
        return PodState::Ended(workload_end(last));
    }
    let running = workload.and_then(|status| status.state.as_ref()).and_then(|state| state.running.as_ref());
    match running {
        Some(running) => {
            PodState::Running(running.started_at.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0))
        }
        None => PodState::Starting(waiting(pod, init, workload)),
    }
}

fn end(pod: &Pod, init: Option<&ContainerStatus>, workload: Option<&ContainerStatus>) -> PodEnd {
    let status = pod.status.clone().unwrap_or_default();
    let message = clip(status.message.as_deref().unwrap_or_default());
    let whole = |reason, message| PodEnd { reason, message, exit_code: None, at: None };
    match status.reason.as_deref() {
        Some("Evicted") => return whole(Reason::Evicted, message),
        Some("DeadlineExceeded") => {
            return whole(Reason::TtlExpired, "the kubelet ended the pod at its own deadline".into());
        }
        Some("NodeShutdown" | "Shutdown" | "Terminated" | "NodeLost") => {
            return whole(Reason::NodeDrained, message);
        }
        _ => {}
    }
    if let Some(end) = init.and_then(terminated).filter(|end| end.exit_code != 0) {
        return init_end(end);
    }
    let last = workload.and_then(terminated);
    if let Some(disruption) = disruption(pod, last) {
        return disruption;
    }
    if let Some(last) = last {
        workload_end(last)
    } else {
        let reason = clip(status.reason.as_deref().unwrap_or("no reason given"));
        whole(Reason::SandboxCreationFailed, format!("the node did not start the pod: {reason} {message}"))
    }
}

/// Somebody or something told the pod to go before its time, and before its workload ended by itself.
fn disruption(pod: &Pod, last: Option<&ContainerStateTerminated>) -> Option<PodEnd> {
    let target = condition(pod, "DisruptionTarget").filter(|condition| condition.status == "True");
    let told = target.and_then(|target| target.last_transition_time.as_ref()).map(|time| time.0);
    let deleted = pod.metadata.deletion_timestamp.as_ref().map(|gone| {
        let grace = SignedDuration::from_secs(pod.metadata.deletion_grace_period_seconds.unwrap_or_default());
        gone.0.checked_sub(grace).unwrap_or(gone.0)
    });
    if target.is_none() && deleted.is_none() {
        return None;
    }
    let ended = last.and_then(|last| last.finished_at.as_ref()).map(|time| time.0);
    if let (Some(ended), Some(first)) = (ended, [told, deleted].into_iter().flatten().min())
        && ended < first
    {
        return None;
    }
    let (reason, fallback) = match target.and_then(|condition| condition.reason.as_deref()) {
        Some("EvictionByEvictionAPI") => {
            (Reason::NodeDrained, "evicted through the API, as a drain of the node does")
        }
        Some("DeletionByTaintManager") => (Reason::NodeDrained, "the node is gone or does not answer"),
        Some("DeletionByPodGC") => (Reason::NodeDrained, "the node does not exist any more"),
        Some("TerminationByKubelet") => (Reason::Evicted, "evicted by the kubelet"),
        Some("PreemptionByScheduler") => (Reason::Evicted, "preempted by a pod of higher priority"),
        _ => (Reason::PodDeleted, "the pod was deleted by somebody else"),
    };
    let said =
        target.and_then(|condition| condition.message.as_deref()).map(clip).filter(|text| !text.is_empty());
    let message = said.map_or_else(|| fallback.to_owned(), |said| format!("{fallback}: {said}"));
    Some(PodEnd { reason, message, exit_code: None, at: None })
}

fn init_end(end: &ContainerStateTerminated) -> PodEnd {
    let at = end.finished_at.as_ref().map(|time| time.0);
    let parsed = report::parse_report(end.message.as_deref().unwrap_or_default());
    let (reason, message) = match (u8::try_from(end.exit_code), parsed) {
        (Ok(report::EXIT_ISOLATION_MISMATCH), Ok(report)) => {
            let seen = if report.gvisor { "gVisor's user-space kernel" } else { "a weaker kernel" };
            (Reason::IsolationMismatch, format!("seen from inside before the workload started: {seen}"))
        }
        (Ok(report::EXIT_FENCE_OPEN), Ok(report)) => {
            let seen = report.fence.and_then(|fence| fence.open).unwrap_or_else(|| "an address".into());
            (
                Reason::FenceOpen,
                format!("{seen} must not be reachable and was, before the workload started; {NOT_ENFORCED}"),
            )
        }
        (Ok(report::EXIT_GATEWAY_UNREACHABLE), Ok(report)) => {
            let seen = report.fence.and_then(|fence| fence.missing).unwrap_or_else(|| "any address".into());
            (
                Reason::GatewayUnreachable,
                format!(
                    "from inside, the gateway does not answer at {seen}; look at the Deployment {}",
                    names::GATEWAY
                ),
            )
        }
        _ => {
            let why = end.reason.as_deref().map(clip).unwrap_or_default();
            let said = end.message.as_deref().map(clip).unwrap_or_default();
            (
                Reason::SandboxCreationFailed,
                format!("the init container ended with code {} ({why}): {said}", end.exit_code),
            )
        }
    };
    PodEnd { reason, message, exit_code: None, at }
}

/// Success needs the supervisor's record: a VM that was killed is reported as exit 0 by some runtimes.
fn workload_end(end: &ContainerStateTerminated) -> PodEnd {
    let at = end.finished_at.as_ref().map(|time| time.0);
    let record = report::parse_exit_record(end.message.as_deref().unwrap_or_default()).ok();
    let agrees = record.as_ref().filter(|record| i32::from(record.process_exit_code()) == end.exit_code);
    let oom =
        end.reason.as_deref() == Some("OOMKilled") || agrees.and_then(|record| record.oom) == Some(true);
    let done = |reason, message: String| PodEnd { reason, message, exit_code: Some(end.exit_code), at };
    if let Some(open) = agrees.and_then(|record| record.fence_open.as_deref()) {
        let message = if open == report::FENCE_UNKNOWN {
            "the fence could not be tried any more, so that nothing proves it; the agent ended the workload"
                .to_owned()
        } else {
            format!(
                "{open} must not be reachable and came to be; the agent ended the workload; {NOT_ENFORCED}"
            )
        };
        return PodEnd { reason: Reason::FenceOpen, message, exit_code: None, at };
    }
    match (end.exit_code, agrees) {
        (0, Some(_)) => done(Reason::Completed, "the workload ended with exit code 0".into()),
        (0, None) => PodEnd {
            reason: Reason::Error,
            message:
                "the container ended without the record of its supervisor, so its exit code 0 proves nothing"
                    .into(),
            exit_code: None,
            at,
        },
        (code, _) if oom => done(
            Reason::OOMKilled,
            format!("the workload used more memory than its limit (exit code {code})"),
        ),
        (code, Some(record)) => done(Reason::Error, how(code, record)),
        (code, None) => done(
            Reason::Error,
            format!("the container ended with exit code {code}, without the record of its supervisor"),
        ),
    }
}

fn how(code: i32, record: &ExitRecord) -> String {
    match (&record.spawn_error, record.signal) {
        (Some(error), _) => format!("the workload could not be started (exit code {code}): {error}"),
        (None, Some(signal)) => format!("the workload was ended by signal {signal}"),
        (None, None) => format!("the workload ended with exit code {code}"),
    }
}

/// What a pod that does not run yet waits for, if it is a problem rather than ordinary progress.
fn waiting(
    pod: &Pod,
    init: Option<&ContainerStatus>,
    workload: Option<&ContainerStatus>,
) -> Option<(Reason, String)> {
    if let Some(scheduled) = condition(pod, "PodScheduled")
        && scheduled.status == "False"
    {
        return Some((
            Reason::Unschedulable,
            clip(scheduled.message.as_deref().unwrap_or("the scheduler finds no node")),
        ));
    }
    [init, workload].into_iter().flatten().find_map(|status| {
        let ContainerState { waiting: Some(waiting), .. } = status.state.as_ref()? else { return None };
        let message = clip(waiting.message.as_deref().unwrap_or_default());
        let name = waiting.reason.as_deref().unwrap_or_default();
        let reason = match name {
            "ErrImagePull"
            | "ImagePullBackOff"
            | "InvalidImageName"
            | "ErrImageNeverPull"
            | "ImageInspectError"
            | "RegistryUnavailable" => Reason::ImagePullFailed,
            "CreateContainerConfigError"
            | "CreateContainerError"
            | "RunContainerError"
            | "CrashLoopBackOff" => Reason::ContainerStartFailed,
            _ => return None,
        };
        Some((reason, format!("container {:?}: {name}: {message}", status.name)))
    })
}

fn condition<'a>(pod: &'a Pod, name: &str) -> Option<&'a PodCondition> {
    pod.status.as_ref()?.conditions.as_ref()?.iter().find(|condition| condition.type_ == name)
}

/// Bounded, one line, printable: messages of the kubelet can quote what a workload wrote.
fn clip(text: &str) -> String {
    let clean = |c: char| {
        if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}') { ' ' } else { c }
    };
    let mut clipped: String = text.chars().map(clean).take(MESSAGE_CHARS).collect();
    if text.chars().count() > MESSAGE_CHARS {
        clipped.push('…');
    }
    clipped
}
