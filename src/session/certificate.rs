//! Who shows a client certificate of the cluster: the authority that vouches for users, and whom a certificate names.
//!
//! The same reading as the API server's: the common name is the user, each organization a group. Must take no certificate but what
//! the other end of the TLS connection has proven to hold: a header that speaks of one is a header like any other.

use std::sync::Arc;

use anyhow::{Context as _, ensure};
use arc_swap::ArcSwapOption;
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme,
    client::danger::HandshakeSignatureValid,
    crypto::{self, CryptoProvider, aws_lc_rs::default_provider},
    pki_types::{CertificateDer, UnixTime, pem::PemObject as _},
    server::{
        WebPkiClientVerifier,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
};
use tokio::sync::watch;
use x509_parser::{oid_registry, parse_x509_certificate};

/// The group of everybody whom the API server knows.
const AUTHENTICATED: &str = "system:authenticated";

/// The certificates that the other end of a connection has shown, its own first. Made by the listener alone.
#[derive(Clone, Debug)]
pub(super) struct Peer(Arc<[CertificateDer<'static>]>);

impl Peer {
    /// What a TLS connection says that its other end has proven.
    pub(super) fn of(shown: Option<&[CertificateDer<'static>]>) -> Option<Self> {
        shown.filter(|chain| !chain.is_empty()).map(|chain| Self(chain.into()))
    }
}

/// Whom a certificate names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) user: String,
    pub(super) groups: Vec<String>,
}

#[derive(Debug)]
struct Trusted {
    pem: String,
    verifier: Arc<dyn ClientCertVerifier>,
}

/// Who vouches for the cluster's users; nobody, until the cluster says who.
#[derive(Debug, Default)]
pub struct Authority {
    trusted: ArcSwapOption<Trusted>,
    asked: watch::Sender<bool>,
}

impl Authority {
    /// Takes these certificates in place of those before. Whether they are others.
    ///
    /// # Errors
    /// When there is none, or one that can't be used; then nobody vouches any more.
    pub fn trust(&self, pem: &str) -> anyhow::Result<bool> {
        if self.trusted.load().as_ref().is_some_and(|known| known.pem == pem) {
            return Ok(false);
        }
        let taken = Trusted::read(pem);
        self.trusted.store(taken.as_ref().ok().cloned());
        taken.map(|_| true)
    }

    /// Takes no certificate from now on, also on connections that are open.
    pub fn distrust(&self) {
        self.trusted.store(None);
    }

    /// The cluster was asked, whatever it said.
    pub fn was_asked(&self) {
        self.asked.send_replace(true);
    }

    /// Waits until the cluster was asked.
    pub(super) async fn asked(&self) {
        let mut told = self.asked.subscribe();
        // The sender is here, so that it can't be gone.
        let _ = told.wait_for(|asked| *asked).await;
    }

    fn verify(
        &self,
        own: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        match &*self.trusted.load() {
            Some(trusted) => trusted.verifier.verify_client_cert(own, others, now),
            None => Err(CertificateError::UnknownIssuer.into()),
        }
    }

    /// Whom the other end is, by the time that it is now: a connection may outlive its certificate, or the trust in it.
    pub(super) fn who(&self, peer: &Peer) -> Option<Named> {
        let (own, others) = peer.0.split_first()?;
        self.verify(own, others, UnixTime::now()).ok()?;
        named(own)
    }
}

impl Trusted {
    fn read(pem: &str) -> anyhow::Result<Arc<Self>> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
            roots.add(certificate.ok().context("this is no PEM")?).context("a certificate can't be used")?;
        }
        ensure!(!roots.is_empty(), "there is no certificate in it");
        let builder = WebPkiClientVerifier::builder_with_provider(roots.into(), default_provider().into());
        let verifier = builder.allow_unauthenticated().build()?;
        Ok(Arc::new(Self { pem: pem.to_owned(), verifier }))
    }
}

/// Whom a certificate names that was verified. One whose words can't all be read names nobody.
fn named(certificate: &CertificateDer<'_>) -> Option<Named> {
    let (rest, parsed) = parse_x509_certificate(certificate).ok()?;
    let (mut user, mut groups) = (None, Vec::new());
    for attribute in parsed.subject().iter_attributes() {
        let text = || attribute.as_str().ok().map(ToOwned::to_owned);
        if *attribute.attr_type() == oid_registry::OID_X509_COMMON_NAME {
            // Of several the last counts, as for the API server.
            user = Some(text()?);
        } else if *attribute.attr_type() == oid_registry::OID_X509_ORGANIZATION_NAME {
            groups.push(text()?);
        }
    }
    if !groups.iter().any(|group| group == AUTHENTICATED) {
        groups.push(AUTHENTICATED.to_owned());
    }
    let user = user.filter(|name| rest.is_empty() && !name.is_empty())?;
    Some(Named { user, groups })
}

/// Asks for a certificate, and needs none: whoever has a token shows that. One that is shown must be good.
#[derive(Debug)]
pub(super) struct Optional {
    authority: Arc<Authority>,
    provider: CryptoProvider,
}

impl Optional {
    pub(super) fn new(authority: Arc<Authority>) -> Arc<Self> {
        Arc::new(Self { authority, provider: default_provider() })
    }
}

impl ClientCertVerifier for Optional {
    fn offer_client_auth(&self) -> bool {
        self.authority.trusted.load().is_some()
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        own: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.authority.verify(own, others, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.provider.signature_verification_algorithms;
        crypto::verify_tls12_signature(message, certificate, signed, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.provider.signature_verification_algorithms;
        crypto::verify_tls13_signature(message, certificate, signed, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};

    use super::*;

    fn made(names: &[(DnType, &str)]) -> CertificateDer<'static> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        for (kind, text) in names {
            params.distinguished_name.push(kind.clone(), *text);
        }
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
    }

    #[test]
    fn a_certificate_names_a_user_and_groups() {
        let (cn, o) = (DnType::CommonName, DnType::OrganizationName);
        let ada = named(&made(&[(o, "devs"), (cn, "ada"), (DnType::CountryName, "DE")])).unwrap();
        assert_eq!((ada.user.as_str(), ada.groups), ("ada", vec!["devs".into(), AUTHENTICATED.into()]));
        let bob = named(&made(&[(DnType::CommonName, "bob")])).unwrap();
        assert_eq!(bob.groups, [AUTHENTICATED]);
        for nobody in [&[][..], &[(DnType::CommonName, "")], &[(DnType::OrganizationName, "system:masters")]]
        {
            assert_eq!(named(&made(nobody)), None);
        }
        assert_eq!(named(&CertificateDer::from(vec![0x30, 0])), None);
    }

    #[test]
    fn what_is_no_certificate_vouches_for_nobody() {
        let authority = Authority::default();
        let ada = Peer::of(Some(&[made(&[(DnType::CommonName, "ada")])])).unwrap();
        assert_eq!(authority.who(&ada), None);
        let pem = rcgen::generate_simple_self_signed(["ca".to_owned()]).unwrap().cert.pem();
        assert!(authority.trust(&pem).unwrap() && !authority.trust(&pem).unwrap());
        assert_eq!(authority.who(&ada), None);
        for bad in ["", "nothing", "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"] {
            authority.trust(&pem).unwrap();
            assert!(authority.trust(bad).is_err(), "{bad}");
            assert!(authority.trusted.load().is_none(), "nobody vouches any more");
        }
        assert!(Peer::of(None).is_none() && Peer::of(Some(&[])).is_none());
    }
}
