//! What is seen of a container's processes from outside.

use std::collections::BTreeMap;
use std::fs;

use nix::unistd::Pid;

/// Those below a process, zombies included, with their names.
pub(crate) fn below(root: Pid) -> Vec<(i32, String)> {
    let mut children: BTreeMap<i32, Vec<(i32, String)>> = BTreeMap::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { continue };
        let Some((head, tail)) = stat.rsplit_once(") ") else { continue };
        let parent: i32 = tail.split(' ').nth(1).unwrap().parse().unwrap();
        let state = tail.split(' ').next().unwrap();
        children.entry(parent).or_default().push((pid, format!("{state} {head}")));
    }
    let (mut found, mut ask) = (Vec::new(), vec![root.as_raw()]);
    while let Some(parent) = ask.pop() {
        for child in children.remove(&parent).unwrap_or_default() {
            ask.push(child.0);
            found.push(child);
        }
    }
    found
}

/// How many descriptors a process has; none where only root may look.
pub(crate) fn descriptors(pid: Pid) -> Option<usize> {
    fs::read_dir(format!("/proc/{pid}/fd")).ok().map(Iterator::count)
}

pub(crate) fn resident_kb(pid: Pid) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}
