//! `exec`: who, whether they may, what, where, is there room; then the call. In this order, so that nobody learns of a sandbox what
//! they may not know, and nothing is read for somebody who may not.

use std::sync::Arc;

use axum::{
    body::{Body, Bytes},
    http::{HeaderMap, StatusCode, request::Parts},
    response::Response,
};
use tokio::{sync::mpsc, time::timeout};

use super::{
    answer::{self, typed},
    api::ExecLine,
    body, cache,
    directory::Place,
    input::Whole,
    output::{Collected, Event, Lines},
    problem::{Problem, Reason},
    request::{self, Wanted, Way},
    retries::Begun,
    reviews::{Right, User},
    routes::App,
    runner::{Failed, Job},
    shares::Share,
};

/// The header that makes a retry the same call.
pub(super) const IDEMPOTENCY_KEY: &str = "Idempotency-Key";
/// The kind of a stream of lines.
pub(super) const LINES: &str = "application/x-ndjson";
/// Most lines that wait for a client; then the command waits.
const MOST_LINES: usize = 2;
/// Room for what is on its way of a call that is streamed.
pub(super) const STREAMED: u64 = 512 * 1024;

/// Has a command run.
pub(super) async fn exec(
    app: &Arc<App>,
    at: Place,
    request: &Parts,
    body: Body,
) -> Result<Response, Problem> {
    let (user, key) = match admitted(app, &at, request).await {
        Ok(admitted) => admitted,
        Err(problem) => {
            body::throw_away(body.into_data_stream(), body::TO_ANYBODY).await;
            return Err(problem);
        }
    };
    let room = match body_room(app, &at, &request.headers) {
        Ok(room) => room,
        Err(problem) => {
            body::throw_away(body.into_data_stream(), body::TO_CALLERS).await;
            return Err(problem);
        }
    };
    let bytes = body::read(body, app.runner.timing.body).await?;
    let wanted = request::read(&bytes, app.new_id()?, &app.bounds(&at), Way::Answered)?;
    match key {
        Some(_) if wanted.stream => Err(Problem::field(
            IDEMPOTENCY_KEY,
            "a stream can't be given twice; leave it out, or set stream to false",
        )),
        Some(key) => keyed(app, at, user, &key, wanted, room).await.map(answer::written),
        None => {
            let target = app.runner.directory.target(&at)?;
            let job = Job { at, target, user, wanted };
            if job.wanted.stream {
                return streamed(app, job, room).await;
            }
            // Whoever hangs up takes this future along, and with it the connection to the agent.
            collected(app, &job, room).await.map(answer::written).map_err(|failed| failed.problem)
        }
    }
}

/// Who it is, if they may, and the key of the call. Nothing of the body is read for somebody who may not.
async fn admitted(app: &App, at: &Place, request: &Parts) -> Result<(Arc<User>, Option<Vec<u8>>), Problem> {
    let user = app.reviewer.who(request).await?;
    app.may(&user, Right::Exec, at).await?;
    app.is_open()?;
    Ok((user, idempotency_key(&request.headers)?))
}

/// Room for the body, which stays taken while its call runs.
fn body_room(app: &App, at: &Place, headers: &HeaderMap) -> Result<Share, Problem> {
    body::is_json(headers)?;
    let length = body::length(headers).ok_or_else(body::too_large)? as u64;
    app.buffered.enter(&at.0, length).ok_or_else(|| full("bytes of bodies and output"))
}

pub(super) fn full(what: &str) -> Problem {
    let message = format!(
        "this replica has as many {what} as it may, or this namespace has its share of them; try again after Retry-After"
    );
    Problem::new(Reason::TooManyCalls, message)
}

/// One answer at the end.
async fn collected(app: &App, job: &Job, body: Share) -> Result<Bytes, Failed> {
    let not_run = |problem| Failed { problem, may_have_run: false };
    let _room = (app.room(&job.at.0, job.wanted.exec.max_output_bytes).map_err(not_run)?, body);
    let mut output = Collected::default();
    let result = app.runner.run(job, &mut Whole::of(&job.wanted), &mut output).await?;
    answer::whole(result, output).map_err(|problem| Failed { problem, may_have_run: true })
}

