//! Each file of `examples/` is applied as a person would, and comes to the state that its comment promises.

use std::{path::PathBuf, sync::Arc};

use anyhow::{Context, Result, bail, ensure};
use kube::Api;

use glovebox::api::{AgentSandbox, SandboxClass};

use crate::harness::{
    Cases, Outcome, Test,
    program::run,
    sandbox::{is_over, told},
    wait,
};

pub(super) fn cases(cases: &mut Cases) {
    let folder = std::env::var_os("GLOVEBOX_CHECKOUT")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from)
        .join("examples");
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(&folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    // A folder is a program, which the suite of the client runs.
    files.retain(|file| file.is_file());
    files.sort();
    if files.is_empty() {
        cases.add(
            "examples::are_there",
            0,
            move |_| async move { bail!("no example in {}", folder.display()) },
        );
    }
    for file in files {
        let name = file.file_stem().unwrap_or_default().to_string_lossy().replace('-', "_");
        cases.add(&format!("examples::{name}"), 1000, move |test| example(test, file));
    }
}

async fn example(test: Arc<Test>, file: PathBuf) -> Outcome {
    let example = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    let expected = example
        .lines()
        .find_map(|line| line.strip_prefix("# expect: "))
        .context("it says not what to expect")?
        .trim()
        .to_owned();
    // A user's own cluster has the image under another name.
    let example = example.replace("glovebox.dev/tools:1", &test.cluster.image);
    let made = run(
        "kubectl",
        &["apply", "--namespace", &test.namespace, "--output", "name", "--filename", "-"],
        &example,
    )
    .await?;
    let names = |kind: &str| {
        made.lines().filter_map(|line| line.strip_prefix(kind)).map(ToOwned::to_owned).collect::<Vec<_>>()
    };
    let (sandboxes, classes) = (names("agentsandbox.glovebox.dev/"), names("sandboxclass.glovebox.dev/"));
    for class in &classes {
        test.forget_later::<SandboxClass>(class);
    }
    if expected == "class" {
        ensure!(!classes.is_empty(), "it makes no class: {made}");
        for class in &classes {
            available(&test, class).await?;
        }
        return Ok(());
    }
    ensure!(!sandboxes.is_empty(), "it makes no sandbox: {made}");
    for sandbox in &sandboxes {
        reaches(&test, sandbox, &expected).await?;
    }
    Ok(())
}

async fn available(test: &Test, class: &str) -> Outcome {
    let says = |class: Option<&SandboxClass>| {
        let conditions = class
            .and_then(|class| class.status.as_ref())
            .map(|status| status.conditions.as_slice())
            .unwrap_or_default();
        conditions.iter().any(|condition| condition.type_ == "RuntimeAvailable" && condition.status == "True")
    };
    wait::until(Api::all(test.client.clone()), class, "its runtime is available", says).await.map(|_| ())
}

async fn reaches(test: &Test, name: &str, expected: &str) -> Result<()> {
    let api: Api<AgentSandbox> = test.api();
    let phase = |sandbox: &AgentSandbox| {
        sandbox.status.as_ref().and_then(|status| status.phase).map(glovebox::api::Phase::as_str)
    };
    let there = |sandbox: Option<&AgentSandbox>| {
        let over = sandbox.and_then(|sandbox| sandbox.status.as_ref()).is_some_and(is_over);
        over || sandbox.is_some_and(|sandbox| phase(sandbox) == Some(expected))
    };
    let sandbox = wait::until(api, name, &format!("{name} becomes {expected}"), there)
        .await?
        .context("it was just seen")?;
    ensure!(
        phase(&sandbox) == Some(expected),
        "{name} should be {expected}: {}",
        told(&sandbox.status.unwrap_or_default())
    );
    if name == "poisoned" {
        let pods: Api<k8s_openapi::api::core::v1::Pod> = test.api();
        let log = pods
            .logs(name, &kube::api::LogParams { container: Some("workload".into()), ..Default::default() })
            .await?;
        let done: Vec<&str> = log.lines().filter(|line| line.starts_with("DONE")).collect();
        ensure!(
            done.len() == 1 && done[0].contains("workspace"),
            "more was done than to write the workspace:\n{log}"
        );
        ensure!(log.contains("secrets in the environment: []"), "there is something to steal:\n{log}");
        ensure!(log.matches("refused").count() >= 7, "less was tried than it says:\n{log}");
    }
    Ok(())
}
