//! The images' part of the user's cache: which archive is there under which key, and a folder to work in that nobody
//! else uses. An archive appears whole or not at all; what an interrupted run left is removed by the next.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

use crate::{paths, ui};

/// How many archives of one image are kept: other checkouts and branches share the cache.
const KEPT: usize = 3;
/// Digits of a key in a file's name.
const KEY_DIGITS: usize = 16;

/// The folder of the images.
pub(super) struct Store {
    folder: PathBuf,
}

/// A folder to work in, held by one process; emptied at the begin and at the end.
pub(super) struct Workshop {
    folder: PathBuf,
    _lock: File,
}

impl Store {
    /// The user's own.
    pub(super) fn open() -> Result<Self> {
        Self::at(&paths::cache()?)
    }

    fn at(cache: &Path) -> Result<Self> {
        let folder = cache.join("images");
        fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        Ok(Self { folder })
    }

    /// Where the archive of `name` with this key is, there or not.
    pub(super) fn path(&self, name: &str, key: &str) -> PathBuf {
        let short = key.get(..KEY_DIGITS).unwrap_or(key);
        self.folder.join(format!("{}-{short}.tar", stem(name)))
    }

    /// The archive if it is there; it counts as used.
    pub(super) fn find(&self, name: &str, key: &str) -> Option<PathBuf> {
        let path = self.path(name, key);
        // A cache that may only be read is as good.
        let _ =
            File::options().append(true).open(&path).and_then(|file| file.set_modified(SystemTime::now()));
        path.is_file().then_some(path)
    }

    /// Takes the folder to work in; waits while another process has it.
    pub(super) fn workshop(&self) -> Result<Workshop> {
        let lock = self.folder.join("lock");
        let lock = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&lock)
            .with_context(|| lock.display().to_string())?;
        if let Err(TryLockError::WouldBlock) = lock.try_lock() {
            ui::say("another process makes an image; waiting for it");
        }
        lock.lock().context("locking the folder of the images")?;
        let folder = self.folder.join("work");
        remove(&folder)?;
        fs::create_dir(&folder).with_context(|| folder.display().to_string())?;
        Ok(Workshop { folder, _lock: lock })
    }

    /// Puts a finished archive in its place, and removes those of the image that were not used for longest.
    pub(super) fn keep(&self, finished: &Path, name: &str, key: &str) -> Result<PathBuf> {
        let path = self.path(name, key);
        fs::rename(finished, &path).with_context(|| path.display().to_string())?;
        let mut others: Vec<(SystemTime, PathBuf)> = fs::read_dir(&self.folder)?
            .filter_map(|entry| {
                let entry = entry.ok()?;
                let ours = is_archive_of(entry.file_name().to_str()?, name);
                Some((entry.metadata().ok()?.modified().ok()?, entry.path())).filter(|_| ours)
            })
            .collect();
        others.sort_unstable_by(|a, b| b.cmp(a));
        for (_, old) in others.into_iter().skip(KEPT) {
            fs::remove_file(&old).with_context(|| old.display().to_string())?;
        }
        Ok(path)
    }
}

impl Workshop {
    /// A path in it.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

impl Drop for Workshop {
    fn drop(&mut self) {
        // The next run removes what is left now.
        let _ = remove(&self.folder);
    }
}

/// `glovebox.dev/tools:1` is `tools-1`.
fn stem(name: &str) -> String {
    name.rsplit('/').next().unwrap_or(name).replace(':', "-")
}

/// Whether a file is an archive of this image, of any tag's content but of this tag.
fn is_archive_of(file: &str, name: &str) -> bool {
    let key = file.strip_prefix(&format!("{}-", stem(name))).and_then(|rest| rest.strip_suffix(".tar"));
    key.is_some_and(|key| key.len() == KEY_DIGITS && key.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

fn remove(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("removing {}", folder.display()))
        }
        _ => Ok(()),
    }
}