/// The same, whoever hangs up: a retry finds it.
async fn keyed(
    app: &Arc<App>,
    at: Place,
    user: Arc<User>,
    key: &[u8],
    wanted: Wanted,
    body: Share,
) -> Result<Bytes, Problem> {
    let target = app.runner.directory.target(&at);
    let name = cache::key(&[&user.key, at.0.as_bytes(), at.1.as_bytes(), key]);
    let request = cache::key(&[&wanted.canonical]);
    let waiting = match app.retries.begin(name, request, target.as_ref().ok().map(|target| &target.uid)) {
        Begun::Other => {
            let message = "this key was used for another request; use a new key for each call, and the same only for its retries";
            return Err(Problem::new(Reason::KeyReused, message).about(IDEMPOTENCY_KEY));
        }
        Begun::None => {
            return Err(target
                .err()
                .unwrap_or_else(|| Problem::new(Reason::Internal, "no call was begun; try again")));
        }
        Begun::Again(waiting) => {
            app.metrics.repeated();
            waiting
        }
        Begun::First(first) => {
            let waiting = first.waiting();
            let (app, target) = (app.clone(), target?);
            app.tasks.clone().spawn(async move {
                let job = Job { at, target, user, wanted };
                match collected(&app, &job, body).await {
                    Ok(bytes) => first.end(Ok(bytes), true),
                    Err(failed) => first.end(Err(failed.problem), failed.may_have_run),
                }
            });
            waiting
        }
    };
    waiting.ended().await
}

/// Line by line. Until the command runs, what goes wrong is an answer of its own.
async fn streamed(app: &Arc<App>, job: Job, body: Share) -> Result<Response, Problem> {
    let room = (app.room(&job.at.0, STREAMED)?, body);
    let (sender, mut events) = mpsc::channel(MOST_LINES);
    let runner = app.runner.clone();
    app.tasks.spawn(async move {
        let _room = room;
        let hung_up = sender.clone();
        let (mut input, mut lines) = (Whole::of(&job.wanted), Lines::new(sender));
        let ended = tokio::select! {
            biased;
            ended = runner.run(&job, &mut input, &mut lines) => ended,
            () = hung_up.closed() => return,
        };
        let last = match ended {
            Ok(result) => ExecLine::Result(result),
            Err(failed) => ExecLine::Error(failed.problem),
        };
        // A client that reads nothing finds its stream cut off.
        let _ = timeout(runner.timing.stalled, lines.end(last)).await;
    });
    match events.recv().await {
        None => Err(Problem::new(Reason::Internal, "the call was given up by the session; it may have run")),
        Some(Event::Last(ExecLine::Error(problem))) => Err(problem),
        Some(first) => Ok(typed(StatusCode::OK, LINES, Body::from_stream(lines(first, events)))),
    }
}

type Piece = Result<Vec<u8>, std::io::Error>;

/// The lines as bytes. Where the last one is missing, the stream ends as broken.
fn lines(first: Event, events: mpsc::Receiver<Event>) -> impl futures::Stream<Item = Piece> + Send {
    let first = Some(first).filter(|first| !matches!(first, Event::Started));
    futures::stream::unfold(Some((first, events)), |state| async move {
        let (first, mut events) = state?;
        let event = match first {
            Some(first) => Some(first),
            None => events.recv().await,
        };
        let piece = match &event {
            Some(Event::Line(line) | Event::Last(line)) => written(line),
            Some(Event::Started) => Ok(Vec::new()),
            None => Err(std::io::ErrorKind::ConnectionAborted.into()),
        };
        let goes_on = piece.is_ok() && matches!(event, Some(Event::Line(_) | Event::Started));
        Some((piece, goes_on.then_some((None, events))))
    })
}

fn written(line: &ExecLine) -> Piece {
    let mut bytes = serde_json::to_vec(line)?;
    bytes.push(b'\n');
    Ok(bytes)
}

fn idempotency_key(headers: &HeaderMap) -> Result<Option<Vec<u8>>, Problem> {
    let mut all = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(key) = all.next() else { return Ok(None) };
    if all.next().is_some() {
        return Err(Problem::field(IDEMPOTENCY_KEY, "send it once"));
    }
    request::idempotency_key(key.as_bytes())?;
    Ok(Some(key.as_bytes().to_vec()))
}
