//! The internet: an authority for every name that counts what it is asked, and servers of TLS, HTTP and plain bytes.

use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex},
};

use glovebox::gateway::ca::Ca;
use hickory_proto::{
    op::{Message, Metadata, OpCode, ResponseCode},
    rr::{Name, RData, Record, RecordType, rdata::CNAME},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, UdpSocket},
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{self, RootCertStore, ServerConfig, pki_types::PrivateKeyDer},
};

/// What a name leads to.
#[derive(Clone)]
pub(crate) enum Zone {
    /// Addresses.
    To(Vec<IpAddr>),
    /// One of these at each query, in turn, with TTL 0.
    Turns(Vec<Vec<IpAddr>>),
    /// Another name, in answers of their own.
    Alias(String),
    /// So many aliases in one answer, then the address.
    Chain(usize, IpAddr),
    /// No answer at all.
    Silence,
}

/// The authority.
#[derive(Clone, Default)]
pub(crate) struct Authority {
    zones: Arc<Mutex<HashMap<String, Zone>>>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Authority {
    pub(crate) fn set(&self, name: &str, zone: Zone) {
        self.zones.lock().unwrap().insert(format!("{name}."), zone);
    }

    /// Every name it was asked for, as it was spelled.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }

    pub(crate) async fn serve(&self) -> SocketAddr {
        let (udp, tcp) = loop {
            let udp = UdpSocket::bind("127.0.0.1:0").await.unwrap();
            if let Ok(tcp) = TcpListener::bind(udp.local_addr().unwrap()).await {
                break (udp, tcp);
            }
        };
        let address = udp.local_addr().unwrap();
        let this = self.clone();
        tokio::spawn(async move {
            let mut buffer = [0; 4096];
            loop {
                let (length, peer) = udp.recv_from(&mut buffer).await.unwrap();
                if let Some(reply) = this.answer(&buffer[..length]) {
                    udp.send_to(&reply, peer).await.unwrap();
                }
            }
        });
        let this = self.clone();
        tokio::spawn(async move {
            loop {
                let (stream, _) = tcp.accept().await.unwrap();
                let this = this.clone();
                tokio::spawn(async move { this.framed(stream).await });
            }
        });
        address
    }

    /// By TLS alone, under a name.
    pub(crate) async fn serve_tls(&self, name: &str) -> (SocketAddr, RootCertStore) {
        let (acceptor, roots, _) = certified(&[name]);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let this = self.clone();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (this, acceptor) = (this.clone(), acceptor.clone());
                tokio::spawn(async move {
                    if let Ok(stream) = acceptor.accept(stream).await {
                        this.framed(stream).await;
                    }
                });
            }
        });
        (address, roots)
    }

    async fn framed(&self, mut stream: impl AsyncRead + AsyncWrite + Unpin) {
        while let Ok(length) = stream.read_u16().await {
            let mut query = vec![0; length.into()];
            stream.read_exact(&mut query).await.unwrap();
            let Some(reply) = self.answer(&query) else { continue };
            stream.write_u16(reply.len().try_into().unwrap()).await.unwrap();
            stream.write_all(&reply).await.unwrap();
            stream.flush().await.unwrap();
        }
    }

    fn answer(&self, query: &[u8]) -> Option<Vec<u8>> {
        let query = Message::from_vec(query).unwrap();
        let question = query.queries[0].clone();
        let asked = question.name.to_ascii();
        self.asked.lock().unwrap().push(asked.clone());
        let mut reply = Message::response(query.metadata.id, OpCode::Query);
        reply.metadata = Metadata::response_from_request(&query.metadata);
        reply.add_query(question.clone());
        let address =
            |name: Name, ttl: u32, address: IpAddr| Record::from_rdata(name, ttl, RData::from(address));
        let matching = |address: &IpAddr| address.is_ipv4() == (question.query_type == RecordType::A);
        let mut zones = self.zones.lock().unwrap();
        match zones.get_mut(&asked.to_ascii_lowercase()) {
            None => {
                reply.metadata.response_code = ResponseCode::NXDomain;
            }
            Some(Zone::Silence) => return None,
            Some(Zone::To(all)) => {
                for ip in all.iter().copied().filter(matching) {
                    reply.add_answer(address(question.name.clone(), 60, ip));
                }
            }
            Some(Zone::Turns(turns)) => {
                let now = turns[0].clone();
                turns.rotate_left(1);
                for ip in now.into_iter().filter(matching) {
                    reply.add_answer(address(question.name.clone(), 0, ip));
                }
            }
            Some(Zone::Alias(to)) => {
                let to = RData::CNAME(CNAME(Name::from_ascii(format!("{to}.")).unwrap()));
                reply.add_answer(Record::from_rdata(question.name.clone(), 60, to));
            }
            Some(Zone::Chain(hops, ip)) => {
                let mut name = question.name.clone();
                for hop in 0..*hops {
                    let next = Name::from_ascii(format!("hop{hop}.alias.example.")).unwrap();
                    reply.add_answer(Record::from_rdata(name, 60, RData::CNAME(CNAME(next.clone()))));
                    name = next;
                }
                if matching(ip) {
                    reply.add_answer(address(name, 60, *ip));
                }
            }
        }
        Some(reply.to_vec().unwrap())
    }
}

