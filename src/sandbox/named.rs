//! Hosts that have ports of their own: a Service for each, so that a program which knows nothing of proxies finds its host
//! by name. Written by the controller, read back by it and by the gateway; what stands in a Service is the only record.
//!
//! A Service is never changed, only made and taken away. It says where a port leads, never who may use it: that is judged by
//! the rules of whoever comes.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv4Addr,
};

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Service, ServicePort, ServiceSpec},
    apimachinery::pkg::{apis::meta::v1::ObjectMeta, util::intstr::IntOrString},
};
use kube::{Resource, ResourceExt};

use super::{
    lifecycle,
    names::{self, ports},
    world::World,
};
use crate::{
    api::Protocol,
    policy::{Host, Policy},
};

pub mod allot;

/// Ports that lead to the transparent entries wherever they are asked for, so that they need none of ours.
pub const FORWARDED: [ports::Port; 2] = [ports::HTTP, ports::TLS];

/// Whether a port leads to a transparent entry.
#[must_use]
pub fn is_forwarded(port: u16) -> bool {
    FORWARDED.iter().any(|forwarded| forwarded.service == port)
}

/// Hosts that a sandbox may send any bytes to, with the ports that need one of ours.
pub type Hosts = BTreeMap<Host, BTreeSet<u16>>;

/// What the sandbox needs now. Expiry is the gateway's affair: a rule that has ended keeps its port as long as it stands.
#[must_use]
pub fn needs(world: &World) -> Hosts {
    let sandbox = &world.sandbox;
    if lifecycle::is_finished(sandbox) || sandbox.metadata.deletion_timestamp.is_some() {
        return Hosts::new();
    }
    let policies = world.egress_policies.iter().flat_map(|policy| &policy.spec.rules);
    let mut rules = sandbox.spec.egress.allow.iter().chain(policies);
    // Most sandboxes have no such rule, and compiling all of theirs is work.
    if !rules.any(|rule| rule.protocol == Some(Protocol::Tcp)) {
        return Hosts::new();
    }
    let Ok(class) = &world.class else { return Hosts::new() };
    let granted = Policy::effective(sandbox, &world.egress_policies, &[], &class.spec.egress, &world.cluster);
    let mut hosts = granted.map(|policy| policy.tcp_hosts()).unwrap_or_default();
    hosts.retain(|_, ports| {
        ports.retain(|port| !is_forwarded(*port));
        !ports.is_empty()
    });
    hosts
}

/// Where a Service's ports lead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The host.
    pub host: Host,
    /// Its ports, and ours for them.
    pub ports: BTreeMap<u16, u16>,
    /// What DNS answers for the host.
    pub address: Ipv4Addr,
}

impl Mapping {
    /// Whether each of these ports leads somewhere.
    pub fn covers(&self, ports: impl IntoIterator<Item = u16>) -> bool {
        ports.into_iter().all(|port| is_forwarded(port) || self.ports.contains_key(&port))
    }
}

/// A Service with our label, as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// When it was made.
    pub created: Option<Timestamp>,
    /// Its name.
    pub name: String,
    /// Which one of that name.
    pub uid: String,
    /// Where it leads; none if that can't be read, or if an older one has one of its ports.
    pub mapping: Option<Mapping>,
}

impl Standing {
    /// Reads one. `None` if it has not our labels.
    #[must_use]
    pub fn read(service: &Service) -> Option<Self> {
        let has = |(key, value)| service.labels().get(key).map(String::as_str) == Some(value);
        names::NAMED_LABELS.into_iter().all(has).then(|| Self {
            created: service.meta().creation_timestamp.as_ref().map(|time| time.0),
            name: service.name_any(),
            uid: service.uid().unwrap_or_default(),
            mapping: mapping(service),
        })
    }

    /// Ports of ours that nobody else may have while it stands.
    pub fn claimed(&self) -> impl Iterator<Item = u16> {
        let by_name = names::named_service_port(&self.name);
        self.mapping.iter().flat_map(|mapping| mapping.ports.values().copied()).chain(by_name)
    }
}

/// Strictly: what can't be read leads nowhere.
fn mapping(service: &Service) -> Option<Mapping> {
    if service.meta().deletion_timestamp.is_some() {
        return None;
    }
    let host = service.annotations().get(names::HOST_ANNOTATION)?;
    let spec = service.spec.as_ref()?;
    let mut ports = BTreeMap::new();
    for port in spec.ports.iter().flatten() {
        let (outer, inner) = read_port(port)?;
        if !is_forwarded(outer) {
            ports.insert(outer, Some(inner).filter(|inner| ports::NAMED.contains(inner))?);
        }
    }
    let ours: BTreeSet<&u16> = ports.values().collect();
    if ports.is_empty() || ours.len() != ports.len() {
        return None;
    }
    Some(Mapping {
        host: Host::parse(host.as_bytes()).ok()?,
        ports,
        address: spec.cluster_ip.as_ref()?.parse().ok()?,
    })
}

