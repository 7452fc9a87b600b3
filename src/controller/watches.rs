//! The watches: one full stream for each kind, which fills the store and triggers what depends on it.
//!
//! Every stream is guarded against one bad object, backs off, drops managed fields, and ends by itself after a minute so
//! that a connection that died in silence is noticed.

use std::{
    collections::{BTreeMap, HashMap},
    fmt::Debug,
    sync::{Arc, Mutex, PoisonError},
};

use futures::{Stream, StreamExt};
use k8s_openapi::{
    api::core::v1::{ResourceQuota, ResourceQuotaSpec, Service},
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{
    Api, Resource, ResourceExt,
    runtime::{
        WatchStreamExt,
        reflector::{ObjectRef, store::Writer},
        watcher,
    },
};
use serde::de::DeserializeOwned;

use super::context::{Context, Guarded, Stores};
use crate::{
    api::{AgentSandbox, EgressApproval, EgressRule, Protocol, SandboxClass, SandboxClassStatus},
    kubernetes::{all, get, watch},
    sandbox::{approvals, lifecycle, names},
};

/// What we manage of a kind.
pub(super) fn ours() -> watcher::Config {
    all().labels(&format!("{}={}", names::MANAGED_BY_LABEL, names::MANAGER))
}

/// A stream of touched objects that fills a store on its way.
pub(super) fn stream<K>(
    context: &Context,
    config: watcher::Config,
    writer: Writer<Guarded<K>>,
) -> impl Stream<Item = Result<Guarded<K>, watcher::Error>> + Send + use<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    stream_of(context, Api::all(context.client.clone()), config, writer)
}

/// Services of our own namespace: the gateway's, and those of hosts. We may see no other.
pub(super) fn services(
    context: &Arc<Context>,
    writer: Writer<Guarded<Service>>,
) -> impl Stream<Item = Result<Guarded<Service>, watcher::Error>> + Send + use<> {
    let api = Api::namespaced(context.client.clone(), &context.settings.namespace);
    let of = context.clone();
    stream_of(context, api, all(), writer).inspect(move |_| of.named.wake())
}

fn stream_of<K>(
    context: &Context,
    api: Api<Guarded<K>>,
    config: watcher::Config,
    writer: Writer<Guarded<K>>,
) -> impl Stream<Item = Result<Guarded<K>, watcher::Error>> + Send + use<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    let metrics = context.metrics.clone();
    let filled = context.stores.filled.clone();
    watch(api, config, writer, move || metrics.watch_error())
        .inspect(move |event| {
            if matches!(event, Ok(watcher::Event::InitDone)) {
                filled.fill(std::any::type_name::<K>());
            }
        })
        .touched_objects()
        // Told, counted and backed off above. The controller would make all of its watches wait for each error of one.
        .filter(|touched| std::future::ready(touched.is_ok()))
}

/// Keys of the sandboxes that something else concerns.
#[derive(Clone)]
pub(crate) struct Concerned {
    stores: Stores,
    /// What of each quota and class matters to sandboxes that run, as it was last: most events of both tell of numbers alone.
    shapes: Arc<Mutex<HashMap<(String, String), Shape>>>,
}

type Key = ObjectRef<Guarded<AgentSandbox>>;

/// As much of an object as sandboxes with a pod depend on. One that is gone, or can't be read, has none.
#[derive(Clone, PartialEq)]
enum Shape {
    Quota(Option<ResourceQuotaSpec>, BTreeMap<String, String>, Vec<OwnerReference>),
    Class(Option<String>, Option<i64>, BTreeMap<String, String>, Option<Box<SandboxClassStatus>>),
}

impl Concerned {
    pub(crate) fn new(stores: Stores) -> Self {
        Self { stores, shapes: Arc::default() }
    }

    /// Whether the object that has this key matters as it did, by what is kept of it; from now on `shape` is.
    fn is_as_before(&self, key: (String, String), shape: Option<Shape>) -> bool {
        let mut shapes = self.shapes.lock().unwrap_or_else(PoisonError::into_inner);
        let before = shapes.remove(&key);
        let same = before.is_some() && before == shape;
        shapes.extend(shape.map(|shape| (key, shape)));
        same
    }

    fn sandboxes(&self, concerns: impl Fn(&AgentSandbox) -> bool) -> Vec<Key> {
        let open = |guarded: &Guarded<AgentSandbox>| {
            guarded.0.as_ref().is_ok_and(|sandbox| !lifecycle::is_finished(sandbox) && concerns(sandbox))
        };
        self.stores
            .sandboxes
            .state_filter(open)
            .iter()
            .map(|sandbox| ObjectRef::from_obj(sandbox.as_ref()))
            .collect()
    }

