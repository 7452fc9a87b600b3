//! Files of a sandbox's workspace through the session, under each runtime.

use std::sync::Arc;

use serde_json::json;

use super::{Toolbox, caller, waiting};
use crate::harness::{Cases, Outcome, Runtime, Test};

const ROUND: (&str, usize) = (include_str!("files.py"), 30);
const HOSTILE: (&str, usize) = (include_str!("files_hostile.py"), 30);

pub(super) fn cases(cases: &mut Cases) {
    cases.each_runtime("session::files_go_in_and_come_out", 500, round);
    cases.each_runtime("session::no_file_outside_the_workspace_is_reached", 500, hostile);
}

async fn round(test: Arc<Test>, runtime: Runtime) -> Outcome {
    let elsewhere = test.another_namespace("restricted").await?;
    let toolbox = Toolbox::open(&test).await?.with(&json!({
        "sandbox": "files",
        "elsewhere": elsewhere,
        "nobody": caller(&test, "nobody", &[], &[], None).await?,
        "reader": caller(&test, "reader", &["agentsandboxes/files"], &["get"], None).await?,
        "maker": caller(&test, "maker", &["agentsandboxes/files"], &["create"], None).await?,
    }));
    let _sandbox = waiting(&test, runtime, "files", &[]).await?;
    toolbox.carry_out(ROUND, 120).await.map(|_| ())
}

async fn hostile(test: Arc<Test>, runtime: Runtime) -> Outcome {
    let toolbox = Toolbox::open(&test).await?.with(&json!({"sandbox": "files"}));
    let _sandbox = waiting(&test, runtime, "files", &["sleep", "infinity"]).await?;
    toolbox.carry_out(HOSTILE, 200).await.map(|_| ())
}
