//! Owns what a session says to a sandbox's agent and what comes back: one TCP connection a call, as frames. Pure.
//!
//! Both sides are hostile to each other: the agent stands on ground that the workload shares, and whoever reaches its port
//! may say anything. Everything is bounded and read strictly, and an error never repeats what was read.
//!
//! The walk: the agent sends [`Kind::Nonce`]; the session answers with [`Kind::Open`], a signature and an [`Exec`]; the agent
//! refuses, or says [`Kind::Started`] and sends output as it comes; the last frame is [`Kind::Result`]. Whoever hangs up early
//! ends the call, unless it was asked to be kept. A session keeps its side open until the result, and hangs up early by a reset:
//! an ordinary end waits behind whatever input the command has not read.
//!
//! A file operation walks alike: [`Kind::OpenFile`] with a [`FileRequest`]; what is to be written as [`Kind::Stdin`]; what is told
//! of files as [`Kind::Entry`], each followed by what the file holds as [`Kind::Stdout`] where that was asked for; and a
//! [`FileResult`] last.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

mod file;
mod frame;
#[cfg(test)]
mod tests;

pub use file::{
    FileEntry, FileFailure, FileKind, FileOperation, FileReason, FileRequest, FileResult, MOST_AT_CHARS,
    MOST_MODE, is_below,
};
pub use frame::{Decoder, Frame, FrameError, HEADER_BYTES, Kind, MOST_DATA, MOST_PAYLOAD, header};

/// Bytes of the agent's challenge. Fresh for each connection, so that nothing signed is of use twice.
pub const NONCE_BYTES: usize = 32;
/// Bytes of an Ed25519 signature.
pub const SIGNATURE_BYTES: usize = 64;
/// Bytes of an Ed25519 public key.
pub const KEY_BYTES: usize = 32;
/// Most words of a command, its program included.
pub const MOST_WORDS: usize = 4096;
/// Most bytes of a command's words together. Linux takes 128 KiB for one word and 2 MiB for all.
pub const MOST_COMMAND_BYTES: usize = 128 * 1024;
/// Most variables of a call.
pub const MOST_VARIABLES: usize = 256;
/// Longest identifier of a call, in bytes.
pub const MOST_ID_BYTES: usize = 64;
/// How many calls may run at once in a sandbox of which nothing else is said.
pub const DEFAULT_CONCURRENT: u16 = 8;
/// Longest free text that is handed back, in characters.
pub const MOST_TEXT_CHARS: usize = 256;

/// What is signed begins with this, so that a signature for one thing is never one for another.
const CALL: &[u8] = b"glovebox call v1\0";
const FILE: &[u8] = b"glovebox file v1\0";

/// The bytes that a session signs for a call: for one sandbox, one connection and one request.
#[must_use]
pub fn signed(sandbox_uid: &str, nonce: &[u8; NONCE_BYTES], request: &[u8]) -> Vec<u8> {
    signed_as(CALL, sandbox_uid, nonce, request)
}

/// The same for a file operation.
#[must_use]
pub fn signed_file(sandbox_uid: &str, nonce: &[u8; NONCE_BYTES], request: &[u8]) -> Vec<u8> {
    signed_as(FILE, sandbox_uid, nonce, request)
}

fn signed_as(context: &[u8], sandbox_uid: &str, nonce: &[u8; NONCE_BYTES], request: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(context.len() + 8 + sandbox_uid.len() + NONCE_BYTES + request.len());
    bytes.extend_from_slice(context);
    // The length keeps a uid's end from being taken for the beginning of what follows.
    bytes.extend_from_slice(&(sandbox_uid.len() as u64).to_be_bytes());
    bytes.extend_from_slice(sandbox_uid.as_bytes());
    bytes.extend_from_slice(nonce);
    bytes.extend_from_slice(request);
    bytes
}

/// A command to run in a sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Exec {
    /// Names the call in records: 1 to [`MOST_ID_BYTES`] letters, digits and `-`.
    pub id: String,
    /// The program, looked up in the workload's PATH, and its arguments.
    pub command: Vec<String>,
    /// Variables beside, or in place of, those of the workload.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Where to start: absolute, or the workload's own directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Whether [`Kind::Stdin`] frames will follow; otherwise the command reads an end at once.
    #[serde(default)]
    pub stdin: bool,
    /// A terminal of this size instead of pipes; then all output is [`Kind::Stdout`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminal: Option<Size>,
    /// From the start until the whole tree is killed.
    pub timeout_ms: u64,
    /// Most bytes of output that are handed over, of both streams together. What comes beyond is read, counted and dropped.
    pub max_output_bytes: u64,
    /// Refused if so many calls run already; without it, [`DEFAULT_CONCURRENT`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_concurrent: Option<u16>,
    /// What becomes of the call when the session hangs up.
    #[serde(default)]
    pub on_hangup: OnHangup,
    /// What the call may do, beyond what the pod forbids to all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access: Option<Access>,
}

/// A terminal's size, in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Size {
    /// Lines.
    pub rows: u16,
    /// Characters a line.
    pub columns: u16,
}

