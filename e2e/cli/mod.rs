//! The command line as a person uses it: the program itself, by a kubeconfig with a client certificate, against the real session.

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, Result, ensure};
use glovebox::api::AgentSandbox;
use kube::{Api, api::ListParams};
use serde_json::{Value, json};

pub(crate) use self::person::Ended;
pub(crate) use self::person::Person;
use crate::{
    harness::{Cases, Outcome, Runtime, Test, wait},
    session::caller,
};

mod doctor;
mod files;
mod person;

const COMMANDS: [&str; 13] = [
    "run",
    "create",
    "exec",
    "cp",
    "logs",
    "list",
    "top",
    "describe",
    "extend",
    "delete",
    "doctor",
    "audit",
    "completion",
];

pub(crate) fn cases(cases: &mut Cases) {
    cases.add("cli::run_needs_no_flag_but_the_image", 300, run);
    cases.add("cli::run_leaves_nothing_when_it_is_told_to_end", 300, interrupted);
    cases.add("cli::exec_ends_as_the_command_ended", 300, exec);
    cases.add("cli::a_terminal_is_the_commands_own", 300, terminal);
    files::cases(cases);
    cases.add("cli::a_client_that_vanishes_takes_its_command_along", 300, vanished);
    cases.add("cli::a_sandbox_is_made_listed_extended_and_deleted", 300, life);
    cases.add("cli::describe_tells_what_was_refused", 300, refused);
    cases.add("cli::who_one_is_decides_what_one_may", 300, rights);
    cases.add("cli::help_alone_is_enough", 0, help);
    doctor::cases(cases);
}

async fn sandboxes(test: &Test) -> Result<Vec<AgentSandbox>> {
    let api: Api<AgentSandbox> = test.api();
    Ok(api.list(&ListParams::default()).await?.items)
}

async fn run(test: Arc<Test>) -> Outcome {
    let person = Person::admin(&test)?;
    let script = "echo out; echo err >&2; id -u; exit 7";
    let ended = person.glovebox(&["run", &test.cluster.image, "--", "sh", "-c", script]).await?;
    ended.is(7)?;
    ensure!(ended.stdout.starts_with("out\n") && !ended.stdout.contains("\n0\n"), "{ended:?}");
    ensure!(ended.stderr.ends_with("err\n") && ended.stderr.contains("is made"), "{ended:?}");
    let left = sandboxes(&test).await?;
    ensure!(left.iter().all(|sandbox| sandbox.metadata.deletion_timestamp.is_some()), "{left:?}");
    // Nothing can be reached that was not asked for, and what can't start is told.
    let reach = "import socket\ntry:\n socket.getaddrinfo('evil.example', 443)\n print('reached')\nexcept OSError: print('refused')";
    let ended = person.glovebox(&["run", "-q", &test.cluster.image, "--", "python3", "-c", reach]).await?;
    ended.is(0)?;
    ensure!((ended.stdout.as_str(), ended.stderr.as_str()) == ("refused\n", ""), "{ended:?}");
    let ended = person.glovebox(&["run", "--memory", "64Gi", &test.cluster.image, "--", "true"]).await?;
    ended.is(125)?;
    ensure!(ended.stderr.contains("ExceedsClass") && ended.stderr.contains("memory"), "{ended:?}");
    ensure!(sandboxes(&test).await?.iter().all(|sandbox| sandbox.metadata.deletion_timestamp.is_some()));
    Ok(())
}

