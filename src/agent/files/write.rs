//! Owns the making of a file: under a name of its own until all of it has come, and then at once under the right one, so that nobody
//! reads a half.
//!
//! Must leave nothing behind where it does not come to that.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Mode, OFlags, fchmod, linkat, openat, renameat, unlinkat};

use super::error::{Stop, reason};
use super::walk::{Found, Last, Missing, Root, regular};
use super::wire::Wire;
use crate::call::{FileReason, FileRequest, FileResult, MOST_MODE};

/// Mode of a new file for which none was said.
const FILE_MODE: u32 = 0o644;

/// How a file is to be written.
pub(super) struct Wish {
    pub(super) mode: Option<u32>,
    pub(super) parents: bool,
    pub(super) replace: bool,
}

pub(super) fn write(
    root: &Root,
    request: &FileRequest,
    wish: &Wish,
    wire: &mut Wire,
) -> Result<FileResult, Stop> {
    let missing = if wish.parents { Missing::Make } else { Missing::Refuse };
    let spot = root.find(&request.path, Last::Follow, missing)?;
    let name = spot.name.as_deref().ok_or(FileReason::IsADirectory)?;
    let mode = settle(spot.found.as_ref(), wish)?;
    let mut draft = Draft::open(&spot.dir, &request.id)?;
    let mut bytes = 0_u64;
    while let Some(piece) = wire.content()? {
        bytes += piece.len() as u64;
        if bytes > request.max_bytes {
            return Err(FileReason::TooBig.into());
        }
        draft.file.write_all(&piece)?;
    }
    draft.keep(name, mode, wish.replace)?;
    Ok(FileResult { bytes, entries: 1, ..FileResult::default() })
}

/// The file's mode, if it may be written at all. A file whose owner may not write it is replaced all the same: what counts is the
/// directory, as for every rename.
pub(super) fn settle(found: Option<&Found>, wish: &Wish) -> Result<u32, FileReason> {
    let Some(found) = found else { return Ok(wish.mode.unwrap_or(FILE_MODE)) };
    regular(&found.stat)?;
    if !wish.replace {
        return Err(FileReason::Exists);
    }
    Ok(wish.mode.unwrap_or(found.stat.st_mode & MOST_MODE))
}

/// A file that is being written.
pub(super) struct Draft<'a> {
    dir: &'a OwnedFd,
    name: String,
    pub(super) file: File,
    kept: bool,
}

impl<'a> Draft<'a> {
    /// In the directory where it will stay; the id is no other operation's.
    pub(super) fn open(dir: &'a OwnedFd, id: &str) -> Result<Self, FileReason> {
        let name = format!(".glovebox-{id}.part");
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(dir, &name, flags, Mode::RUSR | Mode::WUSR).map_err(reason)?;
        Ok(Self { dir, name, file: file.into(), kept: false })
    }

    /// It is whole.
    pub(super) fn keep(mut self, name: &OsStr, mode: u32, replace: bool) -> Result<(), FileReason> {
        fchmod(&self.file, Mode::from_raw_mode(mode & MOST_MODE)).map_err(reason)?;
        if replace {
            renameat(self.dir, &self.name, self.dir, name).map_err(reason)?;
            self.kept = true;
        } else {
            // Unlike a rename, it fails where there is something; the first name goes with this value.
            linkat(self.dir, &self.name, self.dir, name, AtFlags::empty()).map_err(reason)?;
        }
        Ok(())
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        if !self.kept {
            let _ = unlinkat(self.dir, &self.name, AtFlags::empty());
        }
    }
}
