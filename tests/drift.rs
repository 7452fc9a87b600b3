//! What is written twice says the same: definitions, chart, rights, examples, texts. A file that is missing is a failure.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::{fs, path::PathBuf};

use serde_json::Value;

#[path = "drift/definitions.rs"]
mod definitions;
#[path = "drift/examples.rs"]
mod examples;
#[path = "drift/flags.rs"]
mod flags;
#[path = "drift/ports.rs"]
mod ports;
#[path = "drift/rights.rs"]
mod rights;
#[path = "drift/schema.rs"]
mod schema;

/// A file of the repository.
fn file(path: &str) -> String {
    let full = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&full).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Names of the files in a directory of the repository, in order.
fn names(directory: &str) -> Vec<String> {
    let full = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(directory);
    let entries = fs::read_dir(&full).unwrap_or_else(|error| panic!("{directory}: {error}"));
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort_unstable();
    names
}

/// Whether a file of this name holds YAML.
fn is_yaml(name: &str) -> bool {
    PathBuf::from(name).extension().is_some_and(|extension| extension == "yaml")
}

/// The documents of a YAML file.
fn documents(name: &str, text: &str) -> Vec<Value> {
    let parts = text.split("\n---").map(str::trim).filter(|part| {
        part.lines().any(|line| !line.trim_start().starts_with('#') && !line.trim().is_empty())
    });
    parts.map(|part| serde_saphyr::from_str(part).unwrap_or_else(|error| panic!("{name}: {error}"))).collect()
}
