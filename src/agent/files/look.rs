//! Owns what changes nothing: what is at a path, what is in a directory, what a file holds.

use std::fs::File;
use std::io::Read;

use rustix::fs::{AtFlags, Dir, statat};
use rustix::io::Errno;

use super::error::{Stop, reason};
use super::walk::{Last, Missing, Root, entry, size};
use super::wire::Wire;
use crate::call::{FileReason, FileRequest, FileResult, Kind, MOST_DATA};

pub(super) fn stat(root: &Root, request: &FileRequest, wire: &mut Wire) -> Result<FileResult, Stop> {
    let spot = root.find(&request.path, Last::Keep, Missing::Refuse)?;
    wire.entry(&entry("", &spot.found()?.stat))?;
    Ok(FileResult { entries: 1, ..FileResult::default() })
}

pub(super) fn list(root: &Root, request: &FileRequest, wire: &mut Wire) -> Result<FileResult, Stop> {
    let spot = root.find(&request.path, Last::Follow, Missing::Refuse)?;
    let directory = spot.found()?.open_directory()?;
    let mut result = FileResult::default();
    let mut said = 0_u64;
    for item in Dir::read_from(&directory)? {
        let item = item?;
        let name = item.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let Ok(text) = name.to_str() else {
            result.skipped += 1;
            continue;
        };
        let stat = match statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            // It is gone since.
            Err(Errno::NOENT) => continue,
            other => other?,
        };
        let entry = entry(text, &stat);
        // As many bytes as the longest spelling of a name takes, and the numbers.
        let most = text.len() as u64 * 6 + 200;
        if result.entries == request.max_entries || said + most > request.max_bytes {
            result.truncated = true;
            break;
        }
        said += wire.entry(&entry)? as u64;
        result.entries += 1;
    }
    Ok(result)
}

pub(super) fn read(root: &Root, request: &FileRequest, wire: &mut Wire) -> Result<FileResult, Stop> {
    let spot = root.find(&request.path, Last::Follow, Missing::Refuse)?;
    let (mut file, stat) = spot.open_file()?;
    if size(&stat) > request.max_bytes {
        return Err(FileReason::TooBig.into());
    }
    wire.entry(&entry("", &stat))?;
    pour(&mut file, size(&stat), wire)?;
    Ok(FileResult { bytes: size(&stat), entries: 1, ..FileResult::default() })
}

/// Hands over so much of a file. What it was longer meanwhile is left out; what it was shorter is told.
pub(super) fn pour(file: &mut File, size: u64, wire: &mut Wire) -> Result<(), Stop> {
    let mut chunk = vec![0; MOST_DATA];
    let mut left = size;
    while left > 0 {
        let most = usize::try_from(left).unwrap_or(usize::MAX).min(MOST_DATA);
        let room = chunk.get_mut(..most).unwrap_or_default();
        match file.read(room) {
            Ok(0) => return Err(FileReason::Changed.into()),
            Ok(read) => {
                wire.say(Kind::Stdout, room.get(..read).unwrap_or_default())?;
                left = left.saturating_sub(read as u64);
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Errno::from_io_error(&error).map_or(FileReason::Failed, reason).into()),
        }
    }
    Ok(())
}
