//! Owns the question whether a request is a session's: a signature over this sandbox, this connection and all of the request.
//! Pure.
//!
//! Must read nothing of a request before its signature holds.

use ed25519_dalek::{Signature, VerifyingKey};

use crate::call::{Exec, NONCE_BYTES, Refusal, SIGNATURE_BYTES, signed};

/// Whose word counts, and for which sandbox.
#[derive(Debug)]
pub(super) struct Guard {
    uid: String,
    keys: Vec<VerifyingKey>,
}

impl Guard {
    pub(super) fn new(uid: String, keys: Vec<VerifyingKey>) -> Self {
        Self { uid, keys }
    }

    /// The request in the payload of an opening frame, and what it says.
    pub(super) fn admit<'a>(
        &self,
        nonce: &[u8; NONCE_BYTES],
        payload: &'a [u8],
    ) -> Result<(&'a [u8], Exec), Refusal> {
        let (signature, request) =
            payload.split_first_chunk::<SIGNATURE_BYTES>().ok_or(Refusal::NotSigned)?;
        let signature = Signature::from_bytes(signature);
        let message = signed(&self.uid, nonce, request);
        if !self.keys.iter().any(|key| key.verify_strict(&message, &signature).is_ok()) {
            return Err(Refusal::NotSigned);
        }
        let exec: Exec = serde_json::from_slice(request).map_err(|_| Refusal::Malformed)?;
        exec.check().map_err(|_| Refusal::Malformed)?;
        Ok((request, exec))
    }
}

#[cfg(test)]
mod tests {
    use ed25519_dalek::{Signer, SigningKey};

    use super::*;

    const REQUEST: &[u8] = br#"{"id":"a","command":["true"],"timeoutMs":1,"maxOutputBytes":0}"#;

    fn key(seed: u8) -> SigningKey {
        SigningKey::from_bytes(&[seed; 32])
    }

    fn payload(key: &SigningKey, uid: &str, nonce: [u8; NONCE_BYTES], request: &[u8]) -> Vec<u8> {
        [&key.sign(&signed(uid, &nonce, request)).to_bytes(), request].concat()
    }

    #[test]
    fn only_what_was_signed_for_this_place_and_time_is_read() {
        let guard = Guard::new("uid".into(), vec![key(1).verifying_key(), key(2).verifying_key()]);
        let nonce = [5; NONCE_BYTES];
        for seed in [1, 2] {
            let payload = payload(&key(seed), "uid", nonce, REQUEST);
            let (request, exec) = guard.admit(&nonce, &payload).unwrap();
            assert_eq!((request, exec.id.as_str()), (REQUEST, "a"));
        }
        let mut changed = payload(&key(1), "uid", nonce, REQUEST);
        let at = changed.iter().rposition(|byte| *byte == b'0').unwrap();
        changed[at] = b'9';
        for payload in [
            payload(&key(3), "uid", nonce, REQUEST),
            payload(&key(1), "another", nonce, REQUEST),
            payload(&key(1), "uid", [6; NONCE_BYTES], REQUEST),
            changed,
            vec![0; SIGNATURE_BYTES + 1],
            vec![0; 3],
        ] {
            assert_eq!(guard.admit(&nonce, &payload), Err(Refusal::NotSigned));
        }
    }

    #[test]
    fn what_is_signed_and_makes_no_sense_is_malformed() {
        let guard = Guard::new("uid".into(), vec![key(1).verifying_key()]);
        let nonce = [5; NONCE_BYTES];
        for request in [&b"{"[..], b"[]", br#"{"id":"a","command":[],"timeoutMs":1,"maxOutputBytes":0}"#] {
            let payload = payload(&key(1), "uid", nonce, request);
            assert_eq!(guard.admit(&nonce, &payload), Err(Refusal::Malformed));
        }
    }
}
