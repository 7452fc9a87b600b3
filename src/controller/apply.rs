//! Makes the cluster be as desired: the fence before everything, the pod last and once.
//!
//! Takes `Desired<Planned>`, gives `Desired<Applied>`. What stands already as it should costs no call.

use std::{fmt::Debug, sync::Arc};

use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        core::v1::{Pod, ResourceQuota},
        networking::v1::NetworkPolicy,
        rbac::v1::{Role, RoleBinding},
        scheduling::v1::PriorityClass,
    },
};
use kube::{
    Api, Resource, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
};
use serde::{Serialize, de::DeserializeOwned};

use super::{context::Context, error::ApplyError, observe};
use crate::sandbox::{
    Applied, Desired, Planned, credentials,
    desired::Wanted,
    fence, names,
    world::{self, PodSlot, World},
};

/// Applies everything, the pod included.
pub(super) async fn apply(
    context: &Context,
    world: &World,
    desired: Desired<Planned>,
) -> Result<Desired<Applied>, ApplyError> {
    let around = around(context, world, desired).await?;
    let pod = create(context, world, around.pod).await?;
    let grant = (around.credential_role, around.credential_binding);
    Ok(Desired::applied(around.fence, around.priority_class, around.quota, around.cidr_policy, grant, pod))
}

/// The same without the pod: for one that lives already.
pub(super) async fn keep(
    context: &Context,
    world: &World,
    desired: Desired<Planned>,
) -> Result<(), ApplyError> {
    around(context, world, desired).await.map(|_| ())
}

/// What stands around the pod, and the pod as it is to be made.
struct Around {
    fence: NetworkPolicy,
    priority_class: PriorityClass,
    quota: Wanted<ResourceQuota>,
    cidr_policy: Wanted<NetworkPolicy>,
    credential_role: Wanted<Role>,
    credential_binding: Wanted<RoleBinding>,
    pod: Pod,
}

async fn around(context: &Context, world: &World, desired: Desired<Planned>) -> Result<Around, ApplyError> {
    let Desired {
        fence, priority_class, quota, cidr_policy, credential_role, credential_binding, pod, ..
    } = desired;
    stand(context, &fence, world.fence.as_ref(), fence::same).await?;
    stand_priority_class(context, &priority_class, world.priority_class.as_ref()).await?;
    settle(context, world, &quota, world.quota.as_ref(), |have, want| have.spec == want.spec).await?;
    settle(context, world, &cidr_policy, world.cidr_policy.as_ref(), fence::same).await?;
    let (role, binding) = &world.credential_grant;
    settle(context, world, &credential_role, role.as_ref(), credentials::same_role).await?;
    settle(context, world, &credential_binding, binding.as_ref(), credentials::same_binding).await?;
    Ok(Around { fence, priority_class, quota, cidr_policy, credential_role, credential_binding, pod })
}

/// The fence alone: it stands whatever became of the spec of a sandbox that lives behind it.
pub(super) async fn fence(context: &Context, world: &World) -> Result<(), ApplyError> {
    let wanted = fence::fence(&world.sandbox.namespace().unwrap_or_default(), &world.settings.namespace);
    stand(context, &wanted, world.fence.as_ref(), fence::same).await
}

/// Closes what the sandbox's rules had opened.
pub(super) async fn close(context: &Context, world: &World) -> Result<(), ApplyError> {
    let absent = Wanted::<NetworkPolicy>::Absent(names::cidr_policy(&world.sandbox.name_any()));
    settle(context, world, &absent, world.cidr_policy.as_ref(), |_, _| true).await?;
    revoke(context, world).await
}

/// Takes the sandbox's credentials from the gateway.
pub(super) async fn revoke(context: &Context, world: &World) -> Result<(), ApplyError> {
    let name = names::credentials(&world.sandbox.name_any());
    let (role, binding) = &world.credential_grant;
    settle(context, world, &Wanted::<RoleBinding>::Absent(name.clone()), binding.as_ref(), |_, _| true)
        .await?;
    settle(context, world, &Wanted::<Role>::Absent(name), role.as_ref(), |_, _| true).await
}

