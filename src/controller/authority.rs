//! The certificate of the installation's authority, which every sandbox is told to trust: read from a file, and again when the
//! file changes.
//!
//! Must take certificates alone: what is read here is written into every pod, so that a file with a key in it is refused.

use std::{
    path::Path,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use anyhow::{Context as _, ensure};

use crate::{mounted, pem};

/// How often it is looked whether the file changed. The kubelet itself takes about a minute.
const LOOK: Duration = Duration::from_secs(10);
/// Longest text, in bytes: it is an argument of every pod.
const MOST: usize = 16 * 1024;

/// What was read last; nothing where the installation opens no TLS.
#[derive(Debug, Default)]
pub(super) struct Authority(RwLock<Option<Arc<str>>>);

impl Authority {
    /// What is to be trusted now, as PEM.
    pub(super) fn now(&self) -> Option<Arc<str>> {
        // The value is whole whatever panicked: it is replaced at once.
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads a file for the first time.
    ///
    /// # Errors
    /// When it holds no certificate, or more than that.
    pub(super) fn read(file: &Path) -> anyhow::Result<Self> {
        Ok(Self(RwLock::new(Some(certificates(file)?))))
    }

    /// Reads it again whenever it changes, for ever. What can't be read leaves what was.
    pub(super) async fn follow(&self, file: &Path) {
        let take = |read: &Arc<str>| {
            tracing::info!(file = %file.display(), "the authority changed; sandboxes that are made from now on trust the new one");
            *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(read.clone());
            Ok(())
        };
        let stays = "--egress-ca: sandboxes go on with the authority that was read before";
        mounted::follow(LOOK, self.now(), stays, || certificates(file), take).await;
    }
}

/// The certificates of a file that holds nothing secret: what is read by this may be written into pods.
///
/// # Errors
/// When there is none, or a private key beside it.
pub(super) fn public(file: &Path) -> anyhow::Result<Vec<String>> {
    let text = std::fs::read(file).with_context(|| format!("can't read {}", file.display()))?;
    let name = file.display();
    ensure!(!pem::has_private_key(&text), "{name} holds a private key; name a file with certificates alone");
    let found = pem::certificates(&text);
    ensure!(!found.is_empty(), "{name} holds no certificate as PEM");
    Ok(found)
}

fn certificates(file: &Path) -> anyhow::Result<Arc<str>> {
    let found = public(file)?.concat();
    let name = file.display();
    ensure!(
        found.len() <= MOST,
        "the certificates of {name} have {} bytes, at most {MOST} are taken",
        found.len()
    );
    Ok(found.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n";

    #[tokio::test(start_paused = true)]
    async fn a_file_is_taken_for_certificates_alone_and_followed() {
        let file = std::env::temp_dir().join(format!("glovebox-authority-{}", std::process::id()));
        let refused = |text: &str| {
            std::fs::write(&file, text).unwrap();
            format!("{:#}", Authority::read(&file).unwrap_err())
        };
        assert!(refused("").contains("no certificate"));
        assert!(refused(&format!("{ONE}-----BEGIN EC PRIVATE KEY-----\nMIIB\n")).contains("private key"));
        assert!(refused(&ONE.repeat(400)).contains("at most"));
        std::fs::write(&file, format!("around\n{ONE}")).unwrap();
        let authority = Authority::read(&file).unwrap();
        assert_eq!(authority.now().as_deref(), Some(ONE));
        let until = async |text: &str, wanted: &str| {
            std::fs::write(&file, text).unwrap();
            tokio::time::timeout(LOOK * 3, authority.follow(&file)).await.unwrap_err();
            assert_eq!(authority.now().as_deref(), Some(wanted));
        };
        until(&ONE.repeat(2), &ONE.repeat(2)).await;
        until("nothing any more", &ONE.repeat(2)).await;
        until(ONE, ONE).await;
        std::fs::remove_file(&file).unwrap();
        assert!(Authority::default().now().is_none());
    }
}
