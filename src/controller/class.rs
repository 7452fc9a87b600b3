//! One pass over one class: whether its runtime can start a sandbox, and how many there are.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::{
    api::{core::v1::Node, node::v1::RuntimeClass},
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
};
use kube::{
    Api, Resource, ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::json;

use super::{
    canary::{self, Trial},
    context::{Context, Guarded},
    error::ApplyError,
};
use crate::{
    api::{ConditionType, DEFAULT_CLASS_ANNOTATION, Probe, Reason, SandboxClass, SandboxClassStatus},
    kubernetes::{get, readable},
    sandbox::{
        lifecycle, names,
        runtime::{self, Availability},
    },
};

/// How often sandboxes are counted: often enough for a person, seldom enough to be no load.
const COUNT_EVERY: Duration = Duration::from_secs(30);

/// Brings the status of a class up to date. Says when to look again, if nothing happens before.
///
/// # Errors
/// Whatever call failed.
pub async fn reconcile(
    guarded: Arc<Guarded<SandboxClass>>,
    context: Arc<Context>,
    now: Timestamp,
) -> Result<Duration, ApplyError> {
    let class = guarded.0.as_ref().map_err(|invalid| ApplyError::Poisoned(invalid.error.clone()))?;
    let runtime_class = runtime_class(&context, class);
    let found = availability(&context, class, runtime_class.as_deref());
    // Only a class whose lower rungs hold is worth a trial.
    let trial = match found.problem {
        None => canary::trial(&context, class, runtime_class.as_deref(), now).await?,
        Some(_) => Trial { probe: class.status.as_ref().and_then(|status| status.probe.clone()), wait: None },
    };
    let status = status(&context, class, runtime::with_trial(found, trial.probe.as_ref()), trial.probe, now);
    context.metrics.sandboxes(&class.name_any(), status.sandboxes.unwrap_or(0));
    if class.status.as_ref() != Some(&status) {
        let api: Api<SandboxClass> = Api::all(context.client.clone());
        let name = class.name_any();
        let patch = json!({
            "apiVersion": SandboxClass::api_version(&()),
            "kind": SandboxClass::kind(&()),
            "metadata": {"name": name, "uid": class.uid()},
            "status": status,
        });
        let params = PatchParams::apply(names::FIELD_MANAGER).force();
        context
            .call("write the class's status", api.patch_status(&name, &params, &Patch::Apply(patch)))
            .await?;
    }
    context.succeeded(class.metadata.uid.as_deref().unwrap_or_default());
    context.sweep();
    Ok(trial.wait.unwrap_or(COUNT_EVERY))
}

fn runtime_class(context: &Context, class: &SandboxClass) -> Option<Arc<RuntimeClass>> {
    let name = class.spec.runtime.runtime_class_name.as_deref()?;
    get(&context.stores.runtime_classes, name, None)
}

fn availability(
    context: &Context,
    class: &SandboxClass,
    runtime_class: Option<&RuntimeClass>,
) -> Availability {
    let nodes: Vec<Arc<Node>> =
        context.stores.nodes.state().iter().filter_map(|node| readable(node)).collect();
    runtime::availability(&class.spec, runtime_class, &nodes)
}

fn status(
    context: &Context,
    class: &SandboxClass,
    found: Availability,
    probe: Option<Probe>,
    now: Timestamp,
) -> SandboxClassStatus {
    let holds = found.problem.is_none();
    let (reason, message) =
        found.problem.unwrap_or_else(|| (Reason::Available, "the runtime can start sandboxes".into()));
    let status = if holds { "True" } else { "False" };
    let known = class.status.iter().flat_map(|status| &status.conditions);
    let since = known
        .filter(|known| known.type_ == ConditionType::RuntimeAvailable.as_str() && known.status == status)
        .map(|known| known.last_transition_time.clone())
        .next();
    SandboxClassStatus {
        conditions: vec![Condition {
            type_: ConditionType::RuntimeAvailable.as_str().into(),
            status: status.into(),
            reason: reason.as_str().into(),
            message,
            last_transition_time: since.unwrap_or(Time(now)),
            observed_generation: class.metadata.generation,
        }],
        observed_generation: class.metadata.generation,
        eligible_nodes: Some(i32::try_from(found.eligible_nodes).unwrap_or(i32::MAX)),
        sandboxes: Some(count(context, class)),
        probe,
    }
}

fn count(context: &Context, class: &SandboxClass) -> i32 {
    let name = class.name_any();
    let default = class.annotations().get(DEFAULT_CLASS_ANNOTATION).map(String::as_str) == Some("true");
    let of_class = context.stores.sandboxes.state_filter(|guarded| {
        guarded.0.as_ref().is_ok_and(|sandbox| {
            let used = sandbox
                .status
                .as_ref()
                .and_then(|status| status.class_name.as_ref())
                .or(sandbox.spec.class_name.as_ref());
            !lifecycle::is_finished(sandbox) && used.map_or(default, |used| *used == name)
        })
    });
    i32::try_from(of_class.len()).unwrap_or(i32::MAX)
}

/// Counts a failure. Says when to try again.
pub fn failed(guarded: &Guarded<SandboxClass>, error: &ApplyError, context: &Context) -> Duration {
    let policy = error.class().policy();
    context.metrics.failure(policy.label);
    let failures = context.failed(guarded.meta().uid.as_deref().unwrap_or_default());
    tracing::warn!(class = %guarded.name_any(), kind = policy.label, failures, %error, "reconcile of a class failed");
    policy.wait(failures)
}
