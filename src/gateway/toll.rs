//! What a byte passes before it is carried: every rate and budget that it counts against, and the counters.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use smallvec::SmallVec;

use super::{
    clock::Clock,
    limit::{Budget, Shared},
};

/// Bytes that are worth being carried at once: at its limit, a flow that carried each byte as it came would do nothing else.
const WORTH: u64 = 4096;

/// As many as a flow has, without an allocation.
pub type Few<T> = SmallVec<[T; 2]>;

/// One direction of one flow.
#[derive(Clone, Debug)]
pub struct Toll {
    /// Bytes a second, most specific first.
    pub rates: Few<Arc<Shared>>,
    /// Bytes of a lifetime.
    pub budgets: Few<Arc<Budget>>,
    /// Where carried bytes are counted.
    pub counted: Few<Arc<AtomicU64>>,
    /// Time.
    pub clock: Clock,
}

/// A budget is spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spent;

impl Toll {
    /// Waits until some of `want` bytes may be carried, and says how many. What is not used must be settled.
    ///
    /// # Errors
    /// When a budget is spent.
    pub async fn pass(&self, want: usize) -> Result<usize, Spent> {
        loop {
            let granted = self.rated(want as u64);
            if granted < WORTH.min(want as u64) {
                let worth = self.worth(want as u64);
                if granted < worth {
                    self.unrate(granted);
                    tokio::time::sleep(self.wait(worth)).await;
                    continue;
                }
            }
            let affordable = self.afforded(granted);
            self.unrate(granted - affordable);
            return if affordable == 0 {
                Err(Spent)
            } else {
                Ok(usize::try_from(affordable).unwrap_or(want))
            };
        }
    }

    /// Gives back what was granted and not carried; counts the rest.
    pub fn settle(&self, granted: usize, carried: usize) {
        let unused = granted.saturating_sub(carried) as u64;
        if unused > 0 {
            self.unrate(unused);
            for budget in &self.budgets {
                budget.give_back(unused);
            }
        }
        for counter in &self.counted {
            counter.fetch_add(carried as u64, Ordering::Relaxed);
        }
    }

    fn rated(&self, want: u64) -> u64 {
        if !self.rates.iter().any(|rate| rate.is_limited()) {
            return want;
        }
        let now = self.clock.now();
        least(&self.rates, want, |rate, want| rate.with(|bucket| bucket.take(now, want)), give_back)
    }

    fn unrate(&self, unused: u64) {
        if unused > 0 {
            for rate in &self.rates {
                give_back(rate, unused);
            }
        }
    }

    fn afforded(&self, want: u64) -> u64 {
        least(&self.budgets, want, Budget::take, Budget::give_back)
    }

    /// What is waited for: half of what the smallest bucket holds is there before any of it is lost.
    fn worth(&self, want: u64) -> u64 {
        let halves = self.rates.iter().map(|rate| rate.with(|bucket| bucket.holds() / 2));
        halves.min().unwrap_or(u64::MAX).min(WORTH).min(want).max(1)
    }

    fn wait(&self, worth: u64) -> Duration {
        let longest = self.rates.iter().map(|rate| rate.with(|bucket| bucket.wait(worth))).max();
        // Not a busy loop, even if another flow takes first what was waited for.
        longest.unwrap_or_default().max(Duration::from_millis(1))
    }
}

/// To a bucket without a rate, nothing is given back.
fn give_back(rate: &Shared, unused: u64) {
    if rate.is_limited() {
        rate.with(|bucket| bucket.give_back(unused));
    }
}

/// What all of them grant. What one grants and a later one does not is given back to the one.
fn least<T>(all: &[Arc<T>], want: u64, take: impl Fn(&T, u64) -> u64, give_back: impl Fn(&T, u64)) -> u64 {
    let mut granted = want;
    for (at, one) in all.iter().enumerate() {
        let got = take(one, granted);
        for earlier in all.iter().take(at) {
            give_back(earlier, granted - got);
        }
        granted = got;
    }
    granted
}

#[cfg(test)]
mod tests {
    use smallvec::smallvec;

    use super::*;
    use crate::gateway::limit::Rate;

