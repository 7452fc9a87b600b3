//! The one that writes the trail: entries, and behind each batch a checkpoint, in one file and by one write, so that what is vouched
//! for is on the disk before anybody is told that it is recorded.
//!
//! Must never tell that something is recorded before the disk has it, and never go on after what it finds altered.

use std::{
    collections::HashMap,
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    path::Path,
};

use super::{
    act::{Act, Role},
    directory::{Directory, Found, ROOTS, What},
    entry::{Entry, Source},
    note::{Checkpoint, Signer},
    record::Record,
    tree::{self, Edge},
    walk::{
        Fault, Line, SEGMENT_ENTRIES, SEGMENT_LEVEL, Trust, Walk, entries, lines, place, segment_name, torn,
    },
};
use crate::digest::hex;

/// Most producers whose place is remembered; beyond that the one that was silent for longest is forgotten.
const MOST_PRODUCERS: usize = 1024;

/// Why there is no writer, or no more.
#[derive(Debug)]
pub enum WriteError {
    /// The disk does not take it; it may again.
    Io(io::Error),
    /// What was written before is not as it was written.
    Altered(Found),
    /// It is not known what the disk has: the process must start again.
    Unsure(io::Error),
}

impl std::fmt::Display for WriteError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Io(error) => write!(f, "the trail can't be written: {error}"),
            Self::Altered(found) => write!(f, "the trail was altered: {found}"),
            Self::Unsure(error) => write!(f, "it is not known what the disk holds: {error}"),
        }
    }
}

impl std::error::Error for WriteError {}

impl From<io::Error> for WriteError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// A producer, as its records name it.
type Producer = (Role, String, String);

/// What readers may see: all that the disk has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Committed {
    /// How many entries.
    pub size: u64,
    /// The first of the segment that is written to.
    pub segment: u64,
    /// Bytes of that segment.
    pub bytes: u64,
    /// The checkpoint for them.
    pub note: String,
}

/// Writes one trail.
#[derive(Debug)]
pub struct Writer {
    directory: Directory,
    origin: String,
    signers: Vec<Signer>,
    file: File,
    walk: Walk,
    /// The segment alone, whose root is kept when it is whole.
    segment: Edge,
    producers: HashMap<Producer, (u64, u64)>,
    committed: Committed,
}

impl Writer {
    /// Opens a trail, or begins one. What a write that was cut off has left is taken away; entries that nobody was told of stay.
    ///
    /// # Errors
    /// When the disk does not take it, or what is there is not as it was written.
    pub fn open(path: &Path, origin: &str, signers: Vec<Signer>, now: i64) -> Result<Self, WriteError> {
        fs::create_dir_all(path)?;
        let directory = Directory::at(path);
        let segments = directory.segments()?;
        let first = segments.last().copied().unwrap_or_default();
        for whole in segments.iter().filter(|segment| **segment < first) {
            keep_root(&directory, *whole)?;
        }
        let verifiers = signers.iter().map(|signer| signer.verifier().clone()).collect();
        let trust = Trust { verifiers, origin: origin.to_owned() };
        let (walk, producers, repaired) = recover(&directory, first, &trust)?;
        let name = directory.file(&segment_name(first));
        let file = OpenOptions::new().create(true).append(true).open(&name)?;
        File::open(path)?.sync_all()?;
        let mut segment = Edge::default();
        for leaf in directory.leaves(first)? {
            segment.push(leaf);
        }
        let committed = Committed { segment: first, bytes: file.metadata()?.len(), ..Committed::default() };
        let mut writer =
            Self { directory, origin: origin.to_owned(), signers, file, walk, segment, producers, committed };
        writer.began(repaired, now)?;
        Ok(writer)
    }

    fn began(&mut self, repaired: Option<String>, now: i64) -> Result<(), WriteError> {
        let keys: Vec<String> = self.signers.iter().map(|signer| signer.verifier().to_string()).collect();
        let mut records = vec![Record {
            message: Some(format!("checkpoints are signed by {}", keys.join(", "))),
            ..Record::new(Act::TrailStarted, now)
        }];
        records.extend(
            repaired.map(|message| Record { message: Some(message), ..Record::new(Act::TrailRepaired, now) }),
        );
        self.write(records.into_iter().map(|record| (None, record)), now)
    }

    /// What the disk has.
    #[must_use]
    pub const fn committed(&self) -> &Committed {
        &self.committed
    }

    /// Where it is written.
    #[must_use]
    pub const fn directory(&self) -> &Directory {
        &self.directory
    }

