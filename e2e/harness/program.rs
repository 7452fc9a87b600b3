//! Programs beside the suite: kubectl, and whatever steers the local cluster. Each ends with the suite.

use std::process::Stdio;

use anyhow::{Context, Result, bail};
use tokio::{io::AsyncWriteExt, process::Command};

/// Runs a program to its end; what it printed, or an error with both its outputs.
pub(crate) async fn run(program: &str, arguments: &[&str], input: &str) -> Result<String> {
    let shown = || format!("{program} {}", arguments.join(" "));
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("{program} does not start; is it in PATH?"))?;
    if let Some(mut stdin) = child.stdin.take() {
        // Whoever does not read its input has no use for it.
        let _ = stdin.write_all(input.as_bytes()).await;
    }
    let output = child.wait_with_output().await.with_context(shown)?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if !output.status.success() {
        bail!("{}: {}: {}{}", shown(), output.status, text(&output.stdout), text(&output.stderr));
    }
    Ok(text(&output.stdout))
}

/// Runs kubectl against the cluster under test.
pub(crate) async fn kubectl(arguments: &[&str]) -> Result<String> {
    run("kubectl", arguments, "").await
}
