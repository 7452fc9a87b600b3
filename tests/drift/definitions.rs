//! The custom resource definitions: files as generated, and a text for every field.

use glovebox::{
    api::{self, Reason},
    controller::definitions,
};
use serde_json::Value;

use crate::{file, names, schema};

#[test]
fn files_are_as_generated() {
    for directory in ["crds", "charts/glovebox/crds"] {
        let generated: Vec<String> = api::crds().iter().map(definitions::file_name).collect();
        let mut sorted = generated.clone();
        sorted.sort_unstable();
        assert_eq!(names(directory), sorted, "{directory} holds just the definitions");
        for definition in api::crds() {
            let path = format!("{directory}/{}", definitions::file_name(&definition));
            let same = file(&path) == definitions::yaml(&definition).unwrap();
            assert!(
                same,
                "{path} is not as generated; write it with `cargo run -- crds --output-dir {directory}`"
            );
        }
    }
}

/// `kubectl explain --recursive` shows a text for every field that a person may meet.
#[test]
fn every_field_is_described() {
    let mut fields = 0;
    for definition in api::crds() {
        let root = schema::of(&definition);
        assert!(root["properties"]["spec"].is_object());
        for part in ["spec", "status"].into_iter().filter(|part| root["properties"].get(part).is_some()) {
            schema::walk(part, &root["properties"][part], &mut |path, schema| {
                fields += 1;
                let text = schema["description"].as_str().unwrap_or_default();
                assert!(text.trim().len() >= 4, "{}: {path} has no description", definition.spec.names.kind);
            });
        }
    }
    assert!(fields > 100, "only {fields} fields were looked at");
}

/// Every text, list and map that a user writes has a bound, or the API server can be filled with it.
#[test]
fn every_field_of_a_spec_is_bounded() {
    for definition in api::crds() {
        let root = schema::of(&definition);
        schema::walk("spec", &root["properties"]["spec"], &mut |path, schema| {
            let has = |keyword: &str| schema.get(keyword).is_some();
            let bounded = match schema["type"].as_str() {
                Some("string") => {
                    has("maxLength")
                        || has("enum")
                        || schema["format"] == "date-time"
                        || has("pattern") && schema["x-kubernetes-int-or-string"] == Value::Null
                }
                Some("array") => has("maxItems"),
                Some("object") if has("additionalProperties") => has("maxProperties"),
                Some("integer") => has("maximum") || has("enum") || schema["format"] == "int64",
                _ => true,
            };
            // Kubernetes' own types are bounded by the lists that hold them.
            let foreign = path.contains("tolerations") || path.contains("selector");
            assert!(bounded || foreign, "{}: {path} has no bound: {schema}", definition.spec.names.kind);
        });
    }
}

#[test]
fn every_reason_is_described() {
    assert!(Reason::ALL.len() > 20);
    for reason in Reason::ALL {
        let text = reason.description().trim();
        assert!(text.len() > 10 && text.ends_with('.'), "{}: {text:?}", reason.as_str());
    }
}

#[test]
fn printer_columns_show_fields_that_exist() {
    for definition in api::crds() {
        let root = schema::of(&definition);
        for column in definition.spec.versions[0].additional_printer_columns.iter().flatten() {
            let mut at = &root;
            for part in column.json_path.split('.').skip(1).take_while(|part| !part.contains('[')) {
                at = &at["properties"][part];
            }
            assert!(
                at.is_object() || column.json_path.starts_with(".metadata") || column.json_path.contains('['),
                "{}: {}",
                column.name,
                column.json_path
            );
        }
    }
}
