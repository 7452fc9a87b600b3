//! The quota of a class in one namespace: sized with the runtime's overhead, scoped to the class's PriorityClass so that
//! a tenant's other pods are untouched.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::{
        core::v1::{Pod, ResourceQuota, ResourceQuotaSpec, ScopeSelector, ScopedResourceSelectorRequirement},
        node::v1::RuntimeClass,
        scheduling::v1::PriorityClass,
    },
    apimachinery::pkg::{api::resource, apis::meta::v1::ObjectMeta},
};

use super::{
    names,
    plan::{ClassFacts, Limits, Plan, QuotaPlan},
};
use crate::api::{Quantity, SandboxClassSpec};

const PODS: &str = "pods";
const CPU: &str = "limits.cpu";
const MEMORY: &str = "limits.memory";

/// The class's quota in numbers.
///
/// # Errors
/// Names the amount that can't be read.
pub(super) fn plan(
    class: &SandboxClassSpec,
    runtime_class: Option<&RuntimeClass>,
) -> Result<Option<QuotaPlan>, String> {
    let Some(quota) = &class.quota else { return Ok(None) };
    let count = u64::try_from(quota.sandboxes).unwrap_or(0);
    let overhead = overhead(runtime_class);
    let sum = |field: &str, asked: Option<&Quantity>, each: u64, read: fn(&Quantity) -> Result<u64, _>| {
        asked
            .map(|asked| read(asked).map(|value| value.saturating_add(each.saturating_mul(count))))
            .transpose()
            .map_err(|why: crate::api::QuantityError| format!("spec.quota.{field}: {why}"))
    };
    Ok(Some(QuotaPlan {
        pods: quota.sandboxes,
        cpu_milli: sum("cpu", quota.cpu.as_ref(), overhead.0, Quantity::milli)?,
        memory: sum("memory", quota.memory.as_ref(), overhead.1, Quantity::units)?,
    }))
}

/// What counts against a quota.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Use {
    pods: u64,
    cpu_milli: u64,
    memory: u64,
}

impl Use {
    /// What a pod takes: the limits of its containers, and its overhead. Init containers ask for no more than the workload.
    #[must_use]
    pub fn of(pod: &Pod) -> Self {
        let Some(spec) = &pod.spec else { return Self::default() };
        let limits = spec.containers.iter().filter_map(|one| one.resources.as_ref()?.limits.as_ref());
        let each = limits.chain(spec.overhead.as_ref()).map(|amounts| {
            let read = |key: &str, read: fn(&Quantity) -> Result<u64, _>| {
                amounts.get(key).map(Quantity::from).and_then(|amount| read(&amount).ok()).unwrap_or(0)
            };
            Self { pods: 0, cpu_milli: read("cpu", Quantity::milli), memory: read("memory", Quantity::units) }
        });
        each.fold(Self { pods: 1, ..Self::default() }, Self::plus)
    }

    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            pods: self.pods.saturating_add(other.pods),
            cpu_milli: self.cpu_milli.saturating_add(other.cpu_milli),
            memory: self.memory.saturating_add(other.memory),
        }
    }
}

/// What one more pod with these limits takes.
#[must_use]
pub fn needs(limits: Limits, runtime_class: Option<&RuntimeClass>) -> Use {
    let overhead = overhead(runtime_class);
    Use { pods: 1, cpu_milli: limits.cpu_milli + overhead.0, memory: limits.memory + overhead.1 }
}

/// Whether the plan's pod would go over the class's quota beside what is used, in words with numbers.
#[must_use]
pub fn excess_of(plan: &Plan, used: Use, runtime_class: Option<&RuntimeClass>) -> Option<String> {
    let quota = plan.class.quota?;
    let amounts = [
        Some((u64::try_from(quota.pods).unwrap_or(0), used.pods)),
        quota.cpu_milli.map(|hard| (hard, used.cpu_milli)),
        quota.memory.map(|hard| (hard, used.memory)),
    ];
    over(&names::class_object(&plan.class.name), amounts, needs(plan.limits, runtime_class))
}

/// How an amount is written.
type Show = fn(u64) -> Quantity;

