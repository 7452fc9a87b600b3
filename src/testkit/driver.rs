//! Runs the controller's reconciles against the fake server, as its queue would: what a change concerns is looked at, and
//! what asked to be looked at again; a failure waits as the error table says; a death starts a new process.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::{FutureExt as _, future::join_all};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::{
    caches::{Caches, ClassKey, Lag, SandboxKey, Touched},
    calls::Call,
    clock::Clock,
    faults::Plan,
    fixtures, housekeeping,
    kubelet::Kubelet,
    server::Server,
    store::Key,
};
use crate::{
    controller::{Context, class_failed, failed, named_failed, reconcile, reconcile_class, reconcile_named},
    policy::ClusterRanges,
    sandbox::world::Settings,
    telemetry::Metrics,
};

/// The longest that a pass may take: more than all of its calls, each with its own limit.
const LONGEST_PASS: Duration = Duration::from_secs(600);
/// Passes without an end to them are a loop.
const MOST_ROUNDS: usize = 20_000;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Item {
    Sandbox(String, String),
    Class(String),
    Named,
}

/// The controller's process.
struct Process {
    context: Arc<Context>,
    caches: Caches,
    due: BTreeMap<Item, Timestamp>,
}

/// A cluster with a controller in it.
pub struct Driver {
    /// The API server.
    pub server: Server,
    /// The node.
    pub kubelet: Kubelet,
    /// How far the controller's stores lag.
    pub lag: Lag,
    /// Whether classes are reconciled too, which tries each with a sandbox.
    pub with_classes: bool,
    /// Passes so far.
    pub passes: usize,
    /// Times that the controller was started.
    pub starts: usize,
    process: Option<Process>,
    settled: u64,
}

impl Driver {
    /// A cluster with a namespace, a node and `RuntimeClasses`, but no class. The controller runs.
    #[must_use]
    pub fn new() -> Self {
        let server = Server::new(Clock::start());
        let mut driver = Self {
            server,
            kubelet: Kubelet::default(),
            lag: Lag::None,
            with_classes: false,
            passes: 0,
            starts: 0,
            process: None,
            settled: 0,
        };
        for object in fixtures::cluster() {
            driver.create(&object);
        }
        driver.start();
        driver
    }

    /// Starts the controller anew, with nothing in mind.
    pub fn start(&mut self) {
        let caches = Caches::new();
        let settings = Settings {
            agent_image: fixtures::AGENT_IMAGE.into(),
            namespace: fixtures::SYSTEM_NAMESPACE.into(),
            api_server: Some("10.96.0.1:443".parse().unwrap()),
            gateway_account: Some("glovebox-gateway".into()),
        };
        let cluster = ClusterRanges::new(["10.96.0.0/16".parse().unwrap()]);
        let context = Context::new(
            self.server.client(),
            caches.stores(),
            settings,
            cluster,
            Arc::new(Metrics::default()),
            Some("test".into()),
        );
        self.starts += 1;
        self.process = Some(Process { context: Arc::new(context), caches, due: BTreeMap::new() });
    }

    /// Stops the controller.
    pub fn stop(&mut self) {
        self.process = None;
    }

    /// Which calls from now on go wrong.
    pub fn set_faults(&self, faults: Plan) {
        self.server.lock().faults = faults;
    }

    /// Creates an object as its user does; a status is set afterwards, as whoever writes it does.
    pub fn create(&self, object: &Value) {
        let key = fixtures::key(object);
        let mut inner = self.server.lock();
        inner.store.create(&key, object.clone()).unwrap();
        if let Some(status) = object.get("status") {
            inner.store.edit(&key, |object| object["status"] = status.clone());
        }
    }

    /// Edits an object.
    pub fn edit(&self, key: &Key, change: impl FnOnce(&mut Value)) {
        self.server.lock().store.edit(key, change);
    }

    /// Deletes an object as a user does.
    pub fn delete(&self, key: &Key) {
        self.server.lock().store.delete(key, &Value::Null).unwrap();
    }

    /// An object as it stands.
    #[must_use]
    pub fn get(&self, key: &Key) -> Option<Value> {
        self.server.lock().store.get(key).cloned()
    }

    /// Everything that was asked of the server.
    #[must_use]
    pub fn calls(&self) -> Vec<Call> {
        self.server.lock().calls.clone()
    }

