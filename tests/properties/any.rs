//! Sandboxes, classes and pods as nobody would write them, and as hostile sandboxes make them look.

use std::sync::Arc;

use glovebox::{
    api::{AgentSandbox, Reason, SandboxClass},
    policy::ClusterRanges,
    sandbox::{
        Refusal, World,
        idle::LastUse,
        suspicion::Seen,
        world::{PodSlot, Settings},
    },
    testkit::fixtures,
};
use proptest::{collection::vec, option, prelude::*};
use serde_json::{Value, json};

/// When every sandbox here was made, in seconds since 1970.
pub(crate) const CREATED: i64 = 1_798_761_600;

fn stamp(seconds: i64) -> Value {
    json!(jiff::Timestamp::from_second(CREATED + seconds).unwrap().to_string())
}

fn text() -> BoxedStrategy<String> {
    prop_oneof![4 => "[a-z]{1,8}", 1 => "\\PC{0,12}", 1 => "[ -~\\n\\x00]{0,20}", 1 => Just(String::new()), 1 => Just("$(HOME)".to_owned())]
    .boxed()
}

fn image() -> BoxedStrategy<String> {
    prop_oneof![30 => Just("glovebox.dev/tools:1".to_owned()), 4 => Just(format!("glovebox.dev/tools@sha256:{}", "0".repeat(64))), 1 => text()]
    .boxed()
}

fn cpu() -> BoxedStrategy<String> {
    prop_oneof![20 => Just("1".to_owned()), 10 => Just("500m".to_owned()), 1 => "[0-9]{1,16}(m|k)?", 1 => text()]
    .boxed()
}

fn bytes() -> BoxedStrategy<String> {
    prop_oneof![30 => (600_u32..4000).prop_map(|size| format!("{size}Mi")), 1 => "[0-9]{1,16}(\\.[0-9]{1,3})?(Ki|Mi|Gi|Ti|m)?", 1 => text()]
    .boxed()
}

fn span() -> BoxedStrategy<String> {
    prop_oneof![20 => (1_u32..7200).prop_map(|seconds| format!("{seconds}s")), 1 => "[0-9]{1,9}(ms|s|m|h)"]
        .boxed()
}

fn path() -> BoxedStrategy<String> {
    prop_oneof![
        20 => "/(data|workspace|srv/x|opt/a|etc/agent)(/[a-z]{1,3}){1,2}",
        1 => "[/a-z.:]{0,16}",
        1 => prop::sample::select(&["/", "/tmp", "/usr/lib", "/.glovebox/x", "/home/sandbox/.ssh", "/workspace/.git/hooks", "/proc", "/a/../b"][..]).prop_map(str::to_owned),
    ]
    .boxed()
}

fn amounts() -> BoxedStrategy<Value> {
    (cpu(), bytes(), bytes())
        .prop_map(|(cpu, memory, disk)| json!({"cpu": cpu, "memory": memory, "ephemeralStorage": disk}))
        .boxed()
}

fn input() -> BoxedStrategy<Value> {
    let source = prop_oneof![
        30 => Just(json!({"configMap": "c"})),
        20 => Just(json!({"persistentVolumeClaim": "p"})),
        20 => image().prop_map(|image| json!({"image": image})),
        1 => Just(json!({})),
        1 => Just(json!({"configMap": "c", "persistentVolumeClaim": "p"})),
    ];
    (path(), source)
        .prop_map(|(path, mut source)| {
            source["mountPath"] = json!(path);
            source
        })
        .boxed()
}

/// Mostly a rule that opens address ranges, sometimes one that opens names.
fn any_rule() -> BoxedStrategy<Value> {
    let host = prop_oneof![20 => "[a-z]{1,3}\\.(example|test)\\.com", 10 => "\\*{0,2}\\.?[a-z]{1,2}\\.[a-z.]{1,9}", 1 => text()];
    let named = (vec(host, 1..3), option::of(prop_oneof![Just("TLS"), Just("HTTPS"), Just("TCP")])).prop_map(
        |(hosts, protocol)| {
            let mut rule = json!({"name": "r", "hosts": hosts});
            set(&mut rule, "protocol", protocol);
            rule
        },
    );
    prop_oneof![2 => rule(), 1 => named].boxed()
}

