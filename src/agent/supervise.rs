//! Owns process 1 of the workload's container: it starts the workload, reaps every orphan, passes signals on, and at
//! the end kills whatever is left and records how it ended.
//!
//! Must refuse to be anything but process 1: it ends by killing every process it can see. Must wait for events and
//! poll for nothing that tells of itself, must not be stoppable by what the workload does short of the kernel's own action, and must read
//! nothing that the workload wrote.

use std::env;
use std::fs;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::{Pid, close, getpid};
use rustix::process::{WaitOptions, WaitStatus as RawStatus, wait};

use super::args::{FenceArgs, IdleArgs, RunArgs, TrustArgs};
use super::fault::Fault;
use super::last_words::LastWords;
use super::launch::{EXIT_CANNOT_EXECUTE, LaunchError, launch};
use super::sentry::{Alarm, Sentry};
use super::signals::Signals;
use super::{environment, oom, record, trust};
use crate::report::{EXIT_FENCE_OPEN, ExitRecord, FENCE_UNKNOWN, VERSION, printable};

/// How long killed processes may take to go before the agent ends without them; the kernel ends them with it.
const REAP_LIMIT: Duration = Duration::from_secs(2);
/// Every process of the namespace but the caller.
const EVERYONE: Pid = Pid::from_raw(-1);

/// Runs the workload to its end; gives the status to exit with.
///
/// # Errors
/// A [`Fault`] when this is not process 1 or the kernel refuses what process 1 needs. A workload that cannot be
/// started is no fault of the agent: it ends with 126 or 127 and a record.
pub fn run(options: &RunArgs) -> Result<u8, Fault> {
    let signals = prepare()?;
    let kills_before = oom_kills();
    let variables = environment::workload(env::vars_os().collect(), &options.path_append);
    let started = establish(options.trust.as_ref())
        .and_then(|()| launch(&options.command, variables, options.cwd.as_deref()));
    let record = match started {
        Ok(main) => {
            let log = LastWords::watch(&options.termination_log);
            let sentry = post(&options.fence)?;
            let ending =
                Supervisor { signals: &signals, main: Some(main), grace: options.grace, log, sentry }
                    .watch()?;
            ending.record(oom_kills().zip(kills_before).map(|(after, before)| after > before))
        }
        Err(error) => {
            eprintln!("glovebox-agent: {}", error.message);
            spawn_error(&error)
        }
    };
    Ok(conclude(&options.termination_log, &record))
}

/// Waits for TERM, reaping; gives the status to exit with.
///
/// # Errors
/// A [`Fault`] when this is not process 1 or the kernel refuses what process 1 needs.
pub fn idle(options: &IdleArgs) -> Result<u8, Fault> {
    let signals = prepare()?;
    if let Err(error) = establish(options.trust.as_ref()) {
        eprintln!("glovebox-agent: {}", error.message);
        return Ok(conclude(&options.termination_log, &spawn_error(&error)));
    }
    let kills_before = oom_kills();
    let log = LastWords::watch(&options.termination_log);
    let sentry = post(&options.fence)?;
    let ending = Supervisor { signals: &signals, main: None, grace: options.grace, log, sentry }.watch()?;
    let record = ending.record(oom_kills().zip(kills_before).map(|(after, before)| after > before));
    Ok(conclude(&options.termination_log, &record))
}

/// Writes whom the sandbox trusts. Variables of the pod point there: without the files every TLS would fail, and nobody would
/// know why.
fn establish(trust: Option<&TrustArgs>) -> Result<(), LaunchError> {
    let Some(args) = trust else { return Ok(()) };
    trust::establish(args, Path::new("/"))
        .map_err(|fault| LaunchError { exit_code: EXIT_CANNOT_EXECUTE, message: fault.to_string() })
}

fn post(fence: &FenceArgs) -> Result<Option<Sentry>, Fault> {
    fence.is_asked().then(|| Sentry::post(fence.clone())).transpose()
}

fn oom_kills() -> Option<u64> {
    oom::kills(Path::new(oom::CGROUP_ROOT))
}

/// The status counts even where the record cannot be written: a person may run this without a kubelet.
fn conclude(log: &Path, record: &ExitRecord) -> u8 {
    if let Err(fault) = record::write(log, record) {
        eprintln!("glovebox-agent: {fault}");
    }
    record.process_exit_code()
}

fn spawn_error(error: &LaunchError) -> ExitRecord {
    ExitRecord {
        v: VERSION,
        exit_code: Some(error.exit_code),
        signal: None,
        spawn_error: Some(printable(error.message.as_bytes())),
        oom: None,
        fence_open: None,
    }
}

/// What must hold before the first process exists beside this one.
fn prepare() -> Result<Signals, Fault> {
    let pid = getpid();
    if pid != Pid::from_raw(1) {
        return Err(Fault::new(format!(
            "must be process 1 of a container, but is {pid}: it would end by killing every process it can see"
        )));
    }
    close_inherited()?;
    // The workload runs as the same user: without this it could trace process 1 or read its memory.
    prctl::set_dumpable(false).map_err(|errno| {
        Fault::new(format!("cannot forbid others to trace this process: {}", errno.desc()))
    })?;
    Signals::open().map_err(|errno| Fault::new(format!("cannot listen for signals: {}", errno.desc())))
}

