//! Owns process 1 of the workload's container: it starts the workload, reaps every orphan, passes signals on, and at
//! the end kills whatever is left and records how it ended.
//!
//! Must refuse to be anything but process 1: it ends by killing every process it can see. Must wait for events and
//! poll for nothing that tells of itself, must not be stoppable by what the workload does short of the kernel's own action, and must read
//! nothing that the workload wrote.

use std::env;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags};
use nix::sys::prctl;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, close, getpid};

use super::args::{CallsArgs, FenceArgs, IdleArgs, RunArgs, TrustArgs};
use super::calls::Reception;
use super::environment::{self, Variables};
use super::fault::Fault;
use super::keeper::Keeper;
use super::last_words::LastWords;
use super::launch::{EXIT_CANNOT_EXECUTE, LaunchError, launch};
use super::sentry::Sentry;
use super::signals::{Sender, Signals};
use super::workload::{Ending, pass_on, reap, spawn_error};
use super::{oom, record, trust};
use crate::report::ExitRecord;

/// How long killed processes may take to go before the agent ends without them; the kernel ends them with it.
const REAP_LIMIT: Duration = Duration::from_secs(2);
/// How long sessions may take to hear that their calls end with the sandbox.
const DISMISSAL: Duration = Duration::from_millis(500);
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
    // Before the workload exists, which could take the port.
    let calls = receive(options.calls.as_ref(), &variables)?;
    // The same: of what was written before it is watched, nobody is told.
    let log = LastWords::watch(&options.termination_log);
    let started = establish(options.trust.as_ref()).and_then(|()| start(options, variables));
    let record = match started {
        Ok((main, keeper)) => {
            let sentry = post(&options.fence)?;
            let ending =
                Supervisor { signals: &signals, main: Some(main), grace: options.grace, log, sentry, calls }
                    .watch()?;
            let oom = oom_kills().zip(kills_before).map(|(after, before)| after > before);
            // Whatever else was told: that the fence was open is what somebody must know.
            let told = keeper.filter(|_| !matches!(ending, Ending::FenceOpen(_))).and_then(Keeper::told);
            told.map_or_else(|| ending.record(oom), |record| ExitRecord { oom, ..record })
        }
        Err(error) => spawn_error(&error),
    };
    if let Some(error) = &record.spawn_error {
        eprintln!("glovebox-agent: {error}");
    }
    Ok(conclude(&options.termination_log, &record))
}

/// Waits for TERM, reaping; gives the status to exit with.
///
/// # Errors
/// A [`Fault`] when this is not process 1 or the kernel refuses what process 1 needs.
pub fn idle(options: &IdleArgs) -> Result<u8, Fault> {
    let signals = prepare()?;
    let calls = receive(options.calls.as_ref(), &environment::workload(env::vars_os().collect(), &[]))?;
    if let Err(error) = establish(options.trust.as_ref()) {
        eprintln!("glovebox-agent: {}", error.message);
        return Ok(conclude(&options.termination_log, &spawn_error(&error)));
    }
    let kills_before = oom_kills();
    let log = LastWords::watch(&options.termination_log);
    let sentry = post(&options.fence)?;
    let ending =
        Supervisor { signals: &signals, main: None, grace: options.grace, log, sentry, calls }.watch()?;
    let record = ending.record(oom_kills().zip(kills_before).map(|(after, before)| after > before));
    Ok(conclude(&options.termination_log, &record))
}

/// Starts the workload: where calls come in, below a keeper. Its process, or the keeper's.
fn start(options: &RunArgs, variables: Variables) -> Result<(Pid, Option<Keeper>), LaunchError> {
    let (command, cwd) = (&options.command, options.cwd.as_deref());
    if options.calls.is_none() {
        return Ok((launch(command, variables, cwd)?, None));
    }
    let keeper = Keeper::post(command, variables, cwd)?;
    Ok((keeper.pid, Some(keeper)))
}

fn receive(calls: Option<&CallsArgs>, variables: &Variables) -> Result<Option<Reception>, Fault> {
    calls.map(|calls| Reception::open(calls, variables.clone())).transpose()
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
    Signals::open(Sender::Outside)
        .map_err(|errno| Fault::new(format!("cannot listen for signals: {}", errno.desc())))
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

struct Supervisor<'a> {
    signals: &'a Signals,
    /// The workload's first process, leader of its session and group; none when idle.
    main: Option<Pid>,
    grace: Duration,
    log: Option<LastWords>,
    sentry: Option<Sentry>,
    calls: Option<Reception>,
}