/// What an image is made of, boiled down to a key. Parts are told apart by their names and lengths.
#[derive(Default)]
pub(super) struct Key(Sha256);

impl Key {
    /// Adds a part.
    pub(super) fn add(&mut self, name: &str, bytes: &[u8]) {
        for part in [name.as_bytes(), bytes] {
            self.0.update(part.len().to_le_bytes());
            self.0.update(part);
        }
    }

    /// Adds a file, or the files of a folder in the order of their names.
    pub(super) fn add_path(&mut self, path: &Path) -> Result<()> {
        let context = || path.display().to_string();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !path.is_dir() {
            self.add(&name, &fs::read(path).with_context(context)?);
            return Ok(());
        }
        let mut inside: Vec<PathBuf> = fs::read_dir(path)
            .and_then(|entries| entries.map(|entry| entry.map(|entry| entry.path())).collect())
            .with_context(context)?;
        inside.sort_unstable();
        self.add(&name, &inside.len().to_le_bytes());
        inside.iter().try_for_each(|path| self.add_path(path))
    }

    /// The key, in hex digits.
    pub(super) fn finish(self) -> String {
        hex(&self.0.finalize())
    }
}

/// Bytes as lower-case hex digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String has no error to give.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &str = "glovebox.dev/tools:1";

    fn cache(test: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("glovebox-store-{test}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).unwrap();
        folder
    }

    fn key(number: u8) -> String {
        hex(&[number; 32])
    }

    #[test]
    fn an_archive_is_found_under_its_key_and_the_oldest_goes() {
        let cache = cache("keep");
        let store = Store::at(&cache).unwrap();
        assert_eq!(store.find(NAME, &key(0)), None);
        for number in 0..5 {
            let workshop = store.workshop().unwrap();
            fs::write(workshop.path("new"), [number]).unwrap();
            let kept = store.keep(&workshop.path("new"), NAME, &key(number)).unwrap();
            let past = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(u64::from(number));
            File::options().append(true).open(kept).unwrap().set_modified(past).unwrap();
            // The first is used again and again.
            assert!(store.find(NAME, &key(0)).is_some());
        }
        let there: Vec<u8> = (0..5).filter(|number| store.path(NAME, &key(*number)).exists()).collect();
        fs::remove_dir_all(&cache).unwrap();
        assert_eq!(there, [0, 3, 4]);
    }

    #[test]
    fn other_images_and_other_tags_are_left_alone() {
        let digits = "0123456789abcdef";
        assert!(is_archive_of(&format!("tools-1-{digits}.tar"), NAME));
        for other in
            [format!("tools-2-{digits}.tar"), format!("tools-{digits}.tar"), "tools-1-notes.tar".into()]
        {
            assert!(!is_archive_of(&other, NAME), "{other}");
        }
    }

    #[test]
    fn the_workshop_is_empty_at_the_begin_and_gone_at_the_end() {
        let cache = cache("work");
        let store = Store::at(&cache).unwrap();
        fs::create_dir_all(cache.join("images/work/left/over")).unwrap();
        let workshop = store.workshop().unwrap();
        let empty = fs::read_dir(workshop.path("")).unwrap().next().is_none();
        drop(workshop);
        let gone = !cache.join("images/work").exists();
        fs::remove_dir_all(&cache).unwrap();
        assert!(empty && gone);
    }

    #[test]
    fn a_key_changes_with_each_name_and_byte_and_with_where_they_part() {
        let keys = [
            [("a", "b"), ("c", "d")],
            [("a", "bc"), ("", "d")],
            [("a", "b"), ("c", "e")],
            [("b", "b"), ("c", "d")],
        ];
        let mut seen = std::collections::BTreeSet::new();
        for parts in keys {
            let mut key = Key::default();
            for (name, bytes) in parts {
                key.add(name, bytes.as_bytes());
            }
            assert!(seen.insert(key.finish()));
        }
    }
}
