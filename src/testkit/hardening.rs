//! The list of what every sandbox pod must have, as a checker of its own over the pod's JSON. It knows nothing of how
//! pods are made; Pod Security "restricted" is written down here from its definition.

use serde_json::Value;

/// The gateway's address in the fixtures.
const GATEWAY: &str = "10.96.0.53";
/// Volumes that Pod Security "restricted" allows and that bring in nothing from the node.
const VOLUMES: &[&str] = &["emptyDir", "configMap", "persistentVolumeClaim", "image"];
/// The longest grace that keeps teardown within 2 s.
const MOST_GRACE: i64 = 1;

/// What a pod lacks, in words; nothing, if it is as it must be. `root` says that its class allows the user 0.
#[must_use]
pub fn faults(pod: &Value, root: bool) -> Vec<String> {
    let spec = &pod["spec"];
    let mut found = Faults(Vec::new());
    whole(spec, root, &mut found);
    for field in ["initContainers", "containers"] {
        let list = spec[field].as_array().cloned().unwrap_or_default();
        found.unless(list.len() == 1, &format!("{field} has {} entries", list.len()));
        for container in &list {
            each(spec, container, root, &mut found);
        }
    }
    found.unless(spec.get("ephemeralContainers").is_none(), "ephemeral containers");
    for volume in spec["volumes"].as_array().into_iter().flatten() {
        source(volume, &mut found);
    }
    found.0
}

struct Faults(Vec<String>);

impl Faults {
    fn unless(&mut self, holds: bool, what: &str) {
        if !holds {
            self.0.push(what.to_owned());
        }
    }
}

fn whole(spec: &Value, root: bool, found: &mut Faults) {
    found.unless(spec["automountServiceAccountToken"] == false, "a service account token is mounted");
    found.unless(
        spec["serviceAccountName"].is_null() || spec["serviceAccountName"] == "default",
        "a service account is named",
    );
    found.unless(spec["enableServiceLinks"] == false, "service links");
    found.unless(spec["restartPolicy"] == "Never", "it restarts");
    found.unless(spec["dnsPolicy"] == "None", "it uses the cluster's DNS");
    let names = spec["dnsConfig"]["nameservers"].as_array().cloned().unwrap_or_default();
    found.unless(
        !names.is_empty() && names.iter().all(|name| name == GATEWAY),
        "its name server is not the gateway",
    );
    found.unless(
        spec["activeDeadlineSeconds"].as_i64().is_some_and(|seconds| seconds >= 1),
        "no deadline of its own",
    );
    found.unless(
        spec["terminationGracePeriodSeconds"].as_i64().is_some_and(|grace| (0..=MOST_GRACE).contains(&grace)),
        "a long grace",
    );
    found.unless(
        spec["priorityClassName"]
            .as_str()
            .is_some_and(|name| !name.starts_with("system-") && !name.is_empty()),
        "no priority class",
    );
    for host in ["hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace", "setHostnameAsFQDN"] {
        found.unless(spec[host].is_null() || spec[host] == false, host);
    }
    for absent in ["nodeName", "schedulerName", "hostAliases", "imagePullSecrets"] {
        found.unless(spec[absent].is_null(), &format!("{absent} is set"));
    }
    let security = &spec["securityContext"];
    let user = security["runAsUser"].as_i64();
    found.unless(
        root || (security["runAsNonRoot"] == true && user.is_some_and(|user| user > 0)),
        "it may run as root",
    );
    found.unless(
        security["runAsGroup"].as_i64().is_some_and(|group| root || group > 0),
        "it may run as root's group",
    );
    let profile = security["seccompProfile"]["type"].as_str();
    found.unless(matches!(profile, Some("RuntimeDefault" | "Localhost")), "no seccomp profile");
    for absent in ["sysctls", "seLinuxOptions", "windowsOptions", "appArmorProfile", "supplementalGroups"] {
        found.unless(security[absent].is_null(), &format!("securityContext.{absent} is set"));
    }
}

