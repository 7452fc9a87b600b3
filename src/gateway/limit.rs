//! The arithmetic of limits: a token bucket, a budget, a count. Exact integers, time as a parameter.
//!
//! Must never know what is limited: who asks, and what follows from a no, is the callers' affair.

use std::{
    num::NonZeroU64,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

/// Nanoseconds since a moment that the process fixes once.
pub type Nanos = u64;

const SECOND: u128 = 1_000_000_000;

/// So many a second on average, and so many at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Refilled a second.
    pub per_second: NonZeroU64,
    /// Most that is saved up.
    pub burst: NonZeroU64,
}

impl Rate {
    /// Zeros are read as one: a limit that lets nothing through is a denial, which is not a limit's to say.
    #[must_use]
    pub fn new(per_second: u64, burst: u64) -> Self {
        let positive = |n: u64| NonZeroU64::new(n).unwrap_or(NonZeroU64::MIN);
        Self { per_second: positive(per_second), burst: positive(burst) }
    }
}

/// A token bucket. What is in it is counted in billionths of a unit, so that no refill is ever rounded.
#[derive(Clone, Debug)]
pub struct Bucket {
    rate: Option<Rate>,
    credit: u128,
    at: Nanos,
}

impl Bucket {
    /// Full; without a rate it never says no.
    #[must_use]
    pub fn new(rate: Option<Rate>, now: Nanos) -> Self {
        Self { rate, credit: rate.map_or(0, full), at: now }
    }

    /// Changes the rate from now on. What was saved up stays, as far as the new bucket holds it.
    pub fn set(&mut self, rate: Option<Rate>, now: Nanos) {
        self.refill(now);
        self.credit = match (self.rate, rate) {
            (_, None) => 0,
            (None, Some(rate)) => full(rate),
            (Some(_), Some(rate)) => self.credit.min(full(rate)),
        };
        self.rate = rate;
    }

    /// Takes as many as there are, at most `want`.
    pub fn take(&mut self, now: Nanos, want: u64) -> u64 {
        if self.rate.is_none() {
            return want;
        }
        self.refill(now);
        let granted = u64::try_from(self.credit / SECOND).unwrap_or(u64::MAX).min(want);
        self.credit -= u128::from(granted) * SECOND;
        granted
    }

    /// Puts back what was taken and not used.
    pub fn give_back(&mut self, unused: u64) {
        if let Some(rate) = self.rate {
            self.credit = (self.credit + u128::from(unused) * SECOND).min(full(rate));
        }
    }

    /// The most that it holds.
    #[must_use]
    pub fn holds(&self) -> u64 {
        self.rate.map_or(u64::MAX, |rate| rate.burst.get())
    }

    /// How long until there are `want`, or as many as the bucket holds.
    #[must_use]
    pub fn wait(&self, want: u64) -> Duration {
        let Some(rate) = self.rate else { return Duration::ZERO };
        let needed = u128::from(want.min(rate.burst.get())) * SECOND;
        let nanos = needed.saturating_sub(self.credit).div_ceil(u128::from(rate.per_second.get()));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// A clock that stands or goes back refills nothing.
    fn refill(&mut self, now: Nanos) {
        let Some(rate) = self.rate else {
            self.at = self.at.max(now);
            return;
        };
        let elapsed = u128::from(now.saturating_sub(self.at));
        // Both factors have 64 bits, so the product has at most 128.
        self.credit = self.credit.saturating_add(elapsed * u128::from(rate.per_second.get())).min(full(rate));
        self.at = self.at.max(now);
    }
}

fn full(rate: Rate) -> u128 {
    u128::from(rate.burst.get()) * SECOND
}

/// A bucket that several flows take from. Most have no rate, which is seen without the lock.
#[derive(Debug)]
pub struct Shared {
    bucket: Mutex<Bucket>,
    limited: AtomicBool,
}

impl Shared {
    /// Full.
    #[must_use]
    pub fn new(rate: Option<Rate>, now: Nanos) -> Self {
        Self::holding(Bucket::new(rate, now))
    }

