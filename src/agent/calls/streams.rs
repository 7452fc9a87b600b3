//! Owns the command's own ends: what it reads and what it writes, as pipes or as a terminal.
//!
//! Must never wait for the command, and must keep no more than one chunk of its output.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;

use nix::poll::{PollFd, PollFlags};

use super::line::Line;
use crate::call::Kind;

/// While so much has not been read by the command, the session is not listened to.
const HIGH: usize = 128 * 1024;
/// What is read at once: all that a pipe holds, and all that a frame does.
const CHUNK: usize = 64 * 1024;
/// Reads in one turn: signals and the session are waiting, too.
const READS: usize = 8;
/// Most that is read of one stream once the command is gone: more than a pipe can hold. Whoever outside of the call got hold of
/// the pipe could write for ever.
const LAST: usize = 32;
/// What ends the input of a terminal.
const END_OF_TRANSMISSION: u8 = 4;

/// Something the command writes.
#[derive(Debug)]
pub(super) struct Output {
    kind: Kind,
    /// None at its end.
    file: Option<File>,
    /// What the command wrote, in bytes.
    pub(super) bytes: u64,
    chunk: Vec<u8>,
}

impl Output {
    pub(super) fn new(kind: Kind, file: Option<File>) -> Self {
        Self { kind, file, bytes: 0, chunk: vec![0; CHUNK] }
    }

    pub(super) fn is_over(&self) -> bool {
        self.file.is_none()
    }

    pub(super) fn ear(&self) -> Option<PollFd<'_>> {
        self.file.as_ref().map(|file| PollFd::new(file.as_fd(), PollFlags::POLLIN))
    }

    /// Carries what has come, as far as the line takes it.
    pub(super) fn carry(&mut self, line: &mut Line) {
        for _ in 0..READS {
            if !line.takes_output() || !self.read(line) {
                return;
            }
        }
    }

    /// Carries what is left, since nobody writes any more.
    pub(super) fn finish(&mut self, line: &mut Line) {
        let mut reads = 0;
        while self.read(line) {
            reads += 1;
            if reads == LAST {
                line.truncated = true;
                return;
            }
        }
    }

    /// Whether there was something.
    fn read(&mut self, line: &mut Line) -> bool {
        let Some(file) = &mut self.file else { return false };
        match file.read(&mut self.chunk) {
            Ok(length @ 1..) => {
                self.bytes += length as u64;
                line.output(self.kind, self.chunk.get(..length).unwrap_or_default());
                true
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => false,
            Err(error) if error.kind() == ErrorKind::Interrupted => true,
            // A terminal that nobody has open any more gives an error at its end.
            Ok(_) | Err(_) => {
                self.file = None;
                false
            }
        }
    }
}

/// What the command reads.
#[derive(Debug)]
pub(super) struct Input {
    /// None when it is closed: everything was written, or nobody reads it.
    file: Option<File>,
    terminal: bool,
    backlog: VecDeque<u8>,
    ended: bool,
}

impl Input {
    pub(super) fn new(file: Option<File>, terminal: bool) -> Self {
        Self { file, terminal, backlog: VecDeque::new(), ended: false }
    }

    /// Whether more would be taken.
    pub(super) fn takes(&self) -> bool {
        self.backlog.len() < HIGH
    }

    /// Takes what the session sent; nothing is the end.
    pub(super) fn take(&mut self, bytes: &[u8]) {
        if self.file.is_none() || self.ended {
            return;
        }
        match bytes {
            [] if self.terminal => self.backlog.push_back(END_OF_TRANSMISSION),
            [] => self.ended = true,
            bytes => self.backlog.extend(bytes),
        }
        self.flush();
    }

    /// No more will come.
    pub(super) fn close(&mut self) {
        self.file = None;
        self.backlog = VecDeque::new();
    }

    /// Writes what can be written now.
    pub(super) fn flush(&mut self) {
        while let (Some(file), false) = (&mut self.file, self.backlog.is_empty()) {
            match file.write(self.backlog.as_slices().0) {
                Ok(written) => drop(self.backlog.drain(..written)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => return self.close(),
            }
        }
        if self.ended {
            self.close();
        }
    }

    pub(super) fn ear(&self) -> Option<PollFd<'_>> {
        let file = self.file.as_ref().filter(|_| !self.backlog.is_empty());
        file.map(|file| PollFd::new(file.as_fd(), PollFlags::POLLOUT))
    }
}
