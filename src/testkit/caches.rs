//! What the controller's watches would see: stores filled from the server, at once or late, and whom each change
//! concerns.

use std::collections::BTreeMap;

use kube::{
    Resource,
    runtime::{
        reflector::{ObjectRef, store::Writer},
        watcher::Event,
    },
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::store::Store;
use crate::{
    api::{AgentSandbox, EgressPolicy, SandboxClass},
    controller::{Guarded, Stores, Writers, watches::Concerned},
    sandbox::names,
};

/// A sandbox, as the controller's queue names it.
pub type SandboxKey = ObjectRef<Guarded<AgentSandbox>>;
/// A class.
pub type ClassKey = ObjectRef<Guarded<SandboxClass>>;

/// How far stores lag behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lag {
    /// Not at all.
    None,
    /// Every store shows a change only after so many reconciles more.
    All(usize),
    /// Only this kind's does.
    Kind(&'static str, usize),
}

impl Lag {
    fn of(&self, kind: &str) -> usize {
        match self {
            Self::All(reconciles) => *reconciles,
            Self::Kind(lagging, reconciles) if *lagging == kind => *reconciles,
            Self::None | Self::Kind(..) => 0,
        }
    }
}

/// Namespace and name.
type Name = (String, String);
/// Objects of one kind.
type Shown = BTreeMap<Name, Value>;

/// A label, and its value if that matters.
type Label = (&'static str, Option<&'static str>);

/// Kinds that are watched, with the label that a watch selects by, and its value if that matters.
const WATCHED: &[(&str, Option<Label>)] = &[
    ("AgentSandbox", None),
    ("SandboxClass", None),
    ("Pod", Some((names::SANDBOX_LABEL, None))),
    ("NetworkPolicy", None),
    ("EgressPolicy", None),
    ("EgressApproval", None),
    ("Role", Some((names::MANAGED_BY_LABEL, Some(names::MANAGER)))),
    ("RoleBinding", Some((names::MANAGED_BY_LABEL, Some(names::MANAGER)))),
    ("ResourceQuota", Some((names::MANAGED_BY_LABEL, Some(names::MANAGER)))),
    ("PriorityClass", Some((names::MANAGED_BY_LABEL, Some(names::MANAGER)))),
    ("RuntimeClass", None),
    ("Node", None),
    ("Namespace", None),
    ("Service", None),
];

/// Names of the kinds that are watched.
pub fn watched() -> impl Iterator<Item = &'static str> {
    WATCHED.iter().map(|(kind, _)| *kind)
}

/// What has to be looked at.
#[derive(Debug, Default)]
pub struct Touched {
    /// Sandboxes.
    pub sandboxes: Vec<SandboxKey>,
    /// Classes.
    pub classes: Vec<ClassKey>,
    /// Every class.
    pub all_classes: bool,
    /// Services of hosts.
    pub named: bool,
}

/// One process's stores.
pub struct Caches {
    stores: Stores,
    concerned: Concerned,
    writers: Writers,
    shown: BTreeMap<&'static str, Shown>,
    behind: BTreeMap<&'static str, usize>,
    version: u64,
}

impl Caches {
    /// Empty, as in a process that has just started.
    #[must_use]
    pub fn new() -> Self {
        let (stores, writers) = Stores::new();
        let concerned = Concerned::new(stores.clone());
        Self { stores, concerned, writers, shown: BTreeMap::new(), behind: BTreeMap::new(), version: 0 }
    }

    /// What the controller reads.
    #[must_use]
    pub fn stores(&self) -> Stores {
        self.stores.clone()
    }

    /// Whether some store does not show yet what is.
    #[must_use]
    pub fn is_behind(&self) -> bool {
        !self.behind.is_empty()
    }

    /// Shows what has changed, as far as the lag lets it. `reconciles` counts those that ran so far.
    pub fn refresh(&mut self, store: &Store, lag: &Lag, reconciles: usize) -> Touched {
        let mut touched = Touched::default();
        let before = std::mem::replace(&mut self.version, store.version());
        if before == self.version && self.behind.is_empty() {
            return touched;
        }
        let first = before == 0;
        for (kind, label) in WATCHED {
            if !first
                && self.shown.get(kind).is_some_and(|shown| {
                    selected(store, kind, *label).map(version).eq(shown.values().map(version))
                })
            {
                self.behind.remove(kind);
                continue;
            }
            let since = *self.behind.entry(kind).or_insert(reconciles);
            if !first && reconciles < since + lag.of(kind) {
                continue;
            }
            self.behind.remove(kind);
            let now = select(store, kind, *label);
            let before = self.shown.remove(kind);
            self.show(kind, before.as_ref(), &now, &mut touched);
            self.shown.insert(kind, now);
        }
        touched
    }

