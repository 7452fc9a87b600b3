//! The watches that the [`Directory`] is filled from: sandboxes, and their pods. Of each object it keeps what a call needs.

use std::{collections::HashMap, sync::Arc};

use futures::{Stream, StreamExt as _, stream};
use kube::{
    Api, Client,
    runtime::watcher::{self, Event},
};
use tokio_util::sync::CancellationToken;

use super::{
    directory::{Directory, Part, Place, Sandbox, Seat, place},
    metrics::Metrics,
};
use crate::kubernetes::{self, Guarded};

/// How many lists must have been read before any sandbox is known.
const KINDS: usize = 2;

/// Keeps the directory as the cluster is, until `stop`.
pub(super) async fn fill(
    client: Client,
    directory: Arc<Directory>,
    metrics: Arc<Metrics>,
    stop: CancellationToken,
) {
    let lists = stream::select(
        follow::<Sandbox>(&client, kubernetes::all(), &directory, &metrics),
        follow::<Seat>(&client, kubernetes::pods(), &directory, &metrics),
    );
    let mut lists = std::pin::pin!(lists.take_until(stop.cancelled_owned()));
    let mut whole = std::collections::BTreeSet::new();
    while let Some(kind) = lists.next().await {
        whole.insert(kind);
        if whole.len() == KINDS && !directory.is_loaded() {
            tracing::info!(sandboxes = directory.len(), "every list was read");
            directory.load();
        }
    }
}

/// Keeps one kind, and says its name whenever its whole list was read.
fn follow<V: Part>(
    client: &Client,
    config: watcher::Config,
    directory: &Arc<Directory>,
    metrics: &Arc<Metrics>,
) -> impl Stream<Item = &'static str> + Send + use<V> {
    let (directory, metrics) = (directory.clone(), metrics.clone());
    let events = kubernetes::events::<V::Of>(Api::all(client.clone()), config, move || metrics.watch_error());
    let mut listed: HashMap<Place, Arc<V>> = HashMap::new();
    events.filter_map(move |event| {
        let mut whole = None;
        match event {
            Err(_) => {}
            Ok(Event::Apply(object)) => directory.put(place(&object), read::<V>(&object)),
            Ok(Event::Delete(object)) => directory.put::<V>(place(&object), None),
            Ok(Event::Init) => listed.clear(),
            Ok(Event::InitApply(object)) => {
                listed.extend(read::<V>(&object).map(|part| (place(&object), Arc::new(part))));
            }
            Ok(Event::InitDone) => {
                directory.only(std::mem::take(&mut listed));
                whole = Some(std::any::type_name::<V>());
            }
        }
        std::future::ready(whole)
    })
}

/// What is kept of an object. One that can't be read is as good as none, and hides no other.
fn read<V: Part>(object: &Guarded<V::Of>) -> Option<V> {
    match &object.0 {
        Ok(object) => V::read(object),
        Err(error) => {
            let (namespace, name) = place(object);
            tracing::warn!(%namespace, %name, error = %error.error, "an object can't be read");
            None
        }
    }
}

// They need the stream of a fake API server.
#[cfg(all(test, feature = "testkit"))]
mod tests;
