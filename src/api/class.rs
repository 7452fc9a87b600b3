//! `SandboxClass`: what a platform team owns. Bounds, runtime and trust for the sandboxes that use it.
#![expect(unreachable_pub, reason = "deriving KubeSchema copies each type into a function")]

use std::collections::BTreeMap;

use k8s_openapi::{api::core::v1::Toleration, apimachinery::pkg::apis::meta::v1::LabelSelector};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ClassEgress, Detection, ExecutionBounds, Isolation, Quantity, SandboxClassStatus, Span, Trust};

/// What a platform team promises and allows for one level of trust.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[kube(
    group = "glovebox.dev",
    version = "v1alpha1",
    kind = "SandboxClass",
    plural = "sandboxclasses",
    status = "SandboxClassStatus",
    derive = "PartialEq",
    shortname = "sbc",
    category = "glovebox",
    doc = "What a platform team promises and allows for one level of trust: the runtime, the bounds, the quota and who may use it.",
    validation = Rule::new("size(self.metadata.name) <= 54").message("metadata.name may have at most 54 characters, since it becomes part of a label value"),
    printcolumn(name = "Trust", type_ = "string", json_path = ".spec.trust"),
    printcolumn(name = "Runtime", type_ = "string", json_path = ".spec.runtime.runtimeClassName"),
    printcolumn(name = "Isolation", type_ = "string", json_path = ".spec.runtime.isolation"),
    printcolumn(name = "Available", type_ = "string", json_path = ".status.conditions[?(@.type==\"RuntimeAvailable\")].status"),
    printcolumn(name = "Sandboxes", type_ = "integer", json_path = ".status.sandboxes"),
    printcolumn(name = "Accepted-Weaker", type_ = "string", json_path = ".spec.runtime.acceptWeakerIsolation"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type==\"RuntimeAvailable\")].reason", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("has(self.runtime.acceptWeakerIsolation) || !(self.trust in ['Hostile', 'Untrusted']) || self.runtime.isolation == 'VirtualMachine'", "spec.trust Hostile and Untrusted need spec.runtime.isolation VirtualMachine; to run on a weaker one nonetheless, say why in spec.runtime.acceptWeakerIsolation"))]
#[x_kube(validation = ("has(self.runtime.acceptWeakerIsolation) || self.trust != 'Restricted' || self.runtime.isolation != 'SharedKernel'", "spec.trust Restricted needs spec.runtime.isolation UserspaceKernel or VirtualMachine; to run on a weaker one nonetheless, say why in spec.runtime.acceptWeakerIsolation"))]
#[x_kube(validation = ("!(self.trust in ['Hostile', 'Untrusted']) || self.egress.onFenceOpen == 'Terminate'", "spec.egress.onFenceOpen Report needs spec.trust Restricted or Trusted: what nobody trusts may not run behind an open fence"))]
pub struct SandboxClassSpec {
    /// The least-trusted thing that may run. Hostile and Untrusted need a VirtualMachine, Restricted at least a
    /// UserspaceKernel; only Trusted may share the node's kernel.
    pub trust: Trust,

    /// The runtime and what it promises.
    pub runtime: Runtime,

    /// How long a sandbox may take from the pod's creation until its workload runs.
    #[serde(default = "default_startup_deadline")]
    #[x_kube(validation = ("duration(self) >= duration('1s')", "spec.startupDeadline must be at least 1s"))]
    pub startup_deadline: Span,

    /// Time to live.
    #[serde(default)]
    pub ttl: TtlBounds,

    /// How long a sandbox may be unused.
    #[serde(default)]
    pub idle_timeout: IdleBounds,

    /// Calls into sandboxes.
    #[serde(default)]
    pub execution: ExecutionBounds,

    /// Amounts of compute.
    #[serde(default)]
    pub resources: ResourceBounds,

    /// Sizes of the workspace.
    #[serde(default)]
    pub workspace: WorkspaceBounds,

    /// Images that may be used.
    #[serde(default)]
    pub images: ImageRules,

