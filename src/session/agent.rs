//! The talk with a sandbox's agent: one connection, one call. Everything that comes from there is hostile.
//!
//! A frame that is too long, of the wrong kind or out of turn, output beyond what was asked for, a result that contradicts what was
//! seen: each ends the call as a failure of the agent. What it said is never logged, nor told to anybody.

use std::convert::Infallible;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, split};

use super::{
    config::Timing,
    input::{Input, Word},
    key::Key,
    output::{Gone, Output, Stream},
    problem::Problem,
};
use crate::call::{
    CallResult, Decoder, Exec, Frame, Held, Kind, MOST_TEXT_CHARS, NONCE_BYTES, Outcome, Refusal,
    SIGNATURE_BYTES, Size, header,
};

/// What is read at once.
const CHUNK: usize = 16 * 1024;
/// What is written at once of standard input. A frame carries as much.
pub(super) const INPUT_CHUNK: usize = 32 * 1024;

/// A call as it is told to an agent.
#[derive(Debug)]
pub(super) struct Told<'a> {
    /// The sandbox that is meant.
    pub(super) uid: &'a str,
    /// The call.
    pub(super) exec: &'a Exec,
    /// The same as bytes.
    pub(super) request: &'a [u8],
}

/// How far a call came, whatever became of it.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// The agent was told: from here on it may have run.
    pub(super) told: bool,
    /// The agent said that it runs.
    pub(super) started: bool,
    /// Output waits for the client.
    pub(super) handing_over: bool,
    stdout: u64,
    stderr: u64,
    /// What went wrong on the client's side.
    pub(super) trouble: Option<Problem>,
}

/// Why a talk ended without a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wrong {
    /// The agent said no.
    Refused(Refusal),
    /// It said what no agent says.
    Broken(&'static str),
    /// The connection ended.
    Lost,
    /// It did not greet in time.
    Silent,
    /// The client does not take the output any more.
    ClientGone,
}

/// Has one call run. What its client says and is told goes by `input` and `output`.
pub(super) async fn talk<S, I, O>(
    socket: S,
    told: &Told<'_>,
    (key, timing): (&Key, &Timing),
    (input, output): (&mut I, &mut O),
    progress: &mut Progress,
) -> Result<CallResult, Wrong>
where
    S: AsyncRead + AsyncWrite + Send,
    I: Input,
    O: Output,
{
    let (read, mut write) = split(socket);
    let mut frames = Frames::new(read);
    let greeting = tokio::time::timeout(timing.greeting, frames.next()).await;
    let nonce = nonce(greeting.unwrap_or(Err(Wrong::Silent))?)?;
    progress.told = true;
    let say = async {
        // Whoever ends the talk early does not read to the end: what it said last is what counts, not that it can't be told more.
        if say(&mut write, told, key.sign(told.uid, &nonce, told.request), input).await.is_err() {
            tracing::debug!("an agent did not read all that it was told");
        }
        std::future::pending::<Infallible>().await
    };
    tokio::select! {
        biased;
        heard = hear(&mut frames, told.exec, output, progress) => heard,
        never = say => match never {},
    }
}

pub(super) fn nonce(frame: Frame) -> Result<[u8; NONCE_BYTES], Wrong> {
    match frame.kind {
        Kind::Nonce => frame.payload.try_into().map_err(|_| Wrong::Broken("a challenge of another length")),
        // One that has no room says so to everybody.
        Kind::Refused => Err(refusal(&frame.payload)),
        _ => Err(Wrong::Broken("no challenge first")),
    }
}

async fn say(
    write: &mut (impl AsyncWrite + Unpin),
    told: &Told<'_>,
    signature: [u8; SIGNATURE_BYTES],
    input: &mut impl Input,
) -> std::io::Result<()> {
    frame(write, Kind::Open, &[&signature, told.request]).await?;
    while let Some(word) = input.next().await {
        match word {
            Word::Input(bytes) => {
                for chunk in bytes.chunks(INPUT_CHUNK) {
                    frame(write, Kind::Stdin, &[chunk]).await?;
                }
            }
            Word::End => frame(write, Kind::Stdin, &[]).await?,
            Word::Signal(number) => frame(write, Kind::Signal, &[&[number]]).await?,
            Word::Resize(Size { rows, columns }) => {
                frame(write, Kind::Resize, &[&rows.to_be_bytes(), &columns.to_be_bytes()]).await?;
            }
        }
        write.flush().await?;
    }
    Ok(())
}

pub(super) async fn frame(
    write: &mut (impl AsyncWrite + Unpin),
    kind: Kind,
    parts: &[&[u8]],
) -> std::io::Result<()> {
    let length = parts.iter().map(|part| part.len()).sum();
    let header = header(kind, length).map_err(std::io::Error::other)?;
    // In one piece: a header alone would be a packet alone.
    write.write_all(&[&[&header[..]][..], parts].concat().concat()).await
}

