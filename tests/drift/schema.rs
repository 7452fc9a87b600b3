//! A reader of the schemas in the definitions: which fields there are, and whether an object fits. All but CEL, which the
//! end-to-end suite leaves to the API server.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use regex::Regex;
use serde_json::{Map, Value};

/// The schema of the only version.
pub(crate) fn of(definition: &CustomResourceDefinition) -> Value {
    let version = &definition.spec.versions[0];
    serde_json::to_value(version.schema.as_ref().unwrap().open_api_v3_schema.as_ref().unwrap()).unwrap()
}

/// Shows every field below a schema, itself included, with its path.
pub(crate) fn walk(path: &str, schema: &Value, see: &mut impl FnMut(&str, &Value)) {
    see(path, schema);
    for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
        walk(&format!("{path}.{name}"), inner, see);
    }
    for inner in schema["items"]["properties"].as_object().into_iter().flatten() {
        walk(&format!("{path}[].{}", inner.0), inner.1, see);
    }
}

/// What of an object does not fit, in words.
pub(crate) fn misfits(path: &str, schema: &Value, value: &Value) -> Vec<String> {
    let either = schema["x-kubernetes-int-or-string"] == true;
    let kinds: &[&str] = match value {
        Value::Object(_) => &["object"],
        Value::Array(_) => &["array"],
        Value::String(_) => &["string"],
        Value::Number(_) => &["integer", "number"],
        Value::Bool(_) => &["boolean"],
        Value::Null => {
            return if schema["nullable"] == true { Vec::new() } else { vec![format!("{path}: is null")] };
        }
    };
    if !(either || path.is_empty() || kinds.iter().any(|kind| schema["type"] == *kind)) {
        return vec![format!("{path}: {value} is not of type {}", schema["type"])];
    }
    match value {
        Value::Object(fields) => object(path, schema, fields),
        Value::Array(items) => {
            let each = items.iter().enumerate();
            let inner = each.flat_map(|(at, item)| misfits(&format!("{path}[{at}]"), &schema["items"], item));
            length(path, schema, items.len(), ["minItems", "maxItems"]).chain(inner).collect()
        }
        Value::String(text) => {
            let mut found: Vec<String> =
                length(path, schema, text.chars().count(), ["minLength", "maxLength"]).collect();
            let fits = |pattern: &str| Regex::new(pattern).unwrap().is_match(text);
            if !schema["pattern"].as_str().is_none_or(fits) {
                found.push(format!("{path}: {text:?} does not fit {}", schema["pattern"]));
            }
            if !schema["enum"].as_array().is_none_or(|all| all.contains(value)) {
                found.push(format!("{path}: {text:?} is none of {}", schema["enum"]));
            }
            found
        }
        Value::Number(given) => {
            let beyond = |keyword: &str, sign: f64| {
                schema[keyword]
                    .as_f64()
                    .is_some_and(|bound| given.as_f64().is_none_or(|given| sign * given > sign * bound))
            };
            let found = beyond("maximum", 1.0) || beyond("minimum", -1.0);
            found.then(|| format!("{path}: {given} is out of bounds")).into_iter().collect()
        }
        Value::Bool(_) | Value::Null => Vec::new(),
    }
}

fn length<'a>(
    path: &'a str,
    schema: &'a Value,
    length: usize,
    [least, most]: [&'a str; 2],
) -> impl Iterator<Item = String> + 'a {
    let bound = |keyword: &str| schema[keyword].as_u64().map(|bound| usize::try_from(bound).unwrap());
    let wrong =
        bound(least).is_some_and(|bound| length < bound) || bound(most).is_some_and(|bound| length > bound);
    wrong.then(|| format!("{path}: its length {length} is out of bounds")).into_iter()
}

fn object(path: &str, schema: &Value, fields: &Map<String, Value>) -> Vec<String> {
    let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let missing =
        required.filter(|name| !fields.contains_key(*name)).map(|name| format!("{path}: {name} is missing"));
    let open = path == ".metadata"
        || schema["additionalProperties"].is_object()
        || schema["x-kubernetes-preserve-unknown-fields"] == true;
    let of_all = |name: &str| path.is_empty() && matches!(name, "apiVersion" | "kind" | "metadata");
    let inner = fields.iter().flat_map(|(name, value)| match schema["properties"].get(name) {
        Some(schema) => misfits(&format!("{path}.{name}"), schema, value),
        None if open || of_all(name) => Vec::new(),
        None => vec![format!("{path}.{name}: no such field")],
    });
    missing.chain(inner).collect()
}

#[test]
fn a_misfit_is_seen() {
    let definition = glovebox::api::crds()
        .into_iter()
        .find(|definition| definition.spec.names.kind == "AgentSandbox")
        .unwrap();
    let schema = of(&definition);
    let good = serde_json::json!({"apiVersion": "glovebox.dev/v1alpha1", "kind": "AgentSandbox", "metadata": {"name": "s"}, "spec": {"image": "a"}});
    assert_eq!(misfits("", &schema, &good), Vec::<String>::new());
    let odd = serde_json::json!({"spec": {"image": "a"}, "data": {}});
    assert_eq!(misfits("", &schema, &odd), [".data: no such field"]);
    for (field, value) in [
        ("image", serde_json::json!("")),
        ("image", serde_json::json!(1)),
        ("image", serde_json::json!("a b")),
        ("ttl", serde_json::json!("1d")),
        ("imagePullPolicy", serde_json::json!("Always")),
        ("ports", serde_json::json!([{"name": "p", "containerPort": 70_000}])),
        ("ports", serde_json::json!([{"name": "p"}])),
        ("command", serde_json::json!("sh")),
    ] {
        let mut bad = good.clone();
        bad["spec"][field] = value.clone();
        assert!(!misfits("", &schema, &bad).is_empty(), "{field} = {value}");
    }
}
