//! Ends a cluster: one kill, then proof that nothing is left. Also clears what an interrupted `up` left behind.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::fcntl::OFlag;
use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{PidfdFlags, pidfd_open};

use super::plan::files;
use super::{Cluster, cgroup};
use crate::ui::{self, Step};

/// How long the kernel may take to kill everything: a process may be writing to a slow disk.
const PATIENCE: Duration = Duration::from_secs(30);

/// What was found and removed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Removed {
    pub(super) processes: usize,
    pub(super) groups: bool,
    pub(super) folder: bool,
}

/// The whole of `cluster down`.
pub(super) fn down(cluster: &Cluster) -> Result<()> {
    refuse_inside(cluster)?;
    let step = Step::start(format!("cluster {:?} down", cluster.name.as_str()));
    let lock = if cluster.run.exists() { Some(lock(&cluster.run)?) } else { None };
    let removed = clear(cluster)?;
    drop(lock);
    if removed == Removed::default() {
        step.done("there was nothing");
        return Ok(());
    }
    let mut what = Vec::new();
    if removed.processes > 0 {
        what.push(format!("killed {} processes", removed.processes));
    }
    if removed.groups {
        what.push("removed its cgroups".to_owned());
    }
    if removed.folder {
        what.push(format!("removed {}", cluster.run.display()));
    }
    step.done(&what.join(", "));
    Ok(())
}

/// Kills and removes everything of a cluster, and checks that it is gone. To be called with the lock.
pub(super) fn clear(cluster: &Cluster) -> Result<Removed> {
    let processes = cgroup::processes(&cluster.name)?;
    if let Some(pid) = init(&cluster.run)? {
        kill(pid)?;
    }
    // A group can be removed only when no process is in it: this is the proof that all are gone.
    let groups = cgroup::remove(&cluster.name, PATIENCE)?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").context("/proc/self/mountinfo")?;
    let run = cluster.run.display().to_string();
    if let Some(mount) = mounts.lines().find(|line| line.contains(&run)) {
        bail!("something is still mounted from {run}; unmount it and run this again: {mount}");
    }
    let folder = match fs::remove_dir_all(&cluster.run) {
        Ok(()) => true,
        Err(error) if error.kind() == ErrorKind::NotFound => false,
        Err(error) => bail!("{run} cannot be removed: {error}"),
    };
    Ok(Removed { processes, groups, folder })
}

/// Takes the run folder for this process alone, making it if it is missing. Another `up` or `down` is waited for.
pub(super) fn lock(run: &Path) -> Result<File> {
    loop {
        match fs::DirBuilder::new().mode(0o700).create(run) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                bail!("{} cannot be made: {error}", run.display())
            }
            _ => {}
        }
        let folder = match open(run) {
            // Whoever held it before has just removed it.
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            opened => opened.with_context(|| format!("{} is not a folder of ours", run.display()))?,
        };
        let held = folder.metadata().with_context(|| run.display().to_string())?;
        if held.uid() != nix::unistd::geteuid().as_raw() || held.mode() & 0o077 != 0 {
            bail!("{} belongs to somebody else or is open to others; remove it", run.display());
        }
        if folder.try_lock().is_err() {
            ui::say("another `cluster up` or `down` is at work here; waiting for it");
            folder.lock().with_context(|| run.display().to_string())?;
        }
        if fs::metadata(run).is_ok_and(|now| now.ino() == held.ino()) {
            return Ok(folder);
        }
    }
}

fn open(run: &Path) -> io::Result<File> {
    let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW;
    fs::OpenOptions::new().read(true).custom_flags(flags.bits()).open(run)
}

/// The process id of a cluster's init, if it lives.
pub(super) fn init(run: &Path) -> Result<Option<i32>> {
    let text = match fs::read_to_string(run.join(files::INIT)) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => bail!("{}: {error}", run.join(files::INIT).display()),
    };
    let mut words = text.split_whitespace();
    let (pid, start) = (words.next().and_then(|pid| pid.parse().ok()), words.next());
    // The start time tells it from a later process that got the same number.
    Ok(pid.filter(|pid| start.is_some() && started(*pid).as_deref() == start))
}

/// When a process was started, in the kernel's ticks since boot; none if there is no such process.
pub(super) fn started(pid: i32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is a name in brackets, which may contain anything.
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(19).map(ToOwned::to_owned)
}

/// Kills a PID 1 and waits until the kernel has killed all of its namespace.
fn kill(pid: i32) -> Result<()> {
    let number = rustix::process::Pid::from_raw(pid).context("no process")?;
    let handle = match pidfd_open(number, PidfdFlags::empty()) {
        Err(rustix::io::Errno::SRCH) => return Ok(()),
        opened => opened.context("the init cannot be watched")?,
    };
    match signal::kill(Pid::from_raw(pid), Signal::SIGKILL) {
        Ok(()) | Err(nix::errno::Errno::ESRCH) => {}
        Err(error) => bail!("the init, process {pid}, cannot be killed: {error}"),
    }
    let timeout = Timespec::try_from(PATIENCE).context("time")?;
    let handle = handle.as_fd();
    match poll(&mut [PollFd::new(&handle, PollFlags::IN)], Some(&timeout)) {
        Ok(1) => Ok(()),
        _ => {
            bail!("process {pid} and its children are still dying after {} s; try again", PATIENCE.as_secs())
        }
    }
}

fn refuse_inside(cluster: &Cluster) -> Result<()> {
    let inside = std::env::var_os("GLOVEBOX_CLUSTER_RUN_DIR").is_some_and(|run| run == *cluster.run);
    if inside {
        bail!("this runs inside cluster {:?}; take it down from outside", cluster.name.as_str());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_its_start() {
        let own = std::process::id().try_into().unwrap();
        let start = started(own).unwrap();
        assert!(start.parse::<u64>().unwrap() > 0);
        assert_eq!(started(own), Some(start));
        assert_eq!(started(-1), None);
    }
}
