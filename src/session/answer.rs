//! How answers are written: JSON that nobody keeps or guesses the kind of.

use axum::{
    body::{Body, Bytes},
    http::{HeaderValue, StatusCode, header},
    response::Response,
};
use serde::Serialize;

use super::{
    api::{ExecAnswer, ExecResult},
    output::{Collected, text_or_base64},
    problem::{Problem, Reason},
};

/// An answer of this kind.
pub(crate) fn typed(status: StatusCode, kind: &'static str, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// An answer that is written now.
pub(crate) fn json(status: StatusCode, value: &impl Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(bytes) => typed(status, "application/json", bytes.into()),
        Err(error) => {
            tracing::error!(%error, "an answer can't be written");
            typed(StatusCode::INTERNAL_SERVER_ERROR, "application/json", Body::from("{}"))
        }
    }
}

/// An answer that was written before.
pub(super) fn written(bytes: Bytes) -> Response {
    typed(StatusCode::OK, "application/json", bytes.into())
}

/// A result with its output, written.
pub(super) fn whole(result: ExecResult, output: Collected) -> Result<Bytes, Problem> {
    let truncated = result.truncated;
    let (stdout, stdout_base64) = text_or_base64(output.stdout, truncated);
    let (stderr, stderr_base64) = text_or_base64(output.stderr, truncated);
    let answer = ExecAnswer { result, stdout, stdout_base64, stderr, stderr_base64 };
    let written = serde_json::to_vec(&answer);
    written
        .map(Bytes::from)
        .map_err(|_| Problem::new(Reason::Internal, "the result can't be written; report this"))
}
