//! Goes along the trail line by line and holds each against the one before, and against the checkpoints. Finds where something is
//! not as it was written. Pure.

use std::fmt;

use super::{
    entry::Entry,
    note::{Checkpoint, Verifier, Wrong},
    tree::{self, Edge, Hash},
};

/// Entries of a whole segment, as a power of two: a segment is a subtree, so that its hash can stand for it when it is gone.
pub const SEGMENT_LEVEL: u32 = 12;
/// The same as a number.
pub const SEGMENT_ENTRIES: u64 = 1 << SEGMENT_LEVEL;

/// What is not as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The line is none that the trail writes.
    Unreadable(&'static str),
    /// These entries are not there.
    Missing {
        /// The first.
        from: u64,
        /// The first behind them that is there.
        to: u64,
    },
    /// This entry stands where another should.
    OutOfOrder {
        /// Which it is.
        n: u64,
        /// Which should be there.
        expected: u64,
    },
    /// This entry is not what was written.
    Altered(u64),
    /// This entry or the one before is not what was written.
    AlteredNear(u64),
    /// This entry is said to be older than the one before.
    ClockBack(u64),
    /// A checkpoint is not good.
    Checkpoint(Wrong),
    /// A checkpoint is of another trail.
    Origin(String),
    /// A checkpoint is for another number of entries than stand before it.
    Size {
        /// For how many it is.
        says: u64,
        /// How many there are.
        is: u64,
    },
    /// The entries since this one are not those that were signed.
    Root {
        /// The first that no earlier checkpoint vouches for.
        since: u64,
        /// The first behind them.
        to: u64,
    },
    /// The last line has no end.
    Torn,
    /// No checkpoint vouches for the entries from this one on.
    Unsigned(u64),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(why) => write!(f, "this line is none that the trail writes: {why}"),
            Self::Missing { from, to } if *to == from + 1 => write!(f, "entry {from} is missing"),
            Self::Missing { from, to } => write!(f, "the entries {from} to {} are missing", to - 1),
            Self::OutOfOrder { n, expected } => {
                write!(f, "entry {n} stands where entry {expected} should: it was moved, or is there twice")
            }
            Self::Altered(n) => write!(f, "entry {n} is not what was written"),
            Self::AlteredNear(n) => {
                write!(f, "entry {} or entry {n} is not what was written", n.saturating_sub(1))
            }
            Self::ClockBack(n) => write!(f, "entry {n} is said to be older than the one before"),
            Self::Checkpoint(wrong) => write!(f, "this checkpoint is not good: {wrong}"),
            Self::Origin(origin) => write!(f, "this checkpoint is of another trail, {origin:?}"),
            Self::Size { says, is } => {
                write!(f, "this checkpoint is for {says} entries, and {is} stand before it")
            }
            Self::Root { since, to } => {
                write!(f, "the entries {since} to {} are not those that were signed", to.saturating_sub(1))
            }
            Self::Torn => f.write_str("the last line has no end: a write was cut off, or the file was"),
            Self::Unsigned(n) => write!(f, "no checkpoint vouches for the entries from {n} on"),
        }
    }
}

/// Whom to believe.
#[derive(Clone, Debug)]
pub struct Trust {
    /// Keys, one of which must have signed a checkpoint.
    pub verifiers: Vec<Verifier>,
    /// The trail's name.
    pub origin: String,
}

/// Where a walk is.
#[derive(Clone, Debug)]
pub struct Walk {
    /// What was walked over.
    pub edge: Edge,
    /// The last checkpoint that was good, and its note.
    pub signed: Option<(Checkpoint, String)>,
    /// How many were.
    pub checkpoints: u64,
    /// The last entry's hash.
    pub prev: Hash,
    /// The last entry's time.
    pub at: i64,
}

impl Default for Walk {
    fn default() -> Self {
        Self { edge: Edge::default(), signed: None, checkpoints: 0, prev: [0; 32], at: i64::MIN }
    }
}

/// What a line is.
#[derive(Debug)]
pub enum Line {
    /// An entry, and its hash.
    Entry(Box<Entry>, Hash),
    /// A checkpoint.
    Checkpoint(Checkpoint),
}

