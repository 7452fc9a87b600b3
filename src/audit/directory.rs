//! A trail's files, as they are read: segments of so many entries each, and the hashes of those that are whole, which stay when a
//! segment is removed. Reads, and writes nothing.

use std::{
    fmt, fs, io,
    ops::Range,
    path::{Path, PathBuf},
};

use super::{
    entry::Entry,
    note::Checkpoint,
    tree::{self, Edge, Hash},
    walk::{
        Fault, Line, SEGMENT_ENTRIES, SEGMENT_LEVEL, Trust, Walk, entries, first_of, lines, place,
        segment_name, segment_of, torn,
    },
};

/// The file with the hash of each whole segment, one a line.
pub const ROOTS: &str = "roots";

/// Where something is wrong, and what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The file.
    pub file: String,
    /// The line in it, from 1; 0 for the file as a whole.
    pub line: u64,
    /// Bytes before it.
    pub offset: u64,
    /// What.
    pub what: What,
}

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A line.
    Fault(Fault),
    /// The file is not there, or can't be read.
    Unreadable(String),
    /// The segment ends too early, and another one follows.
    Short {
        /// The first entry that is missing.
        from: u64,
        /// The first that is there again.
        to: u64,
    },
    /// The segment's entries are whole, and not those whose hash was kept.
    OtherRoot,
    /// The trail is shorter than a checkpoint that somebody kept says.
    Shorter {
        /// Its size by the checkpoint.
        says: u64,
        /// How many entries there are.
        is: u64,
    },
    /// A checkpoint that somebody kept does not fit the entries up to it.
    OtherHistory(u64),
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file)?;
        if self.line > 0 {
            write!(f, ", line {} (byte {})", self.line, self.offset)?;
        }
        f.write_str(": ")?;
        match &self.what {
            What::Fault(fault) => fault.fmt(f),
            What::Unreadable(why) => write!(f, "it can't be read: {why}"),
            What::Short { from, to } => {
                write!(f, "the entries {from} to {} are missing at its end", to.saturating_sub(1))
            }
            What::OtherRoot => f.write_str("its entries are not those whose hash was kept when it was full"),
            What::Shorter { says, is } => {
                write!(f, "the trail ends at {is} entries, and was {says} long when the checkpoint was made")
            }
            What::OtherHistory(size) => {
                write!(f, "the first {size} entries are not those that the checkpoint was made for")
            }
        }
    }
}

impl std::error::Error for Found {}

/// What a trail is, once it was gone through.
#[derive(Clone, Debug)]
pub struct Report {
    /// How many entries there ever were.
    pub size: u64,
    /// The oldest that is still there.
    pub oldest: u64,
    /// Checkpoints that were held against the entries.
    pub checkpoints: u64,
    /// The last of them.
    pub last: Option<String>,
}

/// A trail's directory.
#[derive(Clone, Debug)]
pub struct Directory {
    path: PathBuf,
}

impl Directory {
    /// At this path.
    #[must_use]
    pub fn at(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    /// The file of a name.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The segments that are there, by their first entries.
    ///
    /// # Errors
    /// When the directory can't be read.
    pub fn segments(&self) -> io::Result<Vec<u64>> {
        let mut all = self.files()?;
        all.retain(|first| first.is_multiple_of(SEGMENT_ENTRIES));
        Ok(all)
    }

    /// Segments and pieces of some, by their first entries.
    fn files(&self) -> io::Result<Vec<u64>> {
        let mut all = Vec::new();
        for file in fs::read_dir(&self.path)? {
            all.extend(file?.file_name().to_str().and_then(first_of));
        }
        all.sort_unstable();
        Ok(all)
    }

    /// The hashes of whole segments.
    ///
    /// # Errors
    /// When the file can't be read, or is none.
    pub fn roots(&self) -> io::Result<Vec<Hash>> {
        let text = match fs::read_to_string(self.file(ROOTS)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            text => text?,
        };
        text.lines().map(|line| unhex(line).ok_or_else(|| io::Error::other("a line is no hash"))).collect()
    }

    /// The bytes of a segment. Where it is in pieces, as a store keeps it, each is named by its first entry.
    ///
    /// # Errors
    /// When it can't be read.
    pub fn read(&self, first: u64) -> io::Result<Vec<u8>> {
        let mut bytes = fs::read(self.file(&segment_name(first)))?;
        let mut next = first + entries(&bytes).count() as u64;
        while next > first && next < first + SEGMENT_ENTRIES {
            match fs::read(self.file(&segment_name(next))) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => break,
                more => {
                    let more = more?;
                    let count = entries(&more).count() as u64;
                    bytes.extend(more);
                    if count == 0 {
                        break;
                    }
                    next += count;
                }
            }
        }
        Ok(bytes)
    }

