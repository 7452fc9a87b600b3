//! The session's files: its certificate, and the key that calls are signed with. Read at the start, and again when they change.
//!
//! What can't be read or used leaves what was.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, ensure};
use arc_swap::ArcSwap;
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};

use super::{
    certificate::{Authority, Optional},
    config::Options,
    key::{self, Key},
};
use crate::mounted;

/// Where the certificate and its key are.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    certificate: PathBuf,
    key: PathBuf,
    /// Who vouches for callers, where certificates are taken.
    clients: Option<Arc<Authority>>,
}

/// What is in them.
#[derive(PartialEq, Eq)]
struct Texts {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl Files {
    /// Those of the command line; none where TLS is not wanted.
    ///
    /// # Errors
    /// When there are none and TLS is wanted.
    pub(super) fn of(options: &Options, authority: &Arc<Authority>) -> anyhow::Result<Option<Self>> {
        let clients = options.client_certificates.then(|| authority.clone());
        let files = options.tls_cert.clone().zip(options.tls_key.clone());
        let files = files.map(|(certificate, key)| Self::new(certificate, key, clients));
        ensure!(
            files.is_some() != options.insecure_http,
            "--tls-cert and --tls-key are needed, unless --insecure-http is set"
        );
        Ok(files)
    }

    /// These, and who vouches for callers where their certificates are taken.
    pub(crate) const fn new(certificate: PathBuf, key: PathBuf, clients: Option<Arc<Authority>>) -> Self {
        Self { certificate, key, clients }
    }

    fn texts(&self) -> anyhow::Result<Texts> {
        Ok(Texts {
            certificate: bytes("--tls-cert", &self.certificate)?,
            key: bytes("--tls-key", &self.key)?,
        })
    }

    /// What TLS is made with.
    ///
    /// # Errors
    /// What is wrong with the files.
    pub(crate) fn read(&self) -> anyhow::Result<ServerConfig> {
        self.texts()?.config(self.clients.as_ref())
    }

    /// Reads them again whenever they change, for ever. Open connections go on.
    pub(crate) async fn follow(&self, every: Duration, tls: &ArcSwap<ServerConfig>) {
        let take = |texts: &Texts| {
            tls.store(Arc::new(texts.config(self.clients.as_ref())?));
            tracing::info!("the certificate was read");
            Ok(())
        };
        let stays = "the certificate that was read before is still used";
        mounted::follow(every, None, stays, || self.texts(), take).await;
    }
}

impl Texts {
    fn config(&self, clients: Option<&Arc<Authority>>) -> anyhow::Result<ServerConfig> {
        let chain: Vec<_> = CertificateDer::pem_slice_iter(&self.certificate)
            .collect::<Result<_, _>>()
            .ok()
            .context("--tls-cert: this is no certificate as PEM")?;
        ensure!(!chain.is_empty(), "--tls-cert: there is no certificate as PEM");
        // The parser's own words could repeat what it read.
        let key =
            PrivateKeyDer::from_pem_slice(&self.key).ok().context("--tls-key: there is no key as PEM")?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let builder = match clients {
            Some(authority) => builder.with_client_cert_verifier(Optional::new(authority.clone())),
            None => builder.with_no_client_auth(),
        };
        let mut config = builder.with_single_cert(chain, key).context("--tls-cert and --tls-key")?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(config)
    }
}

fn bytes(flag: &str, file: &Path) -> anyhow::Result<Vec<u8>> {
    std::fs::read(file).with_context(|| format!("{flag}: can't read {}", file.display()))
}

/// Reads the signing key again whenever it changes, for ever. Calls that run go on.
pub(super) async fn follow_key(file: &Path, every: Duration, key: &Key) {
    let take = |text: &String| {
        key.replace(text)?;
        tracing::info!("calls are signed with the key that was read");
        Ok(())
    };
    let stays = "--signing-key: calls go on being signed with the key that was read before";
    mounted::follow(every, None, stays, || key::text(file), take).await;
}
