//! The only place that may refuse what a user asks. What comes out is complete, numeric and within the class: the rest of
//! the pipeline can't fail on it.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
};

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource;

use super::{
    credentials, execution, idle, lifecycle,
    runtime::{self, Availability},
    storage::{self, Storage},
    world::World,
};
use crate::{
    api::{
        AgentSandboxSpec, Amounts, ConditionType, EnvVar, ExecutionStatus, ImageRules, Isolation,
        OnFenceOpen, Port, Quantity, Reason, SandboxClass, SandboxClassSpec, Scheduling, Security, Span,
    },
    policy::{AddressRule, Credential, ImageRef, Policy, Unfit, image_allowed},
};

/// The least memory that a runtime can start anything in, in bytes. Kata sizes the guest from the limit: 128 MiB is the
/// least that boots, 256 MiB with QEMU; gVisor's kernel and our agent together stay below 32 MiB.
const LEAST_MEMORY: u64 = 32 << 20;
const LEAST_MEMORY_VM: u64 = 128 << 20;
const LEAST_MEMORY_QEMU: u64 = 256 << 20;
/// The least CPU, in thousandths of a core, with which a runtime starts within its deadline.
const LEAST_CPU: u64 = 10;

/// How much earlier than its sandbox a pod may end because its node's clock is behind: a ttl that is raised by less is not told of.
const CLOCK_SKEW: SignedDuration = SignedDuration::from_secs(10);

/// Why a sandbox is not made, or not made yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The condition that becomes false.
    pub condition: ConditionType,
    /// Its reason.
    pub reason: Reason,
    /// Which field has which value, and what would be right.
    pub message: String,
}

impl Refusal {
    /// A refusal of the spec itself.
    #[must_use]
    pub fn accepted(reason: Reason, message: impl Into<String>) -> Self {
        Self { condition: ConditionType::Accepted, reason, message: message.into() }
    }

    /// A reference that does not resolve.
    #[must_use]
    pub fn unresolved(reason: Reason, message: impl Into<String>) -> Self {
        Self { condition: ConditionType::ResolvedRefs, reason, message: message.into() }
    }
}

/// Everything that is needed to make the sandbox's objects.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The sandbox's name, also the pod's.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// Owner of the pod and of the sandbox's policy.
    pub owner: OwnerReference,
    /// The class.
    pub class: ClassFacts,
    /// Image of the workload.
    pub image: String,
    /// Program and arguments; empty means idle.
    pub command: Vec<String>,
    /// Where it starts.
    pub working_dir: String,
    /// Its environment, besides what the agent and the cache directories need.
    pub env: Vec<EnvVar>,
    /// Named ports.
    pub ports: Vec<Port>,
    /// Time to live.
    pub ttl: Span,
    /// The deadline that the pod carries: more than `ttl` where the class is extendable.
    pub pod_ttl: Span,
    /// Limits, which are also the requests.
    pub limits: Limits,
    /// What is mounted where.
    pub storage: Storage,
    /// What calls into it are held to.
    pub execution: ExecutionStatus,
    /// Address rules that were granted.
    pub egress: Vec<AddressRule>,
    /// How many rules of both kinds were.
    pub egress_rules: usize,
    /// Credentials that are added to its requests.
    pub credentials: Vec<Credential>,
    /// The gateway's ServiceAccount, which has them.
    pub gateway_account: Option<String>,
    /// What the fence is proven against.
    pub fence: FencePlan,
    /// Whom it trusts besides the authorities of its image, as PEM. Rules may come to ask for it while it runs, so that
    /// whether they do now makes no difference.
    pub authority: Option<Arc<str>>,
    /// Public keys, as base64, of those whose calls its agent takes. None: it takes no calls.
    pub call_keys: Arc<[String]>,
    /// Image that carries the agent.
    pub agent_image: String,
    /// What the runtime ladder found.
    pub runtime: Availability,
}

