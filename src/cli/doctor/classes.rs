//! The classes: whether there is a default one, whether each one's runtime starts sandboxes, and what the canaries of the
//! controller have seen of kernels and of the network.

use kube::{Api, ResourceExt, api::ListParams};

use super::{Finding, Patient, State};
use crate::{
    api::{ConditionType, DEFAULT_CLASS_ANNOTATION, ProbeOutcome, Reason, SandboxClass},
    cli::cluster::explained,
};

/// What is found of them, and the default one.
pub(super) async fn classes(patient: &Patient<'_>) -> (Vec<Finding>, Option<String>) {
    let api: Api<SandboxClass> = Api::all(patient.cluster.client.clone());
    match api.list(&ListParams::default()).await {
        Ok(found) => judge(&found.items),
        Err(error) => {
            let message = format!("{:#}", explained(error, "SandboxClasses"));
            let fix = "ask for the ClusterRole glovebox-class-viewer, or have rbac.everyoneMaySeeClasses set in the chart";
            (vec![Finding::bad("classes", State::Unknown, message, fix)], None)
        }
    }
}

fn judge(classes: &[SandboxClass]) -> (Vec<Finding>, Option<String>) {
    let is_default = |class: &&SandboxClass| {
        class.annotations().get(DEFAULT_CLASS_ANNOTATION).is_some_and(|value| value == "true")
    };
    let defaults: Vec<String> = classes.iter().filter(is_default).map(ResourceExt::name_any).collect();
    let default = match defaults.as_slice() {
        [] if classes.is_empty() => Finding::bad(
            "classes",
            State::Broken,
            "there is no class",
            "install the chart with classes, or apply a SandboxClass",
        ),
        [] => Finding::bad(
            "classes",
            State::Warning,
            "there is no default class",
            "name one by --class each time, or set defaultClass in the chart",
        ),
        [name] => Finding::ok("classes", format!("the default class is {name}")),
        many => Finding::bad(
            "classes",
            State::Broken,
            format!("there are several default classes: {}", many.join(", ")),
            "leave the annotation glovebox.dev/is-default-class on one of them",
        ),
    };
    let mut findings = vec![default];
    for class in classes {
        findings.extend(judge_class(class, defaults.len() == 1 && is_default(&class)));
    }
    findings.push(network(classes));
    (findings, defaults.into_iter().next())
}

fn judge_class(class: &SandboxClass, default: bool) -> Vec<Finding> {
    let name = class.name_any();
    // Who uses another class is not held up by this one.
    let severity = if default { State::Broken } else { State::Warning };
    let conditions = class.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let available = conditions.iter().find(|one| one.type_ == ConditionType::RuntimeAvailable.as_str());
    let runs = match available {
        None => Finding::bad(
            "class",
            State::Unknown,
            format!("{name}: the controller has not looked at it"),
            "see whether the controller runs",
        ),
        Some(one) if one.status == "True" => {
            Finding::ok("class", format!("{name}: its runtime starts sandboxes"))
        }
        Some(one) => Finding::bad(
            "class",
            severity,
            format!("{name}: {}: {}", one.reason, one.message),
            fix(class, &one.reason),
        ),
    };
    let weaker = class.spec.runtime.accept_weaker_isolation.as_ref().map(|why| {
        let message = format!(
            "{name}: runs on {}, which is weaker than trust {:?} needs: {why}",
            class.spec.runtime.isolation.as_str(),
            class.spec.trust
        );
        Finding::bad(
            "class",
            State::Warning,
            message,
            "use a runtime that isolates as the class's trust needs, and remove acceptWeakerIsolation",
        )
    });
    std::iter::once(runs).chain(weaker).collect()
}

/// What to do about a runtime that starts nothing.
fn fix(class: &SandboxClass, reason: &str) -> String {
    let runtime = class.spec.runtime.runtime_class_name.as_deref().unwrap_or("the cluster's default runtime");
    let is = |known: Reason| known.as_str() == reason;
    if is(Reason::RuntimeClassNotFound) {
        format!("install the runtime and its RuntimeClass {runtime}, or disable the class in the chart")
    } else if is(Reason::RuntimeClassHandlerMismatch) {
        format!("make the handler of RuntimeClass {runtime} and the class's runtime.handler the same")
    } else if is(Reason::NoEligibleNode) {
        format!(
            "add or label nodes that fit the class's scheduling and RuntimeClass {runtime}, or disable the class in the chart"
        )
    } else if is(Reason::RuntimeHandlerNotServed) {
        format!("configure the container runtime of the nodes for {runtime}")
    } else {
        format!(
            "see what became of the canary: kubectl get events --all-namespaces --field-selector involvedObject.name=canary-{}",
            class.name_any()
        )
    }
}

