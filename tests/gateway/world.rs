//! A gateway, a sandbox or several, and the internet around them. Sandboxes are addresses in 127.0.7.0/24; the internet's
//! servers are in 127.1.0.0/16, which this gateway alone takes for outside.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use glovebox::{
    api::{ClassEgress, EgressRule},
    gateway::{
        Addresses, Listeners, Options, Parts,
        admit::Alarms,
        broker::{self, NoSource},
        clock::Clock,
        config::{Timing, Transport, Upstream},
        directory::Directory,
        entry::Entry,
        reason::Refusal,
        resolve::Checker,
        serve,
        tenant::{Identity, Limits, Tenant},
        trust::Trust,
    },
    policy::{ClusterRanges, Policy, Source},
    telemetry::LogFormat,
};
use jiff::Timestamp;
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    task::JoinHandle,
};
use tokio_rustls::{TlsConnector, client::TlsStream, rustls};
use tokio_util::sync::CancellationToken;

use crate::fakes::{self, Authority, Requests, Visits, Zone};

pub(crate) const HERE: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 9);
/// The sandbox of most tests.
pub(crate) const SANDBOX: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 7, 1));
pub(crate) const OUTSIDE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 1, 0, 1));
pub(crate) const ANSWER: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nAlt-Svc: h3=\":443\"\r\n\r\nhello";

/// The files of [`Setup::files`].
pub(crate) const CERTIFICATE: &str = "tls.crt";
pub(crate) const KEY: &str = "tls.key";
pub(crate) const ROOTS: &str = "roots.crt";

/// What was severe: the reason and the sandbox's name.
#[derive(Clone, Default)]
pub(crate) struct Seen(Arc<Mutex<Vec<Severe>>>);

type Severe = (String, Option<String>);

impl Alarms for Seen {
    fn severe(&self, who: Option<&Identity>, _: IpAddr, _: Entry, refusal: &Refusal) {
        self.0.lock().unwrap().push((refusal.reason.as_str().into(), who.map(|who| who.name.to_string())));
    }
}

impl Seen {
    pub(crate) fn all(&self) -> Vec<Severe> {
        self.0.lock().unwrap().clone()
    }
}

pub(crate) struct World {
    pub(crate) at: Addresses,
    pub(crate) directory: Arc<Directory>,
    pub(crate) clock: Clock,
    pub(crate) authority: Authority,
    pub(crate) tenant: Arc<Tenant>,
    pub(crate) alarms: Seen,
    pub(crate) tls: (SocketAddr, Visits),
    pub(crate) http: (SocketAddr, Requests),
    pub(crate) echo: (SocketAddr, Visits),
    /// What `secure.example` got.
    pub(crate) secure: Requests,
    pub(crate) roots: rustls::RootCertStore,
    /// What trusts the installation's authority, as sandboxes do.
    pub(crate) ca_roots: rustls::RootCertStore,
    pub(crate) stop: CancellationToken,
    pub(crate) done: JoinHandle<anyhow::Result<()>>,
}

pub(crate) fn timing() -> Timing {
    Timing {
        hold: Duration::from_millis(600),
        hello: Duration::from_millis(1500),
        head: Duration::from_millis(1500),
        resolve: Duration::from_secs(2),
        dial: Duration::from_secs(2),
        idle: Duration::from_secs(30),
        dns_idle: Duration::from_millis(700),
        renew: Duration::from_millis(50),
    }
}

pub(crate) fn policy(rules: Value) -> Arc<Policy> {
    let rules: Vec<EgressRule> = serde_json::from_value(rules).unwrap();
    let sources = [Source { policy: None, rules: &rules }];
    Arc::new(Policy::compile(&sources, &ClassEgress::default(), &ClusterRanges::default()).unwrap())
}

/// Everything but the servers of the internet is judged as in the product.
pub(crate) fn checker() -> Checker {
    Arc::new(|policy, address| match address {
        IpAddr::V4(v4) if v4.octets()[..2] == [127, 1] => Ok(address),
        _ => policy.check_answer(address).map(|checked| checked.address()),
    })
}

pub(crate) fn identity(name: &str) -> Identity {
    Identity { uid: format!("uid-{name}").into(), namespace: "team".into(), name: name.into() }
}

