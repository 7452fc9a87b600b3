//! What a person sees: columns, short names, defaults, and an explanation of every field.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use kube::Client;
use serde_json::{Value, json};

use glovebox::api::{AgentSandbox, SandboxClass, Span};

use crate::harness::{Cases, Outcome, Runtime, Test, program::kubectl};

pub(super) fn cases(cases: &mut Cases) {
    cases.add("api::columns_tell_what_a_person_wants_to_know", 250, columns);
    cases.add("api::short_names", 0, short_names);
    cases.add("api::defaults_are_written_down", 0, defaults);
    cases.add("api::every_field_is_explained", 0, explained);
    cases.add("api::the_server_has_the_definitions_of_this_version", 0, definitions);
}

async fn get(client: &Client, path: &str, accept: &str) -> Result<Value> {
    let request = axum::http::Request::get(path).header("Accept", accept).body(Vec::new())?;
    Ok(client.request(request).await?)
}

const TABLE: &str = "application/json;as=Table;g=meta.k8s.io;v=v1";

/// Names and priorities of the columns that kubectl shows, and the first row's cells.
async fn table(client: &Client, path: &str) -> Result<(Vec<String>, Vec<Value>)> {
    let table = get(client, path, TABLE).await?;
    let heads = table["columnDefinitions"].as_array().context("no columns")?;
    let heads = heads.iter().map(|column| {
        let name = column["name"].as_str().unwrap_or_default();
        if column["priority"] == 0 { name.to_owned() } else { format!("{name} (wide)") }
    });
    Ok((heads.collect(), table["rows"][0]["cells"].as_array().cloned().unwrap_or_default()))
}

async fn columns(test: Arc<Test>) -> Outcome {
    let sandbox = test.running(Runtime::Runc, "seen", &json!({})).await?;
    let node = sandbox.status().await?.node_name.context("no node")?;
    let path = format!("/apis/glovebox.dev/v1alpha1/namespaces/{}/agentsandboxes", test.namespace);
    let (heads, cells) = table(&test.client, &path).await?;
    let narrow = ["Name", "Class", "Runtime", "Phase", "Ready", "Expires", "Age"];
    ensure!(
        heads[..7] == narrow && heads[7..] == ["Node (wide)", "Pod (wide)", "Reason (wide)"],
        "{heads:?}"
    );
    let told: Vec<&Value> = [0, 1, 2, 3, 4, 7, 8].iter().filter_map(|at| cells.get(*at)).collect();
    ensure!(
        told == ["seen", "e2e-runc", "the node's kernel", "Running", "True", node.as_str(), "seen"],
        "{cells:?}"
    );
    let (heads, _) = table(&test.client, "/apis/glovebox.dev/v1alpha1/sandboxclasses").await?;
    let classes = [
        "Name",
        "Trust",
        "Runtime",
        "Isolation",
        "Available",
        "Sandboxes",
        "Accepted-Weaker",
        "Reason (wide)",
        "Age",
    ];
    ensure!(heads == classes, "{heads:?}");
    Ok(())
}

async fn short_names(test: Arc<Test>) -> Outcome {
    let kinds = get(&test.client, "/apis/glovebox.dev/v1alpha1", "application/json").await?;
    let resources = kinds["resources"].as_array().context("no resources")?;
    for (plural, short) in [
        ("agentsandboxes", "asb"),
        ("egresspolicies", "egp"),
        ("egressapprovals", "ega"),
        ("sandboxclasses", "sbc"),
    ] {
        let known = resources.iter().find(|resource| resource["name"] == plural).context(plural)?;
        ensure!(known["shortNames"] == json!([short]), "{plural}: {}", known["shortNames"]);
        ensure!(known["categories"] == json!(["glovebox"]), "{plural}: {}", known["categories"]);
    }
    Ok(())
}

