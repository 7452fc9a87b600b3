//! The ladder: can the class's runtime start a pod? Each rung has a reason of its own. Absent knowledge is "unknown", which
//! never blocks; a clear "no" does, and nothing ever falls back to a weaker runtime.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::{
    core::v1::{Node, Taint, Toleration},
    node::v1::RuntimeClass,
};

use crate::api::{Probe, ProbeOutcome, Reason, SandboxClass, SandboxClassSpec, UserNamespaces};

/// What the ladder found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Availability {
    /// The first rung that fails, with a message.
    pub problem: Option<(Reason, String)>,
    /// Nodes that could run the pod.
    pub eligible_nodes: usize,
    /// Whether every eligible node says that the handler supports user namespaces.
    pub user_namespaces: bool,
}

impl Availability {
    /// Whether no pod should be made. A missing node does not block: a pending pod is what makes an autoscaler add one. Nor does
    /// a trial that failed: each sandbox finds out by itself.
    #[must_use]
    pub fn blocking(&self) -> Option<&(Reason, String)> {
        self.problem
            .as_ref()
            .filter(|(reason, _)| !matches!(reason, Reason::NoEligibleNode | Reason::RuntimeProbeFailed))
    }
}

/// Which version of a class and its RuntimeClass a trial speaks of.
#[must_use]
pub fn version(class: &SandboxClass, runtime_class: Option<&RuntimeClass>) -> String {
    let runtime = runtime_class.and_then(|rc| rc.metadata.uid.as_deref()).unwrap_or("default");
    format!("{}.{runtime}", class.metadata.generation.unwrap_or_default())
}

/// What is known of a trial of just this version.
#[must_use]
pub fn probed<'a>(class: &'a SandboxClass, runtime_class: Option<&RuntimeClass>) -> Option<&'a Probe> {
    let probe = class.status.as_ref()?.probe.as_ref()?;
    (probe.of == version(class, runtime_class)).then_some(probe)
}

/// The last rung: what a trial says, where the rungs below say nothing.
#[must_use]
pub fn with_trial(mut found: Availability, probe: Option<&Probe>) -> Availability {
    if let Some(probe) = probe.filter(|probe| probe.outcome != ProbeOutcome::Passed)
        && found.problem.is_none()
    {
        found.problem = Some((Reason::RuntimeProbeFailed, probe.message.clone()));
    }
    found
}

/// Climbs the ladder.
#[must_use]
pub fn availability(
    class: &SandboxClassSpec,
    runtime_class: Option<&RuntimeClass>,
    nodes: &[Arc<Node>],
) -> Availability {
    let eligible: Vec<&Node> =
        nodes.iter().map(AsRef::as_ref).filter(|node| fits(node, class, runtime_class)).collect();
    let handler = class.runtime.handler.as_deref().unwrap_or("");
    let known: Vec<Option<bool>> = eligible.iter().map(|node| serves(node, handler)).collect();
    let problem = object_problem(class, runtime_class).or_else(|| {
        if eligible.is_empty() {
            let wanted = selector_text(class, runtime_class);
            Some((
                Reason::NoEligibleNode,
                format!("none of {} nodes is schedulable and has the labels {wanted}", nodes.len()),
            ))
        } else if known.iter().all(|served| *served == Some(false)) {
            let message =
                format!("none of {} eligible nodes serves the runtime handler {handler:?}", eligible.len());
            Some((Reason::RuntimeHandlerNotServed, message))
        } else {
            None
        }
    });
    let user_namespaces = class.security.user_namespaces == UserNamespaces::WhereSupported
        && !eligible.is_empty()
        && eligible.iter().all(|node| supports_user_namespaces(node, handler));
    Availability { problem, eligible_nodes: eligible.len(), user_namespaces }
}

fn object_problem(
    class: &SandboxClassSpec,
    runtime_class: Option<&RuntimeClass>,
) -> Option<(Reason, String)> {
    let name = class.runtime.runtime_class_name.as_deref()?;
    let Some(object) = runtime_class else {
        let message = format!(
            "RuntimeClass {name:?} does not exist; install its runtime or correct spec.runtime.runtimeClassName of the class"
        );
        return Some((Reason::RuntimeClassNotFound, message));
    };
    let handler = class.runtime.handler.as_deref().unwrap_or_default();
    (object.handler != handler).then(|| {
        let message = format!(
            "RuntimeClass {name:?} has the handler {:?}, but the class promises {handler:?}",
            object.handler
        );
        (Reason::RuntimeClassHandlerMismatch, message)
    })
}

/// Labels that a node must have: the RuntimeClass's and the class's.
fn selectors<'a>(
    class: &'a SandboxClassSpec,
    runtime_class: Option<&'a RuntimeClass>,
) -> impl Iterator<Item = (&'a String, &'a String)> {
    let of_runtime =
        runtime_class.and_then(|rc| rc.scheduling.as_ref()).and_then(|s| s.node_selector.as_ref());
    of_runtime.into_iter().flatten().chain(&class.scheduling.node_selector)
}

fn selector_text(class: &SandboxClassSpec, runtime_class: Option<&RuntimeClass>) -> String {
    let pairs: BTreeMap<_, _> = selectors(class, runtime_class).collect();
    format!("{pairs:?}")
}

fn fits(node: &Node, class: &SandboxClassSpec, runtime_class: Option<&RuntimeClass>) -> bool {
    let labels = node.metadata.labels.as_ref();
    let has = |key: &String, value: &String| labels.and_then(|labels| labels.get(key)) == Some(value);
    let spec = node.spec.as_ref();
    let of_runtime = runtime_class.and_then(|rc| rc.scheduling.as_ref()).and_then(|s| s.tolerations.as_ref());
    let tolerations: Vec<&Toleration> =
        of_runtime.into_iter().flatten().chain(&class.scheduling.tolerations).collect();
    let taints = spec.and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    selectors(class, runtime_class).all(|(key, value)| has(key, value))
        && !spec.and_then(|spec| spec.unschedulable).unwrap_or(false)
        && taints
            .iter()
            .filter(|taint| taint.effect != "PreferNoSchedule")
            .all(|taint| tolerated(taint, &tolerations))
}

