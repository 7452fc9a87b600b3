//! A tar archive, written from what the agent tells: headers are made here, of paths that were looked at, so that whatever a sandbox
//! says, the archive holds ordinary files and directories below the place where it is unpacked.

use std::io;

use tar::{Builder, EntryType, Header};

use crate::call::{FileEntry, FileKind, MOST_MODE};

const BLOCK: u64 = 512;

/// An archive on its way.
#[derive(Debug, Default)]
pub(super) struct Writer {
    /// Bytes that the last file was filled up by.
    fill: usize,
}

impl Writer {
    /// What stands before a file or a directory; also what fills up the one before.
    pub(super) fn entry(&mut self, entry: &FileEntry) -> io::Result<Vec<u8>> {
        let is_file = entry.kind == FileKind::File;
        let mut header = Header::new_gnu();
        header.set_entry_type(if is_file { EntryType::Regular } else { EntryType::Directory });
        header.set_mode(entry.mode & MOST_MODE);
        header.set_mtime(u64::try_from(entry.modified_ms / 1000).unwrap_or_default());
        header.set_size(if is_file { entry.size } else { 0 });
        let mut bytes = vec![0; self.fill];
        let mut builder = Builder::new(Vec::new());
        // With a long name's own entry, where it is one. What the file holds follows as it comes.
        builder.append_data(&mut header, &entry.path, io::empty())?;
        bytes.append(builder.get_mut());
        self.fill = if is_file { missing(entry.size) } else { 0 };
        Ok(bytes)
    }

    /// What stands at the end.
    pub(super) fn end(&self) -> Vec<u8> {
        vec![0; self.fill + 2 * 512]
    }
}

fn missing(size: u64) -> usize {
    usize::try_from((BLOCK - size % BLOCK) % BLOCK).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use proptest::prelude::*;

    use super::*;

    fn written(files: &[(String, Vec<u8>)]) -> Vec<u8> {
        let (mut writer, mut bytes) = (Writer::default(), Vec::new());
        for (path, content) in files {
            let size = content.len() as u64;
            let entry =
                FileEntry { path: path.clone(), kind: FileKind::File, size, mode: 0o100_644, modified_ms: 1 };
            bytes.extend(writer.entry(&entry).unwrap());
            bytes.extend(content);
        }
        bytes.extend(writer.end());
        bytes
    }

    proptest! {
        #[test]
        fn what_is_written_can_be_read(
            files in prop::collection::vec(("[a-zä]{1,120}(/[a-z ]{1,80}){0,3}", prop::collection::vec(any::<u8>(), 0..1500)), 0..6)
        ) {
            let bytes = written(&files);
            prop_assert_eq!(bytes.len() % 512, 0);
            let mut archive = tar::Archive::new(bytes.as_slice());
            let mut found = Vec::new();
            for entry in archive.entries().unwrap() {
                let mut entry = entry.unwrap();
                let path = String::from_utf8(entry.path_bytes().into_owned()).unwrap();
                prop_assert_eq!(entry.header().mode().unwrap(), 0o644);
                let mut content = Vec::new();
                entry.read_to_end(&mut content).unwrap();
                found.push((path, content));
            }
            prop_assert_eq!(found, files);
        }
    }
}