async fn defaults(test: Arc<Test>) -> Outcome {
    let spec = json!({"className": "e2e-no-such-class", "egress": {"allow": [{"name": "a", "cidrs": ["203.0.113.0/24"]}]}});
    let sandbox = test.sandbox(Runtime::Runc, "bare", &spec).await?;
    let made: AgentSandbox = sandbox.api().get("bare").await?;
    ensure!(made.spec.ttl_after_finished == Span::from_secs(300), "{:?}", made.spec.ttl_after_finished);
    ensure!(made.spec.workspace.mount_path == "/workspace", "{:?}", made.spec.workspace);
    ensure!(made.spec.egress.allow[0].ports == [443], "{:?}", made.spec.egress);
    let bare = json!({"metadata": {"name": format!("e2e-bare-{}", test.suffix)}, "spec": {"trust": "Trusted", "runtime": {"isolation": "SharedKernel"}}});
    let class: SandboxClass = serde_json::from_value(bare)?;
    test.forget_later::<SandboxClass>(class.metadata.name.as_deref().unwrap_or_default());
    let class = kube::Api::all(test.client.clone()).create(&kube::api::PostParams::default(), &class).await?;
    let spec = serde_json::to_value(&class.spec)?;
    for (path, value) in [
        ("/startupDeadline", json!("2m")),
        ("/ttl/default", json!("1h")),
        ("/ttl/max", json!("24h")),
        ("/ttl/extendable", json!(false)),
        ("/resources/default/cpu", json!("2")),
        ("/resources/default/memory", json!("512Mi")),
        ("/resources/default/ephemeralStorage", json!("1Gi")),
        ("/workspace/defaultSize", json!("256Mi")),
        ("/security/runAsUser", json!(65532)),
        ("/security/allowRoot", json!(false)),
        ("/security/seccomp", json!("RuntimeDefault")),
    ] {
        ensure!(spec.pointer(path) == Some(&value), "{path} is {:?}, not {value}", spec.pointer(path));
    }
    Ok(())
}

/// kubectl explains what the server's own schema says: each field of it, down to the leaves, must have words.
async fn explained(test: Arc<Test>) -> Outcome {
    let document = get(&test.client, "/openapi/v3/apis/glovebox.dev/v1alpha1", "application/json").await?;
    let mut parents = Vec::new();
    for kind in ["AgentSandbox", "SandboxClass"] {
        let schema =
            document.pointer(&format!("/components/schemas/dev.glovebox.v1alpha1.{kind}")).context(kind)?;
        let mut silent = Vec::new();
        for part in ["spec", "status"] {
            let schema = schema.pointer(&format!("/properties/{part}")).context(part)?;
            walk(schema, &format!("{}.{part}", kind.to_lowercase()), &mut parents, &mut silent);
        }
        ensure!(silent.is_empty(), "fields without a word: {silent:?}");
    }
    ensure!(parents.len() > 30, "only {} objects were found", parents.len());
    // The same by the command that a person types; one for each object shows all its fields.
    for parent in &parents {
        let told = kubectl(&["explain", parent]).await?;
        ensure!(
            told.contains("FIELDS:") && !told.contains("<no description>"),
            "kubectl explain {parent}:\n{told}"
        );
    }
    let all = kubectl(&["explain", "agentsandbox.spec", "--recursive"]).await?;
    for field in
        ["workspace", "protectedPaths", "configMapKeyRef", "ttlAfterFinished", "ephemeralStorage", "cidrs"]
    {
        ensure!(all.contains(field), "kubectl explain --recursive does not name {field}:\n{all}");
    }
    Ok(())
}

fn walk(schema: &Value, path: &str, parents: &mut Vec<String>, silent: &mut Vec<String>) {
    if schema["description"].as_str().is_none_or(|text| text.trim().is_empty()) {
        silent.push(path.to_owned());
    }
    // What is referred to is the API server's own, as what has more words is wrapped.
    let inner = if schema["type"] == "array" { &schema["items"] } else { schema };
    let Some(fields) = inner["properties"].as_object() else { return };
    parents.push(path.to_owned());
    for (name, field) in fields {
        walk(field, &format!("{path}.{name}"), parents, silent);
    }
}

/// The schema that the server has is the one that this version's types make.
async fn definitions(test: Arc<Test>) -> Outcome {
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
    let api: kube::Api<CustomResourceDefinition> = kube::Api::all(test.client.clone());
    for wanted in
        [<AgentSandbox as kube::CustomResourceExt>::crd(), <SandboxClass as kube::CustomResourceExt>::crd()]
    {
        let name = wanted.metadata.name.clone().context("no name")?;
        let have = api.get(&name).await?;
        let schema =
            |definition: &CustomResourceDefinition| serde_json::to_value(&definition.spec.versions[0].schema);
        ensure!(
            schema(&have)? == schema(&wanted)?,
            "{name}: the server has another schema; install this version's definitions"
        );
    }
    Ok(())
}