    /// The most that a sandbox may reach.
    #[serde(default)]
    pub egress: ClassEgress,

    /// When a sandbox counts as suspected of an attack, and what becomes of it.
    #[serde(default)]
    pub detection: Detection,

    /// Where its pods may run, besides what the RuntimeClass says.
    #[serde(default)]
    pub scheduling: Scheduling,

    /// Users and system calls.
    #[serde(default)]
    pub security: Security,

    /// The most that all sandboxes of this class may use together in one namespace. Without it there is no quota.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota: Option<Quota>,

    /// Which namespaces may use it. All, unless it says so; besides, the RBAC verb `use` on the class is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespaces: Option<NamespaceRules>,
}

fn default_startup_deadline() -> Span {
    Span::from_secs(120)
}

/// The runtime of a class.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("has(self.runtimeClassName) || self.isolation == 'SharedKernel'", "spec.runtime.runtimeClassName may be absent only for isolation SharedKernel"))]
#[x_kube(validation = ("has(self.runtimeClassName) == has(self.handler)", "spec.runtime needs both runtimeClassName and handler, or none of them"))]
pub struct Runtime {
    /// Exact name of the RuntimeClass. Absent: the cluster's default runtime.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub runtime_class_name: Option<String>,

    /// The handler that this RuntimeClass must have, so that a changed one is noticed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub handler: Option<String>,

    /// What the runtime promises. It is checked from inside of each sandbox; less than this ends the sandbox.
    pub isolation: Isolation,

    /// Why a weaker isolation is accepted, in words for whoever reads the status. Without it, weaker is never accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 8, max = 200))]
    pub accept_weaker_isolation: Option<String>,
}

impl SandboxClassSpec {
    /// What a sandbox of this class should be isolated by: what its trust needs, or more if the runtime promises it.
    #[must_use]
    pub fn due_isolation(&self) -> Isolation {
        self.trust.least_isolation().max(self.runtime.isolation)
    }
}

/// Bounds of the time to live.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("duration(self.default) <= duration(self.max)", "spec.ttl.default may be at most spec.ttl.max"))]
#[x_kube(validation = ("duration(self.default) >= duration('1s')", "spec.ttl.default must be at least 1s"))]
pub struct TtlBounds {
    /// What a sandbox gets that asks for nothing.
    #[serde(default = "hour")]
    pub default: Span,

    /// The most that it may ask for.
    #[serde(default = "day")]
    pub max: Span,

    /// Whether `ttl` may be raised while the sandbox lives. Pods then carry `max` as their own deadline, which weakens the
    /// guard that holds when the controller is down.
    #[serde(default)]
    pub extendable: bool,
}

fn hour() -> Span {
    Span::from_secs(3600)
}

fn day() -> Span {
    Span::from_secs(86_400)
}

impl Default for TtlBounds {
    fn default() -> Self {
        Self { default: hour(), max: day(), extendable: false }
    }
}

/// Bounds of how long a sandbox may be unused.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("duration(self.default) <= duration(self.max)", "spec.idleTimeout.default may be at most spec.idleTimeout.max"))]
#[x_kube(validation = ("duration(self.default) >= duration('1s')", "spec.idleTimeout.default must be at least 1s"))]
pub struct IdleBounds {
    /// What a sandbox gets that asks for nothing.
    #[serde(default = "quarter_of_an_hour")]
    pub default: Span,

    /// The most that it may ask for.
    #[serde(default = "day")]
    pub max: Span,
}

fn quarter_of_an_hour() -> Span {
    Span::from_secs(900)
}

impl Default for IdleBounds {
    fn default() -> Self {
        Self { default: quarter_of_an_hour(), max: day() }
    }
}

/// Bounds of compute.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ResourceBounds {
    /// What a sandbox gets that asks for nothing.
    #[serde(default = "default_amounts")]
    pub default: Amounts,

    /// The most that it may ask for.
    #[serde(default = "most_amounts")]
    pub max: Amounts,
}

impl Default for ResourceBounds {
    fn default() -> Self {
        Self { default: default_amounts(), max: most_amounts() }
    }
}