/// How often a server was connected to.
pub(crate) type Visits = Arc<Mutex<usize>>;

/// Sends back what it gets, and its end.
pub(crate) async fn echo(address: &str) -> (SocketAddr, Visits) {
    let listener = TcpListener::bind(address).await.unwrap();
    let (address, visits) = (listener.local_addr().unwrap(), Visits::default());
    let counted = visits.clone();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            *counted.lock().unwrap() += 1;
            tokio::spawn(async move {
                let (mut read, mut write) = stream.split();
                let _ = tokio::io::copy(&mut read, &mut write).await;
                let _ = write.shutdown().await;
            });
        }
    });
    (address, visits)
}

/// An authority of an installation, and what trusts it.
pub(crate) fn authority() -> (Ca, RootCertStore) {
    let mut params = rcgen::CertificateParams::new(vec![]).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params.distinguished_name.push(rcgen::DnType::CommonName, "glovebox test");
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(certificate.der().clone()).unwrap();
    (Ca::from_pem(&certificate.pem(), &key.serialize_pem()).unwrap(), roots)
}

/// A certificate for some names, what trusts it, and the same as PEM.
fn certified(names: &[&str]) -> (TlsAcceptor, RootCertStore, String) {
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    let made = rcgen::generate_simple_self_signed(names).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    (TlsAcceptor::from(Arc::new(config)), roots, made.cert.pem())
}

/// A TLS server for some names, which sends back what it gets.
pub(crate) async fn tls(address: &str, names: &[&str]) -> (SocketAddr, Visits, RootCertStore) {
    let (acceptor, roots, _) = certified(names);
    let listener = TcpListener::bind(address).await.unwrap();
    let (address, visits) = (listener.local_addr().unwrap(), Visits::default());
    let counted = visits.clone();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            *counted.lock().unwrap() += 1;
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                let (mut read, mut write) = tokio::io::split(stream);
                let _ = tokio::io::copy(&mut read, &mut write).await;
                let _ = write.shutdown().await;
            });
        }
    });
    (address, visits, roots)
}

/// As [`http`], by TLS.
pub(crate) async fn https(
    address: &str,
    name: &str,
    answer: &'static str,
) -> (Requests, RootCertStore, String) {
    let (acceptor, roots, pem) = certified(&[name]);
    let listener = TcpListener::bind(address).await.unwrap();
    let requests = Requests::default();
    let kept = requests.clone();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let (acceptor, kept) = (acceptor.clone(), kept.clone());
            tokio::spawn(async move {
                if let Ok(stream) = acceptor.accept(stream).await {
                    speak_http(stream, kept, answer).await;
                }
            });
        }
    });
    (requests, roots, pem)
}

/// Each request's bytes, as a server got them.
pub(crate) type Requests = Arc<Mutex<Vec<String>>>;

/// An HTTP server that keeps connections open whatever it is told, and answers each request on them with `answer`.
pub(crate) async fn http(address: &str, answer: &'static str) -> (SocketAddr, Requests) {
    let listener = TcpListener::bind(address).await.unwrap();
    let (address, requests) = (listener.local_addr().unwrap(), Requests::default());
    let kept = requests.clone();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(speak_http(stream, kept.clone(), answer));
        }
    });
    (address, requests)
}

pub(crate) const AGREED: &str =
    "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";

/// Naive on purpose: it would serve a smuggled request.
async fn speak_http(mut stream: impl AsyncRead + AsyncWrite + Unpin, kept: Requests, answer: &'static str) {
    let mut bytes = Vec::new();
    let mut buffer = [0; 8192];
    loop {
        while let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end + 4]).into_owned();
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("Content-Length: "))
                .map_or(0, |length| length.parse().unwrap());
            let mut request: Vec<u8> = bytes.drain(..end + 4).collect();
            let chunked = head.contains("Transfer-Encoding: chunked");
            while if chunked { !bytes.ends_with(b"0\r\n\r\n") } else { bytes.len() < length } {
                match stream.read(&mut buffer).await {
                    Ok(read) if read > 0 => bytes.extend(&buffer[..read]),
                    _ => return,
                }
            }
            let body = if chunked { bytes.len() } else { length };
            request.extend(bytes.drain(..body));
            kept.lock().unwrap().push(String::from_utf8_lossy(&request).into_owned());
            if head.contains("Upgrade: websocket") {
                stream.write_all(AGREED.as_bytes()).await.unwrap();
                let (mut read, mut write) = tokio::io::split(stream);
                let _ = tokio::io::copy(&mut read, &mut write).await;
                let _ = write.shutdown().await;
                return;
            }
            if stream.write_all(answer.as_bytes()).await.is_err() {
                return;
            }
        }
        match stream.read(&mut buffer).await {
            Ok(read) if read > 0 => bytes.extend(&buffer[..read]),
            _ => return,
        }
    }
}
