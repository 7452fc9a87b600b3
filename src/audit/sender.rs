//! Hands a producer's records over to the trail, in their order and each once, over one connection. What is not taken is offered
//! again until it is.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64},
    },
    time::Duration,
};

use anyhow::{Context as _, bail};
use axum::{
    body::{Body, Bytes},
    http::{Request, StatusCode, header},
};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use kube::Client;
use prometheus_client::{
    encoding::text,
    metrics::{counter::Counter, gauge::Gauge},
    registry::Registry,
};
use rustls::pki_types::ServerName;
use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::TlsConnector;

use super::{
    Record,
    spool::{Spool, Waiting},
};
use crate::{post, trust::Trust};

/// Where records go.
pub const PATH: &str = "/v1/records";
/// What a producer drew when it started, in the head of each request.
pub const BOOT: &str = "glovebox-boot";
/// The number of a request's first record.
pub const FIRST: &str = "glovebox-first";
/// Most records at once, and bytes.
const MOST: usize = 1000;
const MOST_BYTES: usize = 1024 * 1024;
/// How long a connection, and a request, may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two attempts, at first and at last.
const RETRY: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));
/// How long the last records have at the end.
const LAST_MOMENT: Duration = Duration::from_secs(3);
/// The token is made anew by the kubelet well before its end; a connection is made anew to show the new one.
pub(super) const CONNECTION_AGE: Duration = Duration::from_secs(300);

/// How a producer reaches the trail.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct AuditOptions {
    /// Where the trail takes records: HOST:PORT. The host of a Service, NAME.NAMESPACE.svc, is asked of the API server, since not every
    /// role asks the cluster's name servers. Absent: nothing is recorded.
    #[arg(long, value_name = "HOST:PORT", requires = "audit_ca", requires = "audit_token")]
    pub audit: Option<String>,
    /// Whom to trust for it, as PEM.
    #[arg(long, value_name = "FILE")]
    pub audit_ca: Option<PathBuf>,
    /// The token to show there; read again for each connection.
    #[arg(long, value_name = "FILE")]
    pub audit_token: Option<PathBuf>,
    /// Do nothing that is not on the record first: connections, calls and sandboxes are refused while the trail can't be reached.
    #[arg(long, requires = "audit")]
    pub audit_fail_closed: bool,
}

/// Where a producer says what it did.
#[derive(Clone, Debug, Default)]
pub struct Recorder {
    spool: Option<Arc<Spool>>,
    fail_closed: bool,
}

/// What was to be done is not, since it can't be recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotRecorded;

impl Recorder {
    /// One that records nothing.
    #[must_use]
    pub const fn none() -> Self {
        Self { spool: None, fail_closed: false }
    }

    /// One whose records somebody takes out of the spool.
    #[must_use]
    pub const fn of(spool: Arc<Spool>, fail_closed: bool) -> Self {
        Self { spool: Some(spool), fail_closed }
    }

    /// As the options say; hands over in the background, for as long as the process lives.
    ///
    /// # Errors
    /// What is wrong with an option.
    pub fn start(options: &AuditOptions, client: &Client) -> anyhow::Result<Self> {
        let Some(address) = &options.audit else { return Ok(Self::none()) };
        let place = Place::read(address)?;
        let host = &place.host;
        let name = ServerName::try_from(host.clone()).context("--audit: the host is none")?;
        let ca = options.audit_ca.clone().context("--audit-ca is needed")?;
        let token = options.audit_token.clone().context("--audit-token is needed")?;
        trust(&ca)?;
        let boot = boot()?;
        let spool = Arc::new(Spool::default());
        let sender =
            Sender { client: client.clone(), place, name, ca, token, boot, next: 0, connection: None };
        tokio::spawn(sender.hand_over(spool.clone()));
        Ok(Self { spool: Some(spool), fail_closed: options.audit_fail_closed })
    }

    /// Whether anybody listens: a record that nobody wants need not be made.
    #[must_use]
    pub const fn is_on(&self) -> bool {
        self.spool.is_some()
    }

    /// Says what was done.
    pub fn say(&self, record: impl FnOnce() -> Record) {
        if let Some(spool) = &self.spool {
            spool.say(&record());
        }
    }

    /// Says what was done, of a record that is kept.
    pub fn say_this(&self, record: &Record) {
        if let Some(spool) = &self.spool {
            spool.say(record);
        }
    }

