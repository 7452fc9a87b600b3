//! What must hold at every call, whatever goes wrong around it. Judged from objects alone, by rules written apart from
//! the controller's.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{
    calls::{Call, Verb},
    clock, hardening,
    store::{Key, Store},
};

/// How far a pod's own deadline may lie behind its sandbox's time to live.
const DEADLINE_SLACK: SignedDuration = SignedDuration::from_secs(2);

/// What was seen, and what was wrong with it.
#[derive(Debug, Default)]
pub struct Invariants {
    /// Pods that were created, by the uid of the sandbox.
    pub pods: BTreeMap<String, u32>,
    /// What did not hold, in words.
    pub violations: Vec<String>,
}

impl Invariants {
    /// Judges one call. `before` is the object as it stood, `after` the answer if it was good.
    pub fn check(&mut self, store: &Store, call: &Call, before: Option<&Value>, after: Option<&Value>) {
        let target = &call.target;
        match (call.verb, target.kind.kind, target.subresource.as_str(), after) {
            (Verb::Create, "Pod", "", Some(pod)) => self.pod_created(store, pod),
            (Verb::Delete, "Pod", "", Some(_)) => self.pod_deleted(store, before),
            (Verb::Delete, "AgentSandbox", "", Some(_)) if !before.is_some_and(finished) => {
                self.wrong(format!("sandbox {} was deleted before it had ended", target.name));
            }
            (Verb::Delete, "NetworkPolicy", "", Some(_)) if before.is_some_and(is_fence) => {
                self.wrong(format!("a fence was deleted in {}", target.namespace));
            }
            (Verb::Create, "Service", "", Some(_)) => self.port_given(store),
            (Verb::Delete, "Service", "", Some(_)) => self.service_deleted(store, before),
            (Verb::Patch, "AgentSandbox", "status", Some(sandbox)) => self.told(before, sandbox),
            _ => {}
        }
    }

    fn wrong(&mut self, what: String) {
        self.violations.push(what);
    }

    fn pod_created(&mut self, store: &Store, pod: &Value) {
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        let namespace = pod["metadata"]["namespace"].as_str().unwrap_or_default();
        let uid = pod["metadata"]["ownerReferences"][0]["uid"].as_str().unwrap_or_default().to_owned();
        let count = self.pods.entry(uid).or_default();
        *count += 1;
        if *count > 1 {
            self.wrong(format!(
                "pod {name} was created {} times for one sandbox",
                self.pods.values().max().unwrap()
            ));
        }
        if !store.list("NetworkPolicy", namespace).any(|(_, policy)| is_fence(policy) && selects(policy, pod))
        {
            self.wrong(format!("pod {name} was created before a fence stood in {namespace}"));
        }
        let class = pod["metadata"]["labels"]["glovebox.dev/class"].as_str().unwrap_or_default();
        let class = store.get(&Key::new("SandboxClass", "", class));
        let has_quota = class.is_some_and(|class| class["spec"]["quota"].is_object());
        let counted = |(_, quota): (&Key, &Value)| {
            quota["status"]["hard"].is_object() && super::admission::selects(quota, pod)
        };
        if has_quota && !store.list("ResourceQuota", namespace).any(counted) {
            self.wrong(format!("pod {name} was created before a quota counted it"));
        }
        let root = class.is_some_and(|class| class["spec"]["security"]["runAsUser"] == 0);
        self.violations
            .extend(hardening::faults(pod, root).into_iter().map(|fault| format!("pod {name}: {fault}")));
        self.deadline(store, pod, class);
    }

