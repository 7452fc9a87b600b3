//! `doctor` on a cluster that is well, and with faults that were planted.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use glovebox::api::SandboxClass;
use k8s_openapi::{
    api::{apps::v1::Deployment, core::v1::ConfigMap, node::v1::RuntimeClass},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use super::person::{Ended, Person};
use crate::{
    alone::fence,
    harness::{Cases, Outcome, Runtime, Test, classes::merge, replicas::Replicas, wait},
    session::{SESSION, caller},
};

pub(super) fn cases(cases: &mut Cases) {
    cases.add("cli::doctor_finds_what_is_not_the_callers_to_have", 0, rights);
    cases.add("cli::doctor_finds_a_session_that_is_not_reached", 0, unreached);
    cases.add("alone::cli::doctor_is_content_with_a_cluster_that_is_well", 0, well);
    cases.add("alone::cli::doctor_finds_planted_faults", 0, planted);
}

/// What it finds: (check, state, all that is said).
fn findings(ended: &Ended) -> Result<Vec<(String, String, String)>> {
    let report: Value = serde_json::from_str(&ended.stdout).with_context(|| format!("{ended:?}"))?;
    let all = report["findings"].as_array().context("no findings")?;
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    for one in all {
        ensure!(one["state"] == "Ok" || word(&one["fix"]).len() > 10, "it does not say what to do: {one}");
    }
    Ok(all.iter().map(|one| (word(&one["check"]), word(&one["state"]), one.to_string())).collect())
}

async fn examined(person: &Person, flags: &[&str], code: i32) -> Result<Vec<(String, String, String)>> {
    let ended = person.glovebox(&[&["doctor", "-o", "json"][..], flags].concat()).await?;
    ended.is(code)?;
    findings(&ended)
}

fn finds(all: &[(String, String, String)], check: &str, state: &str, words: &str) -> Outcome {
    let found = all.iter().any(|(c, s, said)| c == check && s == state && said.contains(words));
    ensure!(found, "no {check} {state} with {words:?} in {all:#?}");
    Ok(())
}

async fn well(test: Arc<Test>) -> Outcome {
    let person = Person::admin(&test)?;
    // Classes of other tests are looked at by the controller as it comes.
    let all = wait::poll("the cluster is well", async || {
        let ended = person.glovebox(&["doctor", "-o", "json"]).await?;
        let all = findings(&ended)?;
        Ok((ended.code == 0 && all.iter().all(|(_, state, _)| state != "Unknown")).then_some(all))
    })
    .await?;
    for check in [
        "api-server",
        "definitions",
        "controller",
        "gateway",
        "session",
        "classes",
        "class",
        "network",
        "rights",
        "session-api",
    ] {
        ensure!(all.iter().any(|(c, state, _)| c == check && state == "Ok"), "{check} is not well: {all:#?}");
    }
    let shown = person.glovebox(&["doctor"]).await?;
    shown.is(0)?;
    ensure!(
        shown.stdout.contains("Kubernetes v1.") && shown.stdout.contains("0 broken")
            || shown.stdout.contains("all is well"),
        "{shown:?}"
    );
    Ok(())
}

async fn rights(test: Arc<Test>) -> Outcome {
    let token = caller(&test, "half", &["agentsandboxes"], &["get", "list", "watch", "create"], None).await?;
    let person = Person::with_token(&test, &token)?;
    let all = examined(&person, &["--glovebox-namespace", &test.controller()?.namespace], 1).await?;
    finds(&all, "rights", "Broken", "you may not delete agentsandboxes")?;
    finds(&all, "rights", "Broken", "create agentsandboxes/exec")?;
    finds(&all, "rights", "Warning", "you may not port-forward")?;
    finds(&all, "installation", "Unknown", "you may not")?;
    finds(&all, "session-api", "Broken", "--session")?;
    finds(&all, "classes", "Ok", "the default class")
}

async fn unreached(test: Arc<Test>) -> Outcome {
    let person = Person::admin(&test)?;
    let all = examined(&person, &["--session", "https://127.0.0.1:1"], 1).await?;
    finds(&all, "session-api", "Broken", "can't be reached")?;
    // One that somebody else vouches for is not spoken to.
    let maps: Api<ConfigMap> = Api::namespaced(test.client.clone(), "kube-system");
    let map = maps.get("extension-apiserver-authentication").await?;
    let other = map.data.and_then(|mut data| data.remove("client-ca-file")).context("no client-ca-file")?;
    let file = person.file("ca.crt", &other)?;
    let all = examined(&person, &["--session-ca", &file], 1).await?;
    finds(&all, "session-api", "Broken", "TLS")?;
    let file = person.file("token", "stale")?;
    let all = examined(&person, &["--session-token-file", &file], 1).await?;
    finds(&all, "session-api", "Broken", "does not take this token")
}

/// A class with one fault each, and what is said of it.
async fn classes(test: &Test) -> Result<Vec<(String, &'static str)>> {
    let mut all = Vec::new();
    let (swapped, unserved) =
        (format!("e2e-swapped-{}", test.suffix), format!("e2e-unserved-{}", test.suffix));
    for (name, handler) in [(&swapped, "runc"), (&unserved, "kata-nowhere")] {
        let class: RuntimeClass =
            serde_json::from_value(json!({"metadata": {"name": name}, "handler": handler}))?;
        test.forget_later::<RuntimeClass>(name);
        Api::all(test.client.clone()).create(&PostParams::default(), &class).await?;
    }
    let nowhere = json!({"scheduling": {"nodeSelector": {"e2e.example/nowhere": "yes"}}});
    for (hint, runtime, handler, more, reason) in [
        ("missing", "no-such-runtime", "runsc", json!({}), "RuntimeClassNotFound"),
        ("swapped", &swapped, "runsc", json!({}), "RuntimeClassHandlerMismatch"),
        ("unserved", &unserved, "kata-nowhere", json!({}), "RuntimeHandlerNotServed"),
        ("homeless", "gvisor", "runsc", nowhere, "NoEligibleNode"),
    ] {
        let mut change = json!({"runtime": {"runtimeClassName": runtime, "handler": handler}});
        merge(&mut change, &more);
        all.push((test.class(Runtime::Gvisor, hint, &change).await?, reason));
    }
    Ok(all)
}

/// Waits until a fault is found; what is found depends on what the controller has seen so far.
async fn found(person: &Person, check: &str, state: &str, words: &str) -> Outcome {
    let what = format!("doctor finds {check} {state}: {words}");
    wait::poll(&what, async || {
        let ended = person.glovebox(&["doctor", "-o", "json"]).await?;
        let code = if ended.stdout.contains("\"Broken\"") { 1 } else { 0 };
        ended.is(code)?;
        Ok(finds(&findings(&ended)?, check, state, words).is_ok().then_some(()))
    })
    .await
}

async fn patch<K>(api: &Api<K>, name: &str, change: Value) -> Outcome
where
    K: Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    api.patch(name, &PatchParams::default(), &Patch::Merge(change)).await?;
    Ok(())
}

