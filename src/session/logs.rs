//! What a sandbox's workload wrote, as the kubelet keeps it: from the API server to the client, at the client's own pace.
//!
//! Hostile bytes. Must never read a pod that is not the sandbox's own, keep more than one piece, or log what it reads.

use axum::{
    body::{Body, Bytes},
    http::{StatusCode, request::Parts},
    response::Response,
};
use futures::{AsyncBufRead, AsyncBufReadExt as _, Stream};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, api::LogParams};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::{
    answer::typed,
    directory::Place,
    evidence,
    exec::STREAMED,
    problem::{Problem, Reason},
    query::{pairs, truth},
    reviews::Right,
    routes::App,
    shares::Share,
};
use crate::{api::Span, audit::NotRecorded, sandbox::names::WORKLOAD_CONTAINER};

/// Most lines of the end that can be asked for: more is what a whole log is for.
pub(super) const MOST_LINES: i64 = 1_000_000;

/// What is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Asked {
    follow: bool,
    tail: Option<i64>,
    since: Option<i64>,
    timestamps: bool,
}

/// Hands it over.
pub(super) async fn serve(app: &App, at: &Place, request: &Parts) -> Result<Response, Problem> {
    let user = app.reviewer.who(request).await?;
    app.may(&user, Right::Logs, at).await?;
    app.is_open()?;
    let asked = parse(request.uri.query().unwrap_or_default())?;
    let pod = app.runner.directory.pod_of(at)?;
    let room = app.room(&at.0, STREAMED)?;
    if app.recorder.is_on() {
        let reads = evidence::logs(&user, app.runner.directory.subject(at));
        app.recorder.before(&reads).await.map_err(|NotRecorded| evidence::not_recorded())?;
    }
    let pods: Api<Pod> = Api::namespaced(app.client.clone(), &at.0);
    let params = LogParams {
        container: Some(WORKLOAD_CONTAINER.into()),
        follow: asked.follow,
        tail_lines: asked.tail,
        since_seconds: asked.since,
        timestamps: asked.timestamps,
        // As much as of a command's output, whether it comes at once or as it is written.
        limit_bytes: i64::try_from(app.max_output).ok(),
        ..LogParams::default()
    };
    let opened = timeout(app.runner.timing.review, pods.log_stream(&pod, &params)).await;
    let log = opened
        .map_err(|_| Problem::new(Reason::ApiUnavailable, "the API server does not answer; try again"))?
        .map_err(|error| refused(&error, &at.1))?;
    let body = Body::from_stream(pieces(log, app.stop.clone(), room));
    Ok(typed(StatusCode::OK, "text/plain; charset=utf-8", body))
}

/// What came of asking the API server, in words for the client.
fn refused(error: &kube::Error, name: &str) -> Problem {
    let code = if let kube::Error::Api(status) = error { status.code } else { 0 };
    match code {
        400 => Problem::new(
            Reason::NotReady,
            format!(
                "the workload of sandbox {name} has not started, so that there is no log yet; wait for Ready first"
            ),
        ),
        403 => Problem::new(
            Reason::Forbidden,
            "the session itself may not read logs: the chart's value session.logs lets it",
        ),
        404 => Problem::new(
            Reason::Ended,
            format!("the pod of sandbox {name} is gone, and its log with it; create another one"),
        ),
        _ => {
            tracing::debug!(%error, "a log can't be read");
            Problem::new(Reason::ApiUnavailable, "the API server does not hand over the log; try again")
        }
    }
}

/// The bytes as they come. A log that breaks off ends the answer as broken.
fn pieces(
    log: impl AsyncBufRead + Send + Unpin,
    stop: CancellationToken,
    room: [Share; 2],
) -> impl Stream<Item = std::io::Result<Bytes>> + Send {
    futures::stream::unfold((log, stop, room), |(mut log, stop, room)| async move {
        let read = tokio::select! {
            biased;
            // A log that is followed may never end: a client asks another replica.
            () = stop.cancelled() => return None,
            read = log.fill_buf() => read.map(Bytes::copy_from_slice),
        };
        let bytes = match read {
            Ok(bytes) if bytes.is_empty() => return None,
            Ok(bytes) => bytes,
            Err(error) => return Some((Err(error), (log, stop, room))),
        };
        log.consume_unpin(bytes.len());
        Some((Ok(bytes), (log, stop, room)))
    })
}

/// `follow=true&tailLines=100&since=5m&timestamps=true`.
fn parse(query: &str) -> Result<Asked, Problem> {
    let mut asked = Asked::default();
    for (name, value) in pairs(query, &["follow", "tailLines", "since", "timestamps"])? {
        match name {
            "follow" => asked.follow = truth(name, value)?,
            "timestamps" => asked.timestamps = truth(name, value)?,
            "tailLines" => {
                let lines = value.parse().ok().filter(|lines| (0..=MOST_LINES).contains(lines));
                let expected = || Problem::field("tailLines", format!("expected 0 to {MOST_LINES}"));
                asked.tail = Some(lines.ok_or_else(expected)?);
            }
            _ => {
                let span: Span = value.parse().map_err(|error: String| Problem::field("since", error))?;
                let seconds = Some(span.seconds_ceil()).filter(|seconds| *seconds > 0);
                asked.since = Some(seconds.ok_or_else(|| Problem::field("since", "expected more than 0s"))?);
            }
        }
    }
    Ok(asked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_read_strictly() {
        assert_eq!(parse("").unwrap(), Asked::default());
        let all = Asked { follow: true, tail: Some(10), since: Some(300), timestamps: true };
        assert_eq!(parse("follow=true&tailLines=10&since=5m&timestamps=true").unwrap(), all);
        for query in [
            "follow",
            "follow=yes",
            "follow=true&follow=true",
            "tailLines=-1",
            "tailLines=1000001",
            "tailLines=",
            "since=0s",
            "since=5",
            "container=agent",
            "timestamps=1",
        ] {
            assert_eq!(parse(query).unwrap_err().reason, Reason::InvalidRequest, "{query}");
        }
    }

    #[test]
    fn what_the_api_server_says_is_told_in_other_words() {
        let said = |code| {
            refused(
                &kube::Error::Api(Box::new(kube::core::Status::failure("secret", "R").with_code(code))),
                "s",
            )
        };
        for (code, reason) in [
            (400, Reason::NotReady),
            (403, Reason::Forbidden),
            (404, Reason::Ended),
            (500, Reason::ApiUnavailable),
        ] {
            let problem = said(code);
            assert_eq!(problem.reason, reason);
            assert!(!problem.message.contains("secret"));
        }
    }
}
