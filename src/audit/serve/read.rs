//! Reads the trail for somebody, as far as the disk has it: never a line that no checkpoint vouches for.

use std::sync::Arc;

use axum::body::Bytes;
use tokio::sync::{mpsc, watch};

use crate::audit::{
    directory::Directory,
    entry::Entry,
    query::Filter,
    walk::{SEGMENT_ENTRIES, entries, place, segment_of},
    writer::Committed,
};

/// Most bytes that are handed over at once.
const PIECE: usize = 64 * 1024;

/// What somebody wants.
pub(super) struct Wanted {
    pub(super) filter: Filter,
    /// The first entry that is looked at.
    pub(super) from: u64,
    /// Most entries that are handed over.
    pub(super) limit: u64,
    /// Goes on with what is written later.
    pub(super) follow: bool,
}

/// The lines of a segment, as far as they are committed.
pub(super) fn segment(directory: &Directory, first: u64, committed: &Committed) -> std::io::Result<Vec<u8>> {
    let mut bytes = directory.read(first)?;
    if first == committed.segment {
        bytes.truncate(usize::try_from(committed.bytes).unwrap_or(usize::MAX));
    }
    Ok(bytes)
}

/// Hands over until the end, or until nobody listens. What can't be read ends it: the client sees that it is not whole.
pub(super) async fn hand_over(
    directory: Directory,
    mut committed: watch::Receiver<Arc<Committed>>,
    wanted: Wanted,
    to: mpsc::Sender<std::io::Result<Bytes>>,
) {
    let Wanted { filter, mut from, mut limit, follow } = wanted;
    let filter = Arc::new(filter);
    loop {
        let now = committed.borrow_and_update().clone();
        while from < now.size && limit > 0 {
            let (directory, filter, now, to) = (directory.clone(), filter.clone(), now.clone(), to.clone());
            let read = tokio::task::spawn_blocking(move || some(&directory, &filter, from, limit, &now, &to));
            match read.await {
                Ok(Some((next, left))) => (from, limit) = (next, left),
                _ => return,
            }
        }
        if !follow || limit == 0 {
            return;
        }
        tokio::select! {
            changed = committed.changed() => if changed.is_err() { return },
            () = to.closed() => return,
        }
    }
}

/// One segment of it: where the next begins, and how many may still be handed over.
fn some(
    directory: &Directory,
    filter: &Filter,
    from: u64,
    mut left: u64,
    committed: &Committed,
    to: &mpsc::Sender<std::io::Result<Bytes>>,
) -> Option<(u64, u64)> {
    let first = segment_of(from);
    let next = (first + SEGMENT_ENTRIES).min(committed.size);
    let bytes = match segment(directory, first, committed) {
        Ok(bytes) => bytes,
        // Removed, and its record says so: what there is begins behind it.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Some((next, left)),
        Err(error) => {
            // Nobody may listen.
            let _ = to.blocking_send(Err(error));
            return None;
        }
    };
    let mut piece = Vec::new();
    for line in entries(&bytes).skip(place(from).0) {
        if left == 0 {
            break;
        }
        if *filter == Filter::default() || Entry::read(line).is_ok_and(|entry| filter.takes(&entry)) {
            piece.extend_from_slice(line);
            piece.push(b'\n');
            left -= 1;
        }
        if piece.len() > PIECE {
            to.blocking_send(Ok(std::mem::take(&mut piece).into())).ok()?;
        }
    }
    if !piece.is_empty() {
        to.blocking_send(Ok(piece.into())).ok()?;
    }
    Some((next, left))
}
