//! Owns the port at which calls come in, in process 1: who may come in, how many at once, and that each call process ends in
//! time and leaves nothing behind.
//!
//! Must never wait: process 1 has a workload to look after. Must not let the workload keep sessions out by connecting itself:
//! connections from inside have places of their own.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::door::{Door, Heard};
use super::guard::{Asked, Guard};
use super::handover::Running;
use super::tree::Sweep;
use crate::agent::args::CallsArgs;
use crate::agent::environment::Variables;
use crate::agent::fault::Fault;
use crate::agent::workload::Ending;
use crate::call::{DEFAULT_CONCURRENT, Kind, Refusal};

/// Connections that have not said who they are: so many from outside, and as many from inside. The oldest makes place for one
/// more, since an honest one needs its place for a moment only.
const DOORS: usize = 64;
/// Most that all of them together have said, in bytes. Who said most goes first.
const MOST_SAID: usize = 4 << 20;
/// Connections accepted in one turn.
const ACCEPTS: usize = 32;
/// How long nobody is accepted when the kernel has no descriptors left.
const DEAF: Duration = Duration::from_millis(100);
/// From one step of killing strangers to the next.
const STEP: Duration = Duration::from_millis(5);

/// The port, and the calls that came in.
#[derive(Debug)]
pub struct Reception {
    /// None once the sandbox ends.
    listener: Option<TcpListener>,
    guard: Guard,
    /// Calls at once; of file operations as many more.
    most: usize,
    /// Whose files may be touched.
    workspace: Option<PathBuf>,
    variables: Variables,
    doors: Vec<Door>,
    running: Vec<Running>,
    sweep: Option<Sweep>,
    deaf_until: Option<Instant>,
}

impl Reception {
    /// Opens the port. Calls get `variables`.
    ///
    /// # Errors
    /// A [`Fault`] when the port can't be had.
    pub fn open(args: &CallsArgs, variables: Variables) -> Result<Self, Fault> {
        let no = |error| Fault::new(format!("cannot listen for calls at {}: {error}", args.listen));
        let listener = TcpListener::bind(args.listen).map_err(no)?;
        listener.set_nonblocking(true).map_err(no)?;
        Ok(Self {
            listener: Some(listener),
            guard: Guard::new(args.uid.clone(), args.keys.clone()),
            most: args.most,
            workspace: args.workspace.clone(),
            variables,
            doors: Vec::new(),
            running: Vec::new(),
            sweep: None,
            deaf_until: None,
        })
    }

