//! From arguments to the objects and requests that they mean. Pure.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context as _;
use serde_json::{Value, json};

use super::options::{Allowed, CallOptions, SandboxOptions};
use crate::{
    api::AgentSandbox,
    session::api::{ExecRequest, OnHangup, Terminal},
};

/// What a sandbox is beside its options.
#[derive(Clone, Debug, Default)]
pub(super) struct Draft<'a> {
    pub(super) name: &'a str,
    pub(super) namespace: &'a str,
    pub(super) image: &'a str,
    pub(super) command: &'a [String],
    pub(super) env: &'a [(String, String)],
}

/// The object.
pub(super) fn sandbox(draft: &Draft<'_>, options: &SandboxOptions) -> anyhow::Result<AgentSandbox> {
    let Draft { name, namespace, image, command, env } = draft;
    let SandboxOptions { class, ttl, cpu, memory, workspace, allow } = options;
    let mut spec = json!({"image": image});
    let mut set = |path: &[&str], value: Value| {
        if !value.is_null() && value.as_array().is_none_or(|all| !all.is_empty()) {
            let place = path.iter().fold(&mut spec, |at, key| &mut at[*key]);
            *place = value;
        }
    };
    set(&["className"], json!(class));
    set(&["ttl"], json!(ttl));
    set(&["command"], json!(command));
    set(&["env"], env.iter().map(|(name, value)| json!({"name": name, "value": value})).collect());
    set(&["resources", "cpu"], json!(cpu));
    set(&["resources", "memory"], json!(memory));
    set(&["workspace", "size"], json!(workspace));
    set(&["egress", "allow"], rules(allow).into());
    let object = json!({
        "apiVersion": "glovebox.dev/v1alpha1", "kind": "AgentSandbox",
        "metadata": {"name": name, "namespace": namespace}, "spec": spec,
    });
    serde_json::from_value(object).context("the options make no sandbox; report this")
}

/// A rule for each port.
fn rules(allow: &[Allowed]) -> Vec<Value> {
    let mut ports: BTreeMap<u16, BTreeSet<&str>> = BTreeMap::new();
    for Allowed { port, host } in allow {
        ports.entry(*port).or_default().insert(host);
    }
    let rule = |(port, hosts)| json!({"name": format!("port-{port}"), "hosts": hosts, "ports": [port]});
    ports.into_iter().map(rule).collect()
}

/// The call.
pub(super) fn call(command: &[String], options: &CallOptions, terminal: Option<Terminal>) -> ExecRequest {
    ExecRequest {
        command: command.to_vec(),
        env: options.env.iter().cloned().collect(),
        cwd: options.cwd.clone(),
        stdin: None,
        stdin_base64: None,
        timeout: options.timeout,
        max_output_bytes: options.max_output.clone(),
        terminal,
        access: None,
        on_hangup: OnHangup::Kill,
        stream: !options.live(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> SandboxOptions {
        SandboxOptions::default()
    }

    #[test]
    fn what_is_not_said_is_left_to_the_cluster() {
        let draft = Draft { name: "a", namespace: "n", image: "python", ..Draft::default() };
        let made = sandbox(&draft, &options()).unwrap();
        let spec = serde_json::to_value(&made.spec).unwrap();
        assert_eq!(
            spec,
            json!({"image": "python", "ttlAfterFinished": "5m", "workspace": {"mountPath": "/workspace"}})
        );
        assert_eq!(
            (made.metadata.name.as_deref(), made.metadata.namespace.as_deref()),
            (Some("a"), Some("n"))
        );
    }

    #[test]
    fn what_is_said_is_in_the_object() {
        let allowed = |host: &str, port| Allowed { port, host: host.into() };
        let all = SandboxOptions {
            class: Some("trusted".into()),
            ttl: Some("30m".parse().unwrap()),
            cpu: Some(crate::api::Quantity::new("500m")),
            memory: Some(crate::api::Quantity::new("1Gi")),
            workspace: Some(crate::api::Quantity::new("64Mi")),
            allow: vec![
                allowed("b.example", 443),
                allowed("a.example", 443),
                allowed("c.example", 8443),
                allowed("a.example", 443),
            ],
        };
        let command = ["sleep".to_owned(), "1".to_owned()];
        let env = [("A".to_owned(), "1".to_owned())];
        let draft = Draft { name: "a", namespace: "n", image: "python", command: &command, env: &env };
        let spec = serde_json::to_value(sandbox(&draft, &all).unwrap().spec).unwrap();
        assert_eq!(
            (&spec["className"], &spec["ttl"], &spec["command"]),
            (&json!("trusted"), &json!("30m"), &json!(["sleep", "1"]))
        );
        assert_eq!(
            (&spec["resources"], &spec["workspace"]["size"]),
            (&json!({"cpu": "500m", "memory": "1Gi"}), &json!("64Mi"))
        );
        assert_eq!(spec["env"], json!([{"name": "A", "value": "1"}]));
        let allow = &spec["egress"]["allow"];
        assert_eq!(
            (&allow[0]["name"], &allow[0]["hosts"]),
            (&json!("port-443"), &json!(["a.example", "b.example"]))
        );
        assert_eq!((&allow[1]["hosts"], &allow[1]["ports"]), (&json!(["c.example"]), &json!([8443])));
        assert_eq!(allow.as_array().unwrap().len(), 2);
    }
}
