//! What every role needs of an API server: a client that hides nothing, watches that end by themselves, stores that one bad
//! object does not spoil, and Events.

use std::{fmt::Debug, sync::Arc, time::Duration};

use anyhow::Context as _;
use futures::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Api, Client, Config, Resource, ResourceExt,
    core::DeserializeGuard,
    runtime::{
        WatchStreamExt as _,
        events::{Event, Recorder},
        reflector::{ObjectRef, Store, store::Writer},
        watcher,
    },
};
use serde::de::DeserializeOwned;

use crate::sandbox::names;

/// Seconds after which the server ends a watch and it is made again from where it was: a connection that died in silence is
/// noticed.
const WATCH_SECONDS: u32 = 60;
/// Longest note of an Event, in bytes: the API's limit is 1 kB.
pub(crate) const NOTE_BYTES: usize = 1000;

/// Objects that one undecodable item must not hide.
pub(crate) type Guarded<K> = DeserializeGuard<K>;

/// A client that leaves retries to its caller, so that throttling is seen and no slot is held for minutes.
pub(crate) async fn client() -> anyhow::Result<Client> {
    let mut config = Config::infer()
        .await
        .context("no Kubernetes API server is configured; set KUBECONFIG or run in a pod")?;
    config.default_retry = false;
    Ok(Client::try_from(config)?)
}

/// Everything of a kind.
pub(crate) fn all() -> watcher::Config {
    watcher::Config::default().streaming_lists().timeout(WATCH_SECONDS)
}

/// Sandbox pods.
pub(crate) fn pods() -> watcher::Config {
    all().labels(names::SANDBOX_LABEL)
}

/// A watch that fills a store on its way, backs off, and has told and counted each of its errors.
pub(crate) fn watch<K>(
    api: Api<Guarded<K>>,
    config: watcher::Config,
    writer: Writer<Guarded<K>>,
    broke: impl Fn() + Send,
) -> impl Stream<Item = watcher::Result<watcher::Event<Guarded<K>>>> + Send
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    events(api, config, broke).reflect(writer)
}

/// The same without a store, for whoever keeps only a part of each object.
pub(crate) fn events<K>(
    api: Api<Guarded<K>>,
    config: watcher::Config,
    broke: impl Fn() + Send,
) -> impl Stream<Item = watcher::Result<watcher::Event<Guarded<K>>>> + Send
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    watcher(api, config)
        .inspect(move |event| {
            if let Err(error) = event {
                broke();
                tracing::warn!(kind = %K::kind(&()), %error, "watch is made again");
            }
        })
        .default_backoff()
        .modify(prune)
}

/// Managed fields are half of an object's metadata and of no use here.
fn prune<K: Resource<DynamicType = ()> + Clone>(object: &mut Guarded<K>) {
    object.managed_fields_mut().clear();
    object.annotations_mut().remove("kubectl.kubernetes.io/last-applied-configuration");
}

/// The object behind a guard, if it can be read.
pub(crate) fn readable<K: Clone>(guarded: &Guarded<K>) -> Option<Arc<K>> {
    guarded.0.as_ref().ok().cloned().map(Arc::new)
}

/// An object of a store, if it is there and can be read.
pub(crate) fn get<K>(store: &Store<Guarded<K>>, name: &str, namespace: Option<&str>) -> Option<Arc<K>>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    let mut key = ObjectRef::new(name);
    key.namespace = namespace.map(ToOwned::to_owned);
    store.get(&key).and_then(|guarded| readable(&guarded))
}

/// Publishes an Event. One that can't be published is logged, never tried again: a status or a metric has said it already.
/// Bounded like every call: an answer that never comes must hold nobody.
pub(crate) async fn publish(recorder: &Recorder, event: &Event, about: &ObjectReference, patience: Duration) {
    match tokio::time::timeout(patience, recorder.publish(event, about)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, reason = event.reason, "event not published"),
        Err(_) => tracing::debug!(reason = event.reason, "event not published: no answer"),
    }
}

/// As much of a text as so many bytes hold, in whole characters.
pub(crate) fn cut(mut text: String, most: usize) -> String {
    let end = (0..=most.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
    text.truncate(end);
    text
}