fn tolerated(taint: &Taint, tolerations: &[&Toleration]) -> bool {
    tolerations.iter().any(|toleration| {
        let effect = toleration.effect.as_deref().unwrap_or("");
        let key = toleration.key.as_deref().unwrap_or("");
        let exists = toleration.operator.as_deref() == Some("Exists");
        (effect.is_empty() || effect == taint.effect)
            && (key == taint.key || (key.is_empty() && exists))
            && (exists || toleration.value.as_deref().unwrap_or("") == taint.value.as_deref().unwrap_or(""))
    })
}

/// `None`: the node does not say.
fn serves(node: &Node, handler: &str) -> Option<bool> {
    let handlers = node.status.as_ref()?.runtime_handlers.as_ref()?;
    Some(handlers.iter().any(|known| known.name.as_deref().unwrap_or("") == handler))
}

fn supports_user_namespaces(node: &Node, handler: &str) -> bool {
    let handlers = node.status.as_ref().and_then(|status| status.runtime_handlers.as_ref());
    handlers.into_iter().flatten().any(|known| {
        known.name.as_deref().unwrap_or("") == handler
            && known.features.as_ref().and_then(|features| features.user_namespaces) == Some(true)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn class(extra: &serde_json::Value) -> SandboxClassSpec {
        let mut spec = json!({"trust": "Restricted", "runtime": {"runtimeClassName": "gvisor", "handler": "runsc", "isolation": "UserspaceKernel"}});
        spec.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        serde_json::from_value(spec).unwrap()
    }

    fn runtime_class(handler: &str) -> RuntimeClass {
        serde_json::from_value(json!({"metadata": {"name": "gvisor"}, "handler": handler, "scheduling": {"nodeSelector": {"sandbox": "yes"}}})).unwrap()
    }

    fn node(value: serde_json::Value) -> Arc<Node> {
        Arc::new(serde_json::from_value(value).unwrap())
    }

    fn good_node() -> Arc<Node> {
        node(
            json!({"metadata": {"labels": {"sandbox": "yes"}}, "status": {"runtimeHandlers": [{"name": "runsc", "features": {"userNamespaces": true}}]}}),
        )
    }

    fn reason(spec: &SandboxClassSpec, rc: Option<&RuntimeClass>, nodes: &[Arc<Node>]) -> Option<Reason> {
        availability(spec, rc, nodes).problem.map(|(reason, _)| reason)
    }

    #[test]
    fn each_rung_has_its_reason() {
        let spec = class(&json!({}));
        let rc = runtime_class("runsc");
        assert_eq!(reason(&spec, None, &[good_node()]), Some(Reason::RuntimeClassNotFound));
        assert_eq!(
            reason(&spec, Some(&runtime_class("runc")), &[good_node()]),
            Some(Reason::RuntimeClassHandlerMismatch)
        );
        assert_eq!(reason(&spec, Some(&rc), &[]), Some(Reason::NoEligibleNode));
        let unlabelled = node(json!({"metadata": {}}));
        assert_eq!(reason(&spec, Some(&rc), &[unlabelled]), Some(Reason::NoEligibleNode));
        let other = node(
            json!({"metadata": {"labels": {"sandbox": "yes"}}, "status": {"runtimeHandlers": [{"name": "runc"}]}}),
        );
        assert_eq!(
            reason(&spec, Some(&rc), std::slice::from_ref(&other)),
            Some(Reason::RuntimeHandlerNotServed)
        );
        assert_eq!(reason(&spec, Some(&rc), &[other, good_node()]), None);
    }

    #[test]
    fn silence_is_not_a_no() {
        let silent = node(json!({"metadata": {"labels": {"sandbox": "yes"}}}));
        let found = availability(&class(&json!({})), Some(&runtime_class("runsc")), &[silent]);
        assert_eq!((found.problem, found.user_namespaces), (None, false));
    }

    #[test]
    fn a_missing_node_does_not_block_the_autoscaler() {
        assert_eq!(availability(&class(&json!({})), Some(&runtime_class("runsc")), &[]).blocking(), None);
    }

    #[test]
    fn taints_need_tolerations() {
        let tainted = node(
            json!({"metadata": {"labels": {"sandbox": "yes"}}, "spec": {"taints": [{"key": "hostile", "value": "x", "effect": "NoSchedule"}]}}),
        );
        let rc = runtime_class("runsc");
        assert_eq!(
            reason(&class(&json!({})), Some(&rc), std::slice::from_ref(&tainted)),
            Some(Reason::NoEligibleNode)
        );
        for toleration in [
            json!({"key": "hostile", "operator": "Exists"}),
            json!({"operator": "Exists"}),
            json!({"key": "hostile", "value": "x", "effect": "NoSchedule"}),
        ] {
            let spec = class(&json!({"scheduling": {"tolerations": [toleration]}}));
            assert_eq!(reason(&spec, Some(&rc), std::slice::from_ref(&tainted)), None);
        }
    }

    #[test]
    fn user_namespaces_only_where_all_say_so() {
        let rc = runtime_class("runsc");
        assert!(availability(&class(&json!({})), Some(&rc), &[good_node()]).user_namespaces);
        let never = class(&json!({"security": {"userNamespaces": "Never"}}));
        assert!(!availability(&never, Some(&rc), &[good_node()]).user_namespaces);
    }
}
