//! A secret in memory: what it may be made of, and that nothing prints it.

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use aho_corasick::BuildError;
use zeroize::Zeroizing;

use super::redact::Known;

/// Shortest secret: of a shorter one, every word that holds it would be made unreadable, and it is guessed.
const LEAST: usize = 8;
/// Longest secret: with it a request's head must still have room for the rest, and all of its forms be searched for.
const MOST: usize = 4 * 1024;

/// Why a text is no secret that can be sent. Says nothing of the text but where it is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// Too short.
    #[error("is shorter than {LEAST} bytes")]
    Short,
    /// Too long.
    #[error("is longer than {MOST} bytes")]
    Long,
    /// It would end the field that it is put into.
    #[error("has a line break at byte {0}; write it without, such as by `printf %s`")]
    LineBreak(usize),
    /// It is no printable ASCII, or begins or ends with a space.
    #[error("has something else than printable ASCII at byte {0}")]
    Byte(usize),
}

/// Printable ASCII that fits into a field of a request. Wiped when it goes.
pub struct Secret {
    bytes: Zeroizing<Vec<u8>>,
    /// How it is found in answers, once it was needed.
    known: OnceLock<Arc<Known>>,
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl Secret {
    /// From what a source has.
    ///
    /// # Errors
    /// Why it can't be sent.
    pub fn new(bytes: Vec<u8>) -> Result<Self, Unfit> {
        // Wiped even if it is no good.
        let bytes = Zeroizing::new(bytes);
        if let Some(at) = bytes.iter().position(|byte| matches!(byte, b'\r' | b'\n')) {
            return Err(Unfit::LineBreak(at));
        }
        let edge = |at: usize| at == 0 || at + 1 == bytes.len();
        let wrong = |(at, byte): (usize, &u8)| !(byte.is_ascii_graphic() || (*byte == b' ' && !edge(at)));
        if let Some(at) = bytes.iter().enumerate().position(wrong) {
            return Err(Unfit::Byte(at));
        }
        match bytes.len() {
            length if length < LEAST => Err(Unfit::Short),
            length if length > MOST => Err(Unfit::Long),
            _ => Ok(Self { bytes, known: OnceLock::new() }),
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// How it is found in answers.
    ///
    /// # Errors
    /// When it can't be.
    pub(super) fn known(&self) -> Result<Arc<Known>, BuildError> {
        if let Some(known) = self.known.get() {
            return Ok(known.clone());
        }
        let made = Arc::new(Known::new(&self.bytes)?);
        Ok(self.known.get_or_init(|| made).clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_break_a_request_is_no_secret() {
        for (text, why) in [
            (b"sk-12345".as_slice(), None),
            (b"two words", None),
            (b"short", Some(Unfit::Short)),
            (b"", Some(Unfit::Short)),
            (b"sk-12345\n", Some(Unfit::LineBreak(8))),
            (b"sk-1\r\nX: y", Some(Unfit::LineBreak(4))),
            (b"sk-1\0 2345", Some(Unfit::Byte(4))),
            (b" sk-12345", Some(Unfit::Byte(0))),
            (b"sk-12345 ", Some(Unfit::Byte(8))),
            ("sk-1234\u{e4}".as_bytes(), Some(Unfit::Byte(7))),
            (&[b'x'; 4097], Some(Unfit::Long)),
        ] {
            assert_eq!(Secret::new(text.to_vec()).err(), why, "{text:?}");
        }
    }

    #[test]
    fn nothing_prints_it() {
        let secret = Secret::new(b"sk-12345".to_vec()).unwrap();
        assert_eq!(format!("{secret:?}"), "Secret");
    }
}
