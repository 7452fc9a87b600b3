//! The installation's own authority: certificates for hosts whose rule has the gateway look at requests.
//!
//! Its key never leaves the process. A certificate is made for a name that policy allowed, and for no other.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use jiff::{SignedDuration, Timestamp};
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair};
use rustls::{
    ServerConfig,
    crypto::aws_lc_rs,
    pki_types::{
        CertificateDer, PrivateKeyDer,
        pem::{self, PemObject as _},
    },
};
use time::OffsetDateTime;
use x509_parser::{certificate::X509Certificate, parse_x509_certificate};

use crate::policy::Host;

/// Hosts whose certificates are kept.
const MOST_KEPT: usize = 1024;
/// Clocks of sandboxes may be behind.
const BEFORE: SignedDuration = SignedDuration::from_hours(1);
const VALID: SignedDuration = SignedDuration::from_hours(7 * 24);
/// After that it is made anew, long before it ends.
const KEPT: SignedDuration = SignedDuration::from_hours(24);
/// Longest common name of X.509; longer hosts are in the alternative name alone.
const MOST_COMMON_NAME: usize = 64;

/// Why there is no authority, or no certificate of it.
#[derive(Debug, thiserror::Error)]
pub enum CaError {
    /// No certificate of an authority.
    #[error("no certificate as PEM, which begins with -----BEGIN CERTIFICATE-----")]
    NoCertificate,
    /// No key.
    #[error(
        "no private key as PEM without a password: PKCS#8, SEC1 (EC PRIVATE KEY) or PKCS#1 (RSA PRIVATE KEY)"
    )]
    NoKey,
    /// PEM that is broken.
    #[error("PEM: {0}")]
    Pem(pem::Error),
    /// A certificate that is broken.
    #[error("a certificate of the file can't be read")]
    Unreadable,
    /// A certificate of a server, say.
    #[error(
        "the first certificate is not an authority's: it needs CA:TRUE, and the use keyCertSign if it has key uses"
    )]
    NotAnAuthority,
    /// The two are not of one pair.
    #[error("the key is not that of the first certificate")]
    NotOfOnePair,
    /// A subject that can't be repeated as the issuer of other certificates.
    #[error(
        "the subject of the first certificate is one that can't be repeated; give it a common name and nothing twice"
    )]
    Subject,
    /// A certificate can't be read or made.
    #[error("certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    /// TLS does not take it.
    #[error("TLS: {0}")]
    Tls(#[from] rustls::Error),
    /// The end of time.
    #[error("time: {0}")]
    Time(#[from] time::error::ComponentRange),
}

/// The authority, with what it made.
pub struct Ca {
    issuer: Issuer<'static, KeyPair>,
    /// What is sent after a host's certificate: nothing, unless the authority has its power from another one.
    chain: Vec<CertificateDer<'static>>,
    expires: Timestamp,
    /// One for all hosts: it is as secret as the authority's own.
    key: KeyPair,
    made: Mutex<HashMap<Host, (Arc<ServerConfig>, Timestamp)>>,
}

impl fmt::Debug for Ca {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ca")
    }
}

impl Ca {
    /// From a certificate and its key, as PEM: what Helm, cert-manager and openssl write. Behind the certificate may stand those
    /// of the authorities above it.
    ///
    /// # Errors
    /// When either can't be read or used, or the two do not belong together.
    pub fn from_pem(certificate: &str, key: &str) -> Result<Self, CaError> {
        let all: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(certificate.as_bytes())
            .collect::<Result<_, _>>()
            .map_err(CaError::Pem)?;
        let first = all.first().ok_or(CaError::NoCertificate)?;
        // Whatever stands before the key, such as EC PARAMETERS, is passed over.
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|error| match error {
            pem::Error::NoItemsFound => CaError::NoKey,
            error => CaError::Pem(error),
        })?;
        let issuer = Issuer::from_ca_cert_der(first, KeyPair::try_from(&key)?)?;
        let parsed = all.iter().map(|one| read(one)).collect::<Result<Vec<_>, _>>()?;
        let own = parsed.first().ok_or(CaError::NoCertificate)?;
        judge(own, issuer.key())?;
        let is_root = |one: &X509Certificate<'_>| one.subject().as_raw() == one.issuer().as_raw();
        let between = all.iter().zip(&parsed).filter(|(_, parsed)| !is_root(parsed));
        let ca = Self {
            chain: between.map(|(der, _)| der.clone()).collect(),
            expires: Timestamp::from_second(own.validity().not_after.timestamp()).unwrap_or(Timestamp::MAX),
            issuer,
            key: KeyPair::generate()?,
            made: Mutex::default(),
        };
        // A client finds the authority by its name, byte by byte.
        let probe = ca.certificate("probe.invalid", Timestamp::UNIX_EPOCH)?;
        if read(&probe)?.issuer().as_raw() != own.subject().as_raw() {
            return Err(CaError::Subject);
        }
        Ok(ca)
    }

    /// When clients stop trusting it.
    #[must_use]
    pub const fn expires(&self) -> Timestamp {
        self.expires
    }

    /// How TLS is spoken in the name of a host.
    ///
    /// # Errors
    /// When no certificate can be made.
    pub fn server(&self, host: &Host, now: Timestamp) -> Result<Arc<ServerConfig>, CaError> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((config, at)) = made.get(host)
            && now.duration_since(*at) < KEPT
        {
            return Ok(config.clone());
        }
        let config = Arc::new(self.make(host, now)?);
        if made.len() >= MOST_KEPT {
            made.clear();
        }
        made.insert(host.clone(), (config.clone(), now));
        Ok(config)
    }

    fn certificate(&self, host: &str, now: Timestamp) -> Result<CertificateDer<'static>, CaError> {
        let mut params = CertificateParams::new(vec![host.to_owned()])?;
        params.distinguished_name = rcgen::DistinguishedName::new();
        if host.len() <= MOST_COMMON_NAME {
            params.distinguished_name.push(DnType::CommonName, host);
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let moment = |at: Timestamp| OffsetDateTime::from_unix_timestamp(at.as_second());
        params.not_before = moment(now - BEFORE)?;
        params.not_after = moment(now + VALID)?;
        Ok(params.signed_by(&self.key, &self.issuer)?.der().clone())
    }

    fn make(&self, host: &Host, now: Timestamp) -> Result<ServerConfig, CaError> {
        let mut chain = vec![self.certificate(host.as_str(), now)?];
        chain.extend(self.chain.iter().cloned());
        let key = PrivateKeyDer::Pkcs8(self.key.serialize_der().into());
        let provider = Arc::new(aws_lc_rs::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
        // What is spoken is what can be judged.
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(config)
    }
}

fn read<'a>(der: &'a CertificateDer<'_>) -> Result<X509Certificate<'a>, CaError> {
    parse_x509_certificate(der).map(|(_, read)| read).map_err(|_| CaError::Unreadable)
}

/// Whether this may sign certificates, and with this key.
fn judge(own: &X509Certificate<'_>, key: &KeyPair) -> Result<(), CaError> {
    let is_authority = own.basic_constraints().ok().flatten().is_some_and(|found| found.value.ca);
    let may_sign =
        own.key_usage().map_err(|_| CaError::Unreadable)?.is_none_or(|uses| uses.value.key_cert_sign());
    if !(is_authority && may_sign) {
        return Err(CaError::NotAnAuthority);
    }
    if own.public_key().subject_public_key.data.as_ref() != key.public_key_raw() {
        return Err(CaError::NotOfOnePair);
    }
    Ok(())
}
