//! The one path of every entry: who is it, is there room, may it, and then to a socket.
//!
//! Holds no rule. Must never hand out a socket for what was not authorized, resolved and checked.

use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwapOption;
use tokio::net::TcpStream;

use super::{
    broker::Source,
    clock::Clock,
    config::Timing,
    directory::Directory,
    entry::Entry,
    evidence::Connection,
    flow::{Asked, Cause, Flow, Open},
    limit::{Count, Inside, Nanos},
    metrics::Metrics,
    opened::Opener,
    reason::{Reason, Refusal, Trouble},
    refusals::Added,
    relay::{Ways, relay},
    resolve::{Pinned, Resolver},
    room::Room,
    tenant::{RuleUse, Tenant},
    toll::Toll,
};
use crate::policy::{Policy, Severity, Verdict};
use crate::{
    api::Protocol,
    audit::{NotRecorded, Recorder},
    policy::Destination,
    used::{Used, millis},
};

pub use super::alarms::{Alarms, LogAlarms};

/// Most connections of one sandbox that were not let in and are told so at once. Others are closed without a word: whoever
/// does not read its refusals must not fill the replica with them.
const MOST_TURNED_AWAY: u32 = 32;

/// What every entry needs.
pub struct Gateway {
    /// Who is which address.
    pub directory: Arc<Directory>,
    /// Resolves and dials.
    pub resolver: Resolver,
    /// Counters.
    pub metrics: Arc<Metrics>,
    /// Opens TLS where a rule has requests looked at; none where there is no authority of the installation. Replaced when its
    /// files change.
    pub opener: ArcSwapOption<Opener>,
    /// Told of what is severe.
    pub alarms: Arc<dyn Alarms>,
    /// How long things may take.
    pub timing: Timing,
    /// Time.
    pub clock: Clock,
    /// Most of a kind.
    pub room: Room,
    /// Connections now.
    pub connections: Arc<Count>,
    /// Pipes now.
    pub pipes: Arc<Count>,
    /// Connections of nobody that are still told so.
    pub turned_away: Arc<Count>,
    /// Where it is said what was done.
    pub recorder: Recorder,
    /// Whoever has the secrets that are added to requests.
    pub secrets: Arc<dyn Source>,
    /// How many connections are on the record.
    pub numbers: AtomicU64,
}

impl Gateway {
    /// Counts a refusal, keeps it with its sandbox, and tells of what is severe.
    pub fn refuse(&self, who: Option<&Tenant>, source: IpAddr, entry: Entry, refusal: &Refusal) {
        self.metrics.refused(entry, refusal.reason);
        if refusal.reason.is_noise() {
            return;
        }
        let added = who.map_or(Added::First, |tenant| tenant.refusals.add(entry, refusal, Clock::wall()));
        if added == Added::Repeat {
            return;
        }
        if let Some(tenant) = who {
            tenant.watch.refused(self.clock.now(), refusal);
            self.directory.heed(tenant);
        }
        if added == Added::First && refusal.reason.severity() == Severity::C {
            self.alarms.severe(who.map(|tenant| &tenant.identity), source, entry, refusal);
        }
    }

    /// When the sandbox with this uid, whose pod has this address, was last used.
    pub(super) fn used(&self, uid: &str, address: IpAddr) -> Used {
        let now = self.clock.now();
        let last = self.directory.find(address).filter(|tenant| &*tenant.identity.uid == uid);
        let last = last.map(|tenant| tenant.used.load(Ordering::Relaxed)).filter(|last| *last > 0);
        let ago = |last: Nanos| millis(Duration::from_nanos(now.saturating_sub(last)));
        Used { up_ms: millis(Duration::from_nanos(now)), ago_ms: last.map(ago) }
    }
}

/// A connection that was not let in.
pub struct TurnedAway {
    /// Why.
    pub reason: Reason,
    /// Room to tell it so, if there is some.
    pub place: Option<Inside>,
}

/// One connection of a known sandbox.
pub struct Visit {
    /// What every entry needs.
    pub gateway: Arc<Gateway>,
    /// Whose.
    pub tenant: Arc<Tenant>,
    /// From where.
    pub source: IpAddr,
    /// Where it came in.
    pub entry: Entry,
    _place: Inside,
}

