//! Owns the way of a call or a file operation from process 1 to its own process: the connection, the request, and a pipe by which process 1 hears
//! that all is done.
//!
//! Must hand over nothing else.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::pipe::{PipeFlags, pipe_with};
use serde::de::DeserializeOwned;

use super::door::Door;
use super::guard::Asked;
use super::tree::Sweep;
use crate::agent::descriptor::above_standard;
use crate::agent::environment::Variables;
use crate::agent::launch::helper;
use crate::call::{MOST_PAYLOAD, Refusal};

/// How long after its deadline a call process may be busy with killing before process 1 does it as well. Together with what
/// that takes it is below the second in which all must be gone.
const LATE: Duration = Duration::from_millis(600);
/// How long a call process may then still take to tell the result: to a slow session, or on a slow node.
const LINGER: Duration = Duration::from_secs(10);
/// From the kill of a call process to the next, should it still be there.
const AGAIN: Duration = Duration::from_secs(1);
/// What a call process says when it begins.
const BEGUN: [u8; 1] = *b"b";
/// More than a request and what came in the same read.
const MOST: u64 = 2 * MOST_PAYLOAD as u64;

/// A process that serves a session, as process 1 knows it.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) pid: Pid,
    /// When process 1 has to do something about it.
    pub(super) until: Instant,
    /// Whether the command and all it started are gone.
    pub(super) done: bool,
    /// Whether it does something with files, and runs no command.
    pub(super) is_file: bool,
    /// Whether it is late: it has been stopped, or can't cope.
    late: bool,
    sweep: Option<Sweep>,
    /// How long its call may take, from when it begins.
    timeout: Duration,
    ear: File,
}

impl Running {
    /// Starts the process with these words. The connection is its own from then on.
    pub(super) fn start(
        door: &Door,
        request: &[u8],
        (asked, words): (&Asked, &[&OsStr]),
        variables: Variables,
        now: Instant,
    ) -> Result<Self, Refusal> {
        let letter = letter(request, door.rest()).map_err(|_| Refusal::NoResources)?;
        let (ear, mouth) =
            pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).map_err(|_| Refusal::NoResources)?;
        let descriptors = [(door.stream().as_fd(), 0), (letter.as_fd(), 1), (mouth.as_fd(), 2)];
        let pid = helper(words, variables, &descriptors).map_err(|_| Refusal::NoResources)?;
        let timeout = asked.timeout();
        let until = now + timeout + LATE + LINGER;
        let is_file = matches!(asked, Asked::File(_));
        Ok(Self { pid, until, done: false, is_file, late: false, sweep: None, timeout, ear: ear.into() })
    }

    /// Hears how far it is.
    pub(super) fn listen(&mut self, now: Instant) {
        while !self.done {
            let mut word = [0];
            match self.ear.read(&mut word) {
                Ok(1) if word == BEGUN => self.until = now + self.timeout + LATE,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Whatever else it says, or that it is gone.
                Ok(_) | Err(_) => {
                    self.done = true;
                    self.until = now + LINGER;
                }
            }
        }
    }

    /// Does what its process should have done by now: first the call is killed, and later the process itself.
    pub(super) fn hurry(&mut self, now: Instant) {
        if now >= self.until && (self.late || self.done) {
            let _ = kill(self.pid, Signal::SIGKILL);
            self.until = now + AGAIN;
        } else if now >= self.until {
            self.late = true;
            self.sweep = Some(Sweep::begin());
            self.until = now + LINGER;
        }
        if self.sweep.as_mut().is_some_and(|sweep| sweep.step(self.pid, |_| false)) {
            self.sweep = None;
            // If its command stopped it, it can tell how the call ended now.
            let _ = kill(self.pid, Signal::SIGCONT);
        }
    }

    pub(super) fn is_swept(&self) -> bool {
        self.sweep.is_some()
    }

    pub(super) fn ear(&self) -> Option<PollFd<'_>> {
        (!self.done).then(|| PollFd::new(self.ear.as_fd(), PollFlags::POLLIN))
    }
}

/// A file in memory: a pipe might not take all of it at once, and process 1 waits for nobody.
fn letter(request: &[u8], rest: &[u8]) -> io::Result<File> {
    let mut letter = File::from(memfd_create("call", MemfdFlags::CLOEXEC)?);
    let length = u32::try_from(request.len()).map_err(io::Error::other)?;
    letter.write_all(&length.to_be_bytes())?;
    letter.write_all(request)?;
    letter.write_all(rest)?;
    letter.seek(SeekFrom::Start(0))?;
    Ok(letter)
}

/// What such a process is handed.
#[derive(Debug)]
pub(in crate::agent) struct Handed<T> {
    pub(in crate::agent) stream: TcpStream,
    /// The request, which was checked by process 1.
    pub(in crate::agent) asked: T,
    /// What came after the request.
    pub(in crate::agent) rest: Vec<u8>,
}

/// Takes it, in the process itself.
pub(in crate::agent) fn take<T: DeserializeOwned>() -> io::Result<Handed<T>> {
    let stream = TcpStream::from(above_standard(io::stdin())?);
    let mut bytes = Vec::new();
    File::from(above_standard(io::stdout())?).take(MOST).read_to_end(&mut bytes)?;
    let wrong = || io::Error::from(io::ErrorKind::InvalidData);
    let (length, bytes) = bytes.split_first_chunk().ok_or_else(wrong)?;
    let length = usize::try_from(u32::from_be_bytes(*length)).map_err(io::Error::other)?;
    let (request, rest) = bytes.split_at_checked(length).ok_or_else(wrong)?;
    let asked = serde_json::from_slice(request)?;
    Ok(Handed { stream, asked, rest: rest.to_vec() })
}

/// Tells process 1 that the time of the call begins: however long this process took to start, both then count alike.
pub(in crate::agent) fn tell_begun() {
    // If process 1 were gone, so would be this.
    let _ = io::stderr().write_all(&BEGUN);
}

/// Tells process 1 that the command and all it started are gone.
pub(in crate::agent) fn tell_done() {
    let _ = io::stderr().write_all(b".");
}