/// What becomes of a call when the session hangs up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnHangup {
    /// Its tree is killed.
    #[default]
    Kill,
    /// It goes on until its deadline; its output is dropped.
    Keep,
}

/// Limits of a single call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Access {
    /// Where it may write: absolute paths; none means nowhere. Without this field: wherever the pod lets it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write: Option<Vec<String>>,
    /// Whether it may open sockets to anything but its own kernel.
    #[serde(default = "yes")]
    pub network: bool,
}

const fn yes() -> bool {
    true
}

/// Whether what a call asked to be held to is enforced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Held {
    /// By the kernel.
    Enforced,
    /// This kernel can't.
    NotEnforced,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// By itself, with an exit code.
    Exited,
    /// By a signal that was not ours.
    Signalled,
    /// At its deadline: the whole tree was killed.
    DeadlineExceeded,
    /// The session hung up: the whole tree was killed.
    HungUp,
    /// The sandbox ends: the whole tree was killed.
    ShutDown,
    /// It could not be started; `message` says why.
    NotStarted,
}

/// The last frame of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CallResult {
    /// How it ended.
    pub outcome: Outcome,
    /// With [`Outcome::Exited`], and 126 or 127 with [`Outcome::NotStarted`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<u8>,
    /// What ended the first process, if a signal did, whoever sent it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<u8>,
    /// Why it did not start: printable ASCII, at most [`MOST_TEXT_CHARS`] characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Bytes that the command wrote to standard output, handed over or not.
    pub stdout_bytes: u64,
    /// The same of standard error.
    pub stderr_bytes: u64,
    /// Whether some of them were dropped.
    pub truncated: bool,
    /// From the start to the end of the tree.
    pub duration_ms: u64,
    /// Whether [`Access::write`] was held, where it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write: Option<Held>,
    /// Whether `network: false` was held, where it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<Held>,
}

/// Why an agent does not run a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// The signature is not by a key that this sandbox knows, or is for something else.
    NotSigned,
    /// The request can't be read, or is outside of its bounds.
    Malformed,
    /// As many calls run as may.
    Busy,
    /// The sandbox is about to end.
    ShuttingDown,
    /// The kernel gave no process or descriptor.
    NoResources,
    /// This agent was not told of a workspace whose files it may touch.
    NoFiles,
}

/// What is wrong with a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadExec {
    /// The field.
    pub field: &'static str,
    /// What would be right.
    pub expected: &'static str,
}

impl std::fmt::Display for BadExec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: expected {}", self.field, self.expected)
    }
}

impl std::error::Error for BadExec {}

impl Exec {
    /// Whether it is within its bounds. Both sides ask: the session to say what is wrong, the agent since it trusts nobody.
    ///
    /// # Errors
    /// The field, and what would be right.
    pub fn check(&self) -> Result<(), BadExec> {
        let bad = |field, expected| Err(BadExec { field, expected });
        check_id(&self.id)?;
        let words = self.command.iter().map(String::len).sum::<usize>() + self.command.len();
        if !(1..=MOST_WORDS).contains(&self.command.len()) || words > MOST_COMMAND_BYTES {
            return bad(
                "command",
                "1 to 4096 words of at most 128 KiB together; pass more by standard input",
            );
        }
        if self.command.first().is_none_or(String::is_empty) {
            return bad("command", "a program as its first word");
        }
        if self.command.iter().any(|word| word.contains('\0')) {
            return bad("command", "words without a NUL byte");
        }
        let bytes = self.env.iter().map(|(name, value)| name.len() + value.len() + 2).sum::<usize>();
        if self.env.len() > MOST_VARIABLES || bytes > MOST_COMMAND_BYTES {
            return bad("env", "at most 256 variables of at most 128 KiB together");
        }
        let names = |name: &str| !name.is_empty() && !name.contains(['=', '\0']);
        if !self.env.iter().all(|(name, value)| names(name) && !value.contains('\0')) {
            return bad("env", "names without = and NUL, and values without NUL");
        }
        if self.cwd.as_ref().is_some_and(|cwd| !is_path(cwd)) {
            return bad("cwd", "an absolute path of at most 4095 bytes without ..");
        }
        if self.timeout_ms == 0 {
            return bad("timeoutMs", "at least 1");
        }
        let writes = self.access.as_ref().and_then(|access| access.write.as_ref());
        if writes.is_some_and(|paths| paths.len() > 64 || !paths.iter().all(|path| is_path(path))) {
            return bad("access.write", "at most 64 absolute paths of at most 4095 bytes without ..");
        }
        Ok(())
    }
}

fn check_id(id: &str) -> Result<(), BadExec> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    if (1..=MOST_ID_BYTES).contains(&id.len()) && id.bytes().all(plain) {
        return Ok(());
    }
    Err(BadExec { field: "id", expected: "1 to 64 letters, digits and -" })
}

/// Absolute, as long as Linux takes it, and going nowhere but down.
fn is_path(path: &str) -> bool {
    path.starts_with('/')
        && path.len() < 4096
        && !path.contains('\0')
        && path.split('/').all(|part| part != "..")
}
