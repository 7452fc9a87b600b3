//! What a class says of sandboxes whose acts look like an attack, and what is said of such a sandbox.
#![expect(unreachable_pub, reason = "deriving KubeSchema copies each type into a function")]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// When a sandbox counts as suspected, and what becomes of it.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Detection {
    /// So many different acts that no honest client does are enough.
    #[serde(default = "default_severe_acts")]
    #[schemars(range(min = 1, max = 16))]
    pub severe_acts: i32,

    /// So many points are enough: 15 for each of those acts, 3 for what is suspicious, 1 for a host that no rule names. Repeats
    /// count once.
    #[serde(default = "default_score")]
    #[schemars(range(min = 10, max = 120))]
    pub score: i32,

    /// What becomes of it.
    #[serde(default)]
    pub action: SuspicionAction,
}

const fn default_severe_acts() -> i32 {
    3
}

const fn default_score() -> i32 {
    60
}

impl Default for Detection {
    fn default() -> Self {
        Self {
            severe_acts: default_severe_acts(),
            score: default_score(),
            action: SuspicionAction::default(),
        }
    }
}

/// What becomes of a sandbox that is suspected, from the mildest on. What was done is never taken back.
#[derive(
    JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default,
)]
pub enum SuspicionAction {
    /// It is told, and nothing else.
    Report,
    /// It gets one new connection and 8 KiB to the outside a second through the gateway, and no address past it.
    Throttle,
    /// It reaches nothing any more. It runs on, and takes calls, so that it can be looked into.
    #[default]
    DenyAll,
    /// It is ended, with the reason `Suspected`.
    Terminate,
}

impl SuspicionAction {
    /// The spelling.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Report => "Report",
            Self::Throttle => "Throttle",
            Self::DenyAll => "DenyAll",
            Self::Terminate => "Terminate",
        }
    }

    /// Whether nothing may be reached any more.
    #[must_use]
    pub const fn denies_all(self) -> bool {
        matches!(self, Self::DenyAll | Self::Terminate)
    }
}

/// What a sandbox did that looks like an attack.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Suspicion {
    /// How many different acts that no honest client does.
    #[schemars(range(min = 0))]
    pub severe_acts: i32,
    /// All points.
    #[schemars(range(min = 0))]
    pub score: i32,
    /// What it did, the worst first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(max = 256)))]
    pub signs: Vec<String>,
    /// What became of it. Absent while that is not enough.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<SuspicionAction>,
    /// Since when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
}
