//! The pod: hardened the same way whatever the class. Read top to bottom, this is what a sandbox is.

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
};

use k8s_openapi::{
    api::core::v1::{
        Capabilities, ConfigMapVolumeSource, Container, ContainerPort, EmptyDirVolumeSource, EnvVar,
        EnvVarSource, ExecAction, ImageVolumeSource, ObjectFieldSelector, PersistentVolumeClaimVolumeSource,
        Pod, PodDNSConfig, PodDNSConfigOption, PodSecurityContext, PodSpec, Probe, ResourceRequirements,
        SeccompProfile, SecurityContext, Toleration, Volume, VolumeMount,
    },
    apimachinery::pkg::{api::resource, apis::meta::v1::ObjectMeta},
};

use super::{
    env,
    names::{self, ports},
    plan::{Limits, Plan},
};
use crate::api::{Input, OnFenceOpen, Quantity};

/// Seconds between SIGTERM and SIGKILL at teardown: the sandbox must be gone 2 s after its deadline.
const GRACE_SECONDS: i64 = 1;
/// Milliseconds of that which the agent leaves to the workload before it kills the whole tree.
const AGENT_GRACE_MS: u32 = 500;
/// Seconds until a pod leaves a node that is dead; the default of 300 would leave a sandbox unaccounted for 5 minutes.
const DEAD_NODE_SECONDS: i64 = 30;
/// Room for the agent's binary and for the files of $HOME, in bytes.
const AGENT_ROOM: u64 = 16 << 20;
const HOME_ROOM: u64 = 1 << 20;
/// Room for the authorities of an image, of which the agent takes at most half of this, and for that of the installation.
const TRUST_ROOM: u64 = 4 << 20;
/// Protected directories are one empty volume: no room is needed.
const PROTECTED_ROOM: u64 = 4 << 10;

/// Seconds from one look of the kubelet at the fence to the next, and how long one may take: three rounds of half a second,
/// a pause after each, and a slow start of the process. Together they are less than the 15 s within which it must be noticed.
const FENCE_PERIOD: i32 = 3;
const FENCE_TIMEOUT: i32 = 5;

/// Variable of the node's address.
const HOST_IP: &str = "GLOVEBOX_HOST_IP";
/// Where clouds tell a machine its credentials.
const METADATA: &str = "169.254.169.254:80";

/// Directories of $HOME that must exist, so that something can be mounted on them or programs find them.
const HOME_DIRS: &[&str] = &[".cache", ".config", ".local", ".ssh"];

/// The pod, with its own deadline in seconds.
pub(super) fn desired(plan: &Plan, deadline_seconds: i64) -> Pod {
    Pod {
        metadata: ObjectMeta {
            name: Some(plan.name.clone()),
            namespace: Some(plan.namespace.clone()),
            labels: Some(names::sandbox_labels(&plan.name, &plan.class.name)),
            owner_references: Some(vec![plan.owner.clone()]),
            ..ObjectMeta::default()
        },
        spec: Some(spec(plan, deadline_seconds)),
        status: None,
    }
}

fn spec(plan: &Plan, deadline_seconds: i64) -> PodSpec {
    PodSpec {
        active_deadline_seconds: Some(deadline_seconds.max(1)),
        automount_service_account_token: Some(false),
        containers: vec![workload(plan)],
        dns_config: Some(dns(plan)),
        dns_policy: Some("None".into()),
        enable_service_links: Some(false),
        host_users: plan.runtime.user_namespaces.then_some(false),
        init_containers: Some(vec![init(plan)]),
        node_selector: (!plan.class.scheduling.node_selector.is_empty())
            .then(|| plan.class.scheduling.node_selector.clone()),
        priority_class_name: Some(names::class_object(&plan.class.name)),
        restart_policy: Some("Never".into()),
        runtime_class_name: plan.class.runtime_class.clone(),
        security_context: Some(pod_security(plan)),
        termination_grace_period_seconds: Some(GRACE_SECONDS),
        tolerations: Some(tolerations(plan)),
        volumes: Some(volumes(plan)),
        ..PodSpec::default()
    }
}

