//! What a producer has said and the trail has not taken yet: in memory, bounded, and shared between sandboxes so that a flood of one
//! loses nothing of the others. What finds no room is counted, and the count is recorded.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{Notify, oneshot},
    time::timeout,
};

use super::{
    act::Act,
    record::{Record, Subject},
};

/// Most bytes that wait.
const MOST_BYTES: usize = 16 * 1024 * 1024;
/// Most records are no longer.
const USUAL: usize = 768;
/// Around each record, roughly.
const OVERHEAD: usize = 128;
/// Most sandboxes whose losses are counted one by one.
const MOST_LOSERS: usize = 1024;

/// How long a record waits for others: a request for each would cost more than all that it says.
const GATHERED: Duration = Duration::from_millis(20);
/// So many need not wait for more.
const MANY: usize = 500;

/// A record that could not be handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unrecorded;

/// One that waits.
#[derive(Debug)]
pub(super) struct Waiting {
    /// As JSON.
    pub(super) json: Vec<u8>,
    who: Option<Arc<str>>,
    done: Option<oneshot::Sender<()>>,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Waiting>,
    bytes: usize,
    /// How many of those that wait somebody waits for.
    awaited: usize,
    /// Of those that have some.
    by: HashMap<Arc<str>, usize>,
    lost: HashMap<Option<Arc<str>>, Lost>,
    /// Since the process started.
    ever_lost: u64,
}

#[derive(Debug)]
struct Lost {
    count: u64,
    sandbox: Option<Subject>,
}

/// What waits for the trail.
#[derive(Debug, Default)]
pub struct Spool {
    queue: Mutex<Queue>,
    filled: Notify,
    hurried: Notify,
    emptied: Notify,
}

impl Queue {
    /// Each may have half of what the others leave free: whoever has nothing yet finds room as long as there is any.
    fn has_room(&self, who: Option<&Arc<str>>, size: usize) -> bool {
        let own = who.and_then(|who| self.by.get(who)).copied().unwrap_or_default();
        own + size <= (MOST_BYTES - (self.bytes - own)).div_ceil(2)
    }

    fn push(&mut self, waiting: Waiting) {
        let size = waiting.json.len() + OVERHEAD;
        self.bytes += size;
        if let Some(who) = &waiting.who {
            *self.by.entry(who.clone()).or_default() += size;
        }
        self.awaited += usize::from(waiting.done.is_some());
        self.waiting.push_back(waiting);
    }

    fn is_hurried(&self) -> bool {
        self.awaited > 0 || self.waiting.len() >= MANY
    }

    fn lose(&mut self, who: Option<Arc<str>>, sandbox: Option<Subject>) {
        self.ever_lost += 1;
        let known = self.lost.contains_key(&who) || self.lost.len() < MOST_LOSERS;
        let (who, sandbox) = if known { (who, sandbox) } else { (None, None) };
        self.lost.entry(who).or_insert(Lost { count: 0, sandbox }).count += 1;
    }

    fn forget(&mut self, waiting: &Waiting) {
        let size = waiting.json.len() + OVERHEAD;
        self.bytes -= size;
        if let Some(who) = &waiting.who
            && let Some(own) = self.by.get_mut(who)
        {
            *own -= size;
            if *own == 0 {
                self.by.remove(who);
            }
        }
    }
}

impl Spool {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many records wait, and how many found no room since the process started.
    pub(super) fn figures(&self) -> (u64, u64) {
        let queue = self.lock();
        (queue.waiting.len() as u64, queue.ever_lost)
    }

    /// Says something, and goes on.
    pub fn say(&self, record: &Record) {
        // What finds no room is counted.
        let _ = self.add(record, None);
    }

    /// Says something, and returns once the trail has it.
    ///
    /// # Errors
    /// When there is no room for it, or whoever hands it over has ended.
    pub async fn say_first(&self, record: &Record) -> Result<(), Unrecorded> {
        let (done, taken) = oneshot::channel();
        self.add(record, Some(done))?;
        taken.await.map_err(|_| Unrecorded)
    }

    /// Takes it as it stands: it is long, and to carry it around costs more than to write it down.
    fn add(&self, record: &Record, done: Option<oneshot::Sender<()>>) -> Result<(), Unrecorded> {
        let who: Option<Arc<str>> = record.sandbox.as_ref().map(|sandbox| sandbox.uid.as_str().into());
        let mut json = Vec::with_capacity(USUAL);
        serde_json::to_writer(&mut json, record).map_err(|_| Unrecorded)?;
        let mut queue = self.lock();
        if !queue.has_room(who.as_ref(), json.len() + OVERHEAD) {
            queue.lose(who, record.sandbox.clone());
            return Err(Unrecorded);
        }
        queue.push(Waiting { json, who, done });
        let hurried = queue.is_hurried();
        drop(queue);
        self.filled.notify_one();
        if hurried {
            self.hurried.notify_one();
        }
        Ok(())
    }

    /// Waits until there is something, and a moment longer for more of it: unless somebody waits for it, or there is much.
    pub(super) async fn gather(&self) {
        loop {
            let filled = self.filled.notified();
            let (hurried, something) = {
                let queue = self.lock();
                (queue.is_hurried(), !queue.waiting.is_empty() || !queue.lost.is_empty())
            };
            if hurried {
                return;
            }
            if something {
                break;
            }
            filled.await;
        }
        // A permit of an earlier hurry only ends it sooner.
        let _ = timeout(GATHERED, self.hurried.notified()).await;
    }

