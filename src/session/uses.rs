//! When each sandbox was last used by way of this replica: the controller asks before it ends one that is idle.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use super::suspect::Watch;
use crate::{
    detect::Board,
    used::{Used, millis},
};

/// No sandbox may be idle for longer, so that what is older is asked for by nobody.
const KEPT: Duration = Duration::from_secs(25 * 3600);
/// What is too old is looked for whenever there are twice as many as after the last time, and at least so many.
const LEAST: usize = 1024;

/// Of all sandboxes, by uid.
#[derive(Debug)]
pub(super) struct Uses {
    born: Instant,
    all: Mutex<All>,
    /// That there are signs of an attack to tell.
    pub(super) board: Arc<Board>,
}

#[derive(Debug)]
struct All {
    uses: HashMap<Arc<str>, Use>,
    tidy_at: usize,
}

#[derive(Debug)]
struct Use {
    running: usize,
    last: Instant,
    watch: Watch,
}

impl Default for Uses {
    fn default() -> Self {
        let all = All { uses: HashMap::new(), tidy_at: LEAST };
        Self { born: Instant::now(), all: Mutex::new(all), board: Arc::default() }
    }
}

impl Uses {
    /// Each change is one step: what a panic leaves is whole.
    fn lock(&self) -> MutexGuard<'_, All> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It is used from now on, until what this gives is dropped.
    pub(super) fn begin(self: &Arc<Self>, uid: &Arc<str>) -> InUse {
        let now = Instant::now();
        let mut all = self.lock();
        if all.uses.len() >= all.tidy_at {
            all.uses.retain(|_, one| one.running > 0 || now.duration_since(one.last) < KEPT);
            all.tidy_at = LEAST.max(all.uses.len() * 2);
        }
        let one = all.uses.entry(uid.clone()).or_insert_with(|| Use {
            running: 0,
            last: now,
            watch: Watch::default(),
        });
        one.running += 1;
        drop(all);
        InUse { uses: self.clone(), uid: uid.clone() }
    }

    /// Looks at what one does, if it is known.
    pub(super) fn with(&self, uid: &str, look: impl FnOnce(&mut Watch)) {
        if let Some(one) = self.lock().uses.get_mut(uid) {
            look(&mut one.watch);
        }
    }

    /// What is to be said of each, if anything.
    pub(super) fn each<T>(&self, say: impl Fn(&str, &Watch) -> Option<T>) -> Vec<T> {
        self.lock().uses.iter().filter_map(|(uid, one)| say(uid, &one.watch)).collect()
    }

    /// What is known of one.
    pub(super) fn used(&self, uid: &str) -> Used {
        let now = Instant::now();
        let all = self.lock();
        let ago = all.uses.get(uid).map(|one| match one.running {
            0 => millis(now.duration_since(one.last)),
            _ => 0,
        });
        Used { up_ms: millis(now.duration_since(self.born)), ago_ms: ago }
    }
}

/// A use that goes on.
#[derive(Debug)]
pub(super) struct InUse {
    uses: Arc<Uses>,
    uid: Arc<str>,
}

impl Drop for InUse {
    fn drop(&mut self) {
        let now = Instant::now();
        if let Some(one) = self.uses.lock().uses.get_mut(&self.uid) {
            one.running = one.running.saturating_sub(1);
            one.last = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ago(uses: &Uses, uid: &str) -> Option<u64> {
        uses.used(uid).ago_ms
    }

    #[tokio::test(start_paused = true)]
    async fn a_use_lasts_until_its_last_call_ends() {
        let uses = Arc::new(Uses::default());
        let sandbox: Arc<str> = "a".into();
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!(uses.used("a"), Used { up_ms: 5000, ago_ms: None });
        let (first, second) = (uses.begin(&sandbox), uses.begin(&sandbox));
        tokio::time::advance(Duration::from_secs(3)).await;
        drop(first);
        tokio::time::advance(Duration::from_secs(3)).await;
        assert_eq!(ago(&uses, "a"), Some(0));
        drop(second);
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!((ago(&uses, "a"), ago(&uses, "b")), (Some(2000), None));
    }

    #[tokio::test(start_paused = true)]
    async fn what_nobody_asks_for_any_more_is_forgotten() {
        let uses = Arc::new(Uses::default());
        let running = uses.begin(&"runs".into());
        for number in 0..LEAST - 2 {
            drop(uses.begin(&format!("old-{number}").into()));
        }
        tokio::time::advance(KEPT).await;
        drop(uses.begin(&"young".into()));
        assert_eq!(uses.lock().uses.len(), LEAST);
        drop(uses.begin(&"another".into()));
        let all = uses.lock();
        let mut left: Vec<&str> = all.uses.keys().map(AsRef::as_ref).collect();
        left.sort_unstable();
        assert_eq!((left, all.tidy_at), (vec!["another", "runs", "young"], LEAST));
        drop(all);
        drop(running);
    }
}