fn each(spec: &Value, container: &Value, root: bool, found: &mut Faults) {
    let name = container["name"].as_str().unwrap_or("?");
    let security = &container["securityContext"];
    let mut unless = |holds: bool, what: &str| found.unless(holds, &format!("container {name}: {what}"));
    unless(security["readOnlyRootFilesystem"] == true, "its root can be written");
    unless(security["allowPrivilegeEscalation"] == false, "it may escalate");
    unless(security["privileged"].is_null() || security["privileged"] == false, "privileged");
    unless(security["capabilities"]["drop"] == serde_json::json!(["ALL"]), "capabilities are not dropped");
    unless(security["capabilities"]["add"].is_null(), "capabilities are added");
    unless(
        root || security["runAsNonRoot"] != false && security["runAsUser"] != 0,
        "root by its own context",
    );
    unless(security["procMount"].is_null() || security["procMount"] == "Default", "an unmasked /proc");
    unless(
        security["seccompProfile"].is_null() && security["seLinuxOptions"].is_null(),
        "a profile of its own",
    );
    let resources = &container["resources"];
    unless(resources["requests"] == resources["limits"], "requests are not limits");
    for amount in ["cpu", "memory", "ephemeral-storage"] {
        unless(resources["limits"][amount].is_string(), &format!("no limit of {amount}"));
    }
    for absent in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe", "envFrom", "volumeDevices"]
    {
        unless(container[absent].is_null(), &format!("{absent} is set"));
    }
    // The init container is our own: its log is worth reading. A workload's is not.
    let own = name == "glovebox-init" && container["terminationMessagePolicy"] == "FallbackToLogsOnError";
    unless(own || container["terminationMessagePolicy"] == "File", "its log may become its message");
    for port in container["ports"].as_array().into_iter().flatten() {
        unless(port["hostPort"].is_null() && port["hostIP"].is_null(), "a port of the host");
    }
    for variable in container["env"].as_array().into_iter().flatten() {
        let from = variable["valueFrom"].as_object();
        // The node's address is for the proof of the fence, before the workload.
        let node =
            name == "glovebox-init" && variable["valueFrom"]["fieldRef"]["fieldPath"] == "status.hostIP";
        unless(
            node || from.is_none_or(|from| from.keys().eq(["configMapKeyRef"])),
            "a variable from something but a ConfigMap",
        );
    }
    let volumes = spec["volumes"].as_array().cloned().unwrap_or_default();
    let mut paths = std::collections::BTreeSet::new();
    for mount in container["volumeMounts"].as_array().into_iter().flatten() {
        let path = mount["mountPath"].as_str().unwrap_or_default();
        let volume = volumes.iter().find(|volume| volume["name"] == mount["name"]);
        let memory = volume.is_some_and(|volume| {
            volume["emptyDir"]["medium"] == "Memory" && volume["emptyDir"]["sizeLimit"].is_string()
        });
        unless(volume.is_some(), &format!("{path} is of no volume"));
        unless(
            mount["readOnly"] == true || memory,
            &format!("{path} can be written and is not bounded memory"),
        );
        unless(
            mount["mountPropagation"].is_null()
                && mount["subPath"].is_null()
                && mount["subPathExpr"].is_null(),
            &format!("{path} is a part of a volume, or propagates"),
        );
        unless(
            path.starts_with('/') && path != "/" && !path.contains("..") && !path.contains(':'),
            &format!("{path:?} is no place for a mount"),
        );
        unless(paths.insert(path.to_owned()), &format!("{path} is mounted twice"));
    }
}

