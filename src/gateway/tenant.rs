//! One sandbox as the gateway knows it: who it is, what it may reach, what it uses now and what it was refused.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
    },
};

use arc_swap::ArcSwap;
use jiff::Timestamp;
use smallvec::smallvec;

use super::{
    asks::Asks,
    broker::Purse,
    clock::Clock,
    evidence,
    flow::{Asked, Cause, Flows, Open},
    limit::{Budget, Count, Inside, Rate, Shared},
    names::Admitted,
    reason::Trouble,
    refusals::Refusals,
    suspect::Watch,
    toll::{Few, Toll},
};
use crate::audit::Subject;
use crate::policy::{Destination, Host, Policy, Rule, Width};

pub use super::rule_use::RuleUse;

/// Who a sandbox is. The uid alone is an identity: names are given again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Of the AgentSandbox object.
    pub uid: Arc<str>,
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The most that one sandbox may use of one replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Open connections.
    pub connections: u32,
    /// New connections.
    pub new_connections: Rate,
    /// Connections that have not said yet what they want.
    pub heads: u32,
    /// Bytes that are held until it is known where they go.
    pub buffered_bytes: u32,
    /// DNS queries.
    pub queries: Rate,
    /// Different names an hour under the wildcards of one rule.
    pub names: u32,
    /// Bytes a second to the outside.
    pub upload: Option<Rate>,
    /// Bytes a second from the outside.
    pub download: Option<Rate>,
    /// Bytes to the outside, in its whole life.
    pub upload_budget: Option<u64>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 1024,
            new_connections: Rate::new(200, 400),
            heads: 128,
            buffered_bytes: 1024 * 1024,
            queries: Rate::new(500, 1000),
            names: 500,
            upload: None,
            download: None,
            upload_budget: None,
        }
    }
}

/// What holds for a sandbox now. Swapped as a whole.
#[derive(Debug)]
pub struct Terms {
    /// Grows with each swap.
    pub generation: u64,
    /// Where it may go.
    pub policy: Arc<Policy>,
    /// How much it may use.
    pub limits: Limits,
}

type RuleKey = (Option<Arc<str>>, Arc<str>);

/// Most rules whose use is remembered after they left the policy.
const MOST_OLD_RULES: usize = 1024;

/// One sandbox.
#[derive(Debug)]
pub struct Tenant {
    /// Who it is.
    pub identity: Identity,
    /// What it was refused.
    pub refusals: Refusals,
    /// Connections that have not said yet what they want.
    pub heads: Arc<Count>,
    /// Bytes that are held until it is known where they go.
    pub buffered: Arc<Count>,
    /// Connections that were not let in and are still told so.
    pub turned_away: Arc<Count>,
    /// Whether its workload may have begun: before that, the agent tries what is forbidden.
    pub begun: AtomicBool,
    /// DNS queries.
    pub queries: Shared,
    /// What it does that looks like an attack.
    pub watch: Arc<Watch>,
    /// What it asks a person for.
    pub(super) asks: Arc<Asks>,
    /// Secrets that were had for its requests.
    pub(super) purse: Arc<Purse>,
    /// When the last byte of a flow passed, by the gateway's clock; 0 if none has.
    pub used: Arc<AtomicU64>,
    /// Bytes that left, since this replica knows it.
    pub sent: Arc<AtomicU64>,
    /// Bytes that came.
    pub received: Arc<AtomicU64>,
    /// What a record says of it, but for what holds now.
    pub(super) subject: ArcSwap<Subject>,
    terms: ArcSwap<Terms>,
    flows: Flows,
    clock: Clock,
    connections: Arc<Count>,
    new_connections: Shared,
    upload: Arc<Shared>,
    download: Arc<Shared>,
    budget: Arc<Budget>,
    rules: Mutex<HashMap<RuleKey, Arc<RuleUse>>>,
    /// When the next of its rules ends, in milliseconds.
    next_expiry: AtomicI64,
}

impl Tenant {
    /// One that was just seen.
    #[must_use]
    pub fn new(
        identity: Identity,
        policy: Arc<Policy>,
        limits: Limits,
        clock: Clock,
        now: Timestamp,
    ) -> Arc<Self> {
        Arc::new(Self::fresh(identity, policy, limits, clock, now))
    }