async fn interrupted(test: Arc<Test>) -> Outcome {
    let person = Person::admin(&test)?;
    for (signal, code) in [("INT", 130), ("TERM", 143)] {
        let script = "echo begun; sleep 300";
        let mut running = person.start(&["run", &test.cluster.image, "--", "sh", "-c", script])?;
        running.says("begun").await?;
        running.signal(signal).await?;
        running.ended().await?.is(code)?;
        wait::poll("the sandbox goes", async || Ok(sandboxes(&test).await?.is_empty().then_some(()))).await?;
    }
    // Before it is ready, too.
    let running = person.start(&["run", &test.cluster.image, "--", "true"])?;
    wait::poll("a sandbox comes", async || Ok((!sandboxes(&test).await?.is_empty()).then_some(()))).await?;
    running.signal("INT").await?;
    running.ended().await?.is(130)?;
    wait::poll("the sandbox goes", async || Ok(sandboxes(&test).await?.is_empty().then_some(()))).await
}

async fn exec(test: Arc<Test>) -> Outcome {
    let person = Person::admin(&test)?;
    let _sandbox = test.running(Runtime::Runc, "calls", &json!({})).await?;
    let exec = async |flags: &[&str], command: &[&str], input: &[u8]| {
        let all = [&["exec", "calls"][..], flags, &["--"], command].concat();
        person.fed(&all, input).await
    };
    for (command, code) in [
        (&["true"][..], 0),
        (&["sh", "-c", "exit 255"], 255),
        (&["sh", "-c", "exit 124"], 124),
        (&["sh", "-c", "kill -9 $$"], 137),
        (&["no-such-program"], 127),
    ] {
        exec(&[], command, b"").await?.is(code).with_context(|| format!("{command:?}"))?;
    }
    let ended = exec(&["--timeout", "1s"], &["sh", "-c", "echo begun; sleep 300"], b"").await?;
    ended.is(124)?;
    ensure!(ended.stdout == "begun\n" && ended.stderr.contains("deadline"), "{ended:?}");
    // Bytes are bytes, both ways.
    let bytes: Vec<u8> = (0..=255).collect::<Vec<u8>>().repeat(20_000);
    let ended = exec(&["-i", "--max-output", "8Mi"], &["cat"], &bytes).await?;
    ended.is(0)?;
    ensure!(ended.raw == bytes, "{} bytes came back", ended.raw.len());
    let ended =
        exec(&["-e", "A=1 2", "--cwd", "/tmp"], &["sh", "-c", "echo \"$A\"; pwd; cat"], b"not read").await?;
    ensure!(ended.stdout == "1 2\n/tmp\n", "{ended:?}");
    let much = exec(&["--max-output", "1Ki"], &["head", "-c", "10000", "/dev/zero"], b"").await?;
    much.is(0)?;
    ensure!(
        much.raw.len() == 1024 && much.stderr.contains("10000 bytes"),
        "{} {}",
        much.raw.len(),
        much.stderr
    );
    // What is no terminal is none, and a command need not read what it is given.
    exec(&["-t"], &["sh"], b"").await?.is(2)?;
    exec(&["-i"], &["true"], &bytes).await?.is(0)?;
    exec(&["--timeout", "1y"], &["true"], b"").await?.is(2)?;
    let nobody = person.glovebox(&["exec", "nobody", "--", "true"]).await?;
    nobody.is(125)?;
    ensure!(nobody.stderr.contains("NotFound"), "{nobody:?}");
    Ok(())
}

async fn terminal(test: Arc<Test>) -> Outcome {
    let person = Person::admin(&test)?;
    let sandbox = test.running(Runtime::Runc, "calls", &json!({})).await?;
    let script = "test -t 0 && stty size; read word; echo \"got $word\"; exit 5";
    let ended = person.at_a_terminal(&["exec", "-t", "calls", "--", "sh", "-c", script], b"hello\n").await?;
    ended.is(5)?;
    ensure!(ended.stdout.contains("33 77") && ended.stdout.contains("got hello"), "{ended:?}");
    // Ctrl-C is the command's, and ends no more than that.
    let mark = format!("5{}", u32::from_str_radix(&test.suffix, 16)? % 100_000);
    let script = format!("echo begun; sleep {mark}; echo after");
    let ended = person.at_a_terminal(&["exec", "-it", "calls", "--", "sh", "-c", &script], b"\x03").await?;
    ended.is(130)?;
    ensure!(!ended.stdout.contains("after"), "{ended:?}");
    let looks = format!("grep -lz '^{mark}$' /proc/[0-9]*/cmdline || true");
    wait::poll("the command goes", async || Ok(sandbox.sh(&looks).await?.is_empty().then_some(()))).await
}

