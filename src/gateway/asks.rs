//! Destinations that no rule names, where the sandbox's class has such ones asked for: noted, each once and no more than so many, for the
//! controller to ask a person; and waited for, where the class holds connections meanwhile.
//!
//! Resolves nothing: what is not allowed is asked of nobody but a person.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use tokio::{sync::Notify, time::Instant};

use super::{
    admit::Visit,
    clock::Clock,
    flow::Asked,
    reason::{Reason, Refusal, Trouble},
};
use crate::{
    api::{ApprovalPhase, ClassEgress, EgressApproval, Unmatched},
    detect,
    policy::{ClusterRanges, DenyReason, Destination},
    sandbox::approvals,
};

/// Most destinations that are noted of one sandbox. The class says how many are asked for.
const MOST: usize = 64;
/// How often it is told that one is wanted still.
const AGAIN: SignedDuration = SignedDuration::from_secs(60);

/// What holds for asking.
#[derive(Debug)]
struct Terms {
    class: ClassEgress,
    cluster: ClusterRanges,
}

#[derive(Clone, Debug)]
struct Noted {
    first: Timestamp,
    last: Timestamp,
    told: Timestamp,
    count: u64,
}

type Key = (String, u16);

#[derive(Debug, Default)]
struct State {
    terms: Option<Arc<Terms>>,
    noted: BTreeMap<Key, Noted>,
    denied: BTreeSet<Key>,
}

/// What one sandbox asks for.
#[derive(Debug, Default)]
pub(super) struct Asks {
    state: Mutex<State>,
    /// What holds for the sandbox may have changed.
    changed: Notify,
}

impl Asks {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What its class says, and what people denied.
    pub(super) fn set(
        &self,
        class: Option<&ClassEgress>,
        cluster: &ClusterRanges,
        decided: &[Arc<EgressApproval>],
    ) {
        let asks = class.filter(|class| class.unmatched == Unmatched::Ask);
        let denied = decided
            .iter()
            .filter(|one| one.status.as_ref().is_some_and(|status| status.phase == ApprovalPhase::Denied));
        let denied =
            denied.filter_map(|one| Some((one.spec.host.clone(), u16::try_from(one.spec.port).ok()?)));
        let mut state = self.lock();
        state.terms = asks.map(|class| Terms { class: class.clone(), cluster: cluster.clone() }.into());
        state.denied = denied.collect();
        drop(state);
        self.changed.notify_waiters();
    }

    /// Notes that it is wanted. Whether it is new, or wanted still after a while.
    pub(super) fn note(&self, host: &str, port: u16, now: Timestamp) -> bool {
        let key = (host.to_owned(), port);
        let mut state = self.lock();
        let Some(terms) = state.terms.clone() else { return false };
        if let Some(noted) = state.noted.get_mut(&key) {
            noted.count = noted.count.saturating_add(1);
            noted.last = now;
            let again = now.duration_since(noted.told) >= AGAIN;
            if again {
                noted.told = now;
            }
            return again;
        }
        let fits =
            |terms: &Terms| approvals::may_be_given(host, port.into(), &terms.class, &terms.cluster).is_ok();
        let new = state.noted.len() < MOST && fits(&terms);
        if new {
            state.noted.insert(key, Noted { first: now, last: now, told: now, count: 1 });
        }
        new
    }

    /// All that was noted.
    pub(super) fn all(&self) -> Vec<detect::Wanted> {
        let state = self.lock();
        let all = state.noted.iter().map(|((host, port), noted)| detect::Wanted {
            host: host.clone(),
            port: *port,
            first_ms: noted.first.as_millisecond(),
            last_ms: noted.last.as_millisecond(),
            count: noted.count,
        });
        all.collect()
    }

    /// A refusal in the words that fit: whether it was asked, or answered.
    pub(super) fn reword(&self, refusal: Refusal) -> Refusal {
        if !is_unmatched(refusal.reason) {
            return refusal;
        }
        let state = self.lock();
        let port = if refusal.port == 0 { 443 } else { refusal.port };
        let key = (refusal.host.clone(), port);
        let trouble = if state.terms.is_none() {
            return refusal;
        } else if state.denied.contains(&key) {
            Trouble::AskedInVain
        } else if state.noted.contains_key(&key) {
            Trouble::Asked
        } else {
            return refusal;
        };
        Refusal { reason: trouble.into(), ..refusal }
    }

