//! Which sandbox is where. Filled by the watch; asked by every call.
//!
//! A sandbox is called only at the pod that is its own by uid, while that runs and the sandbox is Ready, which it is behind a proven
//! fence alone. Before it was filled once, no sandbox is known.

use std::{
    collections::HashMap,
    fmt::Debug,
    net::IpAddr,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::Resource;
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use super::{
    bounds::Bounds,
    problem::{Problem, Reason},
};
use crate::{
    api::{AgentSandbox, ConditionType, Phase},
    audit::{Subject, about},
};

/// Longest word or message of a status that is passed on, in characters.
const MOST_CHARS: usize = 400;

/// Namespace and name.
pub(super) type Place = (Arc<str>, Arc<str>);

/// As much of a sandbox as a call needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sandbox {
    pub(super) uid: Arc<str>,
    pub(super) phase: Phase,
    pub(super) ready: bool,
    /// It was told to go.
    pub(super) deleted: bool,
    pub(super) reason: Option<String>,
    pub(super) message: String,
    pub(super) ends_at: Option<Timestamp>,
    pub(super) exit_code: Option<i32>,
    /// What a record says of it.
    pub(super) subject: Subject,
    /// What its calls are held to, once the controller has said it.
    bounds: Option<Bounds>,
    pod: Option<Arc<str>>,
}

/// As much of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seat {
    /// The uid of the sandbox that it is of.
    owner: Arc<str>,
    /// While it runs.
    address: Option<IpAddr>,
    /// It was told to go.
    deleted: bool,
}

/// Where to call a sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The sandbox.
    pub uid: Arc<str>,
    /// Its pod's address.
    pub address: IpAddr,
}

/// Who is where.
#[derive(Debug, Default)]
pub struct Directory {
    sandboxes: Kept<Sandbox>,
    pods: Kept<Seat>,
    loaded: AtomicBool,
    changed: watch::Sender<()>,
}

impl Sandbox {
    fn read(sandbox: &AgentSandbox) -> Option<Self> {
        let status = sandbox.status.clone().unwrap_or_default();
        let condition = |kind: ConditionType| status.conditions.iter().find(|one| one.type_ == kind.as_str());
        let ready = condition(ConditionType::Ready);
        let refused = [ConditionType::Accepted, ConditionType::ResolvedRefs, ConditionType::RuntimeAvailable];
        let refused = refused.into_iter().filter_map(condition).find(|one| one.status == "False");
        let telling =
            condition(ConditionType::Finished).filter(|one| one.status == "True").or(refused).or(ready);
        Some(Self {
            uid: sandbox.metadata.uid.as_deref()?.into(),
            phase: status.phase.unwrap_or(Phase::Pending),
            ready: ready.is_some_and(|one| one.status == "True"),
            deleted: sandbox.metadata.deletion_timestamp.is_some(),
            reason: status.reason.clone().or_else(|| telling.map(|one| one.reason.clone())).map(cut),
            message: telling.map_or_else(
                || "the controller has not looked at it yet".into(),
                |one| cut(one.message.clone()),
            ),
            ends_at: status.expires_at.map(|time| time.0),
            exit_code: status.exit_code,
            subject: about::subject(sandbox),
            bounds: status.execution.as_ref().and_then(Bounds::of),
            pod: status.pod_name.as_deref().map(Into::into),
        })
    }

    /// Whether it ended.
    pub(super) fn ended(&self) -> bool {
        self.phase.is_terminal() || self.deleted
    }
}

fn cut(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(MOST_CHARS) {
        text.truncate(end);
    }
    text
}

impl Seat {
    fn read(pod: &Pod) -> Option<Self> {
        let owners = pod.metadata.owner_references.as_deref().unwrap_or_default();
        let owner =
            owners.iter().find(|owner| owner.kind == "AgentSandbox" && owner.controller == Some(true))?;
        let status = pod.status.as_ref();
        let running = status.filter(|status| status.phase.as_deref() == Some("Running"));
        Some(Self {
            owner: owner.uid.as_str().into(),
            address: running.and_then(|status| status.pod_ip.as_deref()?.parse().ok()),
            deleted: pod.metadata.deletion_timestamp.is_some(),
        })
    }
}

