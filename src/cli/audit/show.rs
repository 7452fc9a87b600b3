//! A record for people, and as an OCSF event. Pure.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{audit::entry::Entry, cli::text};

/// The version of OCSF whose names and numbers records have.
const OCSF: &str = "1.3.0";

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

/// What a collector of OCSF events takes: the record, and whence it came as `metadata`.
pub(super) fn ocsf(entry: &Entry) -> Value {
    let mut event = serde_json::to_value(&entry.record).unwrap_or_default();
    let record = &entry.record;
    let class = u64::from(record.class_uid);
    if let Some(fields) = event.as_object_mut() {
        fields.insert("category_uid".into(), json!(class / 1000));
        fields.insert("type_uid".into(), json!(class * 100 + u64::from(record.activity_id)));
        fields.insert(
            "metadata".into(),
            json!({
                "version": OCSF,
                "product": {"name": "Glovebox", "version": env!("CARGO_PKG_VERSION")},
                "sequence": entry.n,
                "uid": entry.n.to_string(),
                "logged_time": entry.at,
                "log_provider": format!("{}/{}", entry.by.role.as_str(), entry.by.pod),
            }),
        );
        // OCSF's actor is an object.
        if let Some(actor) = fields.remove("actor") {
            fields.insert("actor".into(), json!({"user": {"name": actor}}));
        }
    }
    event
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

    #[test]
    fn an_event_is_ocsfs() {
        let event = ocsf(&entry("evil.example"));
        assert_eq!(event["type_uid"], 400_105);
        assert_eq!(event["category_uid"], 4);
        assert_eq!(event["metadata"]["sequence"], 7);
        assert_eq!(event["actor"]["user"]["name"], "ada");
        assert_eq!(event["metadata"]["log_provider"], "gateway/gateway-1");
    }
}
