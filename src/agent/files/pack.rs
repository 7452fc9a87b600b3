//! Owns the telling of a whole directory: each file and directory below it, and what the files hold. Links and special files are
//! counted and left out: whoever unpacks what comes of it must not be led anywhere.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{AtFlags, Dir, Stat, statat};
use rustix::io::Errno;

use super::error::{Stop, reason};
use super::look::pour;
use super::walk::{Last, Missing, Root, entry, kind, open_directory, open_file, size};
use super::wire::Wire;
use super::{MOST_DEPTH, at};
use crate::call::{FileKind, FileReason, FileRequest, FileResult};

pub(super) fn pack(root: &Root, request: &FileRequest, wire: &mut Wire) -> Result<FileResult, Stop> {
    let spot = root.find(&request.path, Last::Follow, Missing::Refuse)?;
    let mut packing = Packing { request, wire, path: String::new(), result: FileResult::default() };
    let found = spot.found()?;
    match (kind(&found.stat), &spot.name) {
        (FileKind::Directory, _) => packing.directory(&found.open_directory()?, 0)?,
        // One file alone.
        (FileKind::File, Some(name)) => packing.item(&spot.dir, name, 0)?,
        _ => return Err(FileReason::NotRegular.into()),
    }
    Ok(packing.result)
}

struct Packing<'a> {
    request: &'a FileRequest,
    wire: &'a mut Wire,
    /// Where it is, below what is packed.
    path: String,
    result: FileResult,
}

impl Packing<'_> {
    fn refused(&self, reason: FileReason) -> Stop {
        at(reason, self.path.as_bytes())
    }

    fn directory(&mut self, dir: &OwnedFd, depth: usize) -> Result<(), Stop> {
        if depth == MOST_DEPTH {
            return Err(self.refused(FileReason::TooDeep));
        }
        for item in Dir::read_from(dir).map_err(|errno| self.refused(reason(errno)))? {
            let item = item.map_err(|errno| self.refused(reason(errno)))?;
            let name = item.file_name().to_bytes();
            if !matches!(name, b"." | b"..") {
                self.item(dir, OsStr::from_bytes(name), depth)?;
            }
        }
        Ok(())
    }

    /// One thing in a directory, by its name.
    fn item(&mut self, dir: &OwnedFd, name: &OsStr, depth: usize) -> Result<(), Stop> {
        self.wire.check()?;
        // An archive in which something is missing is worse than none.
        let Some(text) = name.to_str() else { return Err(self.refused(FileReason::NotText)) };
        let before = self.path.len();
        if before > 0 {
            self.path.push('/');
        }
        self.path.push_str(text);
        let done = self.found(dir, name, depth);
        self.path.truncate(before);
        done
    }

    fn found(&mut self, dir: &OwnedFd, name: &OsStr, depth: usize) -> Result<(), Stop> {
        let stat = match statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            // It is gone since.
            Err(Errno::NOENT) => return Ok(()),
            other => other.map_err(|errno| self.refused(reason(errno)))?,
        };
        match kind(&stat) {
            FileKind::Directory => {
                let child = open_directory(dir, name).map_err(|reason| self.refused(reason))?;
                self.tell(&stat)?;
                self.directory(&child, depth + 1)
            }
            FileKind::File => {
                let (mut file, stat) = match open_file(dir, name) {
                    Err(FileReason::NotFound) => return Ok(()),
                    other => other.map_err(|reason| self.refused(reason))?,
                };
                self.result.bytes = self.result.bytes.saturating_add(size(&stat));
                if self.result.bytes > self.request.max_bytes {
                    return Err(self.refused(FileReason::TooBig));
                }
                self.tell(&stat)?;
                pour(&mut file, size(&stat), self.wire).map_err(|stop| match stop {
                    Stop::Refused(failure) if failure.reason != FileReason::DeadlineExceeded => {
                        self.refused(failure.reason)
                    }
                    other => other,
                })
            }
            FileKind::Symlink | FileKind::Other => {
                self.result.skipped += 1;
                Ok(())
            }
        }
    }

    fn tell(&mut self, stat: &Stat) -> Result<(), Stop> {
        if self.result.entries == self.request.max_entries {
            return Err(self.refused(FileReason::TooMany));
        }
        self.result.entries += 1;
        self.wire.entry(&entry(&self.path, stat)).map(drop)
    }
}