/// Eleven faults of a cluster, each of which is named, with what to do; and once they are mended it is well again.
async fn planted(test: Arc<Test>) -> Outcome {
    let person = Person::admin(&test)?;
    let namespace = &test.controller()?.namespace;
    let faulty = classes(&test).await?;
    for (class, reason) in &faulty {
        found(&person, "class", "Warning", &format!("{class}: {reason}")).await?;
    }
    let apis: Api<SandboxClass> = Api::all(test.client.clone());
    let default = |is: Value| json!({"metadata": {"annotations": {"glovebox.dev/is-default-class": is}}});
    let (another, _) = faulty.first().context("no class")?;
    patch(&apis, another, default(json!("true"))).await?;
    let outcome = found(&person, "classes", "Broken", "several default classes").await;
    patch(&apis, another, default(Value::Null)).await?;
    outcome?;

    let deployments: Api<Deployment> = Api::namespaced(test.client.clone(), namespace);
    let label = |version: &str| json!({"metadata": {"labels": {"app.kubernetes.io/version": version}}});
    patch(&deployments, "glovebox-gateway", label("9.9.9")).await?;
    let outcome = found(&person, "gateway", "Warning", "is of version 9.9.9").await;
    patch(&deployments, "glovebox-gateway", label(env!("CARGO_PKG_VERSION"))).await?;
    outcome?;

    let definitions: Api<CustomResourceDefinition> = Api::all(test.client.clone());
    let name = "egresspolicies.glovebox.dev";
    let before = definitions.get(name).await?;
    let mut versions = serde_json::to_value(&before.spec.versions)?;
    let kept = versions.clone();
    versions[0]["schema"]["openAPIV3Schema"]["description"] = json!("Another one.");
    patch(&definitions, name, json!({"spec": {"versions": versions}})).await?;
    let outcome = found(&person, "definitions", "Warning", "another version").await;
    patch(&definitions, name, json!({"spec": {"versions": kept}})).await?;
    outcome?;

    stopped(&test, &person).await?;
    if test.local().is_ok() {
        let (_, node) = fence::pinned(&test, Runtime::Runc).await?;
        fence::while_open(&test, &node, async |_| {
            let class = test.class(Runtime::Runc, "open", &json!({})).await?;
            found(&person, "network", "Broken", &class).await
        })
        .await?;
    }
    Ok(())
}

/// Each role is missed.
async fn stopped(test: &Test, person: &Person) -> Outcome {
    let namespace = &test.controller()?.namespace;
    let roles = ["controller", "gateway", "session"].map(|role| {
        let labels = match role {
            "controller" => "app.kubernetes.io/name=glovebox,app.kubernetes.io/component=controller",
            "gateway" => "app.kubernetes.io/name=glovebox,app.kubernetes.io/component=gateway",
            _ => SESSION,
        };
        (role, Replicas::of(&test.client, namespace, &format!("glovebox-{role}"), labels))
    });
    let mut wanted = Vec::new();
    for (_, replicas) in &roles {
        wanted.push(replicas.wanted().await?);
        replicas.scale(0).await?;
    }
    let look = async {
        for (role, _) in &roles {
            found(person, role, "Broken", "scaled to 0").await?;
        }
        found(person, "session-api", "Broken", "there is no session").await
    };
    let outcome = look.await;
    for ((_, replicas), wanted) in roles.iter().zip(wanted) {
        replicas.scale(wanted).await?;
    }
    outcome
}
