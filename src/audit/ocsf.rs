//! An entry as an event of the Open Cybersecurity Schema Framework, as collectors take them. Pure.

use serde_json::{Value, json};

use super::entry::Entry;

/// The version whose names and numbers records have.
pub const VERSION: &str = "1.3.0";

/// The class of what was found out.
const FINDING: u64 = 2004;

/// The record, and whence it came as `metadata`.
#[must_use]
pub fn event(entry: &Entry) -> Value {
    let mut event = serde_json::to_value(&entry.record).unwrap_or_default();
    let record = &entry.record;
    let class = u64::from(record.class_uid);
    if let Some(fields) = event.as_object_mut() {
        fields.insert("category_uid".into(), json!(class / 1000));
        fields.insert("type_uid".into(), json!(class * 100 + u64::from(record.activity_id)));
        fields.insert(
            "metadata".into(),
            json!({
                "version": VERSION,
                "product": {"name": "Glovebox", "version": env!("CARGO_PKG_VERSION")},
                "sequence": entry.n,
                "uid": entry.n.to_string(),
                "logged_time": entry.at,
                "log_provider": format!("{}/{}", entry.by.role.as_str(), entry.by.pod),
            }),
        );
        if class == FINDING {
            let title = record.message.as_deref().unwrap_or_default();
            fields.insert("finding_info".into(), json!({"title": title, "uid": entry.n.to_string()}));
        }
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
    use crate::audit::{Act, Record, Role, entry::Source};

    #[test]
    fn an_event_says_what_it_is_and_whence() {
        let record =
            Record { actor: Some("ada".into()), ..Record::new(Act::EgressRefused, 0).failed("NoRule") };
        let by = Source { role: Role::Gateway, pod: "gateway-1".into(), boot: "b".into(), seq: 0 };
        let event = event(&Entry { n: 7, prev: [0; 32], at: 10, by, record });
        assert_eq!(event["type_uid"], 400_105);
        assert_eq!(event["category_uid"], 4);
        assert_eq!(event["metadata"]["sequence"], 7);
        assert_eq!(event["actor"]["user"]["name"], "ada");
        assert_eq!(event["metadata"]["log_provider"], "gateway/gateway-1");
    }
}
