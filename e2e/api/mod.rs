//! The API: what the API server refuses by itself, what the controller refuses, and what a person sees of it.

mod bad;
mod examples;
mod face;
mod immutable;
mod refused;

use anyhow::Result;
use kube::{Client, core::Status};
use serde_json::{Value, json};

use crate::harness::{Cases, classes::merge};

/// Adds the tests.
pub(crate) fn cases(cases: &mut Cases) {
    bad::cases(cases);
    immutable::cases(cases);
    refused::cases(cases);
    face::cases(cases);
    examples::cases(cases);
}

/// Sends an object for a trial, strictly: a field that is not known is an error. Gives the refusal, if it is refused.
async fn try_create(client: &Client, namespace: &str, object: &Value) -> Result<Option<Status>> {
    let collection = match object["kind"].as_str() {
        Some("SandboxClass") => "sandboxclasses".to_owned(),
        _ => format!("namespaces/{namespace}/agentsandboxes"),
    };
    let request = http_post(
        &format!("/apis/glovebox.dev/v1alpha1/{collection}?dryRun=All&fieldValidation=Strict"),
        object,
    )?;
    match client.request_text(request).await {
        Ok(_) => Ok(None),
        Err(kube::Error::Api(status)) => Ok(Some(*status)),
        Err(error) => Err(error.into()),
    }
}

fn http_post(path: &str, body: &Value) -> Result<axum::http::Request<Vec<u8>>> {
    let request = axum::http::Request::post(path).header("Content-Type", "application/json");
    Ok(request.body(serde_json::to_vec(body)?)?)
}

/// A good sandbox, changed.
fn sandbox(image: &str, change: &Value) -> Value {
    let mut object = json!({
        "apiVersion": "glovebox.dev/v1alpha1", "kind": "AgentSandbox", "metadata": {"name": "x"},
        "spec": {"className": "e2e-runc", "image": image},
    });
    merge(&mut object, change);
    object
}

/// A good class, changed.
fn class(change: &Value) -> Value {
    let mut object = json!({
        "apiVersion": "glovebox.dev/v1alpha1", "kind": "SandboxClass", "metadata": {"name": "x"},
        "spec": {"trust": "Restricted", "runtime": {"runtimeClassName": "gvisor", "handler": "runsc", "isolation": "UserspaceKernel"}},
    });
    merge(&mut object, change);
    object
}
