//! Reads a request's body: JSON, not too much of it, and within a time.

use std::time::Duration;

use axum::{
    body::{Body, BodyDataStream},
    http::HeaderMap,
};
use futures::StreamExt as _;

use super::problem::{Problem, Reason};

/// Longest body, in bytes: standard input is most of it.
pub(super) const MOST: usize = 4 * 1024 * 1024;

/// What is read of a body that is not wanted, in bytes and for how long: whoever is closed at while it still writes sees a broken
/// connection and no answer.
pub(super) struct Courtesy(usize, Duration);

/// To somebody who may call.
pub(super) const TO_CALLERS: Courtesy = Courtesy(32 * 1024 * 1024, Duration::from_secs(5));
/// To anybody.
pub(super) const TO_ANYBODY: Courtesy = Courtesy(64 * 1024, Duration::from_secs(1));

/// How long the body is said to be; the most that one may be, where it is not said. None if that is more than one may be.
pub(super) fn length(headers: &HeaderMap) -> Option<usize> {
    let said = headers
        .get("content-length")
        .map(|value| value.to_str().ok().and_then(|text| text.parse::<usize>().ok()).unwrap_or(usize::MAX));
    Some(said.unwrap_or(MOST)).filter(|length| *length <= MOST)
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
                return Ok(None);
            }
            bytes.extend_from_slice(&piece);
        }
        Ok(Some(bytes))
    };
    let late =
        || Problem::new(Reason::TooSlow, format!("the body did not come within {patience:?}; send it again"));
    if let Some(bytes) = tokio::time::timeout(patience, all).await.map_err(|_| late())?? {
        return Ok(bytes);
    }
    throw_away(pieces, TO_CALLERS).await;
    Err(too_large())
}

/// Reads on, and keeps nothing.
pub(super) async fn throw_away(mut pieces: BodyDataStream, Courtesy(most, patience): Courtesy) {
    let rest = async {
        let mut bytes = 0;
        while let Some(Ok(piece)) = pieces.next().await {
            bytes += piece.len();
            if bytes > most {
                return;
            }
        }
    };
    // Whoever is slower, or sends more, has had its chance.
    let _ = tokio::time::timeout(patience, rest).await;
}

pub(super) fn too_large() -> Problem {
    let message = format!(
        "a body has at most {MOST} bytes; bring bigger input into the sandbox by an input of its workspace"
    );
    Problem::new(Reason::TooLarge, message)
}