    fn toll(rates: &[(u64, u64)], budgets: &[u64]) -> Toll {
        let rates = rates.iter().map(|(rate, burst)| Shared::new(Some(Rate::new(*rate, *burst)), 0).into());
        Toll {
            rates: rates.collect(),
            budgets: budgets.iter().map(|most| Budget::new(Some(*most)).into()).collect(),
            counted: smallvec![Arc::default()],
            clock: Clock::default(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_smallest_decides_and_nothing_leaks_from_the_others() {
        let toll = toll(&[(1000, 10_000), (1000, 100)], &[5000, 50]);
        assert_eq!(toll.pass(1 << 20).await, Ok(50));
        toll.settle(50, 20);
        assert_eq!(toll.counted[0].load(Ordering::Relaxed), 20);
        assert_eq!((toll.budgets[0].spent(), toll.budgets[1].spent()), (20, 20));
        assert_eq!(toll.rates[0].with(|bucket| bucket.take(0, u64::MAX)), 9_980);
        assert_eq!(toll.rates[1].with(|bucket| bucket.take(0, u64::MAX)), 80);
    }

    #[tokio::test(start_paused = true)]
    async fn holds_the_rate_over_time() {
        let toll = toll(&[(10_000, 1_000)], &[]);
        let started = tokio::time::Instant::now();
        let mut carried = 0;
        while carried < 101_000 {
            let granted = toll.pass(64 * 1024).await.unwrap();
            toll.settle(granted, granted);
            carried += granted;
        }
        let took = started.elapsed().as_secs_f64();
        assert!((9.9..10.5).contains(&took), "{took}");
    }

    /// Two flows at one limit: what is carried at once is worth it, and the rate is used up.
    #[tokio::test(start_paused = true)]
    async fn at_its_limit_nothing_is_carried_byte_by_byte() {
        let toll = toll(&[(1 << 20, 1 << 18)], &[]);
        let flow = |toll: Toll| async move {
            let (mut steps, mut carried) = (0_u64, 0);
            while carried < 4 << 20 {
                let granted = toll.pass(16 * 1024).await.unwrap();
                toll.settle(granted, granted);
                carried += granted as u64;
                steps += 1;
                // Time passes while bytes are carried, and some may be carried again.
                tokio::time::sleep(Duration::from_micros(10)).await;
            }
            steps
        };
        let started = tokio::time::Instant::now();
        let (one, two) = tokio::join!(flow(toll.clone()), flow(toll));
        let took = started.elapsed().as_secs_f64();
        assert!((7.7..8.2).contains(&took), "{took}");
        assert!(one + two <= 2 * (4 << 20) / WORTH, "{one} and {two} steps");
    }

    #[tokio::test(start_paused = true)]
    async fn a_spent_budget_ends_it() {
        let toll = toll(&[], &[10]);
        assert_eq!(toll.pass(10).await, Ok(10));
        assert_eq!(toll.pass(1).await, Err(Spent));
    }

    /// Flows of one sandbox on several threads, each with a rule of its own and all with the sandbox's budget.
    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn budgets_are_never_over_spent_by_flows_at_once() {
        const MOST: u64 = 400_000;
        let whole: Arc<Budget> = Budget::new(Some(MOST)).into();
        let rules: [Arc<Budget>; 2] = [Budget::new(Some(MOST / 4)).into(), Budget::new(None).into()];
        let carried: [Arc<AtomicU64>; 2] = Default::default();
        let mut flows = tokio::task::JoinSet::new();
        for flow in 0..16_usize {
            let toll = Toll {
                rates: Few::new(),
                budgets: smallvec![rules[flow % 2].clone(), whole.clone()],
                counted: smallvec![carried[flow % 2].clone()],
                clock: Clock::default(),
            };
            flows.spawn(async move {
                let mut step = flow;
                while let Ok(granted) = toll.pass(1 + step % 1500).await {
                    toll.settle(granted, granted - granted.min(step % 7));
                    step = step.wrapping_mul(31).wrapping_add(7) % 4096;
                    tokio::task::yield_now().await;
                }
            });
        }
        flows.join_all().await;
        let [first, second] = carried.map(|carried| carried.load(Ordering::Relaxed));
        assert_eq!((rules[0].spent(), rules[1].spent(), whole.spent()), (first, second, first + second));
        assert!(first <= MOST / 4 && first + second <= MOST, "{first} and {second}");
    }
}
