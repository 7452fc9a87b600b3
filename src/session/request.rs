//! What a client asks for, read strictly: a body becomes a call that is within its bounds, or a problem that names the field. Pure.

use axum::body::Bytes;
use base64::{Engine as _, engine::general_purpose::STANDARD};

use super::{
    api::ExecRequest,
    bounds::Bounds,
    problem::{Problem, Reason},
};
use crate::call::{Exec, MOST_PAYLOAD, SIGNATURE_BYTES};

/// Longest name of a namespace or sandbox: a label's value.
const MOST_NAME: usize = 63;
/// Longest idempotency key, in bytes.
const MOST_KEY: usize = 255;

/// A call that may be made.
#[derive(Debug)]
pub(super) struct Wanted {
    /// As the client wrote it, in one way of writing: what a retry is compared with.
    pub(super) canonical: Vec<u8>,
    /// As the agent is told.
    pub(super) exec: Exec,
    /// The same as bytes: what is signed.
    pub(super) request: Vec<u8>,
    /// For standard input, where it is there from the beginning.
    pub(super) stdin: Bytes,
    /// Whether output comes as it is written.
    pub(super) stream: bool,
}

/// How a command is spoken with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Its input comes with the request.
    Answered,
    /// While it runs.
    Live,
}

/// Reads a body. `id` names the call.
pub(super) fn read(body: &[u8], id: String, bounds: &Bounds, way: Way) -> Result<Wanted, Problem> {
    let asked: ExecRequest = serde_json::from_slice(body).map_err(|error| {
        Problem::new(Reason::InvalidRequest, format!("the body is not as /openapi.json says: {error}"))
    })?;
    let canonical = bytes(&asked)?;
    let held = match &asked.terminal {
        // Whoever sits at one has all the time that there is.
        Some(_) => bounds.most(asked.timeout, asked.max_output_bytes.as_ref())?,
        None => bounds.settle(asked.timeout, asked.max_output_bytes.as_ref())?,
    };
    if way == Way::Answered && asked.terminal.is_some() {
        return Err(Problem::field("terminal", "a terminal needs a WebSocket: GET this path"));
    }
    let stdin = match (asked.stdin, asked.stdin_base64) {
        (Some(_), Some(_)) => {
            return Err(Problem::field("stdinBase64", "write standard input once, here or in stdin"));
        }
        (Some(text), None) => Some(text.into_bytes()),
        (None, Some(text)) => {
            let bytes = STANDARD.decode(text);
            Some(bytes.map_err(|_| Problem::field("stdinBase64", "expected base64 with padding"))?)
        }
        (None, None) => None,
    };
    if way == Way::Live && stdin.is_some() {
        return Err(Problem::field("stdin", "over a WebSocket, send input as binary messages"));
    }
    let exec = Exec {
        id,
        command: asked.command,
        env: asked.env,
        cwd: asked.cwd,
        stdin: stdin.is_some() || way == Way::Live,
        terminal: asked.terminal.map(Into::into),
        timeout_ms: u64::try_from(held.timeout.as_millis()).unwrap_or(u64::MAX),
        max_output_bytes: held.output,
        max_concurrent: Some(bounds.max_concurrent),
        on_hangup: asked.on_hangup.into(),
        access: asked.access.as_ref().map(Into::into),
    };
    exec.check().map_err(|bad| Problem::field(bad.field, format!("expected {}", bad.expected)))?;
    let request = bytes(&exec)?;
    if SIGNATURE_BYTES + request.len() > MOST_PAYLOAD {
        let message = "the words and variables are too long together once they are escaped; pass more by standard input";
        return Err(Problem::field("command", message));
    }
    Ok(Wanted { canonical, exec, request, stdin: stdin.unwrap_or_default().into(), stream: asked.stream })
}

fn bytes(value: &impl serde::Serialize) -> Result<Vec<u8>, Problem> {
    serde_json::to_vec(value)
        .map_err(|_| Problem::new(Reason::Internal, "the request can't be written; report this"))
}

/// Whether this can be the name of a namespace or sandbox: what can't is asked of nobody.
pub(super) fn name(field: &'static str, text: &str) -> Result<(), Problem> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let inner = |byte: u8| plain(byte) || matches!(byte, b'-' | b'.');
    let bytes = text.as_bytes();
    let ends = [bytes.first(), bytes.last()];
    let good = (1..=MOST_NAME).contains(&bytes.len())
        && bytes.iter().copied().all(inner)
        && ends.into_iter().flatten().copied().all(plain);
    if good {
        return Ok(());
    }
    Err(Problem::field(field, "expected a name of at most 63 lower-case letters, digits, - and ."))
}

/// Whether this can be an idempotency key.
pub(super) fn idempotency_key(bytes: &[u8]) -> Result<(), Problem> {
    if (1..=MOST_KEY).contains(&bytes.len()) && bytes.iter().all(u8::is_ascii_graphic) {
        return Ok(());
    }
    Err(Problem::field("Idempotency-Key", "expected 1 to 255 printable ASCII characters without a space"))
}

#[cfg(test)]
mod tests;
