//! Asks people for destinations that sandboxes want and no rule names, and says where each question stands.

use std::time::Duration;

use jiff::Timestamp;
use kube::{
    Api, ResourceExt as _,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;

use super::{
    context::Context,
    error::{ApplyError, ErrorClass},
    evidence,
};
use crate::{
    api::{EgressApproval, EgressApprovalStatus},
    sandbox::{
        approvals::{self, Step},
        names,
        world::World,
    },
};

/// How soon a question that could not be written is tried again.
const AGAIN: Duration = Duration::from_secs(5);

/// Brings what is asked for one sandbox up to date. When to look again, if nothing happens before. What can't be written holds up
/// nothing else of the sandbox: it can want as much as it likes.
pub(super) async fn keep(context: &Context, world: &World, now: Timestamp) -> Option<Duration> {
    let (steps, next) = approvals::steps(world, now);
    let api: Api<EgressApproval> =
        Api::namespaced(context.client.clone(), &world.sandbox.namespace().unwrap_or_default());
    let mut wait = next.map(|ends| Duration::try_from(ends.duration_since(now)).unwrap_or_default());
    for step in steps {
        let done = match step {
            Step::Create(asked) => ask(context, &api, &asked).await,
            Step::Tell { name, status } => tell(context, world, &api, &name, &status).await,
        };
        if let Err(error) = done {
            let class = error.class().policy().label;
            context.metrics.failure(class);
            tracing::warn!(sandbox = %world.sandbox.name_any(), namespace = world.sandbox.namespace(), class, %error, "an approval is not written");
            wait = wait.into_iter().chain([AGAIN]).min();
        }
    }
    wait
}

async fn ask(context: &Context, api: &Api<EgressApproval>, asked: &EgressApproval) -> Result<(), ApplyError> {
    match context.call("ask for a destination", api.create(&PostParams::default(), asked)).await {
        Ok(made) => {
            evidence::asked(context, &made);
            context.remember_approval(made);
            Ok(())
        }
        // The watch has not shown it yet.
        Err(error) if error.class() == ErrorClass::Conflict => Ok(()),
        Err(error) => Err(error),
    }
}

async fn tell(
    context: &Context,
    world: &World,
    api: &Api<EgressApproval>,
    name: &str,
    status: &EgressApprovalStatus,
) -> Result<(), ApplyError> {
    let known = world.approvals.iter().find(|approval| approval.name_any() == name);
    let patch = Patch::Apply(json!({
        "apiVersion": "glovebox.dev/v1alpha1", "kind": "EgressApproval",
        "metadata": {"name": name, "uid": known.and_then(|known| known.uid())},
        "status": status,
    }));
    let params = PatchParams::apply(names::FIELD_MANAGER).force();
    let written = api.patch_status(name, &params, &patch);
    let written = context.call("write the status of an approval", written).await?;
    context.remember_approval(written);
    if let Some(known) = known {
        evidence::decided(context, known, status);
    }
    Ok(())
}
