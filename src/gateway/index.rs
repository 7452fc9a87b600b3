//! Who is which address and what each may reach, from watches of the cluster: fills the [`Directory`].
//!
//! Takes nothing on trust but the API server. What can't be read, is not there or is refused opens nothing. While the API
//! server is away, what was known last stays, and who is new stays unknown.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    net::IpAddr,
    sync::{Arc, atomic::Ordering},
};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{Resource, ResourceExt};

use super::{
    claims::Claims,
    clock::Clock,
    directory::Directory,
    suspect,
    tenant::{Identity, Tenant},
};
use crate::{
    api::{AgentSandbox, EgressApproval, EgressPolicy, EgressRule, SandboxClass, Unmatched},
    audit::about,
    kubernetes::{Guarded, get},
    policy::{ClusterRanges, Policy},
    sandbox::{approvals, lifecycle, names, ranges},
};

type Store<K> = kube::runtime::reflector::Store<Guarded<K>>;

/// What the watches saw.
#[derive(Clone, Debug)]
pub(super) struct Stores {
    pub(super) pods: Store<Pod>,
    pub(super) sandboxes: Store<AgentSandbox>,
    pub(super) classes: Store<SandboxClass>,
    pub(super) policies: Store<EgressPolicy>,
    pub(super) approvals: Store<EgressApproval>,
    pub(super) nodes: Store<Node>,
}

/// Namespace and name.
pub(super) type Key = (String, String);

/// What may have changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// A sandbox, or the pod of its name.
    Sandbox(Key),
    /// A policy of this namespace.
    Policy(String),
    /// A class.
    Class,
    /// A node, and with it perhaps the cluster's ranges.
    Node,
    /// Anything: a list was read anew.
    Everything,
}

/// A sandbox with a pod of its own.
#[derive(Debug)]
struct Known {
    tenant: Arc<Tenant>,
    /// What its pod claims.
    addresses: Vec<IpAddr>,
    /// What it has in the directory: what nobody else claims.
    held: Vec<IpAddr>,
    stamp: Stamp,
}

impl Known {
    /// If one of its addresses is its own no more, whatever is open may be another's: all ends, and what it used stays used.
    fn withdraw(&mut self, key: &Key, claims: &Claims, directory: &Directory, now: Timestamp) {
        if self.held.iter().all(|address| claims.is_sole(key, *address)) {
            return;
        }
        for address in self.held.drain(..) {
            directory.remove(address, &self.tenant.identity.uid);
        }
        self.tenant = self.tenant.successor(now);
    }

    fn grant(&mut self, key: &Key, claims: &Claims, directory: &Directory) {
        for address in &self.addresses {
            if claims.is_sole(key, *address) && !self.held.contains(address) {
                directory.insert(*address, &self.tenant);
                self.held.push(*address);
            }
        }
    }
}

/// Which versions of what a policy was made of. Equal stamps, equal policies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Stamp(Vec<(String, Option<i64>)>);

/// The sandboxes that are known, and what they were made of.
#[derive(Debug)]
pub(super) struct Index {
    stores: Stores,
    directory: Arc<Directory>,
    clock: Clock,
    /// What the installation names as the cluster's own.
    fixed: ClusterRanges,
    cluster: ClusterRanges,
    /// How often the cluster's ranges changed.
    epoch: i64,
    known: HashMap<Key, Known>,
    claims: Claims,
}

impl Index {
    pub(super) fn new(stores: Stores, directory: Arc<Directory>, clock: Clock, fixed: ClusterRanges) -> Self {
        let (cluster, known, claims) = (fixed.clone(), HashMap::new(), Claims::default());
        Self { stores, directory, clock, fixed, cluster, epoch: 0, known, claims }
    }

    /// Takes a change in. Whose policy is not made of it is looked at and left: its stamp is the same.
    pub(super) fn take(&mut self, change: &Change, now: Timestamp) {
        match change {
            Change::Sandbox(key) => self.refresh(key, now),
            Change::Policy(namespace) => self.refresh_known(now, |(of, _)| of == namespace),
            Change::Class => self.refresh_known(now, |_| true),
            Change::Node => {
                if self.measure() {
                    self.refresh_known(now, |_| true);
                }
            }
            Change::Everything => {
                self.measure();
                let sandboxes = self.stores.sandboxes.state();
                let there = sandboxes.iter().map(|one| (one.namespace().unwrap_or_default(), one.name_any()));
                let all: HashSet<Key> = there.chain(self.known.keys().cloned()).collect();
                for key in &all {
                    self.refresh(key, now);
                }
            }
        }
    }

