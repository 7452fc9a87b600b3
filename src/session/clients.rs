//! The watch that tells the [`Authority`] who vouches for the cluster's users: the ConfigMap in which the API server publishes it
//! for servers like this one.
//!
//! Must read nothing else of that namespace. What the cluster does not say, or can't be read, leaves nobody to vouch.

use std::sync::Arc;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client, runtime::watcher::Event};
use tokio_util::sync::CancellationToken;

use super::{certificate::Authority, metrics::Metrics};
use crate::kubernetes::{self, Guarded, readable};

/// Where the API server publishes it, and under which key.
const NAMESPACE: &str = "kube-system";
const NAME: &str = "extension-apiserver-authentication";
/// The authority of users. Beside it stands that of proxies which speak for users; theirs count nothing here.
const KEY: &str = "client-ca-file";

/// Follows it until `stop`.
pub(crate) async fn follow(
    client: Client,
    authority: Arc<Authority>,
    metrics: Arc<Metrics>,
    stop: CancellationToken,
) {
    let api: Api<Guarded<ConfigMap>> = Api::namespaced(client, NAMESPACE);
    let config = kubernetes::all().fields(&format!("metadata.name={NAME}"));
    let events = kubernetes::events(api, config, move || metrics.watch_error());
    let mut events = std::pin::pin!(events.take_until(stop.cancelled_owned()));
    let mut seen = false;
    while let Some(event) = events.next().await {
        match event {
            // What was known is known on: a watch breaks for reasons of its own.
            Err(_) => authority.was_asked(),
            Ok(Event::Init) => seen = false,
            Ok(Event::Apply(map) | Event::InitApply(map)) => {
                seen = true;
                take(&map, &authority);
            }
            Ok(Event::Delete(_)) => authority.distrust(),
            Ok(Event::InitDone) => {
                if !seen {
                    tracing::warn!(
                        "there is no ConfigMap {NAMESPACE}/{NAME}: no client certificate is taken"
                    );
                    authority.distrust();
                }
                authority.was_asked();
            }
        }
    }
}

fn take(map: &Guarded<ConfigMap>, authority: &Authority) {
    let map = readable(map);
    let pem = map.as_ref().and_then(|map| map.data.as_ref()?.get(KEY));
    let Some(pem) = pem else {
        tracing::warn!("{NAMESPACE}/{NAME} has no {KEY}: no client certificate is taken");
        return authority.distrust();
    };
    match authority.trust(pem) {
        Ok(true) => tracing::info!("client certificates of the cluster's authority are taken"),
        Ok(false) => {}
        Err(error) => {
            tracing::error!(
                error = format!("{error:#}"),
                "{KEY} can't be used: no client certificate is taken"
            );
        }
    }
}
