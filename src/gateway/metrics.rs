//! The gateway's counters. Labels come from closed sets of ours: never the name of an object or of a host.

use std::{
    fmt::Write as _,
    hash::Hash,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
};

use jiff::Timestamp;
use prometheus_client::{
    encoding::{EncodeLabelSet, text},
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

use super::{
    directory::Directory,
    dns::Outcome,
    entry::Entry,
    flow::Cause,
    reason::{Reason, Trouble},
};
use crate::policy::DenyReason;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct EntryLabels {
    entry: &'static str,
    verdict: &'static str,
}

#[derive(Clone, Copy, Debug)]
enum Verdict {
    Allow,
    Deny,
    Fail,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RefusalLabels {
    entry: &'static str,
    reason: &'static str,
    severity: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ReasonLabels {
    reason: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct DirectionLabels {
    direction: &'static str,
}

/// A family of counters, of which those that were used once are known by number: to find one by its labels is to hash each of
/// them, several times a connection.
#[derive(Debug)]
struct Numbered<L> {
    family: Family<L, Counter>,
    known: Vec<OnceLock<Counter>>,
}

impl<L: Clone + Hash + Eq> Numbered<L> {
    fn new(most: usize) -> Self {
        Self { family: Family::default(), known: std::iter::repeat_with(OnceLock::new).take(most).collect() }
    }

    /// Counts one more of this number, which has these labels and no others.
    fn inc(&self, number: usize, labels: impl FnOnce() -> L) {
        match self.known.get(number) {
            Some(known) => known.get_or_init(|| self.family.get_or_create_owned(&labels())).inc(),
            None => self.family.get_or_create_owned(&labels()).inc(),
        };
    }
}

const ENTRIES: usize = Entry::Tripwire as usize + 1;
const REASONS: usize = DenyReason::ALL.len() + Trouble::ALL.len();

/// Among all reasons.
const fn number(reason: Reason) -> usize {
    match reason {
        Reason::Policy(reason) => reason as usize,
        Reason::Gateway(trouble) => DenyReason::ALL.len() + trouble as usize,
    }
}

/// The process's counters.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    verdicts: Numbered<EntryLabels>,
    refusals: Numbered<RefusalLabels>,
    ended: Numbered<ReasonLabels>,
    queries: Numbered<ReasonLabels>,
    bad_answers: Family<ReasonLabels, Counter>,
    bytes: Family<DirectionLabels, Counter<u64, AtomicU64>>,
    open: Gauge<i64, AtomicI64>,
    sandboxes: Gauge<i64, AtomicI64>,
    connections: Gauge<i64, AtomicI64>,
    pipes: Gauge<i64, AtomicI64>,
    named: Gauge<i64, AtomicI64>,
    heard: Gauge<i64, AtomicI64>,
    authority: Gauge<i64, AtomicI64>,
    credentials: Counter,
    full: Counter,
    tripwire: Counter,
    watch_errors: Counter,
    /// Bytes to the outside.
    pub sent: Arc<AtomicU64>,
    /// Bytes from the outside.
    pub received: Arc<AtomicU64>,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut metrics = Self {
            registry: Registry::default(),
            verdicts: Numbered::new(ENTRIES * Verdict::Fail as usize + ENTRIES),
            refusals: Numbered::new(ENTRIES * REASONS),
            ended: Numbered::new(Cause::Encoded as usize + 1),
            queries: Numbered::new(Outcome::NotImplemented as usize + 1),
            bad_answers: Family::default(),
            bytes: Family::default(),
            open: Gauge::default(),
            sandboxes: Gauge::default(),
            connections: Gauge::default(),
            pipes: Gauge::default(),
            named: Gauge::default(),
            heard: Gauge::default(),
            authority: Gauge::default(),
            credentials: Counter::default(),
            full: Counter::default(),
            tripwire: Counter::default(),
            watch_errors: Counter::default(),
            sent: Arc::default(),
            received: Arc::default(),
        };
        metrics.registry = metrics.register();
        metrics
    }
}

impl Metrics {
    /// All of them by their names.
    fn register(&self) -> Registry {
        let mut registry = Registry::with_prefix("glovebox_gateway");
        registry.register(
            "decisions",
            "Decisions, by where they were asked for",
            self.verdicts.family.clone(),
        );
        registry.register("refusals", "What did not go out, and why", self.refusals.family.clone());
        registry.register("flows_ended", "Flows that ended, and why", self.ended.family.clone());
        registry.register("queries", "DNS queries, by how they were answered", self.queries.family.clone());
        registry.register(
            "bad_answers",
            "Addresses that allowed names lead to and that may not be dialled",
            self.bad_answers.clone(),
        );
        registry.register("bytes", "Bytes carried to (up) and from (down) the outside", self.bytes.clone());
        registry.register("flows_open", "Flows that are open", self.open.clone());
        registry.register("sandboxes", "Addresses of sandboxes that are known", self.sandboxes.clone());
        registry.register("connections", "Connections that are open", self.connections.clone());
        registry.register("pipes", "Directions of flows that are spliced", self.pipes.clone());
        registry.register("named_ports", "Ports that stand for a host and port outside", self.named.clone());
        registry.register(
            "directory_heard_timestamp_seconds",
            "When the cluster last said who is who; 0 for never",
            self.heard.clone(),
        );
        registry.register(
            "authority_expiry_timestamp_seconds",
            "When clients stop trusting the authority that opens TLS; 0 where none does",
            self.authority.clone(),
        );
        registry.register("credentials", "Credentials added to requests", self.credentials.clone());
        registry.register("full", "Connections closed for want of room in this replica", self.full.clone());
        registry.register(
            "tripwire",
            "Connections to the port that the fence forbids: each is a fence that does not hold",
            self.tripwire.clone(),
        );
        registry.register(
            "watch_errors",
            "Watches that broke and were made again",
            self.watch_errors.clone(),
        );
        registry
    }

    /// Policy allowed something.
    pub fn allowed(&self, entry: Entry) {
        self.verdict(entry, Verdict::Allow);
    }

    /// Something was refused.
    pub fn refused(&self, entry: Entry, reason: Reason) {
        let policy = matches!(reason, Reason::Policy(_));
        self.verdict(entry, if policy { Verdict::Deny } else { Verdict::Fail });
        self.refusals.inc(entry as usize * REASONS + number(reason), || {
            let severity = super::reason::severity_str(reason.severity());
            RefusalLabels { entry: entry.as_str(), reason: reason.as_str(), severity }
        });
    }

    fn verdict(&self, entry: Entry, verdict: Verdict) {
        self.verdicts.inc(entry as usize + ENTRIES * verdict as usize, || {
            let verdict = match verdict {
                Verdict::Allow => "allow",
                Verdict::Deny => "deny",
                Verdict::Fail => "fail",
            };
            EntryLabels { entry: entry.as_str(), verdict }
        });
    }

    /// A flow was opened.
    pub fn opened(&self) {
        self.open.inc();
    }

    /// A flow ended.
    pub fn ended(&self, cause: Cause) {
        self.open.dec();
        self.ended.inc(cause as usize, || ReasonLabels { reason: cause.as_str() });
    }

    /// A query was answered.
    pub fn query(&self, outcome: Outcome) {
        self.queries.inc(outcome as usize, || ReasonLabels { reason: outcome.as_str() });
    }

    /// An allowed name led to an address that may not be dialled.
    pub fn bad_answer(&self, reason: DenyReason) {
        self.bad_answers.get_or_create(&ReasonLabels { reason: reason.as_str() }).inc();
    }

    /// TLS is opened with an authority that ends then.
    pub fn authority(&self, expires: Timestamp) {
        self.authority.set(expires.as_second());
    }

    /// A credential was added to a request.
    pub(super) fn credential(&self) {
        self.credentials.inc();
    }

    /// A connection found no room.
    pub fn full(&self) {
        self.full.inc();
    }

    /// The tripwire was touched.
    pub fn tripwire(&self) {
        self.tripwire.inc();
    }

    /// A watch broke.
    pub fn watch_error(&self) {
        self.watch_errors.inc();
    }

    /// The OpenMetrics text, with what is so now.
    #[must_use]
    pub fn render(&self, directory: &Directory, connections: u32, pipes: u32) -> String {
        self.sandboxes.set(i64::try_from(directory.len()).unwrap_or(i64::MAX));
        self.heard.set(directory.last_heard());
        self.connections.set(connections.into());
        self.pipes.set(pipes.into());
        let named = directory.named_ports().borrow().ports().len();
        self.named.set(i64::try_from(named).unwrap_or(i64::MAX));
        for (direction, bytes) in [("up", &self.sent), ("down", &self.received)] {
            let counter = self.bytes.get_or_create(&DirectionLabels { direction });
            counter.inner().store(bytes.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        let mut out = String::with_capacity(4096);
        if text::encode(&mut out, &self.registry).is_err() {
            out.clear();
            let _ = out.write_str("# EOF\n");
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_its_own_labels() {
        let metrics = Metrics::default();
        let entries = [
            Entry::Dns,
            Entry::Connect,
            Entry::Absolute,
            Entry::Tls,
            Entry::Http,
            Entry::Tcp,
            Entry::Tripwire,
        ];
        assert_eq!(entries.len(), ENTRIES);
        let policy = DenyReason::ALL.iter().map(|reason| Reason::Policy(*reason));
        let gateway = Trouble::ALL.iter().map(|trouble| Reason::Gateway(*trouble));
        let reasons: Vec<_> = policy.chain(gateway).collect();
        for entry in entries {
            metrics.allowed(entry);
            for reason in &reasons {
                metrics.refused(entry, *reason);
            }
        }
        let text = metrics.render(&Directory::default(), 0, 0);
        for entry in entries {
            for reason in &reasons {
                let labels = format!("entry=\"{}\",reason=\"{}\"", entry.as_str(), reason.as_str());
                let line =
                    text.lines().find(|line| line.contains("refusals_total") && line.contains(&labels));
                assert!(line.is_some_and(|line| line.ends_with(" 1")), "{labels}: {line:?}");
            }
            let denied = DenyReason::ALL.len();
            for (verdict, count) in [("allow", 1), ("deny", denied), ("fail", reasons.len() - denied)] {
                let line = format!(
                    "glovebox_gateway_decisions_total{{entry=\"{}\",verdict=\"{verdict}\"}} {count}\n",
                    entry.as_str()
                );
                assert!(text.contains(&line), "{line}");
            }
        }
    }
}
