//! What every reconcile shares: the client, what the watches saw, what was just written, and the counters.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    future::Future,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::{
    core::v1::{Namespace, Node, Pod, ResourceQuota, Service},
    networking::v1::NetworkPolicy,
    node::v1::RuntimeClass,
    rbac::v1::{Role, RoleBinding},
    scheduling::v1::PriorityClass,
};
use kube::{
    Client, Resource, ResourceExt,
    core::DeserializeGuard,
    runtime::reflector::{Store, store::Writer},
};
use tokio::sync::watch;

use super::{
    authority::Authority, call_keys::CallKeys, changes::Changes, error::ApplyError, events::Storyteller,
    idle::Idle, named::Named, seats::Seats, suspects::Suspects,
};
use crate::{
    api::{AgentSandbox, AgentSandboxStatus, EgressApproval, EgressPolicy, SandboxClass},
    audit::Recorder,
    policy::ClusterRanges,
    sandbox::{approvals, world::Settings},
    telemetry::Metrics,
};

/// How long one call may take: longer than a busy API server needs, shorter than anybody waits.
pub(super) const CALL_TIMEOUT: Duration = Duration::from_secs(15);

/// Objects that one undecodable item must not hide.
pub type Guarded<K> = DeserializeGuard<K>;

/// Which stores were filled once. Anybody may wait for it at once: a store's own wait wakes only the last who asked.
#[derive(Clone, Debug)]
pub(super) struct Filled(Arc<watch::Sender<BTreeSet<&'static str>>>);

impl Default for Filled {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(BTreeSet::new())))
    }
}

impl Filled {
    /// The store of this kind was filled.
    pub(super) fn fill(&self, kind: &'static str) {
        self.0.send_if_modified(|filled| filled.insert(kind));
    }

    /// Whether the store of this kind was filled once.
    pub(super) fn has(&self, kind: &str) -> bool {
        self.0.borrow().contains(kind)
    }

    async fn all(&self, kinds: usize) {
        // The sender is held here, so that the channel can't end.
        let _ = self.0.subscribe().wait_for(|filled| filled.len() >= kinds).await;
    }
}

