//! NetworkPolicies: the fence that denies everything in a namespace, and the policy that opens one sandbox's address rules.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::networking::v1::{
        IPBlock, NetworkPolicy, NetworkPolicyEgressRule, NetworkPolicyIngressRule, NetworkPolicyPeer,
        NetworkPolicyPort, NetworkPolicySpec,
    },
    apimachinery::pkg::{
        apis::meta::v1::{LabelSelector, LabelSelectorRequirement, ObjectMeta},
        util::intstr::IntOrString,
    },
};
use kube::core::{Selector, SelectorExt as _};

use super::{
    names::{self, ports},
    plan::Plan,
};
use crate::policy::AddressRule;

/// Denies all ingress and egress of every sandbox pod of a namespace, in both address families, but for the data ports of
/// the gateway's pods, and for calls from the session's pods, both in the installation's namespace. It has no owner: it must
/// stand before the first sandbox and outlive the last.
#[must_use]
pub fn fence(namespace: &str, installation: &str) -> NetworkPolicy {
    NetworkPolicy {
        metadata: ObjectMeta {
            name: Some(names::FENCE.into()),
            namespace: Some(namespace.into()),
            labels: Some(names::common_labels()),
            ..ObjectMeta::default()
        },
        spec: Some(NetworkPolicySpec {
            pod_selector: Some(LabelSelector {
                match_expressions: Some(vec![LabelSelectorRequirement {
                    key: names::SANDBOX_LABEL.into(),
                    operator: "Exists".into(),
                    values: None,
                }]),
                match_labels: None,
            }),
            policy_types: Some(vec!["Ingress".into(), "Egress".into()]),
            // Said, not left out: rules of a policy that had the name before are taken away.
            ingress: Some(vec![calls(installation)]),
            egress: Some(vec![gateway(installation)]),
        }),
    }
}

/// To the agent, which takes nothing that the session did not sign. An answer on such a connection is the only way in which
/// anything gets out by it.
fn calls(installation: &str) -> NetworkPolicyIngressRule {
    NetworkPolicyIngressRule {
        from: Some(vec![pods(installation, names::session_labels())]),
        ports: Some(vec![port(ports::CALLS, "TCP")]),
    }
}

fn pods(namespace: &str, labels: BTreeMap<String, String>) -> NetworkPolicyPeer {
    let selector = |labels| Some(LabelSelector { match_labels: Some(labels), match_expressions: None });
    NetworkPolicyPeer {
        namespace_selector: selector(names::labels([("kubernetes.io/metadata.name", namespace)])),
        pod_selector: selector(labels),
        ip_block: None,
    }
}

/// The tripwire is on the same pods and is not among the ports: who reaches it has no fence.
fn gateway(installation: &str) -> NetworkPolicyEgressRule {
    NetworkPolicyEgressRule {
        ports: Some(vec![
            port(ports::DNS.pod, "UDP"),
            port(ports::DNS.pod, "TCP"),
            port(ports::PROXY.pod, "TCP"),
            port(ports::TLS.pod, "TCP"),
            port(ports::HTTP.pod, "TCP"),
            // Whom a port stands for is the gateway's to judge, under the rules of whoever comes.
            NetworkPolicyPort {
                end_port: Some(i32::from(*ports::NAMED.end())),
                ..port(*ports::NAMED.start(), "TCP")
            },
        ]),
        to: Some(vec![pods(installation, names::gateway_labels())]),
    }
}

/// Whether two policies say the same. The API server leaves out lists that are empty.
#[must_use]
pub fn same(have: &NetworkPolicy, want: &NetworkPolicy) -> bool {
    let plain = |policy: &NetworkPolicy| {
        let mut spec = policy.spec.clone().unwrap_or_default();
        spec.ingress = spec.ingress.filter(|rules| !rules.is_empty());
        spec.egress = spec.egress.filter(|rules| !rules.is_empty());
        spec
    };
    plain(have) == plain(want)
}

/// Whether a policy lets anything through for pods with these labels. One whose selector can't be read is taken to.
#[must_use]
pub fn opens(policy: &NetworkPolicy, labels: &BTreeMap<String, String>) -> bool {
    let Some(spec) = &policy.spec else { return false };
    let rules =
        spec.ingress.iter().flatten().next().is_some() || spec.egress.iter().flatten().next().is_some();
    let selector = spec.pod_selector.clone().unwrap_or_default();
    rules && Selector::try_from(selector).map_or(true, |selector| selector.matches(labels))
}

/// Opens the granted rules for one sandbox; `None` where there are none.
pub(super) fn cidr_policy(plan: &Plan) -> Option<NetworkPolicy> {
    (!plan.egress.is_empty()).then(|| NetworkPolicy {
        metadata: ObjectMeta {
            name: Some(names::cidr_policy(&plan.name)),
            namespace: Some(plan.namespace.clone()),
            labels: Some(names::sandbox_labels(&plan.name, &plan.class.name)),
            owner_references: Some(vec![plan.owner.clone()]),
            ..ObjectMeta::default()
        },
        spec: Some(NetworkPolicySpec {
            pod_selector: Some(LabelSelector {
                match_labels: Some(names::labels([(names::SANDBOX_LABEL, plan.name.as_str())])),
                match_expressions: None,
            }),
            policy_types: Some(vec!["Egress".into()]),
            ingress: None,
            egress: Some(plan.egress.iter().map(rule).collect()),
        }),
    })
}

fn rule(rule: &AddressRule) -> NetworkPolicyEgressRule {
    let peer = |block: &crate::policy::Block| NetworkPolicyPeer {
        ip_block: Some(IPBlock {
            cidr: block.cidr.to_string(),
            except: (!block.except.is_empty())
                .then(|| block.except.iter().map(ToString::to_string).collect()),
        }),
        ..NetworkPolicyPeer::default()
    };
    NetworkPolicyEgressRule {
        ports: Some(rule.ports.iter().map(|number| port(*number, "TCP")).collect()),
        to: Some(rule.blocks.iter().map(peer).collect()),
    }
}

fn port(number: u16, protocol: &str) -> NetworkPolicyPort {
    NetworkPolicyPort {
        port: Some(IntOrString::Int(i32::from(number))),
        protocol: Some(protocol.into()),
        end_port: None,
    }
}
