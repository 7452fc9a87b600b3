//! What a sandbox does here that looks like an attack: signs of what it was refused, of the names that it asks for and of the bytes that
//! leave. And the end of all its egress, at once and by this replica alone, where its class says so and what this replica saw is enough;
//! what all of them saw is the controller's to add up.

use std::{
    fmt::Write as _,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use super::{
    directory::Directory,
    flow::Cause,
    limit::{Nanos, Rate},
    reason::{Reason, Refusal, Trouble},
    tenant::{Limits, Tenant},
};
use crate::{
    api::{AgentSandbox, SandboxClass, SuspicionAction},
    detect::{Names, Sign, Signs, Told, Upload, Weight},
    policy::{DenyReason, Severity},
    sandbox::suspicion::Seen,
};

/// Nanoseconds in which the same thing is seen once.
const PERIOD: Nanos = 3_000_000_000;

/// What is enough to end all egress here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bounds {
    severe: u32,
    score: u32,
}

#[derive(Debug, Default)]
struct State {
    signs: Signs,
    names: Names,
    upload: Upload,
    bounds: Option<Bounds>,
}

/// One sandbox under watch.
#[derive(Debug, Default)]
pub struct Watch {
    state: Mutex<State>,
    /// Whether there are signs that were not told.
    news: AtomicBool,
    /// Which change of the replica's was its last.
    told: AtomicU64,
    shut: AtomicBool,
}

impl Watch {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn see(&self, state: &mut State, now: Nanos, sign: Sign) {
        if state.signs.see(sign, now / PERIOD) {
            self.news.store(true, Ordering::Release);
        }
    }

    /// There is something else to tell.
    pub(super) fn tell(&self) {
        self.news.store(true, Ordering::Release);
    }

    /// It was refused something.
    pub fn refused(&self, now: Nanos, refusal: &Refusal) {
        if let Some(sign) = sign(refusal) {
            self.see(&mut self.lock(), now, sign);
        }
    }

    /// It asked for a name.
    pub fn asked(&self, now: Nanos, name: &str, refused: bool) {
        let mut state = self.lock();
        if let Some(what) = state.names.ask(now, name, refused) {
            let sign = Sign::new(Weight::Much, &[b"names", what.as_bytes()], what.to_owned());
            self.see(&mut state, now, sign);
        }
    }

    /// The names that it asked for under a wildcard can have carried so many bytes within the hour that began then.
    pub(super) fn carried(&self, rule: &str, hour: Nanos, bytes: u32) {
        let what = format!(
            "names under the wildcard of rule {rule:?} can have carried {bytes} bytes within an hour"
        );
        let parts: [&[u8]; 4] = [b"carried", rule.as_bytes(), &hour.to_be_bytes(), &bytes.to_be_bytes()];
        self.see(&mut self.lock(), hour, Sign::new(Weight::Leak, &parts, what));
    }

    /// So many bytes left, and so many came, in all.
    pub(super) fn passed(&self, sent: u64, received: u64) {
        let mut state = self.lock();
        if let Some(mebibytes) = state.upload.look(sent, received) {
            let what = format!("{mebibytes} MiB or more left, and not a tenth of it came");
            let parts: [&[u8]; 2] = [b"left", &mebibytes.to_be_bytes()];
            self.see(&mut state, 0, Sign::new(Weight::Suspicious, &parts, what));
        }
    }

    /// What its class says.
    pub fn judge_by(&self, class: Option<&SandboxClass>) {
        let number = |number: i32| u32::try_from(number).unwrap_or_default();
        self.lock().bounds = class.map(|class| &class.spec.detection).and_then(|detection| {
            let bounds = Bounds { severe: number(detection.severe_acts), score: number(detection.score) };
            detection.action.denies_all().then_some(bounds)
        });
    }

    /// What there is to judge; nothing if it did nothing of the kind.
    #[must_use]
    pub fn seen(&self) -> Option<Seen> {
        self.lock().signs.seen()
    }

    /// Whether it may reach nothing any more.
    #[must_use]
    pub fn is_shut(&self) -> bool {
        self.shut.load(Ordering::Acquire)
    }

    fn is_enough(&self) -> bool {
        let state = self.lock();
        let enough =
            |bounds: Bounds| state.signs.severe() >= bounds.severe || state.signs.score() >= bounds.score;
        state.bounds.is_some_and(enough)
    }
}

impl Tenant {
    /// It is suspected: nothing is reached any more, and what is open ends.
    pub fn shut(&self) {
        if !self.watch.shut.swap(true, Ordering::AcqRel) {
            tracing::warn!(sandbox = %self.identity, "suspected; it reaches nothing any more");
        }
        self.end(Cause::Suspected);
    }

    /// Looks at what is told by amounts alone.
    pub(super) fn look(&self, directory: &Directory) {
        self.watch.passed(self.sent.load(Ordering::Relaxed), self.received.load(Ordering::Relaxed));
        directory.heed(self);
    }

    /// What the controller and the class say of it.
    pub(super) fn judge_by(&self, sandbox: &AgentSandbox, class: Option<&SandboxClass>) {
        self.watch.judge_by(class);
        if action(sandbox).is_some_and(SuspicionAction::denies_all) {
            self.shut();
        }
    }
}

