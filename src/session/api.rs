//! What goes over the wire between a tool and the session. A promise to users, apart from what the session says to agents.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    api::{Phase, Quantity, Span},
    call,
};

/// A command to run in a sandbox.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ExecRequest {
    /// The program, looked up in the sandbox's PATH, and its arguments. No shell stands between.
    #[schemars(length(min = 1, max = 4096))]
    pub command: Vec<String>,

    /// Variables beside, or in place of, those of the sandbox.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 256))]
    pub env: BTreeMap<String, String>,

    /// Where to start: an absolute path. Absent: the sandbox's own directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4095))]
    pub cwd: Option<String>,

    /// What the command reads from standard input, as text. Absent: an end at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin: Option<String>,

    /// The same as base64, for what is no text. Only one of both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin_base64: Option<String>,

    /// After how long everything that the command has started is killed: `30s`, `5m`. Absent: the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,

    /// How much output is handed over, of both streams together: bytes, or a quantity such as `1Mi`. What comes beyond is counted
    /// and dropped. Absent: the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output_bytes: Option<Quantity>,

    /// A terminal of this size in place of pipes; all output is standard output then. Over a WebSocket alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminal: Option<Terminal>,

    /// What the call may do, beyond what the sandbox forbids to all. Absent: nothing less.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access: Option<Access>,

    /// What becomes of the call when the client hangs up.
    #[serde(default)]
    pub on_hangup: OnHangup,

    /// Whether output comes line by line as it is written, or in one answer at the end.
    #[serde(default)]
    pub stream: bool,
}

/// A terminal's size, in characters.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Terminal {
    /// Lines.
    pub rows: u16,
    /// Characters a line.
    pub columns: u16,
}

/// The first byte of a WebSocket's message of standard output; the numbers are those of Kubernetes' own.
pub const STDOUT: u8 = 1;
/// The same of error output.
pub const STDERR: u8 = 2;

/// What a client says over a WebSocket beside input.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum ExecControl {
    /// The terminal has another size.
    Resize(Terminal),
    /// A signal's number, for the command's process group.
    Signal(u8),
    /// Nothing more comes for standard input.
    EndOfInput {},
}

impl From<Terminal> for call::Size {
    fn from(Terminal { rows, columns }: Terminal) -> Self {
        Self { rows, columns }
    }
}

/// Limits of a single call.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Access {
    /// Where it may write: absolute paths; an empty list means nowhere. Absent: wherever the sandbox lets it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub write: Option<Vec<String>>,

    /// Whether it may open sockets to anything but its own kernel.
    #[serde(default = "yes")]
    pub network: bool,
}

const fn yes() -> bool {
    true
}

/// What becomes of a call when the client hangs up.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnHangup {
    /// Everything that it has started is killed.
    #[default]
    Kill,
    /// It goes on until its deadline; its output is dropped.
    Keep,
}

/// How a call ended.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// By itself, with an exit code.
    Exited,
    /// By a signal from elsewhere.
    Signalled,
    /// At its deadline: everything that it had started was killed.
    DeadlineExceeded,
    /// It was hung up on, and killed.
    HungUp,
    /// The sandbox ended, and it with it.
    ShutDown,
    /// It could not be started; the message says why.
    NotStarted,
}

impl Outcome {
    /// The spelling in logs and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Exited => "Exited",
            Self::Signalled => "Signalled",
            Self::DeadlineExceeded => "DeadlineExceeded",
            Self::HungUp => "HungUp",
            Self::ShutDown => "ShutDown",
            Self::NotStarted => "NotStarted",
        }
    }
}

/// Whether what a call asked to be held to was enforced.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// By the sandbox's kernel.
    Enforced,
    /// That kernel can't.
    NotEnforced,
}

/// How a call went.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ExecResult {
    /// The call, as logs and audit records name it.
    pub id: String,
    /// How it ended.
    pub outcome: Outcome,
    /// With the outcome Exited; 126 or 127 where it was not started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<u8>,
    /// The number of the signal that ended the command, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<u8>,
    /// Why it did not start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Bytes that the command wrote to standard output, handed over or not.
    pub stdout_bytes: u64,
    /// The same of standard error.
    pub stderr_bytes: u64,
    /// Whether some of them were dropped.
    pub truncated: bool,
    /// From the start of the command to the end of all that it had started.
    pub duration_ms: u64,
    /// Whether `access.write` was held, where it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write: Option<Held>,
    /// Whether `access.network: false` was held, where it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<Held>,
}

/// A call's result with all of its output.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ExecAnswer {
    /// How it went.
    #[serde(flatten)]
    pub result: ExecResult,
    /// Standard output, if it is UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdout: Option<String>,
    /// Standard output, if it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdout_base64: Option<String>,
    /// Standard error, if it is UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr: Option<String>,
    /// Standard error, if it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr_base64: Option<String>,
}

/// One line of a call that is streamed. The last one is a result or an error; without either, the call was lost.
#[derive(JsonSchema, Serialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub enum ExecLine {
    /// Standard output that is UTF-8.
    Stdout(String),
    /// Standard output that is not.
    StdoutBase64(String),
    /// Standard error that is UTF-8.
    Stderr(String),
    /// Standard error that is not.
    StderrBase64(String),
    /// How it went. Nothing follows.
    Result(ExecResult),
    /// It went wrong after it had started. Nothing follows.
    Error(super::Problem),
}

/// What is waited for.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitFor {
    /// The sandbox takes calls.
    Ready,
    /// It ended.
    Finished,
}

/// Where a sandbox stands.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct SandboxStatus {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid: another sandbox of the same name has another.
    pub uid: String,
    /// A summary.
    pub phase: Phase,
    /// Whether it takes calls.
    pub ready: bool,
    /// When its time to live is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends_at: Option<String>,
    /// The exit code of its workload, if that ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Why it is as it is, in one word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Why it is as it is.
    pub message: String,
    /// Of a wait: whether what was waited for came before the time was over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reached: Option<bool>,
}

impl From<&Access> for call::Access {
    fn from(access: &Access) -> Self {
        Self { write: access.write.clone(), network: access.network }
    }
}

impl From<OnHangup> for call::OnHangup {
    fn from(on_hangup: OnHangup) -> Self {
        match on_hangup {
            OnHangup::Kill => Self::Kill,
            OnHangup::Keep => Self::Keep,
        }
    }
}

impl From<call::Outcome> for Outcome {
    fn from(outcome: call::Outcome) -> Self {
        match outcome {
            call::Outcome::Exited => Self::Exited,
            call::Outcome::Signalled => Self::Signalled,
            call::Outcome::DeadlineExceeded => Self::DeadlineExceeded,
            call::Outcome::HungUp => Self::HungUp,
            call::Outcome::ShutDown => Self::ShutDown,
            call::Outcome::NotStarted => Self::NotStarted,
        }
    }
}

impl From<call::Held> for Held {
    fn from(held: call::Held) -> Self {
        match held {
            call::Held::Enforced => Self::Enforced,
            call::Held::NotEnforced => Self::NotEnforced,
        }
    }
}

impl ExecResult {
    /// The result of the call with this id.
    pub(super) fn new(id: &str, result: call::CallResult) -> Self {
        Self {
            id: id.to_owned(),
            outcome: result.outcome.into(),
            exit_code: result.exit_code,
            signal: result.signal,
            message: result.message,
            stdout_bytes: result.stdout_bytes,
            stderr_bytes: result.stderr_bytes,
            truncated: result.truncated,
            duration_ms: result.duration_ms,
            write: result.write.map(Into::into),
            network: result.network.map(Into::into),
        }
    }
}
