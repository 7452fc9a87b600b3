//! Destinations that a sandbox wanted and no rule names, where its class has such ones asked for: which of them are asked for, and what
//! becomes of what a person says. Pure.
//!
//! Must never let a decision hold for anything but what was looked at: it names the hash of the sandbox's uid, the host, the port and
//! the protocol, and the hash is computed anew wherever it matters.

use std::{net::IpAddr, sync::Arc};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use kube::{Resource as _, ResourceExt as _, core::DeserializeGuard};

use super::{lifecycle::after, names, world::World};
use crate::{
    api::{
        AgentSandbox, ApprovalPhase, ApprovalVerdict, AskingSandbox, ClassEgress, Decision, EgressApproval,
        EgressApprovalSpec, EgressApprovalStatus, EgressRule, Protocol, REQUESTER_ANNOTATION, Unmatched,
    },
    digest,
    policy::{Ask, ClusterRanges, Destination, Policy, Source, Wire},
};

/// Counts that are younger are not worth a write.
const WORTH: SignedDuration = SignedDuration::from_secs(60);
/// Longest message, in characters.
const MOST_CHARS: usize = 500;

/// What replicas saw wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The host.
    pub host: String,
    /// The port.
    pub port: u16,
    /// First time.
    pub first: Timestamp,
    /// Last time.
    pub last: Timestamp,
    /// How often.
    pub count: u64,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Ask for it.
    Create(Box<EgressApproval>),
    /// Say where it stands.
    Tell {
        /// Which.
        name: String,
        /// What.
        status: Box<EgressApprovalStatus>,
    },
}

/// What is spoken at a port, as far as its number says.
#[must_use]
pub const fn protocol(port: u16) -> Protocol {
    if port == 80 { Protocol::Http } else { Protocol::Tls }
}

/// Whose question it is, by its spec, which can't be changed; by its label where that can't be read.
#[must_use]
pub fn of(approval: &DeserializeGuard<EgressApproval>) -> Option<&str> {
    match &approval.0 {
        Ok(approval) => Some(&approval.spec.sandbox.name),
        Err(invalid) => Some(invalid.metadata.labels.as_ref()?.get(names::SANDBOX_LABEL)?),
    }
}

/// What a decision names.
#[must_use]
pub fn hash(uid: &str, host: &str, port: i32, protocol: Protocol) -> String {
    digest::of_parts(&[uid, host, &port.to_string(), protocol.as_str()])
}

/// The rule that would be given.
#[must_use]
pub fn rule(name: &str, host: &str, port: i32, protocol: Protocol, expires: Option<Timestamp>) -> EgressRule {
    EgressRule {
        name: name.to_owned(),
        hosts: vec![host.to_owned()],
        ports: vec![port],
        protocol: Some(protocol),
        expires_at: expires.map(Time),
        ..EgressRule::default()
    }
}

/// Whether a class would let it be given at all: a name and no pattern, within the ceiling, and not among what is always denied.
///
/// # Errors
/// Why not.
pub fn may_be_given(
    host: &str,
    port: i32,
    class: &ClassEgress,
    cluster: &ClusterRanges,
) -> Result<(), String> {
    if host.contains('*') || host.parse::<IpAddr>().is_ok() {
        return Err(format!("{host:?} is no host name; patterns and addresses are never asked for"));
    }
    let rules = [rule("asked", host, port, protocol(u16::try_from(port).unwrap_or_default()), None)];
    let sources = [Source { policy: None, rules: &rules }];
    Policy::compile(&sources, class, cluster).map(drop).map_err(|why| why.to_string())
}

/// The rules that people gave to this sandbox and that hold.
#[must_use]
pub fn given(
    approvals: &[Arc<EgressApproval>],
    uid: &str,
    class: &ClassEgress,
    cluster: &ClusterRanges,
) -> Vec<EgressRule> {
    if class.unmatched != Unmatched::Ask {
        return Vec::new();
    }
    let holding = approvals.iter().filter_map(|approval| {
        let (spec, status) = (&approval.spec, approval.status.as_ref()?);
        let decided = spec.decision.as_ref()?;
        let right = is_intact(spec, decided) && spec.sandbox.uid == uid;
        let told = status.phase == ApprovalPhase::Approved
            && status.observed_generation == approval.metadata.generation;
        let expires = status.expires_at.as_ref()?.0;
        let approved = decided.verdict == ApprovalVerdict::Approved;
        (right && told && approved && may_be_given(&spec.host, spec.port, class, cluster).is_ok()).then(
            || rule(&short("approved", &spec.rule_hash), &spec.host, spec.port, spec.protocol, Some(expires)),
        )
    });
    let mut rules: Vec<_> = holding.collect();
    rules.sort_by(|a, b| a.name.cmp(&b.name));
    rules
}

