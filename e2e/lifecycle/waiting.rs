//! What a sandbox waits for: it says so, and starts by itself once it is there.

use std::sync::Arc;

use anyhow::ensure;
use k8s_openapi::api::{
    core::v1::{ConfigMap, PersistentVolumeClaim, Pod},
    node::v1::RuntimeClass,
};
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use serde_json::json;

use glovebox::api::{ConditionType, Phase, SandboxClass};

use crate::harness::{
    Cases, Outcome, Runtime, Test,
    sandbox::{says, told},
    wait,
};

pub(super) fn cases(cases: &mut Cases) {
    cases.add("lifecycle::class_that_is_missing_and_then_made", 250, class_missing);
    cases.add("lifecycle::config_map_that_is_missing_and_then_made", 250, config_map_missing);
    cases.add("lifecycle::claim_that_is_missing", 0, claim_missing);
    cases.add("lifecycle::runtime_class_that_is_missing_and_then_made", 250, runtime_class_missing);
    cases.add("lifecycle::runtime_class_removed_under_a_running_sandbox", 500, runtime_class_removed);
    cases.add("lifecycle::runtime_class_with_another_handler", 0, handler_mismatch);
    cases.add("lifecycle::handler_that_no_node_serves", 0, handler_not_served);
    cases.add("lifecycle::node_that_fits_is_missing", 0, no_node);
    cases.add("lifecycle::name_taken_by_another_pod", 500, name_taken);
    cases.add("lifecycle::class_removed_under_a_running_sandbox", 250, class_removed);
}

async fn class_missing(test: Arc<Test>) -> Outcome {
    let class = format!("e2e-later-{}", test.suffix);
    let sandbox = test.sandbox(Runtime::Runc, "early", &json!({"className": class})).await?;
    sandbox.pending("ClassNotFound", &["spec.className", &class]).await?;
    test.class_named(&class, Runtime::Runc, &json!({})).await?;
    let status = sandbox.running().await?;
    ensure!(status.class_name.as_ref() == Some(&class), "{status:?}");
    Ok(())
}

async fn config_map_missing(test: Arc<Test>) -> Outcome {
    let spec = json!({
        "command": ["sh", "-c", "echo $TASK; cat /etc/agent/task"],
        "env": [{"name": "TASK", "valueFrom": {"configMapKeyRef": {"name": "later", "key": "task"}}}],
        "workspace": {"inputs": [{"name": "config", "mountPath": "/etc/agent", "configMap": "later"}]},
    });
    let sandbox = test.sandbox(Runtime::Runc, "early", &spec).await?;
    sandbox.pending("ConfigMapNotFound", &["spec.env[TASK].valueFrom.configMapKeyRef", "\"later\""]).await?;
    let map: ConfigMap =
        serde_json::from_value(json!({"metadata": {"name": "later"}, "data": {"task": "42"}}))?;
    test.api().create(&PostParams::default(), &map).await?;
    sandbox.ended_as(Phase::Succeeded, "Completed").await?;
    let log = sandbox.log().await?;
    ensure!(log == "42\n42", "{log:?}");
    Ok(())
}

async fn claim_missing(test: Arc<Test>) -> Outcome {
    let spec = json!({"workspace": {"inputs": [{"name": "data", "mountPath": "/data", "persistentVolumeClaim": "nowhere"}]}});
    let sandbox = test.sandbox(Runtime::Runc, "early", &spec).await?;
    sandbox.pending("PersistentVolumeClaimNotFound", &["spec.workspace.inputs[data]", "\"nowhere\""]).await?;
    let claims: Api<PersistentVolumeClaim> = test.api();
    ensure!(claims.get_opt("nowhere").await?.is_none(), "a claim was made up");
    Ok(())
}

/// A RuntimeClass of the test's own, for gVisor.
async fn runtime_class(test: &Test, name: &str, handler: &str) -> Outcome {
    test.forget_later::<RuntimeClass>(name);
    let object: RuntimeClass =
        serde_json::from_value(json!({"metadata": {"name": name}, "handler": handler}))?;
    Api::all(test.client.clone()).create(&PostParams::default(), &object).await?;
    Ok(())
}

async fn runtime_class_missing(test: Arc<Test>) -> Outcome {
    let name = format!("e2e-{}", test.suffix);
    let class = test.class(Runtime::Gvisor, "bare", &json!({"runtime": {"runtimeClassName": name}})).await?;
    let sandbox = test.sandbox(Runtime::Gvisor, "early", &json!({"className": class})).await?;
    sandbox.pending("RuntimeClassNotFound", &[&name, "RuntimeAvailable=False"]).await?;
    runtime_class(&test, &name, "runsc").await?;
    let status = sandbox.running().await?;
    ensure!(status.runtime.as_deref() == Some("gVisor"), "{:?}", status.runtime);
    Ok(())
}

