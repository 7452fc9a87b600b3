//! The forms that an installation's authority comes in: what openssl, Helm and cert-manager write, and what is none.

use std::sync::Arc;

use glovebox::{gateway::ca::Ca, policy::Host};
use jiff::Timestamp;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::{
    TlsAcceptor, TlsConnector,
    rustls::{
        self, RootCertStore,
        pki_types::{CertificateDer, pem::PemObject},
    },
};

macro_rules! pem {
    ($name:literal) => {
        include_str!(concat!("authorities/", $name))
    };
}

pub(crate) const SEC1: (&str, &str) = (pem!("sec1.crt"), pem!("sec1.key"));
pub(crate) const PKCS8: (&str, &str) = (pem!("pkcs8.crt"), pem!("pkcs8.key"));
const BETWEEN: (&str, &str) = (pem!("between.crt"), pem!("between.key"));

/// Whether a client that trusts the last certificate of a text speaks with a host in whose name the authority speaks.
async fn speaks(ca: &Ca, certificate: &str, host: &str) -> bool {
    let mut roots = RootCertStore::empty();
    let last = CertificateDer::pem_slice_iter(certificate.as_bytes()).last().unwrap().unwrap();
    roots.add(last).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let client = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let server = ca.server(&Host::parse(host.as_bytes()).unwrap(), Timestamp::now()).unwrap();
    let (near, far) = tokio::io::duplex(64 * 1024);
    let served = async {
        let mut stream = TlsAcceptor::from(server).accept(far).await?;
        stream.write_all(b"hello").await?;
        stream.shutdown().await
    };
    let asked = async {
        let name = host.to_owned().try_into().unwrap();
        let mut stream = TlsConnector::from(Arc::new(client)).connect(name, near).await?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await.map(|_| text)
    };
    let (_, said) = tokio::join!(served, asked);
    said.is_ok_and(|said| said == "hello")
}

#[tokio::test]
async fn each_form_of_key_and_certificate_is_read_and_used() {
    for (form, (certificate, key)) in [
        ("SEC1 behind its parameters (openssl ecparam)", SEC1),
        ("SEC1 alone (Helm's genPrivateKey ecdsa, cert-manager)", (pem!("helm.crt"), pem!("helm.key"))),
        ("PKCS#1 (Helm's genCA, cert-manager with RSA)", (pem!("pkcs1.crt"), pem!("pkcs1.key"))),
        ("PKCS#8 (cert-manager with encoding PKCS8)", PKCS8),
        ("PKCS#8 of Ed25519", (pem!("ed25519.crt"), pem!("ed25519.key"))),
        ("one below another, with that behind it", BETWEEN),
    ] {
        let ca = Ca::from_pem(certificate, key).unwrap_or_else(|error| panic!("{form}: {error}"));
        assert!(speaks(&ca, certificate, "a.example").await, "{form}");
        let long = format!("{}.example", ["x".repeat(40), "y".repeat(40)].join("."));
        assert!(speaks(&ca, certificate, &long).await, "{form}: a name that is longer than a common name");
        assert!(!speaks(&ca, pem!("twice.crt"), "a.example").await, "{form}: who trusts another");
        assert!(ca.expires() > "2030-01-01T00:00:00Z".parse().unwrap(), "{form}");
    }
    let windows = (SEC1.0.replace('\n', "\r\n"), SEC1.1.replace('\n', "\r\n"));
    assert!(speaks(&Ca::from_pem(&windows.0, &windows.1).unwrap(), SEC1.0, "a.example").await);
}

#[test]
fn what_is_no_authority_is_refused_in_words_that_help() {
    for (certificate, key, expected) in [
        ("", SEC1.1, "no certificate"),
        (SEC1.1, SEC1.1, "no certificate"),
        (SEC1.0, "", "no private key"),
        (SEC1.0, SEC1.0, "no private key"),
        (SEC1.0, pem!("locked8.key"), "without a password"),
        (SEC1.0, pem!("locked.key"), "PEM"),
        (SEC1.0, PKCS8.1, "not that of the first certificate"),
        (PKCS8.0, BETWEEN.1, "not that of the first certificate"),
        (pem!("server.crt"), SEC1.1, "not an authority"),
        (pem!("twice.crt"), SEC1.1, "can't be repeated"),
        ("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", SEC1.1, ""),
    ] {
        let error = Ca::from_pem(certificate, key).unwrap_err().to_string();
        assert!(error.contains(expected), "{expected}: {error}");
        let secret: Vec<&str> =
            key.lines().filter(|line| line.len() > 20 && !line.starts_with('-')).collect();
        assert!(secret.iter().all(|line| !error.contains(line)), "{error}");
    }
}
