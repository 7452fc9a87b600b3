//! Owns the signals of process 1: all are blocked, and those that mean something are read from a descriptor, so that
//! none interrupts a call or runs a handler.

use std::time::Instant;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd, siginfo};
use std::os::fd::{AsFd, BorrowedFd};

/// Signals that are passed on to the workload's process group.
pub const FORWARDED: [Signal; 7] = [
    Signal::SIGTERM,
    Signal::SIGINT,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGWINCH,
];

/// The stream of signals to this process.
#[derive(Debug)]
pub struct Signals {
    descriptor: SignalFd,
}

impl Signals {
    /// Blocks every signal but the two that the C library keeps to itself, and opens the stream. Left to their
    /// defaults they would end process 1, and with it the sandbox, on a kernel that does not shield process 1 of a
    /// container: gVisor. KILL and STOP from inside it must be borne there.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn open() -> nix::Result<Self> {
        let mut wanted = SigSet::empty();
        wanted.add(Signal::SIGCHLD);
        for signal in FORWARDED {
            wanted.add(signal);
        }
        SigSet::all().thread_set_mask()?;
        Ok(Self {
            descriptor: SignalFd::with_flags(&wanted, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?,
        })
    }

    /// Waits for the next signal, at most until `deadline` or until one of `also` can be read. `None` when there is none, or for
    /// a signal that says no more than "look at your children": SIGCHLD, or one that a process in here sent.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn next(
        &self,
        deadline: Option<Instant>,
        also: [Option<BorrowedFd<'_>>; 2],
    ) -> nix::Result<Option<Signal>> {
        let timeout = deadline.map_or(PollTimeout::NONE, |deadline| {
            // Rounded up, or the last millisecond would be spent spinning.
            let millis = deadline.saturating_duration_since(Instant::now()).as_micros().div_ceil(1000);
            PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX)
        });
        let [one, other] = also;
        let all = [Some(self.descriptor.as_fd()), one, other];
        let mut all: Vec<_> =
            all.into_iter().flatten().map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        match poll(&mut all, timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
        let Some(info) = self.descriptor.read_signal()? else { return Ok(None) };
        Ok(forwardable(&info))
    }
}

/// The signal, if it came from outside: from the runtime (which this PID namespace cannot name, hence sender 0) or
/// from the kernel itself (a terminal). A code below zero lets a sender write what sender it likes.
///
/// This keeps a stray `kill 1` of the workload from ending its sandbox. It is no boundary: a workload that has used up
/// its user's queue of signals appears as nobody. What it gains is its own end.
fn forwardable(info: &siginfo) -> Option<Signal> {
    let outside = info.ssi_pid == 0 && info.ssi_code >= 0;
    let signal = i32::try_from(info.ssi_signo).ok().and_then(|number| Signal::try_from(number).ok())?;
    (outside && signal != Signal::SIGCHLD).then_some(signal)
}
