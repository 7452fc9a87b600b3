//! Whom a gateway on a local cluster trusts outside: the authority that vouches for the sites of the pretended internet.
//!
//! It stays the same from installation to installation, and is gone with the cluster's run folder. Whoever plays the sites
//! finds it there.

use std::{
    fs,
    io::{ErrorKind, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use anyhow::{Context, Result};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, KeyPair, KeyUsagePurpose};
use serde_json::json;

use super::NAMESPACE;

/// The ConfigMap with the certificate.
pub(super) const CONFIG_MAP: &str = "world-roots";
/// Certificate and key in one file of the run folder: both are there, or neither.
const FILE: &str = "world-authority.pem";

/// The authority's certificate; made if there is none yet.
pub(super) fn certificate(run: &Path) -> Result<String> {
    let path = run.join(FILE);
    let shown = || path.display().to_string();
    match fs::read_to_string(&path) {
        Ok(text) => return Ok(text),
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error).with_context(shown),
    }
    let mut params = CertificateParams::new(Vec::new())?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    params.distinguished_name.push(DnType::CommonName, "the world's authority");
    let key = KeyPair::generate()?;
    let text = params.self_signed(&key)?.pem() + &key.serialize_pem();
    let partial = run.join(format!("{FILE}.{}", std::process::id()));
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&partial)?;
    file.write_all(text.as_bytes())?;
    fs::rename(&partial, &path).with_context(shown)?;
    Ok(text)
}

/// The namespace of the installation, with the certificate in a ConfigMap: for `kubectl apply`.
pub(super) fn manifest(run: &Path) -> Result<String> {
    let text = certificate(run)?;
    let end = "-----END CERTIFICATE-----\n";
    let length = text.find(end).with_context(|| format!("{FILE} holds no certificate"))? + end.len();
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": CONFIG_MAP, "namespace": NAMESPACE},
        "data": {"ca.crt": &text[..length]},
    });
    Ok(json!({"apiVersion": "v1", "kind": "List", "items": [namespace, map]}).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_authority_is_made_once_and_its_key_is_told_to_nobody() {
        let run = std::env::temp_dir().join(format!("glovebox-world-{}", std::process::id()));
        fs::create_dir_all(&run).unwrap();
        let first = manifest(&run).unwrap();
        assert!(first.contains("BEGIN CERTIFICATE") && !first.contains("PRIVATE KEY"), "{first}");
        assert_eq!(manifest(&run).unwrap(), first);
        assert!(fs::read_to_string(run.join(FILE)).unwrap().contains("PRIVATE KEY"));
        fs::remove_dir_all(&run).unwrap();
    }
}
