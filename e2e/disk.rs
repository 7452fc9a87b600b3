//! The node's disk: a sandbox has no place on it, and what it writes there nonetheless is bounded.

use std::sync::Arc;

use anyhow::{Context, ensure};
use serde_json::json;

use glovebox::api::Phase;

use crate::harness::{
    Cases, Outcome, Runtime, Test,
    sandbox::{is_over, told},
    wait,
};

/// What is written to the termination log altogether. More than half of it at one time was not thrown away as it came: how much
/// a writer gets done before process 1 has its turn is for the node's scheduler to say.
const FLOOD: u64 = 1 << 30;

pub(crate) fn cases(cases: &mut Cases) {
    cases.each_runtime("disk::a_flood_of_logs_ends_it", 250, flood);
    cases.each_runtime("disk::the_termination_log_is_no_way_to_the_disk", 250, termination_log);
}

async fn flood(test: Arc<Test>, runtime: Runtime) -> Outcome {
    let spec = json!({"command": ["yes", "fills the disk of the node, if nobody holds it"], "resources": {"ephemeralStorage": "32Mi"}});
    let sandbox = test.sandbox(runtime, "flood", &spec).await?;
    sandbox.ended_as(Phase::Failed, "Evicted").await?;
    sandbox.delete().await
}

/// The kubelet gives every container one file on the node's disk to write its last words to, and counts it nowhere.
async fn termination_log(test: Arc<Test>, runtime: Runtime) -> Outcome {
    let local = test.local()?;
    let script = "dd if=/dev/zero bs=1M count=1024 >> /dev/termination-log; echo written; sleep 600";
    let spec = json!({"command": ["sh", "-c", script], "resources": {"ephemeralStorage": "32Mi"}});
    let sandbox = test.sandbox(runtime, "last-words", &spec).await?;
    let status = sandbox.until("is on a node", |status| status.node_name.is_some()).await?;
    let node = status.node_name.clone().context("no node")?;
    let uid = sandbox.pod().await?.metadata.uid.context("no uid")?;
    let folder = format!("{}/{node}/kubelet/pods/{uid}/containers", local.run.display());
    // What is really on the disk: a file that was cut may be long and yet empty.
    let script = format!("du --summarize --block-size=1 {folder} | cut -f 1");
    let on_disk = async || {
        Ok::<u64, anyhow::Error>(local.on_node(&node, &["sh", "-c", &script]).await?.trim().parse()?)
    };
    let thrown_away = async |what: &str| {
        let small = async || Ok((on_disk().await? < 1 << 20).then_some(()));
        wait::poll(&format!("{what} is thrown away"), small).await
    };
    // Until it wrote all that it wants, or was ended for it.
    let mut largest = 0;
    wait::poll("the attempt comes to its end", async || {
        largest = on_disk().await?.max(largest);
        let over = is_over(&sandbox.status().await?);
        Ok((over || sandbox.log().await.is_ok_and(|log| log.contains("written"))).then_some(()))
    })
    .await?;
    let status = sandbox.status().await?;
    println!("figure: of {FLOOD} bytes to the termination log, at most {largest} were on the node's disk");
    ensure!(largest < FLOOD / 2, "{largest} bytes are on the node's disk at one time; {}", told(&status));
    thrown_away("what the workload wrote").await?;
    // And by an exec call, which nobody's supervisor started.
    sandbox.sh("dd if=/dev/zero of=/dev/termination-log bs=1M count=256").await?;
    thrown_away("what an exec call wrote").await
}
