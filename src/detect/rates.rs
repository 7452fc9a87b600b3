//! What is more than honest work has, from counts alone: different names within a minute, how many of them are refused, data in the
//! labels of names, and far more that leaves than comes.

use std::{
    collections::HashSet,
    hash::{BuildHasher as _, RandomState},
};

/// Nanoseconds of a minute and an hour.
const MINUTE: u64 = 60_000_000_000;
/// So many different names within a minute are more than an installer asks for.
const MANY_NAMES: usize = 120;
/// From so many different names on it matters how many of them are refused.
const SOME_NAMES: usize = 40;
/// Bytes that leave before it matters how many come.
const MUCH: u64 = 64 << 20;
/// So many times more must leave than comes.
const FAR_MORE: u64 = 10;

/// The names of a minute, as hashes that nobody outside can aim at. At most [`MANY_NAMES`] of them.
#[derive(Debug, Default)]
pub struct Names {
    hasher: RandomState,
    minute: u64,
    asked: HashSet<u64>,
    refused: usize,
    told: bool,
}

impl Names {
    /// A name was asked for at this time, in nanoseconds. What is to be said of it, once a minute at most.
    pub fn ask(&mut self, now: u64, name: &str, refused: bool) -> Option<&'static str> {
        let minute = now / MINUTE;
        if minute != self.minute {
            self.minute = minute;
            self.asked.clear();
            (self.refused, self.told) = (0, false);
        }
        if self.told || !self.asked.insert(self.hasher.hash_one(name)) {
            return None;
        }
        self.refused += usize::from(refused);
        let asked = self.asked.len();
        let said = if asked >= MANY_NAMES {
            "it asked for 120 different names within a minute"
        } else if asked >= SOME_NAMES && self.refused * 5 >= asked * 4 {
            "it asked for 40 different names or more within a minute, and most of them were refused"
        } else {
            return None;
        };
        self.told = true;
        Some(said)
    }
}

/// How much more leaves than comes.
#[derive(Debug, Default)]
pub struct Upload(u32);

impl Upload {
    /// So much left and so much came, in all. The mebibytes that were passed, at each doubling.
    pub fn look(&mut self, sent: u64, received: u64) -> Option<u64> {
        let bound = MUCH.checked_shl(self.0)?;
        if sent < bound || sent / FAR_MORE < received {
            return None;
        }
        self.0 += 1;
        Some(bound >> 20)
    }
}

/// About how many bytes of data the labels of a name can carry, left of its last two: by the entropy of their characters.
#[must_use]
pub fn information(name: &str) -> u32 {
    let labels: Vec<&str> = name.split('.').collect();
    let own = labels.len().saturating_sub(2);
    let mut counts = [0_u32; 256];
    let mut all = 0_u32;
    for byte in labels.iter().take(own).flat_map(|label| label.bytes()) {
        if let Some(count) = counts.get_mut(usize::from(byte)) {
            *count += 1;
        }
        all += 1;
    }
    let of = f64::from(all);
    let bits: f64 = counts
        .iter()
        .filter(|count| **count > 0)
        .map(|count| -f64::from(*count) * (f64::from(*count) / of).log2())
        .sum();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most 255 bytes' worth")]
    let bytes = (bits / 8.0).round() as u32;
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_names_are_told_once_a_minute_and_few_never() {
        let mut names = Names::default();
        let mut ask = |now: u64, from: usize, count: usize, refused: bool| -> usize {
            (from..from + count)
                .filter(|n| names.ask(now, &format!("{n}.example"), refused).is_some())
                .count()
        };
        // An installer with its retries.
        assert_eq!((0..100).map(|_| ask(1, 0, 30, true)).sum::<usize>(), 0);
        assert_eq!(ask(2, 30, 9, true), 0);
        assert_eq!(ask(3, 39, 500, true), 1, "the fortieth that is refused, and no other");
        assert_eq!(ask(MINUTE, 0, 119, false), 0);
        assert_eq!(ask(MINUTE, 119, 100, false), 1);
        assert!(names.asked.len() <= MANY_NAMES);
    }

    #[test]
    fn what_leaves_is_told_at_each_doubling() {
        let mut upload = Upload::default();
        assert_eq!(upload.look(MUCH - 1, 0), None);
        assert_eq!(upload.look(MUCH, MUCH / 5), None, "as much as it fetched, nearly");
        assert_eq!(upload.look(MUCH, 1000), Some(64));
        assert_eq!(upload.look(MUCH + 1, 1000), None);
        assert_eq!(upload.look(4 * MUCH, 1000), Some(128));
        assert_eq!(upload.look(u64::MAX, 0), Some(256));
    }

    #[test]
    fn names_that_carry_data_are_told_from_names() {
        assert_eq!((information("example.com"), information("com"), information("")), (0, 0, 0));
        assert!(information("files.pythonhosted.org") <= 2);
        assert!((8..=14).contains(&information("d1a2b3c4e5f6g7h8i9.cloudfront.net")));
        let tunnel = "mzxw6ytboi2gk3tdnnqxeztfmnxw4zdvmvzgk5a.nbswy3dpeb3w64tmmqqho2lunaqgc3tbmq.x.example";
        assert!(information(tunnel) > 30, "{}", information(tunnel));
        assert!(information(&"a".repeat(250)) == 0);
    }
}
