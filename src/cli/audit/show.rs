//! A record for people. Pure.

use crate::{audit::entry::Entry, cli::text};
use jiff::Timestamp;

/// One line.
pub(super) fn line(entry: &Entry) -> String {
    let record = &entry.record;
    let time = Timestamp::from_millisecond(record.time).unwrap_or_default();
    let sandbox = record.sandbox.as_ref();
    let of = sandbox.map_or_else(|| "-".to_owned(), |one| format!("{}/{}", one.namespace, one.name));
    let mut line = format!("{time:.3}  {:<15} {of}", record.activity_name.as_str());
    let mut say = |text: String| {
        line += "  ";
        line += &text;
    };
    if let Some(end) = &record.dst_endpoint {
        let host = end.hostname.as_deref().or(end.ip.as_deref()).unwrap_or("?");
        say(if end.port == 0 { host.to_owned() } else { format!("{host}:{}", end.port) });
    }
    if let Some(process) = &record.process {
        say(process.cmd_line.clone().unwrap_or_else(|| process.uid.clone()));
        if let Some(code) = process.exit_code {
            say(format!("exit {code}"));
        }
    }
    if let Some(file) = &record.file {
        say(file.path.clone());
    }
    if let Some(traffic) = &record.traffic {
        say(format!("{} out, {} in", traffic.bytes_out, traffic.bytes_in));
    }
    if let Some(reason) = &record.status_detail {
        say(reason.clone());
    }
    if let Some(count) = record.count.filter(|count| *count > 1) {
        say(format!("{count} times"));
    }
    if let Some(actor) = &record.actor {
        say(format!("by {actor}"));
    }
    if let Some(message) = &record.message {
        say(message.clone());
    }
    text::line(&line) + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::{Act, Endpoint, Record, Role, Subject, entry::Source};

    fn entry(host: &str) -> Entry {
        let sandbox =
            Subject { uid: "u".into(), namespace: "team-a".into(), name: "s".into(), ..Subject::default() };
        let end = Endpoint { hostname: Some(host.into()), port: 443, ..Endpoint::default() };
        let record = Record {
            dst_endpoint: Some(end),
            count: Some(3),
            actor: Some("ada".into()),
            ..Record::new(Act::EgressRefused, 0).failed("NoRule").about(sandbox)
        };
        let by = Source { role: Role::Gateway, pod: "gateway-1".into(), boot: "b".into(), seq: 0 };
        Entry { n: 7, prev: [0; 32], at: 10, by, record }
    }

    #[test]
    fn a_line_says_who_what_where_and_why() {
        let shown = line(&entry("evil.example"));
        assert_eq!(
            shown,
            "1970-01-01T00:00:00.000Z  EgressRefused   team-a/s  evil.example:443  NoRule  3 times  by ada\n"
        );
        let hostile = line(&entry("\u{1b}[2J\nx"));
        assert!(!hostile.trim_end().contains(['\u{1b}', '\n']), "{hostile:?}");
    }
}
