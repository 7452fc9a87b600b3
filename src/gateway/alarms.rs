//! Who is told of what is severe.

use std::net::IpAddr;

use super::{entry::Entry, reason::Refusal, tenant::Identity};

/// Told of each kind of refusal that no honest client meets, once for each kind until refusals are taken.
pub trait Alarms: Send + Sync {
    /// Somebody did it.
    fn severe(&self, who: Option<&Identity>, source: IpAddr, entry: Entry, refusal: &Refusal);
}

/// Says it in the log.
#[derive(Clone, Copy, Debug, Default)]
pub struct LogAlarms;

impl Alarms for LogAlarms {
    fn severe(&self, who: Option<&Identity>, source: IpAddr, entry: Entry, refusal: &Refusal) {
        tracing::warn!(
            sandbox = who.map(tracing::field::display),
            %source,
            entry = entry.as_str(),
            reason = refusal.reason.as_str(),
            host = refusal.host,
            port = refusal.port,
            "no honest client does this"
        );
    }
}
