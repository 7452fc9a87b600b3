//! The workspace: in memory, as large as it says, and gone with the pod.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use crate::{
    attacks,
    harness::{Cases, Outcome, Runtime, Sandbox, Test, local::Local, random},
};

pub(crate) fn cases(cases: &mut Cases) {
    cases.each_runtime("workspace::size_is_a_wall", 300, size);
    cases.each_runtime("workspace::nothing_is_left_on_the_node_or_for_the_next", 300, nothing_left);
}

async fn size(test: Arc<Test>, runtime: Runtime) -> Outcome {
    let spec = json!({"workspace": {"size": "96Mi"}, "resources": {"memory": "320Mi"}});
    // Scratch places have a quarter of it each.
    let places = json!({
        "/workspace": 96 << 20, "/workspace/.git": 24 << 20, "/home/sandbox/.cache": 24 << 20, "/tmp": 24 << 20,
    });
    attacks::FILL.as_workload(&test, runtime, &spec, &[&places.to_string()]).await
}

async fn nothing_left(test: Arc<Test>, runtime: Runtime) -> Outcome {
    let local = test.local()?;
    let seed = format!("{}{}", random()?, random()?);
    let marker: String = seed.chars().rev().collect();
    let spec = json!({"command": attacks::PLANT.command(&[&seed]), "resources": {"memory": "256Mi"}});
    let mut moments = Vec::new();
    for node in test.cluster.node_names().await? {
        moments.push(Since::now(local, node, &test.suffix).await?);
    }
    let sandbox = test.running(runtime, "leaver", &spec).await?;
    let node = sandbox.status().await?.node_name;
    let since =
        moments.iter().find(|since| node.as_ref() == Some(&since.node)).context("it runs on a new node")?;
    sandbox.logged("planted").await?;
    let found = since.search(&marker).await?;
    ensure!(!found.is_empty(), "the search finds nothing while it is there, so it would prove nothing");
    sandbox.delete().await?;
    let left = since.search(&marker).await?;
    for since in moments {
        since.forget().await?;
    }
    ensure!(left.is_empty(), "left on the node after teardown:\n{left}");
    successor(&test, runtime, &sandbox, &marker).await
}

/// The next sandbox of the same name finds nothing.
async fn successor(test: &Test, runtime: Runtime, former: &Sandbox, marker: &str) -> Outcome {
    let next = test.running(runtime, &former.name, &json!({})).await?;
    let script = "for d in /workspace /workspace/.git /home/sandbox/.cache /tmp /dev/shm; do find $d -type f; done; \
                  grep -rlF \"$0\" /workspace /home/sandbox /tmp /dev/shm; true";
    let said = next.exec(&["sh", "-c", script, marker]).await?.good()?;
    ensure!(said.is_empty(), "the next sandbox finds:\n{said}");
    Ok(())
}

/// A moment on a node, kept as a file of that age.
struct Since {
    local: &'static Local,
    node: String,
    file: String,
}

impl Since {
    async fn now(local: &'static Local, node: String, suffix: &str) -> Result<Self> {
        let file = format!("/run/e2e-since-{suffix}");
        local.on_node(&node, &["touch", &file]).await?;
        Ok(Self { local, node, file })
    }

    /// Files written since then with the marker in them, in all places where the kubelet and containerd keep anything.
    async fn search(&self, marker: &str) -> Result<String> {
        let places =
            format!("{}/{} /run/containerd /var/lib/kubelet /var/log", self.local.run.display(), self.node);
        // By the time of the last change, which nobody inside can set. What vanishes meanwhile is no fault.
        let script = format!(
            "find {places} -type f -cnewer {} -print0 2>/dev/null | xargs -0r grep -laFs -- {marker} || true",
            self.file
        );
        self.local.on_node(&self.node, &["sh", "-c", &script]).await
    }

    async fn forget(self) -> Result<()> {
        self.local.on_node(&self.node, &["rm", &self.file]).await.map(|_| ())
    }
}
