//! PID 1 of a node: gives it private mounts, then buries the dead. Starts nothing: what runs on the node is born
//! here as a child of the cluster's `init`, and dies with this process, by the kernel.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use nix::mount::{MsFlags, mount};
use nix::sys::signal::{SigSet, Signal};
use rustix::process::{WaitOptions, wait};

use super::super::plan::{Node, Plan};

/// What the kubelet sets on its machine. A cluster must not change the machine it visits, so where a value
/// differs, a file that holds the wished one lies over the real one on the node.
const KUBELET_SYSCTLS: [(&str, &str); 6] = [
    ("vm/overcommit_memory", "1"),
    ("vm/panic_on_oom", "0"),
    ("kernel/panic", "10"),
    ("kernel/panic_on_oops", "1"),
    ("kernel/keys/root_maxkeys", "1000000"),
    ("kernel/keys/root_maxbytes", "25000000"),
];

const RESOLV_CONF: &str = "/etc/resolv.conf";

/// Runs as PID 1 of a node's namespaces, until it is killed.
pub(crate) fn main(plan: &Plan, node: Node) -> Result<()> {
    mounts(plan, node)?;
    let mut children = SigSet::empty();
    children.add(Signal::SIGCHLD);
    children.thread_block().context("SIGCHLD cannot be held back")?;
    writeln!(io::stdout(), "ready").context("init hung up")?;
    loop {
        while matches!(wait(WaitOptions::NOHANG), Ok(Some(_))) {}
        children.wait().context("SIGCHLD cannot be waited for")?;
    }
}

/// Cuts the ties of the mount namespace to its maker's and mounts the PID namespace's own /proc.
pub(super) fn own_proc() -> Result<()> {
    propagation(MsFlags::MS_PRIVATE)?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("proc"), "/proc", Some("proc"), flags, None::<&str>).context("/proc cannot be mounted")
}

/// Whether mounts that are made here appear elsewhere.
fn propagation(kind: MsFlags) -> Result<()> {
    let unused = None::<&str>;
    mount(unused, "/", unused, MsFlags::MS_REC | kind, unused).context("the propagation of / is fixed")
}

/// Where the machine keeps its resolver's configuration, behind all symbolic links.
pub(super) fn resolver() -> Result<PathBuf> {
    fs::canonicalize(RESOLV_CONF).with_context(|| {
        format!("{RESOLV_CONF} is needed, to lay the cluster's own over it; make an empty one")
    })
}

/// Lays a file or folder over another.
pub(super) fn cover(own: &Path, target: &Path) -> Result<()> {
    let unused = None::<&str>;
    mount(Some(own), target, unused, MsFlags::MS_BIND, unused)
        .with_context(|| format!("{} cannot be laid over {}", own.display(), target.display()))
}

fn mounts(plan: &Plan, node: Node) -> Result<()> {
    let resolver = resolver()?;
    own_proc()?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(Some("run"), "/run", Some("tmpfs"), flags, Some("mode=755")).context("/run cannot be mounted")?;
    for (folder, name) in [("/var/lib", "var-lib"), ("/var/log", "var-log")] {
        overlay(folder, &plan.node_file(node, name))?;
    }
    if !resolver.exists() {
        // It was on /run, which is the node's own and empty by now.
        let parent = resolver.parent().unwrap_or_else(|| Path::new("/"));
        fs::create_dir_all(parent).with_context(|| parent.display().to_string())?;
        File::create(&resolver).with_context(|| resolver.display().to_string())?;
    }
    cover(&plan.file("resolv.conf"), &resolver)?;
    sysctls(&plan.node_file(node, "sysctl"))?;
    fs::write("/proc/sys/net/ipv4/ip_forward", "1").context("the node cannot be made to forward packets")?;
    // Volumes that the kubelet mounts must appear to containerd and to pods.
    propagation(MsFlags::MS_SHARED)
}

/// Makes a folder writable without changing it: what is written goes to `store`.
fn overlay(folder: &str, store: &Path) -> Result<()> {
    let (upper, work) = (store.join("upper"), store.join("work"));
    for path in [&upper, &work] {
        fs::create_dir_all(path).with_context(|| path.display().to_string())?;
    }
    let options = format!("lowerdir={folder},upperdir={},workdir={}", upper.display(), work.display());
    mount(Some("overlay"), folder, Some("overlay"), MsFlags::empty(), Some(options.as_str()))
        .with_context(|| format!("an overlay over {folder} is refused; is {} itself one?", store.display()))
}

fn sysctls(store: &Path) -> Result<()> {
    for (name, value) in KUBELET_SYSCTLS {
        let real = Path::new("/proc/sys").join(name);
        if fs::read_to_string(&real).is_ok_and(|found| found.trim() != value) {
            let own = store.join(name.replace('/', "."));
            fs::create_dir_all(store).with_context(|| store.display().to_string())?;
            fs::write(&own, format!("{value}\n")).with_context(|| own.display().to_string())?;
            cover(&own, &real)?;
        }
    }
    Ok(())
}
