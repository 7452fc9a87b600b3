//! The plan of one local cluster: names, addresses, folders. Pure: computes, reads and writes nothing.
//!
//! Networks are the documentation's own (RFC 5737) so that a mistake can reach nobody: nodes in 192.0.2.0/24,
//! the pretended internet in 198.51.100.0/24 and 203.0.113.0/24.

use std::collections::BTreeMap;
use std::fmt;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

/// The world's router, and the nodes' gateway.
pub(crate) const WORLD: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
/// The world's name server.
pub(crate) const WORLD_DNS: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 53);
/// Where the world's `allowed.example` is.
pub(crate) const WORLD_WEB: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 7);
/// Where the world's `denied.example` is.
pub(crate) const WORLD_OTHER: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 8);
/// Where the world's `evil.example` is: nobody ever has leave to go there.
pub(crate) const WORLD_EVIL: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 9);
/// Every address of these is the world's own: whatever listens there in the world is reached from a pod. After
/// the two documentation networks come a metadata server and one address of each private range, so that a rule
/// that is said to refuse those can be shown to refuse something that answers.
pub(crate) const WORLD_LOCAL: [&str; 7] = [
    "198.51.100.0/24",
    "203.0.113.0/24",
    "169.254.169.254/32",
    "10.0.0.7/32",
    "172.16.0.7/32",
    "192.168.0.7/32",
    "100.64.0.7/32",
];
/// All pods; node i has the i-th /24 of it.
pub(crate) const PODS: &str = "10.244.0.0/16";
/// All services.
pub(crate) const SERVICES: &str = "10.96.0.0/16";
/// The service of the API server.
pub(crate) const SERVICE_API: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);
/// The service of the cluster's DNS.
pub(crate) const SERVICE_DNS: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 10);
/// A machine of a developer carries few nodes; the addresses would allow 200.
pub(crate) const MAX_NODES: u8 = 9;

/// The name of a cluster: `[a-z0-9-]{1,24}`, so that socket paths stay below 108 bytes and it can name a cgroup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct Name(String);

impl Name {
    /// The name as text.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// The folder in `base` that holds everything of the cluster.
    pub(crate) fn run_dir(&self, base: &Path) -> PathBuf {
        base.join(self.group())
    }

    /// The name of its cgroup in every hierarchy.
    pub(crate) fn group(&self) -> String {
        format!("glovebox-{}", self.0)
    }
}

impl FromStr for Name {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if text.is_empty() || text.len() > 24 || !text.bytes().all(fits) {
            bail!("cluster name {text:?}: 1 to 24 of a-z, 0-9 and - are allowed");
        }
        Ok(Self(text.to_owned()))
    }
}

impl TryFrom<String> for Name {
    type Error = anyhow::Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<Name> for String {
    fn from(name: Name) -> Self {
        name.0
    }
}

/// A node, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct Node(pub(crate) u8);

impl Node {
    /// Its address: 192.0.2.10 and up.
    pub(crate) fn address(self) -> Ipv4Addr {
        Ipv4Addr::new(192, 0, 2, 10 + self.0)
    }

    /// The addresses of its pods.
    pub(crate) fn pods(self) -> String {
        format!("10.244.{}.0/24", self.0)
    }

    /// The world's end of its cable.
    pub(crate) fn cable(self) -> String {
        format!("to-node{}", self.0)
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node{}", self.0)
    }
}

impl FromStr for Node {
    type Err = anyhow::Error;

    /// Reads `node1` or `1`.
    fn from_str(text: &str) -> Result<Self> {
        match text.strip_prefix("node").unwrap_or(text).parse() {
            Ok(number) if number < MAX_NODES => Ok(Self(number)),
            _ => bail!("node {text:?}: name one as node0 or 0, up to node{}", MAX_NODES - 1),
        }
    }
}

/// Where a process runs: which namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Place {
    /// The router and pretended internet; sees every process of the cluster.
    World,
    /// One node.
    Node(Node),
}

