//! Destinations that no rule names, where the sandbox's class has such ones asked for: noted, each once and no more than so many, for the
//! controller to ask a person; and waited for, where the class holds connections meanwhile.
//!
//! Resolves nothing: what is not allowed is asked of nobody but a person.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use tokio::{net::TcpStream, sync::Notify, time::Instant};

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
/// Most new destinations of one sandbox that are looked at within a second: to see whether one may be given takes as long as to read the
/// class's bounds.
const JUDGED: u32 = 10;
/// How often it is told that one is wanted still.
const AGAIN: SignedDuration = SignedDuration::from_secs(60);
/// How long a question takes to be made.
const MADE: Duration = Duration::from_secs(3);

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
    /// Questions that were made, and where each stands.
    made: BTreeMap<Key, ApprovalPhase>,
    /// The second in which destinations are looked at, and how many were.
    judged: (i64, u32),
}

/// What one sandbox asks for.
#[derive(Debug, Default)]
pub(super) struct Asks {
    on: AtomicBool,
    state: Mutex<State>,
    /// What holds for the sandbox may have changed.
    changed: Notify,
}

impl Asks {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What its class says, and what was asked and answered.
    pub(super) fn set(
        &self,
        class: Option<&ClassEgress>,
        cluster: &ClusterRanges,
        made: &[Arc<EgressApproval>],
    ) {
        let asks = class.filter(|class| class.unmatched == Unmatched::Ask);
        let made = made.iter().filter_map(|one| {
            let phase = one.status.as_ref().map_or(ApprovalPhase::Pending, |status| status.phase);
            Some(((one.spec.host.clone(), u16::try_from(one.spec.port).ok()?), phase))
        });
        let mut state = self.lock();
        state.terms = asks.map(|class| Terms { class: class.clone(), cluster: cluster.clone() }.into());
        state.made = made.collect();
        self.on.store(state.terms.is_some(), Ordering::Release);
        drop(state);
        self.wake();
    }

    /// Whoever waits looks again.
    pub(super) fn wake(&self) {
        self.changed.notify_waiters();
    }

    /// Whether its class has things asked for.
    fn is_on(&self) -> bool {
        self.on.load(Ordering::Acquire)
    }

    /// Notes that it is wanted. Whether it is new, or wanted still after a while.
    pub(super) fn note(&self, host: &str, port: u16, now: Timestamp) -> bool {
        if !self.is_on() {
            return false;
        }
        let key = (host.to_owned(), port);
        let Some(terms) = ({
            let mut state = self.lock();
            if let Some(noted) = state.noted.get_mut(&key) {
                noted.count = noted.count.saturating_add(1);
                noted.last = now;
                let again = now.duration_since(noted.told) >= AGAIN;
                if again {
                    noted.told = now;
                }
                return again;
            }
            state.may_judge(now).then(|| state.terms.clone()).flatten()
        }) else {
            return false;
        };
        // Without the lock, which every connection takes.
        if approvals::may_be_given(host, port.into(), &terms.class, &terms.cluster).is_err() {
            return false;
        }
        let mut state = self.lock();
        let new = state.noted.len() < MOST;
        if new {
            state.noted.entry(key).or_insert(Noted { first: now, last: now, told: now, count: 1 });
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
        if !self.is_on() || !is_unmatched(refusal.reason) {
            return refusal;
        }
        let port = if refusal.port == 0 { 443 } else { refusal.port };
        let key = (refusal.host.clone(), port);
        let state = self.lock();
        let trouble = match state.made.get(&key) {
            Some(ApprovalPhase::Denied) => Trouble::AskedInVain,
            Some(_) => Trouble::Asked,
            None if state.is_being_made(&key, Clock::wall()) => Trouble::Asked,
            None => return refusal,
        };
        Refusal { reason: trouble.into(), ..refusal }
    }

    /// For how long a connection to this waits at most, and how soon it is looked at again: not at all where nobody is asked, or was
    /// answered.
    fn hold(&self, host: &str, port: u16) -> Option<(Duration, Duration)> {
        let state = self.lock();
        let hold = state.terms.as_ref()?.class.ask.hold?.duration();
        let key = (host.to_owned(), port);
        match state.made.get(&key) {
            Some(ApprovalPhase::Pending) => Some((hold, hold)),
            Some(_) => None,
            None => state.is_being_made(&key, Clock::wall()).then_some((hold, MADE)),
        }
    }
}

impl State {
    fn may_judge(&mut self, now: Timestamp) -> bool {
        let second = now.as_second();
        if self.judged.0 != second {
            self.judged = (second, 0);
        }
        self.judged.1 += 1;
        self.judged.1 <= JUDGED && self.noted.len() < MOST
    }

