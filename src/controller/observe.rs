//! The only reader of the cluster for a sandbox's reconcile: stores, and references while there is no pod.

use std::{net::IpAddr, sync::Arc};

use jiff::Timestamp;
use k8s_openapi::api::{
    core::v1::{ConfigMap, Node, PersistentVolumeClaim, Pod},
    networking::v1::NetworkPolicy,
};
use kube::{Api, Resource, ResourceExt, core::DeserializeGuard};

use super::{context::Context, error::ApplyError, idle, named};
use crate::{
    api::{AgentSandbox, DEFAULT_CLASS_ANNOTATION, Reason, SandboxClass},
    kubernetes::{get, readable},
    sandbox::{
        Refusal, fence, lifecycle,
        named::View,
        names, ranges,
        world::{PodSlot, World},
    },
};

/// Looks at everything that concerns one sandbox.
///
/// # Errors
/// When a reference could not be looked up; the rest comes from stores.
pub(super) async fn observe(
    context: &Context,
    sandbox: Arc<AgentSandbox>,
    now: Timestamp,
) -> Result<World, ApplyError> {
    let stores = &context.stores;
    let namespace = sandbox.namespace().unwrap_or_default();
    let name = sandbox.name_any();
    let pod = slot(context, &namespace, &name, sandbox.uid().as_deref(), now);
    let class = class(context, &sandbox, &pod);
    let class_object =
        class.as_ref().ok().map(|class| names::class_object(&class.name_any())).unwrap_or_default();
    let runtime_class = class
        .as_ref()
        .ok()
        .and_then(|class| class.spec.runtime.runtime_class_name.as_deref())
        .and_then(|name| get(&stores.runtime_classes, name, None));
    let needs_references = matches!(pod, PodSlot::Free)
        && !lifecycle::is_finished(&sandbox)
        && sandbox.meta().deletion_timestamp.is_none();
    let unresolved = if needs_references { unresolved(context, &sandbox).await? } else { None };
    let nodes: Vec<Arc<Node>> = stores.nodes.state().iter().filter_map(|node| readable(node)).collect();
    let mut world = World {
        namespace_labels: get(&stores.namespaces, &namespace, None).map(|ns| ns.labels().clone()),
        runtime_class,
        cluster: ranges::cluster(&context.cluster, nodes.iter().map(AsRef::as_ref)),
        nodes,
        fence: get(&stores.policies, names::FENCE, Some(&namespace)),
        cidr_policy: get(&stores.policies, &names::cidr_policy(&name), Some(&namespace)),
        credential_grant: {
            let name = names::credentials(&name);
            (get(&stores.roles, &name, Some(&namespace)), get(&stores.role_bindings, &name, Some(&namespace)))
        },
        egress_policies: sandbox
            .spec
            .egress
            .policies
            .iter()
            .filter_map(|name| get(&stores.egress_policies, name, Some(&namespace)))
            .collect(),
        approvals: context.approvals(&sandbox),
        wanted: context.suspects.wanted(sandbox.uid().as_deref()),
        quota: get(&stores.quotas, &class_object, Some(&namespace)),
        priority_class: get(&stores.priority_classes, &class_object, None),
        unresolved,
        breach: breach(context, &sandbox, &class.as_ref().map(|class| class.name_any()).unwrap_or_default()),
        gateway: gateway(context),
        authority: context.authority.now(),
        call_keys: context.call_keys.now(),
        named: View::None,
        last_use: None,
        seen: context.suspects.seen(sandbox.uid().as_deref()),
        settings: context.settings.clone(),
        class,
        pod,
        sandbox,
    };
    world.named = named::view(context, &world, now);
    world.last_use = idle::look(context, &world, now).await;
    Ok(world)
}

/// The address of the gateway's Service: of the first family that the cluster prefers.
fn gateway(context: &Context) -> Option<IpAddr> {
    let service = get(&context.stores.services, names::GATEWAY, Some(&context.settings.namespace))?;
    service.spec.as_ref()?.cluster_ip.as_deref()?.parse().ok()
}

/// Who has the pod's name. A pod that we made a moment ago counts, though no watch has shown it yet.
fn slot(context: &Context, namespace: &str, name: &str, uid: Option<&str>, now: Timestamp) -> PodSlot {
    let shown = get(&context.stores.pods, name, Some(namespace)).map_or(PodSlot::Free, |pod| owner(pod, uid));
    let unseen = uid.and_then(|uid| context.unseen(uid, matches!(shown, PodSlot::Ours(_)), now));
    unseen.map_or(shown, PodSlot::Ours)
}

/// The first NetworkPolicy of somebody else that lets something through for this sandbox's pod: policies add up, so that it
/// would open the fence. Ours are known by their names, whose content we see to; a label could be anybody's.
fn breach(context: &Context, sandbox: &AgentSandbox, class: &str) -> Option<String> {
    let name = sandbox.name_any();
    let labels = names::sandbox_labels(&name, class);
    let ours = [names::FENCE.to_owned(), names::cidr_policy(&name)];
    let opens = |guarded: &DeserializeGuard<NetworkPolicy>| {
        guarded.meta().namespace == sandbox.metadata.namespace
            && !ours.contains(&guarded.name_any())
            && guarded.0.as_ref().is_ok_and(|policy| fence::opens(policy, &labels))
    };
    context.stores.policies.find(opens).map(|policy| policy.name_any())
}

