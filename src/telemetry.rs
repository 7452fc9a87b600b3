//! Logs, health and metrics. Labels are bounded sets: classes, phases, reasons; never the name of a sandbox or a namespace.

use std::{
    fmt::Write as _,
    io::IsTerminal as _,
    net::SocketAddr,
    sync::atomic::{AtomicI64, AtomicU64},
    time::Duration,
};

use anyhow::Context as _;
use jiff::Timestamp;
use prometheus_client::{
    encoding::{EncodeLabelSet, text},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::{EnvFilter, fmt::time::SystemTime};

use crate::api::Phase;

pub mod http;

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// One JSON object a line.
    Json,
    /// For reading.
    Human,
}

/// Environment variable with the log filter, such as `info,glovebox=debug`.
pub const LOG_ENV: &str = "GLOVEBOX_LOG";

/// Starts logging to standard error.
pub fn log(format: LogFormat) {
    let filter = EnvFilter::try_from_env(LOG_ENV).unwrap_or_else(|_| EnvFilter::new("info"));
    let builder =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_timer(SystemTime);
    let builder = builder.with_ansi(std::io::stderr().is_terminal());
    match format {
        LogFormat::Json => builder.json().flatten_event(true).init(),
        LogFormat::Human => builder.init(),
    }
}

/// Listens at the address of a flag.
///
/// # Errors
/// Which it is, when it can't be listened on.
#[cfg_attr(
    not(any(feature = "gateway", feature = "session")),
    allow(dead_code, reason = "the controller has one address, and says so itself")
)]
pub(crate) async fn listener(flag: &str, address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| format!("{flag}: can't listen on {address}"))
}

/// Cancels `stop` at SIGTERM or SIGINT.
///
/// # Errors
/// When the signals can't be caught.
pub fn stop_on_signal(stop: CancellationToken) -> std::io::Result<()> {
    let mut term = signal(SignalKind::terminate())?;
    let mut int = signal(SignalKind::interrupt())?;
    tokio::spawn(async move {
        tokio::select! { _ = term.recv() => {} _ = int.recv() => {} }
        tracing::info!("told to stop");
        stop.cancel();
    });
    Ok(())
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ClassLabels {
    class: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct PhaseLabels {
    class: String,
    phase: &'static str,
    reason: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct SuspectLabels {
    class: String,
    action: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct FailureLabels {
    class: &'static str,
}

/// The process's counters.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    phases: Family<PhaseLabels, Counter>,
    suspects: Family<SuspectLabels, Counter>,
    failures: Family<FailureLabels, Counter>,
    reconciles: Histogram,
    creations: Family<ClassLabels, Histogram, fn() -> Histogram>,
    sandboxes: Family<ClassLabels, Gauge>,
    leader: Gauge<i64, AtomicI64>,
    watch_errors: Counter<u64, AtomicU64>,
}

/// From 1 ms to about 16 s.
fn seconds() -> Histogram {
    Histogram::new(prometheus_client::metrics::histogram::exponential_buckets(0.001, 2.0, 15))
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("glovebox");
        let metrics = Self {
            phases: Family::default(),
            suspects: Family::default(),
            failures: Family::default(),
            reconciles: seconds(),
            creations: Family::new_with_constructor(seconds),
            sandboxes: Family::default(),
            leader: Gauge::default(),
            watch_errors: Counter::default(),
            registry: Registry::default(),
        };
        registry.register("sandbox_phases", "Sandboxes that came into a phase", metrics.phases.clone());
        registry.register(
            "sandboxes_suspected",
            "Sandboxes that did what looks like an attack, by what became of them",
            metrics.suspects.clone(),
        );
        registry.register(
            "reconcile_failures",
            "Reconciles that ended in an error, by its class",
            metrics.failures.clone(),
        );
        registry.register("reconcile_seconds", "Duration of a reconcile", metrics.reconciles.clone());
        registry.register(
            "pod_creation_seconds",
            "From a sandbox's creation to its pod's",
            metrics.creations.clone(),
        );
        registry.register("sandboxes", "Sandboxes that have not ended", metrics.sandboxes.clone());
        registry.register("leader", "1 while this replica leads", metrics.leader.clone());
        registry.register("watch_errors", "Watches that had to be made again", metrics.watch_errors.clone());
        Self { registry, ..metrics }
    }
}

impl Metrics {
    /// A pod was created for a sandbox of this class.
    pub fn pod_created(&self, class: &str, sandbox_created: Timestamp, now: Timestamp) {
        let waited = now.duration_since(sandbox_created).as_secs_f64().max(0.0);
        self.creations.get_or_create(&ClassLabels { class: class.into() }).observe(waited);
    }

    /// A sandbox came into a phase.
    pub fn phase(&self, class: &str, phase: Phase, reason: &str) {
        self.phases
            .get_or_create(&PhaseLabels { class: class.into(), phase: phase.as_str(), reason: reason.into() })
            .inc();
    }

    /// A sandbox came to be suspected.
    pub fn suspected(&self, class: &str, action: &'static str) {
        self.suspects.get_or_create(&SuspectLabels { class: class.into(), action }).inc();
    }

    /// A reconcile failed with an error of this class.
    pub fn failure(&self, class: &'static str) {
        self.failures.get_or_create(&FailureLabels { class }).inc();
    }

    /// A reconcile took so long.
    pub fn reconciled(&self, took: Duration) {
        self.reconciles.observe(took.as_secs_f64());
    }

    /// How many sandboxes of a class have not ended.
    pub fn sandboxes(&self, class: &str, count: i32) {
        self.sandboxes.get_or_create(&ClassLabels { class: class.into() }).set(i64::from(count));
    }

    /// Whether this replica leads.
    pub fn leads(&self, leads: bool) {
        self.leader.set(i64::from(leads));
    }

    /// A watch had to be made again.
    pub fn watch_error(&self) {
        self.watch_errors.inc();
    }

    /// The OpenMetrics text.
    #[must_use]
    pub fn render(&self) -> String {
        let mut out = String::with_capacity(4096);
        if text::encode(&mut out, &self.registry).is_err() {
            out.clear();
            let _ = out.write_str("# EOF\n");
        }
        out
    }
}