/// Whether what is needed goes over a quota: for pods, CPU and memory what is allowed and used, where it is limited.
fn over(quota: &str, amounts: [Option<(u64, u64)>; 3], needs: Use) -> Option<String> {
    let rows: [(&str, u64, Show); 3] = [
        (PODS, needs.pods, |count| Quantity::new(count.to_string())),
        (CPU, needs.cpu_milli, Quantity::from_milli),
        (MEMORY, needs.memory, Quantity::from_bytes),
    ];
    let found: Vec<String> = rows
        .into_iter()
        .zip(amounts)
        .filter_map(|((key, need, show), amounts)| {
            let (hard, used) = amounts.filter(|(hard, used)| used.saturating_add(need) > *hard)?;
            Some(format!("{key}: {} used of {}, {} more needed", show(used), show(hard), show(need)))
        })
        .collect();
    (!found.is_empty()).then(|| {
        format!(
            "ResourceQuota {quota:?} is used up: {}; starts by itself when room appears",
            found.join("; ")
        )
    })
}

/// What a pod of the runtime costs besides its limits: thousandths of a core, bytes.
fn overhead(runtime_class: Option<&RuntimeClass>) -> (u64, u64) {
    let fixed =
        runtime_class.and_then(|rc| rc.overhead.as_ref()).and_then(|overhead| overhead.pod_fixed.as_ref());
    let amount = |key: &str| fixed.and_then(|fixed| fixed.get(key)).map(Quantity::from);
    let cpu = amount("cpu").and_then(|quantity| quantity.milli().ok()).unwrap_or(0);
    let memory = amount("memory").and_then(|quantity| quantity.units().ok()).unwrap_or(0);
    (cpu, memory)
}

/// The ResourceQuota, where the class has a quota.
pub(super) fn desired(plan: &Plan) -> Option<ResourceQuota> {
    let class = &plan.class;
    let quota = class.quota?;
    let mut hard = BTreeMap::from([(PODS.to_owned(), resource::Quantity(quota.pods.to_string()))]);
    let mut limit = |key: &str, value: Option<Quantity>| {
        if let Some(value) = value {
            hard.insert(key.to_owned(), (&value).into());
        }
    };
    limit(CPU, quota.cpu_milli.map(Quantity::from_milli));
    limit(MEMORY, quota.memory.map(Quantity::from_bytes));
    let mut labels = names::common_labels();
    labels.insert(names::CLASS_LABEL.into(), class.name.clone());
    Some(ResourceQuota {
        metadata: ObjectMeta {
            name: Some(names::class_object(&class.name)),
            namespace: Some(plan.namespace.clone()),
            labels: Some(labels),
            owner_references: Some(vec![class.owner.clone()]),
            ..ObjectMeta::default()
        },
        spec: Some(ResourceQuotaSpec {
            hard: Some(hard),
            scope_selector: Some(ScopeSelector {
                match_expressions: Some(vec![ScopedResourceSelectorRequirement {
                    scope_name: "PriorityClass".into(),
                    operator: "In".into(),
                    values: Some(vec![names::class_object(&class.name)]),
                }]),
            }),
            scopes: None,
        }),
        status: None,
    })
}

/// The PriorityClass that the quota hangs on. It never preempts, and gives no precedence over ordinary pods.
pub(super) fn priority_class(class: &ClassFacts) -> PriorityClass {
    let mut labels = names::common_labels();
    labels.insert(names::CLASS_LABEL.into(), class.name.clone());
    PriorityClass {
        metadata: ObjectMeta {
            name: Some(names::class_object(&class.name)),
            labels: Some(labels),
            owner_references: Some(vec![class.owner.clone()]),
            ..ObjectMeta::default()
        },
        value: 0,
        preemption_policy: Some("Never".into()),
        description: Some(format!(
            "Sandboxes of class {}; the quota of each namespace is scoped to it.",
            class.name
        )),
        global_default: Some(false),
    }
}

/// Whether one more pod would go over the quota, in words with numbers. `None` while the quota's use is not known.
#[must_use]
pub fn excess(quota: &ResourceQuota, limits: Limits, runtime_class: Option<&RuntimeClass>) -> Option<String> {
    let status = quota.status.as_ref()?;
    let (hard, used) = (status.hard.as_ref()?, status.used.as_ref()?);
    let both = |key: &str, read: fn(&Quantity) -> Result<u64, _>| {
        let amount = |map: &BTreeMap<String, resource::Quantity>| read(&Quantity::from(map.get(key)?)).ok();
        Some((amount(hard)?, amount(used)?))
    };
    let amounts = [both(PODS, Quantity::units), both(CPU, Quantity::milli), both(MEMORY, Quantity::units)];
    over(quota.metadata.name.as_deref().unwrap_or_default(), amounts, needs(limits, runtime_class))
}
