//! The OpenAPI 3.1 document, made from the types and the table of paths.
//!
//! By hand over schemars, which the custom resources' schemas come from too: a crate for it would bring its own router or a second
//! derive for every type, to describe four paths.

use std::sync::LazyLock;

use axum::body::Bytes;
use schemars::{JsonSchema, SchemaGenerator, generate::SchemaSettings};
use serde_json::{Value, json};

use super::{
    api::{ExecAnswer, ExecLine, ExecRequest, SandboxStatus, WaitFor},
    exec::{IDEMPOTENCY_KEY, LINES},
    problem::ErrorBody,
    routes::{Endpoint, ROUTES, Route},
    status::{DEFAULT_WAIT, MOST_WAIT},
};
use crate::api::Span;

/// The document as bytes, made once.
pub(super) fn bytes() -> Bytes {
    static MADE: LazyLock<Bytes> = LazyLock::new(|| document().to_string().into());
    MADE.clone()
}

/// The document.
#[must_use]
pub fn document() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    });
    let mut schemas = settings.into_generator();
    let mut paths = json!({});
    for Route { method, path, endpoint } in ROUTES {
        paths[path][method] = operation(*endpoint, &mut schemas);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Glovebox session",
            "description": "Commands in sandboxes. Each error has one shape, a reason out of a closed list, and a message that says what to do next.",
            "version": env!("CARGO_PKG_VERSION"),
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "schemas": schemas.take_definitions(true),
            "securitySchemes": {"token": {
                "type": "http", "scheme": "bearer",
                "description": "A token that the cluster's API server knows, such as a service account's.",
            }},
        },
    })
}

fn operation(endpoint: Endpoint, schemas: &mut SchemaGenerator) -> Value {
    let (id, summary, success) = match endpoint {
        Endpoint::OpenApi => {
            ("openapi", "This document", json!({"application/json": {"schema": {"type": "object"}}}))
        }
        Endpoint::Status => ("status", "Where a sandbox stands", content::<SandboxStatus>(schemas)),
        Endpoint::Wait => (
            "wait",
            "Waits until a sandbox is as wanted, or the time is over: `reached` says which",
            content::<SandboxStatus>(schemas),
        ),
        Endpoint::Exec => ("exec", "Has a command run in a sandbox", {
            let mut both = content::<ExecAnswer>(schemas);
            both[LINES] = json!({
                "description": "With `stream`: one object a line. Without a last line of result or error, the call was lost.",
                "schema": schemas.subschema_for::<ExecLine>(),
            });
            both
        }),
    };
    let mut operation = json!({
        "operationId": id,
        "summary": summary,
        "responses": {
            "200": {"description": "It was carried out.", "content": success},
            "default": {"description": "It was not carried out.", "content": content::<ErrorBody>(schemas)},
        },
    });
    if endpoint != Endpoint::OpenApi {
        operation["security"] = json!([{"token": []}]);
        operation["parameters"] = parameters(endpoint, schemas);
    }
    if endpoint == Endpoint::Exec {
        operation["requestBody"] = json!({"required": true, "content": content::<ExecRequest>(schemas)});
    }
    operation
}

fn content<T: JsonSchema>(schemas: &mut SchemaGenerator) -> Value {
    json!({"application/json": {"schema": schemas.subschema_for::<T>()}})
}

fn parameters(endpoint: Endpoint, schemas: &mut SchemaGenerator) -> Value {
    let name = json!({"type": "string", "minLength": 1, "maxLength": 63, "pattern": "^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$"});
    let mut all = vec![
        json!({"name": "namespace", "in": "path", "required": true, "description": "The sandbox's namespace.", "schema": name}),
        json!({"name": "name", "in": "path", "required": true, "description": "The sandbox's name.", "schema": name}),
    ];
    match endpoint {
        Endpoint::Wait => {
            let (default, most) = (Span::from(DEFAULT_WAIT), Span::from(MOST_WAIT));
            all.push(json!({
                "name": "for", "in": "query", "required": true, "description": "What to wait for.",
                "schema": schemas.subschema_for::<WaitFor>(),
            }));
            all.push(json!({
                "name": "timeout", "in": "query", "description": format!("How long to wait: {default} if absent, at most {most}."),
                "schema": schemas.subschema_for::<Span>(),
            }));
        }
        Endpoint::Exec => all.push(json!({
            "name": IDEMPOTENCY_KEY, "in": "header",
            "description": "Makes a retry the same call: it gets the result of the first one, for ten minutes, from the same replica. The call goes on when its client hangs up. Not for streams.",
            "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"},
        })),
        Endpoint::OpenApi | Endpoint::Status => {}
    }
    Value::Array(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every reference of the document leads somewhere, and all that is there is referred to.
    #[test]
    fn references_are_whole() {
        fn walk(value: &Value, found: &mut std::collections::BTreeSet<String>) {
            match value {
                Value::Object(map) => {
                    found.extend(map.get("$ref").and_then(Value::as_str).map(ToOwned::to_owned));
                    map.values().for_each(|value| walk(value, found));
                }
                Value::Array(all) => all.iter().for_each(|value| walk(value, found)),
                _ => {}
            }
        }
        let document = document();
        let mut found = std::collections::BTreeSet::new();
        walk(&document, &mut found);
        assert!(found.len() > 5, "{found:?}");
        for reference in &found {
            let pointer = reference.strip_prefix('#').unwrap();
            assert!(document.pointer(pointer).is_some(), "{reference}");
        }
        for name in document["components"]["schemas"].as_object().unwrap().keys() {
            assert!(found.contains(&format!("#/components/schemas/{name}")), "{name}");
        }
    }

    #[test]
    fn it_says_what_is_refused() {
        let schemas = &document()["components"]["schemas"];
        assert_eq!(schemas["ExecRequest"]["additionalProperties"], json!(false));
        assert_eq!(schemas["ExecRequest"]["required"], json!(["command"]));
        let text = schemas["Reason"].to_string();
        assert!(super::super::Reason::ALL.iter().all(|reason| text.contains(reason.as_str())), "{text}");
        assert!(schemas["ExecAnswer"]["properties"]["exitCode"].is_object(), "{}", schemas["ExecAnswer"]);
    }
}
