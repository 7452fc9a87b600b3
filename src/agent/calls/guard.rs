//! Owns the question whether a request is a session's: a signature over this sandbox, this connection and all of the request.
//! Pure.
//!
//! Must read nothing of a request before its signature holds.

use std::time::Duration;

use ed25519_dalek::{Signature, VerifyingKey};

use crate::call::{Exec, FileRequest, Kind, NONCE_BYTES, Refusal, SIGNATURE_BYTES, signed, signed_file};

/// What a session asks.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// To run a command.
    Exec(Exec),
    /// To do something with files.
    File(FileRequest),
}

impl Asked {
    /// From the start until it has to be over.
    pub(super) fn timeout(&self) -> Duration {
        Duration::from_millis(match self {
            Self::Exec(exec) => exec.timeout_ms,
            Self::File(file) => file.timeout_ms,
        })
    }
}

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
        kind: Kind,
        nonce: &[u8; NONCE_BYTES],
        payload: &'a [u8],
    ) -> Result<(&'a [u8], Asked), Refusal> {
        let (signature, request) =
            payload.split_first_chunk::<SIGNATURE_BYTES>().ok_or(Refusal::NotSigned)?;
        let signature = Signature::from_bytes(signature);
        let message = match kind {
            Kind::OpenFile => signed_file(&self.uid, nonce, request),
            _ => signed(&self.uid, nonce, request),
        };
        if !self.keys.iter().any(|key| key.verify_strict(&message, &signature).is_ok()) {
            return Err(Refusal::NotSigned);
        }
        read(kind, request).map(|asked| (request, asked)).ok_or(Refusal::Malformed)
    }
}

fn read(kind: Kind, request: &[u8]) -> Option<Asked> {
    if kind == Kind::OpenFile {
        let file: FileRequest = serde_json::from_slice(request).ok()?;
        return file.check().ok().map(|()| Asked::File(file));
    }
    let exec: Exec = serde_json::from_slice(request).ok()?;
    exec.check().ok().map(|()| Asked::Exec(exec))
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
            let (request, asked) = guard.admit(Kind::Open, &nonce, &payload).unwrap();
            assert!(matches!(asked, Asked::Exec(exec) if exec.id == "a") && request == REQUEST);
            // What was signed for a call is for nothing else.
            assert_eq!(guard.admit(Kind::OpenFile, &nonce, &payload), Err(Refusal::NotSigned));
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
            assert_eq!(guard.admit(Kind::Open, &nonce, &payload), Err(Refusal::NotSigned));
        }
    }

    #[test]
    fn a_file_operation_is_signed_as_one() {
        let guard = Guard::new("uid".into(), vec![key(1).verifying_key()]);
        let nonce = [5; NONCE_BYTES];
        let admit = |kind, request: &[u8]| {
            let signature = key(1).sign(&signed_file("uid", &nonce, request)).to_bytes();
            guard.admit(kind, &nonce, &[&signature, request].concat()).map(|(_, asked)| asked)
        };
        let text = |path: &str| {
            format!(
                r#"{{"id":"a","path":"{path}","operation":"Read","timeoutMs":1,"maxBytes":1,"maxEntries":1}}"#
            )
        };
        assert!(matches!(admit(Kind::OpenFile, text("a/b").as_bytes()), Ok(Asked::File(_))));
        assert_eq!(admit(Kind::Open, text("a/b").as_bytes()), Err(Refusal::NotSigned));
        for path in ["/a", "../a", "a/../../b", "a\\u0000b"] {
            assert_eq!(admit(Kind::OpenFile, text(path).as_bytes()), Err(Refusal::Malformed), "{path}");
        }
    }

    #[test]
    fn what_is_signed_and_makes_no_sense_is_malformed() {
        let guard = Guard::new("uid".into(), vec![key(1).verifying_key()]);
        let nonce = [5; NONCE_BYTES];
        for request in [&b"{"[..], b"[]", br#"{"id":"a","command":[],"timeoutMs":1,"maxOutputBytes":0}"#] {
            let payload = payload(&key(1), "uid", nonce, request);
            assert_eq!(guard.admit(Kind::Open, &nonce, &payload), Err(Refusal::Malformed));
        }
    }
}