async fn runtime_class_removed(test: Arc<Test>) -> Outcome {
    let name = format!("e2e-{}", test.suffix);
    runtime_class(&test, &name, "runsc").await?;
    let class = test.class(Runtime::Gvisor, "lost", &json!({"runtime": {"runtimeClassName": name}})).await?;
    let sandbox = test.running(Runtime::Gvisor, "stays", &json!({"className": class})).await?;
    let before = sandbox.pod().await?.metadata.uid;
    Api::<RuntimeClass>::all(test.client.clone()).delete(&name, &DeleteParams::default()).await?;
    sandbox
        .until("says that its runtime is lost", |status| {
            says(status, ConditionType::RuntimeAvailable, "False", "RuntimeClassNotFound")
        })
        .await?;
    let unavailable = |class: Option<&SandboxClass>| {
        class.and_then(|class| class.status.as_ref()).is_some_and(|status| {
            status.conditions.iter().any(|c| {
                c.type_ == "RuntimeAvailable" && c.status == "False" && c.reason == "RuntimeClassNotFound"
            })
        })
    };
    wait::until(Api::all(test.client.clone()), &class, "the class says it too", unavailable).await?;
    let status = sandbox.status().await?;
    ensure!(status.phase == Some(Phase::Running), "it did not stay: {}", told(&status));
    ensure!(sandbox.pod().await?.metadata.uid == before, "it is another pod");
    ensure!(sandbox.sh("echo alive").await? == "alive\n", "it does not answer");
    // A new one waits, rather than run on something else.
    let late = test.sandbox(Runtime::Gvisor, "late", &json!({"className": class})).await?;
    late.pending("RuntimeClassNotFound", &[&name]).await?;
    Ok(())
}

async fn handler_mismatch(test: Arc<Test>) -> Outcome {
    let name = format!("e2e-{}", test.suffix);
    runtime_class(&test, &name, "runc").await?;
    let class =
        test.class(Runtime::Gvisor, "swapped", &json!({"runtime": {"runtimeClassName": name}})).await?;
    let sandbox = test.sandbox(Runtime::Gvisor, "refused", &json!({"className": class})).await?;
    sandbox.pending("RuntimeClassHandlerMismatch", &["\"runc\"", "\"runsc\""]).await?;
    ensure!(sandbox.pods().get_opt(&sandbox.name).await?.is_none(), "a pod was made on the wrong runtime");
    Ok(())
}

async fn handler_not_served(test: Arc<Test>) -> Outcome {
    let name = format!("e2e-{}", test.suffix);
    runtime_class(&test, &name, "kata-nowhere").await?;
    let runtime = json!({"runtime": {"runtimeClassName": name, "handler": "kata-nowhere"}});
    let class = test.class(Runtime::Gvisor, "unserved", &runtime).await?;
    let sandbox = test.sandbox(Runtime::Gvisor, "refused", &json!({"className": class})).await?;
    sandbox.pending("RuntimeHandlerNotServed", &["\"kata-nowhere\""]).await?;
    ensure!(sandbox.pods().get_opt(&sandbox.name).await?.is_none(), "a pod was made that can never start");
    Ok(())
}

async fn no_node(test: Arc<Test>) -> Outcome {
    let scheduling = json!({"scheduling": {"nodeSelector": {"e2e.example/nowhere": "yes"}}});
    let class = test.class(Runtime::Runc, "homeless", &scheduling).await?;
    let sandbox = test.sandbox(Runtime::Runc, "waits", &json!({"className": class})).await?;
    // The pod is made: an unschedulable one is what makes an autoscaler add a node.
    let status = sandbox
        .until("says that no node fits", |status| status.reason.as_deref() == Some("Unschedulable"))
        .await?;
    ensure!(says(&status, ConditionType::RuntimeAvailable, "False", "NoEligibleNode"), "{}", told(&status));
    Ok(())
}

async fn name_taken(test: Arc<Test>) -> Outcome {
    let other =
        test.ordinary_pod(&test.namespace, "mine", "import time; time.sleep(600)", &json!({})).await?;
    let sandbox = test.sandbox(Runtime::Runc, "mine", &json!({})).await?;
    sandbox
        .until("says that its name is taken", |status| {
            status.reason.as_deref() == Some("SandboxCreationFailed")
        })
        .await?;
    let still = sandbox.pod().await?;
    ensure!(still.metadata.uid == other.metadata.uid, "somebody's pod was replaced");
    ensure!(still.metadata.owner_references.is_none(), "somebody's pod was adopted");
    let pods: Api<Pod> = test.api();
    pods.delete("mine", &DeleteParams::default()).await?;
    sandbox.running().await?;
    Ok(())
}

async fn class_removed(test: Arc<Test>) -> Outcome {
    let class = test.class(Runtime::Runc, "gone", &json!({})).await?;
    let sandbox = test.running(Runtime::Runc, "stays", &json!({"className": class, "ttl": "30s"})).await?;
    Api::<SandboxClass>::all(test.client.clone()).delete(&class, &DeleteParams::default()).await?;
    sandbox
        .until("says that its class is gone", |status| {
            says(status, ConditionType::Accepted, "False", "ClassNotFound")
        })
        .await?;
    ensure!(sandbox.sh("echo alive").await? == "alive\n", "it does not answer");
    // Its time is still bounded.
    sandbox.ended_as(Phase::Expired, "TtlExpired").await?;
    sandbox.pod_gone().await
}
