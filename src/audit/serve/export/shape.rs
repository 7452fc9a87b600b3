//! What a collector is sent. Pure.

use axum::body::Bytes;
use serde_json::{Value, json};

use crate::audit::{entry::Entry, ocsf};

/// Which collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Webhook,
    Otlp,
}

impl Shape {
    /// The word in options, metrics and files' names.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Webhook => "webhook",
            Self::Otlp => "otlp",
        }
    }

    /// A request's body.
    pub(super) fn body(self, entries: &[Entry]) -> Bytes {
        let events = entries.iter().map(ocsf::event);
        let body = match self {
            Self::Webhook => json!({"events": events.collect::<Vec<_>>()}),
            Self::Otlp => json!({"resourceLogs": [{
                "resource": {"attributes": [text("service.name", "glovebox")]},
                "scopeLogs": [{
                    "scope": {"name": "glovebox.audit", "version": env!("CARGO_PKG_VERSION")},
                    "logRecords": entries.iter().zip(events).map(|(entry, event)| log_record(entry, &event)).collect::<Vec<_>>(),
                }],
            }]}),
        };
        serde_json::to_vec(&body).unwrap_or_default().into()
    }
}

fn text(key: &str, value: &str) -> Value {
    json!({"key": key, "value": {"stringValue": value}})
}

/// As OpenTelemetry's JSON writes it: times in nanoseconds, and as text, since JSON's numbers end before.
fn log_record(entry: &Entry, event: &Value) -> Value {
    let record = &entry.record;
    let (number, word) = match record.severity_id {
        4.. => (17, "ERROR"),
        3 => (13, "WARN"),
        _ => (9, "INFO"),
    };
    let nanos = |millis: i64| (i128::from(millis) * 1_000_000).to_string();
    let mut attributes = vec![
        text("event.name", record.activity_name.as_str()),
        text("glovebox.sequence", &entry.n.to_string()),
    ];
    if let Some(sandbox) = &record.sandbox {
        attributes.push(text("k8s.namespace.name", &sandbox.namespace));
        attributes.push(text("glovebox.sandbox.name", &sandbox.name));
        attributes.push(text("glovebox.sandbox.uid", &sandbox.uid));
    }
    json!({
        "timeUnixNano": nanos(record.time),
        "observedTimeUnixNano": nanos(entry.at),
        "severityNumber": number,
        "severityText": word,
        "body": {"stringValue": event.to_string()},
        "attributes": attributes,
    })
}
