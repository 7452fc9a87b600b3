//! What really holds in a sandbox, and by which mechanism. Said only where it was seen or holds by construction.

use super::podview::{Kernel, PodView};
use crate::{
    api::{Enforced, EnforcedState, Enforcement, Isolation},
    report::KernelReport,
};

fn said(state: EnforcedState, mechanism: impl Into<String>) -> Enforced {
    Enforced { state, mechanism: mechanism.into() }
}

/// Describes a running pod; `None` until its kernel was seen.
pub(super) fn describe(
    pod: &PodView,
    promised: Option<Isolation>,
    breach: Option<&str>,
    fell: bool,
) -> Option<Enforcement> {
    use EnforcedState::{Enforced, NotEnforced, Unknown};
    let Some(Kernel::Seen { isolation, report }) = &pod.kernel else { return None };
    let vm = *isolation == Isolation::VirtualMachine;
    Some(Enforcement {
        kernel_isolation: kernel(*isolation, promised),
        read_only_root: said(Enforced, "readOnlyRootFilesystem"),
        workspace_quota: if vm {
            said(NotEnforced, "the guest's tmpfs ends at half of its memory, whatever the volume's size says")
        } else {
            said(Enforced, "size of the tmpfs, charged to the memory limit")
        },
        disk_quota: said(
            Enforced,
            "nothing but the log is on a disk; the kubelet rotates it and evicts over the ephemeral-storage limit",
        ),
        egress_fence: match breach {
            Some(policy) => said(
                NotEnforced,
                format!("NetworkPolicy {policy:?} opens the fence").chars().take(256).collect::<String>(),
            ),
            None if fell => said(NotEnforced, "seen open from inside while the workload runs"),
            None => match report.fence_rounds() {
                rounds @ 1.. => said(
                    Enforced,
                    format!(
                        "NetworkPolicy glovebox-fence: seen closed from inside {rounds} times in a row, and looked at again while it runs"
                    ),
                ),
                0 => said(Unknown, "NetworkPolicy glovebox-fence; it was not tried from inside"),
            },
        },
        seccomp: seccomp(*isolation, report),
        user_namespace: if report.user_namespace {
            said(Enforced, "user namespace")
        } else {
            said(NotEnforced, "the runtime on this node gives pods no user namespace")
        },
        protected_paths: said(Enforced, "read-only mounts; $HOME is a read-only mount but for its cache"),
    })
}

fn kernel(seen: Isolation, promised: Option<Isolation>) -> Enforced {
    let what = name(seen);
    match promised {
        Some(promised) if seen < promised => said(
            EnforcedState::NotEnforced,
            format!("{what}, weaker than {} and accepted by the class", promised.as_str()),
        ),
        _ if seen == Isolation::SharedKernel => {
            said(EnforcedState::NotEnforced, format!("{what}, as the class allows"))
        }
        _ => said(EnforcedState::Enforced, what),
    }
}

fn seccomp(seen: Isolation, report: &KernelReport) -> Enforced {
    match (report.seccomp, seen) {
        (2, _) => said(EnforcedState::Enforced, "seccomp filter of the runtime"),
        (_, Isolation::UserspaceKernel) => {
            said(EnforcedState::Enforced, "gVisor's kernel answers every system call and filters its own")
        }
        _ => said(EnforcedState::NotEnforced, "no filter was seen from inside"),
    }
}

/// The kernel in a few words.
pub(super) fn name(seen: Isolation) -> &'static str {
    match seen {
        Isolation::SharedKernel => "the node's kernel",
        Isolation::UserspaceKernel => "gVisor",
        Isolation::VirtualMachine => "a virtual machine",
    }
}
