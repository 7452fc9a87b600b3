//! Owns removal: a file, a link, a directory, or all that is in it. Never what a link leads to.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{AtFlags, Dir, fstat, statat, unlinkat};
use rustix::io::Errno;

use super::error::{Stop, reason};
use super::walk::{Last, Missing, Root, kind, open_directory};
use super::wire::Wire;
use super::{MOST_DEPTH, at};
use crate::call::{FileKind, FileReason, FileRequest, FileResult};

pub(super) fn delete(
    root: &Root,
    request: &FileRequest,
    recursive: bool,
    wire: &Wire,
) -> Result<FileResult, Stop> {
    let spot = root.find(&request.path, Last::Keep, Missing::Refuse)?;
    let found = spot.found()?;
    // The workspace itself is a mount.
    let name = spot.name.as_deref().ok_or(FileReason::ReadOnly)?;
    let mut removal = Removal { wire, path: Vec::new(), count: 0 };
    if kind(&found.stat) != FileKind::Directory {
        unlinkat(&spot.dir, name, AtFlags::empty())?;
        return Ok(FileResult { entries: 1, ..FileResult::default() });
    }
    // A mount can't be removed: that is seen before what is in it is gone.
    if fstat(&spot.dir)?.st_dev != found.stat.st_dev {
        return Err(FileReason::ReadOnly.into());
    }
    if recursive {
        removal.clear(&found.open_directory()?, 0)?;
    }
    unlinkat(&spot.dir, name, AtFlags::REMOVEDIR)?;
    Ok(FileResult { entries: removal.count + 1, ..FileResult::default() })
}

struct Removal<'a> {
    wire: &'a Wire,
    /// Where it is, below what is removed.
    path: Vec<u8>,
    count: u64,
}

impl Removal<'_> {
    /// Removes all that is in a directory, again and again until nothing is: what is removed while it is read may hide the rest.
    fn clear(&mut self, dir: &OwnedFd, depth: usize) -> Result<(), Stop> {
        if depth == MOST_DEPTH {
            return Err(at(FileReason::TooDeep, &self.path));
        }
        loop {
            let before = self.count;
            for item in Dir::read_from(dir).map_err(|errno| at(reason(errno), &self.path))? {
                self.wire.check()?;
                let item = item.map_err(|errno| at(reason(errno), &self.path))?;
                let name = OsStr::from_bytes(item.file_name().to_bytes());
                if name != "." && name != ".." {
                    self.within(name, |removal| removal.remove(dir, name, depth))?;
                }
            }
            if self.count == before {
                return Ok(());
            }
        }
    }

    fn remove(&mut self, dir: &OwnedFd, name: &OsStr, depth: usize) -> Result<(), Stop> {
        let refused = |errno, path: &[u8]| at(reason(errno), path);
        let stat = match statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(()),
            other => other.map_err(|errno| refused(errno, &self.path))?,
        };
        let flags = if kind(&stat) == FileKind::Directory {
            let child = open_directory(dir, name).map_err(|reason| at(reason, &self.path))?;
            let [own, parent] = [fstat(&child), fstat(dir)];
            if own?.st_dev != parent?.st_dev {
                return Err(at(FileReason::ReadOnly, &self.path));
            }
            self.clear(&child, depth + 1)?;
            AtFlags::REMOVEDIR
        } else {
            AtFlags::empty()
        };
        match unlinkat(dir, name, flags) {
            Ok(()) => self.count += 1,
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(refused(errno, &self.path)),
        }
        Ok(())
    }

    fn within<T>(&mut self, name: &OsStr, act: impl FnOnce(&mut Self) -> Result<T, Stop>) -> Result<T, Stop> {
        let before = self.path.len();
        if before > 0 {
            self.path.push(b'/');
        }
        self.path.extend_from_slice(name.as_bytes());
        let done = act(self);
        self.path.truncate(before);
        done
    }
}