impl Visit {
    /// Finds out who it is and lets it in.
    ///
    /// # Errors
    /// Why not.
    pub async fn enter(gateway: Arc<Gateway>, source: IpAddr, entry: Entry) -> Result<Self, TurnedAway> {
        let found = gateway.directory.hold(source, gateway.timing.hold).await;
        let refuse = |tenant: Option<&Tenant>, trouble: Trouble| {
            let refusal = Refusal::raw(trouble, b"", 0);
            gateway.refuse(tenant, source, entry, &refusal);
            let told = tenant.map_or(&gateway.turned_away, |tenant| &tenant.turned_away);
            TurnedAway { reason: refusal.reason, place: told.enter(1, MOST_TURNED_AWAY) }
        };
        let Some(tenant) = found else { return Err(refuse(None, Trouble::UnknownSource)) };
        match tenant.connect() {
            Ok(place) => Ok(Self { gateway, tenant, source, entry, _place: place }),
            Err(trouble) => Err(refuse(Some(&tenant), trouble)),
        }
    }

    /// Records a refusal and hands it back, to be said to the client.
    #[must_use]
    pub fn refuse(&self, refusal: Refusal) -> Refusal {
        let refusal = self.tenant.asks.reword(refusal);
        self.gateway.refuse(Some(&self.tenant), self.source, self.entry, &refusal);
        refusal
    }

    /// The policy's word on something, without counting it: for what is judged again later.
    ///
    /// # Errors
    /// The refusal.
    pub fn judge(&self, asked: &Asked) -> Result<Protocol, Refusal> {
        self.not_shut(asked)?;
        let terms = self.tenant.terms();
        match asked.judge(&terms.policy, Clock::wall()) {
            Verdict::Allow(rule) => Ok(rule.protocol),
            Verdict::Deny(denial) => Err(Refusal::denied(&denial, asked)),
        }
    }

    /// The policy's word, and the rule's limits.
    ///
    /// # Errors
    /// The refusal, recorded.
    pub fn authorize(&self, asked: Asked) -> Result<Authorized, Refusal> {
        self.not_shut(&asked).map_err(|refusal| self.refuse(refusal))?;
        let terms = self.tenant.terms();
        match asked.judge(&terms.policy, Clock::wall()) {
            Verdict::Deny(denial) => Err(self.refuse(Refusal::denied(&denial, &asked))),
            Verdict::Allow(rule) => match self.tenant.use_rule(rule, &asked.destination) {
                Err(trouble) => {
                    let rule = Some(rule.name.clone());
                    Err(self.refuse(Refusal { rule, ..Refusal::about(trouble, &asked) }))
                }
                Ok((used, place)) => {
                    self.gateway.metrics.allowed(self.entry);
                    let (generation, policy) = (terms.generation, terms.policy.clone());
                    let (rule, brokered) = (rule.name.clone(), rule.require_brokered);
                    Ok(Authorized { asked, generation, policy, rule, brokered, used, _place: place })
                }
            },
        }
    }

    fn not_shut(&self, asked: &Asked) -> Result<(), Refusal> {
        if self.tenant.watch.is_shut() { Err(Refusal::about(Trouble::Suspected, asked)) } else { Ok(()) }
    }

    /// Finds addresses that may be dialled.
    ///
    /// # Errors
    /// The refusal, recorded.
    pub async fn pin(&self, authorized: Authorized) -> Result<Pinned, Refusal> {
        let pinned = self.gateway.resolver.pin(authorized).await;
        pinned.map_err(|(trouble, authorized)| self.refuse(Refusal::about(trouble, &authorized.asked)))
    }

    /// Dials, and registers the flow.
    ///
    /// # Errors
    /// The refusal, recorded.
    pub async fn dial(&self, pinned: Pinned) -> Result<(TcpStream, Dialled<'_>), Refusal> {
        let (asked, rule) = (pinned.authorized().asked(), &pinned.authorized().rule);
        let recorded = Connection::begin(self, asked, rule, pinned.addresses()).await;
        let mut record =
            recorded.map_err(|NotRecorded| self.refuse(Refusal::about(Trouble::NotRecorded, asked)))?;
        let dialled = pinned.dial(self.gateway.timing.dial).await;
        let (stream, authorized) = dialled
            .map_err(|(trouble, authorized)| self.refuse(Refusal::about(trouble, &authorized.asked)))?;
        let Authorized { asked, generation, used, _place: place, .. } = authorized;
        match self.tenant.open(&asked, generation, Clock::wall()) {
            Ok(open) => {
                self.gateway.metrics.opened();
                let metrics = &self.gateway.metrics;
                let (mut up, mut down) =
                    (self.tenant.up(&used, &metrics.sent), self.tenant.down(&metrics.received));
                if let Some(record) = &mut record {
                    record.dialled(stream.peer_addr().ok().map(|peer| peer.ip()));
                    up.counted.push(record.sent.clone());
                    down.counted.push(record.received.clone());
                }
                let cause = Cause::Broken;
                let dialled = Dialled { up, down, open, asked, visit: self, cause, record, _place: place };
                Ok((stream, dialled))
            }
            Err(cause) => Err(self.refuse(self.ended(cause, &asked))),
        }
    }

