//! `doctor` on a cluster that is well, and with faults that were planted.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use serde_json::{Value, json};

use super::person::{Ended, Person};
use crate::{
    harness::{Cases, Outcome, Runtime, Test, replicas::Replicas, wait},
    session::caller,
};

const SESSION: &str = "app.kubernetes.io/name=glovebox,app.kubernetes.io/component=session";

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

async fn planted(test: Arc<Test>) -> Outcome {
    let person = Person::admin(&test)?;
    let runtime = json!({"runtime": {"runtimeClassName": "no-such-runtime", "handler": "none", "isolation": "VirtualMachine"}});
    let class = test.class(Runtime::Runc, "doctor", &runtime).await?;
    wait::poll("the class is looked at", async || {
        let all = examined(&person, &[], 0).await?;
        Ok(finds(&all, "class", "Warning", "RuntimeClassNotFound").is_ok().then_some(()))
    })
    .await?;
    let all = examined(&person, &[], 0).await?;
    finds(&all, "class", "Warning", &class)?;
    let sessions = Replicas::of(&test.client, &test.controller()?.namespace, "glovebox-session", SESSION);
    let wanted = sessions.wanted().await?;
    sessions.scale(0).await?;
    let found = async {
        let all = examined(&person, &[], 1).await?;
        finds(&all, "session", "Broken", "scaled to 0")?;
        finds(&all, "session-api", "Broken", "there is no session")
    };
    let found = found.await;
    sessions.scale(wanted).await?;
    found
}