    /// The pod's own deadline ends it when its sandbox's time is over, even if nobody else does.
    fn deadline(&mut self, store: &Store, pod: &Value, class: Option<&Value>) {
        let Some(sandbox) =
            pod["metadata"]["ownerReferences"].get(0).and_then(|owner| store.alive(&owner["uid"]))
        else {
            return;
        };
        let Some(class) = class else { return };
        let bounds = &class["spec"]["ttl"];
        let ttl = if bounds["extendable"] == true {
            &bounds["max"]
        } else {
            sandbox["spec"].get("ttl").unwrap_or_else(|| &bounds["default"])
        };
        let ttl = ttl.as_str().unwrap_or("1h").parse::<crate::api::Span>().unwrap().seconds_ceil();
        let seconds = pod["spec"]["activeDeadlineSeconds"].as_i64().unwrap_or(i64::MAX / 4);
        let end = created(sandbox) + SignedDuration::from_secs(ttl);
        let pod_end = created(pod) + SignedDuration::from_secs(seconds.min(1 << 40));
        if pod_end > end + DEADLINE_SLACK || pod_end < end - DEADLINE_SLACK {
            self.wrong(format!("pod {} ends at {pod_end}, its sandbox at {end}", pod["metadata"]["name"]));
        }
    }

    /// The end of a sandbox is recorded before its pod goes, but for the end that time alone brings.
    fn pod_deleted(&mut self, store: &Store, pod: Option<&Value>) {
        let Some(pod) = pod else { return };
        let owner = pod["metadata"]["ownerReferences"].get(0);
        let Some(sandbox) = owner.and_then(|owner| store.alive(&owner["uid"])) else {
            return self.wrong(format!("pod {} was deleted, which no sandbox owns", pod["metadata"]["name"]));
        };
        let expires = sandbox["status"]["expiresAt"].as_str().map(clock::read);
        if !finished(sandbox) && expires.is_some_and(|at| at > store.clock.now()) {
            self.wrong(format!(
                "pod {} was deleted before its sandbox's end was recorded",
                pod["metadata"]["name"]
            ));
        }
    }

    /// Each of the gateway's ports stands for one host, and is none that the gateway has for itself.
    fn port_given(&mut self, store: &Store) {
        let mut given = BTreeMap::new();
        for (key, service) in store.list("Service", "").filter(|(_, service)| is_named(service)) {
            for port in service["spec"]["ports"].as_array().into_iter().flatten() {
                let (outer, inner) = (port["port"].as_i64().unwrap(), port["targetPort"].as_i64().unwrap());
                let forwarded = matches!((outer, inner), (80, 8080) | (443, 8443));
                if port["protocol"] != "TCP" || (!forwarded && !(20000..=20999).contains(&inner)) {
                    self.wrong(format!("Service {} leads from {outer} to {inner}", key.name));
                }
                if let Some(other) = given.insert(inner, &key.name).filter(|_| !forwarded) {
                    self.wrong(format!("port {inner} is given to {other} and to {}", key.name));
                }
            }
        }
    }

    /// Only a host's Service is deleted, and only if every sandbox that spells the host out finds its ports at another one.
    fn service_deleted(&mut self, store: &Store, service: Option<&Value>) {
        let Some(service) = service else { return };
        if !is_named(service) {
            return self
                .wrong(format!("Service {} was deleted, which is no host's", service["metadata"]["name"]));
        }
        let host = &service["metadata"]["annotations"]["glovebox.dev/host"];
        let living = store.list("AgentSandbox", "").map(|(_, sandbox)| sandbox);
        for sandbox in living.filter(|sandbox| !finished(sandbox)) {
            let rules = sandbox["spec"]["egress"]["allow"].as_array().cloned().unwrap_or_default();
            let tcp = rules.iter().filter(|rule| rule["protocol"] == "TCP");
            let ours = tcp.filter(|rule| rule["hosts"].as_array().is_some_and(|hosts| hosts.contains(host)));
            let ports: Vec<Value> = ours.flat_map(|rule| rule["ports"].as_array().unwrap().clone()).collect();
            let mut others = store.list("Service", "").map(|(_, other)| other);
            let has = |other: &Value, port: &Value| {
                other["spec"]["ports"].as_array().into_iter().flatten().any(|have| have["port"] == *port)
            };
            let serves = |other: &Value| {
                is_named(other)
                    && other["metadata"]["annotations"]["glovebox.dev/host"] == *host
                    && ports.iter().all(|port| has(other, port))
            };
            if !ports.is_empty() && !others.any(serves) {
                self.wrong(format!(
                    "the Service of {host} was deleted under {}",
                    sandbox["metadata"]["name"]
                ));
            }
        }
    }

