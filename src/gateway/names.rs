//! How many different names one wildcard is used for: data can leave in names, one label at a time.

use std::{
    collections::HashSet,
    hash::{BuildHasher as _, RandomState},
};

use super::limit::Nanos;
use crate::detect::information;

const HOUR: Nanos = 3_600_000_000_000;
/// Bytes that the names of an hour may carry before it is told, and again after as many. An honest client of a host that puts hashes
/// into names stays far below; what leaves at 0.7 bytes a second does not.
const CARRIED: u32 = 2048;

/// The names of an hour, as hashes that nobody outside can aim at. Bounded by the most that is asked with.
#[derive(Debug, Default)]
pub struct Names {
    hasher: RandomState,
    since: Nanos,
    seen: HashSet<u64>,
    /// Bytes that they can have carried.
    carried: u32,
}

/// What came of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admitted {
    /// There were too many in its hour.
    No,
    /// It is one of those of its hour.
    Known,
    /// It became one.
    New {
        /// When the hour began.
        hour: Nanos,
        /// How many bytes the names of this hour can have carried, where it is to be told.
        carried: Option<u32>,
    },
}

impl Names {
    /// Whether this name is one of the first `most` of its hour.
    pub fn admit(&mut self, now: Nanos, name: &str, most: u32) -> Admitted {
        if now.saturating_sub(self.since) >= HOUR {
            self.since = now;
            self.seen.clear();
            self.carried = 0;
        }
        let hash = self.hasher.hash_one(name);
        if self.seen.contains(&hash) {
            return Admitted::Known;
        }
        if self.seen.len() >= usize::try_from(most).unwrap_or(usize::MAX) {
            return Admitted::No;
        }
        self.seen.insert(hash);
        let before = self.carried / CARRIED;
        self.carried = self.carried.saturating_add(information(name));
        let steps = self.carried / CARRIED;
        Admitted::New { hour: self.since, carried: (steps > before).then_some(steps * CARRIED) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_names_go_on_new_ones_wait_for_the_next_hour() {
        let mut names = Names::default();
        let fresh = |hour| Admitted::New { hour, carried: None };
        assert!((0..10).all(|i| names.admit(i, &i.to_string(), 10) == fresh(0)));
        assert_eq!(names.admit(HOUR - 1, "x", 10), Admitted::No);
        assert_eq!(names.admit(HOUR - 1, "3", 10), Admitted::Known);
        assert_eq!(names.seen.len(), 10);
        assert_eq!(names.admit(HOUR, "x", 10), fresh(HOUR));
    }

    #[test]
    fn names_that_carry_data_are_told_and_honest_ones_are_not() {
        let mut names = Names::default();
        let mut told = |name: &dyn Fn(u32) -> String, count: u32, now: Nanos| -> usize {
            let told =
                |n: &u32| matches!(names.admit(now, &name(*n), 500), Admitted::New { carried: Some(_), .. });
            (0..count).filter(told).count()
        };
        let honest = |n: u32| format!("d{:08x}.cdn.example", n.wrapping_mul(2_654_435_761));
        assert_eq!(told(&honest, 150, 0), 0);
        let tunnel = |n: u32| {
            let words = [1_u32, 3, 5, 7, 9, 11]
                .map(|m: u32| n.wrapping_add(m).wrapping_mul(2_654_435_761).rotate_left(m));
            format!("{}.t.example", words.map(|word| format!("{word:08x}")).concat())
        };
        assert!(told(&tunnel, 200, HOUR) >= 2);
    }
}