    fn fresh(identity: Identity, policy: Arc<Policy>, limits: Limits, clock: Clock, now: Timestamp) -> Self {
        let at = clock.now();
        Self {
            subject: ArcSwap::from_pointee(evidence::bare(&identity)),
            identity,
            refusals: Refusals::default(),
            heads: Arc::default(),
            buffered: Arc::default(),
            turned_away: Arc::default(),
            begun: AtomicBool::new(false),
            queries: Shared::new(Some(limits.queries), at),
            watch: Arc::default(),
            asks: Arc::default(),
            purse: Arc::default(),
            used: Arc::default(),
            sent: Arc::default(),
            received: Arc::default(),
            flows: Flows::default(),
            clock,
            connections: Arc::default(),
            new_connections: Shared::new(Some(limits.new_connections), at),
            upload: Shared::new(limits.upload, at).into(),
            download: Shared::new(limits.download, at).into(),
            budget: Budget::new(limits.upload_budget).into(),
            rules: Mutex::default(),
            next_expiry: AtomicI64::new(next_expiry(&policy, now)),
            terms: ArcSwap::from_pointee(Terms { generation: 0, policy, limits }),
        }
    }

    /// The same sandbox after this one has ended: nothing is open, and what was used of rates and budgets stays used.
    #[must_use]
    pub fn successor(&self, now: Timestamp) -> Arc<Self> {
        let terms = self.terms();
        let rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let next = Self {
            watch: self.watch.clone(),
            asks: self.asks.clone(),
            purse: self.purse.clone(),
            subject: ArcSwap::new(self.subject.load_full()),
            begun: AtomicBool::new(self.begun.load(Ordering::Relaxed)),
            queries: self.queries.copy(),
            used: self.used.clone(),
            sent: self.sent.clone(),
            received: self.received.clone(),
            new_connections: self.new_connections.copy(),
            upload: self.upload.clone(),
            download: self.download.clone(),
            budget: self.budget.clone(),
            rules: Mutex::new(rules),
            terms: ArcSwap::new(terms.clone()),
            ..Self::fresh(self.identity.clone(), terms.policy.clone(), terms.limits, self.clock, now)
        };
        if next.watch.is_shut() {
            next.end(Cause::Suspected);
        }
        Arc::new(next)
    }

    /// What holds now.
    #[must_use]
    pub fn terms(&self) -> Arc<Terms> {
        self.terms.load_full()
    }

    /// Sets other terms, and closes the open flows that these do not allow. How many that were. One call after the other.
    #[must_use]
    pub fn swap(&self, policy: &Arc<Policy>, limits: Limits, now: Timestamp) -> usize {
        let at = self.clock.now();
        self.terms.rcu(|old| Terms { generation: old.generation + 1, policy: policy.clone(), limits });
        self.queries.with(|bucket| bucket.set(Some(limits.queries), at));
        self.new_connections.with(|bucket| bucket.set(Some(limits.new_connections), at));
        self.upload.with(|bucket| bucket.set(limits.upload, at));
        self.download.with(|bucket| bucket.set(limits.download, at));
        self.budget.set(limits.upload_budget);
        self.set_rules(policy);
        self.purse.keep(policy.credentials());
        self.next_expiry.store(next_expiry(policy, now), Ordering::SeqCst);
        self.flows.judge(policy, now)
    }

    /// Closes flows whose rule has ended, if one has. How many that were.
    #[must_use]
    pub fn expire(&self, now: Timestamp) -> usize {
        if self.next_expiry.load(Ordering::Relaxed) > now.as_millisecond() {
            return 0;
        }
        loop {
            let terms = self.terms.load_full();
            self.next_expiry.store(next_expiry(&terms.policy, now), Ordering::SeqCst);
            // A swap sets its terms first, then its moment: if that was overwritten just now, the new terms are seen here.
            if self.terms.load().generation == terms.generation {
                return self.flows.judge(&terms.policy, now);
            }
        }
    }

    /// Forgets secrets that nobody uses.
    pub(super) fn sweep(&self) {
        self.purse.sweep(self.clock.now());
    }

    /// It is gone, or the gateway is: all flows end, and none begins.
    pub fn end(&self, cause: Cause) {
        self.flows.end(cause);
        self.asks.wake();
    }

    /// Whether no flow may begin any more.
    pub(super) fn is_ended(&self) -> bool {
        self.flows.is_ended()
    }

    /// How many flows are open.
    #[must_use]
    pub fn open_flows(&self) -> usize {
        self.flows.count()
    }

    /// Lets a connection in.
    ///
    /// # Errors
    /// Which limit it meets.
    pub fn connect(&self) -> Result<Inside, Trouble> {
        let most = self.terms.load().limits.connections;
        let inside = self.connections.enter(1, most).ok_or(Trouble::TooManyConnections)?;
        if self.new_connections.one(|| self.clock.now()) { Ok(inside) } else { Err(Trouble::TooManyNew) }
    }