    /// What there is to listen to.
    #[must_use]
    pub fn ears(&self) -> Vec<PollFd<'_>> {
        let listener = self.listener.as_ref().filter(|_| self.deaf_until.is_none());
        let listener = listener.map(|listener| PollFd::new(listener.as_fd(), PollFlags::POLLIN));
        let doors = self.doors.iter().map(Door::ear);
        listener.into_iter().chain(doors).chain(self.running.iter().filter_map(Running::ear)).collect()
    }

    /// When to take a turn though nothing was heard.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        let sweeping = self.sweep.is_some() || self.running.iter().any(Running::is_swept);
        let sweep = sweeping.then(|| Instant::now() + STEP);
        let calls = self.running.iter().map(|call| call.until);
        let doors = self.doors.iter().map(Door::until);
        sweep.into_iter().chain(self.deaf_until).chain(calls).chain(doors).min()
    }

    /// Does whatever is to be done now. All children but `workload` and the calls are strangers.
    pub fn turn(&mut self, workload: Option<Pid>) {
        let now = Instant::now();
        for call in &mut self.running {
            call.listen(now);
            call.hurry(now);
        }
        self.accept(now);
        self.listen(now);
        let spared = |pid| Some(pid) == workload || self.running.iter().any(|call| call.pid == pid);
        if self.sweep.as_mut().is_some_and(|sweep| sweep.step(Pid::this(), spared)) {
            self.sweep = None;
        }
    }

    /// Takes note that a child has ended. What a call process leaves that did not end well is hunted down.
    pub fn ended(&mut self, pid: Pid, ending: Option<Ending>) {
        let before = self.running.len();
        self.running.retain(|call| call.pid != pid);
        if self.running.len() < before && ending != Some(Ending::Exited(0)) {
            self.sweep = Some(Sweep::begin());
        }
    }

    /// Takes no more calls, and has those that run end now.
    pub fn shut_down(&mut self) {
        if self.listener.take().is_none() {
            return;
        }
        let now = Instant::now();
        for door in self.doors.iter_mut().filter(|door| !door.is_leaving()) {
            door.refuse(Refusal::ShuttingDown, now);
        }
        for call in &self.running {
            let _ = kill(call.pid, Signal::SIGTERM);
        }
    }

    /// Whether a session still waits for its result.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        !self.running.is_empty()
    }

    fn accept(&mut self, now: Instant) {
        if self.deaf_until.is_some_and(|until| now < until) {
            return;
        }
        self.deaf_until = None;
        for _ in 0..ACCEPTS {
            let Some(listener) = &self.listener else { return };
            match listener.accept() {
                // A connection that is gone before it is greeted is no loss.
                Ok((stream, peer)) => self.doors.extend(Door::open(stream, peer, now)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if is_of_the_peer(&error) => {}
                Err(_) => {
                    self.deaf_until = Some(now + DEAF);
                    break;
                }
            }
            self.make_room();
        }
    }

    /// Lets go whoever is too much.
    fn make_room(&mut self) {
        for inside in [false, true] {
            let theirs = |door: &Door| door.from_inside == inside;
            if self.doors.iter().filter(|door| theirs(door)).count() > DOORS
                && let Some(oldest) = self.doors.iter().position(theirs)
            {
                self.doors.remove(oldest);
            }
        }
        while self.doors.iter().map(|door| door.rest().len()).sum::<usize>() > MOST_SAID {
            let most =
                (0..self.doors.len()).max_by_key(|at| self.doors.get(*at).map(|door| door.rest().len()));
            let Some(most) = most else { return };
            self.doors.remove(most);
        }
    }

    fn listen(&mut self, now: Instant) {
        for mut door in std::mem::take(&mut self.doors) {
            let refusal = match door.listen(now) {
                Heard::Nothing => None,
                Heard::Gone => continue,
                Heard::Nonsense => Some(Refusal::Malformed),
                Heard::Request(kind, payload) => match self.start(&door, kind, &payload, now) {
                    Ok(call) => {
                        self.running.push(call);
                        continue;
                    }
                    Err(refusal) => Some(refusal),
                },
            };
            if let Some(refusal) = refusal {
                door.refuse(refusal, now);
            }
            self.doors.push(door);
        }
        self.make_room();
    }

    fn start(&mut self, door: &Door, kind: Kind, payload: &[u8], now: Instant) -> Result<Running, Refusal> {
        let (request, asked) = self.guard.admit(kind, door.nonce(), payload)?;
        // A session that has its result may call again at once.
        self.running.iter_mut().for_each(|call| call.listen(now));
        let is_file = matches!(asked, Asked::File(_));
        let most = match &asked {
            Asked::Exec(exec) => exec.max_concurrent.unwrap_or(DEFAULT_CONCURRENT),
            Asked::File(_) => DEFAULT_CONCURRENT,
        };
        let most = usize::from(most).min(self.most);
        let alike = || self.running.iter().filter(|call| call.is_file == is_file);
        // Those that are done and still tell their result to a slow session count only where there are very many.
        if alike().filter(|call| !call.done).count() >= most || alike().count() >= 2 * most {
            return Err(Refusal::Busy);
        }
        let words = match &asked {
            Asked::Exec(_) => vec![OsStr::new("call")],
            Asked::File(_) => {
                let workspace = self.workspace.as_ref().ok_or(Refusal::NoFiles)?;
                vec![OsStr::new("file"), OsStr::new("--workspace"), workspace.as_os_str()]
            }
        };
        Running::start(door, request, (&asked, &words), self.variables.clone(), now)
    }
}

/// Whether the connection and not the kernel is at fault: the next may be better.
fn is_of_the_peer(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted | ErrorKind::ConnectionReset)
}
