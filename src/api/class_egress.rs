//! What a class says of egress: the outer bound, what is denied whatever is asked, and what an open fence means.
#![expect(unreachable_pub, reason = "deriving KubeSchema copies each type into a function")]

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Span;

/// The most that sandboxes of a class may reach.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq, Default)]
#[serde(rename_all = "camelCase")]
pub struct ClassEgress {
    /// A sandbox may ask only within it. Absent: no ceiling but what is always denied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling: Option<Ceiling>,

    /// Hosts and ranges that are denied whatever a sandbox asks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub deny: Vec<Denial>,

    /// What becomes of a destination that no rule names.
    #[serde(default)]
    pub unmatched: Unmatched,

    /// How such a destination is asked for, with `unmatched: Ask`.
    #[serde(default)]
    pub ask: AskBounds,

    /// What becomes of a workload that runs when its fence is found open. None ever starts behind an open one.
    #[serde(default)]
    pub on_fence_open: OnFenceOpen,
}

/// What becomes of a destination that no rule names.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Unmatched {
    /// It is refused.
    #[default]
    Deny,
    /// It is refused, and an EgressApproval asks a person whether it may be reached.
    Ask,
}

/// How destinations are asked for.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct AskBounds {
    /// For how long what is approved may be reached.
    #[serde(default)]
    pub ttl: ApprovalTtl,

    /// How long a connection waits for the answer before it is refused. Absent: not at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = ("duration(self) <= duration('10m')", "spec.egress.ask.hold may be at most 10m"))]
    pub hold: Option<Span>,

    /// Most questions of one sandbox that nobody has answered. What comes beyond is refused without one.
    #[serde(default = "default_most_pending")]
    #[schemars(range(min = 1, max = 64))]
    pub most_pending: i32,
}

const fn default_most_pending() -> i32 {
    8
}

impl Default for AskBounds {
    fn default() -> Self {
        Self { ttl: ApprovalTtl::default(), hold: None, most_pending: default_most_pending() }
    }
}

/// For how long what is approved may be reached.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("duration(self.default) <= duration(self.max)", "spec.egress.ask.ttl.default may be at most spec.egress.ask.ttl.max"))]
#[x_kube(validation = ("duration(self.default) >= duration('1s')", "spec.egress.ask.ttl.default must be at least 1s"))]
pub struct ApprovalTtl {
    /// Where the decision says nothing.
    #[serde(default = "default_approval_ttl")]
    pub default: Span,
    /// The most that a decision may say.
    #[serde(default = "default_most_approval_ttl")]
    pub max: Span,
}

fn default_approval_ttl() -> Span {
    Span::from_secs(3600)
}

fn default_most_approval_ttl() -> Span {
    Span::from_secs(24 * 3600)
}

impl Default for ApprovalTtl {
    fn default() -> Self {
        Self { default: default_approval_ttl(), max: default_most_approval_ttl() }
    }
}

/// What becomes of a workload whose fence came to be open.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OnFenceOpen {
    /// It is ended, and the sandbox with it, with the reason `FenceOpen`.
    #[default]
    Terminate,
    /// It runs on. The conditions `FenceVerified` and `Ready` are false, with the reason `FenceOpen`, until the fence holds again.
    Report,
}

/// The outer bound of what may be asked.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq, Default)]
#[serde(rename_all = "camelCase")]
pub struct Ceiling {
    /// Host patterns, written as in an egress rule. A rule's pattern must lie within one of them.
    #[serde(default)]
    #[schemars(length(max = 256), inner(length(min = 3, max = 255)))]
    pub hosts: Vec<String>,

    /// Address ranges. A range of the cluster itself (pods, services, nodes) may be asked for, and a private or cluster
    /// address be the answer for an allowed host, only if it is named here.
    #[serde(default)]
    #[schemars(length(max = 256), inner(length(min = 3, max = 49)))]
    #[x_kube(validation = ("self.all(c, isCIDR(c))", "each of cidrs must be an address range such as 203.0.113.0/24"))]
    pub cidrs: Vec<String>,

    /// TCP ports.
    #[serde(default)]
    #[schemars(length(max = 64), inner(range(min = 1, max = 65535)))]
    pub ports: Vec<i32>,
}

/// Hosts and ranges that are denied, and why.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq, Default)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("(has(self.hosts) && size(self.hosts) > 0) || (has(self.cidrs) && size(self.cidrs) > 0)", "each denial needs hosts, cidrs or both"))]
pub struct Denial {
    /// Host patterns, written as in an egress rule.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 3, max = 255)))]
    pub hosts: Vec<String>,

    /// Address ranges.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 3, max = 49)))]
    #[x_kube(validation = ("self.all(c, isCIDR(c))", "each of cidrs must be an address range such as 203.0.113.0/24"))]
    pub cidrs: Vec<String>,

    /// What to tell whoever asks, such as where to go instead.
    #[schemars(length(min = 1, max = 200))]
    pub reason: String,
}