async fn settle<K>(
    context: &Context,
    world: &World,
    wanted: &Wanted<K>,
    have: Option<&Arc<K>>,
    same: fn(&K, &K) -> bool,
) -> Result<(), ApplyError>
where
    K: Object + Resource<Scope = NamespaceResourceScope>,
{
    match (wanted, have) {
        (Wanted::Present(want), have) => stand(context, want.as_ref(), have, same).await,
        (Wanted::Absent(name), Some(_)) => {
            let api: Api<K> =
                Api::namespaced(context.client.clone(), &world.sandbox.namespace().unwrap_or_default());
            gone(
                context
                    .call(
                        "delete an object that is not wanted any more",
                        api.delete(name, &DeleteParams::default()),
                    )
                    .await,
            )
        }
        (Wanted::Absent(_), None) => Ok(()),
    }
}

/// What all these calls need of a kind.
trait Object: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned + Send + Sync {}
impl<K: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned + Send + Sync> Object
    for K
{
}

/// Whether labels and owners are there too; others may have added their own.
fn dressed<K: Resource>(have: &K, want: &K) -> bool {
    let labels = |object: &K| object.meta().labels.clone().unwrap_or_default();
    let owners = |object: &K| object.meta().owner_references.clone().unwrap_or_default();
    let has = labels(have);
    let owned = owners(have);
    labels(want).iter().all(|(key, value)| has.get(key) == Some(value))
        && owners(want).iter().all(|owner| owned.iter().any(|other| other.uid == owner.uid))
}

async fn stand<K>(
    context: &Context,
    want: &K,
    have: Option<&Arc<K>>,
    same: fn(&K, &K) -> bool,
) -> Result<(), ApplyError>
where
    K: Object + Resource<Scope = NamespaceResourceScope>,
{
    if have.is_some_and(|have| same(have, want) && dressed(have.as_ref(), want)) {
        return Ok(());
    }
    let api: Api<K> = Api::namespaced(context.client.clone(), &want.namespace().unwrap_or_default());
    let params = PatchParams::apply(names::FIELD_MANAGER).force();
    let stands = context
        .call("apply an object around the sandbox", api.patch(&want.name_any(), &params, &Patch::Apply(want)))
        .await?;
    if same(&stands, want) { Ok(()) } else { overwrite(context, &api, want).await }
}

/// An apply leaves what others added to the spec, such as a rule that opens the fence: the whole spec is replaced.
async fn overwrite<K: Object>(context: &Context, api: &Api<K>, want: &K) -> Result<(), ApplyError> {
    let poisoned = |error: serde_json::Error| ApplyError::Poisoned(error.to_string());
    let spec = serde_json::to_value(want).map_err(poisoned)?["spec"].take();
    let replace = serde_json::json!([{"op": "replace", "path": "/spec", "value": spec}]);
    let patch = Patch::<()>::Json(serde_json::from_value(replace).map_err(poisoned)?);
    let params = PatchParams { field_manager: Some(names::FIELD_MANAGER.into()), ..PatchParams::default() };
    context
        .call(
            "replace the spec of an object around the sandbox",
            api.patch(&want.name_any(), &params, &patch),
        )
        .await
        .map(|_| ())
}

/// A PriorityClass can't be changed: one of an older class of the same name is replaced.
async fn stand_priority_class(
    context: &Context,
    want: &PriorityClass,
    have: Option<&Arc<PriorityClass>>,
) -> Result<(), ApplyError> {
    let same =
        |have: &PriorityClass| have.value == want.value && have.preemption_policy == want.preemption_policy;
    if have.is_some_and(|have| same(have) && dressed(have.as_ref(), want)) {
        return Ok(());
    }
    let api: Api<PriorityClass> = Api::all(context.client.clone());
    let name = want.name_any();
    if let Some(have) = have.filter(|have| !same(have)) {
        let params = DeleteParams {
            preconditions: Some(Preconditions { uid: have.uid(), resource_version: None }),
            ..DeleteParams::default()
        };
        gone(context.call("delete a PriorityClass of other value", api.delete(&name, &params)).await)?;
    }
    let params = PatchParams::apply(names::FIELD_MANAGER).force();
    context.call("apply the PriorityClass", api.patch(&name, &params, &Patch::Apply(want))).await?;
    Ok(())
}

