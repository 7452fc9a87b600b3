//! What those who own an installation change is on the record: classes, policies, and what a living sandbox asks for.

use std::sync::Arc;

use anyhow::Result;
use glovebox::api::{EgressPolicy, SandboxClass};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use super::{of, query, reader};
use crate::{
    cli::Person,
    harness::{Outcome, Runtime, Test, wait},
};

/// What became of an object by the record, in order, each with the hash of what it says from then on.
async fn told(person: &Person, act: &str, name: &str) -> Result<Vec<(String, String)>> {
    let all = query(person, &["-A", "--act", act]).await?;
    let about = format!(" {name}, generation ");
    let ours = of(&all, act).into_iter().filter(|one| one["message"].to_string().contains(&about));
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Ok(ours.map(|one| (text(&one["status_detail"]), text(&one["message"]))).collect())
}

async fn until(person: &Person, act: &str, name: &str, wanted: &[&str]) -> Outcome {
    wait::poll(&format!("{act} {name}: {wanted:?}"), async || {
        let all = told(person, act, name).await?;
        let changes: Vec<&str> = all.iter().map(|(change, _)| change.as_str()).collect();
        let hashes: std::collections::BTreeSet<_> =
            all.iter().filter(|(change, _)| change != "Deleted").map(|(_, said)| said).collect();
        let apart = hashes.len() == changes.iter().filter(|change| **change != "Deleted").count();
        Ok((changes == wanted && apart).then_some(()))
    })
    .await
}

pub(super) async fn changed(test: Arc<Test>) -> Outcome {
    let person = reader(&test).await?;
    let policies: Api<EgressPolicy> = test.api();
    let rules = |host: &str| json!({"spec": {"rules": [{"name": "one", "hosts": [host]}]}});
    let mut policy = rules("one.example");
    policy["metadata"] = json!({"name": "rules"});
    policies.create(&PostParams::default(), &serde_json::from_value(policy)?).await?;
    let name = format!("{}/rules", test.namespace);
    until(&person, "PolicyChanged", &name, &["Created"]).await?;
    policies.patch("rules", &PatchParams::default(), &Patch::Merge(rules("two.example"))).await?;
    until(&person, "PolicyChanged", &name, &["Created", "Changed"]).await?;
    policies.delete("rules", &DeleteParams::default()).await?;
    until(&person, "PolicyChanged", &name, &["Created", "Changed", "Deleted"]).await?;

    let class = test.class(Runtime::Runc, "changes", &json!({})).await?;
    until(&person, "ClassChanged", &class, &["Created"]).await?;
    let classes: Api<SandboxClass> = Api::all(test.client.clone());
    let patch = Patch::Merge(json!({"spec": {"startupDeadline": "90s"}}));
    classes.patch(&class, &PatchParams::default(), &patch).await?;
    until(&person, "ClassChanged", &class, &["Created", "Changed"]).await?;

    let sandbox = test.running(Runtime::Runc, "edited", &json!({"className": class, "ttl": "10m"})).await?;
    sandbox.patch(json!({"ttl": "9m"})).await?;
    wait::poll("the edit is on the record", async || {
        let all = query(&person, &["edited", "--act", "SandboxChanged"]).await?;
        Ok(all.iter().any(|one| one["message"] == "spec generation 2").then_some(()))
    })
    .await
}
