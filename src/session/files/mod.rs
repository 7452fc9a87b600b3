//! Files of a sandbox's workspace: who, whether they may, what, where, is there room; then the talk with the agent. In this order, as
//! for calls.
//!
//! Must keep no file: what comes from one side waits until the other has taken it. Must never log a path or what a file holds.

use std::{sync::Arc, time::Duration};

use axum::{
    body::{Body, BodyDataStream},
    http::{HeaderMap, StatusCode, request::Parts},
    response::Response,
};
use tokio::time::Instant;

use super::{
    agent::{Progress, Wrong},
    answer::json,
    body,
    directory::{Place, Target},
    evidence,
    exec::STREAMED,
    problem::{Problem, Reason},
    reviews::{Right, User},
    routes::App,
    runner::{Cause, in_a_line, words},
    shares::Share,
};
use crate::audit::{self, Act, NotRecorded};
use crate::call::{FileEntry, FileOperation, FileRequest, FileResult};

pub(super) mod api;
mod archive;
mod download;
mod ledger;
pub(super) mod query;
mod refusal;
mod talk;

use api::{FileDone, FileInfo, FileList};
use query::Asked;
use talk::{Sink, Told};

/// Most entries of a listing. A directory that has more is read by a command.
const MOST_LISTED: u64 = 10_000;
/// Most bytes that a listing may take on its way: all of its names as long as names are.
const MOST_LISTING: u64 = 4 << 20;
/// Most files and directories of an archive: a large project with all that it depends on.
const MOST_PACKED: u64 = 100_000;

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Files {
    Read,
    Write,
    Delete,
    Stat,
    List,
    Pack,
    Unpack,
}

impl Files {
    /// The word in logs and metrics, and the operation's name in the document.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "readFile",
            Self::Write => "writeFile",
            Self::Delete => "deleteFile",
            Self::Stat => "statFile",
            Self::List => "listFiles",
            Self::Pack => "downloadArchive",
            Self::Unpack => "uploadArchive",
        }
    }

    /// What somebody has to be allowed who asks like this.
    const fn right(self, asked: &Asked) -> Right {
        match self {
            Self::Read | Self::Stat | Self::List | Self::Pack => Right::ReadFiles,
            // What replaces nothing needs no right to.
            Self::Write if !asked.replace => Right::CreateFiles,
            Self::Write | Self::Unpack => Right::WriteFiles,
            Self::Delete => Right::DeleteFiles,
        }
    }

    /// The word in records.
    const fn act(self) -> Act {
        match self {
            Self::Read | Self::Stat | Self::List | Self::Pack => Act::FileRead,
            Self::Write | Self::Unpack => Act::FileWritten,
            Self::Delete => Act::FileDeleted,
        }
    }

    const fn operation(self, asked: &Asked) -> FileOperation {
        let Asked { mode, parents, replace, recursive, .. } = *asked;
        match self {
            Self::Read => FileOperation::Read,
            Self::Write => FileOperation::Write { mode, parents, replace },
            Self::Delete => FileOperation::Delete { recursive },
            Self::Stat => FileOperation::Stat,
            Self::List => FileOperation::List,
            Self::Pack => FileOperation::Pack,
            Self::Unpack => FileOperation::Unpack,
        }
    }

    /// Most bytes and entries.
    const fn bounds(self, app: &App) -> (u64, u64) {
        match self {
            Self::List => (MOST_LISTING, MOST_LISTED),
            Self::Pack | Self::Unpack => (app.max_transfer, MOST_PACKED),
            Self::Read | Self::Write | Self::Delete | Self::Stat => (app.max_transfer, 1),
        }
    }
}

/// An operation, allowed and resolved.
struct Job {
    what: Files,
    at: Place,
    target: Target,
    user: Arc<User>,
    request: FileRequest,
    /// The same as bytes: what is signed.
    bytes: Vec<u8>,
    /// What it holds while it runs.
    _room: [Share; 2],
}

/// Does it.
pub(super) async fn serve(
    app: &Arc<App>,
    what: Files,
    at: Place,
    parts: &Parts,
    body: Body,
) -> Result<Response, Problem> {
    let mut body = body.into_data_stream();
    let takes_body = matches!(what, Files::Write | Files::Unpack);
    let admitted = admitted(app, what, at, parts).await;
    let job = match admitted.and_then(|job| fits(&parts.headers, &job, takes_body).map(|()| job)) {
        Ok(job) => job,
        Err(problem) => {
            // Whoever may not call is not read for long.
            let nobody = matches!(problem.reason, Reason::Unauthenticated | Reason::Forbidden);
            body::throw_away(body, if nobody { body::TO_ANYBODY } else { body::TO_CALLERS }).await;
            return Err(problem);
        }
    };
    if takes_body {
        let done = run(app, &job, &mut Vec::<FileEntry>::new(), Some(&mut body)).await;
        // Whoever sends nothing any more need not be listened to.
        if done.as_ref().is_err_and(|problem| problem.reason != Reason::TooSlow) {
            body::throw_away(body, body::TO_CALLERS).await;
        }
        return done.map(|result| json(StatusCode::OK, &FileDone::new(&job.request.id, &result)));
    }
    body::throw_away(body, body::TO_ANYBODY).await;
    match what {
        Files::Read | Files::Pack => download::streamed(app, job).await,
        Files::Stat | Files::List | Files::Delete | Files::Write | Files::Unpack => {
            let mut entries = Vec::new();
            let result = run(app, &job, &mut entries, None).await?;
            Ok(match what {
                Files::List => json(StatusCode::OK, &FileList::new(entries, &result)),
                Files::Stat => json(StatusCode::OK, &stat(&job, entries)?),
                _ => json(StatusCode::OK, &FileDone::new(&job.request.id, &result)),
            })
        }
    }
}

