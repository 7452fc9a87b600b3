//! How long calls into a sandbox may take, how much they may say and how many may run at once: bounds of a class, wishes of a
//! sandbox, and what holds.
#![expect(unreachable_pub, reason = "deriving KubeSchema copies each type into a function")]

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Quantity, Span};

/// What each call into the sandbox is held to; a call may ask for less. What is absent comes from the class.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq, Default)]
#[serde(rename_all = "camelCase")]
pub struct Execution {
    /// How long a call may take, from its start until all of its processes are killed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = ("duration(self) > duration('0s')", "spec.execution.timeout must be more than 0s"))]
    pub timeout: Option<Span>,

    /// How much of a call's output is handed over; what is beyond is counted and dropped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output_bytes: Option<Quantity>,

    /// How many calls may run at once; another one is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1024))]
    pub max_concurrent: Option<u16>,
}

impl Execution {
    /// Whether nothing is wished for.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Bounds of calls into sandboxes.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq, Default)]
#[serde(rename_all = "camelCase")]
pub struct ExecutionBounds {
    /// How long a call may take.
    #[serde(default)]
    pub timeout: TimeoutBounds,

    /// How much of a call's output is handed over.
    #[serde(default)]
    pub max_output_bytes: OutputBounds,

    /// How many calls may run at once in one sandbox.
    #[serde(default)]
    pub max_concurrent: ConcurrencyBounds,
}

/// Bounds of how long a call may take.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("duration(self.default) <= duration(self.max)", "spec.execution.timeout.default may be at most spec.execution.timeout.max"))]
#[x_kube(validation = ("duration(self.default) > duration('0s')", "spec.execution.timeout.default must be more than 0s"))]
pub struct TimeoutBounds {
    /// For a call that does not say it, in a sandbox that does not.
    #[serde(default = "half_a_minute")]
    pub default: Span,

    /// The most that a sandbox, or a call in one that says nothing, may ask for.
    #[serde(default = "ten_minutes")]
    pub max: Span,
}

fn half_a_minute() -> Span {
    Span::from_secs(30)
}

fn ten_minutes() -> Span {
    Span::from_secs(600)
}

impl Default for TimeoutBounds {
    fn default() -> Self {
        Self { default: half_a_minute(), max: ten_minutes() }
    }
}

/// Bounds of how much of a call's output is handed over.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("!isQuantity(self.default) || !isQuantity(self.max) || quantity(self.default).compareTo(quantity(self.max)) <= 0", "spec.execution.maxOutputBytes.default may be at most spec.execution.maxOutputBytes.max"))]
pub struct OutputBounds {
    /// For a call that does not say it, in a sandbox that does not.
    #[serde(default = "one_mebibyte")]
    pub default: Quantity,

    /// The most that a sandbox, or a call in one that says nothing, may ask for.
    #[serde(default = "sixty_four_mebibytes")]
    pub max: Quantity,
}

fn one_mebibyte() -> Quantity {
    Quantity::new("1Mi")
}

fn sixty_four_mebibytes() -> Quantity {
    Quantity::new("64Mi")
}

impl Default for OutputBounds {
    fn default() -> Self {
        Self { default: one_mebibyte(), max: sixty_four_mebibytes() }
    }
}

/// Bounds of how many calls may run at once in one sandbox.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("self.default <= self.max", "spec.execution.maxConcurrent.default may be at most spec.execution.maxConcurrent.max"))]
pub struct ConcurrencyBounds {
    /// In a sandbox that does not say it.
    #[serde(default = "eight")]
    #[schemars(range(min = 1, max = 1024))]
    pub default: u16,

    /// The most that a sandbox may ask for.
    #[serde(default = "sixty_four")]
    #[schemars(range(min = 1, max = 1024))]
    pub max: u16,
}

fn eight() -> u16 {
    8
}

fn sixty_four() -> u16 {
    64
}

impl Default for ConcurrencyBounds {
    fn default() -> Self {
        Self { default: eight(), max: sixty_four() }
    }
}

/// What calls into one sandbox are held to: its wishes within its class.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ExecutionStatus {
    /// How long a call may take that does not say it.
    pub timeout: Span,
    /// How long a call may take at most.
    pub max_timeout: Span,
    /// How much output is handed over of a call that does not say it.
    pub output_bytes: Quantity,
    /// How much output is handed over at most.
    pub max_output_bytes: Quantity,
    /// How many calls may run at once.
    pub max_concurrent: u16,
}