impl Walk {
    /// Takes one line, without its end. `next` is the line behind it, by which it may be told which of two was altered.
    ///
    /// # Errors
    /// What is wrong with it. The walk is where it was.
    pub fn line(&mut self, line: &[u8], next: Option<&[u8]>, trust: &Trust) -> Result<Line, Fault> {
        if line.first() == Some(&b'"') { self.checkpoint(line, trust) } else { self.entry(line, next) }
    }

    fn entry(&mut self, line: &[u8], next: Option<&[u8]>) -> Result<Line, Fault> {
        let entry = Entry::read(line).map_err(Fault::Unreadable)?;
        let expected = self.edge.size();
        match entry.n {
            n if n > expected => return Err(Fault::Missing { from: expected, to: n }),
            n if n < expected => return Err(Fault::OutOfOrder { n, expected }),
            n if entry.prev != self.prev => return Err(self.altered(n, line, next)),
            n if entry.at < self.at => return Err(Fault::ClockBack(n)),
            _ => {}
        }
        let hash = tree::leaf(line);
        self.edge.push(hash);
        (self.prev, self.at) = (hash, entry.at);
        Ok(Line::Entry(Box::new(entry), hash))
    }

    /// Entry `n` does not follow on the one before: which of them is it?
    fn altered(&self, n: u64, line: &[u8], next: Option<&[u8]>) -> Fault {
        let vouched = self.signed.as_ref().is_some_and(|(checkpoint, _)| checkpoint.size == n);
        let follows = next.and_then(|next| Entry::read(next).ok()).map(|next| next.prev == tree::leaf(line));
        match follows {
            _ if vouched || n == 0 => Fault::Altered(n),
            Some(true) => Fault::Altered(n - 1),
            Some(false) => Fault::Altered(n),
            None => Fault::AlteredNear(n),
        }
    }

    fn checkpoint(&mut self, line: &[u8], trust: &Trust) -> Result<Line, Fault> {
        let note: String =
            serde_json::from_slice(line).map_err(|_| Fault::Unreadable("it is no checkpoint"))?;
        let checkpoint = Checkpoint::open(&note, &trust.verifiers).map_err(Fault::Checkpoint)?;
        if checkpoint.origin != trust.origin {
            return Err(Fault::Origin(checkpoint.origin));
        }
        let is = self.edge.size();
        if checkpoint.size != is {
            return Err(Fault::Size { says: checkpoint.size, is });
        }
        if checkpoint.root != self.edge.root() {
            return Err(Fault::Root { since: self.vouched(), to: is });
        }
        self.signed = Some((checkpoint.clone(), note));
        self.checkpoints += 1;
        Ok(Line::Checkpoint(checkpoint))
    }

    /// How many entries a checkpoint vouches for.
    #[must_use]
    pub fn vouched(&self) -> u64 {
        self.signed.as_ref().map_or(0, |(checkpoint, _)| checkpoint.size)
    }
}

/// Lines with their places, in bytes from the beginning. What follows the last line's end is not among them.
pub fn lines(bytes: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    let mut at = 0;
    bytes.split_inclusive(|byte| *byte == b'\n').filter_map(move |line| {
        let place = at;
        at += line.len() as u64;
        line.strip_suffix(b"\n").map(|line| (place, line))
    })
}

/// The lines that are entries, without the checkpoints between them.
pub fn entries(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    lines(bytes).map(|(_, line)| line).filter(|line| line.first() == Some(&b'{'))
}

/// The first entry of the segment that this one is in.
#[must_use]
pub const fn segment_of(n: u64) -> u64 {
    n - n % SEGMENT_ENTRIES
}

/// Which of its segment's entries this one is, and which of all segments its segment is.
#[must_use]
pub fn place(n: u64) -> (usize, usize) {
    let number = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    (number(n % SEGMENT_ENTRIES), number(n / SEGMENT_ENTRIES))
}

/// The bytes behind the last line's end.
#[must_use]
pub fn torn(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    bytes.get(end..).unwrap_or_default()
}

/// The name of the file of the segment that begins with this entry.
#[must_use]
pub fn segment_name(first: u64) -> String {
    format!("{first:020}.jsonl")
}

/// Which entry a file begins with, by its name: a segment, or a piece of one.
#[must_use]
pub fn first_of(name: &str) -> Option<u64> {
    let first: u64 = name.strip_suffix(".jsonl")?.parse().ok()?;
    (segment_name(first) == name).then_some(first)
}
