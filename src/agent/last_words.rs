//! Owns the bound of the termination log: the one file on the node's disk that everybody in the container may write, and
//! that no limit of the kubelet's counts. Whatever is longer than the kubelet will read is thrown away.
//!
//! Must not read what stands in the file, and must not let whoever writes it keep process 1 from its other work.

use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::libc;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};

use crate::report::MAX_INPUT_BYTES;

/// How soon the file is looked at where the kernel tells of no writes: it gives each user of a node 128 streams of
/// events, which all containers of that user share.
const LOOK: Duration = Duration::from_secs(1);

/// A termination log that is kept short.
#[derive(Debug)]
pub struct LastWords {
    file: File,
    events: Option<Inotify>,
}

impl LastWords {
    /// Watches the file; `None` where there is none, as outside of a pod.
    #[must_use]
    pub fn watch(log: &Path) -> Option<Self> {
        let file = OpenOptions::new().write(true).custom_flags(libc::O_NOFOLLOW).open(log).ok()?;
        Some(Self { file, events: events(log).ok() })
    }

    /// What becomes readable after a write, where the kernel tells of it.
    #[must_use]
    pub fn events(&self) -> Option<BorrowedFd<'_>> {
        self.events.as_ref().map(AsFd::as_fd)
    }

    /// When to look anyway, where the kernel does not tell.
    #[must_use]
    pub fn look_at(&self) -> Option<Instant> {
        self.events.is_none().then(|| Instant::now() + LOOK)
    }

    /// Empties the file if it is too long.
    pub fn bound(&self) {
        // One read only: whoever writes without end would make more of them endless.
        let _ = self.events.as_ref().map(Inotify::read_events);
        let most = u64::try_from(MAX_INPUT_BYTES).unwrap_or(u64::MAX);
        if self.file.metadata().is_ok_and(|metadata| metadata.len() > most) {
            // Nothing helps where this fails, and the next look tries again.
            let _ = self.file.set_len(0);
        }
    }
}

fn events(log: &Path) -> nix::Result<Inotify> {
    let events = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
    events.add_watch(log, AddWatchFlags::IN_MODIFY)?;
    Ok(events)
}