    /// Whether it was noted a moment ago, so that the question may be on its way.
    fn is_being_made(&self, key: &Key, now: Timestamp) -> bool {
        let made = SignedDuration::try_from(MADE).unwrap_or_default();
        self.noted.get(key).is_some_and(|noted| now.duration_since(noted.first) < made)
    }
}

/// Whether it is refused because no rule names it.
pub(super) const fn is_unmatched(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::Policy(DenyReason::NoRule | DenyReason::PortNotAllowed | DenyReason::RuleExpired)
    )
}

impl Visit {
    /// Before something is judged: where no rule names it and the class has it asked for, notes it, and waits for the answer, for as long
    /// as `client` does.
    pub(super) async fn ask_first(&self, asked: &Asked, client: Option<&TcpStream>) {
        let Destination::Name(host) = &asked.destination else { return };
        let asks = &self.tenant.asks;
        let unmatched = || {
            let terms = self.tenant.terms();
            let denied = asked.judge(&terms.policy, Clock::wall()).denied();
            denied.is_some_and(|denial| is_unmatched(denial.reason.into()))
        };
        if !asks.is_on() || self.tenant.watch.is_shut() || !unmatched() {
            return;
        }
        if asks.note(host.as_str(), asked.port, Clock::wall()) {
            self.tenant.watch.tell();
            self.gateway.directory.heed(&self.tenant);
        }
        let waits = async {
            let began = Instant::now();
            loop {
                let mut changed = std::pin::pin!(asks.changed.notified());
                changed.as_mut().enable();
                let Some((hold, again)) = asks.hold(host.as_str(), asked.port) else { return };
                let left = hold.saturating_sub(began.elapsed());
                if left.is_zero() || self.tenant.is_ended() || !unmatched() {
                    return;
                }
                // Whether that is a change or the time, it is looked at again.
                let _ = tokio::time::timeout(again.min(left), changed).await;
            }
        };
        tokio::select! { () = waits => {} () = gone(client) => {} }
    }
}

/// Returns when the client has gone away. What it says meanwhile is left where it is; after that, its going is not seen.
async fn gone(client: Option<&TcpStream>) {
    let mut byte = [0];
    match client {
        Some(client) if !matches!(client.peek(&mut byte).await, Ok(1..)) => {}
        _ => std::future::pending().await,
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
        assert!(
            !asks.is_on() && !asks.note("a.team.example", 443, now),
            "nobody said that it is to be asked for"
        );
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
        for n in 0..1000_i64 {
            asks.note(&format!("{n}.team.example"), 443, now);
        }
        assert!(asks.all().len() <= 2 + JUDGED as usize, "so many are looked at in a second");
        for n in 0..1000_i64 {
            asks.note(&format!("{n}.team.example"), 443, now + SignedDuration::from_secs(n));
        }
        assert_eq!(asks.all().len(), MOST);
        asks.set(Some(&class("Deny")), &ClusterRanges::default(), &[]);
        assert!(!asks.note("b.team.example", 443, now));
    }

    #[test]
    fn a_refusal_says_that_it_was_asked() {
        let asks = Asks::default();
        asks.set(Some(&class("Ask")), &ClusterRanges::default(), &[]);
        asks.note("a.team.example", 443, Clock::wall());
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