/// Names are for the gateway to answer, never for the cluster's DNS, which recurses for anyone.
fn dns(plan: &Plan) -> PodDNSConfig {
    PodDNSConfig {
        nameservers: Some(vec![plan.fence.gateway.to_string()]),
        options: Some(vec![PodDNSConfigOption { name: Some("ndots".into()), value: Some("1".into()) }]),
        searches: None,
    }
}

fn pod_security(plan: &Plan) -> PodSecurityContext {
    let user = plan.class.security.run_as_user;
    let profile = match plan.class.security.seccomp.split_once('/') {
        Some((_, path)) => SeccompProfile { type_: "Localhost".into(), localhost_profile: Some(path.into()) },
        None => SeccompProfile { type_: "RuntimeDefault".into(), localhost_profile: None },
    };
    PodSecurityContext {
        fs_group: Some(user),
        fs_group_change_policy: Some("OnRootMismatch".into()),
        run_as_group: Some(user),
        run_as_non_root: Some(user != 0),
        run_as_user: Some(user),
        seccomp_profile: Some(profile),
        ..PodSecurityContext::default()
    }
}

fn container_security() -> SecurityContext {
    SecurityContext {
        allow_privilege_escalation: Some(false),
        capabilities: Some(Capabilities { drop: Some(vec!["ALL".into()]), add: None }),
        privileged: Some(false),
        read_only_root_filesystem: Some(true),
        ..SecurityContext::default()
    }
}

/// Requests equal limits: nothing is promised that is not there. Both amounts are always set, since Kata sizes the guest
/// from them.
fn resources(limits: Limits) -> ResourceRequirements {
    let amounts: BTreeMap<String, resource::Quantity> = [
        ("cpu", Quantity::from_milli(limits.cpu_milli)),
        ("memory", Quantity::from_bytes(limits.memory)),
        ("ephemeral-storage", Quantity::from_bytes(limits.ephemeral_storage)),
    ]
    .into_iter()
    .map(|(name, quantity)| (name.to_owned(), (&quantity).into()))
    .collect();
    ResourceRequirements { limits: Some(amounts.clone()), requests: Some(amounts), claims: None }
}

fn init(plan: &Plan) -> Container {
    let storage = &plan.storage;
    let mut command = vec![
        "/glovebox-agent".to_owned(),
        "init".into(),
        "--isolation".into(),
        plan.class.isolation.as_str().into(),
        "--agent-dir".into(),
        names::AGENT_DIR.into(),
        "--home-dir".into(),
        names::HOME.into(),
        "--workspace".into(),
        storage.workspace.clone(),
    ];
    if plan.class.accept_weaker {
        command.push("--accept-weaker".into());
    }
    command.extend(fence(plan));
    command.extend(["--fence-node".to_owned(), format!("$({HOST_IP})")]);
    command.extend(HOME_DIRS.iter().flat_map(|dir| ["--home-mountpoint".to_owned(), (*dir).to_owned()]));
    Container {
        name: names::INIT_CONTAINER.into(),
        image: Some(plan.agent_image.clone()),
        command: Some(command),
        env: Some(vec![host_ip()]),
        resources: Some(resources(plan.limits)),
        security_context: Some(container_security()),
        // Without a report the log says why: it is our own.
        termination_message_policy: Some("FallbackToLogsOnError".into()),
        volume_mounts: Some(vec![mount("agent", names::AGENT_DIR, false), mount("home", names::HOME, false)]),
        ..Container::default()
    }
}