    /// Waits until there is something, and takes as much as is to be sent at once. It keeps its room until it is done.
    pub(super) async fn take(&self, most: usize, most_bytes: usize, now: impl Fn() -> i64) -> Vec<Waiting> {
        loop {
            let filled = self.filled.notified();
            let taken = self.take_now(most, most_bytes, &now);
            if !taken.is_empty() {
                return taken;
            }
            filled.await;
        }
    }

    fn take_now(&self, most: usize, most_bytes: usize, now: &impl Fn() -> i64) -> Vec<Waiting> {
        let mut queue = self.lock();
        let lost: Vec<_> = queue.lost.drain().collect();
        for (who, Lost { count, sandbox }) in lost {
            let record = Record { count: Some(count), sandbox, ..Record::new(Act::RecordsLost, now()) }
                .failed("NoRoom");
            if let Ok(json) = serde_json::to_vec(&record) {
                queue.push(Waiting { json, who, done: None });
            }
        }
        let mut bytes = 0;
        let mut taken = Vec::new();
        while taken.len() < most && bytes < most_bytes {
            let Some(waiting) = queue.waiting.pop_front() else { break };
            bytes += waiting.json.len();
            queue.awaited -= usize::from(waiting.done.is_some());
            taken.push(waiting);
        }
        taken
    }

    /// The trail has these.
    pub(super) fn done(&self, taken: Vec<Waiting>) {
        let mut queue = self.lock();
        for waiting in taken {
            queue.forget(&waiting);
            if let Some(done) = waiting.done {
                // Whoever waited may have gone.
                let _ = done.send(());
            }
        }
        if queue.bytes == 0 {
            self.emptied.notify_waiters();
        }
    }

    /// Returns once nothing waits.
    pub(super) async fn emptied(&self) {
        loop {
            let emptied = self.emptied.notified();
            if self.lock().bytes == 0 {
                return;
            }
            emptied.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(uid: &str) -> Record {
        let sandbox = Subject { uid: uid.into(), ..Subject::default() };
        Record { message: Some("x".repeat(500)), ..Record::new(Act::EgressRefused, 0) }.about(sandbox)
    }

    fn acts(taken: &[Waiting]) -> Vec<Record> {
        taken.iter().map(|waiting| Record::read(&waiting.json).unwrap()).collect()
    }

    #[test]
    fn a_flood_of_one_loses_nothing_of_the_others() {
        let spool = Spool::default();
        for _ in 0..1_000_000 / 20 {
            spool.say(&record("flood"));
        }
        assert!(spool.lock().bytes <= MOST_BYTES / 2 + 1000);
        for n in 0..100 {
            assert_eq!(spool.add(&record(&format!("quiet-{n}")), None), Ok(()));
        }
        let taken = spool.take_now(usize::MAX, usize::MAX, &|| 0);
        let all = acts(&taken);
        let lost: Vec<_> = all.iter().filter(|record| record.activity_name == Act::RecordsLost).collect();
        let said = |uid: &str| {
            all.iter()
                .filter(|r| r.sandbox.as_ref().unwrap().uid == uid && r.activity_name != Act::RecordsLost)
                .count() as u64
        };
        assert_eq!((lost.len(), lost[0].sandbox.as_ref().unwrap().uid.as_str()), (1, "flood"));
        assert_eq!(said("flood") + lost[0].count.unwrap(), 50_000, "each is there, or is counted");
        assert_eq!(spool.figures().1, lost[0].count.unwrap());
        assert_eq!((0..100).map(|n| said(&format!("quiet-{n}"))).sum::<u64>(), 100);
        spool.done(taken);
        let queue = spool.lock();
        assert!(queue.bytes == 0 && queue.by.is_empty() && queue.lost.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_record_waits_for_others_unless_somebody_waits_for_it() {
        let spool = Arc::new(Spool::default());
        let started = tokio::time::Instant::now();
        assert!(timeout(GATHERED * 100, spool.gather()).await.is_err(), "there is nothing");
        let began = started.elapsed();
        spool.say(&record("a"));
        spool.gather().await;
        assert_eq!(started.elapsed() - began, GATHERED);
        let took = async |spool: &Spool| {
            let started = tokio::time::Instant::now();
            spool.gather().await;
            started.elapsed()
        };
        let waits = tokio::spawn({
            let spool = spool.clone();
            async move { spool.say_first(&record("b")).await }
        });
        tokio::task::yield_now().await;
        assert_eq!(took(&spool).await, Duration::ZERO);
        let taken = spool.take(10, 10_000, || 0).await;
        assert_eq!(taken.len(), 2);
        spool.done(taken);
        assert_eq!(waits.await.unwrap(), Ok(()));
        for _ in 0..MANY {
            spool.say(&record("a"));
        }
        assert_eq!(took(&spool).await, Duration::ZERO);
    }

    #[tokio::test]
    async fn whoever_waits_is_told_and_who_finds_no_room_too() {
        let spool = Arc::new(Spool::default());
        let waits = tokio::spawn({
            let spool = spool.clone();
            async move { spool.say_first(&record("a")).await }
        });
        let taken = spool.take(10, 10_000, || 0).await;
        assert!(!waits.is_finished());
        spool.done(taken);
        assert_eq!(waits.await.unwrap(), Ok(()));
        while spool.add(&record("a"), None).is_ok() {}
        assert_eq!(spool.say_first(&record("a")).await, Err(Unrecorded));
        // Given up by whoever hands over.
        let other = Arc::new(Spool::default());
        let waits = tokio::spawn({
            let other = other.clone();
            async move { other.say_first(&record("a")).await }
        });
        drop(other.take(10, 10_000, || 0).await);
        assert_eq!(waits.await.unwrap(), Err(Unrecorded));
    }
}
