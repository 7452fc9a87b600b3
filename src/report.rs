//! Owns the two lines a sandbox's pod says about itself: the kernel report of its init container and the exit record
//! of its workload, both carried in a container's termination message.
//!
//! Reading is strict, because the workload may write to the same file: sizes are bounded, unknown fields refused, and
//! an error never repeats what was read. Must never do IO, and never compare a report with a class: that is the
//! controller's decision.

use std::fmt;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

#[cfg(test)]
mod tests;

/// The only version of both lines that is written and understood.
pub const VERSION: u8 = 1;
/// Longest input that is looked at, in bytes: the kubelet cuts a termination message at the same length.
pub const MAX_INPUT_BYTES: usize = 4096;
/// Longest line that is written, in bytes.
pub const MAX_LINE_BYTES: usize = 1024;
/// Longest free text in a line (kernel version, spawn error), in characters before JSON escaping.
pub const MAX_TEXT_CHARS: usize = 256;

/// Exit code of an agent whose kernel is surely not the promised one (`EX_CONFIG` of sysexits.h).
pub const EXIT_ISOLATION_MISMATCH: u8 = 78;
/// Exit code of an agent that reached what must be unreachable.
pub const EXIT_FENCE_OPEN: u8 = 79;
/// Exit code of an agent that could not reach the gateway, so that nothing is proven.
pub const EXIT_GATEWAY_UNREACHABLE: u8 = 80;
/// [`ExitRecord::fence_open`] of an agent that could not try any more.
pub const FENCE_UNKNOWN: &str = "unknown";

/// Which kernel a sandbox runs on and what holds its processes, as its init container saw it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KernelReport {
    /// Always [`VERSION`].
    pub v: u8,
    /// `/proc/sys/kernel/random/boot_id`, a lower-case UUID. Equal to the node's `status.nodeInfo.bootID` means that
    /// the sandbox shares the node's kernel.
    pub boot_id: String,
    /// `/proc/version`: printable ASCII, at most [`MAX_TEXT_CHARS`] characters.
    pub kernel: String,
    /// Whether this kernel is gVisor's.
    pub gvisor: bool,
    /// The `Seccomp` line of `/proc/self/status`: 0 none, 1 strict, 2 filter.
    pub seccomp: u8,
    /// Whether a process here can gain privileges by executing a file.
    pub no_new_privs: bool,
    /// The effective capabilities as 16 lower-case hex digits.
    pub cap_eff: String,
    /// Whether user ids are mapped, that is, root in here is nobody out there.
    pub user_namespace: bool,
    /// What the proof of the fence came to; `None` where none was asked for or it was not come to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<FenceProof>,
}

impl KernelReport {
    /// How many times in a row the fence was seen to hold; 0 where it is not proven.
    #[must_use]
    pub fn fence_rounds(&self) -> u16 {
        self.fence.as_ref().map_or(0, |fence| fence.rounds)
    }
}

/// What was seen of the network before the workload existed. At most one of `open` and `missing` is set, and neither
/// beside `rounds` above 0.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FenceProof {
    /// How many times in a row all that is forbidden was unreachable while the gateway answered; 0: not proven.
    pub rounds: u16,
    /// An address and port that must not be reachable and was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open: Option<String>,
    /// An address and port of the gateway that did not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
}

/// How a workload ended, as the agent that was its parent saw it. Exactly one of `exit_code` and `signal` is set.
///
/// The workload can write to the file that carries this while it runs, and whoever kills the agent keeps the last word
/// there: a record counts only together with the container's own exit status, see [`ExitRecord::process_exit_code`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ExitRecord {
    /// Always [`VERSION`].
    pub v: u8,
    /// The workload's exit status; 126 or 127 when it could not be started.
    pub exit_code: Option<u8>,
    /// The signal that ended the workload, 1 to 64.
    pub signal: Option<u8>,
    /// Why it could not be started: printable ASCII, at most [`MAX_TEXT_CHARS`] characters.
    pub spawn_error: Option<String>,
    /// Whether the kernel's out-of-memory killer ended a process of this container; `None` when the kernel keeps no
    /// such count that can be read from inside.
    pub oom: Option<bool>,
    /// Why the agent ended everything: an address and port that must not be reachable came to be, or `unknown` where it
    /// could not be tried any more. The exit code is 79 then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence_open: Option<String>,
}

impl ExitRecord {
    /// The status the agent ends with after writing this record: the exit code, or 128 + the signal as shells do.
    #[must_use]
    pub fn process_exit_code(&self) -> u8 {
        match (self.exit_code, self.signal) {
            (Some(code), _) => code,
            (None, Some(signal)) => 128_u8.saturating_add(signal),
            (None, None) => u8::MAX,
        }
    }
}

/// Why a line was not accepted. Carries positions and field names of ours, never what the sandbox wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReportError {
    /// Nothing was written.
    Empty,
    /// More than [`MAX_INPUT_BYTES`] bytes.
    TooLong {
        /// The length that came, in bytes.
        bytes: usize,
    },
    /// Not JSON of the right shape, or a field that is unknown, doubled or missing.
    Malformed {
        /// Line of the first fault, from 1.
        line: usize,
        /// Column of the first fault.
        column: usize,
    },
    /// Written by another version of the agent.
    Version {
        /// The version that came.
        found: u64,
    },
    /// A field with a value that cannot be.
    Field {
        /// The field's name as written in the line.
        name: &'static str,
        /// What would be right.
        expected: &'static str,
    },
}