macro_rules! stores {
    ($($(#[doc = $doc:literal])+ $name:ident: $kind:ty,)+) => {
        /// What the watches saw.
        #[derive(Clone, Debug)]
        pub struct Stores {
            $($(#[doc = $doc])+ pub $name: Store<Guarded<$kind>>,)+
            pub(super) filled: Filled,
        }

        /// What fills the stores.
        #[derive(Debug)]
        pub struct Writers { $($(#[doc = $doc])+ pub $name: Writer<Guarded<$kind>>,)+ }

        impl Stores {
            /// Empty stores and their writers.
            #[must_use]
            pub fn new() -> (Self, Writers) {
                $(let $name = kube::runtime::reflector::store();)+
                (Self { $($name: $name.0,)+ filled: Filled::default() }, Writers { $($name: $name.1,)+ })
            }

            /// Waits until every store was filled once by its watch.
            pub(super) async fn ready(&self) {
                self.filled.all([$(stringify!($name)),+].len()).await;
            }
        }
    };
}

stores! {
    /// Every sandbox.
    sandboxes: AgentSandbox,
    /// Every class.
    classes: SandboxClass,
    /// Sandbox pods.
    pods: Pod,
    /// Every NetworkPolicy: ours, and those that might open what ours closes.
    policies: NetworkPolicy,
    /// Every EgressPolicy.
    egress_policies: EgressPolicy,
    /// Every EgressApproval.
    approvals: EgressApproval,
    /// Our Roles: what of its sandboxes' credentials the gateway may have.
    roles: Role,
    /// Our RoleBindings.
    role_bindings: RoleBinding,
    /// Our quotas.
    quotas: ResourceQuota,
    /// Our priority classes.
    priority_classes: PriorityClass,
    /// Every RuntimeClass.
    runtime_classes: RuntimeClass,
    /// Every node.
    nodes: Node,
    /// Every namespace.
    namespaces: Namespace,
    /// Services of our own namespace: the gateway's, and those of hosts that have ports of their own.
    services: Service,
}

/// A status that was written, until the watch brings it back.
#[derive(Clone, Debug)]
struct Written {
    version: u64,
    status: AgentSandboxStatus,
}

/// A pod that was made, until the watch shows it.
#[derive(Clone, Debug)]
struct Made {
    at: Timestamp,
    pod: Arc<Pod>,
}

/// How long a pod that was made is taken to be there though no watch shows it: longer than any watch lags.
const UNSEEN: SignedDuration = SignedDuration::from_secs(30);

/// What every reconcile shares.
pub struct Context {
    /// The client; every call through it is bounded by [`Context::call`].
    pub client: Client,
    /// What the watches saw.
    pub stores: Stores,
    /// What the installation fixes.
    pub settings: Arc<Settings>,
    /// Whom sandboxes trust, that the gateway may open their TLS.
    pub(super) authority: Arc<Authority>,
    /// Whose calls agents take.
    pub(super) call_keys: Arc<CallKeys>,
    /// When sandboxes were last used.
    pub(super) idle: Idle,
    /// What looks like an attack.
    pub(super) suspects: Suspects,
    /// What is known of classes and policies, so that a change of theirs is told once.
    pub(super) changes: Changes,
    /// Ranges that the installation names as the cluster's own.
    pub cluster: ClusterRanges,
    /// Counters.
    pub metrics: Arc<Metrics>,
    /// Where it is said what was done.
    pub(super) recorder: Recorder,
    /// Events.
    pub(super) story: Storyteller,
    written: Mutex<HashMap<String, Written>>,
    made: Mutex<HashMap<String, Made>>,
    /// Approvals that were written, by uid, until the watch brings them back.
    asked: Mutex<HashMap<String, Arc<EgressApproval>>>,
    told_to_go: Mutex<HashSet<String>>,
    failures: Mutex<HashMap<String, u32>>,
    /// Creations under way.
    pub(super) seats: Seats,
    /// Hosts that have ports of their own.
    pub(crate) named: Named,
}

impl Context {
    /// A context for one process.
    #[must_use]
    pub fn new(
        client: Client,
        stores: Stores,
        settings: Settings,
        cluster: ClusterRanges,
        metrics: Arc<Metrics>,
        instance: Option<String>,
    ) -> Self {
        Self {
            story: Storyteller::new(client.clone(), instance),
            client,
            stores,
            settings: Arc::new(settings),
            authority: Arc::default(),
            call_keys: Arc::default(),
            idle: Idle::default(),
            suspects: Suspects::default(),
            changes: Changes::default(),
            cluster,
            metrics,
            recorder: Recorder::none(),
            written: Mutex::default(),
            made: Mutex::default(),
            asked: Mutex::default(),
            told_to_go: Mutex::default(),
            failures: Mutex::default(),
            seats: Seats::default(),
            named: Named::default(),
        }
    }

    /// Makes one call, bounded in time.
    pub(super) async fn call<T>(
        &self,
        what: &'static str,
        call: impl Future<Output = Result<T, kube::Error>> + Send,
    ) -> Result<T, ApplyError> {
        let answer = tokio::time::timeout(CALL_TIMEOUT, call).await.map_err(|_| ApplyError::Timeout(what))?;
        answer.map_err(|source| ApplyError::Call { what, source: Box::new(source) })
    }

    /// Remembers a status that was written: a watch that lags must not make us write it twice, or start twice.
    pub(super) fn remember(&self, sandbox: &AgentSandbox) {
        let (Some(uid), Some(version), Some(status)) =
            (sandbox.uid(), version(sandbox), sandbox.status.clone())
        else {
            return;
        };
        lock(&self.written).insert(uid, Written { version, status });
    }

    /// The sandbox with the newest status that is known.
    pub(super) fn newest(&self, sandbox: Arc<AgentSandbox>) -> Arc<AgentSandbox> {
        let Some(uid) = sandbox.uid() else { return sandbox };
        let mut written = lock(&self.written);
        match written.get(&uid) {
            Some(known) if version(sandbox.as_ref()).is_some_and(|seen| seen < known.version) => {
                let status = Some(known.status.clone());
                Arc::new(AgentSandbox { status, ..AgentSandbox::clone(&sandbox) })
            }
            Some(_) => {
                written.remove(&uid);
                sandbox
            }
            None => sandbox,
        }
    }

    /// Remembers an approval that was written.
    pub(super) fn remember_approval(&self, approval: EgressApproval) {
        if let Some(uid) = approval.uid() {
            lock(&self.asked).insert(uid, Arc::new(approval));
        }
    }

    /// What was asked for a sandbox, as new as it is known.
    pub(super) fn approvals(&self, sandbox: &AgentSandbox) -> Vec<Arc<EgressApproval>> {
        let mut all: Vec<_> = approvals::own(self.stores.approvals.state().into_iter(), sandbox).collect();
        let mut asked = lock(&self.asked);
        for shown in &mut all {
            let Some(uid) = shown.uid() else { continue };
            match asked.get(&uid) {
                Some(known) if version(shown.as_ref()) < version(known.as_ref()) => *shown = known.clone(),
                Some(_) => drop(asked.remove(&uid)),
                None => {}
            }
        }
        let unseen = asked.values().filter(|known| {
            approvals::is_of(known, sandbox)
                && !all.iter().any(|shown| shown.metadata.uid == known.metadata.uid)
        });
        let unseen: Vec<_> = unseen.cloned().collect();
        all.extend(unseen);
        all
    }

    /// Remembers the pod that was made for a sandbox.
    pub(super) fn made(&self, sandbox: &str, pod: Pod, at: Timestamp) {
        lock(&self.made).insert(sandbox.to_owned(), Made { at, pod: Arc::new(pod) });
    }

    /// The pod that was made for a sandbox and that no watch has shown yet. Once one was shown, it is forgotten.
    pub(super) fn unseen(&self, sandbox: &str, shown: bool, now: Timestamp) -> Option<Arc<Pod>> {
        let mut made = lock(&self.made);
        let fresh = made
            .get(sandbox)
            .filter(|made| !shown && now.duration_since(made.at) < UNSEEN)
            .map(|made| made.pod.clone());
        if fresh.is_none() {
            made.remove(sandbox);
        }
        fresh
    }

    /// Pods that were made and that no watch may have shown yet.
    pub(super) fn unseen_pods(&self, now: Timestamp) -> Vec<Arc<Pod>> {
        let fresh = |made: &&Made| now.duration_since(made.at) < UNSEEN;
        lock(&self.made).values().filter(fresh).map(|made| made.pod.clone()).collect()
    }

    /// Remembers that an object was deleted, by its uid, until no watch shows it any more.
    pub(super) fn told_to_go(&self, uid: String) {
        lock(&self.told_to_go).insert(uid);
    }

    /// Whether an object was deleted already.
    pub(super) fn is_told_to_go(&self, uid: &str) -> bool {
        lock(&self.told_to_go).contains(uid)
    }

    /// Counts a failure of an object; how many in a row there were.
    pub(super) fn failed(&self, uid: &str) -> u32 {
        let mut failures = lock(&self.failures);
        let count = failures.entry(uid.to_owned()).or_default();
        *count = count.saturating_add(1);
        *count
    }

    /// Whether an object's last reconcile failed.
    pub(super) fn has_failed(&self, uid: &str) -> bool {
        lock(&self.failures).contains_key(uid)
    }

    /// An object's reconcile reached its end.
    pub(super) fn succeeded(&self, uid: &str) {
        lock(&self.failures).remove(uid);
    }

    /// Forgets objects that are gone.
    pub(super) fn sweep(&self) {
        let sandboxes = self.stores.sandboxes.state();
        let classes = self.stores.classes.state();
        let alive: HashSet<String> =
            sandboxes.iter().filter_map(|s| s.uid()).chain(classes.iter().filter_map(|c| c.uid())).collect();
        lock(&self.written).retain(|uid, _| alive.contains(uid));
        lock(&self.made).retain(|uid, _| alive.contains(uid));
        lock(&self.failures).retain(|uid, _| alive.contains(uid));
        lock(&self.asked).retain(|_, known| alive.contains(&known.spec.sandbox.uid));
        self.idle.retain(&alive);
        self.suspects.retain(&alive);
        let pods: HashSet<String> = self.stores.pods.state().iter().filter_map(|pod| pod.uid()).collect();
        lock(&self.told_to_go).retain(|uid| alive.contains(uid) || pods.contains(uid));
    }
}

/// Resource versions of one kind are comparable numbers (guaranteed since Kubernetes 1.35, true before).
fn version<K: Resource>(object: &K) -> Option<u64> {
    object.meta().resource_version.as_deref()?.parse().ok()
}

/// These maps are whole after any panic: each change is one call.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