    /// Reads the cluster's ranges; whether they changed.
    fn measure(&mut self) -> bool {
        let nodes = self.stores.nodes.state();
        let cluster = ranges::cluster(&self.fixed, nodes.iter().filter_map(|node| node.0.as_ref().ok()));
        let changed = cluster != self.cluster;
        if changed {
            self.cluster = cluster;
            self.epoch += 1;
        }
        changed
    }

    /// Looks at those that are known: whoever is not has no address to look up.
    fn refresh_known(&mut self, now: Timestamp, concerns: impl Fn(&Key) -> bool) {
        let concerned: Vec<Key> = self.known.keys().filter(|key| concerns(key)).cloned().collect();
        for key in &concerned {
            self.refresh(key, now);
        }
    }

    /// Looks at one sandbox anew.
    fn refresh(&mut self, key: &Key, now: Timestamp) {
        match self.look(key) {
            Some((sandbox, pod, addresses)) => self.keep(key, &sandbox, &pod, addresses, now),
            None => self.forget(key, now),
        }
    }

    /// A sandbox that lives, with the pod that is its own and the addresses of that.
    fn look(&self, (namespace, name): &Key) -> Option<(Arc<AgentSandbox>, Arc<Pod>, Vec<IpAddr>)> {
        let sandbox = get(&self.stores.sandboxes, name, Some(namespace))?;
        let pod = get(&self.stores.pods, name, Some(namespace))?;
        let owner = pod.owner_references().iter().find(|owner| owner.controller == Some(true))?;
        let own = owner.kind == AgentSandbox::kind(&()) && Some(&owner.uid) == sandbox.metadata.uid.as_ref();
        let going =
            pod.metadata.deletion_timestamp.is_some() || sandbox.metadata.deletion_timestamp.is_some();
        let ended = lifecycle::is_finished(&sandbox)
            || matches!(
                pod.status.as_ref().and_then(|status| status.phase.as_deref()),
                Some("Succeeded" | "Failed")
            );
        // A pod in its node's network has the node's address, which is no identity.
        let shared = pod.spec.as_ref().is_some_and(|spec| spec.host_network == Some(true));
        let addresses = addresses(&pod);
        (own && !shared && !going && !ended && !addresses.is_empty()).then_some((sandbox, pod, addresses))
    }

    fn keep(&mut self, key: &Key, sandbox: &AgentSandbox, pod: &Pod, addresses: Vec<IpAddr>, now: Timestamp) {
        let uid = sandbox.metadata.uid.clone().unwrap_or_default();
        if self.known.get(key).is_some_and(|known| *known.tenant.identity.uid != *uid) {
            self.forget(key, now);
        }
        // The class that the pod was made with; without it, nothing is allowed.
        let class =
            pod.labels().get(names::CLASS_LABEL).and_then(|name| get(&self.stores.classes, name, None));
        let policies = self.policies(sandbox);
        // Where nothing is asked for, nobody's questions need to be looked through.
        let asks = class.as_ref().is_some_and(|class| class.spec.egress.unmatched == Unmatched::Ask);
        let stored = if asks { self.stores.approvals.state() } else { Vec::new() };
        let approvals: Vec<_> = approvals::own(stored.into_iter(), sandbox).collect();
        let given = class.as_ref().map_or_else(Vec::new, |class| {
            approvals::given(&approvals, &uid, &class.spec.egress, &self.cluster)
        });
        let stamp = self.stamp(sandbox, class.as_deref(), &policies, &given);
        let policy = || compile(sandbox, class.as_deref(), (&policies, &given), &self.cluster);
        let known = self.known.entry(key.clone()).or_insert_with(|| {
            let identity = Identity {
                uid: uid.as_str().into(),
                namespace: key.0.as_str().into(),
                name: key.1.as_str().into(),
            };
            let limits = suspect::limits(sandbox);
            let tenant = Tenant::new(identity, policy(), limits, self.clock, now);
            Known { tenant, addresses: Vec::new(), held: Vec::new(), stamp: stamp.clone() }
        });
        if known.stamp != stamp {
            let closed = known.tenant.swap(&policy(), suspect::limits(sandbox), now);
            tracing::info!(sandbox = %known.tenant.identity, closed, "policy changed");
            known.stamp = stamp;
        }
        let egress = class.as_ref().map(|class| &class.spec.egress);
        known.tenant.asks.set(egress, &self.cluster, &approvals);
        known.tenant.judge_by(sandbox, class.as_deref());
        known.tenant.describe(about::subject(sandbox));
        if begun(pod) {
            known.tenant.begun.store(true, Ordering::Relaxed);
        }
        let before = std::mem::replace(&mut known.addresses, addresses);
        let touched = self.claims.set(key, &before, &known.addresses);
        self.settle(&touched, now);
    }

