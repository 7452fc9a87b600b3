//! The talk with an agent about files: one connection, one operation. Everything that comes from there is hostile, and held against
//! the [`Ledger`].

use std::time::Duration;

use axum::body::BodyDataStream;
use futures::StreamExt as _;
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, split},
    time::timeout,
};

use super::ledger::Ledger;
use crate::{
    call::{FileEntry, FileRequest, FileResult, Frame, Kind, NONCE_BYTES},
    session::{
        agent::{Frames, INPUT_CHUNK, Progress, Wrong, frame, nonce, refusal},
        config::Timing,
        key::Key,
        output::Gone,
        problem::{Problem, Reason},
    },
};

/// An operation as it is told to an agent.
#[derive(Debug)]
pub(super) struct Told<'a> {
    /// The sandbox that is meant.
    pub(super) uid: &'a str,
    pub(super) request: &'a FileRequest,
    /// The same as bytes.
    pub(super) bytes: &'a [u8],
}

/// Takes what is told, and lets whoever brings it wait.
pub(super) trait Sink: Send {
    /// A file, or a directory.
    fn entry(&mut self, entry: FileEntry) -> impl Future<Output = Result<(), Gone>> + Send;

    /// What the last one holds, or a part of it.
    fn data(&mut self, bytes: Vec<u8>) -> impl Future<Output = Result<(), Gone>> + Send;
}

/// Entries alone, bounded by whoever brings them.
impl Sink for Vec<FileEntry> {
    async fn entry(&mut self, entry: FileEntry) -> Result<(), Gone> {
        self.push(entry);
        Ok(())
    }

    async fn data(&mut self, _: Vec<u8>) -> Result<(), Gone> {
        Err(Gone)
    }
}

/// Has it done.
pub(super) async fn talk<S, K>(
    socket: S,
    told: &Told<'_>,
    key: &Key,
    timing: &Timing,
    sink: &mut K,
    body: Option<&mut BodyDataStream>,
    progress: &mut Progress,
) -> Result<FileResult, Wrong>
where
    S: AsyncRead + AsyncWrite + Send,
    K: Sink,
{
    let (read, mut write) = split(socket);
    let mut frames = Frames::new(read);
    let greeting = timeout(timing.greeting, frames.next()).await;
    let nonce = nonce(greeting.unwrap_or(Err(Wrong::Silent))?)?;
    progress.told = true;
    let trouble = {
        let hear = hear(&mut frames, told.request, sink, progress);
        let say = say(&mut write, told, key, &nonce, body, timing.stalled);
        let mut hear = std::pin::pin!(hear);
        let say = std::pin::pin!(say);
        tokio::select! {
            biased;
            heard = &mut hear => return heard,
            said = say => match said {
                // Whoever ends it early does not read to the end: what it says last is what counts.
                Ok(()) => return hear.await,
                Err(problem) => problem,
            },
        }
    };
    progress.trouble = Some(trouble);
    Err(Wrong::ClientGone)
}

/// Says what is wanted, and what is to be written. An error is the client's; that the agent hears no more is none.
async fn say(
    write: &mut (impl AsyncWrite + Unpin),
    told: &Told<'_>,
    key: &Key,
    nonce: &[u8; NONCE_BYTES],
    body: Option<&mut BodyDataStream>,
    patience: Duration,
) -> Result<(), Problem> {
    let signature = key.sign_file(told.uid, nonce, told.bytes);
    if frame(write, Kind::OpenFile, &[&signature, told.bytes]).await.is_err() {
        return Ok(());
    }
    let Some(body) = body else { return Ok(()) };
    let most = told.request.max_bytes;
    let mut sent = 0_u64;
    loop {
        let piece = timeout(patience, body.next()).await.map_err(|_| {
            Problem::new(Reason::TooSlow, format!("nothing of the body came for {patience:?}; send it again"))
        })?;
        let Some(piece) = piece else { break };
        let piece = piece.map_err(|_| {
            Problem::new(Reason::InvalidRequest, "the body ended before it was whole; send it again")
        })?;
        sent += piece.len() as u64;
        if sent > most {
            return Err(too_large(most));
        }
        for chunk in piece.chunks(INPUT_CHUNK) {
            if frame(write, Kind::Stdin, &[chunk]).await.is_err() {
                return Ok(());
            }
        }
    }
    let _ = frame(write, Kind::Stdin, &[]).await;
    let _ = write.flush().await;
    Ok(())
}

pub(super) fn too_large(most: u64) -> Problem {
    let message = format!(
        "a file or an archive has at most {most} bytes here; send it in parts, nothing of it was kept"
    );
    Problem::new(Reason::TooLarge, message)
}

async fn hear<R: AsyncRead + Unpin>(
    frames: &mut Frames<R>,
    request: &FileRequest,
    sink: &mut impl Sink,
    progress: &mut Progress,
) -> Result<FileResult, Wrong> {
    let mut ledger = Ledger::new(request);
    loop {
        let Frame { kind, payload } = frames.next().await?;
        match kind {
            Kind::Entry => {
                let entry: FileEntry = serde_json::from_slice(&payload)
                    .map_err(|_| Wrong::Broken("what is told of a file and can't be read"))?;
                ledger.entry(&entry, payload.len()).map_err(Wrong::Broken)?;
                progress.started = true;
                progress.handing_over = true;
                sink.entry(entry).await.map_err(|Gone| Wrong::ClientGone)?;
                progress.handing_over = false;
            }
            Kind::Stdout => {
                ledger.data(payload.len()).map_err(Wrong::Broken)?;
                progress.handing_over = true;
                sink.data(payload).await.map_err(|Gone| Wrong::ClientGone)?;
                progress.handing_over = false;
            }
            Kind::Result => {
                let result: FileResult = serde_json::from_slice(&payload)
                    .map_err(|_| Wrong::Broken("a result that can't be read"))?;
                ledger.end(&result).map_err(Wrong::Broken)?;
                return Ok(result);
            }
            Kind::Refused if !progress.started => return Err(refusal(&payload)),
            _ => return Err(Wrong::Broken("a frame out of turn")),
        }
    }
}