fn workload(plan: &Plan) -> Container {
    let agent = format!("{}/glovebox-agent", names::AGENT_DIR);
    let idle = plan.command.is_empty();
    let mut command = vec![agent, if idle { "idle" } else { "run" }.into()];
    let probe = match plan.class.on_fence_open {
        OnFenceOpen::Terminate => {
            command.extend(fence(plan));
            None
        }
        OnFenceOpen::Report => Some(fence_probe(plan)),
    };
    if let Some(authority) = &plan.authority {
        let trust = ["--trust-dir", names::TRUST_DIR, "--trust-authority", authority];
        command.extend(trust.map(str::to_owned));
    }
    command.extend(calls(plan));
    if !idle {
        command.extend(["--grace".to_owned(), AGENT_GRACE_MS.to_string(), "--path-append".into()]);
        command.push(format!("{}/.local/bin", plan.storage.workspace));
        command.push("--".into());
        command.extend(plan.command.iter().map(|part| literal(part)));
    }
    Container {
        name: names::WORKLOAD_CONTAINER.into(),
        image: Some(plan.image.clone()),
        command: Some(command),
        env: Some(literal_values(env::workload(plan))),
        ports: (!plan.ports.is_empty()).then(|| ports(plan)),
        readiness_probe: probe,
        resources: Some(resources(plan.limits)),
        security_context: Some(container_security()),
        termination_message_policy: Some("File".into()),
        volume_mounts: Some(mounts(plan)),
        working_dir: Some(plan.working_dir.clone()),
        ..Container::default()
    }
}

/// Whose calls the agent takes, and where. By the uid, a call for one sandbox is never one for a namesake.
fn calls(plan: &Plan) -> Vec<String> {
    if plan.call_keys.is_empty() {
        return Vec::new();
    }
    let any = if plan.fence.gateway.is_ipv4() {
        Ipv4Addr::UNSPECIFIED.into()
    } else {
        Ipv6Addr::UNSPECIFIED.into()
    };
    let listen = SocketAddr::new(any, ports::CALLS).to_string();
    let mut arguments = vec!["--calls-listen".into(), listen, "--calls-uid".into(), plan.owner.uid.clone()];
    arguments.extend(plan.call_keys.iter().flat_map(|key| ["--calls-key".to_owned(), key.clone()]));
    arguments.extend(["--calls-workspace".to_owned(), plan.storage.workspace.clone()]);
    arguments
}

/// The same proof, by a process of its own that the kubelet starts from time to time: it can tell the world while the workload
/// runs on. One that the workload kills tells of an open fence.
fn fence_probe(plan: &Plan) -> Probe {
    let mut command = vec![format!("{}/glovebox-agent", names::AGENT_DIR), "look".to_owned()];
    command.extend(fence(plan));
    Probe {
        exec: Some(ExecAction { command: Some(command) }),
        failure_threshold: Some(1),
        initial_delay_seconds: Some(0),
        period_seconds: Some(FENCE_PERIOD),
        success_threshold: Some(1),
        timeout_seconds: Some(FENCE_TIMEOUT),
        ..Probe::default()
    }
}

/// What the agent tries from inside: the tripwire, the API server and the clouds' metadata service must be out of reach, the
/// gateway within.
fn fence(plan: &Plan) -> Vec<String> {
    let gateway = |port: ports::Port| SocketAddr::new(plan.fence.gateway, port.service).to_string();
    let mut forbidden = vec![gateway(ports::TRIPWIRE), METADATA.to_owned()];
    forbidden.extend(plan.fence.api_server.map(|address| address.to_string()));
    let mut arguments: Vec<String> =
        forbidden.into_iter().flat_map(|address| ["--fence-forbid".to_owned(), address]).collect();
    for port in [ports::PROXY, ports::TLS] {
        arguments.extend(["--fence-gateway".to_owned(), gateway(port)]);
    }
    arguments.extend(["--fence-dns".to_owned(), gateway(ports::DNS)]);
    arguments
}

/// The node's address, known once a node was chosen. For the init container alone: a workload need not know it.
fn host_ip() -> EnvVar {
    EnvVar {
        name: HOST_IP.into(),
        value: None,
        value_from: Some(EnvVarSource {
            field_ref: Some(ObjectFieldSelector {
                field_path: "status.hostIP".into(),
                api_version: Some("v1".into()),
            }),
            ..EnvVarSource::default()
        }),
    }
}