/// All that is fixed when a cluster is made; kept as `plan.json` in its run folder.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Plan {
    /// The cluster's name.
    pub(crate) name: Name,
    /// Everything of the cluster is in this folder; removed by `down`.
    pub(crate) run: PathBuf,
    /// How many nodes, at least 1.
    pub(crate) nodes: u8,
    /// `PATH` for the parts: the cluster's `bin`, then the caller's.
    pub(crate) path: String,
    /// What it was made of: part and version.
    pub(crate) versions: BTreeMap<String, String>,
}

#[cfg(test)]
impl Plan {
    /// A plan for tests.
    pub(crate) fn sample(nodes: u8) -> Self {
        let (run, path) = (PathBuf::from("/tmp/glovebox-t"), "/bin".to_owned());
        Self { name: Name("t".to_owned()), run, nodes, path, versions: BTreeMap::new() }
    }
}

impl Plan {
    /// The nodes, node0 first; it carries the control plane.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = Node> + use<> {
        (0..self.nodes).map(Node)
    }

    /// A file or folder of the run folder.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.run.join(name)
    }

    /// A file or folder of one node.
    pub(crate) fn node_file(&self, node: Node, name: &str) -> PathBuf {
        self.run.join(node.to_string()).join(name)
    }

    /// The log of something that runs at a place.
    pub(crate) fn log(&self, name: &str) -> PathBuf {
        self.run.join("log").join(name)
    }

    /// A node's cgroup, below the mount point of each hierarchy.
    pub(crate) fn node_group(&self, node: Node) -> String {
        format!("{}/{node}", self.name.group())
    }
}

/// The files of a run folder that others than `init` look for.
pub(crate) mod files {
    /// The plan, as JSON.
    pub(crate) const PLAN: &str = "plan.json";
    /// Host process id and start time of `init`.
    pub(crate) const INIT: &str = "init.pid";
    /// The socket of `init`.
    pub(crate) const SOCKET: &str = "init.sock";
    /// The copy of this program that the cluster runs by.
    pub(crate) const XTASK: &str = "xtask";
    /// The administrator's kubeconfig.
    pub(crate) const KUBECONFIG: &str = "admin.kubeconfig";
    /// The names the world's DNS answers, in the format of /etc/hosts.
    pub(crate) const HOSTS: &str = "world.hosts";
    /// The API server's audit log, below `log/`.
    pub(crate) const AUDIT: &str = "audit.jsonl";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_have_addresses_of_their_own() {
        assert_eq!(Node(0).address().to_string(), "192.0.2.10");
        assert_eq!(Node(2).address().to_string(), "192.0.2.12");
        assert_eq!(Node(2).pods(), "10.244.2.0/24");
        let mut addresses: Vec<_> = (0..MAX_NODES).map(|number| Node(number).address()).collect();
        addresses.extend([WORLD, WORLD_DNS, WORLD_WEB, WORLD_OTHER]);
        let all = addresses.len();
        addresses.sort();
        addresses.dedup();
        assert_eq!(addresses.len(), all);
    }

    #[test]
    fn names_that_could_leave_their_folder_are_refused() {
        for bad in ["", ".", "..", "a/b", "A", "a b", "a_b", "-\n", "abcdefghijklmnopqrstuvwxy"] {
            assert!(bad.parse::<Name>().is_err(), "{bad:?}");
        }
        let name: Name = "e2e-1".parse().unwrap();
        assert_eq!(name.run_dir(Path::new("/tmp")), Path::new("/tmp/glovebox-e2e-1"));
    }

    #[test]
    fn a_node_is_named_by_name_or_number() {
        assert_eq!("node1".parse::<Node>().unwrap(), Node(1));
        assert_eq!("1".parse::<Node>().unwrap(), Node(1));
        for bad in ["", "node", "node9", "-1", "nodenode1", "world"] {
            assert!(bad.parse::<Node>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn the_longest_socket_path_fits_into_an_address() {
        let name: Name = "a".repeat(24).parse().unwrap();
        let path = name.run_dir(Path::new("/tmp")).join(files::SOCKET);
        assert!(path.as_os_str().len() < 100);
    }
}
