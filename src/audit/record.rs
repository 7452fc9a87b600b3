//! What is recorded of one act. The shape is OCSF's (1.3): class and activity by their numbers, endpoints, traffic, process and file
//! under its names; what OCSF has no word for is in `sandbox`. Pure.
//!
//! Must never hold a secret, a query string, a variable's value, input or output. Whatever comes out of a sandbox is made printable
//! and cut before it gets in here.

use serde::{Deserialize, Serialize};

use super::act::Act;

/// Longest text, in characters. What is longer is cut, and says so.
pub const MOST_CHARS: usize = 1024;
/// Longest record, in bytes as JSON.
pub const MOST_BYTES: usize = 16 * 1024;

/// The sandbox that an act is about.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Subject {
    /// Of the object: names are given again.
    pub uid: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The class that it is of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// Who asked for it, as the API server knew them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requester: Option<String>,
    /// The RuntimeClass of its pod; none where the node's default runs it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime: Option<String>,
    /// The kernel that it really runs on, as it was seen from inside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// Why its class may be weaker than its trust asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exception: Option<String>,
    /// The policy that held, counted by the producer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_generation: Option<u64>,
}

/// An end of a connection.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Endpoint {
    /// The name that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// The address that was dialled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip: Option<String>,
    /// The port.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub port: u16,
    /// Every address that the name had, as far as they were checked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub intermediate_ips: Vec<String>,
}

/// Bytes of a connection.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Traffic {
    /// To the outside.
    pub bytes_out: u64,
    /// From the outside.
    pub bytes_in: u64,
}

/// A command.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Process {
    /// The call's id.
    pub uid: String,
    /// Its words, quoted, cut at a bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cmd_line: Option<String>,
    /// SHA-256 of all its words, each ended by a zero byte.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cmd_hash: Option<String>,
    /// Milliseconds that it may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<u64>,
    /// How it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Bytes of its output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_size: Option<u64>,
    /// SHA-256 of its output as it was handed over, standard output and errors in the order in which they came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_hash: Option<String>,
}

/// A file, or a directory.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct File {
    /// Below the workspace.
    pub path: String,
    /// Bytes that went over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
}

/// One act.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// What was done.
    pub activity_name: Act,
    /// OCSF's number of its class.
    pub class_uid: u32,
    /// OCSF's number of the activity.
    pub activity_id: u32,
    /// When, by the producer's clock, in milliseconds since 1970. Of what was folded: the last time.
    pub time: i64,
    /// 1 informational, 2 low, 3 medium, 4 high.
    pub severity_id: u8,
    /// 1 success, 2 failure.
    pub status_id: u8,
    /// Why, in one word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status_detail: Option<String>,
    /// The same for a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Which sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<Subject>,
    /// The user who asked, as the API server knows them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
    /// How often, where several are folded into one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// The first time, of what was folded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<i64>,
    /// How long it took, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration: Option<u64>,
    /// What ties the records of one connection together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection_uid: Option<String>,
    /// Where a connection came in: the gateway's entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry: Option<String>,
    /// The sandbox's end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub src_endpoint: Option<Endpoint>,
    /// The other end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dst_endpoint: Option<Endpoint>,
    /// The rule that spoke.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// The credential that was added to a request, by its name in the sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<String>,
    /// Bytes that went.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traffic: Option<Traffic>,
    /// The command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<Process>,
    /// The file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<File>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
const fn is_zero(port: &u16) -> bool {
    *port == 0
}

impl Record {
    /// Of an act that was done at this time, in milliseconds since 1970.
    #[must_use]
    pub const fn new(act: Act, time: i64) -> Self {
        Self {
            activity_name: act,
            class_uid: act.class_uid(),
            activity_id: act.activity_id(),
            time,
            severity_id: 1,
            status_id: 1,
            status_detail: None,
            message: None,
            sandbox: None,
            actor: None,
            count: None,
            start_time: None,
            duration: None,
            connection_uid: None,
            entry: None,
            src_endpoint: None,
            dst_endpoint: None,
            rule: None,
            credential: None,
            traffic: None,
            process: None,
            file: None,
        }
    }

    /// What it came to: another act of the same thing, at this time.
    pub const fn turn_into(&mut self, act: Act, time: i64) {
        self.activity_name = act;
        (self.class_uid, self.activity_id, self.time) = (act.class_uid(), act.activity_id(), time);
    }

    /// It failed, or was refused.
    #[must_use]
    pub fn failed(mut self, reason: impl Into<String>) -> Self {
        (self.status_id, self.status_detail) = (2, Some(reason.into()));
        self
    }

    /// About this sandbox.
    #[must_use]
    pub fn about(mut self, sandbox: Subject) -> Self {
        self.sandbox = Some(sandbox);
        self
    }

    /// Reads what a producer sent.
    ///
    /// # Errors
    /// What is wrong with it, without repeating what it says.
    pub fn read(line: &[u8]) -> Result<Self, &'static str> {
        if line.len() > MOST_BYTES {
            return Err("it is too long");
        }
        let record: Self =
            serde_json::from_slice(line).map_err(|_| "it does not have the shape of a record")?;
        let act = record.activity_name;
        let numbers = (record.class_uid, record.activity_id) == (act.class_uid(), act.activity_id());
        let known = matches!(record.severity_id, 1..=6) && matches!(record.status_id, 1 | 2);
        if numbers && known { Ok(record) } else { Err("its numbers are not those of its act") }
    }
}

/// A text out of a sandbox, as a record may hold it: no control character, none that turns others around, and not too long.
#[must_use]
pub fn printable(text: &str, most: usize) -> String {
    let mut safe = String::new();
    for (n, c) in text.chars().enumerate() {
        if n == most {
            safe.push('\u{2026}');
            break;
        }
        if c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
        {
            safe.extend(c.escape_unicode());
        } else {
            safe.push(c);
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_record_is_refused() {
        let record = Record::new(Act::EgressOpened, 7).failed("NoRule");
        let text = serde_json::to_string(&record).unwrap();
        assert_eq!(Record::read(text.as_bytes()), Ok(record));
        for (from, to) in [
            ("4001", "4003"),
            ("\"activity_id\":1", "\"activity_id\":2"),
            ("EgressOpened", "Nothing"),
            ("\"time\":7", "\"time\":7,\"more\":1"),
            ("\"time\":7", "\"time\":7,\"time\":8"),
            ("\"status_id\":2", "\"status_id\":3"),
        ] {
            let other = text.replace(from, to);
            assert_ne!(other, text, "{from}");
            assert!(Record::read(other.as_bytes()).is_err(), "{other}");
        }
        let long = text.replace("NoRule", &"x".repeat(MOST_BYTES));
        assert_eq!(Record::read(long.as_bytes()), Err("it is too long"));
        assert!(Record::read(b"").is_err() && Record::read(b"[]").is_err());
    }

    #[test]
    fn hostile_text_is_printable() {
        assert_eq!(printable("a\n\u{1b}[2J\u{202e}b\u{0}", 100), "a\\u{a}\\u{1b}[2J\\u{202e}b\\u{0}");
        assert_eq!(printable("äöü", 2), "äö\u{2026}");
        assert_eq!(printable("äöü", 3), "äöü");
    }
}
