//! Root, protected files, mounts and inputs, attacked from inside: by the workload and by an exec call.

use std::sync::Arc;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolume, PersistentVolumeClaim};
use kube::{
    Api, ResourceExt,
    api::{ListParams, PostParams},
};
use serde_json::{Value, json};

use crate::{
    attacks,
    harness::{Cases, Outcome, Runtime, Test},
};

pub(crate) fn cases(cases: &mut Cases) {
    cases.each_runtime("root::is_out_of_reach_of_the_workload", 300, root_by_workload);
    cases.each_runtime("root::is_out_of_reach_of_an_exec_call", 300, root_by_exec);
    cases.each_runtime("root::user_zero_has_no_more_power", 300, root_as_zero);
    cases.each_runtime("protected::files_hold_against_the_workload", 300, protected_by_workload);
    cases.each_runtime("protected::files_hold_against_an_exec_call", 300, protected_by_exec);
    cases.each_runtime("mounts::are_nothing_of_the_host", 300, mounts);
    cases.each_runtime("mounts::inputs_are_read_only", 300, inputs);
}

async fn root_by_workload(test: Arc<Test>, runtime: Runtime) -> Outcome {
    attacks::ROOT.as_workload(&test, runtime, &json!({}), &[]).await
}

async fn root_by_exec(test: Arc<Test>, runtime: Runtime) -> Outcome {
    let sandbox = test.running(runtime, "attacked", &json!({})).await?;
    attacks::ROOT.by_exec(&sandbox, &[]).await.map(|_| ())
}

/// A class may let user 0 in; its files still belong to nobody who can change them.
async fn root_as_zero(test: Arc<Test>, runtime: Runtime) -> Outcome {
    let namespace = test.another_namespace("baseline").await?;
    let class =
        test.class(runtime, "zero", &json!({"security": {"runAsUser": 0, "allowRoot": true}})).await?;
    let sandbox = test.sandbox_in(&namespace, runtime, "zero", &json!({"className": class})).await?;
    sandbox.running().await?;
    attacks::ROOT.by_exec(&sandbox, &["root"]).await.map(|_| ())
}

/// Protected paths of one's own, one of them below a directory that is not protected.
fn own_paths() -> Value {
    json!({"workspace": {"protectedPaths": ["ci", "deploy/keys"]}})
}

async fn protected_by_workload(test: Arc<Test>, runtime: Runtime) -> Outcome {
    attacks::PROTECTED.as_workload(&test, runtime, &own_paths(), &["ci", "deploy/keys"]).await
}

async fn protected_by_exec(test: Arc<Test>, runtime: Runtime) -> Outcome {
    let sandbox = test.running(runtime, "attacked", &own_paths()).await?;
    attacks::PROTECTED.by_exec(&sandbox, &["ci", "deploy/keys"]).await.map(|_| ())
}

async fn mounts(test: Arc<Test>, runtime: Runtime) -> Outcome {
    attacks::MOUNTS.as_workload(&test, runtime, &json!({}), &[]).await
}

/// One input of each kind. The claim is of a directory on the node that everybody may write: only the mount protects it.
async fn inputs(test: Arc<Test>, runtime: Runtime) -> Outcome {
    let map: ConfigMap =
        serde_json::from_value(json!({"metadata": {"name": "notes"}, "data": {"note.txt": "of a map\n"}}))?;
    test.api().create(&PostParams::default(), &map).await?;
    let directory = directory_on_node(&test).await?;
    claim(&test, &directory).await?;
    let image = &test.cluster.image;
    let spec = json!({"workspace": {"inputs": [
        {"name": "image", "mountPath": "/inputs/image", "image": image},
        {"name": "map", "mountPath": "/workspace/map", "configMap": "notes"},
        {"name": "claim", "mountPath": "/data", "persistentVolumeClaim": "dataset"},
    ]}});
    let files =
        json!({"/inputs/image": "opt/fixtures/README", "/workspace/map": "note.txt", "/data": "row.csv"})
            .to_string();
    let outcome = attacks::MOUNTS.as_workload(&test, runtime, &spec, &[&files]).await;
    let untouched =
        test.local()?.on_node(&directory.node, &["cat", &format!("{}/row.csv", directory.path)]).await;
    let removed = test.local()?.on_node(&directory.node, &["rm", "-r", &directory.path]).await;
    outcome?;
    anyhow::ensure!(untouched? == "1,2\n", "the data behind the claim was changed");
    removed.map(|_| ())
}

struct Directory {
    node: String,
    path: String,
}

async fn directory_on_node(test: &Test) -> Result<Directory> {
    let local = test.local()?;
    let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(test.client.clone());
    let node = nodes
        .list(&ListParams::default())
        .await?
        .items
        .first()
        .map(ResourceExt::name_any)
        .context("no node")?;
    let path = format!("/run/e2e-data-{}", test.suffix);
    let script = format!("mkdir -m 777 {path} && echo 1,2 >{path}/row.csv && chmod 666 {path}/row.csv");
    local.on_node(&node, &["sh", "-c", &script]).await?;
    Ok(Directory { node, path })
}

async fn claim(test: &Test, directory: &Directory) -> Outcome {
    let name = format!("e2e-data-{}", test.suffix);
    test.forget_later::<PersistentVolume>(&name);
    let volume: PersistentVolume = serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "1Mi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "",
            "persistentVolumeReclaimPolicy": "Retain",
            "hostPath": {"path": directory.path, "type": "Directory"},
            "claimRef": {"namespace": test.namespace, "name": "dataset"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchFields": [
                {"key": "metadata.name", "operator": "In", "values": [directory.node]},
            ]}]}},
        },
    }))?;
    let claim: PersistentVolumeClaim = serde_json::from_value(json!({
        "metadata": {"name": "dataset"},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "", "volumeName": name,
            "resources": {"requests": {"storage": "1Mi"}},
        },
    }))?;
    Api::all(test.client.clone()).create(&PostParams::default(), &volume).await.context("volume")?;
    test.api().create(&PostParams::default(), &claim).await.context("claim")?;
    Ok(())
}
