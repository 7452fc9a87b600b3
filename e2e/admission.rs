//! The chart's admission policies, each as one person or another meets it. The chart's own test goes through all of them; here are
//! those that a sandbox's safety hangs on.

use std::sync::Arc;

use anyhow::{Context, Result, bail};
use k8s_openapi::api::{
    admissionregistration::v1::ValidatingAdmissionPolicyBinding, core::v1::Pod,
    networking::v1::NetworkPolicy, rbac::v1::RoleBinding,
};
use kube::{
    Api, Client, Config,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::harness::{Cases, Outcome, Runtime, Test, skip, wait};

pub(crate) fn cases(cases: &mut Cases) {
    cases.add("admission::a_class_needs_the_verb_use", 0, class_use);
    cases.add("admission::nobody_makes_or_changes_a_sandboxes_pod", 250, pods);
    cases.add("admission::orders_to_the_runtime_are_refused", 0, runtime_orders);
    cases.add("admission::no_other_policy_opens_the_fence", 250, foreign_policies);
}

/// Skips unless that policy stands and denies.
async fn needs(test: &Test, policy: &str) -> Outcome {
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(test.client.clone());
    let binding = bindings.get_opt(policy).await?.and_then(|binding| binding.spec);
    let denies = binding
        .and_then(|spec| spec.validation_actions)
        .is_some_and(|actions| actions.iter().any(|action| action == "Deny"));
    if denies {
        Ok(())
    } else {
        Err(skip(format!("the admission policy {policy} is not installed, or does not deny")))
    }
}

/// A client that is an editor of the test's namespace.
async fn editor(test: &Test) -> Result<Client> {
    let name = format!("e2e-editor-{}", test.suffix);
    let binding: RoleBinding = serde_json::from_value(json!({
        "metadata": {"name": "editor"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}],
    }))?;
    test.api().create(&PostParams::default(), &binding).await?;
    let mut config = Config::infer().await?;
    config.auth_info.impersonate = Some(name);
    config.auth_info.impersonate_groups = Some(vec!["system:authenticated".into()]);
    let client = Client::try_from(config)?;
    // The API server learns of a binding by a watch.
    let pods: Api<Pod> = Api::namespaced(client.clone(), &test.namespace);
    wait::poll("the editor may edit", async || {
        Ok(pods.list(&kube::api::ListParams::default().limit(1)).await.is_ok().then_some(()))
    })
    .await?;
    Ok(client)
}

fn refused<T>(what: &str, outcome: kube::Result<T>, word: &str) -> Outcome {
    match outcome {
        Ok(_) => bail!("{what}: it was taken"),
        Err(kube::Error::Api(status)) if status.message.contains(word) => Ok(()),
        Err(error) => bail!("{what}: refused without a word of {word:?}: {error}"),
    }
}

async fn class_use(test: Arc<Test>) -> Outcome {
    needs(&test, "glovebox-class-use").await?;
    let api = Api::namespaced(editor(&test).await?, &test.namespace);
    let draft = test.draft(Runtime::Runc, "mine", &json!({}))?;
    refused(
        "an editor uses a class",
        api.create(&PostParams::default(), &draft).await,
        "may not use the SandboxClass \"e2e-runc\"",
    )
}

fn pod(labels: &Value, annotations: &Value) -> Result<Pod> {
    Ok(serde_json::from_value(json!({
        "metadata": {"name": "p", "labels": labels, "annotations": annotations},
        "spec": {
            "securityContext": {"runAsNonRoot": true, "runAsUser": 1, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{"name": "c", "image": "x", "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}}],
        },
    }))?)
}

async fn pods(test: Arc<Test>) -> Outcome {
    needs(&test, "glovebox-sandbox-pods").await?;
    let sandbox = test.running(Runtime::Runc, "held", &json!({})).await?;
    let pods: Api<Pod> = Api::namespaced(editor(&test).await?, &test.namespace);
    let trial = PostParams { dry_run: true, ..PostParams::default() };
    let forged = pod(&json!({"glovebox.dev/sandbox": "x"}), &json!({}))?;
    refused(
        "a forged sandbox pod",
        pods.create(&trial, &forged).await,
        "only the Glovebox controller makes pods",
    )?;
    refused(
        "the same by the administrator",
        sandbox.pods().create(&trial, &forged).await,
        "only the Glovebox controller makes pods",
    )?;
    let params = PatchParams::default();
    let unlabel = Patch::Merge(json!({"metadata": {"labels": {"glovebox.dev/sandbox": null}}}));
    refused(
        "a pod that leaves its fence",
        sandbox.pods().patch("held", &params, &unlabel).await,
        "can't be changed",
    )?;
    let image = Patch::Strategic(
        json!({"spec": {"containers": [{"name": "workload", "image": "evil.example/x:1"}]}}),
    );
    refused("another image", sandbox.pods().patch("held", &params, &image).await, "can't be changed")?;
    let secure = json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}});
    let debug = json!({"name": "debug", "image": test.cluster.image, "targetContainerName": "workload", "securityContext": secure});
    let debug = json!({"spec": {"ephemeralContainers": [debug]}});
    let debug = sandbox.pods().patch_ephemeral_containers("held", &params, &Patch::Strategic(debug)).await;
    refused("a debug container", debug, "spec.ephemeralContainers")
}

async fn runtime_orders(test: Arc<Test>) -> Outcome {
    needs(&test, "glovebox-runtime-annotations").await?;
    let pods: Api<Pod> = Api::namespaced(editor(&test).await?, &test.namespace);
    let trial = PostParams { dry_run: true, ..PostParams::default() };
    for key in [
        "io.katacontainers.config.hypervisor.path",
        "io.katacontainers.config.agent.kernel_modules",
        "dev.gvisor.internal.nvproxy",
    ] {
        refused(key, pods.create(&trial, &pod(&json!({}), &json!({key: "x"}))?).await, key)?;
    }
    pods.create(&trial, &pod(&json!({}), &json!({"example.com/note": "x"}))?)
        .await
        .context("a harmless annotation")?;
    Ok(())
}

async fn foreign_policies(test: Arc<Test>) -> Outcome {
    needs(&test, "glovebox-foreign-policies").await?;
    test.running(Runtime::Runc, "fenced", &json!({})).await?;
    let policies: Api<NetworkPolicy> = Api::namespaced(editor(&test).await?, &test.namespace);
    let policy = |selector: Value| -> Result<NetworkPolicy> {
        Ok(serde_json::from_value(json!({
            "metadata": {"name": "open"}, "spec": {"podSelector": selector, "policyTypes": ["Egress"], "egress": [{}]},
        }))?)
    };
    let trial = PostParams { dry_run: true, ..PostParams::default() };
    // The API server reads a policy's parameters through a watch, so that the first answers may still be of the time before.
    let all = policy(json!({}))?;
    wait::poll("a policy for every pod is refused", async || match policies.create(&trial, &all).await {
        Err(kube::Error::Api(status)) if status.message.contains("spec.podSelector") => Ok(Some(())),
        Ok(_) => Ok(None),
        Err(error) => Err(error.into()),
    })
    .await?;
    let sandboxes = policy(json!({"matchLabels": {"glovebox.dev/sandbox": "fenced"}}))?;
    refused("a policy for the sandbox", policies.create(&trial, &sandboxes).await, "spec.podSelector")?;
    policies
        .create(&trial, &policy(json!({"matchLabels": {"app": "web"}}))?)
        .await
        .context("a policy for others")?;
    Ok(())
}