/// Around a sandbox: what it must reach, and what it must not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FencePlan {
    /// The gateway's Service; unspecified, which nothing answers at, while there is none.
    pub gateway: IpAddr,
    /// The namespace of its pods.
    pub namespace: String,
    /// The API server, if it is known.
    pub api_server: Option<SocketAddr>,
}

/// What the objects need to know of the class.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassFacts {
    /// Its name.
    pub name: String,
    /// Owner of its PriorityClass and quotas.
    pub owner: OwnerReference,
    /// Its RuntimeClass.
    pub runtime_class: Option<String>,
    /// What it promises.
    pub isolation: Isolation,
    /// Whether weaker is accepted.
    pub accept_weaker: bool,
    /// How long a start may take.
    pub startup_deadline: Span,
    /// What an open fence means for a workload that runs.
    pub on_fence_open: OnFenceOpen,
    /// Where pods may run.
    pub scheduling: Scheduling,
    /// Users and system calls.
    pub security: Security,
    /// Quota in each namespace.
    pub quota: Option<QuotaPlan>,
}

/// Quota in numbers, the runtime's overhead included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaPlan {
    /// Pods.
    pub pods: i64,
    /// Thousandths of a core.
    pub cpu_milli: Option<u64>,
    /// Bytes.
    pub memory: Option<u64>,
}

/// Hard limits of the workload's container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Thousandths of a core.
    pub cpu_milli: u64,
    /// Bytes.
    pub memory: u64,
    /// Bytes.
    pub ephemeral_storage: u64,
}

/// Judges the sandbox against its class and the cluster.
///
/// # Errors
/// The first thing that may not be, or is not there yet.
pub fn plan(world: &World) -> Result<Plan, Refusal> {
    let class = world.class.as_ref().map_err(Clone::clone)?;
    let sandbox = &world.sandbox;
    let spec = &sandbox.spec;
    permitted(world, class)?;
    let ttl = ttl(world, &class.spec)?;
    let limits = limits(spec, class)?;
    let storage = storage::plan(spec, &class.spec, limits.memory)?;
    idle::settle(spec.idle_timeout, &class.spec.idle_timeout)?;
    let execution = execution::settle(&spec.execution, &class.spec.execution)?;
    // Our own image brings the agent into every sandbox anyway.
    for (field, image) in images(spec).filter(|(_, image)| *image != world.settings.agent_image) {
        check_image(&field, image, &class.spec.images)?;
    }
    let egress = egress(world, class)?;
    credentials::permitted(&egress, &world.settings)?;
    if let Some(unresolved) = &world.unresolved {
        return Err(unresolved.clone());
    }
    let runtime = runtime::availability(&class.spec, world.runtime_class.as_deref(), &world.nodes);
    let runtime = runtime::with_trial(runtime, runtime::probed(class, world.runtime_class.as_deref()));
    let owner = sandbox.controller_owner_ref(&()).ok_or_else(|| {
        Refusal::accepted(
            Reason::InvalidSpec,
            "metadata.uid is missing: the object was not read from an API server",
        )
    })?;
    Ok(Plan {
        name: sandbox.metadata.name.clone().unwrap_or_default(),
        namespace: sandbox.metadata.namespace.clone().unwrap_or_default(),
        owner,
        class: class_facts(class, world)?,
        image: spec.image.clone(),
        command: spec.command.iter().chain(&spec.args).cloned().collect(),
        working_dir: spec.working_dir.clone().unwrap_or_else(|| spec.workspace.mount_path.clone()),
        env: spec.env.clone(),
        ports: spec.ports.clone(),
        ttl,
        pod_ttl: if class.spec.ttl.extendable { class.spec.ttl.max } else { ttl },
        limits,
        storage,
        execution,
        egress: egress.address_rules(),
        egress_rules: egress.rules().len(),
        credentials: egress.credentials().to_vec(),
        gateway_account: world.settings.gateway_account.clone(),
        fence: FencePlan {
            gateway: world.gateway.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
            namespace: world.settings.namespace.clone(),
            api_server: world.settings.api_server,
        },
        authority: world.authority.clone(),
        call_keys: world.call_keys.clone(),
        agent_image: world.settings.agent_image.clone(),
        runtime,
    })
}

