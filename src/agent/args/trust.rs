//! The options that say whom a sandbox trusts besides the authorities of its image.

use std::path::PathBuf;

use super::words::{Words, wrong};
use crate::agent::fault::Fault;
use crate::pem;

/// Longest text of certificates, in bytes.
const MOST: usize = 64 * 1024;

/// Whom the sandbox trusts besides, and where it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustArgs {
    /// Certificates of authorities, as PEM; at least one.
    pub authority: String,
    /// The directory of what is written.
    pub directory: PathBuf,
}

/// What was given so far.
#[derive(Debug, Default)]
pub(super) struct Options {
    authority: Option<String>,
    directory: Option<PathBuf>,
}

impl Options {
    /// Takes one option, if it is one of these.
    pub(super) fn take(&mut self, option: &str, words: &mut Words) -> Result<bool, Fault> {
        match option {
            "--trust-authority" => {
                let value = words.value(option)?;
                let text = value.as_encoded_bytes();
                let found = if text.len() > MOST { Vec::new() } else { pem::certificates(text) };
                if found.is_empty() || pem::has_private_key(text) {
                    // Not shown: whatever it is, a log is no place for it.
                    let expected = format!("certificates as PEM, without a key, of at most {MOST} bytes");
                    return Err(wrong(option, "(not shown)".as_ref(), &expected));
                }
                self.authority = Some(found.concat());
            }
            "--trust-dir" => self.directory = Some(words.absolute(option)?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Both, or neither.
    pub(super) fn whole(self) -> Result<Option<TrustArgs>, Fault> {
        match (self.authority, self.directory) {
            (Some(authority), Some(directory)) => Ok(Some(TrustArgs { authority, directory })),
            (None, None) => Ok(None),
            _ => Err(Fault::usage("--trust-authority and --trust-dir go together")),
        }
    }
}
