//! `EgressPolicy` and the rule that it shares with a sandbox's own list.
#![expect(unreachable_pub, reason = "deriving KubeSchema copies each type into a function")]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Quantity;

/// Rules of what may be reached, for the sandboxes of its namespace that name it. By itself it opens nothing.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq, Default)]
#[kube(
    group = "glovebox.dev",
    version = "v1alpha1",
    kind = "EgressPolicy",
    plural = "egresspolicies",
    namespaced,
    derive = "PartialEq",
    shortname = "egp",
    category = "glovebox",
    doc = "Rules of what may be reached, for the sandboxes of its namespace that name it. By itself it opens nothing.",
    printcolumn(name = "First-Rule", type_ = "string", json_path = ".spec.rules[0].name"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct EgressPolicySpec {
    /// Rules; a connection that fits none of a sandbox's rules is denied. Changes take effect while sandboxes run.
    #[serde(default)]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub rules: Vec<EgressRule>,
}

/// What a sandbox may reach.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq, Default)]
#[serde(rename_all = "camelCase")]
pub struct Egress {
    /// Names of EgressPolicy objects in the sandbox's namespace, whose rules are added to `allow`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 253)))]
    pub policies: Vec<String>,

    /// Rules; a connection that fits none is denied.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub allow: Vec<EgressRule>,
}

impl Egress {
    /// Whether nothing may be reached.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.allow.is_empty() && self.policies.is_empty()
    }
}

/// Hosts by name, or address ranges, and TCP ports that may be reached. Where rules overlap, the one with the most specific
/// host pattern that has the port decides how a host is spoken to: an exact name before `*.x`, that before `**.x`.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq, Default)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("(has(self.hosts) && size(self.hosts) > 0) != (has(self.cidrs) && size(self.cidrs) > 0)", "each rule needs exactly one of hosts and cidrs: a rule with neither opens nothing, and an address is no way around a name"))]
#[x_kube(validation = ("!has(self.cidrs) || size(self.cidrs) == 0 || !(has(self.protocol) || has(self.limits) || has(self.expiresAt) || has(self.requireBrokered) || has(self.acknowledgeSharedSuffix))", "protocol, limits, expiresAt, requireBrokered and acknowledgeSharedSuffix belong to a rule with hosts: address ranges are opened by a NetworkPolicy, which knows none of them"))]
#[x_kube(validation = ("!has(self.http) || (has(self.protocol) && (self.protocol == 'HTTPS' || self.protocol == 'HTTP'))", "http needs protocol HTTPS or HTTP: in any other the requests can't be seen"))]
#[x_kube(validation = ("!has(self.requireBrokered) || !self.requireBrokered || (has(self.protocol) && self.protocol == 'HTTPS')", "requireBrokered needs protocol HTTPS: in any other the requests can't be seen"))]
#[x_kube(validation = ("!has(self.protocol) || self.protocol != 'HTTP' || !self.ports.exists(port, port == 443)", "protocol HTTP is without encryption and needs ports of its own, such as [80]; on port 443 use HTTPS or TLS"))]
pub struct EgressRule {
    /// Name, unique in its list, for messages and records.
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"))]
    pub name: String,

    /// Host names. `api.example.com` is that host alone; `*.example.com` is exactly one more label, `**.example.com` one or
    /// more; neither is `example.com` itself. A wildcard is the whole leftmost label and has at least two labels after it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 3, max = 255)))]
    pub hosts: Vec<String>,

    /// Address ranges such as `203.0.113.0/24` or `2001:db8::/32`, opened past the gateway.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 3, max = 49)))]
    #[x_kube(validation = ("self.all(c, isCIDR(c))", "each of cidrs must be an address range such as 203.0.113.0/24"))]
    pub cidrs: Vec<String>,

    /// TCP ports.
    #[serde(default = "default_ports")]
    #[schemars(length(min = 1, max = 32), inner(range(min = 1, max = 65535)))]
    pub ports: Vec<i32>,

    /// What may be spoken with the hosts; TLS if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<Protocol>,

    /// Which requests are let through. All, unless it says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpRule>,

    /// Whether requests may carry no credential but those of the sandbox's `credentials`: what the workload brings itself, in a field or
    /// in the query, is refused. Needs protocol HTTPS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub require_brokered: Option<bool>,

    /// The most that a sandbox may use by this rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<EgressLimits>,

    /// When the rule ends. Connections that are open by it are closed then; a host that a wider rule names too is spoken for
    /// by that one from then on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Time>,

    /// Says that a wildcard below a suffix where anybody can register a name, such as `*.github.io`, is meant: whoever
    /// controls the sandbox can have a name there too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acknowledge_shared_suffix: Option<bool>,
}

pub(super) fn default_ports() -> Vec<i32> {
    vec![443]
}

/// What may be spoken with a host.
#[derive(
    JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default,
)]
pub enum Protocol {
    /// TLS whose server name is the host, passed through unopened.
    #[default]
    #[serde(rename = "TLS")]
    Tls,
    /// TLS that the gateway opens, so that each request is seen.
    #[serde(rename = "HTTPS")]
    Https,
    /// HTTP without encryption; each request is seen.
    #[serde(rename = "HTTP")]
    Http,
    /// Any bytes, TLS and HTTP among them; nothing of them is looked at.
    #[serde(rename = "TCP")]
    Tcp,
}

impl Protocol {
    /// The spelling in a spec.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tls => "TLS",
            Self::Https => "HTTPS",
            Self::Http => "HTTP",
            Self::Tcp => "TCP",
        }
    }
}

/// Which requests are let through.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq, Default)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("(has(self.methods) && size(self.methods) > 0) || (has(self.paths) && size(self.paths) > 0)", "http needs methods, paths or both; leave http out to let every request through"))]
pub struct HttpRule {
    /// Methods, in capitals. All, if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 32), regex(pattern = "^[A-Z][A-Z-]*$")))]
    pub methods: Vec<String>,

    /// Paths, without query: `*` is exactly one segment, `**` at the end is any rest, such as `/repos/org/**`. All, if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 512), regex(pattern = "^/[!-~]*$")))]
    pub paths: Vec<String>,
}

/// The most that one sandbox may use by one rule. What is absent is bounded by the gateway alone.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq, Default)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("!has(self.burst) || has(self.connectionsPerSecond)", "burst needs connectionsPerSecond"))]
pub struct EgressLimits {
    /// New connections a second, in the long run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000))]
    pub connections_per_second: Option<i32>,

    /// New connections at once; `connectionsPerSecond` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000))]
    pub burst: Option<i32>,

    /// Open connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000))]
    pub max_connections: Option<i32>,

    /// Bytes a second that are sent out, such as `1Mi`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upload_bytes_per_second: Option<Quantity>,

    /// Bytes that are sent out in the sandbox's whole life, such as `200Mi`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upload_budget: Option<Quantity>,
}
