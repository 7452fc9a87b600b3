//! Stores as watches would fill them, and who is found at an address then, and may go where.

use kube::runtime::{reflector::store::Writer, watcher::Event};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::*;
use crate::{
    gateway::flow::Asked,
    policy::{Destination, Verdict, Wire},
};

const ADDRESS: &str = "10.244.0.7";

struct Watched {
    index: Index,
    directory: Arc<Directory>,
    pods: Writer<Guarded<Pod>>,
    sandboxes: Writer<Guarded<AgentSandbox>>,
    classes: Writer<Guarded<SandboxClass>>,
    policies: Writer<Guarded<EgressPolicy>>,
    approvals: Writer<Guarded<EgressApproval>>,
    nodes: Writer<Guarded<Node>>,
}

fn fill<K>(writer: &mut Writer<Guarded<K>>, objects: &[Value])
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + 'static,
{
    writer.apply_watcher_event(&Event::Init);
    for object in objects {
        writer.apply_watcher_event(&Event::InitApply(serde_json::from_value(object.clone()).unwrap()));
    }
    writer.apply_watcher_event(&Event::InitDone);
}

fn now() -> Timestamp {
    "2027-01-01T00:00:00Z".parse().unwrap()
}

impl Watched {
    /// A sandbox that runs, whose class and policy allow one host each its own way.
    fn new() -> Self {
        let (pods, pods_writer) = kube::runtime::reflector::store();
        let (sandboxes, sandboxes_writer) = kube::runtime::reflector::store();
        let (classes, classes_writer) = kube::runtime::reflector::store();
        let (policies, policies_writer) = kube::runtime::reflector::store();
        let (approvals, approvals_writer) = kube::runtime::reflector::store();
        let (nodes, nodes_writer) = kube::runtime::reflector::store();
        let stores = Stores { pods, sandboxes, classes, policies, approvals, nodes };
        let directory = Arc::new(Directory::default());
        let index = Index::new(stores, directory.clone(), Clock::default(), ClusterRanges::default());
        let mut all = Self {
            index,
            directory,
            pods: pods_writer,
            sandboxes: sandboxes_writer,
            classes: classes_writer,
            policies: policies_writer,
            approvals: approvals_writer,
            nodes: nodes_writer,
        };
        fill(&mut all.pods, &[pod("sandbox-uid")]);
        fill(&mut all.sandboxes, &[sandbox("sandbox-uid", &["shared"])]);
        fill(&mut all.classes, &[class()]);
        fill(&mut all.policies, &[policy(1, "shared.example")]);
        fill(&mut all.nodes, &[node("10.244.0.0/24")]);
        all.take(&Change::Everything);
        all.directory.load();
        all
    }

    fn take(&mut self, change: &Change) {
        self.index.take(change, now());
    }

    fn tenant(&self) -> Option<Arc<Tenant>> {
        self.directory.find(ADDRESS.parse().unwrap())
    }

    fn allows(&self, host: &str) -> bool {
        let destination = Destination::parse(host.as_bytes()).unwrap();
        let asked = Asked { destination, port: 443, wire: Wire::Tls, request: None };
        let terms = self.tenant().unwrap().terms();
        matches!(asked.judge(&terms.policy, now()), Verdict::Allow(_))
    }

    fn generation(&self) -> u64 {
        self.tenant().unwrap().terms().generation
    }
}

fn one() -> Change {
    Change::Sandbox(("team-a".into(), "s".into()))
}

fn pod(owner: &str) -> Value {
    json!({
        "metadata": {
            "name": "s", "namespace": "team-a", "uid": "pod-uid",
            "labels": {"glovebox.dev/sandbox": "s", "glovebox.dev/class": "c"},
            "ownerReferences": [{"apiVersion": "glovebox.dev/v1alpha1", "kind": "AgentSandbox", "name": "s", "uid": owner, "controller": true}],
        },
        "spec": {"containers": []},
        "status": {"phase": "Running", "podIP": ADDRESS, "podIPs": [{"ip": ADDRESS}]},
    })
}

