//! Hashes as text: of bytes that are there, and of parts that no other parts can be taken for. Pure.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

/// Bytes as text: two digits each.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // A string takes all that is written to it.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// SHA-256 of texts, each behind its length.
pub(crate) fn of_parts(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
        hash.update(part);
    }
    hex(&hash.finalize())
}
