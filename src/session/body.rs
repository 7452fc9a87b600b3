//! Reads a request's body: JSON, not too much of it, and within a time.

use std::time::Duration;

use axum::{body::Body, http::HeaderMap};
use futures::StreamExt as _;

use super::problem::{Problem, Reason};

/// Longest body, in bytes: standard input is most of it.
pub(super) const MOST: usize = 4 * 1024 * 1024;

/// How long the body is said to be; the most that one may be, where it is not said.
pub(super) fn length(headers: &HeaderMap) -> Result<usize, Problem> {
    let said = headers
        .get("content-length")
        .map(|value| value.to_str().ok().and_then(|text| text.parse::<usize>().ok()).unwrap_or(usize::MAX));
    let length = said.unwrap_or(MOST);
    if length > MOST { Err(too_large()) } else { Ok(length) }
}

/// Whether it is said to be JSON. Nothing else is taken for it: a page of somebody else's must not be able to send one unasked.
pub(super) fn is_json(headers: &HeaderMap) -> Result<(), Problem> {
    let kind = headers.get("content-type").and_then(|value| value.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    if kind.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    Err(Problem::new(Reason::NotJson, "send JSON, and say so by Content-Type: application/json"))
}

/// All of it.
pub(super) async fn read(body: Body, patience: Duration) -> Result<Vec<u8>, Problem> {
    let mut pieces = body.into_data_stream();
    let all = async {
        let mut bytes = Vec::new();
        while let Some(piece) = pieces.next().await {
            let piece = piece.map_err(|_| {
                Problem::new(Reason::InvalidRequest, "the body ended before it was whole; send it again")
            })?;
            if bytes.len() + piece.len() > MOST {
                return Err(too_large());
            }
            bytes.extend_from_slice(&piece);
        }
        Ok(bytes)
    };
    let late =
        || Problem::new(Reason::TooSlow, format!("the body did not come within {patience:?}; send it again"));
    tokio::time::timeout(patience, all).await.unwrap_or_else(|_| Err(late()))
}

fn too_large() -> Problem {
    let message = format!(
        "a body has at most {MOST} bytes; bring bigger input into the sandbox by an input of its workspace"
    );
    Problem::new(Reason::TooLarge, message)
}
