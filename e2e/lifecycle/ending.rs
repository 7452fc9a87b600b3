//! How a sandbox ends, each end with its own reason.

use std::sync::Arc;

use anyhow::{Context, ensure};
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::{
    Api,
    api::{DeleteParams, EvictParams, ListParams},
};
use serde_json::{Value, json};

use glovebox::api::{AgentSandbox, ConditionType, Phase};

use crate::harness::{
    Cases, Outcome, Runtime, Test,
    sandbox::{condition, told},
    wait,
};

pub(super) fn cases(cases: &mut Cases) {
    cases.each_runtime("lifecycle::workload_succeeds", 250, succeeds);
    cases.each_runtime("lifecycle::workload_fails_with_its_exit_code", 250, fails);
    cases.each_runtime("lifecycle::workload_is_ended_by_a_signal", 250, signalled);
    cases.each_runtime("lifecycle::command_is_not_found", 250, not_found);
    cases.each_runtime("lifecycle::more_memory_than_the_limit", 250, out_of_memory);
    cases.each_runtime("lifecycle::a_forged_exit_record_is_not_believed", 250, forged);
    cases.each_runtime("lifecycle::without_a_command_it_idles", 250, idles);
    cases.add("lifecycle::evicted_through_the_api", 250, evicted);
    cases.add("lifecycle::pod_deleted_by_hand_is_never_restarted", 500, pod_deleted);
    cases.add("lifecycle::startup_deadline_names_what_held_it_up", 250, startup_deadline);
    cases.add("lifecycle::it_tells_its_story_in_events", 250, story);
    cases.add("lifecycle::environment_and_arguments_arrive_as_written", 250, arguments);
}

fn shell(script: &str) -> Value {
    json!({"command": ["sh", "-c", script]})
}

async fn succeeds(test: Arc<Test>, runtime: Runtime) -> Outcome {
    let sandbox = test.sandbox(runtime, "done", &shell("echo said; exit 0")).await?;
    let status = sandbox.ended_as(Phase::Succeeded, "Completed").await?;
    ensure!(status.exit_code == Some(0), "exit code {:?}", status.exit_code);
    ensure!(status.started_at.is_some() && status.finished_at.is_some(), "times are missing: {status:?}");
    ensure!(
        condition(&status, ConditionType::Ready).is_some_and(|ready| ready.status == "False"),
        "{}",
        told(&status)
    );
    let log = sandbox.log().await?;
    ensure!(log == "said\n", "the log can't be read after the end: {log:?}");
    Ok(())
}

async fn fails(test: Arc<Test>, runtime: Runtime) -> Outcome {
    let sandbox = test.sandbox(runtime, "three", &shell("exit 3")).await?;
    let status = sandbox.ended_as(Phase::Failed, "Error").await?;
    ensure!(status.exit_code == Some(3), "exit code {:?}", status.exit_code);
    Ok(())
}

async fn signalled(test: Arc<Test>, runtime: Runtime) -> Outcome {
    let sandbox = test.sandbox(runtime, "signal", &shell("kill -SEGV $$")).await?;
    let status = sandbox.ended_as(Phase::Failed, "Error").await?;
    ensure!(status.exit_code == Some(128 + 11), "exit code {:?}", status.exit_code);
    ensure!(told(&status).contains("signal 11"), "{}", told(&status));
    Ok(())
}

async fn not_found(test: Arc<Test>, runtime: Runtime) -> Outcome {
    let sandbox =
        test.sandbox(runtime, "nothing", &json!({"command": ["no-such-program", "--flag"]})).await?;
    let status = sandbox.ended_as(Phase::Failed, "Error").await?;
    ensure!(status.exit_code == Some(127), "exit code {:?}", status.exit_code);
    ensure!(told(&status).contains("no-such-program"), "the program is not named: {}", told(&status));
    Ok(())
}

async fn out_of_memory(test: Arc<Test>, runtime: Runtime) -> Outcome {
    let script = "held = []\nwhile True: held.append(bytearray(b'x') * (4 << 20))";
    let spec = json!({"command": ["python3", "-c", script], "resources": {"memory": "96Mi"}});
    let sandbox = test.sandbox(runtime, "balloon", &spec).await?;
    let status = sandbox.ended_as(Phase::Failed, "OOMKilled").await?;
    ensure!(status.exit_code == Some(137), "exit code {:?}", status.exit_code);
    Ok(())
}

/// The workload may write where its supervisor will: what it claims there must not count.
async fn forged(test: Arc<Test>, runtime: Runtime) -> Outcome {
    let record = r#"{"v":1,"exitCode":0,"signal":null,"spawnError":null,"oom":null}"#;
    let liar = test
        .sandbox(runtime, "liar", &shell(&format!("echo '{record}' >/dev/termination-log; exit 4")))
        .await?;
    let status = liar.ended_as(Phase::Failed, "Error").await?;
    ensure!(status.exit_code == Some(4), "exit code {:?}", status.exit_code);
    // One that goes on writing after its supervisor did, and tries to end it so that nothing corrects the record.
    let script = format!("(while :; do echo '{record}' >/dev/termination-log; done) & kill -KILL 1; exit 5");
    let stubborn = test.sandbox(runtime, "stubborn", &shell(&script)).await?;
    let status = stubborn.ended().await?;
    ensure!(status.phase == Some(Phase::Failed), "a forged record made it {}", told(&status));
    Ok(())
}