fn stat(job: &Job, entries: Vec<FileEntry>) -> Result<FileInfo, Problem> {
    let entry = entries.into_iter().next();
    let entry = entry.ok_or_else(|| Problem::new(Reason::Internal, "nothing was told; try again"))?;
    Ok(FileInfo::new(FileEntry { path: job.request.path.clone(), ..entry }))
}

async fn admitted(app: &App, what: Files, at: Place, parts: &Parts) -> Result<Job, Problem> {
    let user = app.reviewer.who(parts).await?;
    // Which right is asked for is in the parameters; of those that can't be read, nobody is told who may not do the most.
    let asked = query::parse(what, parts.uri.query().unwrap_or_default());
    let right = asked.as_ref().map_or_else(|_| what.right(&Asked::default()), |asked| what.right(asked));
    app.may(&user, right, &at).await?;
    app.is_open()?;
    let asked = asked?;
    let held = app.bounds(&at).settle(asked.timeout, None)?;
    let (max_bytes, max_entries) = what.bounds(app);
    let request = FileRequest {
        id: app.new_id()?,
        operation: what.operation(&asked),
        path: asked.path,
        timeout_ms: u64::try_from(held.timeout.as_millis()).unwrap_or(u64::MAX),
        max_bytes,
        max_entries,
    };
    request.check().map_err(|bad| Problem::field(bad.field, format!("expected {}", bad.expected)))?;
    let bytes = serde_json::to_vec(&request)
        .map_err(|_| Problem::new(Reason::Internal, "the request can't be written; report this"))?;
    let target = app.runner.directory.target(&at)?;
    let size = if what == Files::List { MOST_LISTING } else { STREAMED };
    let room = app.room(&at.0, size)?;
    Ok(Job { what, at, target, user, request, bytes, _room: room })
}

/// Whether the body is said to be as long as it may be. What really comes is counted.
fn fits(headers: &HeaderMap, job: &Job, takes_body: bool) -> Result<(), Problem> {
    let said = headers.get("content-length").and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if takes_body && said.is_some_and(|said| said > job.request.max_bytes) {
        return Err(talk::too_large(job.request.max_bytes));
    }
    Ok(())
}

/// Has the agent do it, to its end, however it ends.
async fn run(
    app: &App,
    job: &Job,
    sink: &mut impl Sink,
    body: Option<&mut BodyDataStream>,
) -> Result<FileResult, Problem> {
    let begun = app.recorder.is_on().then(|| {
        let sandbox = app.runner.directory.subject(&job.at);
        evidence::file(job.what.act(), &job.user, &job.request.path, sandbox)
    });
    if let Some(begun) = &begun {
        // What must not be done unrecorded is recorded before it is done, and again when it is.
        let recorded = app.recorder.before_if_closed(|| begun.clone()).await;
        recorded.map_err(|NotRecorded| evidence::not_recorded())?;
    }
    let mut record = Record { app, job, began: Instant::now(), outcome: "ClientGone", bytes: 0, begun };
    let mut progress = Progress::default();
    let told = Told { uid: &job.target.uid, request: &job.request, bytes: &job.bytes };
    let (key, timing) = (&app.runner.key, &app.runner.timing);
    let lasts = Duration::from_millis(job.request.timeout_ms);
    let id = &job.request.id;
    let heard = &mut progress;
    let ended = app.runner.converse(&job.at, &job.target, lasts, |socket| {
        talk::talk(socket, &told, key, timing, sink, body, heard)
    });
    match ended.await {
        Ok(FileResult { failure: Some(failure), .. }) => {
            app.runner.uses.not_done(&job.target.uid, &job.request, &failure);
            let problem = refusal::problem(&job.request, &failure);
            record.outcome = problem.reason.as_str();
            Err(problem)
        }
        Ok(result) => {
            (record.outcome, record.bytes) = ("Done", result.bytes);
            Ok(result)
        }
        Err(cause) => {
            record.outcome = cause.as_str();
            if let Cause::Talk(Wrong::Broken(what)) = cause {
                tracing::warn!(id, what, "an agent does not keep to the protocol");
            }
            Err(progress.trouble.take().unwrap_or_else(|| {
                let (reason, what) = words(cause, &progress);
                let refused = matches!(cause, Cause::Talk(Wrong::Refused(_)));
                let done = if progress.told && !refused { "may have been done" } else { "was not begun" };
                Problem::new(reason, format!("{} {id}, which {done}: {what}", job.what.as_str()))
            }))
        }
    }
}

/// Counts and logs an operation when it ends, be it that nobody waits for it any more.
struct Record<'a> {
    app: &'a App,
    job: &'a Job,
    began: Instant,
    outcome: &'static str,
    bytes: u64,
    /// What is said of it, where it is recorded.
    begun: Option<audit::Record>,
}

impl Drop for Record<'_> {
    fn drop(&mut self) {
        let (outcome, bytes, operation) = (self.outcome, self.bytes, self.job.what.as_str());
        self.app.metrics.file(operation, outcome, bytes);
        let (namespace, sandbox) = &self.job.at;
        let (id, user) = (&self.job.request.id, in_a_line(&self.job.user.name));
        let duration_ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        tracing::info!(id, %sandbox, %namespace, user, operation, outcome, bytes, duration_ms, "file");
        if let Some(begun) = self.begun.take() {
            self.app.recorder.say(|| evidence::file_done(begun, outcome, bytes, self.began));
        }
    }
}