fn sandbox(uid: &str, policies: &[&str]) -> Value {
    json!({
        "apiVersion": "glovebox.dev/v1alpha1", "kind": "AgentSandbox",
        "metadata": {"name": "s", "namespace": "team-a", "uid": uid, "generation": 1},
        "spec": {"image": "i", "egress": {"allow": [{"name": "own", "hosts": ["own.example"]}], "policies": policies}},
    })
}

fn class() -> Value {
    json!({
        "apiVersion": "glovebox.dev/v1alpha1", "kind": "SandboxClass",
        "metadata": {"name": "c", "uid": "class-uid", "generation": 1},
        "spec": {"trust": "Trusted", "runtime": {"isolation": "SharedKernel"}, "ttl": {"default": "1h", "max": "1h"}},
    })
}

fn policy(generation: i64, host: &str) -> Value {
    json!({
        "apiVersion": "glovebox.dev/v1alpha1", "kind": "EgressPolicy",
        "metadata": {"name": "shared", "namespace": "team-a", "uid": "policy-uid", "generation": generation},
        "spec": {"rules": [{"name": "r", "hosts": [host]}]},
    })
}

fn node(pods: &str) -> Value {
    json!({"metadata": {"name": "n"}, "spec": {"podCIDR": pods}})
}

#[test]
fn a_sandbox_reaches_what_its_own_rules_and_its_policies_name() {
    let watched = Watched::new();
    assert!(watched.allows("own.example") && watched.allows("shared.example"));
    assert!(!watched.allows("other.example"));
}

#[test]
fn a_change_is_swapped_in_and_the_same_again_is_none() {
    let mut watched = Watched::new();
    fill(&mut watched.policies, &[policy(2, "other.example")]);
    watched.take(&Change::Policy("team-b".into()));
    assert_eq!(watched.generation(), 0, "of another namespace");
    watched.take(&Change::Policy("team-a".into()));
    assert!(watched.allows("other.example") && !watched.allows("shared.example"));
    for change in [Change::Policy("team-a".into()), one(), Change::Class, Change::Node, Change::Everything] {
        watched.take(&change);
        assert_eq!(watched.generation(), 1, "{change:?}");
    }
}

#[test]
fn a_node_that_only_beats_its_heart_changes_nothing_and_a_new_range_does() {
    let mut watched = Watched::new();
    watched.take(&Change::Node);
    assert_eq!(watched.generation(), 0);
    fill(
        &mut watched.nodes,
        &[node("10.244.0.0/24"), json!({"metadata": {"name": "m"}, "spec": {"podCIDR": "10.244.1.0/24"}})],
    );
    watched.take(&Change::Node);
    assert_eq!(watched.generation(), 1);
}

/// As the controller has it: half of what somebody meant is nobody's intent.
#[test]
fn a_policy_that_is_missing_closes_everything_until_it_is_back() {
    let mut watched = Watched::new();
    fill(&mut watched.policies, &[]);
    watched.take(&Change::Policy("team-a".into()));
    assert!(!watched.allows("own.example") && !watched.allows("shared.example"));
    fill(&mut watched.policies, &[policy(2, "shared.example")]);
    watched.take(&Change::Policy("team-a".into()));
    assert!(watched.allows("own.example") && watched.allows("shared.example"));
}

#[test]
fn without_its_class_nothing_is_allowed() {
    let mut watched = Watched::new();
    fill(&mut watched.classes, &[]);
    watched.take(&Change::Class);
    assert!(!watched.allows("own.example") && !watched.allows("shared.example"));
}

#[test]
fn who_is_gone_or_going_or_never_was_one_has_no_address() {
    let with = |pointer: &str, value: Value| {
        let mut pod = pod("sandbox-uid");
        *pod.pointer_mut(pointer).unwrap_or_else(|| panic!("{pointer}")) = value;
        pod
    };
    let mut going = pod("sandbox-uid");
    going["metadata"]["deletionTimestamp"] = json!("2027-01-01T00:00:00Z");
    let mut shared = pod("sandbox-uid");
    shared["spec"]["hostNetwork"] = json!(true);
    for (what, pods) in [
        ("gone", vec![]),
        ("going", vec![going]),
        ("ended", vec![with("/status/phase", json!("Failed"))]),
        ("of another sandbox", vec![pod("other-uid")]),
        ("not its controller's", vec![with("/metadata/ownerReferences/0/controller", json!(false))]),
        ("owned by another kind", vec![with("/metadata/ownerReferences/0/kind", json!("Job"))]),
        ("in its node's network", vec![shared]),
    ] {
        let mut watched = Watched::new();
        assert!(watched.tenant().is_some());
        fill(&mut watched.pods, &pods);
        watched.take(&one());
        assert!(watched.tenant().is_none(), "{what}");
    }
}

