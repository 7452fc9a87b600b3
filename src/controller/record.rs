//! Writes statuses: only our fields, only of the object that was seen, only where something changed.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{
    Api, Resource, ResourceExt,
    api::{Patch, PatchParams},
    core::error_boundary::InvalidObject,
};
use serde_json::json;

use super::{context::Context, error::ApplyError};
use crate::{
    api::{AgentSandbox, AgentSandboxStatus, ConditionType, Reason},
    sandbox::names,
};

/// Writes the status of a sandbox.
pub(super) async fn record(
    context: &Context,
    sandbox: &AgentSandbox,
    status: &AgentSandboxStatus,
) -> Result<(), ApplyError> {
    let api: Api<AgentSandbox> =
        Api::namespaced(context.client.clone(), &sandbox.namespace().unwrap_or_default());
    let name = sandbox.name_any();
    // The uid makes the server refuse a namesake that was made meanwhile.
    let patch = json!({
        "apiVersion": AgentSandbox::api_version(&()),
        "kind": AgentSandbox::kind(&()),
        "metadata": {"name": name, "uid": sandbox.uid()},
        "status": status,
    });
    let params = PatchParams::apply(names::FIELD_MANAGER).force();
    let written = context
        .call("write the sandbox's status", api.patch_status(&name, &params, &Patch::Apply(patch)))
        .await?;
    context.remember(&written);
    Ok(())
}

/// Tells of a sandbox that can't be read: the schema was loosened, or the object is older than it.
pub(super) async fn record_invalid(context: &Context, invalid: &InvalidObject) -> Result<(), ApplyError> {
    let name = invalid.metadata.name.clone().unwrap_or_default();
    let api: Api<AgentSandbox> =
        Api::namespaced(context.client.clone(), invalid.metadata.namespace.as_deref().unwrap_or_default());
    let condition = Condition {
        type_: ConditionType::Accepted.as_str().into(),
        status: "False".into(),
        reason: Reason::InvalidSpec.as_str().into(),
        message: format!("the object can't be read: {}", invalid.error.chars().take(500).collect::<String>()),
        last_transition_time: Time(
            invalid.metadata.creation_timestamp.as_ref().map_or(jiff::Timestamp::UNIX_EPOCH, |time| time.0),
        ),
        observed_generation: invalid.metadata.generation,
    };
    let patch = json!({
        "apiVersion": AgentSandbox::api_version(&()),
        "kind": AgentSandbox::kind(&()),
        "metadata": {"name": name, "uid": invalid.metadata.uid},
        "status": {"phase": "Pending", "conditions": [condition]},
    });
    // The answer can't be read either: only whether it was taken matters.
    let params = PatchParams::apply(names::FIELD_MANAGER).force();
    let request = api.clone().into_client();
    let url = AgentSandbox::url_path(&(), invalid.metadata.namespace.as_deref());
    let http = kube::core::Request::new(url)
        .patch_subresource("status", &name, &params, &Patch::Apply(patch))
        .map_err(|error| ApplyError::Poisoned(error.to_string()))?;
    context.call("write the status of an unreadable sandbox", request.request_text(http)).await.map(|_| ())
}