async fn vanished(test: Arc<Test>) -> Outcome {
    let person = Person::admin(&test)?;
    let sandbox = test.running(Runtime::Runc, "calls", &json!({})).await?;
    let mark = format!("4{}", u32::from_str_radix(&test.suffix, 16)? % 100_000);
    let looks = format!("grep -lz '^{mark}$' /proc/[0-9]*/cmdline || true");
    for signal in ["KILL", "INT", "HUP"] {
        let script = format!("echo begun; sleep {mark}");
        let mut running = person.start(&["exec", "calls", "--timeout", "5m", "--", "sh", "-c", &script])?;
        running.says("begun").await?;
        ensure!(!sandbox.sh(&looks).await?.is_empty(), "it does not run");
        running.signal(signal).await?;
        let ended = running.ended().await?;
        match signal {
            "INT" => ended.is(130)?,
            "HUP" => ended.is(129)?,
            _ => {}
        }
        wait::poll("the command goes", async || Ok(sandbox.sh(&looks).await?.is_empty().then_some(())))
            .await?;
    }
    Ok(())
}

async fn life(test: Arc<Test>) -> Outcome {
    let person = Person::admin(&test)?;
    let image = &test.cluster.image;
    let dry = person.glovebox(&["create", "--dry-run", "-o", "yaml", "--name", "one", image]).await?;
    ensure!(dry.stdout.contains("kind: AgentSandbox") && sandboxes(&test).await?.is_empty(), "{dry:?}");
    let class = Runtime::Runc.class();
    let flags = ["create", "--name", "one", "--class", class, "--ttl", "30m", "--wait", "-o", "name"];
    let made = person.glovebox(&[&flags[..], &[image.as_str()]].concat()).await?;
    made.is(0)?;
    ensure!(made.stdout == "one\n", "{made:?}");
    person.glovebox(&["exec", "one", "--", "true"]).await?.is(0)?;
    let again = person.glovebox(&["create", "--name", "one", image]).await?;
    again.is(125)?;
    ensure!(again.stderr.contains("already"), "{again:?}");
    let list = person.glovebox(&["list", "-o", "wide"]).await?;
    ensure!(
        list.stdout.contains("one") && list.stdout.contains(class) && list.stdout.contains("Running"),
        "{list:?}"
    );
    ensure!(!list.stdout.contains('\u{1b}'), "coloured, and this is no terminal");
    let json: Value = serde_json::from_str(&person.glovebox(&["list", "-o", "json"]).await?.stdout)?;
    ensure!(json["items"][0]["metadata"]["name"] == "one", "{json}");
    // What uses how much is the metrics API's to say, which a cluster need not have.
    let top = person.glovebox(&["top", "one"]).await?;
    let says = if top.code == 0 { top.stdout.contains("one") } else { top.stderr.contains("metrics-server") };
    ensure!(says && [0, 125].contains(&top.code), "{top:?}");
    let sooner = person.glovebox(&["extend", "one", "10m"]).await?;
    sooner.is(0)?;
    ensure!(sooner.stdout.contains("ends in 9m") || sooner.stdout.contains("ends in 10m"), "{sooner:?}");
    let later = person.glovebox(&["extend", "one", "40m"]).await?;
    later.is(125)?;
    ensure!(later.stderr.contains("only come earlier"), "{later:?}");
    person.glovebox(&["delete", "one"]).await?.is(0)?;
    let gone = person.glovebox(&["delete", "one"]).await?;
    // It may still be going.
    ensure!([0, 125].contains(&gone.code), "{gone:?}");
    person.glovebox(&["delete", "--ignore-not-found", "never"]).await?.is(0)
}

