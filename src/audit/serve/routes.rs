//! What is served: records in, and the trail out, to those who may.

use std::{collections::HashMap, sync::Arc, time::Duration};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::Request,
    http::{HeaderMap, StatusCode, request::Parts},
    response::{IntoResponse as _, Response},
    routing::{get, post},
};
use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use futures::stream;
use percent_encoding::percent_decode_str;
use tokio::sync::{Semaphore, mpsc};

use super::{read, store::Store};
use crate::{
    audit::{
        Act, Record, Role,
        entry::Source,
        now,
        query::Filter,
        sender::{BOOT, FIRST, PATH},
        tree,
    },
    digest::hex,
    session::{
        Problem, Reason,
        answer::{json, typed},
        reviews::{Reviewer, Right, User},
    },
};

/// Longest body with records, in bytes.
const MOST_BODY: usize = 4 * 1024 * 1024;
/// Most records of one.
const MOST_RECORDS: usize = 10_000;
/// How long a body may take.
const BODY: Duration = Duration::from_secs(10);
/// Most that read at once.
const MOST_READERS: usize = 16;
/// The kind of lines of JSON.
const LINES: &str = "application/x-ndjson";

/// What requests need.
pub(super) struct App {
    pub(super) store: Store,
    /// Of producers: their tokens are for the trail alone.
    pub(super) producing: Reviewer,
    /// Of those who read.
    pub(super) reading: Reviewer,
    /// Users whose records are taken.
    pub(super) producers: HashMap<String, Role>,
    /// Keys that checkpoints are held against, one a line.
    pub(super) keys: String,
    pub(super) readers: Arc<Semaphore>,
}

pub(super) fn readers() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(MOST_READERS))
}

/// Everything that is served.
pub(super) fn router(app: &Arc<App>) -> Router {
    macro_rules! at {
        ($method:ident, $handler:ident) => {{
            let app = app.clone();
            $method(move |request: Request| async move {
                let (parts, body) = request.into_parts();
                $handler(&app, &parts, body).await.unwrap_or_else(Problem::into_response)
            })
        }};
    }
    Router::new()
        .route(PATH, at!(post, take))
        .route("/v1/checkpoint", at!(get, checkpoint))
        .route("/v1/keys", at!(get, keys))
        .route("/v1/roots", at!(get, roots))
        .route("/v1/segments", at!(get, segments))
        .route("/v1/segments/{first}", at!(get, segment))
        .route("/v1/entries", at!(get, entries))
        .route("/v1/proof", at!(get, proof))
        .fallback(|| async { Problem::new(Reason::NoSuchPath, "there is no such path").into_response() })
}

/// Takes records, and answers once they are on the disk.
async fn take(app: &App, request: &Parts, body: Body) -> Result<Response, Problem> {
    let user = app.producing.who(request).await?;
    let role = app.producers.get(&user.name).copied().ok_or_else(|| {
        let message = format!("{} produces no records; --producer names those that do", user.name);
        Problem::new(Reason::Forbidden, message)
    })?;
    let pod = user.pod().ok_or_else(|| {
        Problem::new(
            Reason::Forbidden,
            "the token is bound to no pod, so that nobody knows whose records these are",
        )
    })?;
    let boot = header(&request.headers, BOOT)?;
    if boot.len() != 16 || !boot.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(Problem::field(BOOT, "expected 16 hexadecimal digits"));
    }
    let first: u64 =
        header(&request.headers, FIRST)?.parse().map_err(|_| Problem::field(FIRST, "expected a number"))?;
    let bytes = tokio::time::timeout(BODY, axum::body::to_bytes(body, MOST_BODY)).await;
    let bytes = bytes.map_err(|_| Problem::new(Reason::TooSlow, "the body did not come in time"))?;
    let bytes = bytes.map_err(|_| Problem::new(Reason::TooLarge, "the body is too long, or broke off"))?;
    let batch = batch(role, pod, boot, first, &bytes)?;
    let taken = batch.len();
    let size = app.store.append(batch).await;
    let size = size.map_err(|error| Problem::new(Reason::NoSpace, error.0))?;
    Ok(json(StatusCode::OK, &serde_json::json!({"taken": taken, "size": size})))
}

fn header<'a>(headers: &'a HeaderMap, name: &'static str) -> Result<&'a str, Problem> {
    let value = headers.get(name).and_then(|value| value.to_str().ok());
    value.ok_or_else(|| Problem::field(name, "this header is missing"))
}

