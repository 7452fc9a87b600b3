//! The OpenAPI 3.1 document, made from the types and the table of paths.
//!
//! By hand over schemars, which the custom resources' schemas come from too: a crate for it would bring its own router or a second
//! derive for every type, to describe a handful of paths.

use std::sync::LazyLock;

use axum::body::Bytes;
use schemars::{JsonSchema, SchemaGenerator, generate::SchemaSettings};
use serde_json::{Value, json};

use super::{
    api::{ExecAnswer, ExecLine, ExecRequest, SandboxStatus, WaitFor},
    exec::{IDEMPOTENCY_KEY, LINES},
    files::{
        Files,
        api::{FileDone, FileInfo, FileList},
    },
    logs::MOST_LINES,
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
            "description": "Commands and files in sandboxes. Each error has one shape, a reason out of a closed list, and a message that says what to do next.",
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
        Endpoint::Files(files) => (files.as_str(), summary(files), files_content(files, schemas)),
        Endpoint::OpenApi => {
            ("openapi", "This document", json!({"application/json": {"schema": {"type": "object"}}}))
        }
        Endpoint::Status => ("status", "Where a sandbox stands", content::<SandboxStatus>(schemas)),
        Endpoint::Wait => (
            "wait",
            "Waits until a sandbox is as wanted, or the time is over: `reached` says which",
            content::<SandboxStatus>(schemas),
        ),
        Endpoint::Logs => (
            "logs",
            "What the sandbox's workload wrote to its output and error output",
            json!({"text/plain": {"schema": {"type": "string"}}}),
        ),
        Endpoint::Live => ("live", "Has a command run, and speaks with it over a WebSocket", Value::Null),
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
    if endpoint == Endpoint::Live {
        let responses = &mut operation["responses"];
        responses["101"] =
            json!({"description": "The connection is a WebSocket now. Messages: docs/session.md."});
        responses.as_object_mut().map(|all| all.remove("200"));
    }
    if endpoint != Endpoint::OpenApi {
        operation["security"] = json!([{"token": []}]);
        operation["parameters"] = parameters(endpoint, schemas);
    }
    if endpoint == Endpoint::Exec {
        operation["requestBody"] = json!({"required": true, "content": content::<ExecRequest>(schemas)});
    }
    if let Endpoint::Files(Files::Write) = endpoint {
        operation["requestBody"] = json!({"required": true, "content": bytes_of(FILE)});
    }
    if let Endpoint::Files(Files::Unpack) = endpoint {
        operation["requestBody"] = json!({"required": true, "content": bytes_of(ARCHIVE)});
    }
    operation
}

/// The kinds of what is carried: an ordinary file, an archive.
const FILE: &str = "application/octet-stream";
const ARCHIVE: &str = "application/x-tar";

const fn summary(files: Files) -> &'static str {
    match files {
        Files::Read => "What a file holds. Links are followed as far as they stay in the workspace",
        Files::Write => "Makes a file, or replaces one: all of it at once, when the body is whole",
        Files::Delete => "Removes a file, a link or a directory",
        Files::Stat => "What is at a path. A link is told as one, wherever it leads",
        Files::List => "What is in a directory: at most 10000 entries",
        Files::Pack => {
            "The files and directories below a directory as a tar archive, without links. A stream that breaks off is no archive"
        }
        Files::Unpack => {
            "Makes the files and directories of a tar archive below a directory, which is made if it is missing. Links, devices and paths that lead out are refused; what came before them is written"
        }
    }
}

fn files_content(files: Files, schemas: &mut SchemaGenerator) -> Value {
    match files {
        Files::Read => bytes_of(FILE),
        Files::Pack => bytes_of(ARCHIVE),
        Files::Stat => content::<FileInfo>(schemas),
        Files::List => content::<FileList>(schemas),
        Files::Write | Files::Delete | Files::Unpack => content::<FileDone>(schemas),
    }
}

fn bytes_of(kind: &str) -> Value {
    json!({kind: {"schema": {"type": "string", "format": "binary"}}})
}

/// One of a file operation's.
fn parameter(files: Files, name: &str, schemas: &mut SchemaGenerator) -> Value {
    let flag = || json!({"type": "boolean", "default": false});
    let (description, schema) = match name {
        "path" => (
            "Below the workspace, such as src/main.py: without a leading /, .. and NUL.",
            json!({"type": "string", "minLength": u8::from(files.needs_path()), "maxLength": 4095}),
        ),
        "timeout" => ("From the start until it is given up.", schemas.subschema_for::<Span>().to_value()),
        "mode" => (
            "The file's mode in octal digits. Absent: as it was, and 644 for a new one.",
            json!({"type": "string", "pattern": "^0?[0-7]{1,3}$"}),
        ),
        "parents" => ("Whether directories on the way are made.", flag()),
        "replace" => (
            "Whether a file that is there is replaced. Without that, the right to create is enough.",
            json!({"type": "boolean", "default": true}),
        ),
        _ => ("Whether a directory is removed with all that is in it.", flag()),
    };
    let required = name == "path" && files.needs_path();
    json!({"name": name, "in": "query", "required": required, "description": description, "schema": schema})
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
        Endpoint::Logs => all.extend(logged(schemas)),
        Endpoint::Files(files) => {
            all.extend(files.parameters().iter().map(|name| parameter(files, name, schemas)));
        }
        Endpoint::OpenApi | Endpoint::Status | Endpoint::Live => {}
    }
    Value::Array(all)
}

/// The parameters of a log.
fn logged(schemas: &mut SchemaGenerator) -> [Value; 4] {
    let parameter = |name: &str, description: &str, schema: Value| json!({"name": name, "in": "query", "description": description, "schema": schema});
    let flag = || json!({"type": "boolean", "default": false});
    let lines = json!({"type": "integer", "minimum": 0, "maximum": MOST_LINES});
    [
        parameter("follow", "Whether to go on as more is written, until the workload ends.", flag()),
        parameter("tailLines", "So many lines of the end alone.", lines),
        parameter("since", "What is not older than this.", schemas.subschema_for::<Span>().to_value()),
        parameter("timestamps", "Whether each line begins with its time.", flag()),
    ]
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
