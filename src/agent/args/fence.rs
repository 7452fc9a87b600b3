//! The options that say what the fence is: shared by all commands that look at it.

use std::net::SocketAddr;
use std::time::Duration;

use super::words::{Words, push};
use crate::agent::fault::Fault;

/// Where a kubelet listens, which can run things in every pod of its node.
const KUBELET_PORT: u16 = 10250;

/// What must hold of the network around the pod. Nothing is proven where nothing is forbidden.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FenceArgs {
    /// What must not be reachable, over TCP.
    pub forbidden: Vec<SocketAddr>,
    /// What must be, over TCP.
    pub gateway: Vec<SocketAddr>,
    /// Who must answer a question, over UDP.
    pub dns: Option<SocketAddr>,
    /// How long the first proof may take.
    pub within: Duration,
    /// From one proof to the next while the workload runs.
    pub every: Duration,
}

impl Default for FenceArgs {
    fn default() -> Self {
        Self {
            forbidden: Vec::new(),
            gateway: Vec::new(),
            dns: None,
            within: Duration::from_secs(60),
            every: Duration::from_secs(5),
        }
    }
}

impl FenceArgs {
    /// Whether a proof is asked for.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        !self.forbidden.is_empty()
    }

    /// Takes one option, if it is one of these.
    pub(super) fn take(&mut self, option: &str, words: &mut Words) -> Result<bool, Fault> {
        match option {
            "--fence-forbid" => push(&mut self.forbidden, option, words.address(option)?)?,
            "--fence-node" => {
                let node = words.ip(option)?;
                push(&mut self.forbidden, option, SocketAddr::new(node, KUBELET_PORT))?;
            }
            "--fence-gateway" => push(&mut self.gateway, option, words.address(option)?)?,
            "--fence-dns" => self.dns = Some(words.address(option)?),
            "--fence-within" => self.within = words.millis(option)?,
            "--fence-every" => self.every = words.millis(option)?,
            _ => return Ok(false),
        }
        Ok(true)
    }
}