    /// Writes records, each with who said it; none for the trail's own. What a producer has said before is not written again.
    ///
    /// # Errors
    /// When the disk does not take all of it. Then what it took, it has, and the same may be written again.
    pub fn write(
        &mut self,
        records: impl IntoIterator<Item = (Option<Source>, Record)>,
        now: i64,
    ) -> Result<(), WriteError> {
        // Where the disk did not take the next segment the last time.
        if self.segment.size() == SEGMENT_ENTRIES {
            self.roll()?;
        }
        let mut batch = Batch::of(self);
        for (source, record) in records {
            let by = match source {
                Some(source) if self.knows(&batch, &source) => continue,
                Some(source) => source,
                None => Source {
                    role: Role::Trail,
                    pod: String::new(),
                    boot: String::new(),
                    seq: batch.walk.edge.size(),
                },
            };
            batch.push(by, record, now)?;
            if batch.segment.size() == SEGMENT_ENTRIES {
                self.commit(batch)?;
                self.roll()?;
                batch = Batch::of(self);
            }
        }
        self.commit(batch)
    }

    fn knows(&self, batch: &Batch, source: &Source) -> bool {
        let key = (source.role, source.pod.clone(), source.boot.clone());
        let next = batch.producers.get(&key).or_else(|| self.producers.get(&key).map(|(next, _)| next));
        next.is_some_and(|next| source.seq < *next)
    }

    fn commit(&mut self, mut batch: Batch) -> Result<(), WriteError> {
        if batch.bytes.is_empty() {
            return Ok(());
        }
        let checkpoint = Checkpoint {
            origin: self.origin.clone(),
            size: batch.walk.edge.size(),
            root: batch.walk.edge.root(),
        };
        let note = checkpoint.sign(&self.signers);
        serde_json::to_writer(&mut batch.bytes, &note).map_err(io::Error::from)?;
        batch.bytes.push(b'\n');
        if let Err(error) = self.file.write_all(&batch.bytes) {
            // Half a batch must not stand before the next.
            self.file.set_len(self.committed.bytes).map_err(WriteError::Unsure)?;
            return Err(error.into());
        }
        // After a failure the kernel may have dropped what it could not write: only what is read again is known.
        self.file.sync_data().map_err(WriteError::Unsure)?;
        self.committed.bytes += batch.bytes.len() as u64;
        (self.committed.size, self.committed.note) = (checkpoint.size, note);
        (self.walk, self.segment) = (batch.walk, batch.segment);
        for (producer, next) in batch.producers {
            self.producers.insert(producer, (next, self.committed.size));
        }
        while self.producers.len() > MOST_PRODUCERS {
            let silent = self.producers.iter().min_by_key(|(_, (_, at))| *at).map(|(key, _)| key.clone());
            silent.map(|key| self.producers.remove(&key));
        }
        Ok(())
    }

    /// The next segment. The hash of the one that is whole is kept first.
    fn roll(&mut self) -> Result<(), WriteError> {
        keep_root(&self.directory, self.committed.segment)?;
        let first = self.walk.edge.size();
        let name = self.directory.file(&segment_name(first));
        let file = OpenOptions::new().create(true).append(true).open(name)?;
        if file.metadata()?.len() > 0 {
            let what = What::Unreadable("a segment that was not begun has something in it".to_owned());
            return Err(WriteError::Altered(Found { file: segment_name(first), line: 0, offset: 0, what }));
        }
        File::open(self.directory.file("."))?.sync_all().map_err(WriteError::Unsure)?;
        (self.file, self.segment) = (file, Edge::default());
        (self.committed.segment, self.committed.bytes) = (first, 0);
        Ok(())
    }

    /// Removes the oldest segments until the rest has at most so many bytes. The last two stay, by which producers are known again.
    ///
    /// # Errors
    /// When the disk does not.
    pub fn prune(&mut self, most: u64, now: i64) -> Result<(), WriteError> {
        let segments = self.directory.segments()?;
        let sizes = segments
            .iter()
            .map(|first| Ok(fs::metadata(self.directory.file(&segment_name(*first)))?.len()))
            .collect::<io::Result<Vec<u64>>>()?;
        let mut left: u64 = sizes.iter().sum();
        let mut gone = 0;
        for (first, bytes) in segments.iter().zip(sizes).take(segments.len().saturating_sub(2)) {
            if left <= most {
                break;
            }
            // The record first: that something is gone must be known even if the process ends in between.
            let message = format!("the entries {first} to {} are removed", first + SEGMENT_ENTRIES - 1);
            self.write(
                [(None, Record { message: Some(message), ..Record::new(Act::TrailPruned, now) })],
                now,
            )?;
            fs::remove_file(self.directory.file(&segment_name(*first)))?;
            left -= bytes;
            gone += 1;
        }
        if gone > 0 {
            tracing::info!(segments = gone, "removed the oldest of the trail");
        }
        Ok(())
    }
}

