//! Waiting for what an object becomes: by watches, with a limit that only a fault reaches.

use std::{fmt::Debug, time::Duration};

use anyhow::{Result, bail};
use futures::StreamExt;
use kube::{
    Api, Resource,
    runtime::{WatchStreamExt, watcher},
};
use serde::{Serialize, de::DeserializeOwned};

/// How long anything may take that takes seconds on a machine of its own.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// Waits until `test` holds for the object of that name, `None` while there is none; gives it as it is then.
pub(crate) async fn until<K>(
    api: Api<K>,
    name: &str,
    what: &str,
    test: impl Fn(Option<&K>) -> bool,
) -> Result<Option<K>>
where
    K: Resource + Clone + Debug + Send + Serialize + DeserializeOwned + 'static,
{
    until_within(api, name, what, PATIENCE, test).await
}

/// The same with another limit.
pub(crate) async fn until_within<K>(
    api: Api<K>,
    name: &str,
    what: &str,
    limit: Duration,
    test: impl Fn(Option<&K>) -> bool,
) -> Result<Option<K>>
where
    K: Resource + Clone + Debug + Send + Serialize + DeserializeOwned + 'static,
{
    let mut last = None;
    let seen = async {
        // An error is a watch that broke; it is made again.
        let mut states = Box::pin(watcher::watch_object(api, name).default_backoff());
        while let Some(state) = states.next().await {
            let Ok(state) = state else { continue };
            if test(state.as_ref()) {
                return Some(state);
            }
            last = Some(state);
        }
        None
    };
    match tokio::time::timeout(limit, seen).await {
        Ok(Some(state)) => Ok(state),
        _ => bail!("{what}: not within {limit:?}; last seen: {}", shown(last.as_ref())),
    }
}

/// The status is what tells; what else there is is long.
fn shown<K: Serialize>(last: Option<&Option<K>>) -> String {
    match last {
        None => "nothing, the watch gave no answer".into(),
        Some(None) => "no such object".into(),
        Some(Some(object)) => {
            let value = serde_json::to_value(object).unwrap_or_default();
            value.get("status").unwrap_or(&value).to_string()
        }
    }
}

/// Waits until no object of that name is there.
pub(crate) async fn gone<K>(api: Api<K>, name: &str, what: &str) -> Result<()>
where
    K: Resource + Clone + Debug + Send + Serialize + DeserializeOwned + 'static,
{
    until(api, name, what, |object| object.is_none()).await.map(|_| ())
}

/// Tries again until something holds that no event tells of: a file grows, a packet is refused.
pub(crate) async fn poll<T>(what: &str, mut probe: impl AsyncFnMut() -> Result<Option<T>>) -> Result<T> {
    let tried = async {
        loop {
            if let Some(found) = probe().await? {
                return Ok(found);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    match tokio::time::timeout(PATIENCE, tried).await {
        Ok(found) => found,
        Err(_) => bail!("{what}: not within {PATIENCE:?}"),
    }
}