fn rule() -> BoxedStrategy<Value> {
    let cidr = prop_oneof![40 => Just("203.0.113.0/24".to_owned()), 1 => "[0-9]{1,3}\\.[0-9]{1,3}\\.0\\.0/[0-9]{1,2}", 1 => "[0-9a-f:]{1,12}/[0-9]{1,3}", 1 => text()];
    (vec(cidr, 1..3), vec(prop_oneof![40 => Just(443), 1 => any::<i32>()], 1..3))
        .prop_map(|(cidrs, ports)| json!({"name": "r", "cidrs": cidrs, "ports": ports}))
        .boxed()
}

fn variable() -> BoxedStrategy<Value> {
    let from = json!({"configMapKeyRef": {"name": "c", "key": "k"}});
    ("[A-Z_]{1,6}", option::of(text()))
        .prop_map(move |(name, value)| match value {
            Some(value) => json!({"name": name, "value": value}),
            None => json!({"name": name, "valueFrom": from}),
        })
        .boxed()
}

fn set(object: &mut Value, field: &str, value: Option<impl Into<Value>>) {
    if let Some(value) = value {
        object[field] = value.into();
    }
}

fn numbered(mut list: Vec<Value>) -> Value {
    list.iter_mut().enumerate().for_each(|(at, item)| item["name"] = json!(format!("n{at}")));
    list.into()
}

prop_compose! {
    fn workspace()(
        mount in prop_oneof![10 => Just("/workspace".to_owned()), 1 => path()],
        size in option::of(prop_oneof![20 => (1_u32..200).prop_map(|size| format!("{size}Mi")), 1 => bytes()]),
        inputs in vec(input(), 0..4),
        protected in vec(prop_oneof![40 => "[a-z]{1,3}(/[a-z]{1,3}){0,2}", 5 => Just(".git".to_owned()), 1 => text()], 0..4),
    ) -> Value {
        let mut workspace = json!({"mountPath": mount, "inputs": numbered(inputs), "protectedPaths": protected});
        set(&mut workspace, "size", size);
        workspace
    }
}

prop_compose! {
    fn sandbox()(
        image in image(),
        command in vec(text(), 0..3),
        ttl in option::of(span()),
        after in span(),
        workspace in workspace().boxed(),
        resources in option::of(amounts()),
        env in vec(variable(), 0..4),
        egress in vec(any_rule(), 0..3),
        directory in option::of(path()),
        ports in vec(1..65536_i32, 0..3),
    ) -> Value {
        let ports = ports.into_iter().map(|port| json!({"containerPort": port})).collect();
        let mut spec = json!({"className": "c", "image": image, "command": command, "ttlAfterFinished": after, "workspace": workspace, "env": env, "egress": {"allow": numbered(egress)}, "ports": numbered(ports)});
        set(&mut spec, "ttl", ttl);
        set(&mut spec, "resources", resources);
        set(&mut spec, "workingDir", directory);
        json!({"apiVersion": "glovebox.dev/v1alpha1", "kind": "AgentSandbox", "metadata": {"name": "s", "namespace": "team-a", "uid": "u", "generation": 3, "creationTimestamp": stamp(0)}, "spec": spec})
    }
}

fn runtime() -> BoxedStrategy<Value> {
    prop_oneof![
        Just(json!({"trust": "Restricted", "runtime": {"runtimeClassName": "gvisor", "handler": "runsc", "isolation": "UserspaceKernel"}})),
        Just(json!({"trust": "Untrusted", "runtime": {"runtimeClassName": "kata", "handler": "kata", "isolation": "VirtualMachine"}})),
        Just(json!({"trust": "Hostile", "runtime": {"runtimeClassName": "kata", "handler": "kata-qemu", "isolation": "VirtualMachine"}})),
        Just(json!({"trust": "Trusted", "runtime": {"isolation": "SharedKernel"}})),
        Just(json!({"trust": "Untrusted", "runtime": {"runtimeClassName": "gvisor", "handler": "runsc", "isolation": "UserspaceKernel", "acceptWeakerIsolation": "no KVM here"}})),
    ]
    .boxed()
}