    /// A pod concerns the sandbox of its name, even one that does not own it: it may wait for the name.
    pub(crate) fn pod(pod: &impl Resource<DynamicType = ()>) -> Option<Key> {
        let name = pod.meta().labels.as_ref()?.get(names::SANDBOX_LABEL)?;
        Some(ObjectRef::new(name).within(pod.meta().namespace.as_deref().unwrap_or_default()))
    }

    /// A question concerns the sandbox that asks.
    pub(crate) fn approval(approval: &Guarded<EgressApproval>) -> Option<Key> {
        let namespace = approval.namespace().unwrap_or_default();
        Some(ObjectRef::new(approvals::of(approval)?).within(&namespace))
    }

    /// A policy concerns its sandbox, or, the fence, all of its namespace.
    pub(crate) fn policy(&self, policy: &impl Resource<DynamicType = ()>) -> Vec<Key> {
        match Self::pod(policy) {
            Some(key) => vec![key],
            None => self.namespace(policy.meta().namespace.as_deref().unwrap_or_default()),
        }
    }

    /// An EgressPolicy concerns those that name it.
    pub(crate) fn egress_policy(&self, policy: &impl Resource<DynamicType = ()>) -> Vec<Key> {
        let (Some(name), namespace) = (&policy.meta().name, &policy.meta().namespace) else {
            return Vec::new();
        };
        self.sandboxes(|sandbox| {
            sandbox.metadata.namespace == *namespace && sandbox.spec.egress.policies.contains(name)
        })
    }

    /// A namespace concerns its sandboxes.
    pub(crate) fn namespace(&self, namespace: &str) -> Vec<Key> {
        self.sandboxes(|sandbox| sandbox.metadata.namespace.as_deref() == Some(namespace))
    }

    /// A quota concerns the sandboxes of its namespace: those that run if it was changed, and of its count alone those that have no
    /// pod, since there may be room now. It moves with every pod, and must not wake all of them each time.
    pub(crate) fn quota(&self, quota: &Guarded<ResourceQuota>) -> Vec<Key> {
        let (namespace, name) = (quota.namespace().unwrap_or_default(), quota.name_any());
        let shape = get(&self.stores.quotas, &name, Some(&namespace)).map(|quota| {
            let owners = quota.owner_references().to_vec();
            Shape::Quota(quota.spec.clone(), quota.labels().clone(), owners)
        });
        if self.is_as_before((namespace.clone(), name), shape) {
            self.sandboxes(|sandbox| {
                let of = sandbox.metadata.namespace.as_deref();
                of == Some(&namespace) && !self.has_pod(sandbox)
            })
        } else {
            self.namespace(&namespace)
        }
    }

    fn has_pod(&self, sandbox: &AgentSandbox) -> bool {
        let key = ObjectRef::new(&sandbox.name_any())
            .within(sandbox.metadata.namespace.as_deref().unwrap_or_default());
        self.stores.pods.get(&key).is_some()
    }

    /// A class concerns those that name it, and those that name none; not by how many of them there are.
    pub(crate) fn class(&self, class: &Guarded<SandboxClass>) -> Vec<Key> {
        let name = class.name_any();
        let shape = get(&self.stores.classes, &name, None).map(|class| {
            let status = class.status.clone().map(|status| SandboxClassStatus { sandboxes: None, ..status });
            Shape::Class(
                class.uid(),
                class.metadata.generation,
                class.annotations().clone(),
                status.map(Box::new),
            )
        });
        if self.is_as_before((String::new(), name.clone()), shape) {
            return Vec::new();
        }
        self.sandboxes(|sandbox| sandbox.spec.class_name.as_ref().is_none_or(|wanted| *wanted == name))
    }

    /// The gateway's Service concerns all. That of a host concerns those whose rules may need one, whom it is told.
    pub(crate) fn service(&self, name: &str) -> Vec<Key> {
        if name == names::GATEWAY {
            return self.any();
        }
        let tcp = |rules: &[EgressRule]| rules.iter().any(|rule| rule.protocol == Some(Protocol::Tcp));
        self.sandboxes(|sandbox| {
            let egress = &sandbox.spec.egress;
            let namespace = sandbox.metadata.namespace.as_deref();
            let policy = |name: &String| get(&self.stores.egress_policies, name, namespace);
            tcp(&egress.allow)
                || egress.policies.iter().filter_map(policy).any(|policy| tcp(&policy.spec.rules))
        })
    }

    /// A RuntimeClass, or a class's PriorityClass, can concern any that has no pod yet or shows what became of it.
    pub(crate) fn any(&self) -> Vec<Key> {
        self.sandboxes(|_| true)
    }
}
