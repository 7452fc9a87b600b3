//! The status of a `SandboxClass`: what the controller answers. Written by nobody else.
#![expect(unreachable_pub, reason = "deriving KubeSchema copies each type into a function")]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is true of a class, as last seen.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Default)]
#[serde(rename_all = "camelCase")]
pub struct SandboxClassStatus {
    /// RuntimeAvailable.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,

    /// The generation of the spec that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// Nodes that could run its pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1_000_000))]
    pub eligible_nodes: Option<i32>,

    /// Sandboxes of this class that have not ended, as of the last half minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100_000_000))]
    pub sandboxes: Option<i32>,

    /// What became of the sandbox that was tried for this class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe: Option<Probe>,
}

/// What became of the sandbox that was tried for a class.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Probe {
    /// Generation of the class and uid of its RuntimeClass that were tried.
    #[schemars(length(max = 128))]
    pub of: String,
    /// How it ended.
    pub outcome: ProbeOutcome,
    /// In words.
    #[schemars(length(max = 512))]
    pub message: String,
    /// When it ended.
    pub at: Time,
}

/// How a trial ended.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeOutcome {
    /// It ran on what the class promises.
    Passed,
    /// It met a weaker kernel than the class promises: no sandbox of the class is started.
    Weaker,
    /// It did not run; it is tried again.
    Failed,
}
