//! How sandboxes end: by themselves, by their time, by what was seen of their kernel.

use std::time::Duration;

use serde_json::json;

use super::{gvisor, scenarios};
use crate::testkit::{
    fixtures::{self, pod_key, sandbox_key, with},
    kubelet::{Kernel, Workload},
    stage::Stage,
};

scenarios! {
    /// Runs until its time is over; pod, then object, go.
    async fn ttl_ends_it(stage) {
        stage.begin(&fixtures::gvisor_class(), &gvisor("s"));
        stage.stop().await;
        stage.expect("s", "Running", "Running");
        stage.wait(19 * 60).await;
        stage.expect("s", "Expired", "TtlExpired");
        stage.gone(&pod_key("s"));
        stage.stop().await;
        stage.wait(5 * 60).await;
        stage.gone(&sandbox_key("s"));
        stage.stop().await;
    }

    /// The workload ends well; its pod stays as long as the object, so that its log can be read.
    async fn exit_zero_completes_it(stage) {
        stage.driver.kubelet.workload = Workload::Ends { after: Duration::from_secs(5), code: 0, recorded: true };
        stage.begin(&fixtures::gvisor_class(), &gvisor("s"));
        stage.stop().await;
        stage.expect("s", "Succeeded", "Completed");
        assert!(stage.driver.get(&pod_key("s")).is_some());
        stage.wait(5 * 60).await;
        stage.gone(&sandbox_key("s"));
        stage.stop().await;
        stage.gone(&pod_key("s"));
    }

    /// It ends before anybody saw it run.
    async fn exit_three_fails_it(stage) {
        stage.driver.kubelet.workload = Workload::Ends { after: Duration::ZERO, code: 3, recorded: true };
        stage.begin(&fixtures::gvisor_class(), &gvisor("s"));
        stage.stop().await;
        stage.expect("s", "Failed", "Error");
        assert_eq!(stage.driver.get(&sandbox_key("s")).unwrap()["status"]["exitCode"], 3);
        stage.wait(5 * 60).await;
        stage.stop().await;
        stage.gone(&sandbox_key("s"));
    }

    /// An exit code that no supervisor recorded proves nothing.
    async fn exit_zero_without_record_fails_it(stage) {
        stage.driver.kubelet.workload = Workload::Ends { after: Duration::from_secs(1), code: 0, recorded: false };
        stage.begin(&fixtures::gvisor_class(), &gvisor("s"));
        stage.stop().await;
        stage.expect("s", "Failed", "Error");
        assert_eq!(stage.driver.get(&sandbox_key("s")).unwrap()["status"].get("exitCode"), None);
    }

    /// The init container sees gVisor where a VM was promised.
    async fn weaker_kernel_seen_from_inside(stage) {
        stage.begin(&fixtures::vm_class(), &with(gvisor("s"), &[("/spec/className", json!("vm")), ("/spec/resources/memory", json!("2Gi"))]));
        stage.stop().await;
        stage.expect("s", "Failed", "IsolationMismatch");
        stage.gone(&pod_key("s"));
    }

    /// The node's own kernel looks like any other from inside; its boot id tells.
    async fn weaker_kernel_seen_from_outside(stage) {
        stage.driver.kubelet.kernel = Kernel::Node;
        stage.begin(&fixtures::gvisor_class(), &gvisor("s"));
        stage.stop().await;
        stage.expect("s", "Failed", "IsolationMismatch");
        stage.gone(&pod_key("s"));
    }

    /// A weaker kernel that is accepted is told.
    async fn weaker_kernel_accepted(stage) {
        let class = with(fixtures::vm_class(), &[("/spec/runtime/acceptWeakerIsolation", json!("no KVM here"))]);
        stage.begin(&class, &with(gvisor("s"), &[("/spec/className", json!("vm")), ("/spec/resources/memory", json!("2Gi"))]));
        stage.stop().await;
        stage.expect("s", "Running", "Running");
        let status = stage.driver.get(&sandbox_key("s")).unwrap()["status"].clone();
        assert_eq!(status["enforcement"]["kernelIsolation"]["state"], "NotEnforced");
        assert_eq!(status["runtime"], "gVisor (weaker than VirtualMachine)");
    }

    /// The image never comes.
    async fn startup_deadline(stage) {
        stage.driver.kubelet.workload = Workload::Waits("ErrImagePull");
        stage.begin(&fixtures::gvisor_class(), &gvisor("s"));
        stage.driver.run_for(Duration::from_secs(60)).await;
        stage.expect("s", "Starting", "ImagePullFailed");
        stage.stop().await;
        stage.expect("s", "Failed", "StartupDeadlineExceeded");
        stage.gone(&pod_key("s"));
    }

    /// A pod that does not go is told of, and the object waits for it.
    async fn teardown_stalls(stage) {
        stage.driver.kubelet.stuck = true;
        stage.begin(&fixtures::gvisor_class(), &with(gvisor("s"), &[("/spec/ttl", json!("2m")), ("/spec/ttlAfterFinished", json!("10s"))]));
        stage.stop().await;
        stage.wait(150).await;
        stage.expect("s", "Expired", "TtlExpired");
        assert_eq!(stage.condition("s", "TeardownStalled").unwrap()["status"], "True");
        stage.stop().await;
        stage.driver.kubelet.stuck = false;
        stage.stop().await;
        stage.gone(&sandbox_key("s"));
    }

    /// The controller is away while the time ends; the pod's own deadline holds.
    async fn controller_away_at_the_end(stage) {
        stage.begin(&fixtures::gvisor_class(), &gvisor("s"));
        stage.stop().await;
        stage.driver.stop();
        stage.wait(20 * 60).await;
        assert_eq!(stage.driver.get(&pod_key("s")).unwrap()["status"]["reason"], "DeadlineExceeded");
        stage.driver.start();
        stage.stop().await;
        stage.expect("s", "Expired", "TtlExpired");
        stage.wait(6 * 60).await;
        stage.stop().await;
        stage.gone(&pod_key("s"));
    }

    /// It ends well while the controller is away, which comes back after its time: it completed nonetheless.
    async fn controller_away_at_an_exit(stage) {
        stage.driver.kubelet.workload = Workload::Ends { after: Duration::from_secs(200), code: 0, recorded: true };
        stage.begin(&fixtures::gvisor_class(), &with(gvisor("s"), &[("/spec/ttlAfterFinished", json!("1h"))]));
        stage.stop().await;
        stage.expect("s", "Running", "Running");
        stage.driver.stop();
        stage.wait(20 * 60).await;
        stage.driver.start();
        stage.stop().await;
        stage.expect("s", "Succeeded", "Completed");
    }
}