/// Whether it is this sandbox's, and not one's of its name before.
#[must_use]
pub fn is_of(approval: &EgressApproval, sandbox: &AgentSandbox) -> bool {
    Some(&approval.spec.sandbox.uid) == sandbox.metadata.uid.as_ref()
        && approval.metadata.namespace == sandbox.metadata.namespace
}

/// Those of all that are this sandbox's.
pub fn own<'a>(
    all: impl Iterator<Item = Arc<DeserializeGuard<EgressApproval>>> + 'a,
    sandbox: &'a AgentSandbox,
) -> impl Iterator<Item = Arc<EgressApproval>> + 'a {
    all.filter_map(|guarded| {
        let approval = guarded.0.as_ref().ok()?;
        is_of(approval, sandbox).then(|| Arc::new(approval.clone()))
    })
}

/// Whether what is decided on is what it says that it is.
fn is_intact(spec: &EgressApprovalSpec, decision: &Decision) -> bool {
    let now = hash(&spec.sandbox.uid, &spec.host, spec.port, spec.protocol);
    spec.rule_hash == now && decision.rule_hash == now
}

/// What is to be done for this sandbox, and when to look again.
#[must_use]
pub fn steps(world: &World, now: Timestamp) -> (Vec<Step>, Option<Timestamp>) {
    let Some(uid) = world.sandbox.uid() else { return (Vec::new(), None) };
    let Ok(class) = &world.class else { return (Vec::new(), None) };
    let egress = &class.spec.egress;
    let own: Vec<_> = world.approvals.iter().filter(|approval| approval.spec.sandbox.uid == uid).collect();
    let (mut steps, mut next) = (Vec::new(), None);
    let mut pending = 0;
    for approval in &own {
        let wanted = world
            .wanted
            .iter()
            .find(|wanted| wanted.host == approval.spec.host && i32::from(wanted.port) == approval.spec.port);
        let status = status(approval, egress, &world.cluster, wanted, now);
        pending += i32::from(status.phase == ApprovalPhase::Pending);
        if status.phase == ApprovalPhase::Approved {
            let expires = status.expires_at.as_ref().map(|time| time.0);
            next = next.into_iter().chain(expires).min();
        }
        if approval.status.as_ref() != Some(&status) {
            steps.push(Step::Tell { name: approval.name_any(), status: Box::new(status) });
        }
    }
    let over =
        super::lifecycle::is_finished(&world.sandbox) || world.sandbox.metadata.deletion_timestamp.is_some();
    if egress.unmatched == Unmatched::Ask && !over {
        for wanted in &world.wanted {
            let known = own.iter().any(|approval| {
                approval.spec.host == wanted.host && approval.spec.port == i32::from(wanted.port)
            });
            if !known
                && pending < egress.ask.most_pending
                && may_be_given(&wanted.host, wanted.port.into(), egress, &world.cluster).is_ok()
                && !is_allowed(world, egress, wanted, now)
            {
                pending += 1;
                steps.push(Step::Create(Box::new(asked(&world.sandbox, &uid, wanted))));
            }
        }
    }
    (steps, next)
}

/// Whether rules allow by now what was wanted once.
fn is_allowed(world: &World, class: &ClassEgress, wanted: &Wanted, now: Timestamp) -> bool {
    let Ok(policy) = Policy::effective(&world.sandbox, &world.egress_policies, &[], class, &world.cluster)
    else {
        return false;
    };
    let Ok(host) = wanted.host.parse() else { return false };
    let wire = if protocol(wanted.port) == Protocol::Http { Wire::Http } else { Wire::Tls };
    let destination = Destination::Name(host);
    policy.decide(&Ask { destination: &destination, port: wanted.port, wire, now }).allowed().is_some()
}

/// A name that ends in the beginning of a hash.
fn short(of: &str, hash: &str) -> String {
    format!("{of}-{}", hash.get(..10).unwrap_or_default())
}

