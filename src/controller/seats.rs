//! Seats under a quota: what this process is about to create, made, or sees, counted before each creation.
//!
//! The API server admits by its own picture of the quota, which lags behind a quota that was just made: whatever comes in that
//! moment passes uncounted. One process creates sandboxes' pods, so that it can count for itself.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::{Resource, ResourceExt};

use super::{context::Context, error::ApplyError};
use crate::{
    api::AgentSandbox,
    sandbox::{
        Plan, World, names,
        quota::{self, Use},
    },
};

/// Seats of creations under way, by the sandbox's uid.
#[derive(Clone, Debug, Default)]
pub(super) struct Seats(Arc<Mutex<HashMap<String, Seat>>>);

#[derive(Clone, Debug)]
struct Seat {
    namespace: String,
    class: String,
    needs: Use,
}

/// A seat, given back when it is dropped. By then its pod is known, or was not made.
#[derive(Debug)]
pub(super) struct Taken {
    seats: Seats,
    uid: String,
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.seats.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.uid);
    }
}

/// Takes a seat for the sandbox's pod.
///
/// # Errors
/// When the class's quota has no room beside all that is known.
pub(super) fn take(
    context: &Context,
    world: &World,
    plan: &Plan,
    now: Timestamp,
) -> Result<Taken, ApplyError> {
    let uid = world.sandbox.uid().unwrap_or_default();
    let seats = context.seats.clone();
    let mut held = seats.0.lock().unwrap_or_else(PoisonError::into_inner);
    let mut all: HashMap<String, Use> = HashMap::new();
    counted(context, plan, now, |pod| {
        all.insert(owner(pod), Use::of(pod));
    });
    let same = |seat: &&Seat| seat.namespace == plan.namespace && seat.class == plan.class.name;
    all.extend(held.iter().filter(|(_, seat)| same(seat)).map(|(uid, seat)| (uid.clone(), seat.needs)));
    all.remove(&uid);
    let used = all.into_values().fold(Use::default(), Use::plus);
    if let Some(message) = quota::excess_of(plan, used, world.runtime_class.as_deref()) {
        return Err(ApplyError::Quota(message));
    }
    let needs = quota::needs(plan.limits, world.runtime_class.as_deref());
    held.insert(
        uid.clone(),
        Seat { namespace: plan.namespace.clone(), class: plan.class.name.clone(), needs },
    );
    drop(held);
    Ok(Taken { seats, uid })
}

/// Pods of the plan's class and namespace that a quota counts: those that watches show, and those that were just made.
fn counted(context: &Context, plan: &Plan, now: Timestamp, mut each: impl FnMut(&Pod)) {
    let counts = |pod: &Pod| {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        pod.metadata.namespace.as_deref() == Some(&plan.namespace)
            && pod.labels().get(names::CLASS_LABEL) == Some(&plan.class.name)
            && !matches!(phase, Some("Succeeded" | "Failed"))
    };
    context.unseen_pods(now).iter().filter(|pod| counts(pod)).for_each(|pod| each(pod));
    let shown = context.stores.pods.state_filter(|pod| pod.0.as_ref().is_ok_and(&counts));
    shown.iter().filter_map(|pod| pod.0.as_ref().ok()).for_each(each);
}

fn owner(pod: &Pod) -> String {
    let owners = pod.owner_references();
    let sandbox =
        owners.iter().find(|owner| owner.kind == AgentSandbox::kind(&())).map(|owner| owner.uid.clone());
    sandbox.or_else(|| pod.uid()).unwrap_or_default()
}