    /// All of that: the policy's word, addresses, and a socket.
    ///
    /// # Errors
    /// The refusal, recorded.
    pub async fn reach(&self, asked: Asked) -> Result<(TcpStream, Dialled<'_>), Refusal> {
        self.dial(self.pin(self.authorize(asked)?).await?).await
    }

    /// What to say of something that was allowed a moment ago.
    fn ended(&self, cause: Cause, asked: &Asked) -> Refusal {
        match (cause, asked.judge(&self.tenant.terms().policy, Clock::wall())) {
            (Cause::Revoked, Verdict::Deny(denial)) => Refusal::denied(&denial, asked),
            (Cause::Drained, _) => Refusal::about(Trouble::Draining, asked),
            (Cause::Suspected, _) => Refusal::about(Trouble::Suspected, asked),
            _ => Refusal::about(Trouble::UnknownSource, asked),
        }
    }
}

/// What policy allowed, not yet resolved.
pub struct Authorized {
    asked: Asked,
    generation: u64,
    policy: Arc<Policy>,
    rule: Arc<str>,
    brokered: bool,
    used: Arc<RuleUse>,
    _place: Inside,
}

impl Authorized {
    /// What was asked for.
    #[must_use]
    pub const fn asked(&self) -> &Asked {
        &self.asked
    }

    /// The policy that allowed it.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The rule that did.
    pub(super) const fn rule(&self) -> &Arc<str> {
        &self.rule
    }

    /// Whether that lets no credential of the workload's own through.
    pub(super) const fn requires_brokered(&self) -> bool {
        self.brokered
    }
}

/// The flow of a socket to what was allowed. It counts as broken unless it is said how it ended.
pub struct Dialled<'a> {
    /// What bytes to the outside pass.
    pub up: Toll,
    /// What bytes from the outside pass.
    pub down: Toll,
    open: Open,
    asked: Asked,
    visit: &'a Visit,
    cause: Cause,
    record: Option<Box<Connection>>,
    _place: Inside,
}

impl Dialled<'_> {
    /// What was asked for.
    #[must_use]
    pub const fn asked(&self) -> &Asked {
        &self.asked
    }

    /// What ties its records together, if there are any.
    pub(super) fn number(&self) -> Option<String> {
        self.record.as_ref().and_then(|record| record.number())
    }

    /// The flow, to be watched for its end.
    #[must_use]
    pub fn flow(&self) -> &Flow {
        &self.open
    }

    /// A refusal of what was allowed, recorded: the other side could not do its part.
    #[must_use]
    pub fn about(&self, trouble: Trouble) -> Refusal {
        let refusal = Refusal::about(trouble, &self.asked);
        // A spent budget is recorded at the end, for tunnels as for requests.
        if trouble == Trouble::UploadSpent { refusal } else { self.visit.refuse(refusal) }
    }

    /// Says how it ended.
    pub fn end(mut self, cause: Cause) {
        self.cause = cause;
        if cause == Cause::Spent {
            let refusal = Refusal::about(Trouble::UploadSpent, &self.asked);
            self.visit.gateway.refuse(
                Some(&self.visit.tenant),
                self.visit.source,
                self.visit.entry,
                &refusal,
            );
        }
    }

    /// Carries bytes both ways until the end. `first` was read before.
    pub async fn relay(self, client: &TcpStream, upstream: &TcpStream, first: Vec<u8>) {
        let gateway = &self.visit.gateway;
        let pipes = || gateway.pipes.enter(1, gateway.room.pipes);
        let used = &self.visit.tenant.used;
        let ways = Ways { up: &self.up, down: &self.down, used, idle: gateway.timing.idle, pipes: &pipes };
        let cause = relay(client, upstream, first, &self.open, ways).await;
        self.end(cause);
    }
}

impl Drop for Dialled<'_> {
    fn drop(&mut self) {
        self.visit.gateway.metrics.ended(self.cause);
        if let Some(record) = &mut self.record {
            record.cause = Some(self.cause);
        }
    }
}

/// Whether bytes to this destination are passed unseen: the rule says so, or there is no name to compare.
#[must_use]
pub fn is_opaque(protocol: Protocol, destination: &Destination) -> bool {
    protocol == Protocol::Tcp || matches!(destination, Destination::Address(_))
}