/// What is no record, or is not this producer's to say, is not written; that it came is.
fn batch(
    role: Role,
    pod: &str,
    boot: &str,
    first: u64,
    bytes: &[u8],
) -> Result<Vec<(Source, Record)>, Problem> {
    let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let mut batch = Vec::new();
    for (line, seq) in lines.zip(first..) {
        if batch.len() == MOST_RECORDS {
            return Err(Problem::new(Reason::TooLarge, "there are too many records in one body"));
        }
        let record = Record::read(line).and_then(|record| {
            let may = role.may_say(record.activity_name);
            may.then_some(record).ok_or("it is not this producer's to say")
        });
        let record = record.unwrap_or_else(|why| Record::new(Act::RecordRefused, now()).failed(why));
        batch.push((Source { role, pod: pod.to_owned(), boot: boot.to_owned(), seq }, record));
    }
    Ok(batch)
}

/// Who reads, if they may read all of it.
async fn reader(app: &App, request: &Parts, namespace: &str) -> Result<Arc<User>, Problem> {
    let user = app.reading.who(request).await?;
    app.reading.may(&user, Right::ReadTrail, namespace, "").await?;
    Ok(user)
}

async fn checkpoint(app: &App, request: &Parts, _: Body) -> Result<Response, Problem> {
    app.reading.who(request).await?;
    let note = app.store.committed.borrow().note.clone();
    Ok(typed(StatusCode::OK, "text/plain; charset=utf-8", note.into()))
}

async fn keys(app: &App, request: &Parts, _: Body) -> Result<Response, Problem> {
    app.reading.who(request).await?;
    Ok(typed(StatusCode::OK, "text/plain; charset=utf-8", app.keys.clone().into()))
}

fn unreadable(error: &std::io::Error) -> Problem {
    tracing::error!(%error, "the trail can't be read");
    Problem::new(Reason::Internal, "the trail can't be read; its log says more")
}

async fn roots(app: &App, request: &Parts, _: Body) -> Result<Response, Problem> {
    reader(app, request, "").await?;
    let roots = app.store.directory.roots().map_err(|error| unreadable(&error))?;
    let text = roots
        .iter()
        .map(|root| {
            hex(root)
                + "
"
        })
        .collect::<Vec<_>>()
        .concat();
    Ok(typed(StatusCode::OK, "text/plain; charset=utf-8", text.into()))
}

async fn segments(app: &App, request: &Parts, _: Body) -> Result<Response, Problem> {
    reader(app, request, "").await?;
    let committed = app.store.committed.borrow().clone();
    let all = app.store.directory.segments().map_err(|error| unreadable(&error))?;
    let all: Vec<u64> = all.into_iter().filter(|first| *first <= committed.segment).collect();
    Ok(json(StatusCode::OK, &all))
}

async fn segment(app: &App, request: &Parts, _: Body) -> Result<Response, Problem> {
    reader(app, request, "").await?;
    let first = request.uri.path().rsplit('/').next().and_then(|first| first.parse().ok());
    let first: u64 = first.ok_or_else(|| Problem::field("first", "expected the number of an entry"))?;
    let (directory, committed) = (app.store.directory.clone(), app.store.committed.borrow().clone());
    if first > committed.segment {
        return Err(Problem::new(Reason::NoSuchPath, "there is no such segment"));
    }
    let read = tokio::task::spawn_blocking(move || read::segment(&directory, first, &committed)).await;
    let bytes = read.map_err(|_| Problem::new(Reason::Internal, "the reader ended"))?;
    let bytes = bytes.map_err(|_| Problem::new(Reason::NoSuchPath, "there is no such segment"))?;
    Ok(typed(StatusCode::OK, LINES, bytes.into()))
}

/// Parameters of a query, decoded.
fn pairs(request: &Parts) -> Result<Vec<(String, String)>, Problem> {
    let query = request.uri.query().unwrap_or_default();
    let mut all = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let decoded = |text: &str| percent_decode_str(text).decode_utf8().map(std::borrow::Cow::into_owned);
        let bad = |_| Problem::new(Reason::InvalidRequest, "the query is no UTF-8");
        all.push((decoded(name).map_err(bad)?, decoded(value).map_err(bad)?));
    }
    Ok(all)
}

fn number(name: &str, value: &str) -> Result<u64, Problem> {
    value.parse().map_err(|_| Problem::field(name.to_owned(), "expected a number"))
}