impl fmt::Display for ReportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("nothing was written"),
            Self::TooLong { bytes } => {
                write!(f, "{bytes} bytes were written, at most {MAX_INPUT_BYTES} are read")
            }
            Self::Malformed { line, column } => {
                write!(f, "not the expected JSON object, first fault at line {line} column {column}")
            }
            Self::Version { found } => {
                write!(f, "version {found} is not understood, only {VERSION}: use the agent of this release")
            }
            Self::Field { name, expected } => write!(f, "field {name} must be {expected}"),
        }
    }
}

impl std::error::Error for ReportError {}

/// Reads a kernel report.
///
/// # Errors
/// [`ReportError`] when the input is empty, over [`MAX_INPUT_BYTES`], of another version, or not exactly a report.
pub fn parse_report(input: &str) -> Result<KernelReport, ReportError> {
    let report: KernelReport = parse(input)?;
    check_uuid(&report.boot_id)?;
    check_text("kernel", &report.kernel)?;
    if report.seccomp > 2 {
        return Err(ReportError::Field { name: "seccomp", expected: "0, 1 or 2" });
    }
    if report.cap_eff.len() != 16 || !report.cap_eff.bytes().all(is_lower_hex) {
        return Err(ReportError::Field { name: "capEff", expected: "16 lower-case hex digits" });
    }
    report.fence.as_ref().map_or(Ok(()), check_proof)?;
    Ok(report)
}

fn check_proof(proof: &FenceProof) -> Result<(), ReportError> {
    for (name, address) in [("fence.open", &proof.open), ("fence.missing", &proof.missing)] {
        if address.as_ref().is_some_and(|address| address.parse::<SocketAddr>().is_err()) {
            return Err(ReportError::Field { name, expected: "an address with a port" });
        }
    }
    let failed = usize::from(proof.open.is_some()) + usize::from(proof.missing.is_some());
    if failed > usize::from(proof.rounds == 0) {
        return Err(ReportError::Field {
            name: "fence.rounds",
            expected: "0 beside one of open and missing",
        });
    }
    Ok(())
}

/// Reads an exit record.
///
/// # Errors
/// [`ReportError`] when the input is empty, over [`MAX_INPUT_BYTES`], of another version, or not exactly a record.
pub fn parse_exit_record(input: &str) -> Result<ExitRecord, ReportError> {
    let record: ExitRecord = parse(input)?;
    if record.exit_code.is_some() == record.signal.is_some() {
        return Err(ReportError::Field { name: "exitCode", expected: "null exactly when signal is not" });
    }
    if record.signal.is_some_and(|signal| !(1..=64).contains(&signal)) {
        return Err(ReportError::Field { name: "signal", expected: "null or 1 to 64" });
    }
    if let Some(error) = &record.spawn_error {
        check_text("spawnError", error)?;
        if !matches!(record.exit_code, Some(126 | 127)) {
            return Err(ReportError::Field { name: "exitCode", expected: "126 or 127 beside a spawnError" });
        }
    }
    if let Some(open) = &record.fence_open {
        if open != FENCE_UNKNOWN && open.parse::<SocketAddr>().is_err() {
            return Err(ReportError::Field {
                name: "fenceOpen",
                expected: "an address with a port, or unknown",
            });
        }
        if record.exit_code != Some(EXIT_FENCE_OPEN) {
            return Err(ReportError::Field { name: "exitCode", expected: "79 beside a fenceOpen" });
        }
    }
    Ok(record)
}

/// One line of JSON with a newline, at most [`MAX_LINE_BYTES`] bytes as long as free text went through
/// [`printable`].
///
/// # Errors
/// That of the serializer; these types give it no reason.
pub fn encode<T: Serialize>(value: &T) -> Result<String, serde_json::Error> {
    let mut line = serde_json::to_string(value)?;
    line.push('\n');
    Ok(line)
}

/// Text of unknown origin as it may stand in a line: runs of white space become one space, other bytes outside
/// printable ASCII become `?`, and it is cut at [`MAX_TEXT_CHARS`].
#[must_use]
pub fn printable(text: &[u8]) -> String {
    let mut out = String::with_capacity(text.len().min(MAX_TEXT_CHARS));
    for &byte in text.trim_ascii() {
        if out.len() == MAX_TEXT_CHARS {
            break;
        }
        match byte {
            b' ' | b'\t' | b'\n' | b'\r' if out.ends_with(' ') => {}
            b' ' | b'\t' | b'\n' | b'\r' => out.push(' '),
            b'!'..=b'~' => out.push(char::from(byte)),
            _ => out.push('?'),
        }
    }
    out
}

/// The version is read first and alone, so that a newer line says "version 2" and not "malformed".
#[derive(Deserialize)]
struct Versioned {
    v: u64,
}

fn parse<T: for<'de> Deserialize<'de>>(input: &str) -> Result<T, ReportError> {
    if input.len() > MAX_INPUT_BYTES {
        return Err(ReportError::TooLong { bytes: input.len() });
    }
    if input.trim_ascii().is_empty() {
        return Err(ReportError::Empty);
    }
    let malformed =
        |error: serde_json::Error| ReportError::Malformed { line: error.line(), column: error.column() };
    let Versioned { v } = serde_json::from_str(input).map_err(malformed)?;
    if v != u64::from(VERSION) {
        return Err(ReportError::Version { found: v });
    }
    serde_json::from_str(input).map_err(malformed)
}

fn check_text(name: &'static str, text: &str) -> Result<(), ReportError> {
    if text.len() > MAX_TEXT_CHARS || !text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        return Err(ReportError::Field { name, expected: "at most 256 printable ASCII characters" });
    }
    Ok(())
}

fn check_uuid(text: &str) -> Result<(), ReportError> {
    let right = text.len() == 36
        && text.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => is_lower_hex(byte),
        });
    if right { Ok(()) } else { Err(ReportError::Field { name: "bootId", expected: "a lower-case UUID" }) }
}

fn is_lower_hex(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}