    /// Registers a flow. If the terms changed since it was judged, it is judged again: between the judging and here, a swap
    /// could not see it.
    ///
    /// # Errors
    /// Why it must end at once.
    pub fn open(&self, asked: &Asked, judged_by: u64, now: Timestamp) -> Result<Open, Cause> {
        let open = self.flows.open(asked.clone())?;
        let terms = self.terms.load();
        if terms.generation != judged_by && asked.judge(&terms.policy, now).denied().is_some() {
            return Err(Cause::Revoked);
        }
        Ok(open)
    }

    /// Counts a connection against its rule.
    ///
    /// # Errors
    /// Which limit it meets.
    pub fn use_rule(
        &self,
        rule: &Rule,
        destination: &Destination,
    ) -> Result<(Arc<RuleUse>, Inside), Trouble> {
        if destination.name().is_some_and(|host| !self.admits(rule, host)) {
            return Err(Trouble::TooManyNames);
        }
        let used = self.rule_use(rule);
        let most = rule.limits.max_connections.unwrap_or(u32::MAX);
        let inside = used.connections.enter(1, most).ok_or(Trouble::TooManyConnections)?;
        let now = || self.clock.now();
        if used.new_connections.one(now) { Ok((used, inside)) } else { Err(Trouble::TooManyNew) }
    }

    /// Whether a name that the rule allows is one of so many. A name that the rule spells out is none of them.
    #[must_use]
    pub fn admits(&self, rule: &Rule, host: &Host) -> bool {
        if rule.hosts.iter().any(|pattern| pattern.width() == Width::Exact && pattern.matches(host)) {
            return true;
        }
        let used = self.rule_use(rule);
        let mut names = used.names.lock().unwrap_or_else(PoisonError::into_inner);
        match names.admit(self.clock.now(), host.as_str(), self.terms.load().limits.names) {
            Admitted::No => false,
            Admitted::Known => true,
            Admitted::New { hour, carried } => {
                if let Some(bytes) = carried {
                    self.watch.carried(&rule.name, hour, bytes);
                }
                true
            }
        }
    }

    /// What bytes to the outside pass.
    #[must_use]
    pub fn up(&self, rule: &RuleUse, counted: &Arc<AtomicU64>) -> Toll {
        Toll {
            rates: smallvec![rule.upload.clone(), self.upload.clone()],
            budgets: smallvec![rule.budget.clone(), self.budget.clone()],
            counted: smallvec![self.sent.clone(), counted.clone()],
            clock: self.clock,
        }
    }

    /// What bytes from the outside pass.
    #[must_use]
    pub fn down(&self, counted: &Arc<AtomicU64>) -> Toll {
        Toll {
            rates: smallvec![self.download.clone()],
            budgets: Few::new(),
            counted: smallvec![self.received.clone(), counted.clone()],
            clock: self.clock,
        }
    }

    fn rule_use(&self, rule: &Rule) -> Arc<RuleUse> {
        let mut rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (rule.policy.clone(), rule.name.clone());
        rules.entry(key).or_insert_with(|| RuleUse::new(&rule.limits, self.clock.now()).into()).clone()
    }

    /// Whatever is long is done without the lock, which every connection takes.
    fn set_rules(&self, policy: &Policy) {
        let lock = || self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        let used: Vec<_> = lock().iter().map(|(key, used)| (key.clone(), used.clone())).collect();
        if used.is_empty() {
            return;
        }
        let named = policy.rules().iter().map(|rule| ((rule.policy.as_deref(), &*rule.name), rule));
        let now: HashMap<_, _> = named.collect();
        let (at, many) = (self.clock.now(), used.len() > MOST_OLD_RULES);
        for ((policy, name), used) in used {
            if let Some(rule) = now.get(&(policy.as_deref(), &*name)) {
                used.set(&rule.limits, at);
            }
        }
        if many {
            lock().retain(|(policy, name), used| {
                Arc::strong_count(used) > 1 || now.contains_key(&(policy.as_deref(), &**name))
            });
        }
    }
}

fn next_expiry(policy: &Policy, now: Timestamp) -> i64 {
    let ends = policy.rules().iter().filter_map(|rule| rule.expires_at).filter(|end| *end > now);
    // Rounded up: a rule that ends within a millisecond has not ended at its beginning.
    ends.min().map_or(i64::MAX, |end| end.as_millisecond().saturating_add(1))
}