    /// For how long a connection to this waits: not at all where it is not asked for, or was answered.
    fn hold(&self, host: &str, port: u16) -> Option<Duration> {
        let state = self.lock();
        let key = (host.to_owned(), port);
        let waits = state.noted.contains_key(&key) && !state.denied.contains(&key);
        let hold = state.terms.as_ref()?.class.ask.hold?;
        waits.then(|| hold.duration())
    }
}

/// Whether it is refused because no rule names it.
const fn is_unmatched(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::Policy(DenyReason::NoRule | DenyReason::PortNotAllowed | DenyReason::RuleExpired)
    )
}

impl Visit {
    /// Before something is judged: where no rule names it and the class has it asked for, notes it, and waits for the answer.
    pub(super) async fn ask_first(&self, asked: &Asked) {
        let Destination::Name(host) = &asked.destination else { return };
        let asks = &self.tenant.asks;
        let unmatched = || {
            let terms = self.tenant.terms();
            let denied = asked.judge(&terms.policy, Clock::wall()).denied();
            denied.is_some_and(|denial| is_unmatched(denial.reason.into()))
        };
        if self.tenant.watch.is_shut() || !unmatched() {
            return;
        }
        if asks.note(host.as_str(), asked.port, Clock::wall()) {
            self.tenant.watch.tell();
            self.gateway.directory.heed(&self.tenant);
        }
        let Some(hold) = asks.hold(host.as_str(), asked.port) else { return };
        let until = Instant::now() + hold;
        loop {
            let mut changed = std::pin::pin!(asks.changed.notified());
            changed.as_mut().enable();
            if !unmatched() || asks.hold(host.as_str(), asked.port).is_none() {
                return;
            }
            tokio::select! {
                () = changed => {}
                () = tokio::time::sleep_until(until) => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(unmatched: &str) -> ClassEgress {
        serde_json::from_value(serde_json::json!({
            "unmatched": unmatched,
            "ceiling": {"hosts": ["**.team.example"], "cidrs": [], "ports": [443, 80]},
            "deny": [{"hosts": ["never.team.example"], "reason": "no"}],
        }))
        .unwrap()
    }

    #[test]
    fn what_may_be_given_is_noted_once_and_the_rest_never() {
        let asks = Asks::default();
        let now = Timestamp::UNIX_EPOCH;
        assert!(!asks.note("a.team.example", 443, now), "nobody said that it is to be asked for");
        asks.set(Some(&class("Ask")), &ClusterRanges::default(), &[]);
        assert!(asks.note("a.team.example", 443, now) && !asks.note("a.team.example", 443, now));
        assert!(asks.note("a.team.example", 80, now));
        for (host, port) in [
            ("never.team.example", 443),
            ("other.test", 443),
            ("a.team.example", 22),
            ("*.a.team.example", 443),
            ("dns.google", 443),
            ("metadata.google.internal", 443),
        ] {
            assert!(!asks.note(host, port, now), "{host}:{port}");
        }
        let later = now + AGAIN;
        assert!(asks.note("a.team.example", 443, later) && !asks.note("a.team.example", 443, later));
        assert_eq!(asks.all()[1].count, 4);
        for n in 0..1000 {
            asks.note(&format!("{n}.team.example"), 443, now);
        }
        assert_eq!(asks.all().len(), MOST);
        asks.set(Some(&class("Deny")), &ClusterRanges::default(), &[]);
        assert!(!asks.note("b.team.example", 443, now));
    }

    #[test]
    fn a_refusal_says_that_it_was_asked() {
        let asks = Asks::default();
        asks.set(Some(&class("Ask")), &ClusterRanges::default(), &[]);
        asks.note("a.team.example", 443, Timestamp::UNIX_EPOCH);
        let reason =
            |host: &str, port| asks.reword(Refusal::raw(DenyReason::NoRule, host.as_bytes(), port)).reason;
        assert_eq!(
            (reason("a.team.example", 443), reason("a.team.example", 0)),
            (Trouble::Asked.into(), Trouble::Asked.into())
        );
        assert_eq!(reason("b.team.example", 443), DenyReason::NoRule.into());
        let other = Refusal::raw(DenyReason::MetadataName, b"a.team.example", 443);
        assert_eq!(asks.reword(other.clone()), other);
    }
}
