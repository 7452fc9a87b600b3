//! `AgentSandbox`: what a user applies.
#![expect(unreachable_pub, reason = "deriving KubeSchema copies each type into a function")]

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{AgentSandboxStatus, Credential, Egress, Execution, Quantity, Span};

/// An ephemeral, fenced sandbox for code that nobody should trust. It becomes one hardened pod, lives at most
/// `ttl`, and leaves nothing behind.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[kube(
    group = "glovebox.dev",
    version = "v1alpha1",
    kind = "AgentSandbox",
    plural = "agentsandboxes",
    namespaced,
    status = "AgentSandboxStatus",
    derive = "PartialEq",
    shortname = "asb",
    category = "glovebox",
    doc = "An ephemeral, fenced sandbox for code that nobody should trust. It becomes one hardened pod, lives at most spec.ttl, and leaves nothing behind.",
    validation = Rule::new("size(self.metadata.name) <= 63").message("metadata.name may have at most 63 characters, since it becomes a label value"),
    printcolumn(name = "Class", type_ = "string", json_path = ".status.className"),
    printcolumn(name = "Runtime", type_ = "string", json_path = ".status.runtime"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(name = "Expires", type_ = "string", json_path = ".status.expiresAt"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Node", type_ = "string", json_path = ".status.nodeName", priority = 1),
    printcolumn(name = "Pod", type_ = "string", json_path = ".status.podName", priority = 1),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.reason", priority = 1),
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("has(self.className) == has(oldSelf.className) && (!has(self.className) || self.className == oldSelf.className)", "spec.className is immutable: an ephemeral sandbox is replaced, not edited"))]
#[x_kube(validation = ("self.image == oldSelf.image", "spec.image is immutable: an ephemeral sandbox is replaced, not edited"))]
#[x_kube(validation = ("has(self.command) == has(oldSelf.command) && (!has(self.command) || self.command == oldSelf.command)", "spec.command is immutable: an ephemeral sandbox is replaced, not edited"))]
#[x_kube(validation = ("has(self.args) == has(oldSelf.args) && (!has(self.args) || self.args == oldSelf.args)", "spec.args is immutable: an ephemeral sandbox is replaced, not edited"))]
#[x_kube(validation = ("has(self.workingDir) == has(oldSelf.workingDir) && (!has(self.workingDir) || self.workingDir == oldSelf.workingDir)", "spec.workingDir is immutable: an ephemeral sandbox is replaced, not edited"))]
#[x_kube(validation = ("has(self.env) == has(oldSelf.env) && (!has(self.env) || self.env == oldSelf.env)", "spec.env is immutable: an ephemeral sandbox is replaced, not edited"))]
#[x_kube(validation = ("has(self.ports) == has(oldSelf.ports) && (!has(self.ports) || self.ports == oldSelf.ports)", "spec.ports is immutable: an ephemeral sandbox is replaced, not edited"))]
#[x_kube(validation = ("self.workspace == oldSelf.workspace", "spec.workspace is immutable: an ephemeral sandbox is replaced, not edited"))]
#[x_kube(validation = ("has(self.resources) == has(oldSelf.resources) && (!has(self.resources) || self.resources == oldSelf.resources)", "spec.resources is immutable: an ephemeral sandbox is replaced, not edited"))]
#[x_kube(validation = ("!has(self.args) || size(self.args) == 0 || (has(self.command) && size(self.command) > 0)", "spec.args needs spec.command: without a command the sandbox idles and waits for calls"))]
#[x_kube(validation = ("!has(self.credentials) || self.credentials.all(c, has(oldSelf.credentials) && oldSelf.credentials.exists(o, o.name == c.name))", "spec.credentials: none is added while a sandbox lives; an ephemeral sandbox is replaced, not edited"))]
#[x_kube(validation = ("!has(self.credentials) || !has(self.env) || self.credentials.all(c, !has(c.env) || self.env.all(e, e.name != c.env))", "spec.credentials: env is also a variable of spec.env; give one of them another name"))]
pub struct AgentSandboxSpec {
    /// Name of the SandboxClass. Without it, the class marked as default is used. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub class_name: Option<String>,

    /// Image that the workload runs in. Immutable.
    #[schemars(length(min = 1, max = 512), regex(pattern = r"^[a-zA-Z0-9][a-zA-Z0-9._:/@-]*$"))]
    pub image: String,

    /// Program to run, looked up in the image's PATH, with its first arguments. Without it the sandbox idles and waits
    /// for exec calls. Immutable.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), inner(length(max = 32768)))]
    pub command: Vec<String>,

    /// Arguments that follow `command`. Immutable.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), inner(length(max = 32768)))]
    pub args: Vec<String>,

    /// Directory that the workload starts in; the workspace if absent. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024), regex(pattern = r"^/[^\x00]*$"))]
    pub working_dir: Option<String>,

    /// Environment of the workload: literals, or keys of ConfigMaps. A secret is refused here. Immutable.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub env: Vec<EnvVar>,

    /// Ports that the workload listens on, so that they can be named in a port-forward. The fence lets nobody else in.
    /// Immutable.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub ports: Vec<Port>,

    /// Time to live, by the wall clock from creation on, whatever the sandbox does or waits for. The class sets the
    /// default and the most. May be lowered later; raised only if the class says `extendable`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = ("duration(self) >= duration('1s')", "spec.ttl must be at least 1s"))]
    pub ttl: Option<Span>,

