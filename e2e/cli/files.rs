//! `cp` and `logs`: what goes in comes out again, byte by byte, and nothing leads out.

use std::{fs, sync::Arc};

use anyhow::{Result, ensure};
use serde_json::json;

use super::person::{Ended, Person};
use crate::{
    harness::{Cases, Outcome, Runtime, Test, wait},
    session::caller,
};

pub(super) fn cases(cases: &mut Cases) {
    cases.each_runtime("cli::what_is_copied_in_comes_out_again", 300, copied);
    cases.add("cli::logs_are_what_the_workload_wrote", 300, logs);
}

async fn copied(test: Arc<Test>, runtime: Runtime) -> Outcome {
    let person = Person::admin(&test)?;
    let sandbox = test.running(runtime, "files", &json!({})).await?;
    let here = |name: &str| person.path(name).to_string_lossy().into_owned();
    let cp = async |from: &str, to: &str| person.glovebox(&["cp", from, to]).await;
    let bytes: Vec<u8> = (0..=255).collect::<Vec<u8>>().repeat(3000);
    fs::create_dir_all(person.path("tree/below"))?;
    fs::write(person.path("tree/below/bytes"), &bytes)?;
    fs::write(person.path("tree/empty"), b"")?;
    std::os::unix::fs::symlink("/etc/passwd", person.path("tree/link"))?;
    // A file, to a name and into a directory.
    cp(&here("tree/below/bytes"), "files:a/b").await?.is(0)?;
    cp(&here("tree/below/bytes"), "files:a").await?.is(0)?;
    sandbox.sh("cmp /workspace/a/b /workspace/a/bytes").await?;
    cp("files:a/b", &here("back")).await?.is(0)?;
    ensure!(fs::read(person.path("back"))? == bytes, "other bytes came back");
    // A directory, without links, and back.
    let sent = cp(&here("tree"), "files:tree").await?;
    sent.is(0)?;
    ensure!(sent.stderr.contains("1 links"), "{sent:?}");
    sandbox.sh("ln -s /etc/passwd /workspace/tree/away; mkfifo /workspace/tree/pipe").await?;
    cp("files:tree", &here("copy")).await?.is(0)?;
    ensure!(fs::read(person.path("copy/below/bytes"))? == bytes && person.path("copy/empty").is_file());
    ensure!(!person.path("copy/away").exists() && !person.path("copy/pipe").exists(), "what is no file came");
    // Streams.
    person.fed(&["cp", "-", "files:typed"], b"typed").await?.is(0)?;
    let shown = cp("files:typed", "-").await?;
    ensure!(shown.raw == b"typed", "{shown:?}");
    // What can't be is told, and nothing is left of it here.
    for (from, word) in [
        ("files:none", "nothing of this name"),
        ("files:tree/away", "leads out"),
        ("files:tree/pipe", "no ordinary file"),
        ("files:../etc/passwd", "path"),
    ] {
        let ended = cp(from, &here("refused")).await?;
        ended.is(125)?;
        ensure!(ended.stderr.contains(word), "{from}: {ended:?}");
        ensure!(!person.path("refused").exists());
    }
    let left: Vec<_> = fs::read_dir(person.path("."))?.collect::<std::io::Result<_>>()?;
    ensure!(left.iter().all(|one| !one.file_name().to_string_lossy().starts_with(".glovebox")), "{left:?}");
    cp("a", "b").await?.is(2)
}

async fn logs(test: Arc<Test>) -> Outcome {
    let person = Person::admin(&test)?;
    let script = "echo one; echo two; while ! test -e /workspace/end; do sleep 0.1; done; echo three >&2";
    let sandbox = test.running(Runtime::Runc, "speaks", &json!({"command": ["sh", "-c", script]})).await?;
    let logs = async |flags: &[&str]| -> Result<Ended> {
        person.glovebox(&[&["logs", "speaks"][..], flags].concat()).await
    };
    wait::poll("both lines are there", async || {
        let ended = logs(&[]).await?;
        ended.is(0)?;
        Ok((ended.stdout == "one\ntwo\n").then_some(()))
    })
    .await?;
    let tail = logs(&["--tail", "1", "--timestamps"]).await?;
    ensure!(tail.stdout.ends_with("Z two\n") && tail.stdout.lines().count() == 1, "{tail:?}");
    let mut following = person.start(&["logs", "-f", "speaks"])?;
    following.says("one").await?;
    following.says("two").await?;
    sandbox.sh("touch /workspace/end").await?;
    following.says("three").await?;
    following.ended().await?.is(0)?;
    // The right to have commands run is another one.
    let token = caller(&test, "runs", &["agentsandboxes/exec"], &["create"], None).await?;
    let file = person.file("token", &token)?;
    let refused = logs(&["--session-token-file", &file]).await?;
    refused.is(125)?;
    ensure!(
        refused.stderr.contains("agentsandboxes/logs") && refused.stderr.contains("verbs: [get]"),
        "{refused:?}"
    );
    person.glovebox(&["logs", "nobody"]).await?.is(125)
}
