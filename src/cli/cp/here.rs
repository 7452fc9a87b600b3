//! The side that is here: files whose names are made up until they are whole, and directories as archives.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, ensure};
use tokio::io::AsyncRead;

use crate::cli::create::names;

/// A file that goes with this, unless it becomes another.
pub(super) struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        // Where it became another there is none of this name.
        let _ = fs::remove_file(&self.0);
    }
}

impl Scratch {
    /// An empty one: in this directory, as any file that the caller makes; or in that for temporary files, and then for nobody else.
    pub(super) fn new(near: Option<PathBuf>) -> anyhow::Result<Self> {
        use std::os::unix::fs::OpenOptionsExt as _;
        let mut options = fs::OpenOptions::new();
        options.write(true).create_new(true);
        if near.is_none() {
            options.mode(0o600);
        }
        let folder = near.unwrap_or_else(std::env::temp_dir);
        let path = folder.join(names::random(".glovebox")?);
        options.open(&path).with_context(|| format!("{} can't be made", path.display()))?;
        Ok(Self(path))
    }

    /// One that holds all of this.
    pub(super) async fn filled(mut from: impl AsyncRead + Unpin) -> anyhow::Result<Self> {
        let scratch = Self::new(None)?;
        let mut file = scratch.open_to_write().await?;
        tokio::io::copy(&mut from, &mut file).await.context("standard input")?;
        tokio::io::AsyncWriteExt::flush(&mut file).await.context("standard input")?;
        Ok(scratch)
    }

    pub(super) async fn open(&self) -> anyhow::Result<tokio::fs::File> {
        open(&self.0).await
    }

    pub(super) async fn open_to_write(&self) -> io::Result<tokio::fs::File> {
        tokio::fs::OpenOptions::new().write(true).open(&self.0).await
    }

    /// It has this name from now on, in place of what had it.
    pub(super) fn becomes(&self, path: &Path) -> io::Result<()> {
        fs::rename(&self.0, path)
    }
}

pub(super) async fn open(path: &Path) -> anyhow::Result<tokio::fs::File> {
    let file =
        tokio::fs::File::open(path).await.with_context(|| format!("{} can't be read", path.display()))?;
    let kind = file.metadata().await.with_context(|| format!("{} can't be read", path.display()))?;
    ensure!(kind.is_file(), "{} is no ordinary file and no directory", path.display());
    Ok(file)
}

/// A directory's files and directories as an archive, and how many other things there are in it.
pub(super) async fn pack(folder: PathBuf) -> anyhow::Result<(Scratch, u64)> {
    let packed = tokio::task::spawn_blocking(move || {
        let scratch = Scratch::new(None)?;
        let file = fs::OpenOptions::new().write(true).open(&scratch.0)?;
        let mut archive = tar::Builder::new(io::BufWriter::new(file));
        archive.follow_symlinks(false);
        let left_out = add(&mut archive, &folder, Path::new(""))?;
        archive.into_inner()?.into_inner().map_err(io::IntoInnerError::into_error)?;
        anyhow::Ok((scratch, left_out))
    });
    packed.await?
}

fn add(archive: &mut tar::Builder<impl io::Write>, folder: &Path, name: &Path) -> anyhow::Result<u64> {
    let mut left_out = 0;
    let unread = || format!("{} can't be read", folder.display());
    let mut entries =
        fs::read_dir(folder).with_context(unread)?.collect::<io::Result<Vec<_>>>().with_context(unread)?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let (path, name) = (entry.path(), name.join(entry.file_name()));
        let unread = || format!("{} can't be read", path.display());
        let kind = entry.file_type().with_context(unread)?;
        if kind.is_dir() {
            archive.append_dir(&name, &path).with_context(unread)?;
            left_out += add(archive, &path, &name)?;
        } else if kind.is_file() {
            archive.append_path_with_name(&path, &name).with_context(unread)?;
        } else {
            left_out += 1;
        }
    }
    Ok(left_out)
}

/// Makes what is in an archive below a directory.
pub(super) async fn unpack(archive: Scratch, folder: PathBuf) -> anyhow::Result<()> {
    let unpacked = tokio::task::spawn_blocking(move || {
        let unwritten = || format!("{} can't be written", folder.display());
        fs::create_dir_all(&folder).with_context(unwritten)?;
        let mut archive = tar::Archive::new(io::BufReader::new(fs::File::open(&archive.0)?));
        // Whose files these were there is nobody here.
        archive.set_preserve_ownerships(false);
        for entry in archive.entries()? {
            let mut entry = entry.context("the session's archive can't be read")?;
            let kind = entry.header().entry_type();
            ensure!(
                kind.is_file() || kind.is_dir(),
                "the session's archive has what is no file and no directory"
            );
            ensure!(
                entry.unpack_in(&folder).with_context(unwritten)?,
                "the session's archive leads out of {}",
                folder.display()
            );
        }
        Ok(())
    });
    unpacked.await?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_directory_comes_back_as_it_was_but_for_links() {
        let folder = std::env::temp_dir().join(names::random("glovebox-cp").unwrap());
        fs::create_dir_all(folder.join("from/below")).unwrap();
        fs::write(folder.join("from/below/a"), b"hello").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", folder.join("from/link")).unwrap();
        let (archive, left_out) = pack(folder.join("from")).await.unwrap();
        assert_eq!(left_out, 1);
        let path = archive.0.clone();
        unpack(archive, folder.join("to")).await.unwrap();
        assert_eq!(fs::read(folder.join("to/below/a")).unwrap(), b"hello");
        assert!(!folder.join("to/link").exists() && !path.exists());
        let scratch = Scratch::new(Some(folder.clone())).unwrap();
        fs::write(&scratch.0, b"x").unwrap();
        scratch.becomes(&folder.join("file")).unwrap();
        assert_eq!(fs::read(folder.join("file")).unwrap(), b"x");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[tokio::test]
    async fn an_archive_that_leads_out_is_refused() {
        let folder = std::env::temp_dir().join(names::random("glovebox-cp").unwrap());
        for (name, kind) in [("../out", tar::EntryType::Regular), ("link", tar::EntryType::Symlink)] {
            let scratch = Scratch::new(None).unwrap();
            let mut archive = tar::Builder::new(fs::File::create(&scratch.0).unwrap());
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(kind);
            header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name.as_bytes());
            header.set_size(0);
            header.set_cksum();
            archive.append(&header, io::empty()).unwrap();
            archive.into_inner().unwrap();
            assert!(unpack(scratch, folder.join("to")).await.is_err(), "{name}");
            assert!(!folder.join("out").exists() && !folder.join("to/link").exists());
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