prop_compose! {
    fn class()(
        runtime in runtime(),
        ttl in (span(), prop_oneof![6 => Just("24h".to_owned()), 1 => span()], any::<bool>()),
        resources in option::weighted(0.1, (amounts(), amounts())),
        sizes in option::weighted(0.1, (bytes(), bytes())),
        deadline in span(),
        user in prop_oneof![4 => Just(65532_i64), 1 => Just(0), 1 => any::<i32>().prop_map(|user| i64::from(user).abs())],
        seccomp in prop_oneof![3 => Just("RuntimeDefault"), 1 => Just("Localhost/profiles/x.json")],
        quota in option::of((0..100_i64, option::of(cpu()), option::of(bytes()))),
        ceiling in option::weighted(0.1, rule()),
        digest in prop::bool::weighted(0.05),
    ) -> Value {
        let mut spec = runtime;
        spec["ttl"] = json!({"default": ttl.0, "max": ttl.1, "extendable": ttl.2});
        spec["startupDeadline"] = json!(deadline);
        spec["security"] = json!({"runAsUser": user, "allowRoot": user == 0, "seccomp": seccomp});
        spec["images"] = json!({"requireDigest": digest});
        set(&mut spec, "resources", resources.map(|(default, max)| json!({"default": default, "max": max})));
        set(&mut spec, "workspace", sizes.map(|(default, max)| json!({"defaultSize": default, "maxSize": max})));
        set(&mut spec, "egress", ceiling.map(|rule| json!({"ceiling": {"cidrs": rule["cidrs"], "ports": rule["ports"]}})));
        if let Some((sandboxes, cpu, memory)) = quota {
            spec["quota"] = json!({"sandboxes": sandboxes});
            set(&mut spec["quota"], "cpu", cpu);
            set(&mut spec["quota"], "memory", memory);
        }
        json!({"apiVersion": "glovebox.dev/v1alpha1", "kind": "SandboxClass", "metadata": {"name": "c", "uid": "cu", "generation": 1}, "spec": spec})
    }
}

const OTHER: &str = "99999999-2222-4333-8444-555555555555";

fn report(gvisor: bool, boot: &str) -> String {
    format!(
        "{{\"v\":1,\"bootId\":\"{boot}\",\"kernel\":\"Linux\",\"gvisor\":{gvisor},\"seccomp\":2,\"noNewPrivs\":true,\"capEff\":\"0000000000000000\",\"userNamespace\":false,\"fence\":{{\"rounds\":3}}}}\n"
    )
}

fn message() -> BoxedStrategy<String> {
    prop_oneof![
        2 => Just(report(true, OTHER)),
        1 => Just(report(false, OTHER)),
        1 => Just(report(false, glovebox::testkit::kubelet::BOOT_ID)),
        2 => (0_u8..4).prop_map(|code| format!("{{\"v\":1,\"exitCode\":{code},\"signal\":null,\"spawnError\":null,\"oom\":null}}\n")),
        1 => text(),
        1 => Just("x".repeat(5000)),
    ]
    .boxed()
}

fn ended() -> BoxedStrategy<Value> {
    let reason = prop::sample::select(&["Completed", "Error", "OOMKilled", "ContainerStatusUnknown"][..]);
    (prop_oneof![Just(0), Just(78), Just(137), any::<i32>()], message(), reason, -100..8000_i64)
        .prop_map(|(code, message, reason, at)| json!({"terminated": {"exitCode": code, "message": message, "reason": reason, "startedAt": stamp(at - 1), "finishedAt": stamp(at)}}))
    .boxed()
}

