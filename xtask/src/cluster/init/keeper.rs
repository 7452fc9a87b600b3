//! Keeps one part alive: a thread per part starts it, waits for its end, and starts it again. A part that dies
//! unasked is logged and comes back, sooner if it had worked for a while.

use std::fs;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};

use super::super::parts::{Endpoint, Launch};
use super::super::wire::PartStatus;
use super::House;

/// The shortest and the longest time between a death and the next start.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));
/// A part that lived this long is not in a crash loop.
const PROVEN: Duration = Duration::from_secs(10);
/// How often an endpoint is tried that does not answer yet: nothing tells when it will.
const TRY: Duration = Duration::from_millis(25);

enum Order {
    Stop(Sender<()>),
    Start(Sender<()>),
    Exited(u32, u8),
}

/// The handle of a part.
pub(super) struct Keeper {
    orders: Sender<Order>,
    state: Arc<Mutex<State>>,
}

#[derive(Clone, Copy)]
enum Phase {
    Waiting,
    Running(u32, Instant),
    Restarting,
    Stopped,
}

struct State {
    phase: Phase,
    restarts: u32,
}

impl Keeper {
    /// Starts keeping a part alive; one that needs its node stays dead until it is woken.
    pub(super) fn start(house: Arc<House>, launch: Launch) -> Self {
        let (orders, queue) = mpsc::channel();
        let state = Arc::new(Mutex::new(State { phase: Phase::Waiting, restarts: 0 }));
        let care = Care { house, launch, orders: orders.clone(), queue, state: Arc::clone(&state) };
        thread::spawn(move || {
            if care.launch.id.role.needs_its_node() {
                care.set(Phase::Stopped, 0);
                care.rest();
            }
            care.keep();
        });
        Self { orders, state }
    }

    /// Kills the part with SIGKILL and leaves it dead; returns once it is.
    pub(super) fn stop(&self) -> Result<()> {
        self.ask(Order::Stop)
    }

    /// Wants the part alive again.
    pub(super) fn wake(&self) -> Result<()> {
        self.ask(Order::Start)
    }

    /// How it is.
    pub(super) fn status(&self, launch: &Launch) -> PartStatus {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (name, running) = match state.phase {
            Phase::Waiting => ("waiting", None),
            Phase::Running(pid, since) => ("running", Some((pid, since))),
            Phase::Restarting => ("restarting", None),
            Phase::Stopped => ("stopped", None),
        };
        PartStatus {
            id: launch.id,
            state: name.to_owned(),
            pid: running.and_then(|(pid, _)| pid.try_into().ok()),
            uptime_seconds: running.map(|(_, since)| since.elapsed().as_secs()),
            restarts: state.restarts,
        }
    }

    fn ask(&self, order: impl FnOnce(Sender<()>) -> Order) -> Result<()> {
        let (tell, told) = mpsc::channel();
        self.orders.send(order(tell)).map_err(|_| anyhow!("nobody keeps this part"))?;
        told.recv().context("nobody keeps this part")
    }
}

/// Whether something answers at an endpoint, seen from where this is called.
pub(super) fn answers(endpoint: &Endpoint) -> bool {
    match endpoint {
        Endpoint::Tcp(address) => {
            TcpStream::connect_timeout(&(*address).into(), Duration::from_secs(1)).is_ok()
        }
        Endpoint::Unix(path) => UnixStream::connect(path).is_ok(),
    }
}

struct Care {
    house: Arc<House>,
    launch: Launch,
    orders: Sender<Order>,
    queue: Receiver<Order>,
    state: Arc<Mutex<State>>,
}

impl Care {
    fn keep(&self) {
        let mut delay = BACKOFF.0;
        loop {
            if !self.gate() {
                self.rest();
                continue;
            }
            let started = Instant::now();
            let ended = match self.spawn() {
                Ok(pid) => self.watch(pid),
                Err(error) => Some(format!("does not start: {error:#}")),
            };
            let Some(how) = ended else {
                self.rest();
                continue;
            };
            delay = if started.elapsed() > PROVEN { BACKOFF.0 } else { (delay * 2).min(BACKOFF.1) };
            super::log(&format!("{} {how}; again in {} ms", self.launch.id, delay.as_millis()));
            self.set(Phase::Restarting, 1);
            if !self.pause(delay) {
                self.rest();
            }
        }
    }

