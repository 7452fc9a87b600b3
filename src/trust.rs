//! Whom a role trusts when it connects: the roots of the web, those that its owner adds, or those of a file alone.

use std::sync::Arc;

use anyhow::{Context as _, ensure};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, pem::PemObject as _},
};

/// Certificates that a chain may end in.
#[derive(Clone, Debug)]
pub struct Trust(Arc<RootCertStore>);

impl Default for Trust {
    fn default() -> Self {
        Self::of(RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() })
    }
}

impl Trust {
    /// These alone.
    #[must_use]
    pub fn of(roots: RootCertStore) -> Self {
        Self(Arc::new(roots))
    }

    /// Those of a text of PEM alone.
    ///
    /// # Errors
    /// As [`Trust::and`].
    pub fn alone(text: &str) -> anyhow::Result<Self> {
        Self::of(RootCertStore::empty()).and(text)
    }

    /// These, and every authority of a text of PEM.
    ///
    /// # Errors
    /// When there is none in it, or one can't be read: whoever adds authorities means all of them.
    pub fn and(&self, text: &str) -> anyhow::Result<Self> {
        let mut roots = RootCertStore::clone(&self.0);
        let mut added = 0;
        for certificate in CertificateDer::pem_slice_iter(text.as_bytes()) {
            added += 1;
            let certificate = certificate.with_context(|| format!("certificate {added} is no PEM"))?;
            roots.add(certificate).with_context(|| format!("certificate {added} can't be read"))?;
        }
        ensure!(added > 0, "no certificate as PEM, which begins with -----BEGIN CERTIFICATE-----");
        Ok(Self::of(roots))
    }

    /// A client that takes nothing less than a good chain for the right name, and speaks these protocols.
    ///
    /// # Errors
    /// When TLS can't be set up.
    pub fn client(&self, protocols: &[&[u8]]) -> Result<ClientConfig, rustls::Error> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(self.0.clone())
            .with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        Ok(config)
    }
}