/// Creates the pod. A reply that was lost is found again by the owner's uid.
async fn create(context: &Context, world: &World, pod: Pod) -> Result<Pod, ApplyError> {
    let api: Api<Pod> = Api::namespaced(context.client.clone(), &pod.namespace().unwrap_or_default());
    let name = pod.name_any();
    // A creation that finds its name taken is charged to the quota all the same, so that after a failure the name is looked
    // at first; the charge would wake us again, too.
    if context.has_failed(&world.sandbox.uid().unwrap_or_default())
        && let Some(pod) = holder(context, world, &api, &name).await?
    {
        return Ok(pod);
    }
    let params = PostParams { field_manager: Some(names::FIELD_MANAGER.into()), ..PostParams::default() };
    let error = match context.call("create the pod", api.create(&params, &pod)).await {
        Ok(pod) => return Ok(pod),
        Err(error) => error,
    };
    let ApplyError::Call { source, .. } = &error else { return Err(error) };
    match source.as_ref() {
        kube::Error::Api(status) if status.code == 409 && status.reason == "AlreadyExists" => {
            holder(context, world, &api, &name).await?.ok_or(error)
        }
        kube::Error::Api(status) if status.code == 403 && status.message.contains("exceeded quota") => {
            Err(ApplyError::Quota(status.message.chars().take(1000).collect()))
        }
        _ => Err(error),
    }
}

/// The sandbox's own pod, if it has the name.
///
/// # Errors
/// When somebody else's pod has it. One without our label is in no store, so that only its name tells of it.
async fn holder(
    context: &Context,
    world: &World,
    api: &Api<Pod>,
    name: &str,
) -> Result<Option<Pod>, ApplyError> {
    let found = context.call("get the pod that has the name", api.get_opt(name)).await?;
    match found.map(|found| observe::owner(Arc::new(found), world.sandbox.uid().as_deref())) {
        Some(PodSlot::Ours(pod)) => Ok(Some(Arc::unwrap_or_clone(pod))),
        Some(PodSlot::Taken { by, former: false }) => Err(ApplyError::Taken(world::taken(name, &by))),
        Some(PodSlot::Taken { former: true, .. }) => Err(ApplyError::Former),
        Some(PodSlot::Free) | None => Ok(None),
    }
}

/// Lowers the pod's own deadline, the second enforcer of the sandbox's.
pub(super) async fn lower_deadline(context: &Context, world: &World, seconds: i64) -> Result<(), ApplyError> {
    let api: Api<Pod> =
        Api::namespaced(context.client.clone(), &world.sandbox.namespace().unwrap_or_default());
    let uid = world.own_pod().and_then(|pod| pod.uid());
    let patch = serde_json::json!({"metadata": {"uid": uid}, "spec": {"activeDeadlineSeconds": seconds}});
    let name = world.sandbox.name_any();
    context
        .call("lower the pod's deadline", api.patch(&name, &PatchParams::default(), &Patch::Merge(patch)))
        .await
        .map(|_| ())
}

/// Deletes the sandbox's own pod, never a namesake.
pub(super) async fn delete_pod(context: &Context, world: &World) -> Result<(), ApplyError> {
    let Some(pod) = world.own_pod().filter(|pod| pod.meta().deletion_timestamp.is_none()) else {
        return Ok(());
    };
    let api: Api<Pod> = Api::namespaced(context.client.clone(), &pod.namespace().unwrap_or_default());
    delete_once(context, "delete the pod", &api, pod.as_ref()).await
}

/// Deletes the finished sandbox, never a namesake.
pub(super) async fn delete_sandbox(context: &Context, world: &World) -> Result<(), ApplyError> {
    let sandbox = &world.sandbox;
    let api: Api<crate::api::AgentSandbox> =
        Api::namespaced(context.client.clone(), &sandbox.namespace().unwrap_or_default());
    delete_once(context, "delete the finished sandbox", &api, sandbox.as_ref()).await
}

/// Deletes just this object, and only once, however long the watch still shows it.
async fn delete_once<K: Object>(
    context: &Context,
    what: &'static str,
    api: &Api<K>,
    object: &K,
) -> Result<(), ApplyError> {
    let uid = object.uid().unwrap_or_default();
    if context.is_told_to_go(&uid) {
        return Ok(());
    }
    let preconditions = Some(Preconditions { uid: object.uid(), resource_version: None });
    let params = DeleteParams { preconditions, ..DeleteParams::background() };
    let answer = context.call(what, api.delete(&object.name_any(), &params)).await;
    if answer.is_ok() {
        context.told_to_go(uid);
    }
    gone(answer)
}

/// What is gone, or is another object by now, needs no deletion.
fn gone<T>(answer: Result<T, ApplyError>) -> Result<(), ApplyError> {
    match answer {
        Ok(_) => Ok(()),
        Err(ApplyError::Call { source, .. }) if matches!(source.as_ref(), kube::Error::Api(status) if status.code == 404 || status.code == 409) => {
            Ok(())
        }
        Err(error) => Err(error),
    }
}