    /// Says what is about to be done. Where nothing may be done that is not recorded, it returns when it is.
    ///
    /// # Errors
    /// When it must not be done.
    pub async fn before(&self, record: &Record) -> Result<(), NotRecorded> {
        let Some(spool) = &self.spool else { return Ok(()) };
        if !self.fail_closed {
            spool.say(record);
            return Ok(());
        }
        match timeout(PATIENCE, spool.say_first(record)).await {
            Ok(Ok(())) => Ok(()),
            _ => Err(NotRecorded),
        }
    }

    /// The same of what is said when it is done: where nothing may be done that is not recorded, it is said before, too.
    ///
    /// # Errors
    /// When it must not be done.
    pub async fn before_if_closed(&self, record: impl FnOnce() -> Record) -> Result<(), NotRecorded> {
        if !self.fail_closed {
            return Ok(());
        }
        self.before(&Record { message: Some("is about to be done".to_owned()), ..record() }).await
    }

    /// A role's metrics, and with them what waits for the trail and what was lost.
    #[must_use]
    pub fn measured(&self, mut text: String) -> String {
        let Some(spool) = &self.spool else { return text };
        let (waiting, lost) = spool.figures();
        let (gauge, counter) = (Gauge::<i64, AtomicI64>::default(), Counter::<u64, AtomicU64>::default());
        gauge.set(i64::try_from(waiting).unwrap_or(i64::MAX));
        counter.inc_by(lost);
        let mut registry = Registry::with_prefix("glovebox_records");
        registry.register("waiting", "Records that the trail has not taken yet", gauge);
        registry.register("lost", "Records that found no room while the trail took none", counter);
        text.truncate(text.trim_end_matches("# EOF\n").len());
        // Writing to a String can't fail.
        let _ = text::encode(&mut text, &registry);
        text
    }

    /// Waits until the trail has all of it, for as long as a process that ends can wait.
    pub async fn finish(&self) {
        let Some(spool) = &self.spool else { return };
        if timeout(LAST_MOMENT, spool.emptied()).await.is_err() {
            tracing::error!("the process ends, and the trail has not taken its last records");
        }
    }
}

/// Milliseconds since 1970.
#[must_use]
pub fn now() -> i64 {
    Timestamp::now().as_millisecond()
}

fn boot() -> anyhow::Result<String> {
    let mut bytes = [0; 8];
    let random = rustls::crypto::aws_lc_rs::default_provider().secure_random;
    random.fill(&mut bytes).ok().context("there is no randomness")?;
    Ok(format!("{:016x}", u64::from_be_bytes(bytes)))
}

fn trust(ca: &std::path::Path) -> anyhow::Result<Trust> {
    let text =
        std::fs::read_to_string(ca).with_context(|| format!("--audit-ca: can't read {}", ca.display()))?;
    Trust::alone(&text).context("--audit-ca")
}

struct Connection {
    sender: SendRequest<Body>,
    authorization: String,
    until: tokio::time::Instant,
}

/// Where the trail is.
struct Place {
    host: String,
    port: u16,
}

impl Place {
    fn read(address: &str) -> anyhow::Result<Self> {
        let (host, port) = address.rsplit_once(':').context("--audit: expected HOST:PORT")?;
        let port = port.parse().ok().context("--audit: expected HOST:PORT, with a number as the port")?;
        Ok(Self { host: host.to_owned(), port })
    }
}

struct Sender {
    client: Client,
    place: Place,
    name: ServerName<'static>,
    ca: PathBuf,
    token: PathBuf,
    boot: String,
    next: u64,
    connection: Option<Connection>,
}

impl Sender {
    async fn hand_over(mut self, spool: Arc<Spool>) {
        loop {
            spool.gather().await;
            let batch = spool.take(MOST, MOST_BYTES, now).await;
            self.until_taken(&batch).await;
            self.next += batch.len() as u64;
            spool.done(batch);
        }
    }

