//! What was seen of the cluster at one moment, for one sandbox. Filled by the controller's `observe`, read by everything
//! here; never looked up again behind its back.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use jiff::Timestamp;
use k8s_openapi::api::{
    core::v1::{Node, Pod, ResourceQuota},
    networking::v1::NetworkPolicy,
    node::v1::RuntimeClass,
    rbac::v1::{Role, RoleBinding},
    scheduling::v1::PriorityClass,
};

use super::{Refusal, approvals::Wanted, idle::LastUse, named, suspicion::Seen};
use crate::{
    api::{AgentSandbox, EgressApproval, EgressPolicy, SandboxClass},
    policy::ClusterRanges,
};

/// What the installation fixes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Image that carries `glovebox-agent`.
    pub agent_image: String,
    /// The controller's own namespace, where classes are tried and the gateway is.
    pub namespace: String,
    /// Where pods would find the API server, if that is known: a place that no sandbox may reach.
    pub api_server: Option<SocketAddr>,
    /// The gateway's ServiceAccount in that namespace, if it may have the credentials of sandboxes.
    pub gateway_account: Option<String>,
}

/// What was seen.
#[derive(Clone, Debug)]
pub struct World {
    /// The sandbox itself.
    pub sandbox: Arc<AgentSandbox>,
    /// Its class, or why there is none.
    pub class: Result<Arc<SandboxClass>, Refusal>,
    /// Labels of its namespace; `None` while it is not known.
    pub namespace_labels: Option<BTreeMap<String, String>>,
    /// The RuntimeClass that the class names, if it exists.
    pub runtime_class: Option<Arc<RuntimeClass>>,
    /// All nodes.
    pub nodes: Vec<Arc<Node>>,
    /// The pod of the sandbox's name.
    pub pod: PodSlot,
    /// The namespace's fence.
    pub fence: Option<Arc<NetworkPolicy>>,
    /// The policy that opens this sandbox's address rules.
    pub cidr_policy: Option<Arc<NetworkPolicy>>,
    /// What lets the gateway have this sandbox's credentials, and that it is the gateway.
    pub credential_grant: (Option<Arc<Role>>, Option<Arc<RoleBinding>>),
    /// The EgressPolicies that the sandbox names, as far as they exist and can be read.
    pub egress_policies: Vec<Arc<EgressPolicy>>,
    /// What was asked for a sandbox of this name, and decided.
    pub approvals: Vec<Arc<EgressApproval>>,
    /// What it wanted and no rule names, as far as replicas told.
    pub wanted: Vec<Wanted>,
    /// The namespace's quota for the class.
    pub quota: Option<Arc<ResourceQuota>>,
    /// The class's PriorityClass.
    pub priority_class: Option<Arc<PriorityClass>>,
    /// A reference that does not resolve. Looked up only while there is no pod.
    pub unresolved: Option<Refusal>,
    /// A NetworkPolicy of somebody else that would open the fence for this sandbox.
    pub breach: Option<String>,
    /// The address of the gateway's Service, if it has one.
    pub gateway: Option<IpAddr>,
    /// The certificate of the installation's authority, as PEM: what the gateway opens TLS with.
    pub authority: Option<Arc<str>>,
    /// Public keys of the sessions, as base64: whose calls agents take. None: nobody's.
    pub call_keys: Arc<[String]>,
    /// How its hosts that have ports of their own stand.
    pub named: named::View,
    /// When it was last used. None where nobody can be asked: then nothing is idle.
    pub last_use: Option<LastUse>,
    /// What it did that looks like an attack, as far as replicas told. None: nothing.
    pub seen: Option<Seen>,
    /// The cluster's own addresses.
    pub cluster: ClusterRanges,
    /// What the installation fixes.
    pub settings: Arc<Settings>,
}

/// Who has the pod's name.
#[derive(Clone, Debug)]
pub enum PodSlot {
    /// Nobody.
    Free,
    /// This sandbox.
    Ours(Arc<Pod>),
    /// A former sandbox of the same name, or something else; its name and whether it will go by itself.
    Taken {
        /// Who.
        by: String,
        /// Whether it is a former sandbox's pod, which garbage collection removes.
        former: bool,
    },
}

/// What to say of a name that somebody else's pod has.
#[must_use]
pub fn taken(name: &str, by: &str) -> String {
    format!("a pod named {name:?} already exists and belongs to {by}; delete it, or choose another name")
}

impl World {
    /// The sandbox's pod.
    #[must_use]
    pub fn own_pod(&self) -> Option<&Arc<Pod>> {
        match &self.pod {
            PodSlot::Ours(pod) => Some(pod),
            PodSlot::Free | PodSlot::Taken { .. } => None,
        }
    }

    /// The node that the pod runs on, if both are known.
    #[must_use]
    pub fn pod_node(&self) -> Option<&Arc<Node>> {
        let name = self.own_pod()?.spec.as_ref()?.node_name.as_deref()?;
        self.nodes.iter().find(|node| node.metadata.name.as_deref() == Some(name))
    }

    /// When the sandbox was made; the API server always sets it.
    #[must_use]
    pub fn created(&self) -> Timestamp {
        self.sandbox.metadata.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0)
    }
}
