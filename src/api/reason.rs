//! The one list of reasons. A reason labels a condition, an Event and a metric alike, so that a person who sees it in
//! one place finds it in the others.

/// Condition types of [`crate::api::AgentSandbox`] and [`crate::api::SandboxClass`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConditionType {
    /// The spec is valid within its class.
    Accepted,
    /// Each object that the spec names exists and may be used.
    ResolvedRefs,
    /// The class's runtime can start it.
    RuntimeAvailable,
    /// Seen from inside: what is forbidden can't be reached while the gateway can.
    FenceVerified,
    /// Each host of a rule with protocol TCP has ports of the gateway's own, so that it is reached without the proxy. Only on
    /// sandboxes with such rules.
    NamedPorts,
    /// The workload runs (or waits for calls).
    Ready,
    /// What it did looks like an attack. Only on such sandboxes; never goes back.
    Suspected,
    /// It ended; never goes back.
    Finished,
    /// The pod was told to go and has not gone.
    TeardownStalled,
}

impl ConditionType {
    /// The spelling in `status.conditions[].type`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "Accepted",
            Self::ResolvedRefs => "ResolvedRefs",
            Self::RuntimeAvailable => "RuntimeAvailable",
            Self::FenceVerified => "FenceVerified",
            Self::NamedPorts => "NamedPorts",
            Self::Ready => "Ready",
            Self::Suspected => "Suspected",
            Self::Finished => "Finished",
            Self::TeardownStalled => "TeardownStalled",
        }
    }
}

macro_rules! reasons {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// Why a condition has its status, or why a sandbox ended.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Reason { $($(#[doc = $doc])+ $name,)+ }

        impl Reason {
            /// Every reason, for tests and reference documents.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// The spelling in conditions, Events and metrics.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)+ }
            }

            /// One sentence for the reference documents.
            #[must_use]
            pub const fn description(self) -> &'static str {
                match self { $(Self::$name => concat!($($doc,)+),)+ }
            }
        }
    };
}

reasons! {
    /// The spec is valid within its class.
    Accepted,
    /// Every reference exists.
    Resolved,
    /// The runtime can start the sandbox.
    Available,
    /// The workload runs.
    Running,
    /// The pod is being started.
    Starting,
    /// The spec is not valid; the message names the field.
    InvalidSpec,
    /// The class, or a default class, does not exist.
    ClassNotFound,
    /// The namespace may not use the class.
    ClassNotPermitted,
    /// The spec asks for more than its class allows.
    ExceedsClass,
    /// An egress rule is outside of the class's ceiling or inside of what is always denied.
    EgressRejected,
    /// An EgressPolicy that the spec names does not exist.
    PolicyNotFound,
    /// A ConfigMap that the spec names does not exist.
    ConfigMapNotFound,
    /// A PersistentVolumeClaim that the spec names does not exist.
    PersistentVolumeClaimNotFound,
    /// The RuntimeClass does not exist.
    RuntimeClassNotFound,
    /// The RuntimeClass has another handler than the class promises.
    RuntimeClassHandlerMismatch,
    /// No node fits the RuntimeClass's and the class's scheduling.
    NoEligibleNode,
    /// Every eligible node says that it does not serve the handler.
    RuntimeHandlerNotServed,
    /// A pod of the runtime was tried and did not start, or ran on a weaker kernel than promised.
    RuntimeProbeFailed,
    /// The namespace's quota for the class is used up.
    QuotaExceeded,
    /// The agent tries from inside what must be unreachable.
    Probing,
    /// From inside, what is forbidden was unreachable several times in a row while the gateway answered.
    FenceHolds,
    /// The network lets a sandbox reach what the fence forbids: seen from inside, or a NetworkPolicy of somebody else would.
    FenceOpen,
    /// The gateway does not answer, so that no fence can be proven and no name be reached.
    GatewayUnreachable,
    /// Each host that needs them has ports of the gateway's own.
    PortsAssigned,
    /// No port of the gateway's own is left for a host; it is reached through the proxy alone.
    NoPortsLeft,
    /// The scheduler finds no node.
    Unschedulable,
    /// The pod could not be created, or another object has its name.
    SandboxCreationFailed,
    /// The API server can't be reached or answers with errors; tried again.
    ApiUnavailable,
    /// The image can't be pulled.
    ImagePullFailed,
    /// A container can't be created or started.
    ContainerStartFailed,
    /// The sandbox ended.
    Finished,
    /// The workload ended with exit code 0.
    Completed,
    /// The workload ended with another exit code.
    Error,
    /// The time to live is over.
    TtlExpired,
    /// Nobody used it for its idle timeout.
    IdleTimeout,
    /// The workload did not run within the class's startup deadline.
    StartupDeadlineExceeded,
    /// The workload used more memory than its limit.
    OOMKilled,
    /// The kubelet evicted the pod, mostly for disk use.
    Evicted,
    /// The kernel seen from inside is weaker than the class promises.
    IsolationMismatch,
    /// It did what looks like an attack, and its class says that such a sandbox ends.
    Suspected,
    /// It did so many different things that no honest client does.
    SevereActs,
    /// What it did that looks like an attack came to so many points.
    ScoreReached,
    /// The node went away or was drained.
    NodeDrained,
    /// The pod was deleted by somebody else.
    PodDeleted,
    /// The pod was told to go and is still there a minute after its grace period.
    PodNotGone,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_what_conditions_accept() {
        for reason in Reason::ALL {
            let text = reason.as_str();
            assert!(text.len() <= 64 && text.bytes().all(|b| b.is_ascii_alphanumeric()), "{text}");
            assert!(reason.description().ends_with('.'), "{text}");
        }
    }
}