    /// Goes through all of it. `each` is shown every line that is good. `kept` are checkpoints that somebody kept: what they vouched
    /// for must still be the same.
    ///
    /// # Errors
    /// The first place at which something is wrong.
    pub fn verify(
        &self,
        trust: &Trust,
        kept: &[Checkpoint],
        each: &mut dyn FnMut(u64, &[u8], &Line),
    ) -> Result<Report, Found> {
        let files = self.files().map_err(|error| self.unreadable(".", &error))?;
        let mut segments = files.clone();
        segments.retain(|first| first.is_multiple_of(SEGMENT_ENTRIES));
        let roots = self.roots().map_err(|error| self.unreadable(ROOTS, &error))?;
        let mut walk = Walk::default();
        let oldest = segments.first().copied().unwrap_or_default();
        let (_, gone) = place(oldest);
        let short =
            || Found::whole(ROOTS, What::Short { from: roots.len() as u64 * SEGMENT_ENTRIES, to: oldest });
        for root in roots.get(..gone).ok_or_else(short)? {
            walk.edge.push_subtree(SEGMENT_LEVEL, *root);
        }
        // What was removed vouches for the first entry that is there by its place in the tree alone.
        let mut trusted_prev = gone == 0;
        for (at, first) in segments.iter().enumerate() {
            let before = walk.clone();
            self.segment(*first, &mut walk, trust, kept, &mut trusted_prev, each)?;
            let next = segments.get(at + 1);
            let whole = walk.edge.size() == first + SEGMENT_ENTRIES;
            if let Some(next) = next.filter(|next| !whole || **next != first + SEGMENT_ENTRIES) {
                let short = What::Short { from: walk.edge.size(), to: *next };
                return Err(Found::whole(&segment_name(*first), short));
            }
            if let Some(root) = roots.get(place(*first).1) {
                let mut expected = before.edge;
                expected.push_subtree(SEGMENT_LEVEL, *root);
                if expected != walk.edge {
                    return Err(Found::whole(&segment_name(*first), What::OtherRoot));
                }
            }
        }
        let known = roots.len() as u64 * SEGMENT_ENTRIES;
        if known > walk.edge.size() {
            return Err(Found::whole(ROOTS, What::Short { from: walk.edge.size(), to: known }));
        }
        // Behind a gap, in a segment that is in pieces.
        if let Some(to) = files.into_iter().find(|first| *first > walk.edge.size()) {
            return Err(Found::whole(&segment_name(to), What::Short { from: walk.edge.size(), to }));
        }
        end(&walk, kept, segments.last().copied())?;
        let (size, last) = (walk.edge.size(), walk.signed.map(|(_, note)| note));
        Ok(Report { size, oldest, checkpoints: walk.checkpoints, last })
    }

    fn unreadable(&self, file: &str, error: &io::Error) -> Found {
        let file = if file == "." { self.path.display().to_string() } else { file.to_owned() };
        Found::whole(&file, What::Unreadable(error.to_string()))
    }

