//! `EgressApproval`: a destination that a sandbox wanted and no rule names, for a person to decide on.
#![expect(unreachable_pub, reason = "deriving KubeSchema copies each type into a function")]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Protocol, Span};

/// A destination that a sandbox wanted, and what a person says of it.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[kube(
    group = "glovebox.dev",
    version = "v1alpha1",
    kind = "EgressApproval",
    plural = "egressapprovals",
    namespaced,
    status = "EgressApprovalStatus",
    derive = "PartialEq",
    shortname = "ega",
    category = "glovebox",
    doc = "A destination that a sandbox wanted and no rule names, where its class has such ones asked for. A person decides; made and kept by the controller.",
    validation = Rule::new("size(self.metadata.name) <= 80").message("metadata.name may have at most 80 characters: a sandbox's name and the beginning of a hash"),
    printcolumn(name = "Sandbox", type_ = "string", json_path = ".spec.sandbox.name"),
    printcolumn(name = "Host", type_ = "string", json_path = ".spec.host"),
    printcolumn(name = "Port", type_ = "integer", json_path = ".spec.port"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Expires", type_ = "string", json_path = ".status.expiresAt"),
    printcolumn(name = "By", type_ = "string", json_path = ".spec.decision.by", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("self.sandbox == oldSelf.sandbox && self.host == oldSelf.host && self.port == oldSelf.port && self.protocol == oldSelf.protocol && self.ruleHash == oldSelf.ruleHash", "only spec.decision may be changed: what is decided on stays what was looked at"))]
pub struct EgressApprovalSpec {
    /// Who wants it.
    pub sandbox: AskingSandbox,

    /// The host, as it is in DNS: never a wildcard, never an address.
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = r"^[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*$")
    )]
    pub host: String,

    /// The TCP port.
    #[schemars(range(min = 1, max = 65535))]
    pub port: i32,

    /// What may be spoken with it.
    pub protocol: Protocol,

    /// SHA-256 of all of that. A decision names it, and holds for nothing else.
    #[schemars(length(min = 64, max = 64), regex(pattern = "^[0-9a-f]{64}$"))]
    pub rule_hash: String,

    /// What a person says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<Decision>,
}

/// The sandbox that wants something. The uid alone is an identity: names are given again.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct AskingSandbox {
    /// Its name.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,

    /// Its uid.
    #[schemars(length(min = 1, max = 64))]
    pub uid: String,

    /// Who made it, who may not decide unless they may `approve-own`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub requester: Option<String>,
}

/// What a person says of a destination.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Decision {
    /// Whether it may be reached.
    pub verdict: ApprovalVerdict,

    /// `spec.ruleHash`, as it was when it was looked at.
    #[schemars(length(min = 64, max = 64), regex(pattern = "^[0-9a-f]{64}$"))]
    pub rule_hash: String,

    /// Who says it: the user of the request, which is checked.
    #[schemars(length(min = 1, max = 256))]
    pub by: String,

    /// When, by the clock of whoever says it: the same said later is another decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Time>,

    /// For how long it may be reached; the class's default if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = ("duration(self) >= duration('1s')", "spec.decision.ttl must be at least 1s"))]
    pub ttl: Option<Span>,

    /// Why, for the record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub reason: Option<String>,
}

/// Yes or no.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApprovalVerdict {
    /// It may be reached, for a while.
    Approved,
    /// It may not, and is not asked for again.
    Denied,
}

/// Where it stands.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApprovalPhase {
    /// Nobody has decided.
    Pending,
    /// It may be reached.
    Approved,
    /// It may not.
    Denied,
    /// It might be reached for a while, which is over.
    Expired,
    /// What was decided does not hold; the message says why.
    Invalid,
}

impl ApprovalPhase {
    /// The spelling.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Approved => "Approved",
            Self::Denied => "Denied",
            Self::Expired => "Expired",
            Self::Invalid => "Invalid",
        }
    }
}

/// What the controller says of it.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct EgressApprovalStatus {
    /// Where it stands.
    pub phase: ApprovalPhase,
    /// The generation of the spec that this speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Until when it may be reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Time>,
    /// When it was first wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_seen: Option<Time>,
    /// When it was last wanted, within a minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_seen: Option<Time>,
    /// How often, up to then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub count: Option<i64>,
    /// In words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub message: Option<String>,
}
