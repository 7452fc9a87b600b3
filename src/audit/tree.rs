//! The Merkle tree over the trail's entries, as RFC 6962 has it: one root stands for all of them, and a short proof shows that an
//! entry is among them. Pure.

use std::ops::Range;

use sha2::{Digest as _, Sha256};

/// A SHA-256.
pub type Hash = [u8; 32];

/// What stands for one entry.
#[must_use]
pub fn leaf(entry: &[u8]) -> Hash {
    Sha256::new().chain_update([0]).chain_update(entry).finalize().into()
}

fn node(left: &Hash, right: &Hash) -> Hash {
    Sha256::new().chain_update([1]).chain_update(left).chain_update(right).finalize().into()
}

/// The root of a tree without entries.
fn empty() -> Hash {
    Sha256::digest([]).into()
}

/// The tree's right edge: all that is needed to go on with it. As many hashes as the size has bits that are set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edge {
    size: u64,
    /// Complete subtrees, the greatest first.
    peaks: Vec<Hash>,
}

impl Edge {
    /// How many entries there are.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// Adds the hash of one entry.
    pub fn push(&mut self, leaf: Hash) {
        self.push_subtree(0, leaf);
    }

    /// Adds a complete subtree with 2^level entries. The size so far must be a multiple of that.
    pub fn push_subtree(&mut self, level: u32, root: Hash) {
        debug_assert_eq!(self.size % (1 << level), 0, "a subtree stands where it begins");
        let mut root = root;
        // Each bit that is carried joins two subtrees of one size.
        for _ in 0..(self.size >> level).trailing_ones() {
            if let Some(left) = self.peaks.pop() {
                root = node(&left, &root);
            }
        }
        self.peaks.push(root);
        self.size += 1 << level;
    }

    /// What stands for all entries.
    #[must_use]
    pub fn root(&self) -> Hash {
        let mut peaks = self.peaks.iter().rev();
        let Some(last) = peaks.next() else { return empty() };
        peaks.fold(*last, |right, left| node(left, &right))
    }
}

/// The root of these.
#[must_use]
pub fn root(leaves: &[Hash]) -> Hash {
    let mut edge = Edge::default();
    for leaf in leaves {
        edge.push(*leaf);
    }
    edge.root()
}

/// Where a tree of this size is cut in two: the greatest power of two below it.
const fn cut(size: u64) -> u64 {
    1 << (size - 1).ilog2()
}

/// The hashes that show that the entry `n` is in a tree of `size`, the nearest first. `root_of` gives the root of a range of
/// entries.
///
/// # Errors
/// What `root_of` says. An entry that is not in the tree has an empty proof, which proves nothing.
pub fn inclusion<E>(
    n: u64,
    size: u64,
    root_of: &mut impl FnMut(Range<u64>) -> Result<Hash, E>,
) -> Result<Vec<Hash>, E> {
    let (mut low, mut high) = (0, size);
    let mut proof = Vec::new();
    while high - low > 1 && n < size {
        let middle = low + cut(high - low);
        let other = if n < middle { middle..high } else { low..middle };
        (low, high) = if n < middle { (low, middle) } else { (middle, high) };
        proof.push(root_of(other)?);
    }
    proof.reverse();
    Ok(proof)
}

/// The hashes that show that a tree of `old` entries is the beginning of one of `size`.
///
/// # Errors
/// What `root_of` says. Where `old` is none, or all, nothing needs to be shown.
pub fn consistency<E>(
    old: u64,
    size: u64,
    root_of: &mut impl FnMut(Range<u64>) -> Result<Hash, E>,
) -> Result<Vec<Hash>, E> {
    if old == 0 || old >= size {
        return Ok(Vec::new());
    }
    let (mut low, mut high, mut known) = (0, size, true);
    let mut proof = Vec::new();
    while old != high {
        let middle = low + cut(high - low);
        if old <= middle {
            proof.push(root_of(middle..high)?);
            high = middle;
        } else {
            proof.push(root_of(low..middle)?);
            (low, known) = (middle, false);
        }
    }
    // What is left is a subtree of both; whoever has the old root knows it, unless something stands before it.
    if !known {
        proof.push(root_of(low..high)?);
    }
    proof.reverse();
    Ok(proof)
}