    /// How long the sandbox may be unused while its workload runs: without a call, a file, or a byte of egress through the gateway
    /// for that long, it ends. What its workload computes is no use, and neither is what address rules let pass. The class sets
    /// the default and the most. May be changed while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = ("duration(self) >= duration('1s')", "spec.idleTimeout must be at least 1s"))]
    pub idle_timeout: Option<Span>,

    /// How long the object stays after the sandbox ended, so that its result can be read.
    #[serde(default = "default_ttl_after_finished")]
    pub ttl_after_finished: Span,

    /// The one writable place, and what is mounted read-only beside it. Immutable.
    #[serde(default)]
    pub workspace: Workspace,

    /// Hard limits; what is requested equals what is limited. The class sets defaults and the most. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,

    /// What each call into the sandbox is held to; a call may ask for less. The class sets defaults and the most. Changes
    /// hold for the calls that come after.
    #[serde(default, skip_serializing_if = "Execution::is_empty")]
    pub execution: Execution,

    /// What the sandbox may reach. Nothing, unless it says so. Changes take effect while it runs.
    #[serde(default, skip_serializing_if = "Egress::is_empty")]
    pub egress: Egress,

    /// Secrets that the gateway adds to requests, and that the sandbox never holds. They may be taken away while it runs; none is
    /// added or changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub credentials: Vec<Credential>,
}

fn default_ttl_after_finished() -> Span {
    Span::from_secs(300)
}

/// One variable of the workload's environment.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("has(self.value) != has(self.valueFrom)", "each env entry needs exactly one of value and valueFrom"))]
#[x_kube(validation = ("!self.name.startsWith('GLOVEBOX_') && !self.name.startsWith('KUBERNETES_')", "names that start with GLOVEBOX_ or KUBERNETES_ are reserved: the agent takes them out"))]
pub struct EnvVar {
    /// Name of the variable.
    #[schemars(length(min = 1, max = 256), regex(pattern = "^[A-Za-z_][A-Za-z0-9_]*$"))]
    pub name: String,

    /// Literal value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32768))]
    pub value: Option<String>,

    /// Where the value comes from instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value_from: Option<EnvVarSource>,
}

/// Where a variable's value comes from.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("!has(self.secretKeyRef)", "secretKeyRef is refused: whatever runs in the sandbox could read it and send it away; keep secrets out, or put a value that may leak into a ConfigMap"))]
#[x_kube(validation = ("has(self.configMapKeyRef) || has(self.secretKeyRef)", "valueFrom needs configMapKeyRef"))]
pub struct EnvVarSource {
    /// A key of a ConfigMap in the sandbox's namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map_key_ref: Option<KeyRef>,

    /// Always refused, with the reason why: a sandbox never holds a secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_key_ref: Option<KeyRef>,
}

/// A key of an object in the same namespace.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct KeyRef {
    /// Name of the object.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,

    /// Key in its data.
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}

/// A port that the workload listens on.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Port {
    /// Name, unique in the sandbox.
    #[schemars(length(min = 1, max = 15), regex(pattern = "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"))]
    pub name: String,

    /// TCP port number.
    #[schemars(range(min = 1, max = 65535))]
    pub container_port: i32,
}

/// The one writable place of a sandbox, in memory, gone with the pod.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Workspace {
    /// Where the workspace is mounted.
    #[serde(default = "default_workspace_path")]
    #[schemars(length(min = 2, max = 256), regex(pattern = r"^(/[A-Za-z0-9][A-Za-z0-9._-]*)+$"))]
    pub mount_path: String,

    /// Size of the workspace, a tmpfs. /tmp, the caches and the workspace's own .git get a quarter of it each, at least
    /// 16Mi. The class sets the default and the most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Quantity>,

    /// What is mounted read-only. Nothing else of the outside is ever mounted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub inputs: Vec<Input>,

    /// Paths below the workspace that can never be written, added to the built-in list (`.git/hooks`, `.vscode`, and the
    /// like). Each becomes an empty read-only directory.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 32),
        inner(length(min = 1, max = 256), regex(pattern = r"^[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*$"))
    )]
    pub protected_paths: Vec<String>,
}

impl Default for Workspace {
    fn default() -> Self {
        Self {
            mount_path: default_workspace_path(),
            size: None,
            inputs: Vec::new(),
            protected_paths: Vec::new(),
        }
    }
}

fn default_workspace_path() -> String {
    "/workspace".into()
}

/// One read-only input.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("[has(self.image), has(self.configMap), has(self.persistentVolumeClaim)].exists_one(x, x)", "each input needs exactly one of image, configMap and persistentVolumeClaim"))]
pub struct Input {
    /// Name, unique in the sandbox.
    #[schemars(length(min = 1, max = 40), regex(pattern = "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"))]
    pub name: String,

    /// Where it is mounted.
    #[schemars(length(min = 2, max = 256), regex(pattern = r"^(/[A-Za-z0-9._-]*[A-Za-z0-9_-])+$"))]
    pub mount_path: String,

    /// An image whose files are mounted. The class's `images` apply to it too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512), regex(pattern = r"^[a-zA-Z0-9][a-zA-Z0-9._:/@-]*$"))]
    pub image: Option<String>,

    /// Name of a ConfigMap whose keys become files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub config_map: Option<String>,

    /// Name of a PersistentVolumeClaim, mounted read-only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub persistent_volume_claim: Option<String>,
}

/// Amounts of compute. What is absent comes from the class.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq, Default)]
#[serde(rename_all = "camelCase")]
pub struct Resources {
    /// CPU cores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Quantity>,

    /// Memory, of which the workspace is a part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Quantity>,

    /// Disk: logs, since nothing else of a sandbox is on a disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ephemeral_storage: Option<Quantity>,
}
