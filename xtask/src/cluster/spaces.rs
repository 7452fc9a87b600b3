//! Namespaces by threads: a thread moves into namespaces, and what it spawns is born there, as a direct child of
//! this program. So `init` is the parent of processes on every node without a helper in between.

use std::fs::File;
use std::sync::mpsc::{self, Sender};
use std::thread;

use anyhow::{Context, Result, anyhow};
use nix::sched::{CloneFlags, setns, unshare};

type Job = Box<dyn FnOnce() + Send>;

/// Does `work` on a thread whose next child will be PID 1 of new PID, mount and network namespaces.
pub(crate) fn in_new_namespaces<T: Send>(work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    let flags = CloneFlags::CLONE_NEWPID | CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWNET;
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            unshare(flags).context(
                "the kernel gives no PID, mount and network namespaces: run as root, in a container only if it is \
                 privileged",
            )?;
            work()
        });
        thread.join().unwrap_or_else(|_| Err(anyhow!("the thread that enters new namespaces died")))
    })
}

/// A thread that lives in the namespaces of a process.
pub(crate) struct Room {
    jobs: Sender<Job>,
}

impl Room {
    /// Moves a thread into the network, PID and mount namespaces of a process of the caller's PID namespace.
    pub(crate) fn enter(pid: u32) -> Result<Self> {
        let open = |name: &str| {
            let path = format!("/proc/{pid}/ns/{name}");
            File::open(&path).with_context(|| path)
        };
        let (net, pids, mounts) = (open("net")?, open("pid")?, open("mnt")?);
        let (jobs, queue) = mpsc::channel::<Job>();
        let (tell, told) = mpsc::channel();
        thread::spawn(move || {
            let moved = setns(&net, CloneFlags::CLONE_NEWNET)
                .and_then(|()| setns(&pids, CloneFlags::CLONE_NEWPID))
                // A thread that shares root and working folder with others cannot change its mounts.
                .and_then(|()| unshare(CloneFlags::CLONE_FS))
                .and_then(|()| setns(&mounts, CloneFlags::CLONE_NEWNS));
            let entered = moved.is_ok();
            let _ = tell.send(moved);
            if entered {
                for job in queue {
                    job();
                }
            }
        });
        told.recv()
            .context("the thread of the namespaces died")?
            .context("the namespaces cannot be entered")?;
        Ok(Self { jobs })
    }

    /// Does `work` in the namespaces and waits for it. Work that blocks keeps others waiting.
    pub(crate) fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
        let (tell, told) = mpsc::channel();
        let job = Box::new(move || drop(tell.send(work())));
        self.jobs.send(job).map_err(|_| anyhow!("the namespaces are gone"))?;
        told.recv().context("the namespaces are gone")
    }
}