/// What is about to be written.
struct Batch {
    bytes: Vec<u8>,
    walk: Walk,
    segment: Edge,
    producers: HashMap<Producer, u64>,
}

impl Batch {
    fn of(writer: &Writer) -> Self {
        let walk = Walk { signed: None, ..writer.walk.clone() };
        Self { bytes: Vec::new(), walk, segment: writer.segment.clone(), producers: HashMap::new() }
    }

    fn push(&mut self, by: Source, record: Record, now: i64) -> Result<(), WriteError> {
        if by.role != Role::Trail {
            self.producers.insert((by.role, by.pod.clone(), by.boot.clone()), by.seq + 1);
        }
        // A clock that was set back does not set the trail's back.
        let at = now.max(self.walk.at);
        let entry = Entry { n: self.walk.edge.size(), prev: self.walk.prev, at, by, record };
        let start = self.bytes.len();
        serde_json::to_writer(&mut self.bytes, &entry).map_err(io::Error::from)?;
        let hash = tree::leaf(self.bytes.get(start..).unwrap_or_default());
        self.bytes.push(b'\n');
        self.walk.edge.push(hash);
        self.segment.push(hash);
        (self.walk.prev, self.walk.at) = (hash, at);
        Ok(())
    }
}

/// Appends a whole segment's hash to those that are kept, unless it is there.
fn keep_root(directory: &Directory, first: u64) -> Result<(), WriteError> {
    let (_, index) = place(first);
    let roots = directory.roots()?;
    if index < roots.len() {
        return Ok(());
    }
    let leaves = directory.leaves(first)?;
    if index > roots.len() || leaves.len() as u64 != SEGMENT_ENTRIES {
        let to = first + SEGMENT_ENTRIES;
        let what = What::Short { from: first + leaves.len() as u64, to };
        return Err(WriteError::Altered(Found { file: segment_name(first), line: 0, offset: 0, what }));
    }
    let mut file = OpenOptions::new().create(true).append(true).open(directory.file(ROOTS))?;
    file.write_all(format!("{}\n", hex(&tree::root(&leaves))).as_bytes())?;
    file.sync_data().map_err(WriteError::Unsure)
}

type Recovered = (Walk, HashMap<Producer, (u64, u64)>, Option<String>);

/// Goes through the last segment, and remembers the producers of the last two.
fn recover(directory: &Directory, first: u64, trust: &Trust) -> Result<Recovered, WriteError> {
    let mut walk = Walk::default();
    let mut producers = HashMap::new();
    for root in directory.roots()?.iter().take(place(first).1) {
        walk.edge.push_subtree(SEGMENT_LEVEL, *root);
    }
    if walk.edge.size() != first {
        let what = What::Short { from: walk.edge.size(), to: first };
        return Err(WriteError::Altered(Found { file: ROOTS.into(), line: 0, offset: 0, what }));
    }
    if first > 0 {
        let before = directory.read(first - SEGMENT_ENTRIES)?;
        for line in entries(&before) {
            walk.prev = tree::leaf(line);
            if let Ok(entry) = Entry::read(line) {
                walk.at = entry.at;
                remember(&mut producers, &entry);
            }
        }
    }
    let bytes = match directory.read(first) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        bytes => bytes?,
    };
    let mut all = lines(&bytes).zip(1..).peekable();
    while let Some(((offset, line), number)) = all.next() {
        let next = all.peek().map(|((_, next), _)| *next);
        let good = walk.line(line, next, trust).map_err(|fault: Fault| {
            let what = What::Fault(fault);
            WriteError::Altered(Found { file: segment_name(first), line: number, offset, what })
        })?;
        if let Line::Entry(entry, _) = &good {
            remember(&mut producers, entry);
        }
    }
    let rest = torn(&bytes).len();
    if rest > 0 {
        let file = OpenOptions::new().write(true).open(directory.file(&segment_name(first)))?;
        file.set_len((bytes.len() - rest) as u64)?;
        file.sync_data().map_err(WriteError::Unsure)?;
    }
    let unsigned = walk.edge.size() - walk.vouched().max(first);
    let repaired = (rest > 0 || unsigned > 0)
        .then(|| format!("{rest} bytes of a write that was cut off were taken away, {unsigned} entries that no checkpoint vouched for stay"));
    Ok((walk, producers, repaired))
}

fn remember(producers: &mut HashMap<Producer, (u64, u64)>, entry: &Entry) {
    if entry.by.role != Role::Trail {
        let Source { role, pod, boot, seq } = entry.by.clone();
        producers.insert((role, pod, boot), (seq + 1, entry.n));
    }
}