/// What is kept of objects of one kind.
pub(super) trait Part: Sized + Send + Sync + 'static {
    /// The kind.
    type Of: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static;

    /// What is kept of this one; nothing where it is of no use.
    fn read(object: &Self::Of) -> Option<Self>;

    /// Where it is kept.
    fn kept(directory: &Directory) -> &Kept<Self>;
}

/// All that is kept of one kind.
pub(super) type Kept<V> = RwLock<HashMap<Place, Arc<V>>>;

impl Part for Sandbox {
    type Of = AgentSandbox;

    fn read(object: &AgentSandbox) -> Option<Self> {
        Self::read(object)
    }

    fn kept(directory: &Directory) -> &Kept<Self> {
        &directory.sandboxes
    }
}

impl Part for Seat {
    type Of = Pod;

    fn read(object: &Pod) -> Option<Self> {
        Self::read(object)
    }

    fn kept(directory: &Directory) -> &Kept<Self> {
        &directory.pods
    }
}

/// Where an object is.
pub(super) fn place(object: &impl Resource) -> Place {
    let meta = object.meta();
    (meta.namespace.as_deref().unwrap_or_default().into(), meta.name.as_deref().unwrap_or_default().into())
}

fn find<V>(kept: &Kept<V>, at: &Place) -> Option<Arc<V>> {
    kept.read().unwrap_or_else(PoisonError::into_inner).get(at).cloned()
}

impl Directory {
    /// A sandbox is like this now.
    pub fn sandbox(&self, sandbox: &AgentSandbox) {
        self.put(place(sandbox), Sandbox::read(sandbox));
    }

    /// A pod is like this now.
    pub fn pod(&self, pod: &Pod) {
        self.put(place(pod), Seat::read(pod));
    }

    /// There is no sandbox of this name any more.
    pub fn no_sandbox(&self, namespace: &str, name: &str) {
        self.put::<Sandbox>((namespace.into(), name.into()), None);
    }

    /// There is no pod of this name any more.
    pub fn no_pod(&self, namespace: &str, name: &str) {
        self.put::<Seat>((namespace.into(), name.into()), None);
    }

    /// What is kept of an object now; nothing if there is none, or none that can be read.
    pub(super) fn put<V: Part>(&self, at: Place, part: Option<V>) {
        let mut kept = V::kept(self).write().unwrap_or_else(PoisonError::into_inner);
        match part {
            Some(part) => kept.insert(at, Arc::new(part)),
            None => kept.remove(&at),
        };
        drop(kept);
        self.tell();
    }

    /// Of this kind there are these and no others.
    pub(super) fn only<V: Part>(&self, all: HashMap<Place, Arc<V>>) {
        *V::kept(self).write().unwrap_or_else(PoisonError::into_inner) = all;
        self.tell();
    }

    /// Everything that there is now was put in.
    pub fn load(&self) {
        self.loaded.store(true, Ordering::Release);
        self.tell();
    }

    /// Whether it was filled once.
    #[must_use]
    pub fn is_loaded(&self) -> bool {
        self.loaded.load(Ordering::Acquire)
    }

