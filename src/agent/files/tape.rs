//! Owns the reading of tar archives. Hostile bytes: a path that leads out, a link, a device or a kind that is not known ends it, and
//! so do too many entries. Pure.
//!
//! Must keep no more of an archive than a long name. The crate's own way of long names and extensions keeps whatever they are said
//! to have, so that the headers are taken raw, and put together here.

use std::io::{self, Read};

use tar::{Archive, Entry, EntryType};

use crate::call::{FileKind, FileReason, is_below};

/// Longest record that says something of the next entry: a path of 4095 bytes and what else archivers say, such as owners and times.
const MOST_RECORD: u64 = 64 * 1024;

/// One file or directory of an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// Where it belongs: below, of plain parts alone.
    pub path: String,
    /// A file or a directory.
    pub kind: FileKind,
    /// Its mode, as far as it concerns reading, writing and executing.
    pub mode: u32,
    /// Bytes that it holds.
    pub size: u64,
}

/// Why an archive is not read to its end.
#[derive(Debug)]
pub enum TapeError<E> {
    /// It is none, or has an entry that is refused; with the entry's name.
    Refused(FileReason, Vec<u8>),
    /// It can't be read.
    Io(io::Error),
    /// Whoever looked at an entry said so.
    Visitor(E),
}

/// Shows every file and directory, with what it holds, in the order of the archive. Whatever is not read of it is skipped.
///
/// # Errors
/// See [`TapeError`].
pub fn each<E>(
    archive: impl Read,
    most: u64,
    mut visit: impl FnMut(&Item, &mut dyn Read) -> Result<(), E>,
) -> Result<(), TapeError<E>> {
    let mut archive = Archive::new(archive);
    let mut long = None;
    let mut count = 0;
    for entry in archive.entries().map_err(TapeError::Io)?.raw(true) {
        let mut entry = entry.map_err(broken)?;
        count += 1;
        if count > most {
            return Err(TapeError::Refused(FileReason::TooMany, entry.path_bytes().into_owned()));
        }
        match entry.header().entry_type() {
            EntryType::GNULongName => {
                let mut name = record(&mut entry)?;
                name.truncate(name.iter().position(|byte| *byte == 0).unwrap_or(name.len()));
                long = Some(name);
            }
            EntryType::XHeader => long = path_in(&record(&mut entry)?).map_err(refused)?.or(long),
            // What holds for all entries, and the target of a link that is refused when it comes.
            EntryType::XGlobalHeader | EntryType::GNULongLink => drop(record(&mut entry)?),
            _ => {
                let name = long.take().unwrap_or_else(|| entry.path_bytes().into_owned());
                let Some(item) = item(&entry, name)? else { continue };
                visit(&item, &mut entry).map_err(TapeError::Visitor)?;
            }
        }
    }
    Ok(())
}

/// What the crate says of an archive, or what it was told by whoever it reads from.
fn broken<E>(error: io::Error) -> TapeError<E> {
    // Its own errors have no source; those of the reader have the kind that the reader gave.
    match error.kind() {
        io::ErrorKind::Other | io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData => {
            TapeError::Refused(FileReason::BadArchive, Vec::new())
        }
        _ => TapeError::Io(error),
    }
}

fn refused<E>(name: Vec<u8>) -> TapeError<E> {
    TapeError::Refused(FileReason::EntryRefused, name)
}

fn record<E>(entry: &mut Entry<'_, impl Read>) -> Result<Vec<u8>, TapeError<E>> {
    if entry.size() > MOST_RECORD {
        return Err(refused(entry.path_bytes().into_owned()));
    }
    let mut bytes = Vec::new();
    entry.read_to_end(&mut bytes).map_err(broken)?;
    Ok(bytes)
}

/// The path in an extension: lines of `LENGTH KEY=VALUE\n`. What would change the size of the entry is refused.
fn path_in(record: &[u8]) -> Result<Option<Vec<u8>>, Vec<u8>> {
    let mut path = None;
    let mut rest = record;
    while !rest.is_empty() {
        let (line, after) = line(rest).ok_or_else(|| b"an extension".to_vec())?;
        rest = after;
        let Some(at) = line.iter().position(|byte| *byte == b'=') else {
            return Err(b"an extension".to_vec());
        };
        let (key, value) = line.split_at(at);
        match key {
            b"path" => path = Some(value.get(1..).unwrap_or_default().to_vec()),
            b"size" => return Err(path.unwrap_or_else(|| b"an entry of more than 8 GiB".to_vec())),
            key if key.starts_with(b"GNU.sparse") => {
                return Err(path.unwrap_or_else(|| b"a sparse file".to_vec()));
            }
            _ => {}
        }
    }
    Ok(path)
}

/// The first line without its length, and what follows it.
fn line(record: &[u8]) -> Option<(&[u8], &[u8])> {
    let space = record.iter().take(20).position(|byte| *byte == b' ')?;
    let length: usize = std::str::from_utf8(record.get(..space)?).ok()?.parse().ok()?;
    let (line, rest) = record.split_at_checked(length)?;
    Some((line.get(space + 1..)?.strip_suffix(b"\n")?, rest))
}

/// What the entry is; nothing for the directory in which all is unpacked.
fn item<E>(entry: &Entry<'_, impl Read>, name: Vec<u8>) -> Result<Option<Item>, TapeError<E>> {
    let header = entry.header();
    let ends_as_directory = name.ends_with(b"/");
    let kind = match header.entry_type() {
        EntryType::Directory => FileKind::Directory,
        // Before there were directories in the format, a slash said so.
        EntryType::Regular if ends_as_directory => FileKind::Directory,
        EntryType::Regular | EntryType::Continuous => FileKind::File,
        _ => return Err(refused(name)),
    };
    let Some(text) = std::str::from_utf8(&name).ok().filter(|text| is_below(text)) else {
        return Err(refused(name));
    };
    let parts: Vec<&str> = text.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    if parts.is_empty() {
        return if kind == FileKind::Directory { Ok(None) } else { Err(refused(name)) };
    }
    let mode = header.mode().map_err(|_| refused(name.clone()))? & crate::call::MOST_MODE;
    Ok(Some(Item { path: parts.join("/"), kind, mode, size: entry.size() }))
}

#[cfg(test)]
mod tests;
