//! What stands in the cluster, without what differs from run to run: uids, versions, times, addresses.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::store::{Key, Store};

/// Every object but Events, by its name, so that two runs can be compared.
#[must_use]
pub fn state(store: &Store) -> BTreeMap<String, Value> {
    let owner = |uid: &Value| match store.all().find(|(_, object)| object["metadata"]["uid"] == *uid) {
        Some((key, _)) => name(key),
        None => "nobody".into(),
    };
    let objects = store.all().filter(|(key, _)| key.kind.kind != "Event");
    objects
        .map(|(key, object)| {
            let mut object = object.clone();
            for owner_reference in object["metadata"]["ownerReferences"].as_array_mut().into_iter().flatten()
            {
                owner_reference["uid"] = json!(owner(&owner_reference["uid"]));
            }
            let meta = object["metadata"].as_object_mut().unwrap();
            meta.retain(|field, _| !matches!(field.as_str(), "uid" | "resourceVersion" | "generation"));
            if object["spec"]["activeDeadlineSeconds"].is_number() {
                object["spec"]["activeDeadlineSeconds"] = json!("DEADLINE");
            }
            if key.kind.kind == "Service" {
                // Whichever is free.
                object["spec"]["clusterIP"] = json!("ADDRESS");
            }
            timeless(&mut object);
            (name(key), object)
        })
        .collect()
}

fn name(key: &Key) -> String {
    format!("{}/{}/{}", key.kind.kind, key.namespace, key.name)
}

/// Replaces every time, and sorts conditions by type: they are a map.
fn timeless(value: &mut Value) {
    match value {
        Value::String(text) => *text = without_times(text),
        Value::Array(items) => {
            items.iter_mut().for_each(timeless);
            if items.iter().all(|item| item["type"].is_string() && item["status"].is_string()) {
                items.sort_by_key(|item| item["type"].as_str().map(ToOwned::to_owned));
            }
        }
        Value::Object(fields) => fields.values_mut().for_each(timeless),
        _ => {}
    }
}

/// `2027-01-01T00:00:00Z`, with or without a fraction, becomes `TIME`.
fn without_times(text: &str) -> String {
    const SHAPE: &[u8] = b"dddd-dd-ddTdd:dd:dd";
    let bytes = text.as_bytes();
    let is_time = |at: usize| {
        bytes.len() >= at + SHAPE.len()
            && SHAPE
                .iter()
                .zip(&bytes[at..])
                .all(|(shape, byte)| if *shape == b'd' { byte.is_ascii_digit() } else { shape == byte })
    };
    let Some(at) = (0..bytes.len()).find(|at| is_time(*at)) else { return text.to_owned() };
    let rest = text[at + SHAPE.len()..].trim_start_matches(|c: char| c == '.' || c.is_ascii_digit());
    format!("{}TIME{}", &text[..at], without_times(rest.strip_prefix('Z').unwrap_or(rest)))
}

/// What two states differ in, one line an object.
#[must_use]
pub fn differences(left: &BTreeMap<String, Value>, right: &BTreeMap<String, Value>) -> Vec<String> {
    let names: std::collections::BTreeSet<&String> = left.keys().chain(right.keys()).collect();
    let differ = names.into_iter().filter(|name| left.get(*name) != right.get(*name));
    differ.map(|name| format!("{name}: {}", difference(left.get(name), right.get(name)))).collect()
}

fn difference(left: Option<&Value>, right: Option<&Value>) -> String {
    match (left, right) {
        (Some(Value::Object(left)), Some(Value::Object(right))) => {
            let fields: std::collections::BTreeSet<&String> = left.keys().chain(right.keys()).collect();
            let differ = fields.into_iter().filter(|field| left.get(*field) != right.get(*field));
            differ
                .map(|field| format!(".{field}{}", difference(left.get(field), right.get(field))))
                .collect::<Vec<_>>()
                .join("; ")
        }
        (left, right) => {
            let show = |value: Option<&Value>| value.map_or_else(|| "absent".to_owned(), ToString::to_string);
            format!(" {} != {}", show(left), show(right))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_replaced_wherever_they_stand() {
        assert_eq!(
            without_times("over at 2027-01-01T00:00:00Z, or 2027-01-01T00:00:00.123456Z."),
            "over at TIME, or TIME."
        );
        assert_eq!(without_times("10:00"), "10:00");
    }

    #[test]
    fn a_difference_is_named_by_its_path() {
        let left = BTreeMap::from([("a".to_owned(), json!({"spec": {"x": 1, "y": 2}}))]);
        let right = BTreeMap::from([("a".to_owned(), json!({"spec": {"x": 1, "y": 3}}))]);
        assert_eq!(differences(&left, &right), ["a: .spec.y 2 != 3"]);
        assert_eq!(differences(&left, &BTreeMap::new()).len(), 1);
    }
}