    async fn until_taken(&mut self, batch: &[Waiting]) {
        let mut pause = RETRY.0;
        let body: Bytes =
            batch.iter().map(|waiting| &waiting.json[..]).collect::<Vec<_>>().join(&b'\n').into();
        loop {
            match timeout(PATIENCE, self.offer(body.clone())).await {
                Ok(Ok(())) => return,
                Ok(Err(error)) => {
                    tracing::warn!(
                        error = format!("{error:#}"),
                        records = batch.len(),
                        "the trail does not take records"
                    );
                }
                Err(_) => tracing::warn!(records = batch.len(), "the trail does not answer"),
            }
            self.connection = None;
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(RETRY.1);
        }
    }

    async fn offer(&mut self, body: Bytes) -> anyhow::Result<()> {
        let connection = match self.connection.take() {
            Some(open) if !open.sender.is_closed() && tokio::time::Instant::now() < open.until => open,
            _ => self.connect().await?,
        };
        let connection = self.connection.insert(connection);
        connection.sender.ready().await?;
        let request = Request::post(PATH)
            .header(header::HOST, &self.place.host)
            .header(header::AUTHORIZATION, &connection.authorization)
            .header(header::CONTENT_TYPE, "application/x-ndjson")
            .header(BOOT, &self.boot)
            .header(FIRST, self.next)
            .body(Body::from(body))?;
        let answer = connection.sender.send_request(request).await?;
        let status = answer.status();
        // Read to its end, so that the connection can be used again.
        let said = axum::body::to_bytes(Body::new(answer.into_body()), 64 * 1024).await?;
        if status == StatusCode::OK {
            return Ok(());
        }
        bail!("status {status}: {}", super::printable(&String::from_utf8_lossy(&said), 300));
    }

    async fn connect(&self) -> anyhow::Result<Connection> {
        let token = tokio::fs::read_to_string(&self.token).await.context("--audit-token")?;
        let config = trust(&self.ca)?.client(&[])?;
        let address = post::address(&self.client, &self.place.host).await?;
        let tcp = TcpStream::connect((address.as_str(), self.place.port)).await.context("connect")?;
        tcp.set_nodelay(true)?;
        let tls =
            TlsConnector::from(Arc::new(config)).connect(self.name.clone(), tcp).await.context("TLS")?;
        let (sender, connection) = http1::handshake(TokioIo::new(tls)).await?;
        tokio::spawn(connection);
        let authorization = format!("Bearer {}", token.trim());
        Ok(Connection { sender, authorization, until: tokio::time::Instant::now() + CONNECTION_AGE })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_has_a_host_and_a_port() {
        let place = Place::read("glovebox-audit.glovebox-system.svc:443").unwrap();
        assert_eq!((place.host.as_str(), place.port), ("glovebox-audit.glovebox-system.svc", 443));
        for bad in ["", "host", "host:", "host:x", "host:70000"] {
            assert!(Place::read(bad).is_err(), "{bad}");
        }
    }

    #[tokio::test]
    async fn where_nobody_records_everything_may_be_done() {
        let none = Recorder::none();
        let never = || -> Record { panic!("nobody wants it") };
        none.say(never);
        assert_eq!(none.before_if_closed(never).await, Ok(()));
        none.finish().await;
    }

    #[test]
    fn what_waits_and_what_was_lost_is_measured() {
        let own = "glovebox_own_total 1\n# EOF\n";
        assert_eq!(Recorder::none().measured(own.into()), own);
        let recorder = Recorder::of(Arc::default(), false);
        recorder.say(|| Record::new(super::super::Act::CallStarted, 0));
        let text = recorder.measured(own.into());
        let has = |line: &str| text.contains(&format!("{line}\n"));
        assert!(
            has("glovebox_own_total 1")
                && has("glovebox_records_waiting 1")
                && has("glovebox_records_lost_total 0"),
            "{text}"
        );
        assert!(text.matches("# EOF").count() == 1 && text.ends_with("# EOF\n"), "{text}");
    }

    #[tokio::test(start_paused = true)]
    async fn what_can_not_be_recorded_must_not_be_done() {
        let record = || Record::new(super::super::Act::CallStarted, 0);
        let closed = Recorder::of(Arc::default(), true);
        assert_eq!(closed.before(&record()).await, Err(NotRecorded), "nobody took it");
        assert_eq!(closed.before_if_closed(record).await, Err(NotRecorded));
        let open = Recorder::of(Arc::default(), false);
        assert_eq!(open.before(&record()).await, Ok(()));
        assert_eq!(open.before_if_closed(record).await, Ok(()));
    }
}
