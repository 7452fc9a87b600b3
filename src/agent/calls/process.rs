//! Owns one call in a process of its own, from the request to the result: the command, its output, its deadline, and the end of
//! all that it started, which falls to this process.
//!
//! Must exit with status 0 only when nothing of the call is left: otherwise process 1 looks for it.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::poll::PollFlags;
use nix::sys::prctl;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use rustix::termios::{Winsize, tcsetwinsize};

use super::handover::{self, Handed};
use super::line::Line;
use super::start::{Started, start};
use super::streams::Output;
use super::tree::Sweep;
use crate::agent::fault::Fault;
use crate::agent::launch::LaunchError;
use crate::agent::signals::{Sender, Signals, wait};
use crate::agent::workload::{Ending, reap};
use crate::call::{CallResult, Exec, Frame, Held, Kind, OnHangup, Outcome};
use crate::report::printable;

/// How long whatever still holds the output may go on when the first process has ended: it may be about to end itself.
const HOLD: Duration = Duration::from_millis(200);
/// From one step of killing to the next.
const STEP: Duration = Duration::from_millis(2);
/// How long a session may take to read what is left and the result.
const FLUSH: Duration = Duration::from_secs(5);
/// How long it may take to hang up: a connection that is closed with bytes unread takes the result with it.
const FAREWELL: Duration = Duration::from_millis(500);

/// Serves the call whose connection and request are standard input and output.
///
/// # Errors
/// A [`Fault`] when nothing was handed over or the kernel refuses what a call needs.
pub fn call() -> Result<u8, Fault> {
    let no = |what: &str, why: &str| Fault::new(format!("cannot {what}: {why}"));
    // For whoever lists processes; without it they would read "exe".
    let _ = prctl::set_name(c"glovebox-call");
    prctl::set_dumpable(false).map_err(|errno| no("forbid others to trace this call", errno.desc()))?;
    prctl::set_child_subreaper(true).map_err(|errno| no("adopt what the call orphans", errno.desc()))?;
    let signals = Signals::open(Sender::Process1).map_err(|errno| no("listen for signals", errno.desc()))?;
    let Handed { stream, asked: exec, rest } =
        handover::take::<Exec>().map_err(|error| no("take over a call", &error.to_string()))?;
    // It was checked, and is checked again: it costs nothing.
    exec.check().map_err(|bad| no("take over a call", &bad.to_string()))?;
    handover::tell_begun();
    let begun = Instant::now();
    let deadline = begun + Duration::from_millis(exec.timeout_ms);
    let line = Line::new(stream, &rest, exec.max_output_bytes);
    let mut call = Call { exec, signals, line, begun, deadline, first: None, ending: None, cause: None };
    let started = start(&call.exec, deadline);
    let result = match started {
        Ok(mut started) => {
            call.first = Some(started.first);
            call.line.say(Kind::Started, &[]);
            call.converse(&mut started)?;
            let clean = call.clear()?;
            for output in &mut started.outputs {
                output.finish(&mut call.line);
            }
            (call.result(&started), clean)
        }
        Err(error) => (call.not_started(&error), call.clear()?),
    };
    handover::tell_done();
    call.tell(&result.0)?;
    Ok(u8::from(!result.1))
}

/// A call.
#[derive(Debug)]
struct Call {
    exec: Exec,
    signals: Signals,
    line: Line,
    begun: Instant,
    deadline: Instant,
    /// The command's first process; none before and after.
    first: Option<Pid>,
    /// How that ended.
    ending: Option<Ending>,
    /// Why it was ended, if it was.
    cause: Option<Outcome>,
}

impl Call {
    /// Carries everything to where it belongs until the call is over.
    fn converse(&mut self, started: &mut Started) -> Result<(), Fault> {
        let mut hold = None;
        // What came with the request is here already, and nothing more may come that would tell of it.
        self.listen(started);
        loop {
            self.wait(started, hold)?;
            if self.signals.take().map_err(unheard)? == Some(Signal::SIGTERM) {
                self.cause = Some(Outcome::ShutDown);
            }
            self.reap();
            self.listen(started);
            for output in &mut started.outputs {
                output.carry(&mut self.line);
            }
            started.input.flush();
            self.line.flush();
            let now = Instant::now();
            // Also for one that has just ended: had it been stopped, or this process, it would have been killed at its deadline.
            if hold.is_none() && now >= self.deadline {
                self.cause.get_or_insert(Outcome::DeadlineExceeded);
            } else if self.ending.is_some() {
                let until = *hold.get_or_insert(now + HOLD);
                if now >= until || started.outputs.iter().all(Output::is_over) {
                    return Ok(());
                }
            }
            if self.line.hung_up() && self.exec.on_hangup == OnHangup::Kill {
                self.cause.get_or_insert(Outcome::HungUp);
            }
            if self.cause.is_some() {
                return Ok(());
            }
        }
    }

