//! Whose calls the agents of sandboxes take: the public keys of the session's certificates, read from a file, and again when the
//! file changes.
//!
//! Must take certificates alone, as [`super::authority`] does and for the same reason: what is read here is written into every pod.

use std::{
    path::Path,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use anyhow::{Context as _, ensure};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use x509_parser::{oid_registry::OID_SIG_ED25519, parse_x509_certificate};

use super::authority::public;
use crate::mounted;

/// How often it is looked whether the file changed. The kubelet itself takes about a minute.
const LOOK: Duration = Duration::from_secs(10);
/// Most keys: one that is in use, one that comes and one that goes.
const MOST: usize = 3;

/// What was read last; nothing where no calls are taken.
#[derive(Debug, Default)]
pub(super) struct CallKeys(RwLock<Arc<[String]>>);

impl CallKeys {
    /// The keys that count now, as base64 of their 32 bytes.
    pub(super) fn now(&self) -> Arc<[String]> {
        // The value is whole whatever panicked: it is replaced at once.
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads a file for the first time.
    ///
    /// # Errors
    /// When it holds no key of this kind, or more than that.
    pub(super) fn read(file: &Path) -> anyhow::Result<Self> {
        Ok(Self(RwLock::new(keys(file)?)))
    }

    /// Reads it again whenever it changes, for ever. What can't be read leaves what was.
    pub(super) async fn follow(&self, file: &Path) {
        let take = |read: &Arc<[String]>| {
            tracing::info!(file = %file.display(), "the keys of calls changed; sandboxes that are made from now on take calls by the new ones");
            *self.0.write().unwrap_or_else(PoisonError::into_inner) = read.clone();
            Ok(())
        };
        let stays = "--call-keys: sandboxes go on with the keys that were read before";
        mounted::follow(LOOK, Some(self.now()), stays, || keys(file), take).await;
    }
}

fn keys(file: &Path) -> anyhow::Result<Arc<[String]>> {
    let found = public(file)?;
    let name = file.display();
    ensure!(found.len() <= MOST, "{name} holds {} certificates, at most {MOST} are taken", found.len());
    found.iter().map(|one| key(one).with_context(|| format!("a certificate of {name}"))).collect()
}

fn key(certificate: &str) -> anyhow::Result<String> {
    let body: String = certificate.lines().filter(|line| !line.starts_with("-----")).collect();
    let der = STANDARD.decode(body).context("is no base64")?;
    let (_, parsed) = parse_x509_certificate(&der).map_err(|_| anyhow::anyhow!("can't be read"))?;
    let info = parsed.public_key();
    ensure!(
        info.algorithm.algorithm == OID_SIG_ED25519,
        "its key is not Ed25519, which calls are signed with"
    );
    let bytes = info.subject_public_key.data.as_ref();
    ensure!(bytes.len() == crate::call::KEY_BYTES, "its key has {} bytes, not 32", bytes.len());
    Ok(STANDARD.encode(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ED25519, PublicKeyData as _};

    fn certificate(algorithm: &'static rcgen::SignatureAlgorithm) -> (String, Vec<u8>) {
        let pair = KeyPair::generate_for(algorithm).unwrap();
        let made = CertificateParams::new(vec![]).unwrap().self_signed(&pair).unwrap();
        (made.pem(), pair.der_bytes().to_vec())
    }

    #[tokio::test(start_paused = true)]
    async fn keys_of_the_right_kind_are_taken_and_followed() {
        let file = std::env::temp_dir().join(format!("glovebox-call-keys-{}", std::process::id()));
        let refused = |text: &str| {
            std::fs::write(&file, text).unwrap();
            format!("{:#}", CallKeys::read(&file).unwrap_err())
        };
        let ((one, key), (other, _)) = (certificate(&PKCS_ED25519), certificate(&PKCS_ECDSA_P256_SHA256));
        assert!(refused("").contains("no certificate"));
        assert!(refused(&other).contains("not Ed25519"));
        assert!(refused(&one.repeat(4)).contains("at most"));
        assert!(refused(&format!("{one}-----BEGIN PRIVATE KEY-----\nMIIB\n")).contains("private key"));
        assert!(
            refused("-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n")
                .contains("can't be read")
        );
        std::fs::write(&file, &one).unwrap();
        let keys = CallKeys::read(&file).unwrap();
        assert_eq!(*keys.now(), [STANDARD.encode(&key)]);
        let (next, after) = certificate(&PKCS_ED25519);
        std::fs::write(&file, format!("{one}{next}")).unwrap();
        tokio::time::timeout(LOOK * 3, keys.follow(&file)).await.unwrap_err();
        assert_eq!(*keys.now(), [STANDARD.encode(&key), STANDARD.encode(&after)]);
        std::fs::remove_file(&file).unwrap();
        assert!(CallKeys::default().now().is_empty());
    }
}
