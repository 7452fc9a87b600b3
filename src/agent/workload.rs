//! Owns what whoever stands above the workload does for it, be it process 1 or the keeper: signals go to its group, children
//! that have ended are taken, and an end is told from another.

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use rustix::process::{WaitOptions, WaitStatus as RawStatus, wait};

use super::launch::LaunchError;
use super::sentry::Alarm;
use crate::report::{EXIT_FENCE_OPEN, ExitRecord, FENCE_UNKNOWN, VERSION, printable};

/// How a process, or with it the container's life, ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// With a status.
    Exited(u8),
    /// By a signal, real-time ones included.
    Signalled(u8),
    /// By the agent, since the fence no longer holds.
    FenceOpen(Alarm),
}

impl Ending {
    /// `None` for a status that is no end. Numbers beyond a byte do not occur: the kernel gives seven and eight bits.
    #[must_use]
    pub fn of(status: RawStatus) -> Option<Self> {
        let byte = |number: i32| u8::try_from(number).unwrap_or(u8::MAX);
        let exited = status.exit_status().map(|code| Self::Exited(byte(code)));
        exited.or_else(|| status.terminating_signal().map(|signal| Self::Signalled(byte(signal))))
    }

    /// As it is recorded.
    #[must_use]
    pub fn record(self, oom: Option<bool>) -> ExitRecord {
        let (exit_code, signal) = match self {
            Self::Exited(code) => (Some(code), None),
            Self::Signalled(signal) => (None, Some(signal)),
            Self::FenceOpen(_) => (Some(EXIT_FENCE_OPEN), None),
        };
        let fence_open = match self {
            Self::FenceOpen(Alarm::Open(address)) => Some(address.to_string()),
            Self::FenceOpen(Alarm::Blind) => Some(FENCE_UNKNOWN.to_owned()),
            Self::Exited(_) | Self::Signalled(_) => None,
        };
        ExitRecord { v: VERSION, exit_code, signal, spawn_error: None, oom, fence_open }
    }
}

/// The record of a workload that did not start.
#[must_use]
pub fn spawn_error(error: &LaunchError) -> ExitRecord {
    ExitRecord {
        v: VERSION,
        exit_code: Some(error.exit_code),
        signal: None,
        spawn_error: Some(printable(error.message.as_bytes())),
        oom: None,
        fence_open: None,
    }
}

/// Gives the signal to the group that `leader` leads.
pub fn pass_on(leader: Pid, signal: Signal) {
    // That nobody is there to receive it is no news.
    let _ = killpg(leader, signal);
    if signal == Signal::SIGTERM {
        // A stopped process would sleep through its chance to end in order.
        let _ = killpg(leader, Signal::SIGCONT);
    }
}

/// Takes every child that has ended, and tells of each. Whether children are left.
pub fn reap(mut ended: impl FnMut(Pid, RawStatus)) -> bool {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) => ended(Pid::from_raw(pid.as_raw_pid()), status),
            Err(rustix::io::Errno::INTR) => {}
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}
