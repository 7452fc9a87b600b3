//! The watches that the [`Index`] is filled from: one stream of changes, in the order in which they came.
//!
//! A watch is silent while nothing changes, and while nobody is there. So the API server is asked from time to time, and how long
//! ago it answered is how old what is known may be.

use std::{any::type_name, fmt::Debug, sync::Arc, time::Duration};

use futures::{Stream, StreamExt, stream};
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::ListParams,
    runtime::{
        reflector::{self, Store, store::Writer},
        watcher::{self, Event},
    },
};
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use super::{
    clock::Clock,
    directory::{Directory, NamedPorts},
    index::{Change, Index, Stores},
    metrics::Metrics,
};
use crate::{
    api::{AgentSandbox, EgressApproval, EgressPolicy, SandboxClass},
    kubernetes::{self, Guarded},
    policy::ClusterRanges,
    sandbox::{
        approvals,
        named::{self, Standing},
        names,
    },
};

/// How many lists must have been read before anybody is known.
const KINDS: usize = 7;

/// What is watched.
pub(super) struct Watched {
    /// By whom.
    pub(super) client: Client,
    /// Where Services of hosts are: our own namespace.
    pub(super) namespace: String,
}

/// How often the API server is asked whether it is there, and how long it has for an answer.
const BEAT: Duration = Duration::from_secs(10);

/// What came from the API server.
enum News {
    /// That it is there.
    Beat,
    /// Something of this kind changed.
    Change(Change),
    /// The Service of a host changed.
    Named,
    /// The whole list of a kind was read.
    Filled(&'static str),
}

/// Keeps the directory as the cluster is, until `stop`.
pub(super) async fn fill(
    watched: Watched,
    directory: Arc<Directory>,
    clock: Clock,
    fixed: ClusterRanges,
    metrics: Arc<Metrics>,
    stop: CancellationToken,
) {
    let (services, of_hosts) = services(&watched, &metrics);
    let (stores, news) = watches(&watched.client, &metrics);
    let news = stream::select(of_hosts, news);
    let mut index = Index::new(stores, directory.clone(), clock, fixed);
    let mut filled = std::collections::BTreeSet::new();
    let mut news = std::pin::pin!(news.take_until(stop.cancelled_owned()));
    while let Some(news) = news.next().await {
        directory.heard(Clock::wall());
        let change = match news {
            News::Beat => continue,
            News::Filled(kind) => {
                filled.insert(kind);
                if kind == type_name::<Service>() {
                    directory.name_ports(table(&services));
                }
                Change::Everything
            }
            News::Named => {
                directory.name_ports(table(&services));
                continue;
            }
            News::Change(change) => change,
        };
        // What is half known would be denied for good reason, and yet wrongly: it is not looked at before all is there.
        if filled.len() < KINDS {
            continue;
        }
        // Rules by the thousand take milliseconds, in which connections should not have to wait.
        let taken = tokio::task::spawn_blocking(move || {
            index.take(&change, Clock::wall());
            index
        });
        index = match taken.await {
            Ok(index) => index,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The process ends.
                Err(_) => return,
            },
        };
        if !directory.is_loaded() {
            tracing::info!(sandboxes = directory.len(), "every list was read");
            directory.load();
        }
    }
}

