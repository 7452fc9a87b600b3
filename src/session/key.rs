//! The key that calls are signed with, and the signing. Must never be written anywhere.

use std::path::Path;

use anyhow::Context as _;
use arc_swap::ArcSwap;
use ed25519_dalek::{Signer as _, SigningKey, pkcs8::DecodePrivateKey as _};

use crate::call::{self, NONCE_BYTES, SIGNATURE_BYTES};

/// The key, which may be replaced while it is used.
pub(super) struct Key(ArcSwap<SigningKey>);

impl Key {
    /// Reads it.
    ///
    /// # Errors
    /// When the text is no Ed25519 key as PKCS#8 PEM.
    pub(super) fn from_pem(text: &str) -> anyhow::Result<Self> {
        Ok(Self(ArcSwap::from_pointee(read(text)?)))
    }

    /// Replaces it.
    ///
    /// # Errors
    /// When the text is none; then what was stays.
    pub(super) fn replace(&self, text: &str) -> anyhow::Result<()> {
        self.0.store(read(text)?.into());
        Ok(())
    }

    /// The signature for one sandbox, one connection and one request.
    pub(super) fn sign(
        &self,
        sandbox_uid: &str,
        nonce: &[u8; NONCE_BYTES],
        request: &[u8],
    ) -> [u8; SIGNATURE_BYTES] {
        self.0.load().sign(&call::signed(sandbox_uid, nonce, request)).to_bytes()
    }

    /// The same for a file operation.
    pub(super) fn sign_file(
        &self,
        sandbox_uid: &str,
        nonce: &[u8; NONCE_BYTES],
        request: &[u8],
    ) -> [u8; SIGNATURE_BYTES] {
        self.0.load().sign(&call::signed_file(sandbox_uid, nonce, request)).to_bytes()
    }
}

fn read(text: &str) -> anyhow::Result<SigningKey> {
    // The parser's own words could repeat what it read.
    SigningKey::from_pkcs8_pem(text)
        .ok()
        .context("this is no Ed25519 key as PKCS#8 PEM; openssl genpkey -algorithm ed25519 makes one")
}

/// The text of the key's file.
///
/// # Errors
/// When it can't be read.
pub(super) fn text(file: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(file).with_context(|| format!("--signing-key: can't read {}", file.display()))
}

#[cfg(test)]
mod tests {
    use ed25519_dalek::{Signature, pkcs8::EncodePrivateKey as _};

    use super::*;

    #[test]
    fn what_is_no_key_is_refused_and_not_repeated() {
        let pem = |seed: u8| SigningKey::from_bytes(&[seed; 32]).to_pkcs8_pem(Default::default()).unwrap();
        let key = Key::from_pem(&pem(1)).unwrap();
        let verify = |seed: u8, signature: [u8; SIGNATURE_BYTES]| {
            let public = SigningKey::from_bytes(&[seed; 32]).verifying_key();
            let signed = call::signed("uid", &[7; NONCE_BYTES], b"request");
            public.verify_strict(&signed, &Signature::from_bytes(&signature)).is_ok()
        };
        assert!(verify(1, key.sign("uid", &[7; NONCE_BYTES], b"request")));
        let bad = pem(2).replace("PRIVATE KEY", "PUBLIC KEY");
        for text in ["", "secret", &bad, "-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n"]
        {
            let error = format!("{:#}", key.replace(text).unwrap_err());
            assert!(error.contains("openssl") && !error.contains("c2VjcmV0") && !error.contains("secret"));
        }
        assert!(verify(1, key.sign("uid", &[7; NONCE_BYTES], b"request")), "what was stays");
        key.replace(&pem(2)).unwrap();
        assert!(verify(2, key.sign("uid", &[7; NONCE_BYTES], b"request")));
    }
}
