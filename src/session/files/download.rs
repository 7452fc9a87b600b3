//! What a client reads: a file as it is, a directory as an archive, at the client's own pace. Until there is something to hand over,
//! what goes wrong is an answer of its own; afterwards the stream ends as broken.

use std::{io, sync::Arc};

use axum::{
    body::{Body, Bytes},
    http::{HeaderValue, StatusCode, header},
    response::Response,
};
use tokio::{sync::mpsc, time::timeout};

use super::{Files, Job, archive::Writer, run, talk::Sink};
use crate::{
    call::{FileEntry, FileResult},
    session::{
        answer::typed,
        output::Gone,
        problem::{Problem, Reason},
        routes::App,
    },
};

/// Most pieces that wait for a client; then the agent waits.
const MOST_PIECES: usize = 2;

enum Piece {
    Entry(FileEntry),
    Data(Vec<u8>),
    End(Result<FileResult, Problem>),
}

struct Pieces(mpsc::Sender<Piece>);

impl Sink for Pieces {
    async fn entry(&mut self, entry: FileEntry) -> Result<(), Gone> {
        self.0.send(Piece::Entry(entry)).await.map_err(|_| Gone)
    }

    async fn data(&mut self, bytes: Vec<u8>) -> Result<(), Gone> {
        self.0.send(Piece::Data(bytes)).await.map_err(|_| Gone)
    }
}

pub(super) async fn streamed(app: &Arc<App>, job: Job) -> Result<Response, Problem> {
    let (sender, mut pieces) = mpsc::channel(MOST_PIECES);
    let what = job.what;
    app.tasks.spawn(carry(app.clone(), job, sender));
    let first = match pieces.recv().await {
        None => return Err(Problem::new(Reason::Internal, "it was given up by the session; try again")),
        Some(Piece::End(Err(problem))) => return Err(problem),
        Some(first) => first,
    };
    if what == Files::Pack {
        let body = Body::from_stream(packed(first, pieces));
        return Ok(typed(StatusCode::OK, "application/x-tar", body));
    }
    let size = if let Piece::Entry(entry) = &first { entry.size } else { 0 };
    let mut response = typed(StatusCode::OK, "application/octet-stream", Body::from_stream(plain(pieces)));
    response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(size));
    Ok(response)
}

async fn carry(app: Arc<App>, job: Job, sender: mpsc::Sender<Piece>) {
    let hung_up = sender.clone();
    let mut pieces = Pieces(sender);
    let ended = tokio::select! {
        biased;
        ended = run(&app, &job, &mut pieces, None) => ended,
        () = hung_up.closed() => return,
    };
    // A client that reads nothing finds its stream cut off.
    let _ = timeout(app.runner.timing.stalled, pieces.0.send(Piece::End(ended))).await;
}

fn broken() -> io::Error {
    io::ErrorKind::ConnectionAborted.into()
}

/// What the file holds.
fn plain(pieces: mpsc::Receiver<Piece>) -> impl futures::Stream<Item = io::Result<Bytes>> + Send {
    futures::stream::unfold(Some(pieces), |state| async move {
        let mut pieces = state?;
        match pieces.recv().await {
            Some(Piece::Data(bytes)) => Some((Ok(bytes.into()), Some(pieces))),
            Some(Piece::End(Ok(_))) => None,
            Some(Piece::Entry(_) | Piece::End(Err(_))) | None => Some((Err(broken()), None)),
        }
    })
}

/// The archive.
fn packed(
    first: Piece,
    pieces: mpsc::Receiver<Piece>,
) -> impl futures::Stream<Item = io::Result<Bytes>> + Send {
    let begun = (Some(first), pieces, Writer::default());
    futures::stream::unfold(Some(begun), |state| async move {
        let (first, mut pieces, mut writer) = state?;
        let piece = match first {
            Some(first) => Some(first),
            None => pieces.recv().await,
        };
        let (bytes, goes_on) = match piece {
            Some(Piece::Entry(entry)) => (writer.entry(&entry), true),
            Some(Piece::Data(bytes)) => (Ok(bytes), true),
            Some(Piece::End(Ok(_))) => (Ok(writer.end()), false),
            Some(Piece::End(Err(_))) | None => (Err(broken()), false),
        };
        let goes_on = goes_on && bytes.is_ok();
        Some((bytes.map(Bytes::from), goes_on.then_some((None, pieces, writer))))
    })
}
