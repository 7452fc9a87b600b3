//! Trust and isolation, and the order that binds them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How much the least-trusted workload of a class is trusted.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trust {
    /// Known to attack.
    Hostile,
    /// Anything that an agent made or fetched.
    Untrusted,
    /// Made elsewhere, looked at.
    Restricted,
    /// Reviewed code of one's own.
    Trusted,
}

impl Trust {
    /// The weakest isolation that this trust allows without an exception.
    #[must_use]
    pub const fn least_isolation(self) -> Isolation {
        match self {
            Self::Hostile | Self::Untrusted => Isolation::VirtualMachine,
            Self::Restricted => Isolation::UserspaceKernel,
            Self::Trusted => Isolation::SharedKernel,
        }
    }
}

/// Whose kernel a workload meets; each is stronger than the one before.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Isolation {
    /// The node's own kernel, as in any container.
    SharedKernel,
    /// A kernel written as a program, as gVisor.
    UserspaceKernel,
    /// A kernel of its own behind a hypervisor, as Kata.
    VirtualMachine,
}

impl Isolation {
    /// The spelling in the API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SharedKernel => "SharedKernel",
            Self::UserspaceKernel => "UserspaceKernel",
            Self::VirtualMachine => "VirtualMachine",
        }
    }
}
