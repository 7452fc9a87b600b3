//! Open flows, each with what it asked for, so that a changed policy can ask again and close what it would not allow.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use jiff::Timestamp;
use tokio::sync::Notify;

use crate::policy::{Ask, Destination, Policy, Verdict, Wire};

/// Why a flow ended. Closed: it labels metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// Both sides were done.
    Done,
    /// Nothing happened for too long.
    Idle,
    /// A side went away.
    Broken,
    /// A lifetime budget is spent.
    Spent,
    /// The policy does not allow it any more.
    Revoked,
    /// The sandbox is gone.
    Gone,
    /// The sandbox is suspected of an attack.
    Suspected,
    /// The gateway stops.
    Drained,
    /// What was spoken broke its protocol.
    Malformed,
    /// The answer was compressed, and could not be searched for a credential.
    Encoded,
}

impl Cause {
    /// The spelling in metrics and records.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Done => "Done",
            Self::Idle => "Idle",
            Self::Broken => "Broken",
            Self::Spent => "Spent",
            Self::Revoked => "Revoked",
            Self::Gone => "Gone",
            Self::Suspected => "Suspected",
            Self::Drained => "Drained",
            Self::Malformed => "Malformed",
            Self::Encoded => "Encoded",
        }
    }
}

/// What somebody wants, owned, so that it can be asked again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Where to.
    pub destination: Destination,
    /// The port there.
    pub port: u16,
    /// What the bytes are.
    pub wire: Wire,
    /// Method and path, where requests are seen.
    pub request: Option<(Box<str>, Box<str>)>,
}

impl Asked {
    /// The policy's word.
    #[must_use]
    pub fn judge<'p>(&self, policy: &'p Policy, now: Timestamp) -> Verdict<'p> {
        let ask = Ask { destination: &self.destination, port: self.port, wire: self.wire, now };
        match &self.request {
            Some((method, path)) => policy.decide_request(&ask, method, path),
            None => policy.decide(&ask),
        }
    }
}

/// One open flow.
#[derive(Debug)]
pub struct Flow {
    asked: Asked,
    cause: OnceLock<Cause>,
    closed: Notify,
}

impl Flow {
    /// Returns when it must end, with the reason.
    pub async fn closed(&self) -> Cause {
        // Waits before it looks, so that no close falls between.
        let closed = self.closed.notified();
        if let Some(cause) = self.cause.get() {
            return *cause;
        }
        closed.await;
        self.cause.get().copied().unwrap_or(Cause::Revoked)
    }

    /// Ends it. The first reason stays.
    pub fn close(&self, cause: Cause) {
        let _ = self.cause.set(cause);
        self.closed.notify_waiters();
    }
}

#[derive(Debug, Default)]
struct Registry {
    next: u64,
    open: HashMap<u64, Arc<Flow>>,
    ended: Option<Cause>,
}

/// The open flows of one sandbox.
#[derive(Clone, Debug, Default)]
pub struct Flows(Arc<Mutex<Registry>>);

impl Flows {
    fn lock(&self) -> MutexGuard<'_, Registry> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds one. From here on it is asked again at each change.
    ///
    /// # Errors
    /// When no flow may be opened any more.
    pub fn open(&self, asked: Asked) -> Result<Open, Cause> {
        let flow = Arc::new(Flow { asked, cause: OnceLock::new(), closed: Notify::new() });
        let mut registry = self.lock();
        if let Some(cause) = registry.ended {
            return Err(cause);
        }
        let id = registry.next;
        registry.next += 1;
        registry.open.insert(id, flow.clone());
        drop(registry);
        Ok(Open { flow, id, flows: self.clone() })
    }

    /// Asks the policy about each, and closes what it denies. How many that were.
    #[must_use]
    pub fn judge(&self, policy: &Policy, now: Timestamp) -> usize {
        // Judged without the lock, which every connection takes: whatever opens meanwhile is judged by itself.
        let mut denied: Vec<_> = self.lock().open.values().cloned().collect();
        denied.retain(|flow| flow.asked.judge(policy, now).denied().is_some());
        for flow in &denied {
            flow.close(Cause::Revoked);
        }
        denied.len()
    }

    /// Closes all, and lets none be opened any more.
    pub fn end(&self, cause: Cause) {
        let open: Vec<_> = {
            let mut registry = self.lock();
            registry.ended = registry.ended.or(Some(cause));
            registry.open.values().cloned().collect()
        };
        for flow in &open {
            flow.close(cause);
        }
    }

    /// Whether none may be opened any more.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.lock().ended.is_some()
    }

    /// How many are open.
    #[must_use]
    pub fn count(&self) -> usize {
        self.lock().open.len()
    }
}

/// A flow's place among the open ones; dropping it leaves.
#[derive(Debug)]
pub struct Open {
    flow: Arc<Flow>,
    id: u64,
    flows: Flows,
}

impl std::ops::Deref for Open {
    type Target = Flow;

    fn deref(&self) -> &Flow {
        &self.flow
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.flows.lock().open.remove(&self.id);
    }
}