#[test]
fn a_namesake_is_somebody_else() {
    let mut watched = Watched::new();
    let before = watched.tenant().unwrap();
    fill(&mut watched.sandboxes, &[sandbox("next-uid", &[])]);
    fill(&mut watched.pods, &[pod("next-uid")]);
    watched.take(&one());
    let after = watched.tenant().unwrap();
    assert_eq!((&*before.identity.uid, &*after.identity.uid), ("sandbox-uid", "next-uid"));
    assert!(!watched.allows("shared.example"));
}

#[test]
fn a_workload_has_begun_once_the_proof_has_ended() {
    let mut watched = Watched::new();
    assert!(!watched.tenant().unwrap().begun.load(Ordering::Relaxed));
    let mut proven = pod("sandbox-uid");
    proven["status"]["initContainerStatuses"] = json!([{"name": "glovebox-init", "image": "", "imageID": "", "ready": true, "restartCount": 0, "state": {"terminated": {"exitCode": 0}}}]);
    fill(&mut watched.pods, &[proven]);
    watched.take(&one());
    assert!(watched.tenant().unwrap().begun.load(Ordering::Relaxed));
}

mod orders;

/// As the controller leaves what a person approved, for the sandbox with this uid, and changed in one thing.
fn approval(uid: &str, change: impl FnOnce(&mut Value)) -> Value {
    let hash = approvals::hash(uid, "given.example", 443, crate::api::Protocol::Tls);
    let mut approval = json!({
        "apiVersion": "glovebox.dev/v1alpha1", "kind": "EgressApproval",
        "metadata": {"name": "s-1", "namespace": "team-a", "uid": "approval-uid", "generation": 2},
        "spec": {
            "sandbox": {"name": "s", "uid": uid}, "host": "given.example", "port": 443, "protocol": "TLS", "ruleHash": hash,
            "decision": {"verdict": "Approved", "ruleHash": hash, "by": "ada"},
        },
        "status": {"phase": "Approved", "observedGeneration": 2, "expiresAt": "2027-01-01T00:10:00Z"},
    });
    change(&mut approval);
    approval
}

#[test]
fn what_a_person_approved_opens_and_nothing_that_only_looks_like_it() {
    let mut watched = Watched::new();
    let mut opens = |approval: Value, unmatched: &str| {
        let mut class = class();
        class["spec"]["egress"] = json!({"unmatched": unmatched});
        fill(&mut watched.classes, &[class]);
        fill(&mut watched.approvals, &[approval]);
        watched.take(&Change::Everything);
        watched.allows("given.example")
    };
    assert!(opens(approval("sandbox-uid", |_| ()), "Ask"));
    assert!(!opens(approval("sandbox-uid", |_| ()), "Deny"), "the class has nothing asked for");
    assert!(!opens(approval("former-uid", |_| ()), "Ask"), "of a namesake");
    let changes: [(&str, Value); 9] = [
        ("/spec/sandbox/uid", json!("former-uid")),
        ("/spec/host", json!("other.example")),
        ("/spec/host", json!("*.example")),
        ("/spec/port", json!(8443)),
        ("/spec/decision/verdict", json!("Denied")),
        ("/spec/decision/ruleHash", json!("0")),
        ("/status/phase", json!("Pending")),
        ("/status/observedGeneration", json!(1)),
        ("/status/expiresAt", json!("2026-12-31T23:59:00Z")),
    ];
    for (field, value) in changes {
        let changed =
            approval("sandbox-uid", |approval| *approval.pointer_mut(field).unwrap() = value.clone());
        assert!(!opens(changed, "Ask"), "{field} = {value}");
    }
    assert!(opens(approval("sandbox-uid", |_| ()), "Ask"));
}
