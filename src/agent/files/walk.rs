//! Owns the way from the workspace to what a path names, part by part: each is opened below the descriptor of the one before, and
//! never through a link. Links are read and gone here, as far as they stay below.
//!
//! The kernel is given single names alone, no `..` and no link to follow: whatever is swapped between two steps, the next one starts
//! at a directory that was reached from the workspace. `openat2` with `RESOLVE_BENEATH` would do the same in one call, but not in every
//! kernel that a sandbox may have; one way for all is one way to be tried.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags, Stat, fstat, mkdirat, open, openat, readlinkat};
use rustix::io::{Errno, dup};

use super::MOST_DEPTH;
use super::error::reason;
use crate::call::{FileEntry, FileKind, FileReason};

/// Most links on one way, as in Linux.
const MOST_LINKS: usize = 40;
/// Most parts of a path, and of all links in it together.
const MOST_PARTS: usize = 4096;
/// Mode of directories that are made; the user's mask applies.
const DIRECTORY_MODE: Mode =
    Mode::RWXU.union(Mode::RGRP).union(Mode::XGRP).union(Mode::ROTH).union(Mode::XOTH);

/// A link at the end of a path.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Last {
    /// Is gone like any other.
    Follow,
    /// Is what is meant.
    Keep,
}

/// Directories on the way that are not there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Missing {
    Refuse,
    Make,
}

/// The directory that nothing leads out of.
#[derive(Debug)]
pub(super) struct Root(OwnedFd);

/// Where a path leads.
#[derive(Debug)]
pub(super) struct Spot {
    /// The directory in which it is.
    pub(super) dir: OwnedFd,
    /// Its name there; none where the path ends at a directory that it came down to by no name of its own, such as the root.
    pub(super) name: Option<OsString>,
    /// What is there.
    pub(super) found: Option<Found>,
}

/// Something that is there: held, and neither read nor written.
#[derive(Debug)]
pub(super) struct Found {
    handle: OwnedFd,
    pub(super) stat: Stat,
}

impl Root {
    pub(super) fn open(path: &Path) -> Result<Self, Errno> {
        open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).map(Self)
    }

    /// The same of a directory that was found.
    pub(super) fn at(found: &Found) -> Result<Self, FileReason> {
        if kind(&found.stat) == FileKind::Directory {
            return dup_cloexec(&found.handle).map(Self);
        }
        Err(FileReason::NotADirectory)
    }

    /// Where the path leads; what it ends with need not be there.
    pub(super) fn find(&self, path: &str, last: Last, missing: Missing) -> Result<Spot, FileReason> {
        let mut walk = Walk { trail: vec![dup_cloexec(&self.0)?], todo: Vec::new(), links: 0, parts: 0 };
        walk.plan(path.as_bytes())?;
        loop {
            let Some(part) = walk.next()? else { return walk.here() };
            if let Some(spot) = walk.step(part, last, missing)? {
                return Ok(spot);
            }
        }
    }
}

struct Walk {
    /// Directories that were gone through, from the root on. `..` in a link goes back on it, and never beyond.
    trail: Vec<OwnedFd>,
    /// Parts that are left, the next one last.
    todo: Vec<OsString>,
    links: usize,
    parts: usize,
}

impl Walk {
    fn plan(&mut self, path: &[u8]) -> Result<(), FileReason> {
        let parts = path.split(|byte| *byte == b'/').filter(|part| !matches!(*part, b"" | b"."));
        let before = self.todo.len();
        self.todo.extend(parts.rev().map(|part| OsStr::from_bytes(part).to_owned()));
        self.parts += self.todo.len() - before;
        if self.parts > MOST_PARTS { Err(FileReason::TooDeep) } else { Ok(()) }
    }

    /// The next name to go.
    fn next(&mut self) -> Result<Option<OsString>, FileReason> {
        while let Some(part) = self.todo.pop() {
            if part != ".." {
                return Ok(Some(part));
            }
            self.trail.pop();
            if self.trail.is_empty() {
                return Err(FileReason::LinkRefused);
            }
        }
        Ok(None)
    }

    /// The directory that was come to last.
    fn here(&mut self) -> Result<Spot, FileReason> {
        let dir = self.trail.pop().ok_or(FileReason::LinkRefused)?;
        let found = Some(Found { handle: dup_cloexec(&dir)?, stat: fstat(&dir).map_err(reason)? });
        Ok(Spot { dir, name: None, found })
    }

