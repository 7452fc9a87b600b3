//! Carries bytes between two sockets: copied at first, then spliced in the kernel, until both sides are done or it must end.
//!
//! An idle flow holds no buffer and no pipe. Must never carry a byte that the toll did not let pass.

use std::{
    future::poll_fn,
    io,
    mem::MaybeUninit,
    os::fd::OwnedFd,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use rustix::{
    net::{RecvFlags, Shutdown, recv, shutdown},
    pipe::{PipeFlags, SpliceFlags, pipe_with, splice},
};
use tokio::{io::Interest, net::TcpStream};

use super::{
    clock::Clock,
    flow::{Cause, Flow},
    limit::Inside,
    toll::Toll,
};

/// After so many bytes a direction is worth a pipe.
const SPLICE_AFTER: usize = 256 * 1024;
/// What is read at once while copying. On the stack of one poll, never kept.
const COPY: usize = 16 * 1024;
/// After so many steps another flow has its turn, even if there is always more.
const TURN: u32 = 16;
/// What a pipe holds by default, so what is spliced at once.
const PIPE: usize = 64 * 1024;

/// When a flow was last of use.
#[derive(Debug)]
pub struct Activity<'a> {
    clock: Clock,
    last: AtomicU64,
    used: &'a AtomicU64,
}

impl<'a> Activity<'a> {
    /// Just now. Whenever it is again, `used` has the moment, too.
    #[must_use]
    pub fn new(clock: Clock, used: &'a AtomicU64) -> Self {
        Self { clock, last: AtomicU64::new(clock.now()), used }
    }

    /// Now again.
    pub fn touch(&self) {
        let now = self.clock.now();
        self.last.store(now, Ordering::Relaxed);
        self.used.store(now, Ordering::Relaxed);
    }

    /// Returns when nothing happened for so long.
    pub async fn idle(&self, most: Duration) {
        let most = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX);
        loop {
            let due = self.last.load(Ordering::Relaxed).saturating_add(most);
            if self.clock.now() >= due {
                return;
            }
            tokio::time::sleep_until(self.clock.at(due)).await;
        }
    }
}

/// What a relay needs besides its sockets.
pub struct Ways<'a> {
    /// From the sandbox.
    pub up: &'a Toll,
    /// To the sandbox.
    pub down: &'a Toll,
    /// Where the moment of the last byte is kept.
    pub used: &'a AtomicU64,
    /// How long nothing may happen.
    pub idle: Duration,
    /// Asked before two pipes are made; none means to go on copying.
    pub pipes: &'a (dyn Fn() -> Option<Inside> + Sync),
}

/// Carries until both sides are done, or something ends it. `first` was read from the client before.
pub async fn relay(
    client: &TcpStream,
    upstream: &TcpStream,
    first: Vec<u8>,
    flow: &Flow,
    ways: Ways<'_>,
) -> Cause {
    let activity = &Activity::new(ways.up.clock, ways.used);
    let both = async {
        let up = async {
            let sent = async move {
                send(upstream, &first, ways.up, activity).await?;
                // As long as a hello may be, and of no use for the rest of the flow.
                drop(first);
                pump(client, upstream, ways.up, activity, ways.pipes).await
            };
            match sent.await {
                // A server that reads no more may still have something to say.
                Err(Fault::Write) => Ok(()),
                other => other,
            }
        };
        tokio::try_join!(up, pump(upstream, client, ways.down, activity, ways.pipes))
    };
    tokio::select! {
        biased;
        cause = flow.closed() => cause,
        done = both => match done {
            Ok(_) => Cause::Done,
            Err(Fault::Spent) => Cause::Spent,
            Err(Fault::Read | Fault::Write) => Cause::Broken,
        },
        () = activity.idle(ways.idle) => Cause::Idle,
    }
}

/// What ends a direction before its end.
enum Fault {
    Read,
    Write,
    Spent,
}

/// Sends bytes that were read already, as the toll lets them pass.
async fn send(to: &TcpStream, mut bytes: &[u8], toll: &Toll, activity: &Activity<'_>) -> Result<(), Fault> {
    while !bytes.is_empty() {
        let granted = toll.pass(bytes.len()).await.map_err(|_| Fault::Spent)?;
        let (now, rest) = bytes.split_at(granted.min(bytes.len()));
        toll.settle(granted, now.len());
        write(to, now).await.map_err(|_| Fault::Write)?;
        activity.touch();
        bytes = rest;
    }
    Ok(())
}

/// Like the socket's own, and cheaper: it has one waiter, the direction that reads from it.
async fn readable(from: &TcpStream) -> io::Result<()> {
    poll_fn(|context| from.poll_read_ready(context)).await
}

/// Likewise, for the direction that writes to it.
async fn writable(to: &TcpStream) -> io::Result<()> {
    poll_fn(|context| to.poll_write_ready(context)).await
}

