//! Owns the line of a call process to its session: frames in, and frames out through a bounded backlog.
//!
//! Must never wait for the session, and must not hand over more of the output than was asked for.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;

use nix::libc;
use nix::poll::{PollFd, PollFlags};

use crate::call::{Decoder, Frame, Kind, header};

/// While so much has not been sent, the command's output is left where it is.
const HIGH: usize = 256 * 1024;
/// Most that is kept unsent. Between the two is room for what the pipes hold when the command has ended.
const MOST: usize = 4 << 20;
/// What is read at once.
const CHUNK: usize = 16 * 1024;
/// That the session will say no more, which is seen though something it said is still unread.
const FAREWELL: PollFlags = PollFlags::from_bits_retain(libc::POLLRDHUP);

/// The line to the session.
#[derive(Debug)]
pub(super) struct Line {
    /// None once the session has hung up.
    stream: Option<TcpStream>,
    decoder: Decoder,
    backlog: VecDeque<u8>,
    /// Bytes of output that may still be handed over.
    left: u64,
    /// Whether output was dropped.
    pub(super) truncated: bool,
}

impl Line {
    /// A line on which `rest` has come already.
    pub(super) fn new(stream: TcpStream, rest: &[u8], most_output: u64) -> Self {
        let mut decoder = Decoder::default();
        decoder.feed(rest);
        Self { stream: Some(stream), decoder, backlog: VecDeque::new(), left: most_output, truncated: false }
    }

    pub(super) fn hung_up(&self) -> bool {
        self.stream.is_none()
    }

    pub(super) fn hang_up(&mut self) {
        self.stream = None;
        self.backlog = VecDeque::new();
    }

    /// Whether output would be taken: the session reads it, or it is dropped anyway.
    pub(super) fn takes_output(&self) -> bool {
        self.hung_up() || self.left == 0 || self.backlog.len() < HIGH
    }

    pub(super) fn is_flushed(&self) -> bool {
        self.backlog.is_empty()
    }

    /// Sends output, as far as it is wanted.
    pub(super) fn output(&mut self, kind: Kind, bytes: &[u8]) {
        let wanted = usize::try_from(self.left).unwrap_or(usize::MAX).min(bytes.len());
        let wanted = if self.backlog.len() > MOST { 0 } else { wanted };
        self.truncated |= wanted < bytes.len();
        self.left -= wanted as u64;
        if let Some(bytes) = bytes.get(..wanted).filter(|bytes| !bytes.is_empty()) {
            self.say(kind, bytes);
        }
    }

    pub(super) fn say(&mut self, kind: Kind, payload: &[u8]) {
        if self.hung_up() {
            return;
        }
        match header(kind, payload.len()) {
            Ok(header) => {
                self.backlog.extend(header);
                self.backlog.extend(payload);
                self.flush();
            }
            // No frame of ours is so long; a session that misses one has to notice.
            Err(_) => self.hang_up(),
        }
    }

    /// Sends what can be sent now.
    pub(super) fn flush(&mut self) {
        while let (Some(stream), false) = (&mut self.stream, self.backlog.is_empty()) {
            match stream.write(self.backlog.as_slices().0) {
                Ok(sent) => drop(self.backlog.drain(..sent)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => return self.hang_up(),
            }
        }
    }

    /// Reads once.
    pub(super) fn listen(&mut self) {
        let mut chunk = [0; CHUNK];
        match self.stream.as_mut().map(|stream| stream.read(&mut chunk)) {
            Some(Ok(length @ 1..)) => self.decoder.feed(chunk.get(..length).unwrap_or_default()),
            Some(Err(error)) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Some(Ok(_) | Err(_)) => self.hang_up(),
            None => {}
        }
    }

    /// The next frame that has come.
    pub(super) fn frame(&mut self) -> Option<Frame> {
        if let Ok(frame) = self.decoder.next() {
            return frame;
        }
        // Whoever speaks nonsense is not the session any more.
        self.hang_up();
        self.decoder = Decoder::default();
        None
    }

    /// What to wait for; `listening` if more may come.
    pub(super) fn ear(&self, listening: bool) -> Option<PollFd<'_>> {
        let mut wanted = FAREWELL;
        wanted.set(PollFlags::POLLIN, listening);
        wanted.set(PollFlags::POLLOUT, !self.backlog.is_empty());
        self.stream.as_ref().map(|stream| PollFd::new(stream.as_fd(), wanted))
    }

    /// Whether the session is seen to be gone, though nothing is read from it.
    pub(super) fn is_farewell(ear: &PollFd<'_>) -> bool {
        // None for events with a bit that `PollFlags` has no name for, and that is a farewell.
        ear.revents().is_none_or(|events| events.intersects(PollFlags::POLLHUP | PollFlags::POLLERR))
    }

    /// Says that nothing follows.
    pub(super) fn close_output(&self) {
        // An error means that it is closed.
        let _ = self.stream.as_ref().map(|stream| stream.shutdown(Shutdown::Write));
    }

    /// Forgets what was heard.
    pub(super) fn forget(&mut self) {
        self.decoder = Decoder::default();
    }
}