    fn forget(&mut self, key: &Key, now: Timestamp) {
        if let Some(known) = self.known.remove(key) {
            for address in known.held {
                self.directory.remove(address, &known.tenant.identity.uid);
            }
            let touched = self.claims.set(key, &known.addresses, &[]);
            self.settle(&touched, now);
        }
    }

    /// Gives each of them what is its own alone. What is nobody's is taken away first: at no time has one another's address.
    fn settle(&mut self, touched: &BTreeSet<Key>, now: Timestamp) {
        for key in touched {
            if let Some(known) = self.known.get_mut(key) {
                known.withdraw(key, &self.claims, &self.directory, now);
            }
        }
        for key in touched {
            if let Some(known) = self.known.get_mut(key) {
                known.grant(key, &self.claims, &self.directory);
            }
        }
    }

    /// The policies that the sandbox names, as far as they can be read.
    fn policies(&self, sandbox: &AgentSandbox) -> Vec<Arc<EgressPolicy>> {
        let namespace = sandbox.metadata.namespace.as_deref();
        sandbox
            .spec
            .egress
            .policies
            .iter()
            .filter_map(|name| get(&self.stores.policies, name, namespace))
            .collect()
    }

    fn stamp(
        &self,
        sandbox: &AgentSandbox,
        class: Option<&SandboxClass>,
        policies: &[Arc<EgressPolicy>],
        given: &[EgressRule],
    ) -> Stamp {
        let part = |meta: &kube::api::ObjectMeta| (meta.uid.clone().unwrap_or_default(), meta.generation);
        let mut parts = vec![("cluster".to_owned(), Some(self.epoch)), part(&sandbox.metadata)];
        parts.extend(suspect::is_throttled(sandbox).then(|| ("throttled".to_owned(), None)));
        parts.extend(class.map(|class| part(&class.metadata)));
        parts.extend(policies.iter().map(|policy| part(&policy.metadata)));
        let until = |rule: &EgressRule| rule.expires_at.as_ref().map(|time| time.0.as_second());
        parts.extend(given.iter().map(|rule| (rule.name.clone(), until(rule))));
        Stamp(parts)
    }
}

fn compile(
    sandbox: &AgentSandbox,
    class: Option<&SandboxClass>,
    (policies, given): (&[Arc<EgressPolicy>], &[EgressRule]),
    cluster: &ClusterRanges,
) -> Arc<Policy> {
    let Some(class) = class else { return Policy::empty().into() };
    match Policy::effective(sandbox, policies, given, &class.spec.egress, cluster) {
        Ok(policy) => policy.into(),
        // The controller tells the user.
        Err(why) => {
            tracing::warn!(sandbox = %sandbox.name_any(), namespace = ?sandbox.metadata.namespace, %why, "nothing is allowed");
            Policy::empty().into()
        }
    }
}

/// Whether the init container, which proves the fence, has ended.
fn begun(pod: &Pod) -> bool {
    let init = pod.status.as_ref().and_then(|status| status.init_container_statuses.as_ref());
    init.into_iter().flatten().any(|init| {
        init.name == names::INIT_CONTAINER
            && init.state.as_ref().is_some_and(|state| state.terminated.is_some())
    })
}

fn addresses(pod: &Pod) -> Vec<IpAddr> {
    let Some(status) = &pod.status else { return Vec::new() };
    let all = status.pod_ips.iter().flatten().map(|ip| ip.ip.as_str()).chain(status.pod_ip.as_deref());
    let mut all: Vec<IpAddr> = all.filter_map(|ip| ip.parse().ok()).collect();
    all.sort_unstable();
    all.dedup();
    all
}

#[cfg(test)]
mod tests;