    fn show(&mut self, kind: &str, before: Option<&Shown>, now: &Shown, touched: &mut Touched) {
        let known = |key| before.and_then(|before| before.get(key));
        let changed: Vec<&Value> = now
            .iter()
            .filter(|(key, object)| known(*key).map(version) != Some(version(object)))
            .map(|(_, object)| object)
            .collect();
        let gone = before.into_iter().flatten().filter(|(key, _)| !now.contains_key(*key));
        let gone: Vec<&Value> = gone.map(|(_, object)| object).collect();
        let (first, concerned) = (before.is_none(), self.concerned.clone());
        let each = changed.iter().chain(&gone);
        match kind {
            "AgentSandbox" => {
                fill(&mut self.writers.sandboxes, first, &changed, &gone);
                touched.sandboxes.extend(
                    changed.into_iter().map(|object| ObjectRef::from_obj(&parse::<AgentSandbox>(object))),
                );
            }
            "SandboxClass" => {
                fill(&mut self.writers.classes, first, &changed, &gone);
                touched.sandboxes.extend(each.clone().flat_map(|object| concerned.class(&parse(object))));
                touched.classes.extend(
                    changed.into_iter().map(|object| ObjectRef::from_obj(&parse::<SandboxClass>(object))),
                );
            }
            "Pod" => {
                fill(&mut self.writers.pods, first, &changed, &gone);
                touched.sandboxes.extend(
                    each.filter_map(|object| {
                        Concerned::pod(&parse::<k8s_openapi::api::core::v1::Pod>(object))
                    }),
                );
            }
            "NetworkPolicy" => {
                fill(&mut self.writers.policies, first, &changed, &gone);
                let policies =
                    each.map(|object| parse::<k8s_openapi::api::networking::v1::NetworkPolicy>(object));
                touched.sandboxes.extend(policies.flat_map(|policy| concerned.policy(&policy)));
            }
            "EgressPolicy" => {
                fill(&mut self.writers.egress_policies, first, &changed, &gone);
                touched
                    .sandboxes
                    .extend(each.flat_map(|object| concerned.egress_policy(&parse::<EgressPolicy>(object))));
            }
            "EgressApproval" => {
                fill(&mut self.writers.approvals, first, &changed, &gone);
                let sandboxes = each.filter_map(|object| Concerned::approval(&parse(object)));
                touched.sandboxes.extend(sandboxes);
            }
            "Role" => {
                fill(&mut self.writers.roles, first, &changed, &gone);
                let roles = each.map(|object| parse::<k8s_openapi::api::rbac::v1::Role>(object));
                touched.sandboxes.extend(roles.filter_map(|role| Concerned::pod(&role)));
            }
            "RoleBinding" => {
                fill(&mut self.writers.role_bindings, first, &changed, &gone);
                let bindings = each.map(|object| parse::<k8s_openapi::api::rbac::v1::RoleBinding>(object));
                touched.sandboxes.extend(bindings.filter_map(|binding| Concerned::pod(&binding)));
            }
            "ResourceQuota" => {
                fill(&mut self.writers.quotas, first, &changed, &gone);
                touched.sandboxes.extend(each.flat_map(|object| concerned.quota(&parse(object))));
            }
            "Service" => {
                fill(&mut self.writers.services, first, &changed, &gone);
                touched.named = true;
                touched.sandboxes.extend(
                    each.flat_map(|object| concerned.service(object["metadata"]["name"].as_str().unwrap())),
                );
            }
            "PriorityClass" | "RuntimeClass" => {
                self.fill_shared(kind, first, &changed, &gone);
                touched.sandboxes.extend(concerned.any());
            }
            "Node" => {
                fill(&mut self.writers.nodes, first, &changed, &gone);
                touched.all_classes = true;
            }
            "Namespace" => {
                fill(&mut self.writers.namespaces, first, &changed, &gone);
                touched.sandboxes.extend(
                    each.flat_map(|object| concerned.namespace(object["metadata"]["name"].as_str().unwrap())),
                );
            }
            other => panic!("{other} is not watched"),
        }
    }
}

impl Caches {
    /// Kinds of which any change concerns every sandbox.
    fn fill_shared(&mut self, kind: &str, first: bool, changed: &[&Value], gone: &[&Value]) {
        match kind {
            "PriorityClass" => fill(&mut self.writers.priority_classes, first, changed, gone),
            "RuntimeClass" => fill(&mut self.writers.runtime_classes, first, changed, gone),
            other => panic!("{other} is not shared"),
        }
    }
}

impl Default for Caches {
    fn default() -> Self {
        Self::new()
    }
}

/// No two objects ever have the same.
fn version(object: &Value) -> &Value {
    &object["metadata"]["resourceVersion"]
}

fn selected<'a>(
    store: &'a Store,
    kind: &str,
    label: Option<(&'a str, Option<&'a str>)>,
) -> impl Iterator<Item = &'a Value> {
    let fits = move |object: &Value| {
        label.is_none_or(|(key, value)| {
            let have = &object["metadata"]["labels"][key];
            value.map_or_else(|| have.is_string(), |value| have == value)
        })
    };
    store.list(kind, "").map(|(_, object)| object).filter(move |object| fits(object))
}

/// By namespace and name, in the order of the store.
fn select(store: &Store, kind: &str, label: Option<(&str, Option<&str>)>) -> Shown {
    let name = |object: &Value| (text(&object["metadata"]["namespace"]), text(&object["metadata"]["name"]));
    selected(store, kind, label).map(|object| (name(object), object.clone())).collect()
}

fn text(field: &Value) -> String {
    field.as_str().unwrap_or_default().to_owned()
}

fn parse<K: Resource + DeserializeOwned>(object: &Value) -> Guarded<K> {
    serde_json::from_value(object.clone()).unwrap()
}

/// The first time as a list, and from then on by what changed: as a watch does, and without reading again what is as it was.
fn fill<K>(writer: &mut Writer<Guarded<K>>, first: bool, changed: &[&Value], gone: &[&Value])
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + 'static,
{
    if first {
        writer.apply_watcher_event(&Event::Init);
    }
    for object in changed {
        let object = parse(object);
        writer.apply_watcher_event(&if first { Event::InitApply(object) } else { Event::Apply(object) });
    }
    for object in gone {
        writer.apply_watcher_event(&Event::Delete(parse(object)));
    }
    if first {
        writer.apply_watcher_event(&Event::InitDone);
    }
}