    fn segment(
        &self,
        first: u64,
        walk: &mut Walk,
        trust: &Trust,
        kept: &[Checkpoint],
        trusted_prev: &mut bool,
        each: &mut dyn FnMut(u64, &[u8], &Line),
    ) -> Result<(), Found> {
        let name = segment_name(first);
        let bytes = self.read(first).map_err(|error| self.unreadable(&name, &error))?;
        let mut all = lines(&bytes).zip(1..).peekable();
        while let Some(((offset, line), number)) = all.next() {
            let found = |what| Found { file: name.clone(), line: number, offset, what };
            if !std::mem::replace(trusted_prev, true) {
                walk.prev = Entry::read(line).map(|entry| entry.prev).unwrap_or_default();
            }
            let next = all.peek().map(|((_, next), _)| *next);
            let good = walk.line(line, next, trust).map_err(|fault| found(What::Fault(fault)))?;
            let (size, root) = (walk.edge.size(), matches!(good, Line::Entry(..)));
            let other = |kept: &&Checkpoint| root && kept.size == size && kept.root != walk.edge.root();
            if let Some(kept) = kept.iter().find(other) {
                return Err(found(What::OtherHistory(kept.size)));
            }
            each(offset, line, &good);
        }
        let rest = torn(&bytes);
        if rest.is_empty() {
            return Ok(());
        }
        let (line, offset) = (lines(&bytes).count() as u64 + 1, (bytes.len() - rest.len()) as u64);
        Err(Found { file: name, line, offset, what: What::Fault(Fault::Torn) })
    }

    /// The proof that entry `n` is in a trail of `size`.
    ///
    /// # Errors
    /// When a segment that is needed is not there.
    pub fn inclusion(&self, n: u64, size: u64) -> io::Result<Vec<Hash>> {
        let roots = self.roots()?;
        tree::inclusion(n, size, &mut |range| self.root_of(range, &roots))
    }

    /// The root of a range of entries that is a subtree, or the rest behind the last whole one.
    fn root_of(&self, range: Range<u64>, roots: &[Hash]) -> io::Result<Hash> {
        let mut edge = Edge::default();
        let mut at = range.start;
        while at < range.end {
            let next = (segment_of(at) + SEGMENT_ENTRIES).min(range.end);
            let (within, index) = place(at);
            if let Some(root) = roots.get(index).filter(|_| next - at == SEGMENT_ENTRIES) {
                edge.push_subtree(SEGMENT_LEVEL, *root);
            } else {
                let leaves = self.leaves(segment_of(at))?;
                let some = leaves.get(within..=place(next - 1).0);
                for leaf in some.ok_or_else(|| io::Error::other("there are not as many entries"))? {
                    edge.push(*leaf);
                }
            }
            at = next;
        }
        Ok(edge.root())
    }

    /// The hashes of a segment's entries; none where there is no segment.
    ///
    /// # Errors
    /// When it can't be read.
    pub fn leaves(&self, first: u64) -> io::Result<Vec<Hash>> {
        let bytes = match self.read(first) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            bytes => bytes?,
        };
        Ok(entries(&bytes).map(tree::leaf).collect())
    }

    /// The line of an entry.
    ///
    /// # Errors
    /// When its segment can't be read.
    pub fn line(&self, n: u64) -> io::Result<Option<Vec<u8>>> {
        let bytes = self.read(segment_of(n))?;
        Ok(entries(&bytes).nth(place(n).0).map(<[u8]>::to_vec))
    }
}

/// What holds at the end alone.
fn end(walk: &Walk, kept: &[Checkpoint], last: Option<u64>) -> Result<(), Found> {
    let file = segment_name(last.unwrap_or_default());
    let is = walk.edge.size();
    if let Some(kept) = kept.iter().find(|kept| kept.size > is) {
        return Err(Found::whole(&file, What::Shorter { says: kept.size, is }));
    }
    if walk.vouched() < is {
        return Err(Found::whole(&file, What::Fault(Fault::Unsigned(walk.vouched()))));
    }
    Ok(())
}

impl Found {
    fn whole(file: &str, what: What) -> Self {
        Self { file: file.to_owned(), line: 0, offset: 0, what }
    }
}

fn unhex(text: &str) -> Option<Hash> {
    let mut hash = [0; 32];
    if text.len() != 64 || !text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
        return None;
    }
    for (at, byte) in hash.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(hash)
}