/// Closes what the runtime left open beyond the standard three: such a descriptor has led out of containers before.
fn close_inherited() -> Result<(), Fault> {
    let table = Path::new("/proc/self/fd");
    let entries = fs::read_dir(table).map_err(|error| Fault::io("list", table, &error))?;
    let open: Vec<i32> = entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|fd| *fd > 2)
        .collect();
    for descriptor in open {
        // EBADF is the listing's own descriptor, closed by now.
        let _ = close(descriptor);
    }
    Ok(())
}

/// How the container's life ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    Exited(u8),
    Signalled(u8),
    /// By the agent, since the fence no longer holds.
    FenceOpen(Alarm),
}

impl Ending {
    /// `None` for a status that is no end. Numbers beyond a byte do not occur: the kernel gives seven and eight bits.
    fn of(status: RawStatus) -> Option<Self> {
        let byte = |number: i32| u8::try_from(number).unwrap_or(u8::MAX);
        let exited = status.exit_status().map(|code| Self::Exited(byte(code)));
        exited.or_else(|| status.terminating_signal().map(|signal| Self::Signalled(byte(signal))))
    }

    fn record(self, oom: Option<bool>) -> ExitRecord {
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

struct Supervisor<'a> {
    signals: &'a Signals,
    /// The workload's first process, leader of its session and group; none when idle.
    main: Option<Pid>,
    grace: Duration,
    log: Option<LastWords>,
    sentry: Option<Sentry>,
}

impl Supervisor<'_> {
    /// Until the workload ends, or until TERM and its grace are over; afterwards this process is alone.
    fn watch(&self) -> Result<Ending, Fault> {
        let mut deadline = None;
        let mut ending = None;
        let mut alarm = None;
        while ending.is_none() && alarm.is_none() && deadline.is_none_or(|deadline| Instant::now() < deadline)
        {
            if let Some(signal) = self.next(deadline, self.sentry.as_ref().map(Sentry::ear))? {
                self.pass_on(signal);
                if signal == Signal::SIGTERM && deadline.is_none() {
                    deadline = Some(Instant::now() + self.grace);
                }
            }
            let children = self.reap(&mut ending);
            alarm = self.sentry.as_ref().and_then(Sentry::alarm);
            if self.main.is_none() && deadline.is_some() && !children && is_alone() {
                break;
            }
        }
        self.clear(&mut ending)?;
        if let Some(alarm) = alarm {
            // Whatever else ended it: that the fence was open is what somebody must know.
            return Ok(Ending::FenceOpen(alarm));
        }
        // Without a workload there is nothing but TERM that ends the watch. With one that is still not gone, the kernel
        // keeps it in a call that cannot be interrupted, with its SIGKILL pending.
        let otherwise = self.main.map_or(Ending::Exited(0), |_| Ending::Signalled(Signal::SIGKILL as u8));
        Ok(ending.unwrap_or(otherwise))
    }

    fn next(&self, deadline: Option<Instant>, ear: Option<BorrowedFd<'_>>) -> Result<Option<Signal>, Fault> {
        let log = self.log.as_ref();
        let until = deadline.into_iter().chain(log.and_then(LastWords::look_at)).min();
        let signal = self.signals.next(until, [log.and_then(LastWords::events), ear]);
        if let Some(log) = log {
            log.bound();
        }
        signal.map_err(|errno| Fault::new(format!("cannot wait for signals: {}", errno.desc())))
    }

    /// Gives the signal to the workload's group, or when idle to every process that calls have brought in.
    fn pass_on(&self, signal: Signal) {
        // That nobody is there to receive it is no news.
        let _ = match self.main {
            Some(main) => killpg(main, signal),
            None if signal == Signal::SIGTERM => kill(EVERYONE, signal),
            None => Ok(()),
        };
        if let (Some(main), Signal::SIGTERM) = (self.main, signal) {
            // A stopped process would sleep through its chance to end in order.
            let _ = killpg(main, Signal::SIGCONT);
        }
    }

    /// Takes every child that has ended, and notes the workload's own ending. Whether children are left.
    fn reap(&self, ending: &mut Option<Ending>) -> bool {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status)))
                    if self.main.is_some_and(|main| main.as_raw() == pid.as_raw_pid()) =>
                {
                    *ending = Ending::of(status).or(*ending);
                }
                Ok(Some(_)) | Err(rustix::io::Errno::INTR) => {}
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
    }

    /// Kills and reaps until no child is left, at most for [`REAP_LIMIT`].
    fn clear(&self, ending: &mut Option<Ending>) -> Result<(), Fault> {
        let limit = Instant::now() + REAP_LIMIT;
        loop {
            // Each time anew: a kernel may let a fork slip past one sweep.
            let _ = kill(EVERYONE, Signal::SIGKILL);
            if !self.reap(ending) || Instant::now() >= limit {
                return Ok(());
            }
            self.next(Some(limit), None)?;
        }
    }
}

fn is_alone() -> bool {
    kill(EVERYONE, None) == Err(Errno::ESRCH)
}
