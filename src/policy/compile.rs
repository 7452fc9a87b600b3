//! From rules as they are written to the tables of a [`Policy`]. All that can be wrong with a rule is found here.

use std::{fmt, sync::Arc};

use super::{
    address::{AddressRule, Rejection, Source},
    bounds::Bounds,
    credential::Credential,
    denied::ClusterRanges,
    http_path::HttpMatch,
    pattern::{Pattern, Width},
    table::{Limits, Policy, Rule},
};
use crate::api::{AgentSandbox, ClassEgress, EgressLimits, EgressPolicy, EgressRule, Protocol, Quantity};

/// The most address ranges of all rules together: they become one NetworkPolicy, which must fit into an object.
const MOST_RANGES: usize = 1024;

/// The most host patterns of all rules together, so that what one sandbox asks for is compiled in a moment and kept in little.
const MOST_HOSTS: usize = 10_000;

/// Why nothing of what a sandbox asks for is granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// The EgressPolicy of this name does not exist, or can't be read.
    Missing(String),
    /// A rule is not valid or asks for more than may be granted.
    Rejected(Rejection),
    /// A credential is not valid.
    Credential(String),
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(name) => write!(
                f,
                "spec.egress.policies: EgressPolicy {name:?} does not exist in this namespace, or can't be read"
            ),
            Self::Rejected(rejection) => rejection.fmt(f),
            Self::Credential(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for Unfit {}

impl Policy {
    /// What a sandbox asks for: its own rules, those of the policies that it names, which are looked up among `found`, and those that
    /// people have `given` it; and its credentials, whose hosts have their requests looked at unless a rule says otherwise.
    /// The one word on it, for whoever plans a sandbox and whoever lets its connections out.
    ///
    /// # Errors
    /// When a policy is missing, or a rule or a credential is not valid. Each refuses all rules: half of a policy is nobody's intent.
    pub fn effective(
        sandbox: &AgentSandbox,
        found: &[Arc<EgressPolicy>],
        given: &[EgressRule],
        class: &ClassEgress,
        cluster: &ClusterRanges,
    ) -> Result<Self, Unfit> {
        let asked = &sandbox.spec.egress;
        let credentials = Credential::of(sandbox).map_err(Unfit::Credential)?;
        let mut sources = vec![Source { policy: None, rules: &asked.allow }];
        for name in &asked.policies {
            let policy = found.iter().find(|policy| policy.metadata.name.as_ref() == Some(name));
            let policy = policy.ok_or_else(|| Unfit::Missing(name.clone()))?;
            sources.push(Source { policy: Some(name), rules: &policy.spec.rules });
        }
        sources.push(Source { policy: None, rules: given });
        Self::with(&sources, credentials, class, cluster).map_err(Unfit::Rejected)
    }

    /// A sandbox's own rules and those of the policies it names, within what its class allows. One bad rule refuses them
    /// all: half of a policy is nobody's intent.
    ///
    /// # Errors
    /// The first rule that is not valid or asks for more than may be granted.
    pub fn compile(
        sources: &[Source<'_>],
        class: &ClassEgress,
        cluster: &ClusterRanges,
    ) -> Result<Self, Rejection> {
        Self::with(sources, Arc::default(), class, cluster)
    }

    fn with(
        sources: &[Source<'_>],
        credentials: Arc<[Credential]>,
        class: &ClassEgress,
        cluster: &ClusterRanges,
    ) -> Result<Self, Rejection> {
        let bounds = Bounds::new(class, cluster).map_err(Rejection::class)?;
        let mut policy =
            Self { cluster: cluster.clone(), opened: bounds.opened(), credentials, ..Self::default() };
        for denial in &bounds.denials {
            let reason: Arc<str> = denial.reason.into();
            denial.hosts.iter().for_each(|pattern| policy.denied_hosts.add(pattern, reason.clone()));
            denial.cidrs.iter().for_each(|range| policy.denied_ranges.add(*range, reason.clone()));
        }
        let (mut hosts, mut ranges) = (0, 0);
        for source in sources {
            let name: Option<Arc<str>> = source.policy.map(Into::into);
            for rule in source.rules {
                // Counted before they are read: what is too long costs nothing.
                hosts += rule.hosts.len();
                if hosts > MOST_HOSTS {
                    let why = format!(
                        "with its hosts there are {hosts} host patterns, at most {MOST_HOSTS} are allowed for a sandbox"
                    );
                    return Err(Rejection::of(source, rule, why));
                }
                let compiled = compile(&bounds, rule, &policy.credentials)
                    .map_err(|why| Rejection::of(source, rule, why))?;
                ranges += compiled.blocks.len();
                if ranges > MOST_RANGES {
                    let why = format!(
                        "with its cidrs there are {ranges} address ranges, at most {MOST_RANGES} are allowed for a sandbox"
                    );
                    return Err(Rejection::of(source, rule, why));
                }
                policy.add(Rule { policy: name.clone(), ..compiled });
            }
        }
        Ok(policy)
    }

    fn add(&mut self, rule: Rule) {
        let index = self.rules.len();
        rule.hosts.iter().for_each(|pattern| self.hosts.add(pattern, index));
        rule.blocks.iter().for_each(|block| self.blocks.add(block.cidr, (index, block.clone())));
        self.rules.push(Rule { index, ..rule });
    }
}

fn compile(bounds: &Bounds<'_>, rule: &EgressRule, credentials: &[Credential]) -> Result<Rule, String> {
    let of_names = [
        ("protocol", rule.protocol.is_some()),
        ("http", rule.http.is_some()),
        ("limits", rule.limits.is_some()),
        ("expiresAt", rule.expires_at.is_some()),
        ("requireBrokered", rule.require_brokered.is_some()),
        ("acknowledgeSharedSuffix", rule.acknowledge_shared_suffix.is_some()),
    ];
    if rule.hosts.is_empty() {
        if let Some((field, _)) = of_names.iter().find(|(_, set)| *set && !rule.cidrs.is_empty()) {
            return Err(format!(
                "{field} belongs to a rule with hosts; address ranges are opened by a NetworkPolicy, which knows none of it"
            ));
        }
        let AddressRule { blocks, ports, .. } = AddressRule::one(bounds, rule)?;
        return Ok(Rule { ports, blocks, protocol: Protocol::Tcp, ..named(rule) });
    }
    if !rule.cidrs.is_empty() {
        return Err("hosts and cidrs are both set; write a rule for each".into());
    }
    let hosts = bounds.hosts(rule)?;
    // Whoever has a secret added to requests wants them looked at.
    let brokered = || {
        let spelt = hosts.iter().filter(|pattern| pattern.width() == Width::Exact);
        spelt.map(Pattern::name).any(|host| credentials.iter().any(|one| one.is_for(host)))
    };
    let protocol =
        rule.protocol.unwrap_or_else(|| if brokered() { Protocol::Https } else { Protocol::default() });
    let ports = bounds.ports(rule)?;
    let require_brokered = rule.require_brokered == Some(true);
    if require_brokered && protocol != Protocol::Https {
        return Err(format!(
            "requireBrokered needs protocol HTTPS; with {} the requests can't be seen",
            protocol.as_str()
        ));
    }
    if protocol == Protocol::Http && ports.contains(&443) {
        return Err("protocol HTTP is without encryption and port 443 is TLS's; write the ports, such as [80], or protocol HTTPS".into());
    }
    let http = rule.http.as_ref().map(|http| match protocol {
        Protocol::Https | Protocol::Http => HttpMatch::compile(http),
        Protocol::Tls | Protocol::Tcp => Err(format!(
            "http needs protocol HTTPS or HTTP; with {} the requests can't be seen",
            protocol.as_str()
        )),
    });
    Ok(Rule {
        ports,
        hosts,
        protocol,
        require_brokered,
        http: http.transpose()?,
        limits: rule.limits.as_ref().map(limits).transpose()?.unwrap_or_default(),
        expires_at: rule.expires_at.as_ref().map(|time| time.0),
        ..named(rule)
    })
}

/// A rule that allows nothing yet.
fn named(rule: &EgressRule) -> Rule {
    Rule {
        name: rule.name.as_str().into(),
        policy: None,
        index: 0,
        protocol: Protocol::default(),
        http: None,
        require_brokered: false,
        limits: Limits::default(),
        expires_at: None,
        ports: Vec::new(),
        hosts: Vec::new(),
        blocks: Vec::new(),
    }
}

fn limits(limits: &EgressLimits) -> Result<Limits, String> {
    let count = |field: &str, value: Option<i32>| {
        let positive = |value| u32::try_from(value).ok().filter(|value| *value > 0);
        value
            .map(|value| positive(value).ok_or_else(|| format!("limits.{field} is {value}; write 1 or more")))
            .transpose()
    };
    let bytes = |field: &str, value: Option<&Quantity>| {
        let read = |value: &Quantity| match value.units() {
            Ok(0) => Err(format!("limits.{field} is {value}, which lets nothing out; write 1 or more")),
            Ok(bytes) => Ok(bytes),
            Err(why) => Err(format!("limits.{field}: {why}")),
        };
        value.map(read).transpose()
    };
    let per_second = count("connectionsPerSecond", limits.connections_per_second)?;
    let burst = count("burst", limits.burst)?;
    if burst.is_some() && per_second.is_none() {
        return Err("limits.burst needs limits.connectionsPerSecond".into());
    }
    Ok(Limits {
        connections_per_second: per_second,
        burst: burst.or(per_second),
        max_connections: count("maxConnections", limits.max_connections)?,
        upload_bytes_per_second: bytes("uploadBytesPerSecond", limits.upload_bytes_per_second.as_ref())?,
        upload_budget: bytes("uploadBudget", limits.upload_budget.as_ref())?,
    })
}
