//! Owns trees of processes: who is below whom, and the end of all of them, whatever they do. Reads `/proc/PID/stat` and nothing
//! else, which every kernel has that a sandbox may run on.
//!
//! Must not trust a single look: processes come and go while it is taken.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// How long new processes may keep appearing before killing begins all the same: one that wakes the others up could go on for
/// ever.
const STOPPING: Duration = Duration::from_millis(200);
/// Longest line that is read: a name of 64 bytes and fifty numbers.
const MOST_STAT: usize = 1024;

/// A process as one look saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Process {
    pid: i32,
    parent: i32,
    /// Whether there is something to kill. A process whose first thread has ended looks dead while others go on.
    alive: bool,
}

/// Looks at all processes.
fn look() -> io::Result<Vec<Process>> {
    let mut all = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
        // One that can't be read has gone.
        all.extend(read(pid));
    }
    Ok(all)
}

fn read(pid: i32) -> Option<Process> {
    let mut bytes = [0; MOST_STAT];
    let length = File::open(format!("/proc/{pid}/stat")).ok()?.read(&mut bytes).ok()?;
    parse(pid, bytes.get(..length)?)
}

/// `PID (NAME) STATE PARENT ...`, where the name is whatever the process likes.
fn parse(pid: i32, stat: &[u8]) -> Option<Process> {
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(stat.get(end + 1..)?).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    // The 20th field of all; `state` is the third.
    let threads: i64 = fields.nth(15).and_then(|threads| threads.parse().ok()).unwrap_or(1);
    Some(Process { pid, parent, alive: !matches!(state, "Z" | "X" | "x") || threads > 1 })
}

/// The living below `root`, without those that are `spared` and all below them.
fn below(all: &[Process], root: Pid, spared: impl Fn(Pid) -> bool) -> Vec<i32> {
    let mut children: BTreeMap<i32, Vec<Process>> = BTreeMap::new();
    for process in all {
        children.entry(process.parent).or_default().push(*process);
    }
    let mut found = Vec::new();
    let mut ask = vec![root.as_raw()];
    while let Some(parent) = ask.pop() {
        // Removed, so that a look that shows a ring ends.
        for child in children.remove(&parent).unwrap_or_default() {
            if !spared(Pid::from_raw(child.pid)) {
                ask.push(child.pid);
                found.extend(child.alive.then_some(child.pid));
            }
        }
    }
    found
}

/// The end of a tree, step by step.
#[derive(Debug)]
pub(super) struct Sweep {
    stopped: BTreeSet<i32>,
    /// Looks in a row that found nobody.
    calm: u8,
    stop_until: Instant,
}

impl Sweep {
    pub(super) fn begin() -> Self {
        Self { stopped: BTreeSet::new(), calm: 0, stop_until: Instant::now() + STOPPING }
    }

    /// Stops all that is below `root` until a look finds no new one, and then kills it. Whether nobody is left: the caller reaps
    /// between two steps, and goes on until it is so.
    pub(super) fn step(&mut self, root: Pid, spared: impl Fn(Pid) -> bool) -> bool {
        loop {
            let Ok(all) = look() else { return false };
            let found = below(&all, root, &spared);
            if found.is_empty() {
                // Twice: a parent that ends in the middle of a look hides its children from it.
                self.calm = self.calm.saturating_add(1);
                return self.calm > 1;
            }
            self.calm = 0;
            let new: Vec<i32> = found.iter().copied().filter(|pid| !self.stopped.contains(pid)).collect();
            if new.is_empty() || Instant::now() >= self.stop_until {
                send(&found, Signal::SIGKILL);
                // What comes from now on is killed at sight.
                self.stop_until = Instant::now();
                return false;
            }
            send(&new, Signal::SIGSTOP);
            self.stopped.extend(new);
        }
    }
}

fn send(to: &[i32], signal: Signal) {
    for pid in to {
        // One that is gone is what is wanted.
        let _ = kill(Pid::from_raw(*pid), signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_can_be_anything() {
        let line = |name: &str, state: &str, threads: u8| {
            format!("7 ({name}) {state} 3 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 {threads} 0 99\n")
        };
        for name in ["sh", "a b", ") R 1 (", "\n", "))))"] {
            let process = parse(7, line(name, "S", 1).as_bytes());
            assert_eq!(process, Some(Process { pid: 7, parent: 3, alive: true }), "{name:?}");
        }
        assert!(!parse(7, line("sh", "Z", 1).as_bytes()).unwrap().alive);
        assert!(parse(7, line("sh", "Z", 2).as_bytes()).unwrap().alive, "only its first thread has ended");
        for line in ["", "7", "7 (sh)", "7 (sh) S", "7 (sh) S x"] {
            assert_eq!(parse(7, line.as_bytes()), None, "{line:?}");
        }
    }

    #[test]
    fn those_below_are_found_and_the_spared_are_not() {
        let all = [(2, 1), (3, 1), (4, 2), (5, 4), (6, 3), (7, 9), (8, 8)].map(|(pid, parent)| Process {
            pid,
            parent,
            alive: pid != 4,
        });
        let mut found = below(&all, Pid::from_raw(1), |pid| pid.as_raw() == 3);
        found.sort_unstable();
        assert_eq!(found, [2, 5]);
    }

    #[test]
    fn this_process_is_seen() {
        let own = Pid::this().as_raw();
        assert!(look().unwrap().iter().any(|process| process.pid == own && process.alive));
    }
}
