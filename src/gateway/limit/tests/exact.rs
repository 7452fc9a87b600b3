//! The specification of a bucket, which knows no level: from any moment on, what went out is at most what the bucket could
//! hold then and what came in since. What is there now is the least that any moment leaves.
//!
//! So whatever agrees with it lets no more than `burst + rate x time` through in any stretch of time, and never less.

use super::*;

/// In billionths of a unit, where every rate and every nanosecond is a whole number.
#[derive(Clone, Debug)]
struct Exact {
    rate: Option<Rate>,
    now: Nanos,
    /// For each moment at which something happened: what it leaves now.
    left: Vec<i128>,
}

fn units(n: u64) -> i128 {
    i128::from(n) * SECOND as i128
}

impl Exact {
    fn new(rate: Option<Rate>) -> Self {
        let mut new = Self { rate: None, now: 0, left: Vec::new() };
        new.set(rate, 0);
        new
    }

    fn until(&mut self, now: Nanos) {
        let passed = i128::from(now.saturating_sub(self.now));
        self.now = self.now.max(now);
        if let Some(rate) = self.rate {
            // What is cut off here is far beyond what any bucket holds.
            self.change(passed.saturating_mul(i128::from(rate.per_second.get())));
        }
    }

    fn change(&mut self, by: i128) {
        self.left.iter_mut().for_each(|left| *left = left.saturating_add(by));
        self.left.extend(self.rate.map(|rate| units(rate.burst.get())));
    }

    fn there(&self) -> i128 {
        self.left.iter().copied().min().unwrap_or(0)
    }

    fn take(&mut self, now: Nanos, want: u64) -> u64 {
        // Without a rate there is nothing to wait for, and no time.
        if self.rate.is_none() {
            return want;
        }
        self.until(now);
        let granted = u64::try_from(self.there() / units(1)).unwrap_or(u64::MAX).min(want);
        self.change(-units(granted));
        granted
    }

    fn give_back(&mut self, unused: u64) {
        self.change(units(unused));
    }

    fn set(&mut self, rate: Option<Rate>, now: Nanos) {
        self.until(now);
        let begins = self.rate.is_none() || rate.is_none();
        self.rate = rate;
        if begins {
            self.left.clear();
        }
        self.change(0);
    }

    /// Nanoseconds, rounded up.
    fn wait(&self, want: u64) -> u64 {
        let Some(rate) = self.rate else { return 0 };
        let missing = units(want.min(rate.burst.get())) - self.there();
        let per_second = i128::from(rate.per_second.get());
        u64::try_from((missing.max(0) + per_second - 1) / per_second).unwrap_or(u64::MAX)
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Take(u64),
    /// As much of what was taken last.
    GiveBack(u64),
    /// The clock moves by this, perhaps back.
    Pass(i64),
    Set(Option<(u64, u64)>),
}

#[derive(Clone)]
struct Both {
    bucket: Bucket,
    exact: Exact,
    clock: u64,
    /// Taken and not given back since the rate was set.
    out: u64,
}

impl Both {
    fn new(rate: Option<Rate>) -> Self {
        Self { bucket: Bucket::new(rate, 0), exact: Exact::new(rate), clock: 0, out: 0 }
    }

    fn step(&mut self, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::Take(want) => {
                let granted = self.bucket.take(self.clock, want);
                prop_assert_eq!(granted, self.exact.take(self.clock, want));
                self.out = self.out.saturating_add(granted);
            }
            Step::GiveBack(most) => {
                let unused = most.min(self.out);
                self.bucket.give_back(unused);
                self.exact.give_back(unused);
                self.out -= unused;
            }
            Step::Pass(by) => self.clock = self.clock.saturating_add_signed(by),
            Step::Set(rate) => {
                let rate = rate.map(|(per_second, burst)| Rate::new(per_second, burst));
                self.bucket.set(rate, self.clock);
                self.exact.set(rate, self.clock);
                self.out = 0;
            }
        }
        self.same()
    }

