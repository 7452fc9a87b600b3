//! Owns the unpacking of a tar archive into a directory: each file under a name of its own until it is whole, as for a single one.

use std::io::{self, ErrorKind, Read};

use super::at;
use super::error::Stop;
use super::tape::{self, Item, TapeError};
use super::walk::{Last, Missing, Root, make_directory};
use super::wire::Wire;
use super::write::{Draft, Wish, settle};
use crate::call::{FileKind, FileReason, FileRequest, FileResult};

/// Files of an archive replace those that are there.
const WISH: Wish = Wish { mode: None, parents: true, replace: true };

pub(super) fn unpack(root: &Root, request: &FileRequest, wire: &mut Wire) -> Result<FileResult, Stop> {
    let below = open(root, &request.path)?;
    let mut content = Content { wire, left: request.max_bytes, piece: Vec::new(), at: 0, stop: None };
    let mut result = FileResult::default();
    let done = tape::each(&mut content, request.max_entries, |item, bytes| {
        let carried = put(&below, request, item, bytes).map_err(|stop| named(stop, item))?;
        result.bytes += carried;
        result.entries += 1;
        Ok(())
    });
    if let Some(stop) = content.stop.take() {
        return Err(stop);
    }
    match done {
        Ok(()) => content.rest().map(|()| result),
        Err(TapeError::Refused(reason, name)) => Err(at(reason, &name)),
        Err(TapeError::Io(error)) => Err(error.into()),
        Err(TapeError::Visitor(stop)) => Err(stop),
    }
}

/// The directory, which is made if it is missing.
fn open(root: &Root, path: &str) -> Result<Root, FileReason> {
    let spot = root.find(path, Last::Follow, Missing::Make)?;
    if let (None, Some(name)) = (&spot.found, &spot.name) {
        make_directory(&spot.dir, name)?;
        return Root::at(root.find(path, Last::Follow, Missing::Refuse)?.found()?);
    }
    Root::at(spot.found()?)
}

fn put(below: &Root, request: &FileRequest, item: &Item, bytes: &mut dyn Read) -> Result<u64, Stop> {
    let spot = below.find(&item.path, Last::Keep, Missing::Make)?;
    let name = spot.name.as_deref().ok_or(FileReason::EntryRefused)?;
    if item.kind == FileKind::Directory {
        return match &spot.found {
            Some(found) => Root::at(found).map(|_| 0).map_err(Stop::from),
            None => make_directory(&spot.dir, name).map(|()| 0).map_err(Stop::from),
        };
    }
    settle(spot.found.as_ref(), &WISH)?;
    let mut draft = Draft::open(&spot.dir, &request.id)?;
    let copied = io::copy(bytes, &mut draft.file)?;
    if copied != item.size {
        return Err(FileReason::BadArchive.into());
    }
    draft.keep(name, item.mode, true)?;
    Ok(copied)
}

fn named(stop: Stop, item: &Item) -> Stop {
    match stop {
        Stop::Refused(failure) => at(failure.reason, item.path.as_bytes()),
        Stop::Gone => Stop::Gone,
    }
}

/// The archive as it comes.
struct Content<'a> {
    wire: &'a mut Wire,
    /// Bytes that may still come.
    left: u64,
    piece: Vec<u8>,
    at: usize,
    /// Why no more comes, which the archive's reader has no words for.
    stop: Option<Stop>,
}

impl Content<'_> {
    fn next(&mut self) -> Result<bool, Stop> {
        let Some(piece) = self.wire.content()? else { return Ok(false) };
        self.left = self.left.checked_sub(piece.len() as u64).ok_or(FileReason::TooBig)?;
        (self.piece, self.at) = (piece, 0);
        Ok(true)
    }

    /// Takes what follows the archive's end: most archivers fill a block of some kilobytes.
    fn rest(&mut self) -> Result<(), Stop> {
        while self.next()? {}
        Ok(())
    }
}

impl Read for Content<'_> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        if self.at == self.piece.len() {
            match self.next() {
                Ok(true) => {}
                Ok(false) => return Ok(0),
                Err(stop) => {
                    self.stop.get_or_insert(stop);
                    return Err(ErrorKind::ConnectionAborted.into());
                }
            }
        }
        let mut left = self.piece.get(self.at..).unwrap_or_default();
        let length = left.read(room)?;
        self.at += length;
        Ok(length)
    }
}