    fn wait(&mut self, started: &Started, hold: Option<Instant>) -> Result<(), Fault> {
        let listening = started.input.takes();
        let mut ears = vec![self.signals.ear()];
        ears.extend(started.input.ear());
        if self.line.takes_output() {
            ears.extend(started.outputs.iter().filter_map(Output::ear));
        }
        let line = self.line.ear(listening);
        let has_line = line.is_some();
        ears.extend(line);
        wait(&mut ears, Some(hold.unwrap_or(self.deadline))).map_err(unheard)?;
        let gone = !listening && ears.last().filter(|_| has_line).is_some_and(Line::is_farewell);
        if gone {
            self.line.hang_up();
        }
        Ok(())
    }

    /// Does what the session says.
    fn listen(&mut self, started: &mut Started) {
        if started.input.takes() {
            self.line.listen();
        }
        while let Some(frame) = self.line.frame() {
            self.obey(&frame, started);
        }
        if self.line.hung_up() {
            started.input.close();
        }
    }

    fn obey(&mut self, frame: &Frame, started: &mut Started) {
        match (frame.kind, frame.payload.as_slice()) {
            (Kind::Stdin, bytes) => started.input.take(bytes),
            (Kind::Signal, [number]) => {
                let signal = Signal::try_from(i32::from(*number));
                // A number that is no signal is nobody's harm.
                let _ = self.first.zip(signal.ok()).map(|(first, signal)| killpg(first, signal));
            }
            (Kind::Resize, [a, b, c, d]) => {
                let (rows, columns) = (u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d]));
                let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
                let _ = started.terminal.as_ref().map(|terminal| tcsetwinsize(terminal.as_fd(), size));
            }
            // What only an agent says, or a second request.
            _ => self.line.hang_up(),
        }
    }

    /// Takes all children that have ended. Whether others are left.
    fn reap(&mut self) -> bool {
        reap(|pid, status| {
            if self.first == Some(pid)
                && let Some(ending) = Ending::of(status)
            {
                self.ending = Some(ending);
                self.first = None;
            }
        })
    }

    /// Kills whatever is left. Whether nothing is.
    fn clear(&mut self) -> Result<bool, Fault> {
        let mut sweep = Sweep::begin();
        while self.reap() {
            // Nobody living is left, but somebody who traces a dead one keeps it: that is for process 1 to see.
            if sweep.step(Pid::this(), |_| false) {
                return Ok(!self.reap());
            }
            let until = Instant::now() + STEP;
            self.signals.next(Some(until), []).map_err(unheard)?;
        }
        Ok(true)
    }

    fn result(&self, started: &Started) -> CallResult {
        let (exit_code, signal) = match self.ending {
            Some(Ending::Exited(code)) => (Some(code), None),
            Some(Ending::Signalled(signal)) => (None, Some(signal)),
            Some(Ending::FenceOpen(_)) | None => (None, None),
        };
        let by_itself = if exit_code.is_some() { Outcome::Exited } else { Outcome::Signalled };
        let access = self.exec.access.as_ref();
        let not_enforced = |held: Option<Held>| Some(held.unwrap_or(Held::NotEnforced));
        CallResult {
            outcome: self.cause.unwrap_or(by_itself),
            // A command that was ended by us has no code of its own.
            exit_code: exit_code.filter(|_| self.cause.is_none()),
            signal,
            message: None,
            stdout_bytes: started.outputs[0].bytes,
            stderr_bytes: started.outputs[1].bytes,
            truncated: self.line.truncated,
            duration_ms: self.duration_ms(),
            write: access.filter(|access| access.write.is_some()).and_then(|_| not_enforced(started.write)),
            network: access.filter(|access| !access.network).and_then(|_| not_enforced(started.network)),
        }
    }

    fn not_started(&self, error: &LaunchError) -> CallResult {
        CallResult {
            outcome: Outcome::NotStarted,
            exit_code: Some(error.exit_code),
            signal: None,
            message: Some(printable(error.message.as_bytes())),
            stdout_bytes: 0,
            stderr_bytes: 0,
            truncated: false,
            duration_ms: self.duration_ms(),
            write: None,
            network: None,
        }
    }

    fn duration_ms(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Tells the session, as long as it cares to hear it.
    fn tell(&mut self, result: &CallResult) -> Result<(), Fault> {
        let text = serde_json::to_vec(result).map_err(|error| Fault::new(error.to_string()))?;
        self.line.say(Kind::Result, &text);
        let limit = Instant::now() + FLUSH;
        self.linger(limit, Line::is_flushed)?;
        self.line.close_output();
        self.linger(limit.min(Instant::now() + FAREWELL), |_| false)
    }

    /// Listens to a session that is told all there was, until `enough` or until it hangs up.
    fn linger(&mut self, until: Instant, enough: impl Fn(&Line) -> bool) -> Result<(), Fault> {
        while !self.line.hung_up() && !enough(&self.line) && Instant::now() < until {
            let mut ears: Vec<_> = self.line.ear(true).into_iter().collect();
            wait(&mut ears, Some(until)).map_err(unheard)?;
            let writable =
                ears.iter().any(|ear| ear.revents().is_some_and(|it| it.contains(PollFlags::POLLOUT)));
            if writable {
                self.line.flush();
            } else {
                self.line.listen();
                self.line.forget();
            }
        }
        Ok(())
    }
}

fn unheard(errno: nix::Error) -> Fault {
    Fault::new(format!("cannot wait for signals: {}", errno.desc()))
}