fn permitted(world: &World, class: &SandboxClass) -> Result<(), Refusal> {
    let Some(rules) = &class.spec.namespaces else { return Ok(()) };
    // Where classes are tried.
    if world.sandbox.metadata.namespace.as_deref() == Some(&world.settings.namespace) {
        return Ok(());
    }
    let name = class.metadata.name.as_deref().unwrap_or_default();
    let refuse = |message| Err(Refusal::accepted(Reason::ClassNotPermitted, message));
    let Ok(selector) = kube::core::Selector::try_from(rules.selector.clone()) else {
        return refuse(format!(
            "class {name:?} has a spec.namespaces.selector that can't be read, so no namespace may use it"
        ));
    };
    let labels = world.namespace_labels.clone().unwrap_or_default();
    if world.namespace_labels.is_some() && kube::core::SelectorExt::matches(&selector, &labels) {
        Ok(())
    } else {
        refuse(format!("this namespace's labels do not fit spec.namespaces.selector of class {name:?}"))
    }
}

fn ttl(world: &World, class: &SandboxClassSpec) -> Result<Span, Refusal> {
    let asked = world.sandbox.spec.ttl;
    let ttl = asked.unwrap_or(class.ttl.default);
    if ttl > class.ttl.max {
        let message = format!("spec.ttl is {ttl}, the class allows at most {}", class.ttl.max);
        return Err(Refusal::accepted(Reason::ExceedsClass, message));
    }
    let known =
        world.sandbox.status.as_ref().and_then(|status| status.expires_at.as_ref()).map(|time| time.0);
    let raised = |known| lifecycle::after(world.created(), ttl).duration_since(known) >= CLOCK_SKEW;
    if let Some(known) = known.filter(|known| asked.is_some() && !class.ttl.extendable && raised(*known)) {
        let message = format!(
            "spec.ttl is {ttl}, which is more than before, and the class lets it only be lowered; the end stays {known:.0}"
        );
        return Err(Refusal::accepted(Reason::ExceedsClass, message));
    }
    Ok(ttl)
}

fn limits(spec: &AgentSandboxSpec, class: &SandboxClass) -> Result<Limits, Refusal> {
    let asked = spec.resources.clone().unwrap_or_default();
    let Amounts { cpu, memory, ephemeral_storage } = &class.spec.resources.default;
    let most = &class.spec.resources.max;
    let limits = Limits {
        cpu_milli: bounded("cpu", asked.cpu.as_ref(), cpu, &most.cpu, Quantity::milli)?,
        memory: bounded("memory", asked.memory.as_ref(), memory, &most.memory, Quantity::units)?,
        ephemeral_storage: bounded(
            "ephemeralStorage",
            asked.ephemeral_storage.as_ref(),
            ephemeral_storage,
            &most.ephemeral_storage,
            Quantity::units,
        )?,
    };
    let runtime = &class.spec.runtime;
    let least = match runtime.isolation {
        Isolation::VirtualMachine
            if runtime.handler.as_deref().is_some_and(|handler| handler.contains("qemu")) =>
        {
            LEAST_MEMORY_QEMU
        }
        Isolation::VirtualMachine => LEAST_MEMORY_VM,
        Isolation::UserspaceKernel | Isolation::SharedKernel => LEAST_MEMORY,
    };
    if limits.memory < least {
        let (have, least) = (Quantity::from_bytes(limits.memory), Quantity::from_bytes(least));
        let message = format!("spec.resources.memory is {have}, the class's runtime needs at least {least}");
        return Err(Refusal::accepted(Reason::InvalidSpec, message));
    }
    if limits.cpu_milli < LEAST_CPU {
        let message =
            format!("spec.resources.cpu is {}m, at least {LEAST_CPU}m is needed to start", limits.cpu_milli);
        return Err(Refusal::accepted(Reason::InvalidSpec, message));
    }
    Ok(limits)
}