/// Whether the network does what NetworkPolicies say, as the canaries saw it: none starts behind an open fence.
fn network(classes: &[SandboxClass]) -> Finding {
    let probes: Vec<_> = classes
        .iter()
        .filter_map(|class| Some((class.name_any(), class.status.as_ref()?.probe.as_ref()?)))
        .collect();
    let open = probes.iter().find(|(_, probe)| probe.message.contains(Reason::FenceOpen.as_str()));
    let unreachable =
        probes.iter().find(|(_, probe)| probe.message.contains(Reason::GatewayUnreachable.as_str()));
    if let Some((class, probe)) = open {
        let message = format!("the network does not hold sandboxes back: class {class}: {}", probe.message);
        return Finding::bad(
            "network",
            State::Broken,
            message,
            "use a network plugin that enforces NetworkPolicy for egress, such as Calico or Cilium, and see that no other policy opens sandboxes",
        );
    }
    if let Some((class, probe)) = unreachable {
        let message = format!("sandboxes do not reach the gateway: class {class}: {}", probe.message);
        return Finding::bad(
            "network",
            State::Broken,
            message,
            "see whether the gateway's pods run, and whether a NetworkPolicy keeps sandboxes from them",
        );
    }
    match probes.iter().find(|(_, probe)| probe.outcome == ProbeOutcome::Passed) {
        Some((class, _)) => Finding::ok(
            "network",
            format!("a canary of class {class} ran behind a fence that was proven from inside"),
        ),
        None => Finding::bad(
            "network",
            State::Unknown,
            "no canary has run behind a fence yet",
            "mend the classes above; each is tried once its runtime is there",
        ),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn class(name: &str, change: &Value) -> SandboxClass {
        let mut all = json!({
            "metadata": {"name": name}, "spec": {"trust": "Trusted", "runtime": {"isolation": "SharedKernel"}},
            "status": {
                "conditions": [{"type": "RuntimeAvailable", "status": "True", "reason": "Available", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
                "probe": {"of": "1", "outcome": "Passed", "message": "a canary ran on gVisor", "at": "2026-01-01T00:00:00Z"},
            },
        });
        for (path, value) in change.as_object().unwrap() {
            *all.pointer_mut(path).unwrap() = value.clone();
        }
        serde_json::from_value(all).unwrap()
    }

    fn default(change: &Value) -> SandboxClass {
        let mut class = class("default", change);
        class.annotations_mut().insert(DEFAULT_CLASS_ANNOTATION.into(), "true".into());
        class
    }

    fn states(classes: &[SandboxClass]) -> Vec<(&'static str, State)> {
        judge(classes).0.into_iter().map(|finding| (finding.check, finding.state)).collect()
    }

    const GONE: [(&str, &str); 2] =
        [("/status/conditions/0/status", "False"), ("/status/conditions/0/reason", "RuntimeClassNotFound")];

    #[test]
    fn the_default_class_must_work_and_others_should() {
        let none = json!({});
        let gone: Value = GONE
            .into_iter()
            .map(|(path, value)| (path.to_owned(), json!(value)))
            .collect::<serde_json::Map<_, _>>()
            .into();
        let ok = State::Ok;
        assert_eq!(
            states(&[default(&none), class("a", &none)]),
            [("classes", ok), ("class", ok), ("class", ok), ("network", ok)]
        );
        assert_eq!(states(&[default(&gone)])[1], ("class", State::Broken));
        assert_eq!(states(&[default(&none), class("a", &gone)])[2], ("class", State::Warning));
        assert!(judge(&[default(&gone)]).0[1].fix.as_ref().unwrap().contains("RuntimeClass"));
        assert_eq!(states(&[class("a", &none)])[0], ("classes", State::Warning));
        assert_eq!(states(&[])[0], ("classes", State::Broken));
        let two = [default(&none), default(&none)];
        assert_eq!(states(&two)[0], ("classes", State::Broken));
    }

    #[test]
    fn an_open_fence_is_found_by_what_the_canaries_say() {
        let told = |message: &str| {
            let change = json!({"/status/probe/outcome": "Failed", "/status/probe/message": message});
            network(&[class("a", &change), class("b", &json!({}))]).state
        };
        assert_eq!(told("a canary ended with FenceOpen: 203.0.113.7 was reached"), State::Broken);
        assert_eq!(told("a canary ended with GatewayUnreachable: no answer"), State::Broken);
        assert_eq!(told("a canary ended with Evicted: disk"), State::Ok, "the other one passed");
        assert_eq!(network(&[]).state, State::Unknown);
    }

    #[test]
    fn a_weaker_kernel_is_said() {
        let mut class = class("a", &json!({}));
        class.spec.runtime.accept_weaker_isolation = Some("no KVM here".into());
        let found = judge_class(&class, true);
        assert_eq!((found[0].state, found[1].state), (State::Ok, State::Warning));
        assert!(found[1].message.contains("no KVM here"));
    }
}