impl Directory {
    /// Tells what there is to tell of a sandbox, and ends its egress if that is enough.
    pub fn heed(&self, tenant: &Tenant) {
        let watch = &tenant.watch;
        if !watch.news.swap(false, Ordering::AcqRel) {
            return;
        }
        self.board.post(|version| watch.told.store(version, Ordering::Release));
        if watch.is_enough() {
            tenant.shut();
        }
    }

    /// Sandboxes whose signs changed after this version.
    pub(super) fn told(&self, since: u64) -> Vec<Told> {
        let tenants = self.tenants().into_iter();
        let told = tenants.filter_map(|tenant| {
            let version = tenant.watch.told.load(Ordering::Acquire);
            (version > since).then(|| {
                let signs = tenant.watch.lock().signs.all().cloned().collect();
                let wanted = tenant.asks.all();
                Told { uid: tenant.identity.uid.to_string(), version, signs, wanted }
            })
        });
        told.collect()
    }
}

fn action(sandbox: &AgentSandbox) -> Option<SuspicionAction> {
    sandbox.status.as_ref()?.suspicion.as_ref()?.action
}

/// Whether it is to be slowed down.
pub(super) fn is_throttled(sandbox: &AgentSandbox) -> bool {
    action(sandbox) == Some(SuspicionAction::Throttle)
}

/// What a sandbox may use.
pub(super) fn limits(sandbox: &AgentSandbox) -> Limits {
    let all = Limits::default();
    if !is_throttled(sandbox) {
        return all;
    }
    let (new_connections, queries) = (Rate::new(1, 1), Rate::new(5, 10));
    Limits { new_connections, queries, upload: Some(Rate::new(8 * 1024, 8 * 1024)), ..all }
}

/// What a refusal says of whom it met.
fn weight(reason: Reason) -> Option<Weight> {
    match (reason.severity(), reason) {
        (Severity::N, _) | (_, Reason::Gateway(Trouble::UnknownSource)) => None,
        (Severity::C, _) => Some(Weight::Severe),
        // Somebody wants what is not allowed yet, or the other side is at fault.
        (
            Severity::S,
            Reason::Policy(
                DenyReason::NoRule
                | DenyReason::PortNotAllowed
                | DenyReason::ProtocolMismatch
                | DenyReason::MustBeOpened
                | DenyReason::RequestNotAllowed
                | DenyReason::DeniedByClass,
            )
            | Reason::Gateway(
                Trouble::Asked
                | Trouble::AskedInVain
                | Trouble::Untrusted
                | Trouble::AnswerMalformed
                | Trouble::AnswerEncoded
                | Trouble::CredentialDoubtful
                | Trouble::TooManyAliases
                | Trouble::NoUsableAddress
                | Trouble::UploadSpent,
            ),
        ) => Some(Weight::Miss),
        (Severity::S, _) => Some(Weight::Suspicious),
    }
}

/// Two refusals are the same thing if they have the same reason and the same host; for a port that is not allowed, the same port, and for
/// too many names, the same rule.
fn sign(refusal: &Refusal) -> Option<Sign> {
    let weight = weight(refusal.reason)?;
    let rule = refusal.rule.as_deref().unwrap_or_default();
    let (what, port) = match refusal.reason {
        Reason::Gateway(Trouble::TooManyNames) => (rule, 0),
        Reason::Policy(DenyReason::PortNotAllowed) => (refusal.host.as_str(), refusal.port),
        _ => (refusal.host.as_str(), 0),
    };
    let name = refusal.reason.as_str();
    let mut words = name.to_owned();
    if !what.is_empty() {
        // Writing to a String can't fail.
        let _ = write!(words, " {what}");
    }
    if port > 0 {
        let _ = write!(words, ":{port}");
    }
    Some(Sign::new(weight, &[name.as_bytes(), what.as_bytes(), &port.to_be_bytes()], words))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watch(refusals: &[(Reason, &str, u16)]) -> (u32, u32) {
        let watch = Watch::default();
        for (reason, host, port) in refusals {
            watch.refused(0, &Refusal::raw(*reason, host.as_bytes(), *port));
        }
        let state = watch.lock();
        (state.signs.severe(), state.signs.score())
    }

    #[test]
    fn repeats_of_one_name_count_once_whatever_the_port_and_the_door() {
        let no_rule = Reason::Policy(DenyReason::NoRule);
        let same = [
            (no_rule, "telemetry.example", 443),
            (no_rule, "telemetry.example", 80),
            (no_rule, "telemetry.example", 0),
        ];
        assert_eq!(watch(&same), (0, 1));
        let port = Reason::Policy(DenyReason::PortNotAllowed);
        let scan: Vec<_> = (1..=60).map(|n| (port, "allowed.example", n)).collect();
        assert_eq!(watch(&scan), (0, 60));
        let noise =
            [(Trouble::TooManyNew.into(), "", 0), (Reason::Policy(DenyReason::ClusterName), "a.svc", 0)];
        assert_eq!(watch(&noise), (0, 0));
        let metadata = Reason::Policy(DenyReason::MetadataAddress);
        assert_eq!(watch(&[(metadata, "169.254.169.254", 80), (metadata, "169.254.170.2", 80)]), (2, 30));
    }

    #[test]
    fn what_names_can_carry_counts_for_each_hour_and_step() {
        let watch = Watch::default();
        watch.carried("wide", 0, 2048);
        watch.carried("wide", 0, 2048);
        assert_eq!(watch.lock().signs.score(), 30);
        watch.carried("wide", 1, 2048);
        assert_eq!(watch.lock().signs.score(), 60);
    }
}
