//! Where stories are played: a cluster, and what stood in it at each stop, so that a run with faults can be held against
//! one without.

use std::{collections::BTreeMap, time::Duration};

use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::{Driver, fixtures::sandbox_key, snapshot, store::Key};

/// Long enough for every wait that follows one failure, and for the longest look of the controller.
pub const SETTLE: Duration = Duration::from_secs(100);

/// A story.
pub struct Scenario {
    /// Its name.
    pub name: &'static str,
    pub(super) play: for<'a> fn(&'a mut Stage) -> BoxFuture<'a, ()>,
}

/// A story under way.
pub struct Stage {
    /// The cluster.
    pub driver: Driver,
    /// What stood at each stop.
    pub states: Vec<BTreeMap<String, Value>>,
}

impl Scenario {
    /// Plays it in this cluster, to its end.
    pub async fn play(&self, driver: Driver) -> Stage {
        let mut stage = Stage { driver, states: Vec::new() };
        (self.play)(&mut stage).await;
        stage
    }
}

impl Stage {
    /// Waits until all has come to rest, and keeps what stands then.
    pub(super) async fn stop(&mut self) {
        self.driver.run_for(SETTLE).await;
        let state = snapshot::state(&self.driver.server.lock().store);
        self.states.push(state);
    }

    pub(super) async fn wait(&mut self, seconds: u64) {
        self.driver.run_for(Duration::from_secs(seconds)).await;
    }

    /// The phase and the reason of a sandbox.
    pub(super) fn expect(&self, name: &str, phase: &str, reason: &str) {
        let found = self.driver.get(&sandbox_key(name)).unwrap_or_else(|| panic!("sandbox {name} is gone"));
        let status = &found["status"];
        let ready = || self.condition(name, "Ready").map(|ready| ready["reason"].clone()).unwrap_or_default();
        let told = if status["reason"].is_null() { ready() } else { status["reason"].clone() };
        assert_eq!((&status["phase"], &told), (&json!(phase), &json!(reason)), "{name}: {status:#}");
    }

    pub(super) fn condition(&self, name: &str, kind: &str) -> Option<Value> {
        let found = self.driver.get(&sandbox_key(name))?;
        found["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == kind).cloned()
    }

    pub(super) fn gone(&self, key: &Key) {
        assert_eq!(self.driver.get(key), None, "{key:?}");
    }

    pub(super) fn begin(&self, class: &Value, sandbox: &Value) {
        self.driver.create(class);
        self.driver.create(sandbox);
    }
}
