//! Powers over the local cluster, by the cluster's own xtask: run something on a node or in the world, stop and start its
//! parts. A user's own cluster has none of them.

use std::{env, path::PathBuf};

use anyhow::Result;

use super::program;

/// The local cluster that this program runs in.
#[derive(Clone, Debug)]
pub(crate) struct Local {
    /// The cluster's copy of xtask.
    pub(crate) xtask: String,
    /// The folder with everything of the cluster.
    pub(crate) run: PathBuf,
}

impl Local {
    /// The cluster that the environment tells of.
    pub(crate) fn from_environment() -> Option<Self> {
        Some(Self {
            xtask: env::var("GLOVEBOX_XTASK").ok()?,
            run: env::var_os("GLOVEBOX_CLUSTER_RUN_DIR").map(PathBuf::from)?,
        })
    }

    /// Runs a command on a node, as root, in the node's namespaces.
    pub(crate) async fn on_node(&self, node: &str, command: &[&str]) -> Result<String> {
        let mut arguments = vec!["cluster", "node", "--node", node, "--"];
        arguments.extend(command);
        program::run(&self.xtask, &arguments, "").await
    }

    /// Stops, starts or restarts a part.
    pub(crate) async fn part(&self, arguments: &[&str]) -> Result<String> {
        let mut all = vec!["cluster", "part"];
        all.extend(arguments);
        program::run(&self.xtask, &all, "").await
    }
}