    /// Waits until what comes first answers; false once asked to stop.
    fn gate(&self) -> bool {
        let Some(endpoint) = &self.launch.after else { return true };
        self.set(Phase::Waiting, 0);
        loop {
            let tried = endpoint.clone();
            if matches!(self.house.at(self.launch.place, move || answers(&tried)), Ok(true)) {
                return true;
            }
            if !self.pause(TRY) {
                return false;
            }
        }
    }

    fn spawn(&self) -> Result<u32> {
        let mut command = self.command()?;
        let (house, orders) = (Arc::clone(&self.house), self.orders.clone());
        let spawned = self.house.at(self.launch.place, move || {
            // The order follows the child's number, which is known only after the spawn.
            let (tell, told) = mpsc::channel();
            let exited = move |status| {
                if let Ok(pid) = told.recv() {
                    let _ = orders.send(Order::Exited(pid, status));
                }
            };
            let child = house.reaper.spawn(&mut command, exited)?;
            let _ = tell.send(child.id());
            Ok::<_, std::io::Error>(child.id())
        })?;
        let pid = spawned.with_context(|| self.launch.argv.join(" "))?;
        self.set(Phase::Running(pid, Instant::now()), 0);
        Ok(pid)
    }

    fn command(&self) -> Result<Command> {
        let plan = &self.house.plan;
        let log = plan.log(&format!("{}.log", self.launch.id));
        let open = || fs::OpenOptions::new().create(true).append(true).open(&log);
        let (out, err) = (open().context("log")?, open().context("log")?);
        let (program, arguments) = self.launch.argv.split_first().context("no program")?;
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env_clear()
            .env("PATH", &plan.path)
            .envs(["HOME", "TMPDIR"].map(|name| (name, self.house.tmp(self.launch.place))))
            .current_dir("/")
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(err);
        Ok(command)
    }

    /// Waits for the end: how it ended, or none when it was stopped by order.
    fn watch(&self, pid: u32) -> Option<String> {
        let mut stopped = None;
        loop {
            match self.queue.recv() {
                Ok(Order::Exited(who, status)) if who == pid => {
                    let asked: Option<Sender<()>> = stopped.take();
                    let Some(tell) = asked else { return Some(format!("died with status {status}")) };
                    self.set(Phase::Stopped, 0);
                    let _ = tell.send(());
                    return None;
                }
                Ok(Order::Stop(tell)) => {
                    stopped = Some(tell);
                    super::kill(pid);
                }
                Ok(Order::Start(tell)) => drop(tell.send(())),
                Ok(Order::Exited(..)) => {}
                Err(_) => return None,
            }
        }
    }

    /// Lets time pass; false once asked to stop. An order to start ends it early.
    fn pause(&self, time: Duration) -> bool {
        match self.queue.recv_timeout(time) {
            Ok(Order::Stop(tell)) => {
                self.set(Phase::Stopped, 0);
                let _ = tell.send(());
                false
            }
            Ok(Order::Start(tell)) => tell.send(()).is_ok(),
            Ok(Order::Exited(..)) | Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => true,
        }
    }

    /// Stays dead until asked to start.
    fn rest(&self) {
        loop {
            match self.queue.recv() {
                Ok(Order::Start(tell)) => {
                    self.set(Phase::Waiting, 0);
                    let _ = tell.send(());
                    return;
                }
                Ok(Order::Stop(tell)) => drop(tell.send(())),
                Ok(Order::Exited(..)) => {}
                Err(_) => return,
            }
        }
    }

    fn set(&self, phase: Phase, restarts: u32) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.phase = phase;
        state.restarts += restarts;
    }
}
