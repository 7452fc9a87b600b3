//! The parts of a cluster and how each is started: where, with which arguments, after what. Pure: a table.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

use super::plan::{Node, PODS, Place, Plan, SERVICES, files};

/// What a part does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Role {
    Etcd,
    Apiserver,
    ControllerManager,
    Scheduler,
    WorldDns,
    Containerd,
    Kubelet,
    Proxy,
    KubeRouter,
}

const ROLES: [(Role, &str); 9] = [
    (Role::Etcd, "etcd"),
    (Role::Apiserver, "apiserver"),
    (Role::ControllerManager, "controller-manager"),
    (Role::Scheduler, "scheduler"),
    (Role::WorldDns, "world-dns"),
    (Role::Containerd, "containerd"),
    (Role::Kubelet, "kubelet"),
    (Role::Proxy, "proxy"),
    (Role::KubeRouter, "kube-router"),
];

impl Role {
    /// Whether every node has one of its own.
    pub(crate) fn on_each_node(self) -> bool {
        matches!(self, Self::Containerd | Self::Kubelet | Self::Proxy | Self::KubeRouter)
    }

    /// Whether it gives up when its node is unknown to the API, and so is started only once nodes are made.
    pub(crate) fn needs_its_node(self) -> bool {
        self == Self::KubeRouter
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = ROLES.iter().find(|(role, _)| role == self).map_or("", |(_, name)| name);
        f.write_str(name)
    }
}

impl FromStr for Role {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        if let Some((role, _)) = ROLES.iter().find(|(_, name)| *name == text) {
            return Ok(*role);
        }
        let names: Vec<_> = ROLES.iter().map(|(_, name)| *name).collect();
        bail!("part {text:?}: there are {}", names.join(", "))
    }
}

/// One process that `init` keeps alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct PartId {
    /// What it does.
    pub(crate) role: Role,
    /// The node that it serves; none for those there is one of.
    pub(crate) node: Option<Node>,
}

impl fmt::Display for PartId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.node {
            Some(node) => write!(f, "{}@{node}", self.role),
            None => self.role.fmt(f),
        }
    }
}

/// Something that can be connected to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    /// A TCP address, seen from the part's own place.
    Tcp(SocketAddrV4),
    /// A Unix socket, seen from the part's own place.
    Unix(PathBuf),
}

/// How a part is run.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    /// Which part.
    pub(crate) id: PartId,
    /// In which namespaces.
    pub(crate) place: Place,
    /// Program and arguments.
    pub(crate) argv: Vec<String>,
    /// What must answer before it is started.
    pub(crate) after: Option<Endpoint>,
    /// What answers once it works.
    pub(crate) answers: Endpoint,
}

/// Every part of the cluster, in the order of starting.
pub(crate) fn launches(plan: &Plan) -> Vec<Launch> {
    let mut all = control_plane(plan);
    all.extend(plan.nodes().flat_map(|node| node_parts(plan, node)));
    all
}

const NODE0: Place = Place::Node(Node(0));
const CONTAINERD: &str = "/run/containerd/containerd.sock";

fn tcp(address: Ipv4Addr, port: u16) -> Endpoint {
    Endpoint::Tcp(SocketAddrV4::new(address, port))
}

fn local(port: u16) -> Endpoint {
    tcp(Ipv4Addr::LOCALHOST, port)
}

fn api() -> Endpoint {
    tcp(Node(0).address(), 6443)
}

/// Puts `--flag value` pairs behind a command.
fn command(words: &[&str], flags: Vec<(&str, String)>) -> Vec<String> {
    let words = words.iter().map(ToString::to_string);
    words.chain(flags.into_iter().map(|(flag, value)| format!("--{flag}={value}"))).collect()
}

