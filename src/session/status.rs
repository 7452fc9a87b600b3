//! Where a sandbox stands, and waiting for it to stand elsewhere.

use std::time::Duration;

use axum::{
    http::{StatusCode, request::Parts},
    response::Response,
};
use tokio::time::{Instant, timeout, timeout_at};

use super::{
    answer::json,
    api::{SandboxStatus, WaitFor},
    directory::{Directory, Place, Sandbox},
    problem::{Problem, Reason},
    query::pairs,
    reviews::Right,
    routes::App,
};
use crate::api::Span;

/// How long is waited that does not say it, and at most.
pub(super) const DEFAULT_WAIT: Duration = Duration::from_secs(30);
pub(super) const MOST_WAIT: Duration = Duration::from_secs(600);

/// What a wait was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Asked {
    wait_for: WaitFor,
    patience: Duration,
}

/// Where it stands.
pub(super) async fn status(app: &App, at: &Place, request: &Parts) -> Result<Response, Problem> {
    let user = app.reviewer.who(request).await?;
    app.may(&user, Right::Look, at).await?;
    let sandbox = app.runner.directory.look(at)?;
    Ok(json(StatusCode::OK, &said(at, &sandbox, None)))
}

/// The same as soon as it is so.
pub(super) async fn wait(app: &App, at: &Place, request: &Parts, query: &str) -> Result<Response, Problem> {
    let user = app.reviewer.who(request).await?;
    app.may(&user, Right::Look, at).await?;
    let asked = parse(query)?;
    app.is_open()?;
    let _place = app.waits.enter(&at.0, 1).ok_or_else(|| {
        Problem::new(Reason::TooManyCalls, "as many wait here as may; look again after Retry-After")
    })?;
    tokio::select! {
        biased;
        () = app.stop.cancelled() => Err(App::shutting_down()),
        answer = waited(app, at, asked) => answer,
    }
}

async fn waited(app: &App, at: &Place, asked: Asked) -> Result<Response, Problem> {
    let directory = &app.runner.directory;
    let deadline = Instant::now() + asked.patience;
    // Whoever has just made it may be ahead of the watch.
    let patience = app.runner.timing.hold.min(asked.patience);
    let there = timeout(patience, directory.until(|| directory.look(at).ok())).await;
    let uid = match there {
        Ok(sandbox) => sandbox.uid.clone(),
        Err(_) => directory.look(at)?.uid.clone(),
    };
    let sought = directory.until(|| seek(directory, at, &uid, asked.wait_for));
    match timeout_at(deadline, sought).await {
        Ok(found) => found.map(|sandbox| json(StatusCode::OK, &said(at, &sandbox, Some(true)))),
        Err(_) => directory.look(at).map(|sandbox| json(StatusCode::OK, &said(at, &sandbox, Some(false)))),
    }
}

type Found = Result<std::sync::Arc<Sandbox>, Problem>;

/// The sandbox if it is as wanted; a problem if it never will be.
fn seek(directory: &Directory, at: &Place, uid: &str, wait_for: WaitFor) -> Option<Found> {
    let name = &at.1;
    let never = |what: &str| {
        Some(Err(Problem::new(Reason::Ended, format!("sandbox {name} {what}; create another one"))))
    };
    let Some(sandbox) = directory.look(at).ok().filter(|sandbox| *sandbox.uid == *uid) else {
        return never("was deleted");
    };
    match wait_for {
        WaitFor::Finished => sandbox.ended().then_some(Ok(sandbox)),
        WaitFor::Ready if sandbox.ended() => never("ended before it was ready"),
        // Ready is who can be called, not who is said to be.
        WaitFor::Ready => directory.target(at).is_ok().then_some(Ok(sandbox)),
    }
}

fn said((namespace, name): &Place, sandbox: &Sandbox, reached: Option<bool>) -> SandboxStatus {
    SandboxStatus {
        namespace: namespace.to_string(),
        name: name.to_string(),
        uid: sandbox.uid.to_string(),
        phase: sandbox.phase,
        ready: sandbox.ready && !sandbox.ended(),
        ends_at: sandbox.ends_at.map(|at| at.to_string()),
        exit_code: sandbox.exit_code,
        reason: sandbox.reason.clone(),
        message: sandbox.message.clone(),
        reached,
    }
}

/// `for=Ready&timeout=30s`.
fn parse(query: &str) -> Result<Asked, Problem> {
    let (mut wait_for, mut patience) = (None, None);
    for (name, value) in pairs(query, &["for", "timeout"])? {
        match (name, value) {
            ("for", "Ready") => wait_for = Some(WaitFor::Ready),
            ("for", "Finished") => wait_for = Some(WaitFor::Finished),
            ("for", _) => return Err(Problem::field("for", "expected Ready or Finished")),
            (_, text) => {
                let span: Span = text.parse().map_err(|error: String| Problem::field("timeout", error))?;
                patience = Some(span.duration());
            }
        }
    }
    let wait_for = wait_for.ok_or_else(|| Problem::field("for", "expected Ready or Finished"))?;
    let patience = patience.unwrap_or(DEFAULT_WAIT);
    if patience > MOST_WAIT {
        return Err(Problem::field(
            "timeout",
            format!("wait for at most {}, and again", Span::from(MOST_WAIT)),
        ));
    }
    Ok(Asked { wait_for, patience })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_read_strictly() {
        let asked = |wait_for, seconds| Ok(Asked { wait_for, patience: Duration::from_secs(seconds) });
        assert_eq!(parse("for=Ready"), asked(WaitFor::Ready, 30));
        assert_eq!(parse("timeout=1m&for=Finished"), asked(WaitFor::Finished, 60));
        assert_eq!(parse("for=Ready&timeout=0s"), asked(WaitFor::Ready, 0));
        for query in [
            "",
            "for",
            "for=ready",
            "for=Ready&for=Ready",
            "for=Ready&timeout=11m",
            "for=Ready&timeout=1",
            "for=Ready&timeout=1s&timeout=1s",
            "for=Ready&x=1",
            "for=%52eady",
            "timeout=1s",
        ] {
            assert_eq!(parse(query).unwrap_err().reason, Reason::InvalidRequest, "{query}");
        }
    }
}
