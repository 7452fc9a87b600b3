//! What a sandbox was refused: folded and bounded, for Events and for whoever asks why.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use jiff::Timestamp;

use super::{
    entry::Entry,
    reason::{Reason, Refusal},
};

/// Most hosts that are kept for one sandbox. What comes beyond is kept without its host: a flood of names hides no reason.
const MOST: usize = 64;

/// One kind of refusal.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// Where it was met.
    pub entry: Entry,
    /// Why.
    pub reason: Reason,
    /// The host: printable and capped. Empty for none, or for many.
    pub host: String,
    /// The port.
    pub port: u16,
}

/// How often and since when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folded {
    /// How often.
    pub count: u64,
    /// First time.
    pub first: Timestamp,
    /// Last time.
    pub last: Timestamp,
    /// The rule that came closest.
    pub rule: Option<Arc<str>>,
    /// What the class says of its denial.
    pub words: Option<Arc<str>>,
}

/// What became of one more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// The first of its kind.
    First,
    /// The same was there.
    Repeat,
    /// It may be another, or the same: there was no room for its host.
    Folded,
}

#[derive(Debug, Default)]
struct Record {
    kept: HashMap<Key, Folded>,
    /// How many were kept with their host.
    named: usize,
}

/// The refusals of one sandbox.
#[derive(Debug, Default)]
pub struct Refusals(Mutex<Record>);

impl Refusals {
    /// Adds one.
    pub fn add(&self, entry: Entry, refusal: &Refusal, now: Timestamp) -> Added {
        let key = Key { entry, reason: refusal.reason, host: refusal.host.clone(), port: refusal.port };
        let mut record = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(folded) = record.kept.get_mut(&key) {
            folded.count += 1;
            folded.last = now;
            return Added::Repeat;
        }
        let key = if record.named < MOST { key } else { Key { host: String::new(), port: 0, ..key } };
        record.named = (record.named + 1).min(MOST);
        if let Some(folded) = record.kept.get_mut(&key) {
            folded.count += 1;
            folded.last = now;
            return Added::Folded;
        }
        let (rule, words) = (refusal.rule.clone(), refusal.words.clone());
        record.kept.insert(key, Folded { count: 1, first: now, last: now, rule, words });
        Added::First
    }

    /// Whether nothing is kept.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).kept.is_empty()
    }

    /// Takes all that is kept.
    #[must_use]
    pub fn take(&self) -> Vec<(Key, Folded)> {
        let mut record = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *record).kept.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{gateway::reason::Trouble, policy::DenyReason};

    #[test]
    fn folds_and_stays_small() {
        let refusals = Refusals::default();
        let now = Timestamp::UNIX_EPOCH;
        let refusal = |host: &str| Refusal::raw(DenyReason::NoRule, host.as_bytes(), 443);
        let add = |entry, refusal: &Refusal| refusals.add(entry, refusal, now);
        assert_eq!(add(Entry::Tls, &refusal("a.example")), Added::First);
        assert_eq!(add(Entry::Tls, &refusal("a.example")), Added::Repeat);
        assert_eq!(add(Entry::Dns, &refusal("a.example")), Added::First);
        assert_eq!(add(Entry::Tls, &Refusal::raw(Trouble::NotTls, b"a.example", 443)), Added::First);
        for i in 0..1000 {
            refusals.add(Entry::Dns, &refusal(&format!("{i}.example")), now);
        }
        let severe = Refusal::raw(DenyReason::MetadataAddress, b"169.254.169.254", 80);
        assert_eq!(add(Entry::Connect, &severe), Added::First, "a flood hides nothing");
        let other = Refusal::raw(DenyReason::MetadataAddress, b"169.254.170.2", 80);
        assert_eq!(add(Entry::Connect, &other), Added::Folded);
        let kept: HashMap<_, _> = refusals.take().into_iter().collect();
        assert_eq!(kept.len(), MOST + 2);
        let count = |entry, reason, host: &str, port| {
            kept[&Key { entry, reason: Reason::Policy(reason), host: host.into(), port }].count
        };
        assert_eq!(count(Entry::Tls, DenyReason::NoRule, "a.example", 443), 2);
        assert_eq!(count(Entry::Dns, DenyReason::NoRule, "", 0), 1000 - (MOST as u64 - 3));
        assert_eq!(count(Entry::Connect, DenyReason::MetadataAddress, "", 0), 2);
        assert_eq!(refusals.take(), vec![]);
    }
}
