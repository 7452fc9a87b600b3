//! Owns what replicas told of sandboxes: what they do that looks like an attack, and what they want that no rule names. It asks each
//! replica of gateway and session, which answers when there is news, and wakes the sandboxes concerned. Judges nothing.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::{StreamExt as _, channel::mpsc::UnboundedSender};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt as _,
    runtime::reflector::{self, ObjectRef},
};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{
    context::{Context, Guarded},
    replicas,
};
use crate::{
    api::AgentSandbox,
    detect::{self, Place, Signs, Told},
    kubernetes::{self, readable},
    sandbox::{approvals::Wanted, suspicion::Seen},
};

/// Before a replica that does not answer is asked again.
const AGAIN: Duration = Duration::from_secs(1);

/// So many failures in a row are told.
const LOUD: u32 = 3;

/// Who is woken.
pub(super) type Woken = ObjectRef<Guarded<AgentSandbox>>;

/// What is known, by uid.
#[derive(Debug, Default)]
pub(super) struct Suspects(Mutex<HashMap<String, Heard>>);

/// Most destinations that are kept of one.
const MOST_WANTED: usize = 128;

/// What was told of one.
#[derive(Debug, Default)]
struct Heard {
    signs: Signs,
    wanted: BTreeMap<(String, u16), Wanted>,
}

impl Heard {
    /// A replica told of it. Whether that says more than was known.
    fn want(&mut self, told: &detect::Wanted) -> bool {
        let at = |ms| Timestamp::from_millisecond(ms).unwrap_or(Timestamp::UNIX_EPOCH);
        let (first, last) = (at(told.first_ms), at(told.last_ms));
        let key = (told.host.clone(), told.port);
        if let Some(known) = self.wanted.get_mut(&key) {
            let news = last > known.last;
            known.first = known.first.min(first);
            known.last = known.last.max(last);
            known.count = known.count.max(told.count);
            return news;
        }
        // What a replica says that it is, is looked at again before it is asked for.
        let new = self.wanted.len() < MOST_WANTED;
        if new {
            let (host, port, count) = (told.host.clone(), told.port, told.count);
            self.wanted.insert(key, Wanted { host, port, first, last, count });
        }
        new
    }
}

impl Suspects {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Heard>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in what a replica told of one. Whether that says more than was known.
    fn hear(&self, told: Told) -> bool {
        let mut known = self.lock();
        let heard = known.entry(told.uid).or_default();
        let mut news = false;
        for sign in told.signs {
            news |= heard.signs.hear(sign);
        }
        for wanted in &told.wanted {
            news |= heard.want(wanted);
        }
        news
    }

    /// What there is to judge of one.
    pub(super) fn seen(&self, uid: Option<&str>) -> Option<Seen> {
        self.lock().get(uid?)?.signs.seen()
    }

    /// What one wanted and no rule names.
    pub(super) fn wanted(&self, uid: Option<&str>) -> Vec<Wanted> {
        let known = self.lock();
        let heard = uid.and_then(|uid| known.get(uid));
        heard.map(|heard| heard.wanted.values().cloned().collect()).unwrap_or_default()
    }

    /// Forgets sandboxes that are gone.
    pub(super) fn retain(&self, alive: &HashSet<String>) {
        self.lock().retain(|uid, _| alive.contains(uid));
    }
}

/// Asks every replica, those that come included, until `stop`.
pub(super) async fn follow(context: Arc<Context>, wake: UnboundedSender<Woken>, stop: CancellationToken) {
    let pods: Api<Guarded<Pod>> = Api::namespaced(context.client.clone(), &context.settings.namespace);
    let (store, writer) = reflector::store();
    let metrics = context.metrics.clone();
    let changes =
        kubernetes::watch(pods, kubernetes::all().labels(&replicas::selector()), writer, move || {
            metrics.watch_error();
        });
    let mut changes = std::pin::pin!(changes.take_until(stop.cancelled_owned()));
    let mut asked = HashMap::new();
    let mut asking = JoinSet::new();
    while changes.next().await.is_some() {
        let now: HashSet<SocketAddr> =
            store.state().iter().filter_map(|pod| replicas::address(&*readable(pod)?)).collect();
        asked.retain(|replica, task: &mut tokio::task::AbortHandle| {
            let stays = now.contains(replica);
            if !stays {
                task.abort();
            }
            stays
        });
        for replica in now {
            asked
                .entry(replica)
                .or_insert_with(|| asking.spawn(listen(context.clone(), wake.clone(), replica)));
        }
        while asking.try_join_next().is_some() {}
    }
}

/// Asks one replica, for ever.
async fn listen(context: Arc<Context>, wake: UnboundedSender<Woken>, replica: SocketAddr) {
    let (mut place, mut failures) = (Place::default(), 0_u32);
    loop {
        match detect::ask(replica, &place).await {
            Ok(answer) => {
                (place, failures) = (answer.at, 0);
                for told in answer.sandboxes {
                    let uid = told.uid.clone();
                    if context.suspects.hear(told) {
                        // The receiver lives as long as the controllers.
                        find(&context, &uid).map(|one| wake.unbounded_send(one));
                    }
                }
            }
            Err(error) => {
                // Once, until it does: one that has just started, or is about to end, is no news.
                failures = failures.saturating_add(1);
                if failures == LOUD {
                    tracing::warn!(%replica, error = format!("{error:#}"), "a replica does not tell of sandboxes");
                }
                tokio::time::sleep(AGAIN).await;
            }
        }
    }
}

/// The sandbox with this uid. One that no store has yet is reconciled when it is there.
fn find(context: &Context, uid: &str) -> Option<Woken> {
    let found = context.stores.sandboxes.find(|one| one.uid().as_deref() == Some(uid))?;
    Some(ObjectRef::from_obj(&*found))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::detect::{Sign, Weight};

    #[test]
    fn what_two_replicas_tell_is_added_up_and_forgotten_with_the_sandbox() {
        let suspects = Suspects::default();
        let told = |what: &str| {
            let sign = Sign::new(Weight::Severe, &[what.as_bytes()], what.to_owned());
            Told { uid: "u".into(), version: 1, signs: vec![sign], wanted: vec![] }
        };
        assert!(suspects.hear(told("a")) && suspects.hear(told("b")) && !suspects.hear(told("a")));
        assert_eq!(suspects.seen(Some("u")).map(|seen| seen.severe), Some(2));
        assert_eq!((suspects.seen(Some("v")), suspects.seen(None)), (None, None));
        suspects.retain(&HashSet::new());
        assert_eq!(suspects.seen(Some("u")), None);
    }
}
