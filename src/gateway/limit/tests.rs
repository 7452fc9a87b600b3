//! The arithmetic, three ways: every history within small bounds against a specification in exact fractions, chosen histories
//! over the whole domain, and many threads at once.
//!
//! Budgets and counts are one atomic number each, changed by compare-and-swap alone: each change is of the value that it was
//! computed from, so there is no order of threads in which two changes are computed from the same one. The threads below look
//! for a slip in that; a model checker would have nothing else to order.

mod exact;

use super::*;
use proptest::prelude::*;

const NS: u64 = 1_000_000_000;

#[test]
fn extremes_do_not_overflow() {
    let rate = Rate::new(u64::MAX, u64::MAX);
    let mut bucket = Bucket::new(Some(rate), 0);
    assert_eq!(bucket.take(u64::MAX, u64::MAX), u64::MAX);
    assert_eq!(bucket.take(0, 1), 0, "a clock that goes back refills nothing");
    bucket.give_back(u64::MAX);
    assert_eq!(bucket.take(u64::MAX, u64::MAX), u64::MAX);
    assert_eq!(Bucket::new(None, 0).take(0, u64::MAX), u64::MAX);
}

#[test]
fn a_count_never_passes_its_most_and_forgets_nobody() {
    let count = Arc::new(Count::default());
    let first = count.enter(2, 3).unwrap();
    assert!(count.enter(2, 3).is_none());
    let mut second = count.enter(1, 3).unwrap();
    assert!(!second.grow(1, 3));
    drop(first);
    assert!(second.grow(2, 3));
    assert_eq!(count.now(), 3);
    drop(second);
    assert_eq!(count.now(), 0);
}

#[test]
fn a_budget_is_spent_once_whatever_threads_do() {
    let budget = Budget::new(Some(10_000));
    let taken: u64 = std::thread::scope(|scope| {
        let takers: Vec<_> =
            (0..4).map(|_| scope.spawn(|| (0..5_000).map(|_| budget.take(1)).sum::<u64>())).collect();
        takers.into_iter().map(|taker| taker.join().unwrap()).sum()
    });
    assert_eq!((taken, budget.spent()), (10_000, 10_000));
    budget.set(Some(10_005));
    assert_eq!(budget.take(10), 5);
    budget.give_back(3);
    assert_eq!(budget.take(10), 3);
    budget.set(Some(1));
    assert_eq!(budget.take(1), 0, "a smaller amount gives nothing back");
}

proptest! {
    /// Over any history: never more than burst + rate x time, and what is promised by `wait` is there then.
    #[test]
    fn bounds_and_promises(
        per_second in 1..=u64::from(u32::MAX), burst in 1..=u64::from(u32::MAX),
        steps in prop::collection::vec((0..10 * NS, 0..=u64::from(u32::MAX), 0_u8..=100), 1..40),
    ) {
        let rate = Rate::new(per_second, burst);
        let mut bucket = Bucket::new(Some(rate), 0);
        let (mut now, mut used) = (0_u64, 0_u128);
        for (after, want, unused) in steps {
            now += after;
            let granted = bucket.take(now, want);
            prop_assert!(granted <= want);
            let back = granted * u64::from(unused) / 100;
            bucket.give_back(back);
            used += u128::from(granted - back);
            let most = u128::from(burst) * SECOND + u128::from(now) * u128::from(per_second);
            prop_assert!(used * SECOND <= most);
            let later = now + u64::try_from(bucket.wait(want).as_nanos()).unwrap();
            prop_assert!(bucket.clone().take(later, want) >= want.min(burst));
            if later > now {
                prop_assert!(bucket.clone().take(later - 1, want) < want.min(burst), "no wait is too long");
            }
        }
    }

    /// A change of the rate never makes more than the larger of both could give.
    #[test]
    fn a_change_gives_nothing_away(a in 1..1000_u64, b in 1..1000_u64, spent in 0..1000_u64) {
        let mut bucket = Bucket::new(Some(Rate::new(a, a)), 0);
        let first = bucket.take(0, spent);
        bucket.set(Some(Rate::new(b, b)), 0);
        prop_assert!(bucket.take(0, u64::MAX) <= (a - first).min(b));
    }
}

/// Threads that take, give some back and take again, while the amount goes up and down.
#[test]
fn a_budget_is_never_over_spent_by_threads() {
    const MOST: u64 = 50_000;
    let budget = Budget::new(Some(MOST));
    let kept: u64 = std::thread::scope(|scope| {
        let takers: Vec<_> = (0..8_u64)
            .map(|seed| {
                let budget = &budget;
                scope.spawn(move || {
                    let (mut kept, mut random) = (0, seed);
                    for _ in 0..4_000 {
                        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        let granted = budget.take(random >> 59);
                        let back = granted.min(random >> 40 & 7);
                        budget.give_back(back);
                        kept += granted - back;
                        assert!(budget.spent() <= MOST, "{}", budget.spent());
                    }
                    kept
                })
            })
            .collect();
        for most in [MOST / 2, MOST].into_iter().cycle().take(400) {
            budget.set(Some(most));
        }
        takers.into_iter().map(|taker| taker.join().unwrap()).sum()
    });
    let rest = budget.take(u64::MAX);
    assert_eq!((kept + rest, budget.spent()), (MOST, MOST), "to the unit");
}

#[test]
fn a_shared_bucket_gives_no_more_to_many_threads() {
    let shared = Shared::new(Some(Rate::new(1_000, 500)), 0);
    // Each thread has its own idea of the time, up to two seconds: later ones count, earlier ones add nothing.
    let taken: u64 = std::thread::scope(|scope| {
        let takers: Vec<_> = (0..8_u64)
            .map(|thread| {
                let shared = &shared;
                let step =
                    move |at: u64| shared.with(|bucket| bucket.take(at * (thread + 1) * NS / 8_000, 1));
                scope.spawn(move || (0..=2_000).map(step).sum::<u64>())
            })
            .collect();
        takers.into_iter().map(|taker| taker.join().unwrap()).sum()
    });
    let rest = shared.with(|bucket| bucket.take(2 * NS, u64::MAX));
    assert!(taken <= 2_500 && taken + rest <= 2_500, "{taken} and {rest}");
    assert!(taken >= 2_000, "and nobody starves: {taken}");
}

#[test]
fn a_count_is_never_passed_by_threads() {
    const MOST: u32 = 20;
    let count = Arc::new(Count::default());
    std::thread::scope(|scope| {
        for thread in 0..8_u32 {
            let count = &count;
            scope.spawn(move || {
                for turn in 0..2_000 {
                    let Some(mut inside) = count.enter(1 + (thread + turn) % 5, MOST) else { continue };
                    let _ = inside.grow(turn % 3, MOST);
                    assert!(count.now() <= MOST);
                }
            });
        }
    });
    assert_eq!(count.now(), 0);
    let whole = count.enter(u32::MAX, u32::MAX).unwrap();
    assert!(count.enter(1, u32::MAX).is_none(), "nor by an overflow");
    drop(whole);
}