/// Whose pod it is: by owner's uid, never by name alone.
pub(super) fn owner(pod: Arc<Pod>, uid: Option<&str>) -> PodSlot {
    let controller = pod.owner_references().iter().find(|owner| owner.controller == Some(true));
    match controller {
        Some(owner) if owner.kind == AgentSandbox::kind(&()) && Some(owner.uid.as_str()) == uid => {
            PodSlot::Ours(pod)
        }
        Some(owner) if owner.kind == AgentSandbox::kind(&()) => {
            PodSlot::Taken { by: "a former sandbox of this name".into(), former: true }
        }
        Some(owner) => PodSlot::Taken { by: format!("{} {:?}", owner.kind, owner.name), former: false },
        None => PodSlot::Taken { by: "nobody".into(), former: false },
    }
}

/// The class that the sandbox names; that of its pod, if it names none and has one; else the default.
fn class(context: &Context, sandbox: &AgentSandbox, pod: &PodSlot) -> Result<Arc<SandboxClass>, Refusal> {
    let of_pod = match pod {
        PodSlot::Ours(pod) => pod.labels().get(names::CLASS_LABEL).cloned(),
        PodSlot::Free | PodSlot::Taken { .. } => None,
    };
    let of_status = sandbox
        .status
        .as_ref()
        .filter(|_| lifecycle::is_finished(sandbox))
        .and_then(|status| status.class_name.clone());
    if let Some(name) = sandbox.spec.class_name.clone().or(of_pod).or(of_status) {
        return get(&context.stores.classes, &name, None)
            .ok_or_else(|| Refusal::accepted(Reason::ClassNotFound, format!("spec.className: SandboxClass {name:?} does not exist; `kubectl get sandboxclasses` lists them")));
    }
    let marked = |class: &DeserializeGuard<SandboxClass>| {
        class.annotations().get(DEFAULT_CLASS_ANNOTATION).map(String::as_str) == Some("true")
    };
    let mut defaults = context.stores.classes.state_filter(marked);
    // Two defaults: the older one, so that adding another changes nothing.
    defaults.sort_by_key(|class| (class.creation_timestamp().map(|time| time.0), class.name_any()));
    defaults.first().and_then(|class| readable(class)).ok_or_else(|| {
        let message = format!("spec.className is absent and no SandboxClass has the annotation {DEFAULT_CLASS_ANNOTATION}: \"true\"");
        Refusal::accepted(Reason::ClassNotFound, message)
    })
}

/// The first ConfigMap, key or claim that the sandbox names and that does not exist.
async fn unresolved(context: &Context, sandbox: &AgentSandbox) -> Result<Option<Refusal>, ApplyError> {
    let namespace = sandbox.namespace().unwrap_or_default();
    let maps: Api<ConfigMap> = Api::namespaced(context.client.clone(), &namespace);
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(context.client.clone(), &namespace);
    for variable in &sandbox.spec.env {
        let Some(key) = variable.value_from.as_ref().and_then(|from| from.config_map_key_ref.as_ref()) else {
            continue;
        };
        let field = format!("spec.env[{}].valueFrom.configMapKeyRef", variable.name);
        match context.call("get ConfigMap", maps.get_opt(&key.name)).await? {
            None => return Ok(Some(no_map(&field, &key.name))),
            Some(map) if !map.data.as_ref().is_some_and(|data| data.contains_key(&key.key)) => {
                let message = format!("{field}: ConfigMap {:?} has no key {:?}", key.name, key.key);
                return Ok(Some(Refusal::unresolved(Reason::ConfigMapNotFound, message)));
            }
            Some(_) => {}
        }
    }
    for input in &sandbox.spec.workspace.inputs {
        let field = format!("spec.workspace.inputs[{}]", input.name);
        if let Some(name) = &input.config_map
            && context.call("get ConfigMap", maps.get_metadata_opt(name)).await?.is_none()
        {
            return Ok(Some(no_map(&field, name)));
        }
        if let Some(name) = &input.persistent_volume_claim
            && context.call("get PersistentVolumeClaim", claims.get_metadata_opt(name)).await?.is_none()
        {
            let message = format!("{field}: PersistentVolumeClaim {name:?} does not exist in this namespace");
            return Ok(Some(Refusal::unresolved(Reason::PersistentVolumeClaimNotFound, message)));
        }
    }
    Ok(None)
}

fn no_map(field: &str, name: &str) -> Refusal {
    Refusal::unresolved(
        Reason::ConfigMapNotFound,
        format!("{field}: ConfigMap {name:?} does not exist in this namespace"),
    )
}