async fn idles(test: Arc<Test>, runtime: Runtime) -> Outcome {
    let sandbox = test.running(runtime, "idle", &json!({})).await?;
    let status = sandbox.status().await?;
    ensure!(
        condition(&status, ConditionType::Ready).is_some_and(|ready| ready.status == "True"),
        "{}",
        told(&status)
    );
    ensure!(told(&status).contains("waits for calls"), "{}", told(&status));
    let said = sandbox.exec(&["sh", "-c", "echo out; echo err >&2; exit 7"]).await?;
    ensure!((said.code, said.stdout.as_str(), said.stderr.as_str()) == (7, "out\n", "err\n"), "{said:?}");
    Ok(())
}

async fn evicted(test: Arc<Test>) -> Outcome {
    let sandbox = test.running(Runtime::Runc, "evicted", &json!({})).await?;
    sandbox.pods().evict(&sandbox.name, &EvictParams::default()).await.context("eviction")?;
    sandbox.ended_as(Phase::Failed, "NodeDrained").await?;
    sandbox.pod_gone().await
}

async fn pod_deleted(test: Arc<Test>) -> Outcome {
    let sandbox = test.running(Runtime::Runc, "bereft", &json!({})).await?;
    let first = sandbox.pod().await?;
    sandbox.pods().delete(&sandbox.name, &DeleteParams::default()).await?;
    sandbox.ended_as(Phase::Failed, "PodDeleted").await?;
    sandbox.pod_gone().await?;
    // Whatever the controller would do about it has been done once a later sandbox runs and the status was looked at again.
    test.running(Runtime::Runc, "later", &json!({})).await?;
    let again = sandbox.pods().get_opt(&sandbox.name).await?;
    ensure!(
        again.is_none(),
        "it was started again as {:?}, after {:?}",
        again.map(|pod| pod.metadata.uid),
        first.metadata.uid
    );
    let status = sandbox.status().await?;
    ensure!(status.reason.as_deref() == Some("PodDeleted"), "{}", told(&status));
    Ok(())
}

async fn startup_deadline(test: Arc<Test>) -> Outcome {
    let class = test.class(Runtime::Runc, "hurry", &json!({"startupDeadline": "25s"})).await?;
    // A registry that refuses at once. The kubelet tells of it when it tries again, some ten seconds later.
    let spec = json!({"className": class, "image": "127.0.0.1:1/no-such-image:1", "command": ["true"]});
    let sandbox = test.sandbox(Runtime::Runc, "unpullable", &spec).await?;
    let status = sandbox.ended_as(Phase::Failed, "StartupDeadlineExceeded").await?;
    for word in ["25s", "ImagePullFailed", "no-such-image"] {
        ensure!(told(&status).contains(word), "{word:?} is not told: {}", told(&status));
    }
    sandbox.pod_gone().await
}

async fn story(test: Arc<Test>) -> Outcome {
    let sandbox = test.sandbox(Runtime::Runc, "told", &shell("exit 3")).await?;
    sandbox.ended().await?;
    let events: Api<Event> = test.api();
    let about = ListParams::default()
        .fields(&format!("involvedObject.name={},involvedObject.kind=AgentSandbox", sandbox.name));
    let told = wait::poll("an event tells of the end", async || {
        let list = events.list(&about).await?.items;
        let found = list.iter().any(|event| event.reason.as_deref() == Some("Error"));
        Ok(found.then_some(list))
    })
    .await?;
    let last =
        told.iter().find(|event| event.reason.as_deref() == Some("Error")).context("it was just found")?;
    ensure!(last.type_.as_deref() == Some("Warning"), "an error that is not a warning: {last:?}");
    ensure!(last.message.as_deref().unwrap_or_default().contains("exit code 3"), "{last:?}");
    ensure!(last.involved_object.uid.as_deref() == Some(&sandbox.uid), "about another object: {last:?}");
    Ok(())
}

/// Nothing is expanded on the way: what looks like a variable or a command is text.
async fn arguments(test: Arc<Test>) -> Outcome {
    let odd = ["$$", "$$$HOME", "$(HOME)", "$HOME", "`id`", "a b", "\"q\"", "$$(X)", "ü\n2"];
    let script = "import json, os, sys; print(json.dumps([sys.argv[1:], os.environ['ODD'], os.getcwd(), os.environ['HOME']]))";
    let spec = json!({
        "command": ["python3", "-c", script],
        "args": odd,
        "env": [{"name": "ODD", "value": "$(HOME) $HOME $$"}],
        "workingDir": "/tmp",
    });
    let sandbox = test.sandbox(Runtime::Runc, "odd", &spec).await?;
    sandbox.ended_as(Phase::Succeeded, "Completed").await?;
    let seen: Value = serde_json::from_str(&sandbox.log().await?)?;
    ensure!(seen == json!([odd, "$(HOME) $HOME $$", "/tmp", "/home/sandbox"]), "{seen}");
    let pods =
        Api::<Pod>::namespaced(test.client.clone(), &test.namespace).list(&ListParams::default()).await?;
    let sandboxes = Api::<AgentSandbox>::namespaced(test.client.clone(), &test.namespace)
        .list(&ListParams::default())
        .await?;
    ensure!(pods.items.len() == sandboxes.items.len(), "one sandbox is one pod");
    Ok(())
}
