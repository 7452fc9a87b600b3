//! How many different names one wildcard is used for: data can leave in names, one label at a time.

use std::{
    collections::HashSet,
    hash::{BuildHasher as _, RandomState},
};

use super::limit::Nanos;

const HOUR: Nanos = 3_600_000_000_000;

/// The names of an hour, as hashes that nobody outside can aim at. Bounded by the most that is asked with.
#[derive(Debug, Default)]
pub struct Names {
    hasher: RandomState,
    since: Nanos,
    seen: HashSet<u64>,
}

impl Names {
    /// Whether this name is one of the first `most` of its hour.
    pub fn admit(&mut self, now: Nanos, name: &str, most: u32) -> bool {
        if now.saturating_sub(self.since) >= HOUR {
            self.since = now;
            self.seen.clear();
        }
        let name = self.hasher.hash_one(name);
        if self.seen.contains(&name) {
            return true;
        }
        let room = self.seen.len() < usize::try_from(most).unwrap_or(usize::MAX);
        room && self.seen.insert(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_names_go_on_new_ones_wait_for_the_next_hour() {
        let mut names = Names::default();
        assert!((0..10).all(|i| names.admit(i, &i.to_string(), 10)));
        assert!(!names.admit(HOUR - 1, "x", 10) && names.admit(HOUR - 1, "3", 10));
        assert_eq!(names.seen.len(), 10);
        assert!(names.admit(HOUR, "x", 10));
    }
}
