//! The status of an `AgentSandbox`: what the controller answers. Written by nobody else.
#![expect(unreachable_pub, reason = "deriving KubeSchema copies each type into a function")]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ExecutionStatus, Suspicion};

/// A summary of the conditions.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Not started: refused, or waiting for something outside.
    Pending,
    /// The pod exists, the workload does not run yet.
    Starting,
    /// The workload runs or waits for calls.
    Running,
    /// The workload ended with exit code 0.
    Succeeded,
    /// It ended otherwise.
    Failed,
    /// Its time was over.
    Expired,
}

impl Phase {
    /// The spelling in `status.phase`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Starting => "Starting",
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
            Self::Expired => "Expired",
        }
    }

    /// Whether the sandbox ended.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Expired)
    }
}

/// What is true of a sandbox, as last seen.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Default)]
#[serde(rename_all = "camelCase")]
pub struct AgentSandboxStatus {
    /// Summary of the conditions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,

    /// Accepted, ResolvedRefs, RuntimeAvailable, Ready, Finished, and Suspected and TeardownStalled where they apply.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,

    /// The generation of the spec that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// The class that was used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub class_name: Option<String>,

    /// The pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub pod_name: Option<String>,

    /// The pod's address.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "podIP")]
    #[schemars(length(max = 64))]
    pub pod_ip: Option<String>,

    /// The node that it runs on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub node_name: Option<String>,

    /// The RuntimeClass that the pod was made with; absent for the cluster's default runtime.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub runtime_class_name: Option<String>,

    /// The kernel that was really seen from inside, in a few words; weaker than promised is said here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub runtime: Option<String>,

    /// How many egress rules are in force, its own and those of the policies that it names; 0 while they are refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub egress_rules: Option<i32>,

    /// When the pod was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,

    /// When the workload began to run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_at: Option<Time>,

    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Time>,

    /// When its time to live is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Time>,

    /// The workload's exit code, as its supervisor saw it; 128 + N if signal N ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,

    /// Why it ended: Completed, Error, TtlExpired, IdleTimeout, StartupDeadlineExceeded, OOMKilled, Evicted,
    /// IsolationMismatch, Suspected, NodeDrained, PodDeleted, or why it could not start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub reason: Option<String>,

    /// What it did that looks like an attack. Absent where it did nothing of the kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspicion: Option<Suspicion>,

    /// What calls into it are held to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution: Option<ExecutionStatus>,

    /// What really holds here, and by which mechanism.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enforcement: Option<Enforcement>,
}

/// What really holds in a sandbox.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Enforcement {
    /// A kernel of its own, as strong as the class promises.
    pub kernel_isolation: Enforced,
    /// The image's files can't be written.
    pub read_only_root: Enforced,
    /// The workspace can't grow over its size.
    pub workspace_quota: Enforced,
    /// The disk can't be filled.
    pub disk_quota: Enforced,
    /// Nothing leaves but what the rules allow.
    pub egress_fence: Enforced,
    /// System calls are filtered.
    pub seccomp: Enforced,
    /// Its users are none of the node's.
    pub user_namespace: Enforced,
    /// Protected files can't be written.
    pub protected_paths: Enforced,
}

/// Whether a control holds.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnforcedState {
    /// It was seen to hold, or holds by construction.
    Enforced,
    /// It does not hold here.
    NotEnforced,
    /// It was not, or can't be, seen.
    Unknown,
}

/// A control's state and its mechanism.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Enforced {
    /// Whether it holds.
    pub state: EnforcedState,
    /// What enforces it, or why nothing does.
    #[schemars(length(max = 256))]
    pub mechanism: String,
}
