//! What the controller reads of files: whom sandboxes trust, and whose calls agents take.

use std::sync::Arc;

use anyhow::Context as _;

use super::{authority::Authority, call_keys::CallKeys, run::Options};

/// What is read of files, and read again when they change.
#[derive(Clone)]
pub(super) struct Files {
    pub(super) authority: Arc<Authority>,
    pub(super) call_keys: Arc<CallKeys>,
}

impl Files {
    pub(super) fn read(options: &Options) -> anyhow::Result<Self> {
        let authority = match &options.egress_ca {
            Some(file) => Authority::read(file).context("--egress-ca")?,
            None => Authority::default(),
        };
        let call_keys = match &options.call_keys {
            Some(file) => CallKeys::read(file).context("--call-keys")?,
            None => CallKeys::default(),
        };
        Ok(Self { authority: Arc::new(authority), call_keys: Arc::new(call_keys) })
    }

    /// Keeps them current, for ever.
    pub(super) async fn follow(self, options: &Options) {
        let authority = async {
            match &options.egress_ca {
                Some(file) => self.authority.follow(file).await,
                None => std::future::pending().await,
            }
        };
        let call_keys = async {
            match &options.call_keys {
                Some(file) => self.call_keys.follow(file).await,
                None => std::future::pending().await,
            }
        };
        tokio::join!(authority, call_keys);
    }
}
