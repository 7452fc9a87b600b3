//! The session's counters. Labels come from closed sets of ours: never the name of an object or of a user.

use std::{
    fmt::Write as _,
    sync::atomic::{AtomicI64, AtomicU64},
    time::Duration,
};

use prometheus_client::{
    encoding::{EncodeLabelSet, text},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};

use super::problem::Reason;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OutcomeLabels {
    outcome: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct FileLabels {
    operation: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ReasonLabels {
    reason: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ReviewLabels {
    review: &'static str,
    cached: &'static str,
}

/// What the API server is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// Whose a token is.
    Token,
    /// Whom a certificate names.
    Certificate,
    /// Whether somebody may.
    Access,
}

/// The process's counters.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    calls: Family<OutcomeLabels, Counter>,
    files: Family<FileLabels, Counter>,
    file_bytes: Counter,
    refusals: Family<ReasonLabels, Counter>,
    reviews: Family<ReviewLabels, Counter>,
    in_flight: Gauge<i64, AtomicI64>,
    connections: Gauge<i64, AtomicI64>,
    buffered: Gauge<i64, AtomicI64>,
    sandboxes: Gauge<i64, AtomicI64>,
    seconds: Histogram,
    repeated: Counter,
    full: Counter,
    watch_errors: Counter<u64, AtomicU64>,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut metrics = Self {
            registry: Registry::default(),
            calls: Family::default(),
            files: Family::default(),
            file_bytes: Counter::default(),
            refusals: Family::default(),
            reviews: Family::default(),
            in_flight: Gauge::default(),
            connections: Gauge::default(),
            buffered: Gauge::default(),
            sandboxes: Gauge::default(),
            // From 1 ms to about 17 minutes: the longest call by default takes 10.
            seconds: Histogram::new(prometheus_client::metrics::histogram::exponential_buckets(
                0.001, 2.0, 21,
            )),
            repeated: Counter::default(),
            full: Counter::default(),
            watch_errors: Counter::default(),
        };
        metrics.registry = metrics.register();
        metrics
    }
}

impl Metrics {
    /// All of them by their names.
    fn register(&self) -> Registry {
        let mut registry = Registry::with_prefix("glovebox_session");
        registry.register("calls", "Calls that were dialled, by how they ended", self.calls.clone());
        registry.register(
            "file_operations",
            "File operations that were dialled, by how they ended",
            self.files.clone(),
        );
        registry.register("file_bytes", "Bytes of files that were carried", self.file_bytes.clone());
        registry.register("refusals", "Requests that were not carried out, by reason", self.refusals.clone());
        registry.register(
            "reviews",
            "Who somebody is and whether they may, asked or remembered",
            self.reviews.clone(),
        );
        registry.register("calls_in_flight", "Calls that run", self.in_flight.clone());
        registry.register("connections", "Connections of clients", self.connections.clone());
        registry.register("buffered_bytes", "Bytes that bodies and output may take", self.buffered.clone());
        registry.register("sandboxes", "Sandboxes that are known", self.sandboxes.clone());
        registry.register(
            "call_seconds",
            "Duration of calls, from dialling to their end",
            self.seconds.clone(),
        );
        registry.register(
            "repeated_calls",
            "Requests that got another one's result by its key",
            self.repeated.clone(),
        );
        registry.register(
            "connections_refused",
            "Connections for which there was no room",
            self.full.clone(),
        );
        registry.register("watch_errors", "Watches that had to be made again", self.watch_errors.clone());
        registry
    }

    /// A call is dialled.
    pub(super) fn begun(&self) {
        self.in_flight.inc();
    }

    /// It ended like this.
    pub(super) fn ended(&self, outcome: &'static str, took: Duration) {
        self.in_flight.dec();
        self.calls.get_or_create(&OutcomeLabels { outcome }).inc();
        self.seconds.observe(took.as_secs_f64());
    }

    /// A file operation ended like this.
    pub(super) fn file(&self, operation: &'static str, outcome: &'static str, bytes: u64) {
        self.files.get_or_create(&FileLabels { operation, outcome }).inc();
        self.file_bytes.inc_by(bytes);
    }

    /// A request was not carried out.
    pub(super) fn refused(&self, reason: Reason) {
        self.refusals.get_or_create(&ReasonLabels { reason: reason.as_str() }).inc();
    }

    /// Somebody was asked for, and known or not.
    pub(super) fn asked(&self, what: Asked, known: bool) {
        let review = match what {
            Asked::Token => "token",
            Asked::Certificate => "certificate",
            Asked::Access => "access",
        };
        self.reviews.get_or_create(&ReviewLabels { review, cached: if known { "yes" } else { "no" } }).inc();
    }

    /// A request got another one's result.
    pub(super) fn repeated(&self) {
        self.repeated.inc();
    }

    /// A connection had no room.
    pub(super) fn full(&self) {
        self.full.inc();
    }

    /// A watch had to be made again.
    pub(super) fn watch_error(&self) {
        self.watch_errors.inc();
    }

    /// The OpenMetrics text.
    #[must_use]
    pub fn render(&self, connections: usize, buffered: u64, sandboxes: usize) -> String {
        let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        self.connections.set(number(connections as u64));
        self.buffered.set(number(buffered));
        self.sandboxes.set(number(sandboxes as u64));
        let mut out = String::with_capacity(4096);
        if text::encode(&mut out, &self.registry).is_err() {
            out.clear();
            let _ = out.write_str("# EOF\n");
        }
        out
    }
}
