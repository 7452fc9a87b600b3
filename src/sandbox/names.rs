//! Names and labels that others rely on: one place, so that the chart, the tests and the documents can be held against it.

use std::collections::BTreeMap;

/// Value of `app.kubernetes.io/managed-by` on everything that the controller makes.
pub const MANAGER: &str = "glovebox";
/// Field manager of the controller's server-side applies.
pub const FIELD_MANAGER: &str = "glovebox-controller";
/// Label on sandbox pods: the sandbox's name. Its presence is what the fence selects.
pub const SANDBOX_LABEL: &str = "glovebox.dev/sandbox";
/// Label on sandbox pods and quotas: the class's name.
pub const CLASS_LABEL: &str = "glovebox.dev/class";
/// Standard label that says who manages an object.
pub const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";
/// The NetworkPolicy that denies everything, one in each namespace in use.
pub const FENCE: &str = "glovebox-fence";
/// The Service of the gateway, in the controller's own namespace.
pub const GATEWAY: &str = "glovebox-gateway";
/// The init container that reports the kernel and brings the agent.
pub const INIT_CONTAINER: &str = "glovebox-init";
/// The container that the workload runs in.
pub const WORKLOAD_CONTAINER: &str = "workload";
/// Where the agent is mounted, read-only.
pub const AGENT_DIR: &str = "/.glovebox";
/// Where the agent writes whom the sandbox trusts.
pub const TRUST_DIR: &str = "/.glovebox-trust";
/// Labels by which a Service is known as that of a host. By the first of them, admission keeps others from making one.
pub const NAMED_LABELS: [(&str, &str); 2] = [(MANAGED_BY_LABEL, MANAGER), ("glovebox.dev/named", "tcp")];
/// Annotation of such a Service: its host.
pub const HOST_ANNOTATION: &str = "glovebox.dev/host";
/// $HOME of a workload, read-only but for its cache.
pub const HOME: &str = "/home/sandbox";
/// The writable part of $HOME.
pub const CACHE: &str = "/home/sandbox/.cache";

/// Ports of the gateway: those of its Service, and those of its pods, which are what a NetworkPolicy speaks of.
pub mod ports {
    use std::ops::RangeInclusive;

    /// A port of the Service and the pods' port behind it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Port {
        /// Of the Service.
        pub service: u16,
        /// Of the pods.
        pub pod: u16,
    }

    /// Names: UDP and TCP.
    pub const DNS: Port = Port { service: 53, pod: 5353 };
    /// The explicit proxy.
    pub const PROXY: Port = Port { service: 3128, pod: 3128 };
    /// TLS, by the name in its first message.
    pub const TLS: Port = Port { service: 443, pod: 8443 };
    /// HTTP, by the name in its head.
    pub const HTTP: Port = Port { service: 80, pod: 8080 };
    /// Ports of the pods that stand for one host and port outside each. Below those that Linux gives to outgoing connections.
    pub const NAMED: RangeInclusive<u16> = 20000..=20999;
    /// What no sandbox may reach: one that can is not fenced.
    pub const TRIPWIRE: Port = Port { service: 9099, pod: 9099 };
    /// Of gateway's and session's pods: health, metrics, and when a sandbox was last used.
    pub const ADMIN: u16 = 9090;
    /// Of each sandbox's pod: where its agent takes calls from the session's pods. Below what gVisor (16000) and Linux (32768) give to
    /// outgoing connections: one of the probes before the workload would have taken it, once in some thousand sandboxes.
    pub const CALLS: u16 = 13443;
}

/// Labels of the session's pods.
#[must_use]
pub fn session_labels() -> BTreeMap<String, String> {
    labels([("app.kubernetes.io/name", MANAGER), ("app.kubernetes.io/component", "session")])
}

/// Labels of the trail's pod.
#[must_use]
pub fn audit_labels() -> BTreeMap<String, String> {
    labels([("app.kubernetes.io/name", MANAGER), ("app.kubernetes.io/component", "audit")])
}

/// Labels of the gateway's pods.
#[must_use]
pub fn gateway_labels() -> BTreeMap<String, String> {
    labels([("app.kubernetes.io/name", MANAGER), ("app.kubernetes.io/component", "gateway")])
}

/// Directories below the workspace that are never writable: what editors, agents and git run unasked.
pub const PROTECTED: &[&str] =
    &[".git/hooks", ".vscode", ".idea", ".cursor", ".claude", ".codex", ".devcontainer"];

/// The PriorityClass of a class, and the ResourceQuota in each namespace that uses it.
#[must_use]
pub fn class_object(class: &str) -> String {
    format!("glovebox-{class}")
}

/// The sandbox that is tried for a class, in the controller's own namespace.
#[must_use]
pub fn canary(class: &str) -> String {
    format!("canary-{class}")
}

/// The NetworkPolicy that opens address rules for one sandbox.
#[must_use]
pub fn cidr_policy(sandbox: &str) -> String {
    format!("{sandbox}-cidrs")
}

/// The Role, and its binding, by which the gateway may have the credentials of one sandbox.
#[must_use]
pub fn credentials(sandbox: &str) -> String {
    format!("{CREDENTIALS}{sandbox}")
}

/// What the names of such Roles begin with; admission knows them by it.
pub const CREDENTIALS: &str = "glovebox-credentials-";

/// The Service by which a host has ports of its own, by the first of our ports that it leads to: no two can have the same.
#[must_use]
pub fn named_service(port: u16) -> String {
    format!("{NAMED_SERVICE}{port}")
}

/// The port in the name of such a Service.
#[must_use]
pub fn named_service_port(name: &str) -> Option<u16> {
    name.strip_prefix(NAMED_SERVICE)?.parse().ok()
}

const NAMED_SERVICE: &str = "glovebox-tcp-";

/// Labels of everything that the controller makes.
#[must_use]
pub fn common_labels() -> BTreeMap<String, String> {
    labels([(MANAGED_BY_LABEL, MANAGER), ("app.kubernetes.io/part-of", MANAGER)])
}

/// Labels of one sandbox's objects.
#[must_use]
pub fn sandbox_labels(sandbox: &str, class: &str) -> BTreeMap<String, String> {
    let mut all = common_labels();
    all.append(&mut labels([
        ("app.kubernetes.io/name", "sandbox"),
        ("app.kubernetes.io/component", "sandbox"),
        (SANDBOX_LABEL, sandbox),
        (CLASS_LABEL, class),
    ]));
    all
}

pub(crate) fn labels<const N: usize>(pairs: [(&str, &str); N]) -> BTreeMap<String, String> {
    pairs.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}
