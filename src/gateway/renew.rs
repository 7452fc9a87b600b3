//! The files of what opens TLS: the authority, its key, and further roots. Read at the start, and again when they change.
//!
//! What can't be read or used leaves what was; the key is read here and kept nowhere but in memory.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::Context as _;
use tokio_util::sync::CancellationToken;

use super::{admit::Gateway, ca::Ca, clock::Clock, config::Options, opened::Opener, trust::Trust};
use crate::mounted;

/// Where they are.
#[derive(Clone, Debug)]
pub(super) struct Files {
    certificate: PathBuf,
    key: PathBuf,
    roots: Option<PathBuf>,
}

/// What is in them.
#[derive(PartialEq, Eq)]
struct Texts {
    certificate: String,
    key: String,
    roots: Option<String>,
}

impl Files {
    /// Those of the command line; none where nothing is to be opened.
    pub(super) fn of(options: &Options) -> Option<Self> {
        let (certificate, key) = (options.ca_cert.clone()?, options.ca_key.clone()?);
        Some(Self { certificate, key, roots: options.extra_roots.clone() })
    }

    /// The authority.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn authority(&self) -> anyhow::Result<Ca> {
        self.texts()?.authority()
    }

    fn texts(&self) -> anyhow::Result<Texts> {
        Ok(Texts {
            certificate: text("--ca-cert", &self.certificate)?,
            key: text("--ca-key", &self.key)?,
            roots: self.roots.as_deref().map(|file| text("--extra-roots", file)).transpose()?,
        })
    }
}

impl Texts {
    fn authority(&self) -> anyhow::Result<Ca> {
        Ca::from_pem(&self.certificate, &self.key).context("--ca-cert and --ca-key")
    }

    fn opener(&self, trust: &Trust) -> anyhow::Result<Opener> {
        let trust = wider(trust, self.roots.as_deref())?;
        Ok(Opener::new(self.authority()?, &trust)?)
    }
}

/// Whom to trust outside, with those of the command line.
///
/// # Errors
/// When the file can't be read or holds none.
pub(super) fn trust(base: &Trust, options: &Options) -> anyhow::Result<Trust> {
    let roots = options.extra_roots.as_deref().map(|file| text("--extra-roots", file)).transpose()?;
    wider(base, roots.as_deref())
}

fn wider(base: &Trust, roots: Option<&str>) -> anyhow::Result<Trust> {
    roots.map_or_else(|| Ok(base.clone()), |roots| base.and(roots).context("--extra-roots"))
}

fn text(flag: &str, file: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(file).with_context(|| format!("{flag}: can't read {}", file.display()))
}

/// Looks at the files until `stop`. Flows that are open go on; whoever comes next meets the new authority.
pub(super) async fn follow(files: Files, trust: Trust, gateway: Arc<Gateway>, stop: CancellationToken) {
    let take = |texts: &Texts| {
        let opener = texts.opener(&trust)?;
        say(&opener.ca);
        gateway.metrics.authority(opener.ca.expires());
        gateway.opener.store(Some(Arc::new(opener)));
        Ok(())
    };
    let stays = "TLS goes on being opened with the authority that was read before";
    let follow = mounted::follow(gateway.timing.renew, None, stays, || files.texts(), take);
    stop.run_until_cancelled(follow).await;
}

fn say(ca: &Ca) {
    let expires = ca.expires();
    if expires <= Clock::wall() {
        tracing::error!(%expires, "the authority has expired: no client will trust what the gateway opens");
    } else {
        tracing::info!(%expires, "TLS is opened with this authority");
    }
}
