//! What the node's own kernel sees of sandboxes under runc. Needs to be root on the node.

use std::{fs, path::PathBuf};

use anyhow::{Context as _, Result};

/// An agent that is process 1, as the node sees it.
#[derive(Debug)]
pub(super) struct Agent {
    /// Open descriptors.
    pub(super) descriptors: usize,
    /// Processes below it.
    pub(super) children: usize,
    /// Memory, in KiB.
    pub(super) resident_kib: u64,
}

/// Command lines of processes, by their folder in /proc; those that just ended are none.
fn all() -> Result<Vec<(PathBuf, Vec<String>)>> {
    let numbered =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().parse::<u32>().is_ok());
    let folders = fs::read_dir("/proc")?.filter_map(|entry| Some(entry.ok()?.path())).filter(numbered);
    let words = |folder: PathBuf| {
        let line = fs::read(folder.join("cmdline")).ok()?;
        let words = line.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned());
        Some((folder.clone(), words.collect()))
    };
    Ok(folders.filter_map(words).collect())
}

/// Processes that have this word in their command line.
pub(super) fn processes_with(word: &str) -> Result<Vec<PathBuf>> {
    let has =
        |words: &Vec<String>| words.iter().any(|one| one == word) && !words.iter().any(|one| one == "exec");
    Ok(all()?.into_iter().filter(|(_, words)| has(words)).map(|(folder, _)| folder).collect())
}

/// Process 1 of the sandbox with this uid.
pub(super) fn agent(uid: &str) -> Result<Agent> {
    let all = all()?;
    let ours = |words: &Vec<String>| {
        words.first().is_some_and(|program| program.ends_with("/glovebox-agent"))
            && words.iter().any(|word| word == uid)
    };
    let parents = |folder: &PathBuf| -> Option<u32> {
        // After the name, which may contain anything: state, then the parent.
        let stat = fs::read_to_string(folder.join("stat")).ok()?;
        stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
    };
    let number = |folder: &PathBuf| folder.file_name().and_then(|name| name.to_str()?.parse::<u32>().ok());
    let mut found = all.iter().filter(|(_, words)| ours(words)).map(|(folder, _)| folder.clone());
    let folder = found.next().with_context(|| format!("no agent of sandbox {uid} on this machine"))?;
    let pid = number(&folder);
    let status = fs::read_to_string(folder.join("status"))?;
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"));
    Ok(Agent {
        descriptors: fs::read_dir(folder.join("fd"))?.count(),
        children: all.iter().filter(|(other, _)| parents(other) == pid).count(),
        resident_kib: resident.and_then(|text| text.parse().ok()).context("no VmRSS")?,
    })
}
