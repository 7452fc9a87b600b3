//! What can't be changed after creation, and what can.

use std::sync::Arc;

use anyhow::{Result, bail, ensure};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::harness::{Cases, Outcome, Runtime, Sandbox, Test};

pub(super) fn cases(cases: &mut Cases) {
    cases.add("api::each_field_is_immutable_but_those_that_are_not", 0, immutable);
    cases.add("api::what_is_absent_stays_absent", 0, absent);
}

async fn edit(sandbox: &Sandbox, spec: &Value) -> Result<Option<String>> {
    let params = PatchParams { dry_run: true, ..PatchParams::default() };
    match sandbox.api().patch(&sandbox.name, &params, &Patch::Merge(json!({"spec": spec}))).await {
        Ok(_) => Ok(None),
        Err(kube::Error::Api(status)) => Ok(Some(status.message)),
        Err(error) => Err(error.into()),
    }
}

async fn refuse(sandbox: &Sandbox, field: &str, change: &Value) -> Outcome {
    match edit(sandbox, change).await? {
        Some(message) if message.contains(&format!("spec.{field} is immutable")) => Ok(()),
        Some(message) => {
            bail!("{change} is refused without saying that spec.{field} is immutable: {message}")
        }
        None => bail!("{change} was taken"),
    }
}

/// A sandbox that sets every field, and never starts.
async fn complete(test: &Test) -> Result<Sandbox> {
    let spec = json!({
        "className": "e2e-no-such-class", "command": ["sh"], "args": ["-c", "true"], "workingDir": "/tmp",
        "env": [{"name": "A", "value": "1"}], "ports": [{"name": "p", "containerPort": 80}], "ttl": "5m", "ttlAfterFinished": "1m",
        "workspace": {
            "mountPath": "/work", "size": "16Mi", "inputs": [{"name": "i", "mountPath": "/i", "configMap": "c"}],
            "protectedPaths": ["ci"],
        },
        "resources": {"cpu": "100m", "memory": "192Mi", "ephemeralStorage": "64Mi"},
        "egress": {"allow": [{"name": "a", "cidrs": ["203.0.113.0/24"]}]},
    });
    test.sandbox(Runtime::Runc, "complete", &spec).await
}

async fn immutable(test: Arc<Test>) -> Outcome {
    let sandbox = complete(&test).await?;
    for (field, values) in [
        ("className", vec![json!("e2e-runc"), Value::Null]),
        ("image", vec![json!("other/image:1")]),
        ("command", vec![json!(["bash"]), json!(["sh", "-x"]), Value::Null]),
        ("args", vec![json!(["-c", "false"]), Value::Null]),
        ("workingDir", vec![json!("/"), Value::Null]),
        ("env", vec![json!([]), json!([{"name": "A", "value": "2"}]), Value::Null]),
        ("ports", vec![json!([{"name": "p", "containerPort": 81}]), Value::Null]),
        (
            "resources",
            vec![
                json!({"cpu": "200m"}),
                json!({"memory": null}),
                json!({"ephemeralStorage": "65Mi"}),
                Value::Null,
            ],
        ),
        (
            "workspace",
            vec![
                json!({"mountPath": "/other"}),
                json!({"size": "17Mi"}),
                json!({"size": null}),
                json!({"inputs": []}),
                json!({"protectedPaths": []}),
                json!({"protectedPaths": ["ci", "cd"]}),
                Value::Null,
            ],
        ),
    ] {
        for value in values {
            refuse(&sandbox, field, &json!({field: value})).await?;
        }
    }
    for change in [
        json!({"ttl": "4m"}),
        json!({"ttlAfterFinished": "2m"}),
        json!({"egress": {"allow": []}}),
        json!({"egress": {"allow": [{"name": "b", "cidrs": ["198.51.100.0/24"], "ports": [80]}]}}),
    ] {
        let refusal = edit(&sandbox, &change).await?;
        ensure!(refusal.is_none(), "{change} is refused: {refusal:?}");
    }
    Ok(())
}

/// A field that was left out can't be set later either.
async fn absent(test: Arc<Test>) -> Outcome {
    let sandbox = test.sandbox(Runtime::Runc, "bare", &json!({"className": "e2e-no-such-class"})).await?;
    for (field, value) in [
        ("command", json!(["sh"])),
        ("workingDir", json!("/")),
        ("env", json!([{"name": "A", "value": "1"}])),
        ("ports", json!([{"name": "p", "containerPort": 80}])),
        ("resources", json!({"cpu": "1"})),
        ("workspace", json!({"size": "64Mi"})),
    ] {
        refuse(&sandbox, field, &json!({field: value})).await?;
    }
    Ok(())
}
