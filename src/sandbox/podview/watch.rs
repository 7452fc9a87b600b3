//! What the kubelet's probe says of the fence. A probe that was silenced from inside is one that does not see it hold.

use k8s_openapi::api::core::v1::{ContainerStatus, Pod};

use super::{condition, ran_since};
use crate::sandbox::names;

/// The fence in the eyes of the kubelet's probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watch {
    /// It does not look: the agent itself acts on an open fence.
    None,
    /// The fence holds.
    Holds,
    /// It has not seen the fence hold yet.
    Unseen,
    /// It saw it hold once, and does not any more.
    Fell,
}

impl Watch {
    pub(super) fn read(pod: &Pod, workload: Option<&ContainerStatus>) -> Self {
        let mut containers = pod.spec.iter().flat_map(|spec| &spec.containers);
        let probed =
            containers.any(|one| one.name == names::WORKLOAD_CONTAINER && one.readiness_probe.is_some());
        match workload {
            _ if !probed => Self::None,
            Some(status) if status.ready => Self::Holds,
            Some(status) => {
                let turned =
                    condition(pod, "ContainersReady").and_then(|ready| ready.last_transition_time.as_ref());
                let fell = turned.zip(ran_since(status)).is_some_and(|(turned, since)| turned.0 > since);
                if fell { Self::Fell } else { Self::Unseen }
            }
            None => Self::Unseen,
        }
    }
}
