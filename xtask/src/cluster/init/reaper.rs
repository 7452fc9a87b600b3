//! The one place of `init` that waits for children. As PID 1 it inherits every orphan, so nothing else may wait:
//! a second waiter would steal the status of a child that this one is asked about.

use std::collections::HashMap;
use std::io::{self, Write};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;

use anyhow::{Context, Result, bail};
use rustix::process::{WaitOptions, WaitStatus, wait};

type Then = Box<dyn FnOnce(u8) + Send>;

/// Spawns children and tells how they ended.
pub(crate) struct Reaper {
    watched: Mutex<HashMap<u32, Then>>,
    spawned: Condvar,
}

impl Reaper {
    /// Starts waiting, on a thread of its own.
    pub(crate) fn start() -> Arc<Self> {
        let this = Arc::new(Self { watched: Mutex::default(), spawned: Condvar::new() });
        let reaper = Arc::clone(&this);
        thread::spawn(move || {
            loop {
                reaper.reap();
            }
        });
        this
    }

    /// Spawns a child; `then` gets its status: the exit code, or 128 and the signal. The handle is for its pipes
    /// only and must not be waited on.
    pub(crate) fn spawn(
        &self,
        command: &mut Command,
        then: impl FnOnce(u8) + Send + 'static,
    ) -> io::Result<Child> {
        // Held over the spawn: a child that ends at once is looked up only after it was entered.
        let mut watched = self.watched();
        let child = command.spawn()?;
        watched.insert(child.id(), Box::new(then));
        self.spawned.notify_all();
        Ok(child)
    }

    /// Runs a program to its end with a text as its input; an error unless it succeeds.
    pub(crate) fn run(&self, command: &mut Command, input: &str) -> Result<()> {
        let name = command.get_program().to_string_lossy().into_owned();
        let (tell, told) = mpsc::channel();
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        let mut child = self
            .spawn(command, move |status| _ = tell.send(status))
            .with_context(|| format!("{name} does not start"))?;
        if let Some(mut stdin) = child.stdin.take() {
            // A program that ends without reading says more by its status.
            let _ = stdin.write_all(input.as_bytes());
        }
        match told.recv() {
            Ok(0) => Ok(()),
            Ok(status) => bail!("{name} ended with status {status}; its input was:\n{input}"),
            Err(_) => bail!("{name}: nobody waits for it"),
        }
    }

    fn reap(&self) {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) => {
                let pid = pid.as_raw_nonzero().get().unsigned_abs();
                let then = self.watched().remove(&pid);
                if let Some(then) = then {
                    then(code(status));
                }
            }
            Err(rustix::io::Errno::CHILD) => {
                let watched = self.watched();
                let none = |watched: &mut HashMap<_, _>| watched.is_empty();
                drop(self.spawned.wait_while(watched, none).unwrap_or_else(PoisonError::into_inner));
            }
            Ok(None) | Err(_) => {}
        }
    }

    fn watched(&self) -> MutexGuard<'_, HashMap<u32, Then>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn code(status: WaitStatus) -> u8 {
    let code = match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => code,
        (None, Some(signal)) => 128 + signal,
        (None, None) => 255,
    };
    u8::try_from(code).unwrap_or(255)
}
