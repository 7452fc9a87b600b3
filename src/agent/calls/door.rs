//! Owns connections that have not yet said who they are. Hostile bytes, in process 1.
//!
//! Must never wait for a peer, and must end each connection that is silent or talks without end.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags};
use rustix::net::sockopt;
use rustix::rand::{GetRandomFlags, getrandom};

use crate::call::{Decoder, Kind, NONCE_BYTES, Refusal, header};

/// From the connection to the whole request.
const OPENING: Duration = Duration::from_secs(5);
/// How long a refused peer may take to hang up; a connection that is closed with bytes unread takes the refusal with it.
const LEAVING: Duration = Duration::from_secs(1);
/// What is read at once.
const CHUNK: usize = 16 * 1024;
/// Reads in one turn: others are waiting, too.
const READS: usize = 4;
/// From the last sign of life of a session to the first question whether it is still there, from question to question, and how
/// many remain without an answer.
const KEEP_ALIVE: (Duration, Duration, u32) = (Duration::from_secs(10), Duration::from_secs(5), 3);

/// What was heard at a door.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// Nothing that would end the wait.
    Nothing,
    /// The peer is gone.
    Gone,
    /// What came is no request.
    Nonsense,
    /// A request, with its signature: for a call or a file operation, by the frame's kind.
    Request(Kind, Vec<u8>),
}

/// One connection.
#[derive(Debug)]
pub(super) struct Door {
    stream: TcpStream,
    nonce: [u8; NONCE_BYTES],
    decoder: Decoder,
    until: Instant,
    leaving: bool,
    /// Whether the peer is in the sandbox itself.
    pub(super) from_inside: bool,
}

impl Door {
    /// Sends the challenge.
    pub(super) fn open(mut stream: TcpStream, peer: SocketAddr, now: Instant) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        sockopt::set_socket_keepalive(&stream, true)?;
        sockopt::set_tcp_keepidle(&stream, KEEP_ALIVE.0)?;
        sockopt::set_tcp_keepintvl(&stream, KEEP_ALIVE.1)?;
        sockopt::set_tcp_keepcnt(&stream, KEEP_ALIVE.2)?;
        let mut nonce = [0; NONCE_BYTES];
        if getrandom(&mut nonce, GetRandomFlags::empty())? != NONCE_BYTES {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let mut greeting = header(Kind::Nonce, NONCE_BYTES).map_err(io::Error::other)?.to_vec();
        greeting.extend(nonce);
        // A new connection has room for it.
        stream.write_all(&greeting)?;
        let from_inside = is_own(peer);
        let decoder = Decoder::default();
        Ok(Self { stream, nonce, decoder, until: now + OPENING, leaving: false, from_inside })
    }

    /// Reads what has come.
    pub(super) fn listen(&mut self, now: Instant) -> Heard {
        let mut chunk = [0; CHUNK];
        for _ in 0..READS {
            match self.stream.read(&mut chunk) {
                Ok(0) => return Heard::Gone,
                Ok(_) if self.leaving => {}
                Ok(length) => {
                    self.decoder.feed(chunk.get(..length).unwrap_or_default());
                    match self.decoder.next() {
                        Ok(None) => {}
                        Ok(Some(frame)) if matches!(frame.kind, Kind::Open | Kind::OpenFile) => {
                            return Heard::Request(frame.kind, frame.payload);
                        }
                        Ok(Some(_)) | Err(_) => return Heard::Nonsense,
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => return Heard::Gone,
            }
        }
        if now >= self.until { Heard::Gone } else { Heard::Nothing }
    }

    /// Says why not, and waits a little for the peer to go.
    pub(super) fn refuse(&mut self, refusal: Refusal, now: Instant) {
        self.leaving = true;
        self.until = now + LEAVING;
        self.decoder = Decoder::default();
        let Ok(reason) = serde_json::to_vec(&refusal) else { return };
        let Ok(header) = header(Kind::Refused, reason.len()) else { return };
        // Whoever does not hear it is refused all the same.
        let _ = self.stream.write_all(&[&header[..], &reason].concat());
        let _ = self.stream.shutdown(std::net::Shutdown::Write);
    }

    pub(super) fn nonce(&self) -> &[u8; NONCE_BYTES] {
        &self.nonce
    }

    pub(super) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// What came after the request.
    pub(super) fn rest(&self) -> &[u8] {
        self.decoder.left()
    }

    pub(super) fn is_leaving(&self) -> bool {
        self.leaving
    }

    pub(super) fn until(&self) -> Instant {
        self.until
    }

    pub(super) fn ear(&self) -> PollFd<'_> {
        PollFd::new(self.stream.as_fd(), PollFlags::POLLIN)
    }
}

/// Whether this is an address of the sandbox itself: one that can be bound is.
fn is_own(peer: SocketAddr) -> bool {
    let mut address = peer;
    address.set_port(0);
    UdpSocket::bind(address).is_ok()
}
