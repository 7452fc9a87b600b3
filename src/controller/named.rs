//! Services by which hosts have ports of their own: made when the first sandbox needs one, taken away some time after the last.
//!
//! Which ports is decided by [`allot`] alone. What stands in the cluster is the record; in mind is only what no watch has shown
//! yet, and for how long a Service has been idle.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Service;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, PostParams, Preconditions},
};
use tokio::sync::Notify;

use super::{
    context::Context,
    error::{ApplyError, ErrorClass},
};
use crate::{
    api::AgentSandbox,
    kubernetes::get,
    policy::Host,
    sandbox::{
        lifecycle,
        named::{
            self, Hosts, Make, Standing, View,
            allot::{self, Allotment, Lack, Needs},
        },
        names,
        world::World,
    },
};

/// How long a Service stays that nobody needs: an agent that comes back finds its hosts where they were, and an address that
/// a program holds does not lead to another host.
const GRACE: SignedDuration = SignedDuration::from_mins(10);
/// How often it is looked, if nothing happens.
const LOOK: Duration = Duration::from_secs(60);
/// How long a Service that was made is taken to stand though no watch shows it: longer than any watch lags.
const UNSEEN: SignedDuration = SignedDuration::from_secs(30);

/// Namespace and hosts of one sandbox.
type Wanted = (String, Hosts);

/// What is in mind.
#[derive(Default)]
pub(crate) struct Named {
    woken: Notify,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// By the sandbox's uid. One without any is here too: it was looked at.
    wanted: HashMap<String, Wanted>,
    made: BTreeMap<String, (Timestamp, Standing)>,
    told_to_go: HashSet<String>,
    idle: HashMap<String, Timestamp>,
    lacks: BTreeMap<(String, Host), Lack>,
    /// Passes in a row that failed.
    failures: u32,
}

impl Named {
    /// Something changed that a pass should see.
    pub(crate) fn wake(&self) {
        self.woken.notify_one();
    }

