//! Answers of somebody else, believed for a few seconds, asked for once however many want them, and bounded in number.
//!
//! Keys are hashes: what was hashed is not kept. An error is nobody's answer: whoever comes next asks again.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use futures::{
    FutureExt as _,
    future::{BoxFuture, Shared},
};
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

/// What an answer is known by.
pub(super) type Key = [u8; 32];

/// The hash of these parts, each with its length, so that none can be moved into the next.
pub(super) fn key(parts: &[&[u8]]) -> Key {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

/// There was no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Away;

type Asked<V> = Shared<BoxFuture<'static, Result<V, Away>>>;

/// The answers.
pub(super) struct Cache<V> {
    believed: Duration,
    patience: Duration,
    most: usize,
    inner: Mutex<Inner<V>>,
}

struct Inner<V> {
    entries: HashMap<Key, Entry<V>>,
    /// Everything that was asked, the oldest first; of some there is a newer entry by now, or none.
    order: VecDeque<(Key, u64)>,
    next: u64,
}

struct Entry<V> {
    number: u64,
    at: Instant,
    asked: Asked<V>,
}

impl<V: Clone + Send + Sync + 'static> Cache<V> {
    /// An empty one: answers are believed for so long from when they were asked for, waited for `patience`, and at most so many.
    pub(super) fn new(believed: Duration, patience: Duration, most: usize) -> Self {
        let inner = Inner { entries: HashMap::new(), order: VecDeque::new(), next: 0 };
        Self { believed, patience, most, inner: Mutex::new(inner) }
    }

    /// The answer, and whether it was asked for before.
    pub(super) async fn get<F>(&self, key: Key, ask: impl FnOnce() -> F) -> (Result<V, Away>, bool)
    where
        F: Future<Output = Result<V, Away>> + Send + 'static,
    {
        let (asked, number, known) = self.entry(key, ask);
        let answer = asked.await;
        if answer.is_err() {
            self.forget(key, number);
        }
        (answer, known)
    }

    fn entry<F>(&self, key: Key, ask: impl FnOnce() -> F) -> (Asked<V>, u64, bool)
    where
        F: Future<Output = Result<V, Away>> + Send + 'static,
    {
        let now = Instant::now();
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = inner.entries.get(&key).filter(|entry| now < entry.at + self.believed) {
            return (entry.asked.clone(), entry.number, true);
        }
        inner.make_room(now, self.believed, self.most);
        let answer = tokio::time::timeout(self.patience, ask());
        let asked = answer.map(|answer| answer.unwrap_or(Err(Away))).boxed().shared();
        let number = inner.next;
        inner.next += 1;
        inner.entries.insert(key, Entry { number, at: now, asked: asked.clone() });
        inner.order.push_back((key, number));
        (asked, number, false)
    }

    fn forget(&self, key: Key, number: u64) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if inner.entries.get(&key).is_some_and(|entry| entry.number == number) {
            inner.entries.remove(&key);
        }
    }
}

impl<V> Inner<V> {
    /// Drops what is believed no more, and the oldest where there are too many.
    fn make_room(&mut self, now: Instant, believed: Duration, most: usize) {
        while let Some((key, number)) = self.order.front() {
            let entry = self.entries.get(key).filter(|entry| entry.number == *number);
            let old = entry.is_none_or(|entry| entry.at + believed <= now);
            if !old && self.order.len() < most {
                return;
            }
            if entry.is_some() {
                self.entries.remove(key);
            }
            self.order.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    };

    use tokio::time::sleep;

    use super::*;

    const BELIEVED: Duration = Duration::from_secs(10);
    const PATIENCE: Duration = Duration::from_secs(5);

    #[derive(Clone, Default)]
    struct Source(Arc<AtomicU32>);

    impl Source {
        async fn ask(self, takes: Duration, answer: Result<u32, Away>) -> Result<u32, Away> {
            self.0.fetch_add(1, Ordering::Relaxed);
            sleep(takes).await;
            answer
        }

        fn asked(&self) -> u32 {
            self.0.load(Ordering::Relaxed)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn many_ask_once_and_believe_it_for_a_while() {
        let (cache, source) = (Cache::new(BELIEVED, PATIENCE, 100), Source::default());
        let get = || cache.get(key(&[b"a"]), || source.clone().ask(Duration::from_secs(1), Ok(7)));
        let all = futures::future::join_all((0..50).map(|_| get())).await;
        assert!(all.iter().all(|(answer, _)| *answer == Ok(7)));
        assert_eq!((source.asked(), all.iter().filter(|(_, known)| !known).count()), (1, 1));
        sleep(Duration::from_millis(8999)).await;
        assert_eq!((get().await, source.asked()), ((Ok(7), true), 1));
        sleep(Duration::from_millis(1)).await;
        assert_eq!((get().await, source.asked()), ((Ok(7), false), 2), "counted from when it was asked");
    }

    #[tokio::test(start_paused = true)]
    async fn an_error_or_silence_is_told_to_all_who_wait_and_kept_for_nobody() {
        let (cache, source) = (Cache::new(BELIEVED, PATIENCE, 100), Source::default());
        let hour = Duration::from_secs(3600);
        let source = &source;
        let get = |takes, answer| cache.get(key(&[b"a"]), move || source.clone().ask(takes, answer));
        let started = Instant::now();
        let all = futures::future::join_all((0..50).map(|_| get(hour, Ok(1)))).await;
        assert!(all.iter().all(|(answer, _)| *answer == Err(Away)));
        assert_eq!((started.elapsed(), source.asked()), (PATIENCE, 1));
        assert_eq!(get(Duration::ZERO, Err(Away)).await, (Err(Away), false));
        assert_eq!(get(Duration::ZERO, Ok(2)).await, (Ok(2), false));
        assert_eq!(source.asked(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_asked_first_may_go() {
        let (cache, source) = (Cache::new(BELIEVED, PATIENCE, 100), Source::default());
        let get = || cache.get(key(&[b"a"]), || source.clone().ask(Duration::from_secs(2), Ok(1)));
        assert!(tokio::time::timeout(Duration::from_secs(1), get()).await.is_err());
        assert_eq!((get().await, source.asked()), ((Ok(1), true), 1));
    }

    #[tokio::test(start_paused = true)]
    async fn there_are_never_too_many() {
        let (cache, source) = (Cache::new(BELIEVED, PATIENCE, 10), Source::default());
        for number in 0..1000_u32 {
            let get =
                cache.get(key(&[&number.to_be_bytes()]), || source.clone().ask(Duration::ZERO, Ok(number)));
            assert_eq!(get.await.0, Ok(number));
            let inner = cache.inner.lock().unwrap();
            assert!(inner.entries.len() <= 10 && inner.order.len() <= 10);
        }
    }

    #[test]
    fn parts_are_not_moved_into_each_other() {
        assert_ne!(key(&[b"ab", b"c"]), key(&[b"a", b"bc"]));
        assert_ne!(key(&[b"a", b""]), key(&[b"a"]));
    }
}