fn control_plane(plan: &Plan) -> Vec<Launch> {
    let part = |role, place, argv, after, answers| Launch {
        id: PartId { role, node: None },
        place,
        argv,
        after,
        answers,
    };
    let dns = tcp(super::plan::WORLD_DNS, 53);
    vec![
        part(Role::Etcd, NODE0, etcd(plan), None, local(2379)),
        part(Role::Apiserver, NODE0, apiserver(plan), None, api()),
        part(Role::ControllerManager, NODE0, controller_manager(plan), Some(api()), local(10257)),
        part(Role::Scheduler, NODE0, scheduler(plan), Some(api()), local(10259)),
        part(Role::WorldDns, Place::World, world_dns(plan), None, dns),
    ]
}

fn node_parts(plan: &Plan, node: Node) -> Vec<Launch> {
    let part = |role, argv, after, answers| Launch {
        id: PartId { role, node: Some(node) },
        place: Place::Node(node),
        argv,
        after,
        answers,
    };
    let socket = Endpoint::Unix(PathBuf::from(CONTAINERD));
    vec![
        part(Role::Containerd, containerd(plan, node), None, socket.clone()),
        part(Role::Kubelet, kubelet(plan, node), Some(socket), local(10248)),
        part(Role::Proxy, proxy(plan, node), Some(api()), local(10256)),
        part(Role::KubeRouter, kube_router(plan, node), Some(api()), local(20244)),
    ]
}

fn path(plan: &Plan, name: &str) -> String {
    plan.file(name).display().to_string()
}

fn etcd(plan: &Plan) -> Vec<String> {
    let client = "http://127.0.0.1:2379".to_owned();
    let flags = vec![
        ("data-dir", path(plan, "etcd")),
        ("listen-client-urls", client.clone()),
        ("advertise-client-urls", client),
        ("listen-peer-urls", "http://127.0.0.1:2380".to_owned()),
        // Nothing here outlives a power cut anyway.
        ("unsafe-no-fsync", "true".to_owned()),
        ("quota-backend-bytes", (4_u64 << 30).to_string()),
        ("logger", "zap".to_owned()),
        ("log-level", "warn".to_owned()),
    ];
    command(&["etcd"], flags)
}

fn apiserver(plan: &Plan) -> Vec<String> {
    let pki = |name: &str| path(plan, &format!("pki/{name}"));
    let flags = vec![
        ("etcd-servers", "http://127.0.0.1:2379".to_owned()),
        ("advertise-address", Node(0).address().to_string()),
        ("secure-port", "6443".to_owned()),
        ("allow-privileged", "true".to_owned()),
        ("tls-cert-file", pki("apiserver.crt")),
        ("tls-private-key-file", pki("apiserver.key")),
        ("client-ca-file", pki("ca.crt")),
        ("service-account-key-file", pki("sa.pub")),
        ("service-account-signing-key-file", pki("sa.key")),
        ("service-account-issuer", "https://kubernetes.default.svc".to_owned()),
        ("service-cluster-ip-range", SERVICES.to_owned()),
        ("authorization-mode", "Node,RBAC".to_owned()),
        ("enable-admission-plugins", "NodeRestriction".to_owned()),
        ("kubelet-client-certificate", pki("kubelet-client.crt")),
        ("kubelet-client-key", pki("kubelet-client.key")),
        ("kubelet-certificate-authority", pki("ca.crt")),
        // Or `exec` looks a node's name up.
        ("kubelet-preferred-address-types", "InternalIP".to_owned()),
        ("audit-policy-file", path(plan, "audit.yaml")),
        ("audit-log-path", plan.log(files::AUDIT).display().to_string()),
        ("audit-log-maxsize", "4096".to_owned()),
    ];
    command(&["kube", "apiserver"], flags)
}

fn controller_manager(plan: &Plan) -> Vec<String> {
    let flags = vec![
        ("kubeconfig", path(plan, "controller-manager.kubeconfig")),
        ("service-account-private-key-file", path(plan, "pki/sa.key")),
        ("root-ca-file", path(plan, "pki/ca.crt")),
        ("use-service-account-credentials", "true".to_owned()),
        ("allocate-node-cidrs", "false".to_owned()),
        ("cluster-cidr", PODS.to_owned()),
        ("leader-elect", "false".to_owned()),
        ("kube-api-qps", "500".to_owned()),
        ("kube-api-burst", "500".to_owned()),
        // A node's lease is 8 s old at most (kubelet.yaml): a dead one is noticed within 9 s, not 50.
        ("node-monitor-period", "1s".to_owned()),
        ("node-monitor-grace-period", "8s".to_owned()),
        ("flex-volume-plugin-dir", path(plan, "volume-plugins")),
    ];
    command(&["kube", "controller-manager"], flags)
}