    /// The same is there, to the billionth; and what is promised is there when it is promised, not a nanosecond before.
    fn same(&self) -> Result<(), TestCaseError> {
        let (mut bucket, mut exact) = (self.bucket.clone(), self.exact.clone());
        prop_assert_eq!(bucket.take(self.clock, 0), 0);
        exact.until(self.clock);
        for want in [1, 2, 1000, u64::MAX] {
            let wait = u64::try_from(bucket.wait(want).as_nanos()).unwrap_or(u64::MAX);
            prop_assert_eq!(wait, exact.wait(want), "for {}", want);
            // Six hundred years, and whatever is longer than that.
            let Some(later) = exact.now.checked_add(wait).filter(|_| wait < u64::MAX) else { continue };
            let most = exact.rate.map_or(want, |rate| want.min(rate.burst.get()));
            prop_assert_eq!(bucket.clone().take(later, want), most, "nobody starves");
            if wait > 0 {
                prop_assert!(bucket.clone().take(later - 1, want) < most, "no wait is too long");
            }
        }
        Ok(())
    }
}

const SMALL: [Step; 12] = [
    Step::Take(1),
    Step::Take(2),
    Step::Take(9),
    Step::GiveBack(1),
    Step::GiveBack(9),
    Step::Pass(333_333_333),
    Step::Pass(1),
    Step::Pass(1_250_000_000),
    Step::Pass(-500_000_000),
    Step::Set(Some((3, 2))),
    Step::Set(Some((1, 5))),
    Step::Set(None),
];

fn descend(both: &Both, depth: u32, path: &mut Vec<Step>, seen: &mut u64) {
    if depth == 0 {
        return;
    }
    for step in SMALL {
        path.push(step);
        let mut next = both.clone();
        if let Err(why) = next.step(step) {
            panic!("{path:?}: {why}");
        }
        *seen += 1;
        descend(&next, depth - 1, path, seen);
        path.pop();
    }
}

/// Every rate and burst, and every history of four steps within small bounds: half a million steps.
#[test]
fn is_the_specification_exhaustively() {
    let mut seen = 0;
    for per_second in [1, 2, 3, 7, 1000] {
        for burst in 1..=4 {
            descend(&Both::new(Some(Rate::new(per_second, burst))), 4, &mut Vec::new(), &mut seen);
        }
    }
    descend(&Both::new(None), 4, &mut Vec::new(), &mut seen);
    let each = 12 + 12_u64.pow(2) + 12_u64.pow(3) + 12_u64.pow(4);
    assert_eq!(seen, 21 * each);
}

/// Small numbers, ordinary ones and the largest.
fn any_amount() -> impl Strategy<Value = u64> {
    prop_oneof![0..10_u64, 0..=u64::from(u32::MAX), any::<u64>(), (0..3_u64).prop_map(|less| u64::MAX - less)]
}

fn any_step() -> impl Strategy<Value = Step> {
    let rate = prop_oneof![4 => (any_amount(), any_amount()).prop_map(Some), 1 => Just(None)];
    let pass = prop_oneof![
        (-10_i64..10),
        (-10_000_000_000_i64..100_000_000_000),
        any::<i64>(),
        Just(i64::MAX),
        Just(i64::MIN)
    ];
    prop_oneof![
        4 => any_amount().prop_map(Step::Take),
        2 => any_amount().prop_map(Step::GiveBack),
        4 => pass.prop_map(Step::Pass),
        1 => rate.prop_map(Step::Set),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2048, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever the numbers are, up to the largest that 64 bits hold, and wherever the clock goes.
    #[test]
    fn is_the_specification_everywhere(rate in (any_amount(), any_amount()), steps in prop::collection::vec(any_step(), 1..40)) {
        let mut both = Both::new(Some(Rate::new(rate.0, rate.1)));
        for step in steps {
            both.step(step)?;
        }
    }
}