async fn hear<R: AsyncRead + Unpin>(
    frames: &mut Frames<R>,
    exec: &Exec,
    output: &mut impl Output,
    progress: &mut Progress,
) -> Result<CallResult, Wrong> {
    loop {
        let Frame { kind, payload } = frames.next().await?;
        match kind {
            Kind::Started if !progress.started => {
                progress.started = true;
                output.started().await.map_err(|Gone| Wrong::ClientGone)?;
            }
            Kind::Stdout | Kind::Stderr if progress.started => {
                let stream = if kind == Kind::Stdout { Stream::Out } else { Stream::Err };
                let seen = if kind == Kind::Stdout { &mut progress.stdout } else { &mut progress.stderr };
                *seen += payload.len() as u64;
                if progress.stdout + progress.stderr > exec.max_output_bytes {
                    return Err(Wrong::Broken("more output than was asked for"));
                }
                progress.handing_over = true;
                output.take(stream, payload).await.map_err(|Gone| Wrong::ClientGone)?;
                progress.handing_over = false;
            }
            Kind::Result => return result(&payload, exec, progress),
            Kind::Refused if !progress.started => return Err(refusal(&payload)),
            _ => return Err(Wrong::Broken("a frame out of turn")),
        }
    }
}

pub(super) fn refusal(payload: &[u8]) -> Wrong {
    serde_json::from_slice(payload).map_or(Wrong::Broken("a refusal that can't be read"), Wrong::Refused)
}

/// The result, if it is one that can be after what was seen.
fn result(payload: &[u8], exec: &Exec, progress: &Progress) -> Result<CallResult, Wrong> {
    let mut result: CallResult =
        serde_json::from_slice(payload).map_err(|_| Wrong::Broken("a result that can't be read"))?;
    let ended_by_itself = matches!(result.outcome, Outcome::Exited | Outcome::Signalled);
    if ended_by_itself && !progress.started {
        return Err(Wrong::Broken("an end without a start"));
    }
    let told = match result.outcome {
        Outcome::Exited => result.exit_code.is_some() && result.signal.is_none(),
        Outcome::Signalled => result.signal.is_some() && result.exit_code.is_none(),
        Outcome::NotStarted => result.signal.is_none(),
        Outcome::DeadlineExceeded | Outcome::HungUp | Outcome::ShutDown => result.exit_code.is_none(),
    };
    let words = |text: &str| {
        text.chars().count() <= MOST_TEXT_CHARS && text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
    };
    let message =
        result.message.as_deref().is_none_or(|text| result.outcome == Outcome::NotStarted && words(text));
    if !told || !message {
        return Err(Wrong::Broken("a result that contradicts itself"));
    }
    let seen = progress.stdout + progress.stderr;
    let sizes = result.stdout_bytes >= progress.stdout && result.stderr_bytes >= progress.stderr;
    let all = result.stdout_bytes.checked_add(result.stderr_bytes);
    if !sizes || all.is_none_or(|all| result.truncated != (all > seen)) {
        return Err(Wrong::Broken("a result that contradicts the output"));
    }
    let (write, network) =
        exec.access.as_ref().map_or((false, false), |access| (access.write.is_some(), !access.network));
    let begun = result.outcome != Outcome::NotStarted;
    result.write = held(result.write, write, begun);
    result.network = held(result.network, network, begun);
    Ok(result)
}

/// What was asked for and is not said to hold does not hold.
fn held(said: Option<Held>, asked: bool, begun: bool) -> Option<Held> {
    said.or_else(|| begun.then_some(Held::NotEnforced)).filter(|_| asked)
}

/// The agent's frames.
pub(super) struct Frames<R> {
    read: R,
    decoder: Decoder,
    buffer: Vec<u8>,
}

impl<R: AsyncRead + Unpin> Frames<R> {
    pub(super) fn new(read: R) -> Self {
        Self { read, decoder: Decoder::default(), buffer: vec![0; CHUNK] }
    }

    pub(super) async fn next(&mut self) -> Result<Frame, Wrong> {
        loop {
            let broken = |_| Wrong::Broken("what is no frame");
            if let Some(frame) = self.decoder.next().map_err(broken)? {
                return Ok(frame).and_then(|frame| ours(frame.kind).map(|()| frame));
            }
            // A long frame that must not come at all is not read first.
            self.decoder.awaited().map_or(Ok(()), ours)?;
            match self.read.read(&mut self.buffer).await {
                Ok(read) if read > 0 => self.decoder.feed(self.buffer.get(..read).unwrap_or_default()),
                _ => return Err(Wrong::Lost),
            }
        }
    }
}

/// Whether an agent may say this.
const fn ours(kind: Kind) -> Result<(), Wrong> {
    match kind {
        Kind::Nonce
        | Kind::Started
        | Kind::Stdout
        | Kind::Stderr
        | Kind::Result
        | Kind::Refused
        | Kind::Entry => Ok(()),
        Kind::Open | Kind::OpenFile | Kind::Stdin | Kind::Signal | Kind::Resize => {
            Err(Wrong::Broken("a frame of the session's"))
        }
    }
}

#[cfg(test)]
mod tests;
