//! Owns the look at the kernel: which one runs this pod, and what it holds against its processes. Reads `/proc` only,
//! and judges only what cannot be otherwise; whether the kernel is the node's own is for the controller to see.

use std::fs;
use std::io;
use std::path::Path;

use super::fault::Fault;
use crate::report::{KernelReport, VERSION, printable};

/// What a class promises to stand between a sandbox and the node's kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isolation {
    /// A virtual machine's own kernel.
    VirtualMachine,
    /// A kernel that is a process: gVisor.
    UserspaceKernel,
    /// The node's kernel.
    SharedKernel,
}

impl Isolation {
    /// The kind of that name, spelled as in a class.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::VirtualMachine, Self::UserspaceKernel, Self::SharedKernel]
            .into_iter()
            .find(|isolation| isolation.name() == name)
    }

    /// Spelled as in a class.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::VirtualMachine => "VirtualMachine",
            Self::UserspaceKernel => "UserspaceKernel",
            Self::SharedKernel => "SharedKernel",
        }
    }
}

/// Looks at the kernel through a `/proc` mounted at `proc`.
///
/// # Errors
/// A [`Fault`] when the boot id, the version or the capabilities cannot be read: without them there is no report.
pub fn look(proc: &Path) -> Result<KernelReport, Fault> {
    let read = |name: &str| {
        let path = proc.join(name);
        fs::read_to_string(&path).map_err(|error| Fault::io("read", &path, &error))
    };
    let version = read("version")?;
    let status = read("self/status")?;
    let cap_eff = line(&status, "CapEff:").ok_or_else(|| {
        Fault::io("find CapEff in", &proc.join("self/status"), &io::ErrorKind::InvalidData.into())
    })?;
    Ok(KernelReport {
        v: VERSION,
        boot_id: read("sys/kernel/random/boot_id")?.trim().to_ascii_lowercase(),
        gvisor: is_gvisor(&version),
        kernel: printable(version.as_bytes()),
        seccomp: line(&status, "Seccomp:").and_then(|mode| mode.parse().ok()).unwrap_or(0),
        // Asked of the kernel and not read from the status, where gVisor has no such line.
        no_new_privs: nix::sys::prctl::get_no_new_privs().unwrap_or(false),
        cap_eff: cap_eff.to_ascii_lowercase(),
        user_namespace: !is_identity(&read("self/uid_map")?),
        fence: None,
    })
}

/// The value of a line of `/proc/self/status`.
fn line<'a>(status: &'a str, key: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(key)).map(str::trim)
}

/// gVisor says so in its release; before 2026 it gave itself away by a build date that never changed.
fn is_gvisor(version: &str) -> bool {
    let version = version.to_ascii_lowercase();
    version.contains("gvisor") || version.contains("#1 smp sun jan 10 15:06:54 pst 2016")
}

/// Whether a `uid_map` maps every id to itself, that is, no user namespace is in use.
fn is_identity(uid_map: &str) -> bool {
    uid_map.split_ascii_whitespace().eq(["0", "0", "4294967295"])
}

/// What is surely wrong with this kernel for a class that promises `promised`, or `None`.
///
/// gVisor under a promised virtual machine is sure. No gVisor under a promised user-space kernel is not: it may be a
/// virtual machine, which is more. That, and a shared kernel, shows only beside the node's boot id, which the pod does
/// not know and the controller does.
#[must_use]
pub fn mismatch(promised: Isolation, report: &KernelReport) -> Option<String> {
    (promised == Isolation::VirtualMachine && report.gvisor)
        .then(|| "the class promises VirtualMachine, this kernel is gVisor, a UserspaceKernel".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gvisor_is_told_by_its_release_or_its_date() {
        assert!(is_gvisor("Linux version 4.19.0-gvisor #1 SMP Sun Jan 10 15:06:54 PST 2016"));
        assert!(is_gvisor("Linux version 4.4.0 #1 SMP Sun Jan 10 15:06:54 PST 2016"));
        assert!(!is_gvisor("Linux version 6.18.0 (a@b) (gcc 12.2.0) #1 SMP PREEMPT_DYNAMIC"));
    }

    #[test]
    fn only_the_identity_over_all_ids_is_no_user_namespace() {
        assert!(is_identity("         0          0 4294967295\n"));
        assert!(!is_identity("         0     165536      65536\n"));
        assert!(!is_identity("0 0 4294967295\n1 1 1\n"));
        assert!(!is_identity(""));
    }

    #[test]
    fn this_kernel_gives_a_report_that_is_read_again() {
        let report = look(Path::new("/proc")).unwrap();
        let line = crate::report::encode(&report).unwrap();
        assert_eq!(crate::report::parse_report(&line), Ok(report));
    }

    #[test]
    fn without_proc_the_fault_names_the_file() {
        let fault = look(Path::new("/nonexistent")).unwrap_err().to_string();
        assert!(fault.contains("/nonexistent/version"), "{fault}");
    }

    #[test]
    fn only_gvisor_in_place_of_a_machine_is_surely_less() {
        let shared = look(Path::new("/proc")).unwrap();
        let gvisor = KernelReport { gvisor: true, ..shared.clone() };
        let shared = KernelReport { gvisor: false, ..shared };
        assert!(mismatch(Isolation::VirtualMachine, &gvisor).is_some());
        for isolation in [Isolation::UserspaceKernel, Isolation::SharedKernel] {
            assert_eq!(mismatch(isolation, &gvisor), None);
        }
        for isolation in [Isolation::VirtualMachine, Isolation::UserspaceKernel, Isolation::SharedKernel] {
            assert_eq!(mismatch(isolation, &shared), None);
        }
    }

    #[test]
    fn names_are_those_of_the_class() {
        for isolation in [Isolation::VirtualMachine, Isolation::UserspaceKernel, Isolation::SharedKernel] {
            assert_eq!(Isolation::from_name(isolation.name()), Some(isolation));
        }
        assert_eq!(Isolation::from_name("virtualmachine"), None);
    }
}
