//! The cluster's control groups: one of its own name at the top of each hierarchy (or of the one, with cgroup v2),
//! in it `parts` for the cluster's programs and one group per node for that node's pods. Touches no other group.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::plan::{Name, Node, Plan};

const ROOT: &str = "/sys/fs/cgroup";
/// The group of etcd, API server, kubelets and the like.
const PARTS: &str = "parts";

/// Makes the groups and moves the calling process into `parts`; its children follow.
pub(crate) fn enter(plan: &Plan) -> Result<()> {
    let hierarchies = hierarchies()?;
    for hierarchy in &hierarchies {
        let top = hierarchy.join(plan.name.group());
        make(hierarchy, &top, &plan.name)?;
        let groups = plan.nodes().map(|node| node.to_string()).chain([PARTS.to_owned()]);
        for group in groups {
            make(&top, &top.join(group), &plan.name)?;
        }
        let members = top.join(PARTS).join("cgroup.procs");
        fs::write(&members, "0").with_context(|| format!("{} takes no process", members.display()))?;
    }
    Ok(())
}

/// Removes the groups once their processes are gone, waiting up to `patience` for the last to leave.
pub(crate) fn remove(name: &Name, patience: Duration) -> Result<bool> {
    let tops = groups(name)?;
    tops.iter().try_for_each(|top| remove_when_empty(top, patience))?;
    Ok(!tops.is_empty())
}

/// Makes the groups of a node anew, as they are after a boot: what is left in them would confuse its kubelet.
pub(crate) fn renew(plan: &Plan, node: Node, patience: Duration) -> Result<()> {
    for top in groups(&plan.name)? {
        let group = top.join(node.to_string());
        remove_when_empty(&group, patience)?;
        make(&top, &group, &plan.name)?;
    }
    Ok(())
}

fn remove_when_empty(group: &Path, patience: Duration) -> Result<()> {
    let deadline = Instant::now() + patience;
    while let Err(error) = remove_tree(group) {
        if Instant::now() > deadline {
            bail!("cgroup {} cannot be removed: {error}; see its cgroup.procs", group.display());
        }
        thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// How many processes are in the cluster's groups.
pub(crate) fn processes(name: &Name) -> Result<usize> {
    let groups = groups(name)?;
    Ok(groups.iter().map(|group| count(group)).max().unwrap_or(0))
}

fn count(group: &Path) -> usize {
    let own = fs::read_to_string(group.join("cgroup.procs")).map_or(0, |text| text.lines().count());
    let entries = fs::read_dir(group).into_iter().flatten().flatten();
    let below = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    own + below.map(|entry| count(&entry.path())).sum::<usize>()
}

/// The groups of that cluster which exist, one per hierarchy.
fn groups(name: &Name) -> Result<Vec<PathBuf>> {
    let tops = hierarchies()?.into_iter().map(|hierarchy| hierarchy.join(name.group()));
    Ok(tops.filter(|top| top.is_dir()).collect())
}

/// The mount points of the hierarchies: many with cgroup v1, one with v2.
fn hierarchies() -> Result<Vec<PathBuf>> {
    if Path::new(ROOT).join("cgroup.controllers").exists() {
        return Ok(vec![PathBuf::from(ROOT)]);
    }
    let entries = fs::read_dir(ROOT).with_context(|| format!("{ROOT}: no control groups on this machine"))?;
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.context(ROOT)?;
        // Symbolic links, as cpu to cpu,cpuacct, would count a hierarchy twice.
        if entry.file_type().context(ROOT)?.is_dir() && entry.path().join("cgroup.procs").exists() {
            found.push(entry.path());
        }
    }
    if found.is_empty() {
        bail!("{ROOT}: no control group hierarchy is mounted there; the kubelet needs one");
    }
    Ok(found)
}

fn make(parent: &Path, group: &Path, name: &Name) -> Result<()> {
    match fs::create_dir(group) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            bail!("cgroup {} for cluster {}: {error}", group.display(), name.as_str())
        }
        _ => {}
    }
    delegate(parent)?;
    inherit_cpus(parent, group)?;
    weigh(group);
    Ok(())
}

/// With v2, a group's controllers are there for its children only once it says so.
fn delegate(parent: &Path) -> Result<()> {
    let Ok(controllers) = fs::read_to_string(parent.join("cgroup.controllers")) else { return Ok(()) };
    let file = parent.join("cgroup.subtree_control");
    for controller in controllers.split_whitespace() {
        fs::write(&file, format!("+{controller}"))
            .with_context(|| format!("{}: +{controller} is refused", file.display()))?;
    }
    Ok(())
}

/// With v1, a new cpuset is empty and takes no process before its CPUs and memory nodes are named.
fn inherit_cpus(parent: &Path, group: &Path) -> Result<()> {
    for file in ["cpuset.cpus", "cpuset.mems"] {
        let (from, to) = (parent.join(file), group.join(file));
        let v1 = !parent.join("cgroup.subtree_control").exists();
        if v1 && let Ok(value) = fs::read_to_string(&from) {
            fs::write(&to, value.trim()).with_context(|| to.display().to_string())?;
        }
    }
    Ok(())
}

/// Gives a group the weight of one ordinary process per CPU, twice: enough not to starve beside a build that runs
/// on every CPU, whose processes count one by one. A kernel without the CPU controller has neither file.
fn weigh(group: &Path) {
    let cpus = thread::available_parallelism().map_or(1, |count| u64::try_from(count.get()).unwrap_or(1));
    let weights = [("cpu.shares", 2048 * cpus), ("cpu.weight", (200 * cpus).min(10_000))];
    for (file, weight) in weights {
        let file = group.join(file);
        if file.exists() {
            let _ = fs::write(file, weight.to_string());
        }
    }
}

fn remove_tree(group: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(group) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_tree(&entry.path())?;
        }
    }
    match fs::remove_dir(group) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