fn source(volume: &Value, found: &mut Faults) {
    let name = volume["name"].as_str().unwrap_or("?");
    let kinds: Vec<&String> =
        volume.as_object().into_iter().flatten().map(|(key, _)| key).filter(|key| *key != "name").collect();
    let known = kinds.len() == 1 && VOLUMES.contains(&kinds[0].as_str());
    found.unless(known, &format!("volume {name} is of kind {kinds:?}"));
    let claim = &volume["persistentVolumeClaim"];
    found.unless(
        claim.is_null() || claim["readOnly"] == true,
        &format!("volume {name}: a claim that can be written"),
    );
    let empty = &volume["emptyDir"];
    found.unless(
        empty.is_null() || (empty["medium"] == "Memory" && empty["sizeLimit"].is_string()),
        &format!("volume {name} is not bounded memory"),
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn container() -> Value {
        json!({
            "name": "c", "terminationMessagePolicy": "File",
            "securityContext": {"readOnlyRootFilesystem": true, "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
            "resources": {"limits": {"cpu": "1", "memory": "1Gi", "ephemeral-storage": "1Gi"}, "requests": {"cpu": "1", "memory": "1Gi", "ephemeral-storage": "1Gi"}},
            "volumeMounts": [{"name": "v", "mountPath": "/workspace"}],
        })
    }

    fn pod() -> Value {
        json!({"spec": {
            "automountServiceAccountToken": false, "enableServiceLinks": false, "restartPolicy": "Never", "dnsPolicy": "None",
            "dnsConfig": {"nameservers": ["10.96.0.53"]}, "activeDeadlineSeconds": 10, "terminationGracePeriodSeconds": 1, "priorityClassName": "p",
            "securityContext": {"runAsNonRoot": true, "runAsUser": 1000, "runAsGroup": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
            "initContainers": [container()], "containers": [container()],
            "volumes": [{"name": "v", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}],
        }})
    }

    #[test]
    fn a_hardened_pod_has_no_fault() {
        assert_eq!(faults(&pod(), false), Vec::<String>::new());
    }

    /// Each weakening of one field is seen.
    #[test]
    fn each_weakening_is_a_fault() {
        for (at, value) in [
            ("/automountServiceAccountToken", json!(true)),
            ("/enableServiceLinks", json!(true)),
            ("/restartPolicy", json!("Always")),
            ("/dnsPolicy", json!("ClusterFirst")),
            ("/dnsConfig/nameservers/0", json!("10.96.0.10")),
            ("/activeDeadlineSeconds", Value::Null),
            ("/terminationGracePeriodSeconds", json!(30)),
            ("/priorityClassName", json!("system-node-critical")),
            ("/securityContext/runAsNonRoot", json!(false)),
            ("/securityContext/runAsUser", json!(0)),
            ("/securityContext/seccompProfile/type", json!("Unconfined")),
            ("/containers/0/securityContext/readOnlyRootFilesystem", json!(false)),
            ("/containers/0/securityContext/allowPrivilegeEscalation", json!(true)),
            ("/initContainers/0/securityContext/capabilities/drop", json!([])),
            ("/containers/0/resources/requests/cpu", json!("500m")),
            ("/containers/0/resources/limits/memory", Value::Null),
            ("/containers/0/terminationMessagePolicy", json!("FallbackToLogsOnError")),
            ("/containers/0/volumeMounts/0/name", json!("other")),
            ("/containers/0/volumeMounts/0/mountPath", json!("/a/../b")),
            ("/volumes/0", json!({"name": "v", "hostPath": {"path": "/"}})),
            ("/volumes/0/emptyDir", json!({})),
            ("/volumes/0", json!({"name": "v", "secret": {"secretName": "s"}})),
        ] {
            let mut weak = pod();
            *weak["spec"].pointer_mut(at).unwrap() = value.clone();
            assert!(!faults(&weak, false).is_empty(), "{at} = {value}");
        }
        for (field, value) in [
            ("hostNetwork", json!(true)),
            ("hostPID", json!(true)),
            ("shareProcessNamespace", json!(true)),
            ("ephemeralContainers", json!([])),
        ] {
            let mut weak = pod();
            weak["spec"][field] = value;
            assert!(!faults(&weak, false).is_empty(), "{field}");
        }
    }
}