/// What a world may have that others have not.
pub(crate) struct Setup {
    pub(crate) timing: Timing,
    pub(crate) limits: Limits,
    pub(crate) drain_seconds: u16,
    pub(crate) ca: bool,
    /// Where the authority, its key and further roots are, in place of one that is made: those further roots alone vouch for
    /// `secure.example`.
    pub(crate) files: Option<PathBuf>,
    pub(crate) dns_by_tls: bool,
    pub(crate) dns_untrusted: bool,
    pub(crate) max_connections: Option<u32>,
    pub(crate) secrets: Arc<dyn broker::Source>,
    /// What `secure.example` answers.
    pub(crate) answer: &'static str,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            timing: timing(),
            limits: Limits::default(),
            drain_seconds: 2,
            ca: true,
            files: None,
            dns_by_tls: false,
            dns_untrusted: false,
            max_connections: None,
            secrets: Arc::new(NoSource),
            answer: ANSWER,
        }
    }
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with(timing(), Limits::default(), 2).await
    }

    pub(crate) async fn with(timing: Timing, limits: Limits, drain_seconds: u16) -> Self {
        Self::made(Setup { timing, limits, drain_seconds, ..Setup::default() }).await
    }

    pub(crate) async fn made(setup: Setup) -> Self {
        let authority = Authority::default();
        let (tls, tls_visits, roots) = fakes::tls("127.1.0.1:0", &["tls.example", "other.example"]).await;
        let (http, requests) = fakes::http("127.1.0.1:0", ANSWER).await;
        let (echo, echo_visits) = fakes::echo("127.1.0.1:0").await;
        let at_tls_port = |ip: &str| format!("{ip}:{}", tls.port());
        let (secure, good, secure_pem) =
            fakes::https(&at_tls_port("127.1.0.3"), "secure.example", setup.answer).await;
        let (_, wrong, _) = fakes::https(&at_tls_port("127.1.0.4"), "another.example", ANSWER).await;
        let mut trusted = roots.clone();
        trusted.roots.extend(wrong.roots);
        match &setup.files {
            Some(files) => std::fs::write(files.join(ROOTS), secure_pem).unwrap(),
            None => trusted.roots.extend(good.roots),
        }
        let upstream = if setup.dns_by_tls {
            let (address, dns) = authority.serve_tls("dns.example").await;
            if !setup.dns_untrusted {
                trusted.roots.extend(dns.roots);
            }
            Upstream { address, transport: Transport::Tls("dns.example".into()) }
        } else {
            Upstream { address: authority.serve().await, transport: Transport::UdpAndTcp }
        };
        for name in ["tls", "other", "web", "echo", "evil"] {
            authority.set(&format!("{name}.example"), Zone::To(vec![OUTSIDE]));
        }
        authority.set("secure.example", Zone::To(vec!["127.1.0.3".parse().unwrap()]));
        authority.set("wrong.example", Zone::To(vec!["127.1.0.4".parse().unwrap()]));
        let options = options(upstream, tls.port(), http.port(), &setup);
        let listeners = Listeners::bind(&options).await.unwrap();
        let at = listeners.addresses().unwrap();
        let (directory, clock, alarms) = (Arc::new(Directory::default()), Clock::default(), Seen::default());
        let rules = rules(tls, http, echo);
        let tenant = Tenant::new(identity("one"), rules, setup.limits, clock, Timestamp::now());
        tenant.begun.store(true, std::sync::atomic::Ordering::Relaxed);
        directory.insert(SANDBOX, &tenant);
        directory.load();
        let stop = CancellationToken::new();
        let (ca, ca_roots) = fakes::authority();
        let parts = Parts {
            here: HERE,
            metrics: Arc::default(),
            directory: directory.clone(),
            checker: checker(),
            recorder: glovebox::audit::Recorder::none(),
            secrets: setup.secrets,
            alarms: Arc::new(alarms.clone()),
            trust: Trust::of(trusted),
            ca: setup.ca.then_some(ca),
            timing: setup.timing,
            clock,
        };
        let done = tokio::spawn(serve(options, listeners, parts, stop.clone()));
        let (tls, http, echo) = ((tls, tls_visits), (http, requests), (echo, echo_visits));
        Self {
            at,
            directory,
            clock,
            authority,
            tenant,
            alarms,
            tls,
            http,
            echo,
            secure,
            roots,
            ca_roots,
            stop,
            done,
        }
    }

    /// The rules that every world begins with.
    pub(crate) fn rules(&self) -> Arc<Policy> {
        rules(self.tls.0, self.http.0, self.echo.0)
    }

    /// Another sandbox, with the same rules.
    pub(crate) fn sandbox(&self, name: &str, address: IpAddr) -> Arc<Tenant> {
        let limits = Limits::default();
        let tenant = Tenant::new(identity(name), self.rules(), limits, self.clock, Timestamp::now());
        self.directory.insert(address, &tenant);
        tenant
    }

    pub(crate) async fn tls_to(&self, name: &str) -> std::io::Result<TlsStream<TcpStream>> {
        handshake(from(SANDBOX, self.at.tls).await, name, &self.roots).await
    }

    /// CONNECT, and what was answered.
    pub(crate) async fn connect(&self, target: &str) -> (String, TcpStream) {
        let mut stream = from(SANDBOX, self.at.proxy).await;
        let request = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        (head(&mut stream).await, stream)
    }

    pub(crate) async fn metrics(&self) -> String {
        let text =
            ask(SANDBOX, self.at.admin, "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        text.await
    }

    /// Reasons of refusals that were recorded with the sandbox, and their hosts.
    pub(crate) fn refusals(&self) -> Vec<(String, String)> {
        let kept = self.tenant.refusals.take();
        let mut all: Vec<_> =
            kept.into_iter().map(|(key, _)| (key.reason.as_str().to_owned(), key.host)).collect();
        all.sort();
        all
    }

    pub(crate) fn tls_visits(&self) -> usize {
        *self.tls.1.lock().unwrap()
    }

    pub(crate) fn requests(&self) -> Vec<String> {
        self.http.1.lock().unwrap().clone()
    }
}

