//! Owns the signals of process 1 and its helpers: all are blocked, and those that mean something are read from a descriptor, so that
//! none interrupts a call or runs a handler.

use std::time::Instant;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd, siginfo};
use std::os::fd::AsFd;

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

/// Whose signals mean something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sender {
    /// The runtime, which this PID namespace cannot name, or the kernel itself (a terminal): for process 1.
    Outside,
    /// Process 1: for its helpers.
    Process1,
}

/// The stream of signals to this process.
#[derive(Debug)]
pub struct Signals {
    descriptor: SignalFd,
    sender: Sender,
}

impl Signals {
    /// Blocks every signal but the two that the C library keeps to itself, and opens the stream. Left to their
    /// defaults they would end process 1, and with it the sandbox, on a kernel that does not shield process 1 of a
    /// container: gVisor. KILL and STOP from inside it must be borne there.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn open(sender: Sender) -> nix::Result<Self> {
        let mut wanted = SigSet::empty();
        wanted.add(Signal::SIGCHLD);
        for signal in FORWARDED {
            wanted.add(signal);
        }
        SigSet::all().thread_set_mask()?;
        let descriptor = SignalFd::with_flags(&wanted, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        Ok(Self { descriptor, sender })
    }

    /// What can be read when there is a signal.
    #[must_use]
    pub fn ear(&self) -> PollFd<'_> {
        PollFd::new(self.descriptor.as_fd(), PollFlags::POLLIN)
    }

    /// Waits for the next signal, at most until `deadline` or until something is up with one of `also`. `None` when there is
    /// none, or for a signal that says no more than "look at your children": SIGCHLD, or one that somebody else sent.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn next<'fd>(
        &'fd self,
        deadline: Option<Instant>,
        also: impl IntoIterator<Item = PollFd<'fd>>,
    ) -> nix::Result<Option<Signal>> {
        let mut all: Vec<PollFd<'fd>> = also.into_iter().collect();
        all.push(self.ear());
        wait(&mut all, deadline)?;
        self.take()
    }

    /// The next signal, if one has come.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn take(&self) -> nix::Result<Option<Signal>> {
        Ok(self.descriptor.read_signal()?.and_then(|info| self.forwardable(&info)))
    }

    /// The signal, if it came from whom it should. A code below zero lets a sender write what sender it likes.
    ///
    /// This keeps a stray `kill 1` of the workload from ending its sandbox. It is no boundary: a workload that has used up
    /// its user's queue of signals appears as nobody. What it gains is its own end.
    fn forwardable(&self, info: &siginfo) -> Option<Signal> {
        let sender = match self.sender {
            Sender::Outside => 0,
            Sender::Process1 => 1,
        };
        let wanted = info.ssi_pid == sender && info.ssi_code >= 0;
        let signal = i32::try_from(info.ssi_signo).ok().and_then(|number| Signal::try_from(number).ok())?;
        (wanted && signal != Signal::SIGCHLD).then_some(signal)
    }
}

/// Waits until something is up with one of `all`, at most until `deadline`.
///
/// # Errors
/// What the kernel says.
pub fn wait(all: &mut [PollFd<'_>], deadline: Option<Instant>) -> nix::Result<()> {
    let timeout = deadline.map_or(PollTimeout::NONE, |deadline| {
        // Rounded up, or the last millisecond would be spent spinning.
        let millis = deadline.saturating_duration_since(Instant::now()).as_micros().div_ceil(1000);
        PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX)
    });
    match poll(all, timeout) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(errno) => Err(errno),
    }
}
