//! What is said over the socket of `init`: one JSON object a line, and open files beside the first byte. Both ends
//! are copies of the same program, so there are no versions.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use anyhow::{Context, Result, bail};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::parts::{PartId, Role};
use super::plan::{Node, Place};

/// A line longer than this is no request: arguments and environment end at 2 MiB on Linux.
const LONGEST: u64 = 8 << 20;

/// What `init` is asked.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    /// Run a program; its standard input, output and error come along as open files.
    Run(Run),
    /// How are the parts?
    Status,
    /// Do something to a part.
    Part(Action, Role, Option<Node>),
    /// Kill a whole node with all its pods, start it again, pull its cable, plug it in.
    Node(NodeAction, Node),
    /// Answer once the part answers at its endpoint.
    Await(PartId),
}

/// A program to be run.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Run {
    /// Where.
    pub(crate) place: Place,
    /// The program and its arguments.
    pub(crate) argv: Vec<String>,
    /// Its whole environment.
    pub(crate) env: BTreeMap<String, String>,
    /// Its folder.
    pub(crate) cwd: String,
}

/// What can be done to a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
pub(crate) enum Action {
    /// Kill it with SIGKILL and leave it dead.
    Stop,
    /// Start it with the same arguments, and wait until it answers.
    Start,
    /// Both.
    Restart,
}

/// What can be done to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum NodeAction {
    /// Kill everything on it at once, pods included, as a power cut would.
    Stop,
    /// Boot it again from its disk.
    Start,
    /// Pull its network cable.
    Cut,
    /// Plug the cable in again.
    Join,
}

/// What `init` answers.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    /// Done.
    Done,
    /// The program ended with this status; a signal counts as 128 and its number.
    Exited(u8),
    /// The parts, in the order of starting.
    Status(Status),
    /// It did not work, and why.
    Refused(String),
}

/// What a client may say while its program runs.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Note {
    /// Send this signal to the program.
    Signal(i32),
}

/// The state of the cluster as `init` knows it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Status {
    /// Whether `up` came to its end.
    pub(crate) complete: bool,
    /// The parts.
    pub(crate) parts: Vec<PartStatus>,
    /// The nodes.
    pub(crate) nodes: Vec<NodeStatus>,
}

/// One part.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PartStatus {
    /// Which.
    pub(crate) id: PartId,
    /// `waiting`, `running`, `stopped` or `restarting`.
    pub(crate) state: String,
    /// Its process id in the world.
    pub(crate) pid: Option<i32>,
    /// Whole seconds since it was started.
    pub(crate) uptime_seconds: Option<u64>,
    /// How often it was started again after it had died unasked.
    pub(crate) restarts: u32,
}

/// One node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct NodeStatus {
    /// Which.
    pub(crate) node: Node,
    /// Whether its namespaces are there.
    pub(crate) running: bool,
    /// Whether its cable is plugged in.
    pub(crate) joined: bool,
}

/// One end of a conversation.
pub(crate) struct Line {
    reader: BufReader<UnixStream>,
}

impl Line {
    /// Starts a conversation by sending a line with open files.
    pub(crate) fn open(stream: UnixStream, request: &Request, files: &[BorrowedFd<'_>]) -> Result<Self> {
        let text = encode(request)?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        let mut beside = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() && !beside.push(SendAncillaryMessage::ScmRights(files)) {
            bail!("more than 3 open files cannot be sent");
        }
        let sent = rustix::net::sendmsg(&stream, &[IoSlice::new(&text)], &mut beside, SendFlags::NOSIGNAL)
            .context("the cluster's init hung up")?;
        (&stream).write_all(&text[sent..]).context("the cluster's init hung up")?;
        Ok(Self { reader: BufReader::new(stream) })
    }

    /// Takes up a conversation: the first line, with the open files that came along.
    pub(crate) fn accept(stream: UnixStream) -> Result<(Self, Request, Vec<OwnedFd>)> {
        let mut first = [0_u8; 4096];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        let mut beside = RecvAncillaryBuffer::new(&mut space);
        let parts = &mut [IoSliceMut::new(&mut first)];
        let got = rustix::net::recvmsg(&stream, parts, &mut beside, RecvFlags::CMSG_CLOEXEC)?;
        let mut files = Vec::new();
        for message in beside.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = message {
                files.extend(received);
            }
        }
        let mut line = first[..got.bytes].to_vec();
        let mut this = Self { reader: BufReader::new(stream) };
        if line.last() != Some(&b'\n') {
            this.reader.by_ref().take(LONGEST).read_until(b'\n', &mut line)?;
        }
        Ok((this, decode(&line)?, files))
    }

    /// Sends a line.
    pub(crate) fn send<T: Serialize>(&self, message: &T) -> Result<()> {
        let mut stream = self.reader.get_ref();
        stream.write_all(&encode(message)?).context("the other end hung up")
    }

    /// Reads a line; none once the other end has hung up.
    pub(crate) fn receive<T: DeserializeOwned>(&mut self) -> Result<Option<T>> {
        let mut line = Vec::new();
        match self.reader.by_ref().take(LONGEST).read_until(b'\n', &mut line) {
            Ok(0) => Ok(None),
            Ok(_) => decode(&line).map(Some),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// A second handle, to send while another thread reads.
    pub(crate) fn sender(&self) -> Result<Self> {
        Ok(Self { reader: BufReader::new(self.reader.get_ref().try_clone()?) })
    }
}

impl AsFd for Line {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.reader.get_ref().as_fd()
    }
}

fn encode<T: Serialize>(message: &T) -> Result<Vec<u8>> {
    let mut text = serde_json::to_vec(message)?;
    text.push(b'\n');
    Ok(text)
}

fn decode<T: DeserializeOwned>(line: &[u8]) -> Result<T> {
    serde_json::from_slice(line).context("not a message of this program's")
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::thread;

    use super::*;

    #[test]
    fn a_long_request_arrives_with_its_files() {
        let (here, there) = UnixStream::pair().unwrap();
        let (reader, mut writer) = io::pipe().unwrap();
        let argv = vec!["x".repeat(300_000)];
        let run = Run { place: Place::World, argv, env: BTreeMap::new(), cwd: "/".to_owned() };
        let sent = thread::spawn(move || Line::open(here, &Request::Run(run), &[reader.as_fd()]).unwrap());
        let (_, request, mut files) = Line::accept(there).unwrap();
        let mut line = sent.join().unwrap();
        let Request::Run(run) = request else { panic!("{request:?}") };
        assert_eq!(run.argv[0].len(), 300_000);
        writer.write_all(b"through").unwrap();
        drop(writer);
        let mut text = String::new();
        File::from(files.remove(0)).read_to_string(&mut text).unwrap();
        assert_eq!(text, "through");
        assert!(line.receive::<Reply>().unwrap().is_none());
    }

    #[test]
    fn a_line_that_is_no_message_is_refused() {
        let (here, there) = UnixStream::pair().unwrap();
        (&here).write_all(b"{\"Run\":1}\n").unwrap();
        assert!(Line::accept(there).is_err());
    }
}