    /// The date.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.server.lock().store.clock.now()
    }

    /// Makes the date jump.
    pub fn jump(&self, by: SignedDuration) {
        self.server.lock().store.clock.jump(by);
    }

    /// What did not hold on the way.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        self.server.lock().invariants.violations.clone()
    }

    /// Lets the cluster and the controller work for so long.
    ///
    /// # Panics
    /// When the controller works without end or a pass does not return.
    pub async fn run_for(&mut self, time: Duration) {
        let end = tokio::time::Instant::now() + time;
        for _ in 0..MOST_ROUNDS {
            self.cluster();
            self.refresh();
            let due = self.take_due();
            if !due.is_empty() {
                self.work(due).await;
                continue;
            }
            let next = self.next().filter(|next| *next < end);
            tokio::time::sleep_until(next.unwrap_or(end)).await;
            if next.is_none() {
                return;
            }
        }
        panic!(
            "the controller does not come to rest; the last calls: {:#?}",
            self.calls().iter().rev().take(6).map(Call::label).collect::<Vec<_>>()
        );
    }

    /// Looks at every sandbox and class once more, whether or not anything asks for it.
    pub async fn look_again(&mut self) {
        self.refresh();
        let mut items = self.process.as_ref().map(Process::all).unwrap_or_default();
        items.retain(|item| self.is_worked_on(item));
        self.work(items).await;
    }

    fn cluster(&mut self) {
        let mut inner = self.server.lock();
        self.kubelet.step(&mut inner.store);
        if self.settled != inner.store.version() {
            housekeeping::settle(&mut inner.store);
            self.settled = inner.store.version();
        }
    }

    fn refresh(&mut self) {
        let now = self.now();
        let Some(process) = &mut self.process else { return };
        let touched = process.caches.refresh(&self.server.lock().store, &self.lag, self.passes);
        process.touch(&touched, now);
        if process.context.named.woken().now_or_never().is_some() {
            process.due.insert(Item::Named, now);
        }
        if process.caches.is_behind() {
            // Stale stores are worth nothing unless somebody acts on them.
            for item in process.all() {
                process.due.insert(item, now);
            }
        }
    }

    fn take_due(&mut self) -> Vec<Item> {
        let now = self.now();
        let Some(process) = &mut self.process else { return Vec::new() };
        let due: Vec<Item> =
            process.due.iter().filter(|(_, at)| **at <= now).map(|(item, _)| item.clone()).collect();
        process.due.retain(|_, at| *at > now);
        due.into_iter().filter(|item| self.is_worked_on(item)).collect()
    }

    fn is_worked_on(&self, item: &Item) -> bool {
        self.with_classes || !matches!(item, Item::Class(..))
    }

    /// When something is due next: a pass or a step of the node.
    fn next(&self) -> Option<tokio::time::Instant> {
        let inner = self.server.lock();
        let due = self.process.iter().flat_map(|process| process.due.iter());
        let due = due.filter(|(item, _)| self.is_worked_on(item)).map(|(_, at)| *at);
        due.chain(self.kubelet.next(&inner.store)).min().map(|at| inner.store.clock.instant(at))
    }

    /// One pass over each, all at once; a death ends them all.
    async fn work(&mut self, items: Vec<Item>) {
        let Some(process) = &self.process else { return };
        let now = self.now();
        let passes = items.iter().map(|item| run(process.context.clone(), item.clone(), now));
        self.passes += items.len();
        let server = self.server.clone();
        let done = tokio::select! {
            done = tokio::time::timeout(LONGEST_PASS, join_all(passes)) => Some(done.expect("a pass does not return")),
            () = server.death() => None,
        };
        let Some(done) = done else {
            return self.start();
        };
        let now = self.now();
        let Some(process) = &mut self.process else { return };
        for (item, wait) in items.into_iter().zip(done) {
            if let Some(wait) = wait {
                process.reschedule(item, wait, now);
            }
        }
    }
}

impl Default for Driver {
    fn default() -> Self {
        Self::new()
    }
}

/// When to look again. `None`: the object is gone from the store by now, so the queue drops it.
async fn run(context: Arc<Context>, item: Item, now: Timestamp) -> Option<Duration> {
    match item {
        Item::Sandbox(namespace, name) => {
            let sandbox = context.stores.sandboxes.get(&SandboxKey::new(&name).within(&namespace))?;
            let done = reconcile(sandbox.clone(), context.clone(), now).await;
            Some(done.unwrap_or_else(|error| failed(&sandbox, &error, &context)))
        }
        Item::Class(name) => {
            let class = context.stores.classes.get(&ClassKey::new(&name))?;
            let done = reconcile_class(class.clone(), context.clone(), now).await;
            Some(done.unwrap_or_else(|error| class_failed(&class, &error, &context)))
        }
        Item::Named => {
            let done = reconcile_named(&context, now).await;
            Some(done.unwrap_or_else(|error| named_failed(&error, &context)))
        }
    }
}

impl Process {
    fn all(&self) -> Vec<Item> {
        let sandboxes = self.context.stores.sandboxes.state();
        let classes = self.context.stores.classes.state();
        let sandboxes = sandboxes.iter().map(|sandbox| of_sandbox(&SandboxKey::from_obj(sandbox.as_ref())));
        sandboxes
            .chain(classes.iter().map(|class| Item::Class(kube::ResourceExt::name_any(class.as_ref()))))
            .chain([Item::Named])
            .collect()
    }

    fn touch(&mut self, touched: &Touched, now: Timestamp) {
        let classes = self.context.stores.classes.state();
        let classes =
            classes.iter().filter(|_| touched.all_classes).map(|class| ClassKey::from_obj(class.as_ref()));
        let items = touched.sandboxes.iter().map(of_sandbox);
        for item in
            items.chain(touched.classes.iter().cloned().chain(classes).map(|class| Item::Class(class.name)))
        {
            self.due.insert(item, now);
        }
        if touched.named {
            self.due.insert(Item::Named, now);
        }
    }

    fn reschedule(&mut self, item: Item, wait: Duration, now: Timestamp) {
        let at = now.checked_add(SignedDuration::try_from(wait).unwrap()).unwrap_or(Timestamp::MAX);
        let due = self.due.entry(item).or_insert(at);
        *due = at.min(*due);
    }
}

fn of_sandbox(key: &SandboxKey) -> Item {
    Item::Sandbox(key.namespace.clone().unwrap_or_default(), key.name.clone())
}
