//! Classes: each is tried with a sandbox of the controller's own before anybody relies on it.

use std::time::Duration;

use serde_json::{Value, json};

use super::{gvisor, scenarios};
use crate::testkit::{
    fixtures::{self, SYSTEM_NAMESPACE, pod_key},
    kubelet::{Kernel, Workload},
    stage::Stage,
    store::Key,
};

fn status(stage: &Stage) -> Value {
    stage.driver.get(&Key::new("SandboxClass", "", "gvisor")).unwrap()["status"].clone()
}

scenarios! {
    /// A class is tried once, and counts its sandboxes.
    async fn class_is_tried(stage) {
        stage.driver.with_classes = true;
        stage.driver.kubelet.workload = Workload::Ends { after: Duration::from_secs(1), code: 0, recorded: true };
        stage.driver.create(&fixtures::gvisor_class());
        stage.wait(100).await;
        stage.stop().await;
        stage.gone(&Key::new("AgentSandbox", SYSTEM_NAMESPACE, "canary-gvisor"));
        let found = status(stage);
        assert_eq!((&found["probe"]["outcome"], &found["conditions"][0]["status"]), (&json!("Passed"), &json!("True")));
        assert_eq!((&found["eligibleNodes"], &found["sandboxes"]), (&json!(1), &json!(0)));
        stage.driver.kubelet.workload = Workload::Runs;
        stage.driver.create(&gvisor("s"));
        stage.stop().await;
        stage.expect("s", "Running", "Running");
        assert_eq!(status(stage)["sandboxes"], 1);
        stage.stop().await;
    }

    /// A class whose kernel is weaker than promised starts nothing.
    async fn class_is_weaker(stage) {
        stage.driver.with_classes = true;
        stage.driver.kubelet.kernel = Kernel::Node;
        stage.driver.create(&fixtures::gvisor_class());
        stage.wait(100).await;
        stage.stop().await;
        let found = status(stage);
        assert_eq!((&found["probe"]["outcome"], &found["conditions"][0]["reason"]), (&json!("Weaker"), &json!("RuntimeProbeFailed")));
        stage.driver.create(&gvisor("s"));
        stage.stop().await;
        stage.expect("s", "Failed", "IsolationMismatch");
        stage.gone(&pod_key("s"));
    }

    /// A class that can't be started is tried again until it can.
    async fn class_is_mended(stage) {
        stage.driver.with_classes = true;
        stage.driver.kubelet.workload = Workload::Waits("CreateContainerError");
        stage.driver.create(&fixtures::gvisor_class());
        stage.wait(150).await;
        stage.stop().await;
        assert_eq!(status(stage)["probe"]["outcome"], "Failed");
        stage.driver.kubelet.workload = Workload::Ends { after: Duration::from_secs(1), code: 0, recorded: true };
        stage.wait(400).await;
        stage.stop().await;
        assert_eq!(status(stage)["probe"]["outcome"], "Passed");
    }
}