fn watches(client: &Client, metrics: &Arc<Metrics>) -> (Stores, impl Stream<Item = News> + Send + use<>) {
    let (pods, pods_writer) = reflector::store();
    let (sandboxes, sandboxes_writer) = reflector::store();
    let (classes, classes_writer) = reflector::store();
    let (policies, policies_writer) = reflector::store();
    let (approvals, approvals_writer) = reflector::store();
    let (nodes, nodes_writer) = reflector::store();
    let all = stream::select_all([
        watch::<Pod>(client, kubernetes::pods(), pods_writer, metrics, |pod| Change::Sandbox(key(pod)))
            .boxed(),
        watch::<AgentSandbox>(client, kubernetes::all(), sandboxes_writer, metrics, |one| {
            Change::Sandbox(key(one))
        })
        .boxed(),
        watch::<SandboxClass>(client, kubernetes::all(), classes_writer, metrics, |_| Change::Class).boxed(),
        watch::<EgressPolicy>(client, kubernetes::all(), policies_writer, metrics, |one| {
            Change::Policy(one.namespace().unwrap_or_default())
        })
        .boxed(),
        watch::<EgressApproval>(client, kubernetes::all(), approvals_writer, metrics, |one| {
            let name = approvals::of(one).unwrap_or_default().to_owned();
            Change::Sandbox((one.namespace().unwrap_or_default(), name))
        })
        .boxed(),
        watch::<Node>(client, kubernetes::all(), nodes_writer, metrics, |_| Change::Node).boxed(),
        beats(client).boxed(),
    ]);
    (Stores { pods, sandboxes, classes, policies, approvals, nodes }, all)
}

/// Services of hosts that have ports of their own.
fn services(
    watched: &Watched,
    metrics: &Arc<Metrics>,
) -> (Store<Guarded<Service>>, impl Stream<Item = News> + Send + use<>) {
    let (services, writer) = reflector::store();
    let api = Api::namespaced(watched.client.clone(), &watched.namespace);
    let labels = names::NAMED_LABELS.map(|(key, value)| format!("{key}={value}"));
    let config = kubernetes::all().labels(&labels.join(","));
    (services, watch_of(api, config, writer, metrics, |_| News::Named).boxed())
}

/// What they say. One that can't be read leads nowhere, and is told.
fn table(services: &Store<Guarded<Service>>) -> NamedPorts {
    let all = services.state();
    let all = all.iter().filter_map(|service| Standing::read(service.0.as_ref().ok()?)).collect();
    NamedPorts::new(named::settle(all).into_iter().filter_map(|one| {
        if one.mapping.is_none() {
            tracing::warn!(service = one.name, "the Service of a host can't be read, or has another's port");
        }
        one.mapping
    }))
}

/// Asks for one object, or for none: any answer to what this replica may ask is a sign of life.
fn beats(client: &Client) -> impl Stream<Item = News> + Send + use<> {
    let classes: Api<SandboxClass> = Api::all(client.clone());
    stream::unfold(classes, |classes| async move {
        loop {
            tokio::time::sleep(BEAT).await;
            let one = ListParams::default().limit(1);
            match tokio::time::timeout(BEAT, classes.list_metadata(&one)).await {
                Ok(Ok(_)) => return Some((News::Beat, classes)),
                Ok(Err(error)) => tracing::debug!(%error, "the API server does not answer"),
                Err(_) => tracing::debug!("the API server does not answer in time"),
            }
        }
    })
}

fn key(object: &impl ResourceExt) -> (String, String) {
    (object.namespace().unwrap_or_default(), object.name_any())
}

fn watch<K>(
    client: &Client,
    config: watcher::Config,
    writer: Writer<Guarded<K>>,
    metrics: &Arc<Metrics>,
    change: fn(&Guarded<K>) -> Change,
) -> impl Stream<Item = News> + Send + use<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    watch_of(Api::all(client.clone()), config, writer, metrics, move |object| News::Change(change(object)))
}

fn watch_of<K, N>(
    api: Api<Guarded<K>>,
    config: watcher::Config,
    writer: Writer<Guarded<K>>,
    metrics: &Arc<Metrics>,
    news: N,
) -> impl Stream<Item = News> + Send + use<K, N>
where
    N: Fn(&Guarded<K>) -> News + Send,
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    let metrics = metrics.clone();
    kubernetes::watch(api, config, writer, move || metrics.watch_error()).filter_map(move |event| {
        let news = match event {
            Ok(Event::Apply(object) | Event::Delete(object)) => Some(news(&object)),
            Ok(Event::InitDone) => Some(News::Filled(type_name::<K>())),
            Ok(Event::Init | Event::InitApply(_)) | Err(_) => None,
        };
        std::future::ready(news)
    })
}

// They need the stream of a fake API server.
#[cfg(all(test, feature = "testkit"))]
mod tests;