    /// What ended stays ended, for the same reason and at the same time.
    fn told(&mut self, before: Option<&Value>, after: &Value) {
        let Some(before) = before.filter(|before| finished(before)) else { return };
        let end = |sandbox: &Value| {
            let status = &sandbox["status"];
            (
                status["phase"].clone(),
                status["reason"].clone(),
                status["finishedAt"].clone(),
                status["exitCode"].clone(),
            )
        };
        if end(before) != end(after) || !finished(after) {
            self.wrong(format!(
                "an ended sandbox changed its end from {:?} to {:?}",
                end(before),
                end(after)
            ));
        }
    }
}

fn created(object: &Value) -> Timestamp {
    clock::read(object["metadata"]["creationTimestamp"].as_str().unwrap_or_default())
}

fn is_named(service: &Value) -> bool {
    service["metadata"]["labels"]["glovebox.dev/named"] == "tcp"
}

/// Whether a sandbox's status says that it ended.
#[must_use]
pub fn finished(sandbox: &Value) -> bool {
    let conditions = sandbox["status"]["conditions"].as_array();
    conditions
        .into_iter()
        .flatten()
        .any(|condition| condition["type"] == "Finished" && condition["status"] == "True")
}

/// Whether a policy is a fence: it denies everything in both directions, but for the data ports of the gateway's pods. The
/// tripwire's port, 9099, and that of its metrics, 9090, must not be among them.
#[must_use]
pub fn is_fence(policy: &Value) -> bool {
    let spec = &policy["spec"];
    let types = spec["policyTypes"].as_array();
    let both = ["Ingress", "Egress"]
        .iter()
        .all(|way| types.is_some_and(|types| types.iter().any(|other| other == way)));
    both && spec["ingress"] == json!([from_the_session()]) && spec["egress"] == json!([to_the_gateway()])
}

fn from_the_session() -> Value {
    json!({
        "from": [{
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "glovebox-system"}},
            "podSelector": {"matchLabels": {"app.kubernetes.io/name": "glovebox", "app.kubernetes.io/component": "session"}},
        }],
        "ports": [{"port": 13443, "protocol": "TCP"}],
    })
}

fn to_the_gateway() -> Value {
    json!({
        "ports": [
            {"port": 5353, "protocol": "UDP"}, {"port": 5353, "protocol": "TCP"}, {"port": 3128, "protocol": "TCP"},
            {"port": 8443, "protocol": "TCP"}, {"port": 8080, "protocol": "TCP"},
            {"port": 20000, "endPort": 20999, "protocol": "TCP"},
        ],
        "to": [{
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "glovebox-system"}},
            "podSelector": {"matchLabels": {"app.kubernetes.io/name": "glovebox", "app.kubernetes.io/component": "gateway"}},
        }],
    })
}

/// Whether a policy's selector selects a pod.
#[must_use]
pub fn selects(policy: &Value, pod: &Value) -> bool {
    let labels = &pod["metadata"]["labels"];
    let selector = &policy["spec"]["podSelector"];
    let exact =
        selector["matchLabels"].as_object().into_iter().flatten().all(|(key, value)| labels[key] == *value);
    let rules = selector["matchExpressions"].as_array().into_iter().flatten();
    let known = rules.map(|rule| {
        rule["operator"] == "Exists" && !labels[rule["key"].as_str().unwrap_or_default()].is_null()
    });
    exact && known.into_iter().all(|holds| holds)
}
