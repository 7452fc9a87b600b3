//! The signs of one sandbox, each once, however often and through however many replicas it was seen.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::sandbox::suspicion::Seen;

/// Most signs that are kept of a sandbox: more than any class needs to be sure.
pub const MOST_SIGNS: usize = 128;
/// Longest text of a sign, in bytes.
const MOST_BYTES: usize = 256;
/// How often an act is seen until it counts once more, and once more again. It is seen once in some seconds at most.
const AGAIN: [u32; 2] = [16, 256];

/// How much a sign says.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Weight {
    /// Somebody wants what no rule names. One point: an installer does it all day, for a few hosts.
    Miss,
    /// Suspicious. Three points.
    Suspicious,
    /// More of something than honest work has. Nine points.
    Much,
    /// Data in names. Thirty points.
    Leak,
    /// No honest client does it. Fifteen points, and counted besides.
    Severe,
}

impl Weight {
    /// Points.
    #[must_use]
    pub const fn points(self) -> u32 {
        match self {
            Self::Miss => 1,
            Self::Suspicious => 3,
            Self::Much => 9,
            Self::Severe => 15,
            Self::Leak => 30,
        }
    }
}

/// One thing that was done.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct Sign {
    /// The same for the same thing at every replica, and not to be aimed at: of SHA-256.
    pub id: u64,
    /// How much it says.
    pub weight: Weight,
    /// How often it was seen, as far as that matters.
    pub count: u32,
    /// In words.
    pub what: String,
    /// The replica's period in which it was last seen: in each it counts once.
    #[serde(skip)]
    period: u64,
}

impl Sign {
    /// Seen once. `parts` say which thing it is.
    #[must_use]
    pub fn new(weight: Weight, parts: &[&[u8]], what: String) -> Self {
        let mut hash = Sha256::new();
        for part in parts {
            hash.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
            hash.update(part);
        }
        let id = hash.finalize().first_chunk().copied().map_or(0, u64::from_be_bytes);
        Self { id, weight, count: 1, what: crate::kubernetes::cut(what, MOST_BYTES), period: 0 }
    }

    /// How often it counts.
    fn times(&self) -> u32 {
        let again = AGAIN.iter().filter(|bound| self.count >= **bound).count();
        1 + u32::try_from(again).unwrap_or_default()
    }

    fn points(&self) -> u32 {
        match self.weight {
            Weight::Severe => self.weight.points() * self.times(),
            _ => self.weight.points(),
        }
    }
}

/// Signs of one sandbox.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Signs(BTreeMap<u64, Sign>);

impl Signs {
    /// It was seen at this replica, in this period. Whether that says more than was known.
    pub fn see(&mut self, sign: Sign, period: u64) -> bool {
        match self.0.get_mut(&sign.id) {
            Some(known) if known.period == period => false,
            Some(known) => {
                known.period = period;
                let before = known.times();
                known.count = known.count.saturating_add(1).min(AGAIN[AGAIN.len() - 1]);
                known.weight == Weight::Severe && known.times() > before
            }
            None => self.insert(Sign { period, ..sign }),
        }
    }

    /// A replica told of it. Whether that says more than was known.
    pub fn hear(&mut self, sign: Sign) -> bool {
        match self.0.get_mut(&sign.id) {
            Some(known) => {
                let before = known.times();
                known.count = known.count.max(sign.count);
                known.times() > before
            }
            None => self.insert(Sign { what: crate::kubernetes::cut(sign.what, MOST_BYTES), ..sign }),
        }
    }

    /// In a full table only what weighs more than the lightest gets a place.
    fn insert(&mut self, sign: Sign) -> bool {
        if self.0.len() >= MOST_SIGNS {
            let lightest =
                self.0.values().min_by_key(|known| known.weight).map(|known| (known.weight, known.id));
            match lightest {
                Some((weight, id)) if weight < sign.weight => self.0.remove(&id),
                _ => return false,
            };
        }
        self.0.insert(sign.id, sign);
        true
    }

    /// Different acts that no honest client does.
    #[must_use]
    pub fn severe(&self) -> u32 {
        self.0.values().filter(|sign| sign.weight == Weight::Severe).map(Sign::times).sum()
    }

    /// All points.
    #[must_use]
    pub fn score(&self) -> u32 {
        self.0.values().map(Sign::points).sum()
    }

    /// Every one.
    pub fn all(&self) -> impl Iterator<Item = &Sign> {
        self.0.values()
    }

    /// What there is to judge; nothing if there is none.
    #[must_use]
    pub fn seen(&self) -> Option<Seen> {
        let mut all: Vec<&Sign> = self.0.values().collect();
        all.sort_by(|a, b| b.weight.cmp(&a.weight).then_with(|| a.what.cmp(&b.what)));
        let signs = all.into_iter().map(|sign| sign.what.clone()).collect();
        (!self.0.is_empty()).then(|| Seen { severe: self.severe(), score: self.score(), signs })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sign(weight: Weight, what: &str) -> Sign {
        Sign::new(weight, &[what.as_bytes()], what.into())
    }

    #[test]
    fn repeats_count_once_and_persistence_a_little() {
        let mut signs = Signs::default();
        assert!(signs.see(sign(Weight::Severe, "metadata"), 1));
        for period in 2..16 {
            assert!(!signs.see(sign(Weight::Severe, "metadata"), period));
            assert!(!signs.see(sign(Weight::Severe, "metadata"), period), "once in a period");
        }
        assert_eq!((signs.severe(), signs.score()), (1, 15));
        assert!(signs.see(sign(Weight::Severe, "metadata"), 16), "the sixteenth time");
        assert_eq!((signs.severe(), signs.score()), (2, 30));
        for period in 17..10_000 {
            signs.see(sign(Weight::Severe, "metadata"), period);
            signs.see(sign(Weight::Miss, "telemetry"), period);
        }
        assert_eq!((signs.severe(), signs.score()), (3, 46));
    }

    #[test]
    fn is_bounded_and_what_is_severe_finds_a_place() {
        let mut signs = Signs::default();
        for n in 0..10_000 {
            signs.see(sign(Weight::Miss, &n.to_string()), n);
        }
        assert_eq!((signs.all().count(), signs.score()), (MOST_SIGNS, 128));
        assert!(signs.see(sign(Weight::Severe, "metadata"), 1) && !signs.see(sign(Weight::Miss, "more"), 1));
        assert_eq!((signs.all().count(), signs.severe(), signs.score()), (MOST_SIGNS, 1, 142));
        assert_eq!(signs.seen().unwrap().signs[0], "metadata");
    }

    #[test]
    fn what_two_replicas_saw_counts_once() {
        let (mut one, mut two, mut all) = (Signs::default(), Signs::default(), Signs::default());
        one.see(sign(Weight::Severe, "metadata"), 1);
        two.see(sign(Weight::Severe, "metadata"), 1);
        two.see(sign(Weight::Severe, "other"), 1);
        for sign in one.all().chain(two.all()).chain(one.all()) {
            all.hear(sign.clone());
        }
        assert_eq!(all.severe(), 2);
        assert!(!all.hear(sign(Weight::Severe, "other")), "it was known");
    }

    #[test]
    fn parts_are_told_apart() {
        let id = |parts: &[&[u8]]| Sign::new(Weight::Miss, parts, String::new()).id;
        assert_ne!(id(&[b"a", b"bc"]), id(&[b"ab", b"c"]));
        assert_eq!(id(&[b"a", b"bc"]), id(&[b"a", b"bc"]));
    }
}