async fn write(to: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        writable(to).await?;
        match to.try_write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// One direction, until its end is passed on.
async fn pump(
    from: &TcpStream,
    to: &TcpStream,
    toll: &Toll,
    activity: &Activity<'_>,
    pipes: &(dyn Fn() -> Option<Inside> + Sync),
) -> Result<(), Fault> {
    let (mut carried, mut steps) = (0, 0_u32);
    loop {
        take_turns(&mut steps).await;
        if carried >= SPLICE_AFTER
            && let Some(pipe) = Pipe::new(pipes)
        {
            spliced(from, to, &pipe, toll, activity).await?;
            break;
        }
        // Only what is there is asked for: a flow that waits for its peer holds nothing of a limit.
        readable(from).await.map_err(|_| Fault::Read)?;
        let granted = toll.pass(COPY).await.map_err(|_| Fault::Spent)?;
        let step = copy(from, to, granted);
        toll.settle(granted, step.as_ref().map_or(0, |step| step.read));
        match step {
            Ok(Step { read: 0, .. }) => break,
            Ok(Step { read, left }) => {
                activity.touch();
                carried += read;
                write(to, &left).await.map_err(|_| Fault::Write)?;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Err(Fault::Write),
            Err(_) => return Err(Fault::Read),
        }
        if carried >= SPLICE_AFTER + PIPE {
            // There was no room for a pipe; it is asked for again only after as much again.
            carried = 0;
        }
    }
    // The peer may have gone on its own; then there is nothing to tell it.
    let _ = shutdown(to, Shutdown::Write);
    Ok(())
}

async fn take_turns(steps: &mut u32) {
    *steps += 1;
    if *steps >= TURN {
        *steps = 0;
        tokio::task::yield_now().await;
    }
}

struct Step {
    read: usize,
    left: Vec<u8>,
}

/// Reads and writes at once; what the other side does not take yet is left over.
fn copy(from: &TcpStream, to: &TcpStream, most: usize) -> io::Result<Step> {
    let mut buffer = [const { MaybeUninit::uninit() }; COPY];
    let bytes = read(from, buffer.get_mut(..most.min(COPY)).unwrap_or_default())?;
    if bytes.is_empty() {
        return Ok(Step { read: 0, left: Vec::new() });
    }
    let written = match to.try_write(bytes) {
        Ok(written) => written,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
        Err(error) => return Err(io::Error::new(io::ErrorKind::BrokenPipe, error)),
    };
    Ok(Step { read: bytes.len(), left: bytes.get(written..).unwrap_or_default().to_vec() })
}

/// Reads what is there. Less than there was room for is all of it: the socket counts as drained until it says otherwise, which
/// spares asking it once more.
fn read<'b>(from: &TcpStream, room: &'b mut [MaybeUninit<u8>]) -> io::Result<&'b [u8]> {
    let most = room.len();
    let mut bytes = Err(io::ErrorKind::WouldBlock.into());
    // A socket that says otherwise while this goes on is heard: only what it said before is forgotten.
    let drained = from.try_io(Interest::READABLE, || {
        let (read, _) = recv(from, room, RecvFlags::empty())?.0;
        let length = read.len();
        bytes = Ok(&*read);
        if (1..most).contains(&length) { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
    });
    match drained {
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
        _ => bytes,
    }
}

struct Pipe {
    out: OwnedFd,
    into: OwnedFd,
    _room: Inside,
}

impl Pipe {
    fn new(pipes: &(dyn Fn() -> Option<Inside> + Sync)) -> Option<Self> {
        let room = pipes()?;
        let (out, into) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).ok()?;
        Some(Self { out, into, _room: room })
    }
}

/// The rest of one direction, without a copy into this process. The pipe is emptied before it is filled again, so that a
/// full pipe is never taken for a silent socket.
async fn spliced(
    from: &TcpStream,
    to: &TcpStream,
    pipe: &Pipe,
    toll: &Toll,
    activity: &Activity<'_>,
) -> Result<(), Fault> {
    let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
    let mut steps = 0_u32;
    loop {
        take_turns(&mut steps).await;
        readable(from).await.map_err(|_| Fault::Read)?;
        let granted = toll.pass(PIPE).await.map_err(|_| Fault::Spent)?;
        let read =
            from.try_io(Interest::READABLE, || Ok(splice(from, None, &pipe.into, None, granted, flags)?));
        toll.settle(granted, *read.as_ref().unwrap_or(&0));
        let mut left = match read {
            Ok(0) => return Ok(()),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(_) => return Err(Fault::Read),
        };
        while left > 0 {
            match to.try_io(Interest::WRITABLE, || Ok(splice(&pipe.out, None, to, None, left, flags)?)) {
                Ok(0) => return Err(Fault::Write),
                Ok(written) => {
                    left = left.saturating_sub(written);
                    activity.touch();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    writable(to).await.map_err(|_| Fault::Write)?;
                }
                Err(_) => return Err(Fault::Write),
            }
        }
    }
}
