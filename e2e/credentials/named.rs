//! Who may name what: users by RBAC, and the controller by admission.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::PostParams;
use serde_json::{Value, json};

use crate::{
    harness::{Outcome, Runtime, Test, program},
    session::caller,
};

/// What the API server says to somebody who would make this, without making it.
async fn tried(user: &str, namespace: &str, object: &Value) -> Result<(), String> {
    let arguments = ["create", "--dry-run=server", "--as", user, "-n", namespace, "-f", "-"];
    let made = program::run("kubectl", &arguments, &object.to_string()).await;
    made.map(drop).map_err(|error| format!("{error:#}"))
}

fn refused(tried: Result<(), String>, words: &str) -> Outcome {
    let why = tried.err().with_context(|| format!("it is taken, and should be refused: {words}"))?;
    ensure!(why.contains(words), "{words:?} is not in {why}");
    Ok(())
}

pub(super) async fn rights(test: Arc<Test>) -> Outcome {
    test.controller()?;
    caller(&test, "user", &[], &[], None).await?;
    let user = format!("system:serviceaccount:{}:user", test.namespace);
    let role: Role = serde_json::from_value(json!({
        "metadata": {"name": "user"},
        "rules": [
            {"apiGroups": ["glovebox.dev"], "resources": ["agentsandboxes"], "verbs": ["create"]},
            {"apiGroups": ["glovebox.dev"], "resources": ["sandboxclasses"], "verbs": ["use"]},
            {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["usable"], "verbs": ["use"]},
            {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["readable"], "verbs": ["get"]},
            {"apiGroups": [""], "resources": ["serviceaccounts"], "resourceNames": ["usable"], "verbs": ["use"]},
            {"apiGroups": ["glovebox.dev"], "resources": ["credentialproviders"], "resourceNames": ["usable"], "verbs": ["use"]},
        ],
    }))?;
    test.api().create(&PostParams::default(), &role).await?;
    let binding: RoleBinding = serde_json::from_value(json!({
        "metadata": {"name": "user"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "user"},
        "subjects": [{"kind": "ServiceAccount", "name": "user", "namespace": test.namespace}],
    }))?;
    test.api().create(&PostParams::default(), &binding).await?;
    let draft = |sources: &[Value]| -> Result<Value> {
        let credentials: Vec<Value> = sources
            .iter()
            .enumerate()
            .map(|(number, source)| {
                let mut one = source.clone();
                one["name"] = json!(format!("c{number}"));
                one["hosts"] = json!(["api.example.com"]);
                one
            })
            .collect();
        let mut object = serde_json::to_value(test.draft(
            Runtime::Runc,
            "named",
            &json!({"credentials": credentials}),
        )?)?;
        object["apiVersion"] = json!("glovebox.dev/v1alpha1");
        object["kind"] = json!("AgentSandbox");
        Ok(object)
    };
    let secret = |name: &str| json!({"secretRef": {"name": name, "key": "k"}});
    let token =
        |name: &str, audience: &str| json!({"serviceAccountToken": {"name": name, "audience": audience}});
    let provider = |name: &str| json!({"provider": {"name": name}});
    let usable =
        [secret("usable"), secret("readable"), token("usable", "https://a.example"), provider("usable")];
    let twice: Vec<Value> = usable.iter().chain(&usable).cloned().collect();
    crate::harness::wait::poll("what is theirs to use is taken, eight times", async || {
        Ok(tried(&user, &test.namespace, &draft(&twice)?).await.ok())
    })
    .await?;
    // The last of eight is looked at as well as the first.
    for (source, words) in [
        (secret("other"), "may not have the Secret \"other\" used"),
        (token("other", "https://a.example"), "may not have tokens of the ServiceAccount \"other\" made"),
        (provider("other"), "may not use the provider \"other\""),
    ] {
        let mut last = twice.clone();
        last[7] = source.clone();
        for credentials in [vec![source], last] {
            refused(tried(&user, &test.namespace, &draft(&credentials)?).await, words)?;
        }
    }
    refused(
        tried(&user, &test.namespace, &draft(&[token("usable", "https://kubernetes.default.svc")])?).await,
        "a token for the API server of this cluster is refused",
    )?;
    let home = &test.controller()?.namespace;
    let admin = tried("admin", home, &draft(&[secret("glovebox-gateway-ca")])?).await;
    ensure!(admin.is_err(), "a key of the installation can be named");
    Ok(())
}

pub(super) async fn grants(test: Arc<Test>) -> Outcome {
    let home = test.controller()?.namespace.clone();
    let controller = format!("system:serviceaccount:{home}:glovebox-controller");
    let meta = |name: &str| {
        json!({"name": name, "labels": {"app.kubernetes.io/managed-by": "glovebox"}, "ownerReferences": [
            {"apiVersion": "glovebox.dev/v1alpha1", "kind": "AgentSandbox", "name": "s", "uid": "u", "controller": true},
        ]})
    };
    let role = |name: &str, rules: Value| json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": meta(name), "rules": rules});
    let rule = json!({"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["s"], "verbs": ["get"]});
    let with = |field: &str, value: Value| {
        let mut other = rule.clone();
        other[field] = value;
        json!([other])
    };
    let good = "glovebox-credentials-s";
    let make = async |namespace: &str, object: Value| tried(&controller, namespace, &object).await;
    ensure!(make(&test.namespace, role(good, json!([rule]))).await.is_ok(), "it may not do its work");
    let shape = "each by its name, and nothing else";
    for (rules, words) in [
        (with("resourceNames", json!([])), shape),
        (with("verbs", json!(["get", "list"])), shape),
        (with("verbs", json!(["*"])), shape),
        (with("resources", json!(["secrets", "pods"])), shape),
        (with("resources", json!(["pods/exec"])), shape),
        (with("apiGroups", json!(["*"])), shape),
    ] {
        refused(make(&test.namespace, role(good, rules)).await, words)?;
    }
    let names = "named glovebox-credentials-* alone, and none in its own namespace or in kube-system";
    refused(make(&test.namespace, role("mine", json!([rule]))).await, names)?;
    refused(make(&home, role(good, json!([rule]))).await, names)?;
    refused(make("kube-system", role(good, json!([rule]))).await, names)?;
    let mut orphan = role(good, json!([rule]));
    orphan["metadata"]["ownerReferences"] = json!([]);
    refused(make(&test.namespace, orphan).await, "a grant goes with the AgentSandbox")?;
    let binding = |name: &str, namespace: &str, of: &str| {
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": meta(good),
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": of, "name": good},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}]})
    };
    let whom = "the gateway alone may have a sandbox's credentials";
    refused(make(&test.namespace, binding("glovebox-controller", &home, "Role")).await, whom)?;
    refused(make(&test.namespace, binding("glovebox-gateway", &test.namespace, "Role")).await, whom)?;
    // It may bind no ClusterRole: of these RBAC itself says so.
    ensure!(
        make(&test.namespace, binding("glovebox-gateway", &home, "ClusterRole")).await.is_err(),
        "a ClusterRole is bound"
    );
    let cluster = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": good}, "rules": [rule]});
    ensure!(make(&test.namespace, cluster).await.is_err(), "a ClusterRole is made");
    Ok(())
}