/// The root that a tree of `size` has if this is its entry `n` and the proof is good.
#[must_use]
pub fn root_by_inclusion(n: u64, size: u64, leaf: Hash, proof: &[Hash]) -> Option<Hash> {
    if n >= size {
        return None;
    }
    let (mut n, mut last, mut hash) = (n, size - 1, leaf);
    let mut proof = proof.iter();
    while last > 0 {
        if n % 2 == 1 {
            hash = node(proof.next()?, &hash);
        } else if n < last {
            hash = node(&hash, proof.next()?);
        }
        (n, last) = (n / 2, last / 2);
    }
    proof.next().is_none().then_some(hash)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use proptest::prelude::*;

    use super::*;
    use crate::digest::hex;

    fn leaves(count: usize) -> Vec<Hash> {
        (0..count).map(|n| leaf(n.to_string().as_bytes())).collect()
    }

    /// As the RFC says it, word for word.
    fn naive(leaves: &[Hash]) -> Hash {
        match leaves.len() {
            0 => empty(),
            1 => leaves[0],
            many => {
                let (left, right) = leaves.split_at(many.next_power_of_two() / 2);
                node(&naive(left), &naive(right))
            }
        }
    }

    fn ranges(leaves: &[Hash]) -> impl FnMut(Range<u64>) -> Result<Hash, Infallible> {
        |range| Ok(naive(&leaves[usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap()]))
    }

    fn hashes(all: &[Hash]) -> Vec<tlog_tiles::Hash> {
        all.iter().map(|hash| tlog_tiles::Hash(*hash)).collect()
    }

    #[test]
    fn the_root_is_the_standards() {
        assert_eq!(hex(&root(&[])), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        assert_eq!(hex(&leaf(b"")), "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d");
        for count in 0..70 {
            let leaves = leaves(count);
            assert_eq!(root(&leaves), naive(&leaves), "{count}");
        }
    }

    #[test]
    fn subtrees_can_stand_for_their_entries() {
        let all = leaves(23);
        for level in 0..4 {
            let mut edge = Edge::default();
            let whole = all.chunks_exact(1 << level);
            let rest = whole.remainder();
            whole.for_each(|some| edge.push_subtree(level, root(some)));
            for leaf in rest {
                edge.push(*leaf);
            }
            assert_eq!((edge.size(), edge.root()), (23, naive(&all)));
        }
    }

    proptest! {
        /// Another implementation of the standard takes what is proven here, and nothing else.
        #[test]
        fn proofs_are_the_standards(size in 1..200_usize, n in any::<prop::sample::Index>(), old in any::<prop::sample::Index>()) {
            let all = leaves(size);
            let (n, old) = (n.index(size), old.index(size) + 1);
            let (size_, n_, old_) = (size as u64, n as u64, old as u64);
            let whole = naive(&all);
            let included = inclusion(n_, size_, &mut ranges(&all)).unwrap();
            prop_assert_eq!(root_by_inclusion(n_, size_, all[n], &included), Some(whole));
            prop_assert!(tlog_tiles::check_record(&hashes(&included), size_, tlog_tiles::Hash(whole), n_, tlog_tiles::Hash(all[n])).is_ok());
            let consistent = consistency(old_, size_, &mut ranges(&all)).unwrap();
            let old_root = naive(&all[..old]);
            prop_assert!(tlog_tiles::check_tree(&hashes(&consistent), size_, tlog_tiles::Hash(whole), old_, tlog_tiles::Hash(old_root)).is_ok());
            // What is not there has no proof.
            prop_assert_ne!(root_by_inclusion(n_, size_, leaf(b"other"), &included), Some(whole));
            prop_assert_eq!(root_by_inclusion(size_, size_, all[n], &included), None);
        }

        #[test]
        fn any_proof_is_read_to_its_end(n in any::<u64>(), size in any::<u64>(), proof in prop::collection::vec(any::<Hash>(), 0..70)) {
            let _ = root_by_inclusion(n, size, empty(), &proof);
        }
    }
}