/// What was asked, else the class's default; within the class's most.
fn bounded(
    field: &str,
    asked: Option<&Quantity>,
    default: &Quantity,
    most: &Quantity,
    read: fn(&Quantity) -> Result<u64, crate::api::QuantityError>,
) -> Result<u64, Refusal> {
    let bad = |path: &str, why| Refusal::accepted(Reason::InvalidSpec, format!("{path}.{field}: {why}"));
    let value = match asked {
        Some(asked) => read(asked).map_err(|why| bad("spec.resources", why))?,
        None => read(default).map_err(|why| bad("the class's spec.resources.default", why))?,
    };
    let limit = read(most).map_err(|why| bad("the class's spec.resources.max", why))?;
    if value > limit {
        let have = asked.unwrap_or(default);
        let message = format!("spec.resources.{field} is {have}, the class allows at most {most}");
        return Err(Refusal::accepted(Reason::ExceedsClass, message));
    }
    Ok(value)
}

/// Every image that the sandbox names, with the field that names it.
fn images(spec: &AgentSandboxSpec) -> impl Iterator<Item = (String, &str)> {
    let inputs = spec.workspace.inputs.iter().filter_map(|input| {
        input.image.as_deref().map(|image| (format!("spec.workspace.inputs[{}].image", input.name), image))
    });
    std::iter::once(("spec.image".to_owned(), spec.image.as_str())).chain(inputs)
}

fn check_image(field: &str, image: &str, rules: &ImageRules) -> Result<(), Refusal> {
    let parsed = ImageRef::parse(image)
        .map_err(|why| Refusal::accepted(Reason::InvalidSpec, format!("{field}: {why}")))?;
    if let Some(allowed) = &rules.allowed
        && !image_allowed(&parsed, allowed)
    {
        let message = format!(
            "{field} {image:?} is {}, which is not in the class's images.allowed {allowed:?}",
            parsed.repository
        );
        return Err(Refusal::accepted(Reason::ExceedsClass, message));
    }
    if rules.require_digest && parsed.digest.is_none() {
        let message = format!(
            "{field} {image:?} names no digest, which the class requires; write {}@sha256:...",
            parsed.repository
        );
        return Err(Refusal::accepted(Reason::ExceedsClass, message));
    }
    Ok(())
}

/// The sandbox's own rules and those of the policies it names.
fn egress(world: &World, class: &SandboxClass) -> Result<Policy, Refusal> {
    let found = &world.egress_policies;
    Policy::effective(&world.sandbox, found, &[], &class.spec.egress, &world.cluster).map_err(|why| {
        let message = why.to_string();
        match why {
            Unfit::Missing(_) => Refusal::unresolved(Reason::PolicyNotFound, message),
            Unfit::Rejected(_) => Refusal::accepted(Reason::EgressRejected, message),
            Unfit::Credential(_) => Refusal::accepted(Reason::InvalidSpec, message),
        }
    })
}

fn class_facts(class: &SandboxClass, world: &World) -> Result<ClassFacts, Refusal> {
    let spec = &class.spec;
    let name = class.metadata.name.clone().unwrap_or_default();
    let owner = class.controller_owner_ref(&()).ok_or_else(|| {
        Refusal::accepted(
            Reason::ClassNotFound,
            format!("class {name:?} has no uid: it was not read from an API server"),
        )
    })?;
    Ok(ClassFacts {
        owner,
        runtime_class: spec.runtime.runtime_class_name.clone(),
        isolation: spec.runtime.isolation,
        accept_weaker: spec.runtime.accept_weaker_isolation.is_some(),
        startup_deadline: spec.startup_deadline,
        on_fence_open: spec.egress.on_fence_open,
        scheduling: spec.scheduling.clone(),
        security: spec.security.clone(),
        quota: super::quota::plan(spec, world.runtime_class.as_deref())
            .map_err(|why| Refusal::accepted(Reason::InvalidSpec, format!("class {name:?}: {why}")))?,
        name,
    })
}
