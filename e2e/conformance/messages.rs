//! What a refusal tells: the program that met it, and the person who asks why.

use std::sync::Arc;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Event;
use kube::{Api, api::ListParams};
use serde_json::json;

use glovebox::api::ConditionType;

use super::{Ground, script};
use crate::{
    attacks::Attack,
    harness::{
        Cases, Outcome, Runtime, Sandbox, Test,
        program::kubectl,
        sandbox::{says, told},
        wait,
    },
};

const MESSAGES: Attack = script!("messages.py", 12);

pub(super) fn cases(cases: &mut Cases) {
    cases.add("conformance::a_refusal_says_what_why_and_how_to_allow_it", 350, refusal);
}

/// The notes of Events of a reason on a sandbox.
async fn notes(test: &Test, sandbox: &Sandbox, reason: &str) -> Result<Vec<String>> {
    let events: Api<Event> = test.api();
    let list = events.list(&ListParams::default()).await?.items;
    let ours = list.into_iter().filter(|event| {
        event.involved_object.uid.as_ref() == Some(&sandbox.uid) && event.reason.as_deref() == Some(reason)
    });
    Ok(ours.filter_map(|event| event.message).collect())
}

async fn refusal(test: Arc<Test>) -> Outcome {
    let ground = Ground::open(&test).await?;
    let sandbox = ground.sandbox(Runtime::Runc, "curious", &json!({})).await?;
    let status = sandbox.status().await?;
    ensure!(says(&status, ConditionType::FenceVerified, "True", "FenceHolds"), "{}", told(&status));
    ground.attack(&sandbox, MESSAGES, &json!({})).await?;
    for words in [
        ["evil.example", "was not resolved", "NoRule", "spec.egress.allow"],
        ["evil.example:443", "was not reached", "NoRule", "spec.egress.allow"],
        ["web.example:80", "RequestNotAllowed", "\"web\"", "http.paths"],
        ["allowed.example:22", "was not reached", "PortNotAllowed", "spec.egress.allow"],
    ] {
        wait::poll(&format!("an Event EgressRefused tells {words:?}"), async || {
            let notes = notes(&test, &sandbox, "EgressRefused").await?;
            Ok(notes.iter().any(|note| words.iter().all(|word| note.contains(word))).then_some(()))
        })
        .await?;
    }
    let described = kubectl(&["describe", "asb", &sandbox.name, "--namespace", &sandbox.namespace]).await?;
    for word in ["EgressRefused", "evil.example", "FenceVerified", "FenceHolds"] {
        ensure!(described.contains(word), "kubectl describe does not tell {word:?}:\n{described}");
    }
    let path = r#"jsonpath={.status.conditions[?(@.type=="FenceVerified")].status}"#;
    let fence =
        kubectl(&["get", "asb", &sandbox.name, "--namespace", &sandbox.namespace, "--output", path]).await?;
    ensure!(fence == "True", "kubectl get tells of FenceVerified: {fence:?}");
    let open = notes(&test, &sandbox, "FenceOpen").await?;
    ensure!(open.is_empty(), "the tripwire was reached: {open:?}");
    ground.nothing_leaked(&sandbox).await
}
