//! The promise that goes with the tools image: ordinary tools work in the workspace without a flag.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, ensure};
use serde_json::json;

use glovebox::api::Phase;

use crate::{
    attacks,
    harness::{Cases, Outcome, Runtime, Test, sandbox::is_over},
};

/// Compiling and unpacking under gVisor takes its time.
const LIMIT: Duration = Duration::from_secs(300);

pub(crate) fn cases(cases: &mut Cases) {
    cases.each_runtime("promise::pip_npm_git_gcc_and_venv_work_without_a_flag", 900, tools);
    cases.each_runtime("promise::tools_work_by_exec_and_protected_files_hold_meanwhile", 500, by_exec);
}

async fn tools(test: Arc<Test>, runtime: Runtime) -> Outcome {
    let spec = json!({
        "command": ["sh", "/opt/fixtures/promise.sh"],
        "resources": {"cpu": "900m", "memory": "1Gi"}, "workspace": {"size": "256Mi"},
    });
    let sandbox = test.sandbox(runtime, "tools", &spec).await?;
    let status = sandbox.until_within("keeps the promise", LIMIT, is_over).await?;
    let log = sandbox.log().await?;
    let last = log.lines().last().context("it says nothing")?;
    let passed = last.split(' ').next().and_then(|count| count.parse::<u32>().ok()).unwrap_or(0);
    ensure!(last.ends_with(" 0 failed") && passed >= 10 && status.phase == Some(Phase::Succeeded), "{log}");
    Ok(())
}

async fn by_exec(test: Arc<Test>, runtime: Runtime) -> Outcome {
    let spec = json!({"resources": {"cpu": "500m", "memory": "512Mi"}, "workspace": {"size": "128Mi", "protectedPaths": ["ci"]}});
    let sandbox = test.running(runtime, "session", &spec).await?;
    sandbox
        .sh("git init -q . && echo text >file && git add file && git commit -qm one && git status --short")
        .await?;
    sandbox.sh("python3 -m venv env && . env/bin/activate && python -c 'import sys; assert sys.prefix.startswith(\"/workspace\")'").await?;
    sandbox.sh("printf 'int main(void){return 0;}' >a.c && gcc -o a a.c && ./a").await?;
    // A hook that would run at the next commit, put where each of the tools now looks.
    let hook = sandbox
        .exec(&[
            "sh",
            "-c",
            "echo evil >.git/hooks/pre-commit || git config --global core.hooksPath /workspace/evil",
        ])
        .await?;
    ensure!(hook.code != 0, "a hook was put in place: {hook:?}");
    attacks::PROTECTED.by_exec(&sandbox, &["ci"]).await?;
    Ok(())
}