    fn step(&mut self, part: OsString, last: Last, missing: Missing) -> Result<Option<Spot>, FileReason> {
        let is_last = self.todo.is_empty();
        let top = self.trail.last().ok_or(FileReason::LinkRefused)?;
        let handle = match hold(top, &part) {
            Err(Errno::NOENT) if is_last => return self.end(part, None).map(Some),
            Err(Errno::NOENT) if missing == Missing::Make => {
                make_directory(top, &part)?;
                hold(top, &part)
            }
            other => other,
        }
        .map_err(reason)?;
        let stat = fstat(&handle).map_err(reason)?;
        match kind(&stat) {
            FileKind::Symlink if !is_last || last == Last::Follow => {
                let target = readlinkat(top, &part, Vec::new()).map_err(swapped)?.into_bytes();
                self.links += 1;
                if target.starts_with(b"/") || self.links > MOST_LINKS {
                    return Err(FileReason::LinkRefused);
                }
                self.plan(&target)?;
                Ok(None)
            }
            _ if is_last => self.end(part, Some(Found { handle, stat })).map(Some),
            FileKind::Directory if self.trail.len() < MOST_DEPTH => {
                self.trail.push(handle);
                Ok(None)
            }
            FileKind::Directory => Err(FileReason::TooDeep),
            FileKind::File | FileKind::Symlink | FileKind::Other => Err(FileReason::NotADirectory),
        }
    }

    fn end(&mut self, name: OsString, found: Option<Found>) -> Result<Spot, FileReason> {
        let dir = self.trail.pop().ok_or(FileReason::LinkRefused)?;
        Ok(Spot { dir, name: Some(name), found })
    }
}

impl Spot {
    /// What is there, which must be something.
    pub(super) fn found(&self) -> Result<&Found, FileReason> {
        self.found.as_ref().ok_or(FileReason::NotFound)
    }

    /// Opens the file that is there for reading.
    pub(super) fn open_file(&self) -> Result<(File, Stat), FileReason> {
        let found = self.found()?;
        regular(&found.stat)?;
        let name = self.name.as_deref().ok_or(FileReason::IsADirectory)?;
        open_file(&self.dir, name)
    }
}

impl Found {
    /// Opens the directory that it is for reading.
    pub(super) fn open_directory(&self) -> Result<OwnedFd, FileReason> {
        open_directory(&self.handle, OsStr::new("."))
    }
}

/// Opens an ordinary file in a directory for reading. What else it came to be meanwhile is not waited for, and refused.
pub(super) fn open_file(dir: &OwnedFd, name: &OsStr) -> Result<(File, Stat), FileReason> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = openat(dir, name, flags, Mode::empty()).map_err(swapped)?;
    let stat = fstat(&file).map_err(reason)?;
    regular(&stat)?;
    Ok((file.into(), stat))
}

/// Opens a directory in a directory for reading.
pub(super) fn open_directory(dir: &OwnedFd, name: &OsStr) -> Result<OwnedFd, FileReason> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(dir, name, flags, Mode::empty()).map_err(reason)
}

/// Makes a directory, unless there is one.
pub(super) fn make_directory(dir: &OwnedFd, name: &OsStr) -> Result<(), FileReason> {
    match mkdirat(dir, name, DIRECTORY_MODE) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(reason(errno)),
    }
}

pub(super) fn regular(stat: &Stat) -> Result<(), FileReason> {
    match kind(stat) {
        FileKind::File => Ok(()),
        FileKind::Directory => Err(FileReason::IsADirectory),
        FileKind::Symlink | FileKind::Other => Err(FileReason::NotRegular),
    }
}

/// What it is.
pub(super) fn kind(stat: &Stat) -> FileKind {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => FileKind::File,
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Symlink,
        _ => FileKind::Other,
    }
}

/// What is told of it.
pub(super) fn entry(path: &str, stat: &Stat) -> FileEntry {
    FileEntry {
        path: path.to_owned(),
        kind: kind(stat),
        size: size(stat),
        mode: stat.st_mode & 0o7777,
        modified_ms: stat
            .st_mtime
            .saturating_mul(1000)
            .saturating_add_unsigned(stat.st_mtime_nsec / 1_000_000),
    }
}

pub(super) fn size(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or_default()
}

fn hold(dir: &OwnedFd, name: &OsStr) -> Result<OwnedFd, Errno> {
    openat(dir, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

fn dup_cloexec(fd: &OwnedFd) -> Result<OwnedFd, FileReason> {
    // Nothing is started from here, so that nobody inherits it.
    dup(fd).map_err(reason)
}

/// What was a link, or none, a moment ago.
fn swapped(errno: Errno) -> FileReason {
    if matches!(errno, Errno::INVAL | Errno::LOOP) { FileReason::Changed } else { reason(errno) }
}