fn asked(sandbox: &AgentSandbox, uid: &str, wanted: &Wanted) -> EgressApproval {
    let (port, protocol) = (i32::from(wanted.port), protocol(wanted.port));
    let rule_hash = hash(uid, &wanted.host, port, protocol);
    let name = sandbox.name_any();
    let mut approval = EgressApproval::new(
        &short(&name, &rule_hash),
        EgressApprovalSpec {
            sandbox: AskingSandbox {
                name: name.clone(),
                uid: uid.to_owned(),
                // One that is too long is better not known than cut: the name of another.
                requester: sandbox
                    .annotations()
                    .get(REQUESTER_ANNOTATION)
                    .filter(|who| who.len() <= 256)
                    .cloned(),
            },
            host: wanted.host.clone(),
            port,
            protocol,
            rule_hash: rule_hash.clone(),
            decision: None,
        },
    );
    approval.metadata.namespace = sandbox.namespace();
    approval.metadata.labels = Some(
        [
            (names::MANAGED_BY_LABEL.to_owned(), names::MANAGER.to_owned()),
            (names::SANDBOX_LABEL.to_owned(), name.clone()),
        ]
        .into(),
    );
    approval.metadata.owner_references = Some(vec![OwnerReference {
        api_version: AgentSandbox::api_version(&()).into_owned(),
        kind: AgentSandbox::kind(&()).into_owned(),
        name,
        uid: uid.to_owned(),
        controller: None,
        block_owner_deletion: None,
    }]);
    approval
}

fn status(
    approval: &EgressApproval,
    class: &ClassEgress,
    cluster: &ClusterRanges,
    wanted: Option<&Wanted>,
    now: Timestamp,
) -> EgressApprovalStatus {
    let old = approval.status.clone();
    let generation = approval.metadata.generation;
    let (phase, expires_at, message) = match judge(approval, class, cluster, now) {
        Ok((phase, expires)) => (phase, expires, None),
        // Its time goes on: what was over must not begin anew once it is valid again.
        Err(why) => (ApprovalPhase::Invalid, until(approval), Some(why.chars().take(MOST_CHARS).collect())),
    };
    let seen = |old: Option<&EgressApprovalStatus>| {
        let old = old.map(|old| (old.first_seen.clone(), old.last_seen.clone(), old.count));
        let fresh = wanted.map(|wanted| {
            let count = i64::try_from(wanted.count).unwrap_or(i64::MAX);
            (Some(seconds(wanted.first)), Some(seconds(wanted.last)), Some(count))
        });
        match (old, fresh) {
            (Some((first, Some(last), count)), Some(fresh)) => {
                let later = fresh.1.as_ref().is_some_and(|seen| seen.0.duration_since(last.0) >= WORTH);
                if later { (first, fresh.1, fresh.2.max(count)) } else { (first, Some(last), count) }
            }
            (_, Some(fresh)) => fresh,
            (old, None) => old.unwrap_or_default(),
        }
    };
    let (first_seen, last_seen, count) = seen(old.as_ref());
    EgressApprovalStatus {
        phase,
        observed_generation: generation,
        expires_at,
        first_seen,
        last_seen,
        count,
        message,
    }
}

/// Where a decision stands, and until when it holds.
fn judge(
    approval: &EgressApproval,
    class: &ClassEgress,
    cluster: &ClusterRanges,
    now: Timestamp,
) -> Result<(ApprovalPhase, Option<Time>), String> {
    let spec = &approval.spec;
    let Some(decision) = &spec.decision else { return Ok((ApprovalPhase::Pending, None)) };
    if !is_intact(spec, decision) {
        return Err(
            "spec.decision.ruleHash is not the hash of what is asked for; look again, and decide on that"
                .into(),
        );
    }
    if decision.verdict == ApprovalVerdict::Denied {
        return Ok((ApprovalPhase::Denied, None));
    }
    if class.unmatched != Unmatched::Ask {
        return Err("the sandbox's class has nothing asked for any more (spec.egress.unmatched)".into());
    }
    may_be_given(&spec.host, spec.port, class, cluster)?;
    let ttl = decision.ttl.unwrap_or(class.ask.ttl.default);
    if ttl > class.ask.ttl.max {
        return Err(format!("spec.decision.ttl is {ttl}, the class allows at most {}", class.ask.ttl.max));
    }
    let expires = until(approval).unwrap_or_else(|| seconds(after(now, ttl)));
    let phase = if now >= expires.0 { ApprovalPhase::Expired } else { ApprovalPhase::Approved };
    Ok((phase, Some(expires)))
}

/// Until when this decision holds, if that was said.
fn until(approval: &EgressApproval) -> Option<Time> {
    let status = approval.status.as_ref()?;
    (status.observed_generation == approval.metadata.generation).then(|| status.expires_at.clone())?
}

/// As the API keeps times.
fn seconds(at: Timestamp) -> Time {
    Time(Timestamp::from_second(at.as_second()).unwrap_or(at))
}