impl Supervisor<'_> {
    /// Until the workload ends, or until TERM and its grace are over; afterwards this process is alone.
    fn watch(mut self) -> Result<Ending, Fault> {
        let mut deadline = None;
        let mut ending = None;
        let mut alarm = None;
        while ending.is_none() && alarm.is_none() && deadline.is_none_or(|deadline| Instant::now() < deadline)
        {
            if let Some(signal) = self.next(deadline)? {
                self.pass_on(signal);
                if signal == Signal::SIGTERM && deadline.is_none() {
                    deadline = Some(Instant::now() + self.grace);
                    self.calls.iter_mut().for_each(Reception::shut_down);
                }
            }
            let children = self.attend(&mut ending);
            alarm = self.sentry.as_ref().and_then(Sentry::alarm);
            if self.main.is_none() && deadline.is_some() && !children && is_alone() {
                break;
            }
        }
        if alarm.is_none() {
            self.dismiss(&mut ending)?;
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

    fn next(&self, deadline: Option<Instant>) -> Result<Option<Signal>, Fault> {
        let log = self.log.as_ref();
        let look_at = log.and_then(LastWords::look_at);
        let due = self.calls.as_ref().and_then(Reception::due);
        let until = deadline.into_iter().chain(look_at).chain(due).min();
        let events = log.and_then(LastWords::events);
        // An alarm that was heard hangs up for ever; what follows it waits for children alone.
        let ear = self.sentry.as_ref().filter(|sentry| sentry.alarm().is_none()).map(Sentry::ear);
        let ears = [events, ear].into_iter().flatten().map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        let ears = ears.chain(self.calls.iter().flat_map(Reception::ears));
        let signal = self.signals.next(until, ears);
        if let Some(log) = log {
            log.bound();
        }
        signal.map_err(|errno| Fault::new(format!("cannot wait for signals: {}", errno.desc())))
    }

    /// Gives the signal to the workload's group, or when idle to every process that calls have brought in.
    fn pass_on(&self, signal: Signal) {
        match self.main {
            Some(main) => pass_on(main, signal),
            // That nobody is there to receive it is no news.
            None if signal == Signal::SIGTERM => drop(kill(EVERYONE, signal)),
            None => {}
        }
    }

    /// Takes every child that has ended, notes the workload's own ending, and lets calls have their turn. Whether children
    /// are left.
    fn attend(&mut self, ending: &mut Option<Ending>) -> bool {
        let children = reap(|pid, status| {
            if self.main == Some(pid) {
                *ending = Ending::of(status).or(*ending);
            } else if let Some(calls) = &mut self.calls {
                calls.ended(pid, Ending::of(status));
            }
        });
        if let Some(calls) = &mut self.calls {
            calls.turn(self.main);
        }
        children
    }

    /// Has calls end, and gives their sessions a moment to hear of it.
    fn dismiss(&mut self, ending: &mut Option<Ending>) -> Result<(), Fault> {
        self.calls.iter_mut().for_each(Reception::shut_down);
        let limit = Instant::now() + DISMISSAL;
        while self.calls.as_ref().is_some_and(Reception::is_busy) && Instant::now() < limit {
            self.next(Some(limit))?;
            self.attend(ending);
        }
        self.calls = None;
        Ok(())
    }

    /// Kills and reaps until no child is left, at most for [`REAP_LIMIT`].
    fn clear(&mut self, ending: &mut Option<Ending>) -> Result<(), Fault> {
        let limit = Instant::now() + REAP_LIMIT;
        self.calls = None;
        loop {
            // Each time anew: a kernel may let a fork slip past one sweep.
            let _ = kill(EVERYONE, Signal::SIGKILL);
            if !self.attend(ending) || Instant::now() >= limit {
                return Ok(());
            }
            self.next(Some(limit))?;
        }
    }
}

fn is_alone() -> bool {
    kill(EVERYONE, None) == Err(Errno::ESRCH)
}