async fn entries(app: &App, request: &Parts, _: Body) -> Result<Response, Problem> {
    let mut wanted = read::Wanted { filter: Filter::default(), from: 0, limit: u64::MAX, follow: false };
    for (name, value) in pairs(request)? {
        match name.as_str() {
            "from" => wanted.from = number(&name, &value)?,
            "limit" => wanted.limit = number(&name, &value)?,
            "follow" => wanted.follow = value == "true",
            _ => {
                let known =
                    wanted.filter.read(&name, &value).map_err(|why| Problem::field(name.clone(), why))?;
                if !known {
                    return Err(Problem::field(name, "there is no such parameter"));
                }
            }
        }
    }
    // Whoever may read of one namespace has to name it.
    reader(app, request, wanted.filter.namespace.as_deref().unwrap_or_default()).await?;
    let place = app.readers.clone().try_acquire_owned();
    let place = place.map_err(|_| Problem::new(Reason::TooManyCalls, "as many read as may; try again"))?;
    let (to, pieces) = mpsc::channel::<std::io::Result<Bytes>>(2);
    let (directory, committed) = (app.store.directory.clone(), app.store.committed.clone());
    tokio::spawn(async move {
        let _place = place;
        read::hand_over(directory, committed, wanted, to).await;
    });
    let pieces = stream::unfold(pieces, |mut pieces| async move { Some((pieces.recv().await?, pieces)) });
    Ok(typed(StatusCode::OK, LINES, Body::from_stream(pieces)))
}

/// A proof that an entry is in the trail, as C2SP's `tlog-proof` has it, with the entry itself as its extra data.
async fn proof(app: &App, request: &Parts, _: Body) -> Result<Response, Problem> {
    reader(app, request, "").await?;
    let n = pairs(request)?.into_iter().find(|(name, _)| name == "n");
    let n = number("n", &n.map(|(_, value)| value).unwrap_or_default())?;
    let (directory, committed) = (app.store.directory.clone(), app.store.committed.borrow().clone());
    if n >= committed.size {
        return Err(Problem::field("n", format!("the trail has {} entries, counted from 0", committed.size)));
    }
    let made = tokio::task::spawn_blocking(move || {
        let line = directory.line(n)?;
        let proof = directory.inclusion(n, committed.size)?;
        Ok::<_, std::io::Error>((line, proof, committed.note.clone()))
    });
    let made = made.await.map_err(|_| Problem::new(Reason::Internal, "the reader ended"))?;
    let (line, proof, note) = made.map_err(|_| {
        Problem::new(
            Reason::NoSuchPath,
            "the entry, or what is beside it, was removed when the trail became too long",
        )
    })?;
    let line = line.ok_or_else(|| Problem::new(Reason::NoSuchPath, "there is no such entry"))?;
    Ok(typed(StatusCode::OK, "text/plain; charset=utf-8", proof_text(n, &line, &proof, &note).into()))
}

fn proof_text(n: u64, line: &[u8], proof: &[tree::Hash], note: &str) -> String {
    let hashes: Vec<String> = proof.iter().map(|hash| BASE64.encode(hash) + "\n").collect();
    let hashes = hashes.concat();
    format!("c2sp.org/tlog-proof@v1\nextra {}\nindex {n}\n{hashes}\n{note}", BASE64.encode(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(act: Act) -> Vec<u8> {
        serde_json::to_vec(&Record::new(act, 1)).unwrap()
    }

    #[test]
    fn what_is_not_a_producers_to_say_is_not_written_and_that_it_came_is() {
        let body =
            [line(Act::EgressOpened), b"no record".to_vec(), line(Act::CallStarted), line(Act::TrailStarted)];
        let batch = batch(Role::Gateway, "gateway-1", "b", 7, &body.join(&b'\n')).unwrap();
        let acts: Vec<_> = batch.iter().map(|(_, record)| record.activity_name).collect();
        assert_eq!(acts, [Act::EgressOpened, Act::RecordRefused, Act::RecordRefused, Act::RecordRefused]);
        // Each has its own number, so that none is taken for another when it is offered again.
        let seqs: Vec<_> = batch.iter().map(|(source, _)| source.seq).collect();
        assert_eq!(seqs, [7, 8, 9, 10]);
        assert!(batch.iter().all(|(source, _)| source.role == Role::Gateway && source.pod == "gateway-1"));
        let many = vec![line(Act::EgressOpened); MOST_RECORDS + 1].join(&b'\n');
        assert_eq!(super::batch(Role::Gateway, "g", "b", 0, &many).unwrap_err().reason, Reason::TooLarge);
    }

    #[test]
    fn parameters_are_decoded() {
        let request = |query: &str| {
            let uri = format!("/v1/entries?{query}");
            let request = axum::http::Request::get(uri).body(()).unwrap();
            pairs(&request.into_parts().0)
        };
        assert_eq!(
            request("actor=ada%40example.com&x").unwrap(),
            [("actor".to_owned(), "ada@example.com".to_owned()), ("x".to_owned(), String::new())]
        );
        assert!(request("actor=%ff").is_err());
    }
}