    /// Returns when something has.
    pub(crate) async fn woken(&self) {
        self.woken.notified().await;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Notes what a sandbox needs, and says how it stands.
pub(super) fn view(context: &Context, world: &World, now: Timestamp) -> View {
    let hosts = named::needs(world);
    let namespace = world.sandbox.namespace().unwrap_or_default();
    let uid = world.sandbox.uid().unwrap_or_default();
    let state = &mut *context.named.lock();
    let known = state.wanted.insert(uid, (namespace.clone(), hosts.clone()));
    if known.map(|(_, known)| known).unwrap_or_default() != hosts {
        context.named.wake();
    }
    if hosts.is_empty() {
        return View::None;
    }
    let settled = named::settle(state.standing(context, now));
    let missing = hosts.iter().filter(|(host, ports)| named::pick(&settled, host, ports).is_none());
    let lacking: Vec<String> = missing
        .clone()
        .filter_map(|(host, _)| {
            Some(format!("{host}: {}", state.lacks.get(&(namespace.clone(), host.clone()))?))
        })
        .collect();
    match (lacking.is_empty(), missing.count()) {
        (false, _) => View::Lacking(lacking.join("; ")),
        (true, 0) => View::Assigned,
        (true, _) => View::Waiting,
    }
}

impl State {
    /// What stands, as far as it is known.
    fn standing(&mut self, context: &Context, now: Timestamp) -> Vec<Standing> {
        let shown = read(context, Standing::read);
        let uids: HashSet<&str> = shown.iter().map(|one| one.uid.as_str()).collect();
        self.told_to_go.retain(|uid| uids.contains(uid.as_str()));
        self.idle.retain(|uid, _| uids.contains(uid.as_str()));
        let names: HashSet<&str> = shown.iter().map(|one| one.name.as_str()).collect();
        self.made.retain(|name, (at, _)| !names.contains(name.as_str()) && now.duration_since(*at) < UNSEEN);
        let made = self.made.values().map(|(_, one)| one.clone()).collect::<Vec<_>>();
        let stays = |one: &Standing| !self.told_to_go.contains(&one.uid);
        shown.into_iter().filter(stays).chain(made).collect()
    }

    /// Forgets sandboxes that are gone, and says what the others need.
    fn needs(&mut self, alive: &HashSet<String>) -> Needs {
        self.wanted.retain(|uid, _| alive.contains(uid));
        let mut needs = Needs::new();
        for (namespace, hosts) in self.wanted.values() {
            for (host, ports) in hosts {
                needs.entry((namespace.clone(), host.clone())).or_default().insert(ports.clone());
            }
        }
        needs
    }
}

/// Something of each Service of our own namespace that can be read.
fn read<T>(context: &Context, what: impl Fn(&Service) -> Option<T>) -> Vec<T> {
    let all = context.stores.services.state();
    all.iter().filter_map(|service| what(service.0.as_ref().ok()?)).collect()
}

/// One pass: what is needed is made, what was idle for long enough goes. Says when to look again, if nothing happens before.
///
/// # Errors
/// The first call that failed; what the others could do is done.
pub async fn reconcile(context: &Context, now: Timestamp) -> Result<Duration, ApplyError> {
    let namespace = &context.settings.namespace;
    let Some(gateway) = get(&context.stores.services, names::GATEWAY, Some(namespace)) else {
        return Ok(LOOK);
    };
    let (settled, mut todo, known) = look(context, now);
    let api: Api<Service> = Api::namespaced(context.client.clone(), namespace);
    let mut failure = None;
    for make in std::mem::take(&mut todo.make) {
        match create(context, &api, &make, &gateway, now).await {
            Ok(()) => {}
            Err(error) => {
                refuse(&mut todo, context, &make, &error);
                failure.get_or_insert(error);
            }
        }
    }
    context.named.lock().lacks.clone_from(&todo.lacks);
    let mut wait = LOOK;
    for one in &settled {
        let Some(left) = idle_for(context, one, known && !todo.used.contains(&one.name), now) else {
            continue;
        };
        if let Ok(left) = Duration::try_from(left)
            && !left.is_zero()
        {
            wait = wait.min(left);
            continue;
        }
        if let Err(error) = remove(context, &api, one).await {
            failure.get_or_insert(error);
        }
    }
    if let Some(error) = failure {
        return Err(error);
    }
    context.named.lock().failures = 0;
    Ok(wait)
}

/// What stands, what is to be done, and whether every sandbox was looked at.
fn look(context: &Context, now: Timestamp) -> (Vec<Standing>, Allotment, bool) {
    let sandboxes = context.stores.sandboxes.state();
    let alive: HashSet<String> = sandboxes.iter().filter_map(|sandbox| sandbox.uid()).collect();
    let taken = |service: &Service| names::named_service_port(&service.name_any());
    let foreign = read(context, |service| taken(service).filter(|_| Standing::read(service).is_none()));
    let foreign: BTreeSet<u16> = foreign.into_iter().collect();
    let mut state = context.named.lock();
    let settled = named::settle(state.standing(context, now));
    let todo = allot::allot(&state.needs(&alive), &settled, &foreign);
    let looked_at = |sandbox: &AgentSandbox| {
        lifecycle::is_finished(sandbox) || sandbox.uid().is_some_and(|uid| state.wanted.contains_key(&uid))
    };
    // One that can't be read reaches nothing, so that it needs nothing.
    let known = sandboxes.iter().all(|sandbox| sandbox.0.as_ref().map_or(true, looked_at));
    (settled, todo, known)
}

/// How long until an idle Service goes; `None` for one that is not.
fn idle_for(context: &Context, one: &Standing, idle: bool, now: Timestamp) -> Option<SignedDuration> {
    let mut state = context.named.lock();
    if !idle || one.uid.is_empty() {
        state.idle.remove(&one.uid);
        return None;
    }
    let since = *state.idle.entry(one.uid.clone()).or_insert(now);
    Some(GRACE - now.duration_since(since))
}

/// Makes one. A name that is taken is one's own, made before and not shown yet, or that of a leader who is not one any more.
async fn create(
    context: &Context,
    api: &Api<Service>,
    make: &Make,
    gateway: &Service,
    now: Timestamp,
) -> Result<(), ApplyError> {
    let params = PostParams { field_manager: Some(names::FIELD_MANAGER.into()), ..PostParams::default() };
    let service = make.service(gateway);
    let service = context.call("create the Service of a host", api.create(&params, &service)).await?;
    tracing::info!(service = %service.name_any(), host = make.host.as_str(), "ports of its own");
    if let Some(one) = Standing::read(&service) {
        context.named.lock().made.insert(one.name.clone(), (now, one));
    }
    Ok(())
}

/// Tells whoever needs a Service that the API server will not have.
fn refuse(todo: &mut Allotment, context: &Context, make: &Make, error: &ApplyError) {
    let ApplyError::Call { source, .. } = error else { return };
    let kube::Error::Api(status) = source.as_ref() else { return };
    if !matches!(error.class(), ErrorClass::Denied | ErrorClass::Rejected) {
        return;
    }
    let words: String = status.message.chars().take(300).collect();
    let state = context.named.lock();
    for (namespace, _) in state.wanted.values().filter(|(_, hosts)| hosts.contains_key(&make.host)) {
        todo.lacks.insert((namespace.clone(), make.host.clone()), Lack::Refused(words.clone()));
    }
}

/// Takes away just this one, and only once.
async fn remove(context: &Context, api: &Api<Service>, one: &Standing) -> Result<(), ApplyError> {
    let preconditions = Some(Preconditions { uid: Some(one.uid.clone()), resource_version: None });
    let params = DeleteParams { preconditions, ..DeleteParams::default() };
    let answer = context.call("delete the Service of a host", api.delete(&one.name, &params)).await;
    match answer {
        Err(ApplyError::Call { source, .. }) if matches!(source.as_ref(), kube::Error::Api(status) if status.code == 404) =>
            {}
        answer => drop(answer?),
    }
    context.named.lock().told_to_go.insert(one.uid.clone());
    tracing::info!(service = one.name, "nobody needs it any more");
    Ok(())
}

/// Counts a failure. Says when to try again.
pub fn failed(error: &ApplyError, context: &Context) -> Duration {
    let policy = error.class().policy();
    context.metrics.failure(policy.label);
    let failures = {
        let mut state = context.named.lock();
        state.failures = state.failures.saturating_add(1);
        state.failures
    };
    let wait = policy.wait(failures);
    tracing::warn!(class = policy.label, failures, ?wait, %error, "services of hosts");
    wait
}
