//! How a patch changes an object: server-side apply, as far as one manager needs it, and JSON merge patch (RFC 7386).
//!
//! What another manager owns beside ours is not tracked: a field that we gave up is taken away.

use serde_json::{Map, Value};

/// Lists whose items are told apart by a key; every other list is one value.
const KEYED: &[(&str, &str)] = &[("conditions", "type"), ("ownerReferences", "uid")];

/// The object after an apply. `before` is what the manager applied the last time.
#[must_use]
pub fn apply(have: &Value, before: Option<&Value>, want: &Value) -> Value {
    let mut object = have.clone();
    if let Some(before) = before {
        give_up(&mut object, before, want);
    }
    take(&mut object, want);
    object
}

/// Takes away what was applied before and is not any more.
fn give_up(have: &mut Value, before: &Value, want: &Value) {
    let (Value::Object(have), Value::Object(before)) = (have, before) else { return };
    for (field, old) in before {
        match (have.get_mut(field), want.get(field)) {
            (Some(inner), Some(new)) if old.is_object() && new.is_object() => give_up(inner, old, new),
            (Some(inner), new) if keyed(field).is_some() => {
                give_up_items(inner, old, new, keyed(field).unwrap());
            }
            (Some(inner), None) if old.is_object() => {
                give_up(inner, old, &Value::Object(Map::new()));
                if inner.as_object().is_some_and(Map::is_empty) {
                    have.remove(field);
                }
            }
            (Some(_), None) => drop(have.remove(field)),
            (None, _) | (Some(_), Some(_)) => {}
        }
    }
}

fn give_up_items(have: &mut Value, before: &Value, want: Option<&Value>, key: &str) {
    let holds = |list: Option<&Value>, item: &Value| {
        list.and_then(Value::as_array).is_some_and(|list| list.iter().any(|other| other[key] == item[key]))
    };
    if let Value::Array(items) = have {
        items.retain(|item| !holds(Some(before), item) || holds(want, item));
    }
}

fn keyed(field: &str) -> Option<&'static str> {
    KEYED.iter().find(|(name, _)| *name == field).map(|(_, key)| *key)
}

fn take(have: &mut Value, want: &Value) {
    let (Value::Object(have), Value::Object(want)) = (&mut *have, want) else {
        *have = want.clone();
        return;
    };
    for (field, new) in want {
        match (have.get_mut(field), keyed(field)) {
            (Some(Value::Array(items)), Some(key)) => take_items(items, new, key),
            (Some(inner), None) if inner.is_object() && new.is_object() => take(inner, new),
            _ => drop(have.insert(field.clone(), new.clone())),
        }
    }
}

fn take_items(have: &mut Vec<Value>, want: &Value, key: &str) {
    for new in want.as_array().into_iter().flatten() {
        match have.iter_mut().find(|item| item[key] == new[key]) {
            Some(item) => take(item, new),
            None => have.push(new.clone()),
        }
    }
}

/// The object after a JSON merge patch.
#[must_use]
pub fn merge(have: &Value, patch: &Value) -> Value {
    let Value::Object(patch) = patch else { return patch.clone() };
    let mut object = have.as_object().cloned().unwrap_or_default();
    for (field, new) in patch {
        if new.is_null() {
            object.remove(field);
        } else {
            let old = object.get(field).cloned().unwrap_or(Value::Null);
            object.insert(field.clone(), merge(&old, new));
        }
    }
    Value::Object(object)
}

/// The object after a JSON patch (RFC 6902) of `replace` operations, the one that is used here.
#[must_use]
pub fn replace(have: &Value, operations: &Value) -> Option<Value> {
    let mut object = have.clone();
    for operation in operations.as_array()? {
        if operation["op"] != "replace" {
            return None;
        }
        *object.pointer_mut(operation["path"].as_str()?)? = operation["value"].clone();
    }
    Some(object)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_not_applied_any_more_goes_and_what_is_anothers_stays() {
        let have = json!({"spec": {"ours": 1, "list": [1, 2], "theirs": 2}, "metadata": {"labels": {"a": "b", "c": "d"}}});
        let before = json!({"spec": {"ours": 1, "list": [1, 2]}, "metadata": {"labels": {"a": "b"}}});
        let want = json!({"spec": {"list": [3]}});
        let after = apply(&have, Some(&before), &want);
        assert_eq!(after, json!({"spec": {"list": [3], "theirs": 2}, "metadata": {"labels": {"c": "d"}}}));
    }

    #[test]
    fn conditions_are_told_apart_by_type() {
        let have = json!({"conditions": [{"type": "A", "status": "True"}, {"type": "B", "status": "True"}]});
        let before = json!({"conditions": [{"type": "A", "status": "True"}]});
        let want = json!({"conditions": [{"type": "C", "status": "False"}]});
        let after = apply(&have, Some(&before), &want);
        assert_eq!(
            after,
            json!({"conditions": [{"type": "B", "status": "True"}, {"type": "C", "status": "False"}]})
        );
    }

    #[test]
    fn null_deletes_in_a_merge_patch_only() {
        assert_eq!(
            merge(&json!({"a": {"b": 1, "c": 2}}), &json!({"a": {"b": null}})),
            json!({"a": {"c": 2}})
        );
        assert_eq!(apply(&json!({}), None, &json!({"a": null})), json!({"a": null}));
    }

    #[test]
    fn a_json_patch_replaces_what_is_there() {
        let patch = json!([{"op": "replace", "path": "/spec", "value": {"a": 1}}]);
        assert_eq!(replace(&json!({"spec": {"b": 2}}), &patch), Some(json!({"spec": {"a": 1}})));
        assert_eq!(replace(&json!({}), &patch), None);
        assert_eq!(replace(&json!({"spec": 1}), &json!([{"op": "remove", "path": "/spec"}])), None);
    }
}