async fn refused(test: Arc<Test>) -> Outcome {
    let person = Person::admin(&test)?;
    let rules = json!({"egress": {"allow": [{"name": "index", "hosts": ["allowed.example"]}]}});
    let sandbox = test.running(Runtime::Runc, "curious", &rules).await?;
    let script = "import socket\ntry: socket.getaddrinfo('evil.example', 443)\nexcept OSError: pass";
    wait::poll("describe tells of the refusal", async || {
        sandbox.python(script, &[]).await?;
        let ended = person.glovebox(&["describe", "curious", "-o", "json"]).await?;
        ended.is(0)?;
        let told: Value = serde_json::from_str(&ended.stdout)?;
        ensure!(told["reach"][0]["rules"][0]["hosts"] == json!(["allowed.example"]), "{told}");
        let refused = told["refused"].as_array().cloned().unwrap_or_default();
        Ok(refused.iter().any(|one| one["message"].to_string().contains("evil.example")).then_some(()))
    })
    .await?;
    let shown = person.glovebox(&["describe", "curious"]).await?;
    for part in
        ["Takes calls:", "yes", "allowed.example", "EgressRefused", "evil.example was not", "FenceVerified"]
    {
        ensure!(shown.stdout.contains(part), "{part:?} is not in\n{}", shown.stdout);
    }
    // Why one is not ready is told, too.
    test.sandbox(Runtime::Runc, "big", &json!({"resources": {"memory": "64Gi"}})).await?;
    wait::poll("describe tells why", async || {
        let ended = person.glovebox(&["describe", "big"]).await?;
        Ok(ended.stdout.contains("no: ExceedsClass").then_some(()))
    })
    .await
}

async fn rights(test: Arc<Test>) -> Outcome {
    let admin = Person::admin(&test)?;
    let _sandbox = test.running(Runtime::Runc, "calls", &json!({})).await?;
    // By a token of their own, over a connection that somebody else's right opens.
    let exec = async |token: &str| -> Result<Ended> {
        let file = admin.file("token", token)?;
        let session = ["exec", "calls", "--session-token-file", &file, "--", "true"];
        admin.glovebox(&session).await
    };
    exec(&caller(&test, "may", &["agentsandboxes/exec"], &["create"], None).await?).await?.is(0)?;
    let not = exec(&caller(&test, "may-not", &["agentsandboxes"], &["get"], None).await?).await?;
    not.is(125)?;
    ensure!(not.stderr.contains("agentsandboxes/exec") && not.stderr.contains("verbs: [create]"), "{not:?}");
    let stale = exec("stale").await?;
    stale.is(125)?;
    ensure!(stale.stderr.contains("Unauthenticated"), "{stale:?}");
    // Who may do nothing is told by the API server.
    let token = caller(&test, "nobody", &[], &[], None).await?;
    let nobody = Person::with_token(&test, &token)?;
    let list = nobody.glovebox(&["list"]).await?;
    list.is(125)?;
    ensure!(list.stderr.contains("you may not") && list.stderr.contains("nobody"), "{list:?}");
    Ok(())
}

async fn help(test: Arc<Test>) -> Outcome {
    let person = Person::admin(&test)?;
    for command in COMMANDS {
        let ended = person.glovebox(&[command, "--help"]).await?;
        ended.is(0)?;
        ensure!(ended.stdout.contains(&format!("glovebox {command}")), "{command} has no example");
        person.glovebox(&[command, "--no-such-flag"]).await?.is(2)?;
    }
    let plugin = person.plugin(&["--help"]).await?;
    plugin.is(0)?;
    ensure!(plugin.stdout.contains("kubectl glovebox") && !plugin.stdout.contains("gateway"), "{plugin:?}");
    person.plugin(&["list"]).await?.is(0)?;
    tokio::time::timeout(Duration::from_secs(20), person.glovebox(&["completion", "bash"])).await??.is(0)
}
