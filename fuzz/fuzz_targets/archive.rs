//! A client's tar archive: whatever it says, each entry that is shown belongs below, in plain spelling, there are no more of them than
//! may be, and none holds more than was said.
#![no_main]

use std::io::Read as _;

use glovebox::{
    agent::files::tape::{TapeError, each},
    call::{FileKind, FileReason, is_below},
};
use libfuzzer_sys::fuzz_target;

const MOST: u64 = 20;

fuzz_target!(|input: &[u8]| {
    let mut count = 0;
    let ended = each(input, MOST, |item, content| {
        count += 1;
        assert!(count <= MOST);
        assert!(!item.path.is_empty() && is_below(&item.path), "{:?}", item.path);
        assert!(item.path.split('/').all(|part| !matches!(part, "" | "." | "..")), "{:?}", item.path);
        assert!(matches!(item.kind, FileKind::File | FileKind::Directory) && item.mode <= 0o777);
        let mut held = Vec::new();
        content.read_to_end(&mut held).map_err(|_| ())?;
        assert!(held.len() as u64 <= item.size && held.len() <= input.len());
        Ok(())
    });
    match ended {
        Ok(()) | Err(TapeError::Visitor(())) => {}
        Err(TapeError::Refused(reason, _)) => {
            assert!(matches!(
                reason,
                FileReason::TooMany | FileReason::BadArchive | FileReason::EntryRefused
            ));
        }
        Err(TapeError::Io(error)) => panic!("a slice has no errors of its own: {error}"),
    }
});