/// The kubelet expands `$(NAME)` in commands and values, and takes a doubled dollar for a plain one: with each dollar doubled,
/// what arrives is what the user wrote.
fn literal(text: &str) -> String {
    text.replace('$', "$$")
}

fn literal_values(mut env: Vec<EnvVar>) -> Vec<EnvVar> {
    for value in env.iter_mut().filter_map(|variable| variable.value.as_mut()) {
        *value = literal(value);
    }
    env
}

fn ports(plan: &Plan) -> Vec<ContainerPort> {
    plan.ports
        .iter()
        .map(|port| ContainerPort {
            name: Some(port.name.clone()),
            container_port: port.container_port,
            protocol: Some("TCP".into()),
            ..ContainerPort::default()
        })
        .collect()
}

fn mount(volume: &str, path: &str, read_only: bool) -> VolumeMount {
    VolumeMount {
        name: volume.into(),
        mount_path: path.into(),
        read_only: read_only.then_some(true),
        ..VolumeMount::default()
    }
}

/// Outer mounts come before inner ones, whatever order the runtime keeps.
fn mounts(plan: &Plan) -> Vec<VolumeMount> {
    let storage = &plan.storage;
    let mut all = vec![
        mount("agent", names::AGENT_DIR, true),
        mount("home", names::HOME, true),
        mount("cache", names::CACHE, false),
        mount("tmp", "/tmp", false),
        mount("workspace", &storage.workspace, false),
    ];
    all.extend(plan.authority.iter().map(|_| mount("trust", names::TRUST_DIR, false)));
    all.extend(storage.inputs.iter().map(|input| mount(&input_volume(input), &input.mount_path, true)));
    all.extend(storage.git.iter().map(|path| mount("git", path, false)));
    all.extend(storage.protected.iter().map(|path| mount("protected", path, true)));
    all
}

fn input_volume(input: &Input) -> String {
    format!("input-{}", input.name)
}

fn volumes(plan: &Plan) -> Vec<Volume> {
    let storage = &plan.storage;
    let mut all = vec![
        memory("agent", AGENT_ROOM),
        memory("home", HOME_ROOM),
        memory("cache", storage.scratch_size),
        memory("tmp", storage.scratch_size),
        memory("workspace", storage.workspace_size),
        memory("protected", PROTECTED_ROOM),
    ];
    all.extend(plan.authority.iter().map(|_| memory("trust", TRUST_ROOM)));
    all.extend(storage.git.iter().map(|_| memory("git", storage.scratch_size)));
    all.extend(storage.inputs.iter().map(input));
    all
}

fn memory(name: &str, size: u64) -> Volume {
    Volume {
        name: name.into(),
        empty_dir: Some(EmptyDirVolumeSource {
            medium: Some("Memory".into()),
            size_limit: Some((&Quantity::from_bytes(size)).into()),
        }),
        ..Volume::default()
    }
}

fn input(input: &Input) -> Volume {
    let mut volume = Volume { name: input_volume(input), ..Volume::default() };
    if let Some(image) = &input.image {
        volume.image = Some(ImageVolumeSource { reference: Some(image.clone()), pull_policy: None });
    } else if let Some(name) = &input.config_map {
        volume.config_map =
            Some(ConfigMapVolumeSource { name: name.clone(), ..ConfigMapVolumeSource::default() });
    } else if let Some(claim) = &input.persistent_volume_claim {
        volume.persistent_volume_claim =
            Some(PersistentVolumeClaimVolumeSource { claim_name: claim.clone(), read_only: Some(true) });
    }
    volume
}

fn tolerations(plan: &Plan) -> Vec<Toleration> {
    let dead = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"].map(|key| Toleration {
        key: Some(key.into()),
        operator: Some("Exists".into()),
        effect: Some("NoExecute".into()),
        toleration_seconds: Some(DEAD_NODE_SECONDS),
        value: None,
    });
    plan.class.scheduling.tolerations.iter().cloned().chain(dead).collect()
}