fn read_port(port: &ServicePort) -> Option<(u16, u16)> {
    let Some(IntOrString::Int(inner)) = port.target_port else { return None };
    let tcp = port.protocol.as_deref().unwrap_or("TCP") == "TCP";
    let outer = u16::try_from(port.port).ok().filter(|_| tcp)?;
    Some((outer, u16::try_from(inner).ok()?))
}

/// All of them, the oldest first. A port of ours that two claim is the older one's; the other leads nowhere.
#[must_use]
pub fn settle(mut all: Vec<Standing>) -> Vec<Standing> {
    all.sort_unstable_by(|a, b| (a.created, &a.name).cmp(&(b.created, &b.name)));
    let mut claimed = BTreeSet::new();
    for one in &mut all {
        let Some(mapping) = &one.mapping else { continue };
        if mapping.ports.values().any(|port| claimed.contains(port)) {
            one.mapping = None;
        } else {
            claimed.extend(mapping.ports.values().copied());
        }
    }
    all
}

/// The Service for a host and ports: of those that have them all, the newest. `settled` has the oldest first.
#[must_use]
pub fn pick<'a>(settled: &'a [Standing], host: &Host, wanted: &BTreeSet<u16>) -> Option<&'a Standing> {
    let fits = |mapping: &Mapping| mapping.host == *host && mapping.covers(wanted.iter().copied());
    settled.iter().rev().find(|one| one.mapping.as_ref().is_some_and(fits))
}

/// A Service that is to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Make {
    /// The host.
    pub host: Host,
    /// Its ports, and ours for them. Never empty.
    pub ports: BTreeMap<u16, u16>,
}

impl Make {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> String {
        names::named_service(self.ports.values().next().copied().unwrap_or_default())
    }

    /// As an object, beside the gateway's Service: to the same pods, and gone when that is.
    #[must_use]
    pub fn service(&self, gateway: &Service) -> Service {
        let port = |name: String, outer: u16, inner: u16| ServicePort {
            name: Some(name),
            port: outer.into(),
            target_port: Some(IntOrString::Int(inner.into())),
            protocol: Some("TCP".into()),
            ..ServicePort::default()
        };
        let of_gateway = gateway.spec.clone().unwrap_or_default();
        let forwarded = FORWARDED
            .iter()
            .map(|forwarded| (format!("to-{}", forwarded.pod), forwarded.service, forwarded.pod));
        let own = self.ports.iter().map(|(outer, inner)| (format!("tcp-{outer}"), *outer, *inner));
        let mut labels = names::common_labels();
        labels.append(&mut names::labels([("app.kubernetes.io/component", "named-tcp")]));
        labels.append(&mut names::labels(names::NAMED_LABELS));
        Service {
            metadata: ObjectMeta {
                name: Some(self.name()),
                namespace: gateway.namespace(),
                labels: Some(labels),
                annotations: Some(names::labels([(names::HOST_ANNOTATION, self.host.as_str())])),
                owner_references: gateway.owner_ref(&()).map(|owner| vec![owner]),
                ..ObjectMeta::default()
            },
            spec: Some(ServiceSpec {
                type_: Some("ClusterIP".into()),
                // DNS answers IPv4 addresses alone. Sources are identities: nothing on the way may change them.
                ip_families: Some(vec!["IPv4".into()]),
                ip_family_policy: Some("SingleStack".into()),
                internal_traffic_policy: Some("Cluster".into()),
                selector: of_gateway.selector,
                // A sandbox that is kept at one replica is kept there by these ports, too.
                session_affinity: of_gateway.session_affinity,
                session_affinity_config: of_gateway.session_affinity_config,
                ports: Some(
                    forwarded.chain(own).map(|(name, outer, inner)| port(name, outer, inner)).collect(),
                ),
                ..ServiceSpec::default()
            }),
            status: None,
        }
    }
}

/// How the hosts of one sandbox stand.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum View {
    /// It needs none.
    #[default]
    None,
    /// Some have no Service yet.
    Waiting,
    /// Each has one.
    Assigned,
    /// Some get none: which, and why.
    Lacking(String),
}

#[cfg(test)]
mod tests;
