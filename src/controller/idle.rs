//! Owns what is known of when sandboxes were last used: asks every replica of the gateway and the session, at the moment when a
//! sandbox would end and not before. Whoever does not answer keeps it alive; its time to live ends it all the same.

use std::{
    collections::{HashMap, HashSet},
    net::{IpAddr, SocketAddr},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::future::join_all;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt, api::ListParams};

use super::{context::Context, replicas};
use crate::{
    sandbox::{
        idle::{self, LastUse},
        podview::{PodState, PodView},
        world::World,
    },
    used::{self, Used},
};

/// What a replica that ended took along: its calls and flows may have gone on for so long after the next one was there.
const OVERLAP: Duration = Duration::from_secs(60);

/// What is known, by uid; and who is asked.
#[derive(Debug, Default)]
pub(super) struct Idle {
    known: Mutex<HashMap<String, Timestamp>>,
    /// Nobody, outside of a cluster: then no sandbox is idle.
    asks: bool,
}

impl Idle {
    /// One that asks the replicas of this installation.
    pub(super) fn asking() -> Self {
        Self { asks: true, ..Self::default() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Timestamp>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets sandboxes that are gone.
    pub(super) fn retain(&self, alive: &HashSet<String>) {
        self.lock().retain(|uid, _| alive.contains(uid));
    }
}

/// When the sandbox was last used. Asks only if it would end on what is known; nothing if there is nobody to ask, or it does not run.
pub(super) async fn look(context: &Context, world: &World, now: Timestamp) -> Option<LastUse> {
    if !context.idle.asks {
        return None;
    }
    let uid = world.sandbox.uid()?;
    let known = context.idle.lock().get(&uid).copied();
    let unasked = LastUse { at: known, asked: false };
    let early = |since| idle::due(world, since, known).is_none_or(|due| now < due);
    // It can't have run for longer than it exists, which is known without reading its pod.
    if early(world.created()) {
        return Some(unasked);
    }
    let (since, address) = running(world)?;
    if early(since) {
        return Some(unasked);
    }
    let last = match ask(context, &uid, address, now).await {
        Ok(last) => {
            let last = known.into_iter().chain([last]).max();
            if let Some(last) = last {
                context.idle.lock().insert(uid, last);
            }
            LastUse { at: last, asked: true }
        }
        Err(error) => {
            tracing::warn!(
                uid,
                error = format!("{error:#}"),
                "can't tell whether a sandbox is idle; it goes on"
            );
            unasked
        }
    };
    Some(last)
}

/// Since when its workload runs, and where.
fn running(world: &World) -> Option<(Timestamp, IpAddr)> {
    let pod = world.own_pod()?;
    let address = pod.status.as_ref()?.pod_ip.as_deref()?.parse().ok()?;
    match PodView::read(pod, world.pod_node().map(AsRef::as_ref)).state {
        PodState::Running(since) => Some((since, address)),
        PodState::Starting(_) | PodState::Ended(_) => None,
    }
}

/// The latest use that any replica may have seen.
async fn ask(context: &Context, uid: &str, address: IpAddr, now: Timestamp) -> anyhow::Result<Timestamp> {
    let replicas = running_replicas(context).await?;
    let answers = replicas.into_iter().map(|replica| async move {
        let answer = used::ask(replica, uid, address).await;
        answer.map_err(|error| error.context(format!("the replica at {replica}")))
    });
    let answers: anyhow::Result<Vec<Used>> = join_all(answers).await.into_iter().collect();
    Ok(latest(&answers?, now))
}

/// By what all of them say. What was before one of them was there is known to nobody, and counts as a use.
fn latest(answers: &[Used], now: Timestamp) -> Timestamp {
    let ago = |answer: &Used| {
        let unknown = Duration::from_millis(answer.up_ms).saturating_sub(OVERLAP);
        let seen = answer.ago_ms.map_or(Duration::MAX, Duration::from_millis);
        seen.min(unknown)
    };
    let ago = answers.iter().map(ago).min().unwrap_or_default();
    let ago = SignedDuration::try_from(ago).unwrap_or(SignedDuration::MAX);
    now.checked_sub(ago).unwrap_or(Timestamp::MIN)
}

/// Where the replicas of gateway and session are, those that are about to end included. Without one of the gateway nothing is
/// known: it is what every sandbox's egress passes.
async fn running_replicas(context: &Context) -> anyhow::Result<Vec<SocketAddr>> {
    let pods: Api<Pod> = Api::namespaced(context.client.clone(), &context.settings.namespace);
    let params = ListParams::default().labels(&replicas::selector());
    let pods = context.call("list Pods", pods.list(&params)).await?;
    let running = pods.items.iter().filter_map(|pod| {
        let component = pod.labels().get("app.kubernetes.io/component");
        let gateway = component.is_some_and(|component| component == "gateway");
        Some((gateway, replicas::address(pod)?))
    });
    let running: Vec<(bool, SocketAddr)> = running.collect();
    anyhow::ensure!(running.iter().any(|(gateway, _)| *gateway), "no replica of the gateway runs");
    Ok(running.into_iter().map(|(_, address)| address).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    #[test]
    fn the_latest_use_that_anybody_saw_counts() {
        let used = |up: u64, ago: Option<u64>| Used { up_ms: up * 1000, ago_ms: ago.map(|ago| ago * 1000) };
        let latest = |answers: &[Used]| latest(answers, at(100_000));
        assert_eq!(latest(&[used(9000, Some(30)), used(9000, Some(7)), used(9000, None)]), at(99_993));
        assert_eq!(latest(&[used(9000, Some(0)), used(9000, Some(7))]), at(100_000));
        // Before it was there, and for as long as its predecessor may have lasted, a replica knows of nothing.
        assert_eq!(latest(&[used(9000, None), used(600, None)]), at(99_460));
        assert_eq!(latest(&[used(9000, Some(3000)), used(30, None)]), at(100_000));
        assert_eq!(latest(&[used(9000, None)]), at(91_060));
        assert_eq!(latest(&[]), at(100_000));
        assert_eq!(latest(&[Used { up_ms: u64::MAX, ago_ms: None }]), Timestamp::MIN);
    }
}