fn rules(tls: SocketAddr, http: SocketAddr, echo: SocketAddr) -> Arc<Policy> {
    policy(serde_json::json!([
        {"name": "tls", "hosts": ["tls.example", "*.wild.example"], "ports": [tls.port()]},
        {"name": "other", "hosts": ["other.example"], "ports": [tls.port()]},
        {"name": "web", "hosts": ["web.example"], "ports": [http.port()], "protocol": "HTTP",
         "http": {"methods": ["GET", "POST", "HEAD"], "paths": ["/ok/**", "/ok"]}},
        {"name": "secure", "hosts": ["secure.example", "wrong.example"], "ports": [tls.port()], "protocol": "HTTPS",
         "http": {"methods": ["GET", "POST"], "paths": ["/ok/**", "/ok"]}},
        {"name": "echo", "hosts": ["echo.example"], "ports": [echo.port()], "protocol": "TCP"},
    ]))
}

fn options(upstream: Upstream, tls_port: u16, http_port: u16, setup: &Setup) -> Options {
    let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let file = |name: &str| setup.files.as_ref().map(|files| files.join(name));
    Options {
        dns: any,
        proxy: any,
        tls: any,
        http: any,
        tripwire: any,
        admin: any,
        tls_port,
        http_port,
        service: "glovebox-gateway".into(),
        namespace: "glovebox-system".into(),
        pod_name: None,
        own_ips: vec![],
        upstreams: vec![upstream],
        audit: glovebox::audit::AuditOptions::default(),
        providers: broker::ProviderOptions::default(),
        cluster_cidrs: vec![],
        drain_seconds: setup.drain_seconds,
        max_connections: setup.max_connections,
        ca_cert: file(CERTIFICATE),
        ca_key: file(KEY),
        extra_roots: file(ROOTS),
        log_format: LogFormat::Human,
    }
}

/// A connection with this source address.
pub(crate) async fn from(source: IpAddr, to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::new(source, 0)).unwrap();
    socket.connect(to).await.unwrap()
}

pub(crate) async fn handshake(
    stream: TcpStream,
    name: &str,
    roots: &rustls::RootCertStore,
) -> std::io::Result<TlsStream<TcpStream>> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots.clone())
        .with_no_client_auth();
    let name = name.to_owned().try_into().unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

/// Sends bytes, and reads to the end.
pub(crate) async fn ask(source: IpAddr, to: SocketAddr, text: impl AsRef<[u8]>) -> String {
    let mut stream = from(source, to).await;
    stream.write_all(text.as_ref()).await.unwrap();
    rest(&mut stream).await
}

/// Everything to the end, which must come.
pub(crate) async fn rest(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let _ = soon(stream.read_to_end(&mut bytes)).await;
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A head, byte by byte.
pub(crate) async fn head(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n\r\n") {
        match soon(stream.read_u8()).await {
            Ok(byte) => bytes.push(byte),
            Err(_) => break,
        }
    }
    String::from_utf8(bytes).unwrap()
}

/// Within ten seconds.
pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(10), future).await.expect("it takes too long")
}

/// Writes so many bytes at once to an echo, whether or not all are taken; what comes back until the end.
pub(crate) async fn pour(stream: TcpStream, bytes: usize) -> Vec<u8> {
    let (mut read, mut write) = stream.into_split();
    let writer = tokio::spawn(async move { write.write_all(&vec![7; bytes]).await });
    let mut got = Vec::new();
    let _ = soon(read.read_to_end(&mut got)).await;
    let _ = soon(writer).await.unwrap();
    got
}

/// Writes and reads back the same through an echo.
pub(crate) async fn echoes(stream: &mut (impl AsyncReadExt + AsyncWriteExt + Unpin), text: &[u8]) {
    soon(stream.write_all(text)).await.unwrap();
    let mut back = vec![0; text.len()];
    soon(stream.read_exact(&mut back)).await.unwrap();
    assert_eq!(back, text);
}
