//! Calls with an idempotency key: whoever comes again with the same request gets the same call. In this replica alone.
//!
//! What may have run is remembered, be it a failure: to run it again is what the key is to prevent. What has not run is forgotten at
//! once. Bounded in number and bytes: the oldest goes first, its output before its memory.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::body::Bytes;
use tokio::{sync::watch, time::Instant};

use super::{
    cache::Key,
    problem::{Problem, Reason},
};

/// Most calls that are remembered after their end.
const MOST_REMEMBERED: usize = 10_000;
/// Most bytes of their results.
const MOST_BYTES: usize = 64 * 1024 * 1024;

/// What a call ended with: a body, or a problem.
pub(super) type Ended = Result<Bytes, Problem>;

/// How a request with a key begins.
pub(super) enum Begun {
    /// It is the first: it runs, and tells the others.
    First(First),
    /// There is one: this is, or will be, its end.
    Again(Waiting),
    /// Another request had this key.
    Other,
    /// None had, and none may begin.
    None,
}

/// The calls.
pub(super) struct Retries {
    kept: Duration,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    entries: HashMap<Key, Entry>,
    /// Those that ended, the oldest first.
    ended: VecDeque<(Instant, Key, u64)>,
    /// Those of which the output is still kept, the oldest first.
    full: VecDeque<(Key, u64, usize)>,
    bytes: usize,
    next: u64,
}

struct Entry {
    number: u64,
    request: Key,
    uid: Arc<str>,
    end: watch::Receiver<Option<Ended>>,
    teller: Arc<watch::Sender<Option<Ended>>>,
}

impl Retries {
    pub(super) fn new(kept: Duration) -> Arc<Self> {
        Arc::new(Self { kept, inner: Mutex::default() })
    }

    /// Begins a request. `uid` is the sandbox that would be called now; without one, only what began before is found.
    pub(super) fn begin(self: &Arc<Self>, key: Key, request: Key, uid: Option<&Arc<str>>) -> Begun {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.forget(Instant::now(), self.kept);
        if let Some(entry) = inner.entries.get(&key) {
            // A sandbox that was made anew under its name has seen no call yet.
            if uid.is_none_or(|uid| entry.uid == *uid) {
                let again = || Begun::Again(Waiting(entry.end.clone()));
                return if entry.request == request { again() } else { Begun::Other };
            }
        }
        let Some(uid) = uid else { return Begun::None };
        let (teller, end) = watch::channel(None);
        let (teller, number) = (Arc::new(teller), inner.next);
        inner.next += 1;
        let entry = Entry { number, request, uid: uid.clone(), end, teller: teller.clone() };
        inner.entries.insert(key, entry);
        Begun::First(First { retries: self.clone(), key, number, teller })
    }

    fn end(&self, first: &First, ended: Ended, remember: bool) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let is_ours = inner.entries.get(&first.key).is_some_and(|entry| entry.number == first.number);
        if is_ours && remember {
            inner.ended.push_back((Instant::now(), first.key, first.number));
            let size = ended.as_ref().map_or(0, Bytes::len);
            inner.bytes += size;
            inner.full.push_back((first.key, first.number, size));
        } else if is_ours {
            inner.entries.remove(&first.key);
        }
        first.teller.send_replace(Some(ended));
        inner.shrink(MOST_REMEMBERED, MOST_BYTES);
    }
}

impl Inner {
    fn forget(&mut self, now: Instant, kept: Duration) {
        while self.ended.front().is_some_and(|(at, ..)| *at + kept <= now) {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        let Some((_, key, number)) = self.ended.pop_front() else { return };
        if self.entries.get(&key).is_some_and(|entry| entry.number == number) {
            self.entries.remove(&key);
        }
        // What ended first was full first.
        if self.full.front().is_some_and(|(_, full, _)| *full == number) {
            self.bytes -= self.full.pop_front().map_or(0, |(.., size)| size);
        }
    }

    fn shrink(&mut self, most: usize, most_bytes: usize) {
        while self.ended.len() > most {
            self.forget_oldest();
        }
        while self.bytes > most_bytes {
            let Some((key, number, size)) = self.full.pop_front() else { return };
            self.bytes -= size;
            if let Some(entry) = self.entries.get(&key).filter(|entry| entry.number == number) {
                entry.teller.send_replace(Some(Err(Problem::new(
                    Reason::ResultNotKept,
                    "this call has ended, and its output is not kept any more; use another key to run it again",
                ))));
            }
        }
    }
}

/// Who runs the call. Dropped without an end, it ends as lost.
pub(super) struct First {
    retries: Arc<Retries>,
    key: Key,
    number: u64,
    teller: Arc<watch::Sender<Option<Ended>>>,
}

impl First {
    /// Waits for its end, as all others do.
    pub(super) fn waiting(&self) -> Waiting {
        Waiting(self.teller.subscribe())
    }

    /// It ended. It is remembered if it may have run.
    pub(super) fn end(self, ended: Ended, remember: bool) {
        self.retries.end(&self, ended, remember);
    }
}

impl Drop for First {
    fn drop(&mut self) {
        if self.teller.borrow().is_none() {
            let problem =
                Problem::new(Reason::Internal, "the call was given up by the session; it may have run");
            self.retries.end(self, Err(problem), true);
        }
    }
}

/// Who waits for a call that somebody else began.
pub(super) struct Waiting(watch::Receiver<Option<Ended>>);

impl Waiting {
    /// Its end.
    pub(super) async fn ended(mut self) -> Ended {
        let ended = self.0.wait_for(Option::is_some).await.ok().and_then(|ended| ended.clone());
        ended.unwrap_or_else(|| Err(Problem::new(Reason::Internal, "the call was given up by the session")))
    }
}

#[cfg(test)]
mod tests;