fn default_amounts() -> Amounts {
    Amounts {
        cpu: Quantity::new("2"),
        memory: Quantity::new("512Mi"),
        ephemeral_storage: Quantity::new("1Gi"),
    }
}

fn most_amounts() -> Amounts {
    Amounts {
        cpu: Quantity::new("8"),
        memory: Quantity::new("16Gi"),
        ephemeral_storage: Quantity::new("20Gi"),
    }
}

/// One amount of each resource.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Amounts {
    /// CPU cores.
    pub cpu: Quantity,
    /// Memory.
    pub memory: Quantity,
    /// Disk.
    pub ephemeral_storage: Quantity,
}

/// Bounds of the workspace's size.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceBounds {
    /// What a sandbox gets that asks for nothing.
    #[serde(default = "default_workspace_size")]
    pub default_size: Quantity,

    /// The most that it may ask for.
    #[serde(default = "most_workspace_size")]
    pub max_size: Quantity,
}

impl Default for WorkspaceBounds {
    fn default() -> Self {
        Self { default_size: default_workspace_size(), max_size: most_workspace_size() }
    }
}

fn default_workspace_size() -> Quantity {
    Quantity::new("256Mi")
}

fn most_workspace_size() -> Quantity {
    Quantity::new("4Gi")
}

/// Which images may be used.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq, Default)]
#[serde(rename_all = "camelCase")]
pub struct ImageRules {
    /// Repositories such as `registry.example/agents/*`: `*` is one path segment, `**` at the end one or more. Absent: any;
    /// an empty list: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 256)))]
    pub allowed: Option<Vec<String>>,

    /// Whether an image must be named by digest.
    #[serde(default)]
    pub require_digest: bool,
}

/// Where pods may run.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Default)]
#[serde(rename_all = "camelCase")]
pub struct Scheduling {
    /// Labels that a node must have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 16), inner(length(max = 63)))]
    pub node_selector: BTreeMap<String, String>,

    /// Taints that the pods tolerate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub tolerations: Vec<Toleration>,
}

/// Users and system calls.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("self.runAsUser != 0 || self.allowRoot", "spec.security.runAsUser 0 is root and needs spec.security.allowRoot"))]
pub struct Security {
    /// The numeric user and group that workloads run as.
    #[serde(default = "default_user")]
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub run_as_user: i64,

    /// Whether `runAsUser` may be 0.
    #[serde(default)]
    pub allow_root: bool,

    /// `RuntimeDefault`, or `Localhost/` and the path of a profile on the nodes.
    #[serde(default = "default_seccomp")]
    #[schemars(length(max = 256), regex(pattern = "^(RuntimeDefault|Localhost/[A-Za-z0-9._/-]+)$"))]
    pub seccomp: String,

    /// Whether pods get a user namespace of their own.
    #[serde(default)]
    pub user_namespaces: UserNamespaces,
}

impl Default for Security {
    fn default() -> Self {
        Self {
            run_as_user: default_user(),
            allow_root: false,
            seccomp: default_seccomp(),
            user_namespaces: UserNamespaces::default(),
        }
    }
}

fn default_user() -> i64 {
    65532
}

fn default_seccomp() -> String {
    "RuntimeDefault".into()
}

/// When pods get a user namespace of their own.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum UserNamespaces {
    /// Where every eligible node says that the handler supports it.
    #[default]
    WhereSupported,
    /// Never.
    Never,
}

/// The most that a class may use in one namespace.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Quota {
    /// Number of sandboxes that exist and have not ended.
    #[schemars(range(min = 0, max = 100_000))]
    pub sandboxes: i64,
    /// Sum of their CPU limits, without the runtime's overhead, which is added.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Quantity>,
    /// Sum of their memory limits, without the runtime's overhead, which is added.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Quantity>,
}

/// Which namespaces may use a class.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Default)]
#[serde(rename_all = "camelCase")]
pub struct NamespaceRules {
    /// Labels that the namespace must have.
    #[serde(default)]
    pub selector: LabelSelector,
}