fn scheduler(plan: &Plan) -> Vec<String> {
    let flags = vec![
        ("kubeconfig", path(plan, "scheduler.kubeconfig")),
        ("leader-elect", "false".to_owned()),
        ("kube-api-qps", "1000".to_owned()),
        ("kube-api-burst", "1000".to_owned()),
    ];
    command(&["kube", "scheduler"], flags)
}

fn world_dns(plan: &Plan) -> Vec<String> {
    vec!["coredns".to_owned(), "-conf".to_owned(), path(plan, "world.Corefile")]
}

fn containerd(plan: &Plan, node: Node) -> Vec<String> {
    let config = plan.node_file(node, "containerd.toml").display().to_string();
    vec!["containerd".to_owned(), "--config".to_owned(), config]
}

fn kubelet(plan: &Plan, node: Node) -> Vec<String> {
    let file = |name: &str| plan.node_file(node, name).display().to_string();
    let flags = vec![
        ("kubeconfig", path(plan, &format!("{node}.kubeconfig"))),
        ("config", file("kubelet.yaml")),
        ("root-dir", file("kubelet")),
        ("cert-dir", file("kubelet/pki")),
        ("hostname-override", node.to_string()),
        ("node-ip", node.address().to_string()),
    ];
    command(&["kube", "kubelet"], flags)
}

fn proxy(plan: &Plan, node: Node) -> Vec<String> {
    let flags = vec![
        ("kubeconfig", path(plan, "proxy.kubeconfig")),
        ("proxy-mode", "nftables".to_owned()),
        ("cluster-cidr", PODS.to_owned()),
        ("hostname-override", node.to_string()),
        // The limit belongs to the whole machine and cannot be set from here.
        ("conntrack-max-per-core", "0".to_owned()),
    ];
    command(&["kube", "proxy"], flags)
}

fn kube_router(plan: &Plan, node: Node) -> Vec<String> {
    let flags = vec![
        ("kubeconfig", path(plan, "kube-router.kubeconfig")),
        ("hostname-override", node.to_string()),
        ("run-firewall", "true".to_owned()),
        ("run-router", "false".to_owned()),
        ("run-service-proxy", "false".to_owned()),
        ("run-loadbalancer", "false".to_owned()),
        ("enable-ipv6", "false".to_owned()),
        ("service-cluster-ip-range", SERVICES.to_owned()),
    ];
    command(&["kube-router"], flags)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_node_gets_its_own_parts_and_the_control_plane_is_there_once() {
        let all = launches(&Plan::sample(3));
        assert_eq!(all.len(), 5 + 3 * 4);
        let mut ids: Vec<_> = all.iter().map(|launch| launch.id).collect();
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), all.len());
        for launch in &all {
            assert_eq!(launch.id.node.is_some(), launch.id.role.on_each_node(), "{}", launch.id);
        }
    }

    #[test]
    fn a_role_is_read_as_it_is_written() {
        for (role, name) in ROLES {
            assert_eq!(name.parse::<Role>().unwrap(), role);
            assert_eq!(role.to_string(), name);
        }
        assert!("api".parse::<Role>().unwrap_err().to_string().contains("apiserver"));
    }

    #[test]
    fn parts_of_a_node_name_that_node() {
        let plan = Plan::sample(2);
        let kubelet =
            launches(&plan).into_iter().find(|launch| launch.id.to_string() == "kubelet@node1").unwrap();
        assert_eq!(kubelet.place, Place::Node(Node(1)));
        assert!(kubelet.argv.contains(&"--node-ip=192.0.2.11".to_owned()));
        assert!(kubelet.argv.contains(&"--hostname-override=node1".to_owned()));
    }
}