fn state() -> BoxedStrategy<Value> {
    let waits = prop::sample::select(&["ErrImagePull", "CreateContainerError", "PodInitializing", ""][..]);
    prop_oneof![
        3 => (-100..8000_i64).prop_map(|at| json!({"running": {"startedAt": stamp(at)}})),
        2 => ended(),
        2 => (waits, text()).prop_map(|(reason, message)| json!({"waiting": {"reason": reason, "message": message}})),
        1 => Just(json!({})),
    ]
    .boxed()
}

fn container(name: &'static str, state: BoxedStrategy<Value>) -> BoxedStrategy<Value> {
    state.prop_map(move |state| json!([{"name": name, "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state}]))
    .boxed()
}

/// A pod that runs as it should.
fn running() -> Value {
    let init = json!([{"name": "glovebox-init", "image": "", "imageID": "", "ready": true, "restartCount": 0, "state": {"terminated": {"exitCode": 0, "message": report(true, OTHER)}}}]);
    let workload = json!([{"name": "workload", "image": "", "imageID": "", "ready": true, "restartCount": 0, "state": {"running": {"startedAt": stamp(3)}}}]);
    let status = json!({"phase": "Running", "startTime": stamp(1), "initContainerStatuses": init, "containerStatuses": workload});
    json!({"metadata": {"name": "s", "namespace": "team-a", "uid": "pu", "creationTimestamp": stamp(1)}, "spec": {"containers": [], "nodeName": "node-1", "activeDeadlineSeconds": 600}, "status": status})
}

prop_compose! {
    fn pod()(
        phase in option::of(prop::sample::select(&["Pending", "Running", "Succeeded", "Failed", "Unknown"][..])),
        reason in option::weighted(0.3, prop::sample::select(&["Evicted", "DeadlineExceeded", "NodeLost", "Odd"][..])),
        init in option::of(container("glovebox-init", prop_oneof![4 => ended(), 1 => state()].boxed())),
        workload in option::of(container("workload", state())),
        started in option::of(-100..8000_i64),
        deleted in option::weighted(0.3, (0..8000_i64, option::of(0..60_i64))),
        deadline in option::of(prop_oneof![3 => 1..8000_i64, 1 => any::<i64>()]),
        node in prop_oneof![3 => Just("node-1"), 1 => Just("other")],
        disruption in option::weighted(0.2, text()),
    ) -> Value {
        let mut status = json!({});
        set(&mut status, "phase", phase);
        set(&mut status, "reason", reason);
        set(&mut status, "initContainerStatuses", init);
        set(&mut status, "containerStatuses", workload);
        set(&mut status, "startTime", started.map(stamp));
        set(&mut status, "conditions", disruption.map(|reason| json!([{"type": "DisruptionTarget", "status": "True", "reason": reason}])));
        let mut pod = json!({"metadata": {"name": "s", "namespace": "team-a", "uid": "pu", "creationTimestamp": stamp(1)}, "spec": {"containers": [], "nodeName": node}, "status": status});
        set(&mut pod["spec"], "activeDeadlineSeconds", deadline);
        if let Some((at, grace)) = deleted {
            pod["metadata"]["deletionTimestamp"] = stamp(at);
            set(&mut pod["metadata"], "deletionGracePeriodSeconds", grace);
        }
        pod
    }
}

fn known() -> BoxedStrategy<Value> {
    let finished = json!({"type": "Finished", "status": "True", "reason": "Error", "message": "", "lastTransitionTime": stamp(5)});
    prop_oneof![
        4 => Just(json!({})),
        1 => Just(json!({"startedAt": stamp(1), "phase": "Running"})),
        1 => (0..8000_i64).prop_map(|at| json!({"expiresAt": stamp(at), "readyAt": stamp(3)})),
        1 => (prop::sample::select(&["Error", "TtlExpired", "IdleTimeout", "IsolationMismatch", "Suspected"][..]), option::of(0..8000_i64)).prop_map(move |(reason, at)| {
            let mut status = json!({"phase": "Failed", "reason": reason, "conditions": [finished]});
            set(&mut status, "finishedAt", at.map(stamp));
            status
        }),
    ]
    .boxed()
}

prop_compose! {
    /// A whole world.
    pub(crate) fn world()(
        class in prop_oneof![8 => class().prop_map(Some).boxed(), 1 => Just(None)],
        sandbox in sandbox().boxed(),
        status in known(),
        deleting in prop::bool::weighted(0.1),
        pod in prop_oneof![2 => Just(None), 3 => pod().prop_map(Some).boxed(), 1 => Just(Some(running()))],
        taken in option::weighted(0.1, any::<bool>()),
        runtime_class in prop::bool::weighted(0.9),
        breach in option::weighted(0.1, text()),
        last_use in option::of((option::of(0..8000_i64), any::<bool>())),
        seen in option::of((0..5_u32, 0..90_u32)),
        authority in option::of(Just("-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n")),
    ) -> World {
        let mut sandbox = sandbox;
        sandbox["status"] = status;
        if deleting {
            sandbox["metadata"]["deletionTimestamp"] = stamp(9);
        }
        let class: Option<Arc<SandboxClass>> = class.map(|class| Arc::new(serde_json::from_value(class).unwrap()));
        let runtime = class.as_ref().map(|class| class.spec.runtime.clone()).filter(|runtime| runtime.runtime_class_name.is_some() && runtime_class);
        let sandbox: AgentSandbox = serde_json::from_value(sandbox).unwrap();
        let slot = match (pod, taken) {
            (_, Some(former)) => PodSlot::Taken { by: "somebody".into(), former },
            (Some(pod), None) => PodSlot::Ours(Arc::new(serde_json::from_value(pod).unwrap())),
            (None, None) => PodSlot::Free,
        };
        let node = fixtures::cluster().into_iter().find(|object| object["kind"] == "Node").unwrap();
        World {
            sandbox: Arc::new(sandbox),
            class: class.ok_or_else(|| Refusal::accepted(Reason::ClassNotFound, "no class")),
            namespace_labels: None,
            runtime_class: runtime.map(|runtime| Arc::new(serde_json::from_value(json!({"metadata": {"uid": "ru"}, "handler": runtime.handler, "overhead": {"podFixed": {"cpu": "250m", "memory": "128Mi"}}})).unwrap())),
            nodes: vec![Arc::new(serde_json::from_value(node).unwrap())],
            pod: slot,
            fence: None,
            cidr_policy: None,
            credential_grant: (None, None),
            egress_policies: Vec::new(),
            approvals: Vec::new(),
            wanted: Vec::new(),
            quota: None,
            priority_class: None,
            unresolved: None,
            breach,
            gateway: Some("10.96.0.53".parse().unwrap()),
            authority: authority.map(Into::into),
            call_keys: Arc::default(),
            named: glovebox::sandbox::named::View::None,
            last_use: last_use.map(|(at, asked)| LastUse { at: at.map(|at| serde_json::from_value(stamp(at)).unwrap()), asked }),
            seen: seen.map(|(severe, score)| Seen { severe, score, signs: vec!["a sign".into()] }),
            cluster: ClusterRanges::new(["10.96.0.0/16".parse().unwrap()]),
            settings: Arc::new(Settings { agent_image: fixtures::AGENT_IMAGE.into(), namespace: fixtures::SYSTEM_NAMESPACE.into(), api_server: None, gateway_account: Some("glovebox-gateway".into()) }),
        }
    }
}

/// A moment, mostly in the life of a sandbox, sometimes at the ends of time.
pub(crate) fn moment() -> BoxedStrategy<jiff::Timestamp> {
    prop_oneof![
        6 => (-1000_i64..10_000_000).prop_map(|ms| jiff::Timestamp::from_millisecond(CREATED * 1000 + ms).unwrap()),
        1 => Just(jiff::Timestamp::UNIX_EPOCH),
        1 => Just(jiff::Timestamp::from_second(253_000_000_000).unwrap()),
    ]
    .boxed()
}