    /// How many sandboxes are known.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sandboxes.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Whether none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn tell(&self) {
        self.changed.send_replace(());
    }

    /// A sandbox, if there is one.
    pub(super) fn look(&self, at: &Place) -> Result<Arc<Sandbox>, Problem> {
        if !self.is_loaded() {
            let message = "this replica has not read the sandboxes yet; try again in a moment";
            return Err(Problem::new(Reason::ApiUnavailable, message));
        }
        find(&self.sandboxes, at).ok_or_else(|| {
            let (namespace, name) = at;
            let message = format!("there is no sandbox {name} in namespace {namespace}; create it first");
            Problem::new(Reason::NotFound, message)
        })
    }

    /// Where to call it.
    pub(super) fn target(&self, at: &Place) -> Result<Target, Problem> {
        let sandbox = self.look(at)?;
        let Sandbox { phase, message, .. } = &*sandbox;
        let (phase, name) = (phase.as_str(), &at.1);
        if sandbox.ended() {
            let phase = if sandbox.deleted { "being deleted" } else { phase };
            let message = format!("sandbox {name} is {phase}: {message}; create another one");
            return Err(Problem::new(Reason::Ended, message));
        }
        let seat = sandbox.pod.as_ref().and_then(|pod| find(&self.pods, &(at.0.clone(), pod.clone())));
        let seat = seat.filter(|seat| seat.owner == sandbox.uid && !seat.deleted);
        let address =
            seat.and_then(|seat| seat.address).filter(|_| sandbox.ready && sandbox.bounds.is_some());
        let address = address.ok_or_else(|| {
            let message =
                format!("sandbox {name} is {phase} and takes no calls yet: {message}; wait for Ready first");
            Problem::new(Reason::NotReady, message)
        })?;
        Ok(Target { uid: sandbox.uid.clone(), address })
    }

    /// The pod that is its own, running or not.
    pub(super) fn pod_of(&self, at: &Place) -> Result<Arc<str>, Problem> {
        let sandbox = self.look(at)?;
        let own = |pod: &Arc<str>| {
            find(&self.pods, &(at.0.clone(), pod.clone())).is_some_and(|seat| seat.owner == sandbox.uid)
        };
        sandbox.pod.clone().filter(own).ok_or_else(|| {
            let (name, message) = (&at.1, &sandbox.message);
            if sandbox.ended() {
                let message = format!("sandbox {name} ended, and its pod is gone: {message}");
                return Problem::new(Reason::Ended, message);
            }
            let message = format!("sandbox {name} has no pod yet: {message}; wait for Ready first");
            Problem::new(Reason::NotReady, message)
        })
    }

    /// What a sandbox's calls are held to. Where it is not known, [`Self::target`] refuses every call.
    pub(super) fn bounds(&self, at: &Place) -> Bounds {
        find(&self.sandboxes, at).and_then(|sandbox| sandbox.bounds).unwrap_or(Bounds::WIDEST)
    }

    /// Whether what runs there may still be that call's: the sandbox is the same, and its pod runs at the same address.
    /// What a record says of it; of one that is not known, where it would be.
    pub(super) fn subject(&self, at: &Place) -> Subject {
        self.look(at).map_or_else(
            |_| Subject { namespace: at.0.to_string(), name: at.1.to_string(), ..Subject::default() },
            |sandbox| sandbox.subject.clone(),
        )
    }

    fn is_there(&self, at: &Place, target: &Target) -> bool {
        let Some(sandbox) = find(&self.sandboxes, at).filter(|sandbox| sandbox.uid == target.uid) else {
            return false;
        };
        let seat = sandbox.pod.as_ref().and_then(|pod| find(&self.pods, &(at.0.clone(), pod.clone())));
        seat.is_some_and(|seat| seat.owner == target.uid && seat.address == Some(target.address))
    }

    /// Returns when nothing of this call can run there any more.
    pub(super) async fn gone(&self, at: &Place, target: &Target) {
        self.until(|| (!self.is_there(at, target)).then_some(())).await;
    }

    /// Returns what is sought as soon as there is something, looking again at each change.
    pub(super) async fn until<T>(&self, mut sought: impl FnMut() -> Option<T>) -> T {
        let mut changed = self.changed.subscribe();
        loop {
            changed.mark_unchanged();
            if let Some(found) = sought() {
                return found;
            }
            if changed.changed().await.is_err() {
                // The sender is ours: it lives as long as we do.
                std::future::pending::<()>().await;
            }
        }
    }
}

#[cfg(test)]
mod tests;
