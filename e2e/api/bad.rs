//! Objects that the API server itself refuses, even when nothing of ours runs, with a message that names the field.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{class, sandbox, try_create};
use crate::harness::{Cases, Outcome, Test};

/// One bad object.
#[derive(Deserialize)]
struct Row {
    /// What is wrong with it.
    what: String,
    /// What makes a good one so, as a merge patch.
    change: Value,
    /// What the refusal must say.
    words: Vec<String>,
}

const SANDBOXES: &str = include_str!("bad-sandboxes.yaml");
const CLASSES: &str = include_str!("bad-classes.yaml");

pub(super) fn cases(cases: &mut Cases) {
    cases.add("api::bad_sandboxes_are_refused_by_the_server", 0, bad_sandboxes);
    cases.add("api::sandboxes_past_a_bound_are_refused_by_the_server", 0, past_bounds);
    cases.add("api::bad_classes_are_refused_by_the_server", 0, bad_classes);
}

async fn hold(test: &Test, what: &str, object: &Value, words: &[impl AsRef<str>]) -> Outcome {
    let refusal = try_create(&test.client, &test.namespace, object).await.context(what.to_owned())?;
    let refusal = refusal.with_context(|| format!("{what}: it was taken"))?;
    for word in words.iter().map(AsRef::as_ref) {
        ensure!(refusal.message.contains(word), "{what}: {word:?} is not told: {}", refusal.message);
    }
    Ok(())
}

fn rows(text: &str) -> Result<Vec<Row>> {
    let rows: Vec<Row> = serde_saphyr::from_str(text).context("the table can't be read")?;
    ensure!(rows.len() >= 20, "only {} rows", rows.len());
    Ok(rows)
}

async fn bad_sandboxes(test: Arc<Test>) -> Outcome {
    let image = &test.cluster.image;
    let good = try_create(&test.client, &test.namespace, &sandbox(image, &json!({}))).await?;
    ensure!(good.is_none(), "the good one is refused, so the bad ones prove nothing: {good:?}");
    for Row { what, change, words } in rows(SANDBOXES)? {
        hold(&test, &what, &sandbox(image, &change), &words).await?;
    }
    Ok(())
}

async fn past_bounds(test: Arc<Test>) -> Outcome {
    let name = |length: usize| json!({"metadata": {"name": "n".repeat(length)}});
    for (what, change, words) in [
        ("a name of 64 characters", name(64), vec!["metadata.name", "63"]),
        ("a name of 253 characters", name(253), vec!["metadata.name", "63"]),
        ("an image of 513 characters", json!({"spec": {"image": "a".repeat(513)}}), vec!["spec.image"]),
        ("257 arguments", json!({"spec": {"command": ["x"], "args": vec!["y"; 257]}}), vec!["spec.args"]),
        (
            "an annotation of 1 MB",
            json!({"metadata": {"annotations": {"x": "y".repeat(1 << 20)}}}),
            vec!["metadata.annotations"],
        ),
    ] {
        hold(&test, what, &sandbox(&test.cluster.image, &change), &words).await?;
    }
    let longest = try_create(&test.client, &test.namespace, &sandbox(&test.cluster.image, &name(63))).await?;
    ensure!(longest.is_none(), "a name of 63 characters is refused: {longest:?}");
    hold(&test, "a class's name of 55 characters", &class(&name(55)), &["metadata.name", "54"]).await
}

async fn bad_classes(test: Arc<Test>) -> Outcome {
    let weaker =
        json!({"trust": "Untrusted", "runtime": {"acceptWeakerIsolation": "no machine has a hypervisor"}});
    let root = json!({"security": {"runAsUser": 0, "allowRoot": true}});
    for (what, spec) in
        [("a good one", json!({})), ("one that accepts weaker", weaker), ("one that allows root", root)]
    {
        let refusal = try_create(&test.client, "", &class(&json!({"spec": spec}))).await?;
        ensure!(refusal.is_none(), "{what} is refused: {refusal:?}");
    }
    for Row { what, change, words } in rows(CLASSES)? {
        hold(&test, &what, &class(&change), &words).await?;
    }
    Ok(())
}