    fn holding(bucket: Bucket) -> Self {
        Self { limited: AtomicBool::new(bucket.rate.is_some()), bucket: Mutex::new(bucket) }
    }

    /// The bucket, for one short step.
    pub fn with<T>(&self, step: impl FnOnce(&mut Bucket) -> T) -> T {
        let bucket = &mut *self.bucket.lock().unwrap_or_else(PoisonError::into_inner);
        let done = step(bucket);
        self.limited.store(bucket.rate.is_some(), Ordering::Relaxed);
        done
    }

    /// Whether it may ever say no. Who asks while a rate is set may hear of it one step late, as if it had asked before.
    #[must_use]
    pub fn is_limited(&self) -> bool {
        self.limited.load(Ordering::Relaxed)
    }

    /// Another bucket with as much in it.
    #[must_use]
    pub fn copy(&self) -> Self {
        Self::holding(self.with(|bucket| bucket.clone()))
    }

    /// Takes one, if there is one. What time it is matters only where there is a rate.
    pub fn one(&self, now: impl FnOnce() -> Nanos) -> bool {
        !self.is_limited() || self.with(|bucket| bucket.take(now(), 1)) == 1
    }
}

/// An amount for a lifetime. What is spent stays spent when the amount changes.
#[derive(Debug)]
pub struct Budget {
    spent: AtomicU64,
    most: AtomicU64,
}

impl Budget {
    /// Untouched; none is without end.
    #[must_use]
    pub fn new(most: Option<u64>) -> Self {
        Self { spent: AtomicU64::new(0), most: AtomicU64::new(most.unwrap_or(u64::MAX)) }
    }

    /// Changes the amount.
    pub fn set(&self, most: Option<u64>) {
        self.most.store(most.unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Takes as much as is left, at most `want`.
    pub fn take(&self, want: u64) -> u64 {
        let most = self.most.load(Ordering::Relaxed);
        let mut spent = self.spent.load(Ordering::Relaxed);
        loop {
            let granted = want.min(most.saturating_sub(spent));
            let next = spent.saturating_add(granted);
            match self.spent.compare_exchange_weak(spent, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return granted,
                Err(seen) => spent = seen,
            }
        }
    }

    /// Puts back what was taken and not used.
    pub fn give_back(&self, unused: u64) {
        self.spent.fetch_sub(unused, Ordering::Relaxed);
    }

    /// What was taken so far.
    #[must_use]
    pub fn spent(&self) -> u64 {
        self.spent.load(Ordering::Relaxed)
    }
}

/// How many are in, with a most that may differ at each entry.
#[derive(Debug, Default)]
pub struct Count(AtomicU32);

impl Count {
    /// Lets `weight` more in, if that is not above `most`.
    #[must_use]
    pub fn enter(self: &Arc<Self>, weight: u32, most: u32) -> Option<Inside> {
        let mut now = self.0.load(Ordering::Relaxed);
        loop {
            let next = now.checked_add(weight).filter(|next| *next <= most)?;
            match self.0.compare_exchange_weak(now, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Some(Inside { count: self.clone(), weight }),
                Err(seen) => now = seen,
            }
        }
    }

    /// How many are in.
    #[must_use]
    pub fn now(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A place inside; dropping it leaves.
#[derive(Debug)]
pub struct Inside {
    count: Arc<Count>,
    weight: u32,
}

impl Inside {
    /// Takes more room for the same, or says that there is none.
    pub fn grow(&mut self, more: u32, most: u32) -> bool {
        match self.count.enter(more, most) {
            Some(mut grown) => {
                self.weight += std::mem::take(&mut grown.weight);
                true
            }
            None => false,
        }
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.count.0.fetch_sub(self.weight, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
