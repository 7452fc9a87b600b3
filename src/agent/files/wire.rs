//! Owns the line to the session while something is done with files: one thing after the other, each within the operation's time.
//!
//! Must keep no more than a frame of what comes.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use super::error::Stop;
use crate::call::{Decoder, FileEntry, FileReason, FileResult, HEADER_BYTES, Kind, MOST_DATA, header};

/// How long a session may take to read the result.
const FLUSH: Duration = Duration::from_secs(5);
/// How long it may take to hang up: a connection that is closed with bytes unread takes the result with it.
const FAREWELL: Duration = Duration::from_millis(500);

/// The line.
#[derive(Debug)]
pub(super) struct Wire {
    stream: TcpStream,
    decoder: Decoder,
    until: Instant,
    chunk: Vec<u8>,
    /// What is to be written has come whole.
    ended: bool,
}

impl Wire {
    /// A line on which `rest` has come already.
    pub(super) fn new(stream: TcpStream, rest: &[u8], until: Instant) -> Self {
        let mut decoder = Decoder::default();
        decoder.feed(rest);
        // Process 1 never waits; here there is nothing else to do. Should it fail, the operation ends at once.
        let _ = stream.set_nonblocking(false);
        Self { stream, decoder, until, chunk: vec![0; MOST_DATA], ended: false }
    }

    /// Whether there is time left.
    pub(super) fn check(&self) -> Result<Duration, Stop> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(FileReason::DeadlineExceeded.into()) } else { Ok(left) }
    }

    pub(super) fn entry(&mut self, entry: &FileEntry) -> Result<usize, Stop> {
        let text = serde_json::to_vec(entry).map_err(|_| FileReason::Failed)?;
        self.say(Kind::Entry, &text)?;
        Ok(text.len())
    }

    pub(super) fn say(&mut self, kind: Kind, payload: &[u8]) -> Result<(), Stop> {
        let header: [u8; HEADER_BYTES] = header(kind, payload.len()).map_err(|_| FileReason::NameTooLong)?;
        let bytes = [&header[..], payload].concat();
        let mut left = bytes.as_slice();
        while !left.is_empty() {
            let time = self.check()?;
            let sent = self.stream.set_write_timeout(Some(time)).and_then(|()| self.stream.write(left));
            match sent {
                Ok(0) => return Err(Stop::Gone),
                Ok(sent) => left = left.get(sent..).unwrap_or_default(),
                Err(error) if is_no_end(error.kind()) => {}
                Err(_) => return Err(Stop::Gone),
            }
        }
        Ok(())
    }

    /// The next piece of what is to be written; nothing at its end.
    pub(super) fn content(&mut self) -> Result<Option<Vec<u8>>, Stop> {
        loop {
            if self.ended {
                return Ok(None);
            }
            match self.decoder.next() {
                Ok(Some(frame)) if frame.kind == Kind::Stdin => {
                    self.ended = frame.payload.is_empty();
                    return Ok(Some(frame.payload).filter(|bytes| !bytes.is_empty()));
                }
                Ok(None) => self.listen()?,
                // Whoever speaks nonsense is not the session any more.
                Ok(Some(_)) | Err(_) => return Err(Stop::Gone),
            }
        }
    }

    fn listen(&mut self) -> Result<(), Stop> {
        let time = self.check()?;
        match self.stream.set_read_timeout(Some(time)).and_then(|()| self.stream.read(&mut self.chunk)) {
            Ok(0) => Err(Stop::Gone),
            Ok(length) => {
                self.decoder.feed(self.chunk.get(..length).unwrap_or_default());
                Ok(())
            }
            Err(error) if is_no_end(error.kind()) => Ok(()),
            Err(_) => Err(Stop::Gone),
        }
    }

    /// Tells how it ended, and waits a little for the session to have heard it.
    pub(super) fn tell(&mut self, result: &FileResult) {
        self.until = Instant::now() + FLUSH;
        let Ok(text) = serde_json::to_vec(result) else { return };
        if self.say(Kind::Result, &text).is_err() {
            return;
        }
        let _ = self.stream.shutdown(Shutdown::Write);
        self.until = Instant::now() + FAREWELL;
        while self.listen().is_ok() {
            self.decoder = Decoder::default();
        }
    }
}

fn is_no_end(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Interrupted | ErrorKind::WouldBlock | ErrorKind::TimedOut)
}
