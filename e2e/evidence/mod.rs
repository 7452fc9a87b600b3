//! The record: each act of one sandbox's life is found in it, whoever alters it is found out, and those outside this project who know the
//! standards can verify it.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context as _, Result, ensure};
use glovebox::api::AgentSandbox;
use k8s_openapi::api::{apps::v1::StatefulSet, core::v1::PodTemplateSpec};
use kube::{Api, ResourceExt as _, api::Patch};
use serde_json::{Value, json};

use crate::{
    cli::Person,
    harness::{Cases, Outcome, Runtime, Test, program, test::skip, wait},
    session::caller,
};

mod changed;
mod exported;
mod killed;
mod suspected;

const LIFE: &str = include_str!("life.py");
/// A program in Go that knows the standards alone.
const STANDARD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/e2e/evidence/standard");

pub(crate) fn cases(cases: &mut Cases) {
    cases.each_runtime("evidence::each_act_of_a_life_is_on_the_record", 300, life);
    cases.each_runtime("evidence::a_prober_is_stopped_at_its_third_act", 300, suspected::prober);
    cases.add("evidence::a_prober_is_ended_where_its_class_says_so", 300, suspected::terminated);
    cases.add("evidence::a_prober_is_slowed_down_where_its_class_says_so", 300, suspected::throttled);
    cases.add("evidence::an_installer_is_left_alone", 300, suspected::installer);
    cases.add("evidence::what_owners_change_is_on_the_record", 300, changed::changed);
    cases.add("evidence::who_may_not_read_is_told_the_rule", 0, rights);
    cases.add("evidence::each_tampering_is_named_with_its_place", 0, tampering);
    cases.add("evidence::standard_tools_verify_it", 0, standard);
}

/// Those that need the cluster for themselves.
pub(crate) fn alone(cases: &mut Cases) {
    cases.add("alone::evidence::killed_at_random_no_act_goes_unrecorded", 1200, killed::killed);
    cases.add("alone::evidence::a_collector_gets_all_of_it_in_order", 500, exported::exported);
}

/// Somebody who may read all of a trail, where there is one.
async fn reader(test: &Test) -> Result<Person> {
    let sets: Api<StatefulSet> = Api::namespaced(test.client.clone(), &test.controller()?.namespace);
    sets.get_opt("glovebox-audit").await?.ok_or_else(|| skip("needs the chart's audit.enabled"))?;
    Person::admin(test)
}

/// A patch after which the first container of a template has this flag, with a value or without; or has it not.
fn with_flag(template: Option<&PodTemplateSpec>, flag: &str, wanted: Option<String>) -> Result<Patch<Value>> {
    let container = template.and_then(|template| template.spec.as_ref()?.containers.first());
    let container = container.context("a template without a container")?;
    let mut arguments = container.args.clone().unwrap_or_default();
    arguments.retain(|argument| argument.split('=').next() != Some(flag));
    arguments.extend(wanted);
    let pod = json!({"containers": [{"name": container.name, "args": arguments}]});
    Ok(Patch::Strategic(json!({"spec": {"template": {"spec": pod}}})))
}

/// What `audit query` finds, as OCSF events.
async fn query(person: &Person, arguments: &[&str]) -> Result<Vec<Value>> {
    let ended = person.glovebox(&[&["audit", "query", "-o", "json"], arguments].concat()).await?;
    ended.is(0)?;
    ended.stdout.lines().map(|line| serde_json::from_str(line).context("a record")).collect()
}

fn of<'a>(all: &'a [Value], act: &str) -> Vec<&'a Value> {
    all.iter().filter(|record| record["activity_name"] == act).collect()
}

fn one<'a>(all: &'a [Value], act: &str) -> Result<&'a Value> {
    let found = of(all, act);
    ensure!(found.len() == 1, "{act}: {} records, not one", found.len());
    Ok(found[0])
}

async fn life(test: Arc<Test>, runtime: Runtime) -> Outcome {
    test.world().await?;
    let person = reader(&test).await?;
    let spec = json!({
        "command": ["sh", "-c", "echo begun; until test -e /workspace/end; do sleep 0.2; done; exit 3"],
        "egress": {"allow": [{"name": "index", "hosts": ["allowed.example"]}]},
    });
    let sandbox = test.running(runtime, "lived", &spec).await?;
    let api: Api<AgentSandbox> = test.api();
    let uid = api.get("lived").await?.uid().context("no uid")?;
    let script = person.file("life.py", LIFE)?;
    person.glovebox(&["cp", &script, "lived:life.py"]).await?.is(0)?;
    person.glovebox(&["exec", "lived", "--", "python3", "/workspace/life.py"]).await?.is(0)?;
    person
        .glovebox(&["exec", "lived", "--", "sh", "-c", "printf out; printf err >&2; exit 7"])
        .await?
        .is(7)?;
    let file = person.file("given", "what is given")?;
    person.glovebox(&["cp", &file, "lived:given"]).await?.is(0)?;
    person.glovebox(&["cp", "lived:given", &person.file("back", "")?]).await?.is(0)?;
    person.glovebox(&["logs", "lived"]).await?.is(0)?;
    let stranger = caller(&test, "stranger", &["agentsandboxes"], &["get"], None).await?;
    let token = person.file("token", &stranger)?;
    person.glovebox(&["exec", "lived", "--session-token-file", &token, "--", "true"]).await?.is(125)?;
    person.glovebox(&["exec", "lived", "--", "touch", "/workspace/end"]).await?;
    sandbox.ended().await?;
    let all = wait::poll("the record is whole", async || {
        let all = query(&person, &["--uid", &uid]).await?;
        let whole = !of(&all, "SandboxEnded").is_empty()
            && !of(&all, "NameRefused").is_empty()
            && !of(&all, "EgressRefused").is_empty()
            && !of(&all, "EgressClosed").is_empty();
        Ok(whole.then_some(all))
    })
    .await?;
    judge(&all, runtime)?;
    // Who was refused never learned of the sandbox, so that its uid is not in that record.
    let denied = query(&person, &["lived", "--act", "AccessDenied"]).await?;
    let denied = denied.first().context("the refusal of a stranger is not on the record")?;
    ensure!(denied["actor"]["user"]["name"].as_str().unwrap_or_default().ends_with(":stranger"), "{denied}");
    let text = person.glovebox(&["audit", "query", "lived"]).await?.stdout;
    for part in ["EgressRefused", "evil.example:443", "CallEnded", "exit 7", "given", "SandboxEnded"] {
        ensure!(text.contains(part), "{part:?} is not in\n{text}");
    }
    // Neither what was sent nor what a file holds is on the record.
    let all = json!(all).to_string();
    ensure!(!all.contains("not-for-the-record") && !all.contains("what is given"), "{all}");
    Ok(())
}

fn judge(all: &[Value], runtime: Runtime) -> Result<()> {
    for record in all {
        let about = &record["sandbox"];
        ensure!(about["name"] == "lived" && about["class"] == runtime.class(), "{record}");
        ensure!(
            about["requester"].as_str().is_some_and(|who| !who.is_empty()),
            "nobody asked for it: {record}"
        );
    }
    let started = one(all, "SandboxStarted")?;
    let kernel = if runtime == Runtime::Runc { "node" } else { "gVisor" };
    ensure!(started["sandbox"]["kernel"].to_string().contains(kernel), "{started}");
    let ended = one(all, "SandboxEnded")?;
    ensure!(ended["status_detail"] == "Error" && ended["message"] == "exit code 3", "{ended}");
    let opened = one(all, "EgressOpened")?;
    let end = &opened["dst_endpoint"];
    ensure!(
        end["hostname"] == "allowed.example" && end["port"] == 443 && opened["rule"] == "index",
        "{opened}"
    );
    ensure!(end["intermediate_ips"].as_array().is_some_and(|all| !all.is_empty()), "{opened}");
    let closed = one(all, "EgressClosed")?;
    ensure!(closed["connection_uid"] == opened["connection_uid"], "{closed}");
    ensure!(
        closed["traffic"]["bytes_out"].as_u64() > Some(100) && closed["dst_endpoint"]["ip"].is_string(),
        "{closed}"
    );
    let refused = one(all, "EgressRefused")?;
    ensure!(
        refused["dst_endpoint"]["hostname"] == "evil.example" && refused["status_detail"] == "NoRule",
        "{refused}"
    );
    let name = one(all, "NameRefused")?;
    ensure!(name["dst_endpoint"]["hostname"] == "data.not-for-anybody.evil.example", "{name}");
    let calls = of(all, "CallEnded");
    let failed =
        calls.iter().find(|call| call["process"]["exit_code"] == 7).context("no call ended with 7")?;
    ensure!(failed["process"]["output_size"] == 6 && failed["actor"]["user"]["name"].is_string(), "{failed}");
    let starts = of(all, "CallStarted");
    let begun = starts.iter().find(|call| call["process"]["uid"] == failed["process"]["uid"]);
    let begun = begun.context("a call ended that never began")?;
    ensure!(begun["process"]["cmd_line"].as_str().is_some_and(|line| line.starts_with("sh -c ")), "{begun}");
    ensure!(of(all, "FileWritten").iter().any(|one| one["file"]["path"] == "given"), "no file was written");
    ensure!(of(all, "FileRead").iter().any(|one| one["file"]["path"] == "given"), "no file was read");
    ensure!(!of(all, "LogsRead").is_empty(), "no log was read");
    Ok(())
}

async fn rights(test: Arc<Test>) -> Outcome {
    let admin = reader(&test).await?;
    let read = async |token: &str, arguments: &[&str]| {
        let file = admin.file("token", token)?;
        admin.glovebox(&[&["audit", "query", "--audit-token-file", &file], arguments].concat()).await
    };
    let here = caller(&test, "auditor", &["auditrecords"], &["get"], None).await?;
    read(&here, &[]).await?.is(0)?;
    let all = read(&here, &["-A"]).await?;
    all.is(125)?;
    ensure!(all.stderr.contains("resources: [auditrecords], verbs: [get]"), "{all:?}");
    let other = caller(&test, "user", &["agentsandboxes"], &["get"], None).await?;
    read(&other, &[]).await?.is(125)?;
    read("stale", &[]).await?.is(125)
}

/// A copy of the trail, and the line of it at which each attack is tried.
struct Copy {
    folder: PathBuf,
    segment: PathBuf,
    lines: Vec<String>,
}

impl Drop for Copy {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl Copy {
    async fn take(person: &Person) -> Result<Self> {
        let folder = std::env::temp_dir().join(format!("glovebox-trail-{}", crate::harness::random()?));
        person.glovebox(&["audit", "export", &folder.to_string_lossy()]).await?.is(0)?;
        let mut segments: Vec<_> = fs::read_dir(&folder)?
            .filter_map(|file| Some(file.ok()?.path()))
            .filter(|path| path.extension().is_some_and(|end| end == "jsonl"))
            .collect();
        segments.sort();
        // One that was just begun has too little in it to be attacked.
        let read = |segment: PathBuf| {
            let lines: Vec<String> =
                fs::read_to_string(&segment).ok()?.lines().map(ToOwned::to_owned).collect();
            (lines.len() > 8).then_some((segment, lines))
        };
        let found = segments.into_iter().rev().find_map(read);
        let (segment, lines) = found.context("a trail with next to nothing in it")?;
        Ok(Self { folder, segment, lines })
    }

    /// What `verify` says of other lines.
    async fn with(&self, person: &Person, lines: &[String]) -> Result<(i32, Value)> {
        fs::write(&self.segment, lines.iter().map(|line| format!("{line}\n")).collect::<String>())?;
        let ended =
            person.glovebox(&["audit", "verify", "--json", "--dir", &self.folder.to_string_lossy()]).await?;
        Ok((ended.code, serde_json::from_str(&ended.stdout).with_context(|| format!("{ended:?}"))?))
    }
}

type Attack<'a> = dyn Fn(&mut Vec<String>) + Sync + 'a;

async fn tampering(test: Arc<Test>) -> Outcome {
    let person = reader(&test).await?;
    // So that there is something behind the place.
    test.running(Runtime::Runc, "first", &json!({})).await?;
    person.glovebox(&["exec", "first", "--", "true"]).await?.is(0)?;
    person.glovebox(&["exec", "first", "--", "false"]).await?.is(1)?;
    person.glovebox(&["audit", "verify"]).await?.is(0)?;
    let copy = Copy::take(&person).await?;
    ensure!(copy.with(&person, &copy.lines).await?.0 == 0, "the copy itself is not good");
    let entries: Vec<usize> = (0..copy.lines.len()).filter(|at| copy.lines[*at].starts_with('{')).collect();
    let at = entries[entries.len() / 2];
    let n: Value = serde_json::from_str(&copy.lines[at])?;
    let n = n["n"].to_string();
    let flip = |lines: &mut Vec<String>| lines[at] = lines[at].replacen("\"time\":1", "\"time\":2", 1);
    let drop_it = |lines: &mut Vec<String>| std::mem::drop(lines.remove(at));
    let twice = |lines: &mut Vec<String>| lines.insert(at, lines[at].clone());
    let attacks: [(&str, &Attack<'_>); 3] =
        [("a flipped byte", &flip), ("a dropped record", &drop_it), ("a record twice", &twice)];
    for (what, attack) in attacks {
        let mut lines = copy.lines.clone();
        attack(&mut lines);
        ensure!(lines != copy.lines, "{what} changes nothing");
        let (code, said) = copy.with(&person, &lines).await.context(what)?;
        let place = said["line"].as_u64().unwrap_or_default();
        let near = place.abs_diff(at as u64 + 1) <= 2;
        ensure!(
            code == 1 && near && said["fault"].to_string().contains(&n),
            "{what}: {said}, not line {} with {n}",
            at + 1
        );
    }
    let mut moved = copy.lines.clone();
    let (a, b) = (entries[entries.len() - 2], entries[entries.len() - 1]);
    moved.swap(a, b);
    ensure!(copy.with(&person, &moved).await?.0 == 1, "records that were exchanged");
    let (code, said) = copy.with(&person, &copy.lines[..at]).await?;
    ensure!(code == 1, "a trail that was cut off: {said}");
    Ok(())
}

async fn standard(test: Arc<Test>) -> Outcome {
    test.local().map_err(|_| skip("needs Go, with which the local cluster is built"))?;
    let person = reader(&test).await?;
    let copy = Copy::take(&person).await?;
    let number: Value =
        serde_json::from_str(copy.lines.iter().rfind(|line| line.starts_with('{')).context("no entry")?)?;
    let proof = person.glovebox(&["audit", "prove", &number["n"].to_string()]).await?;
    proof.is(0)?;
    let good = person.file("proof", &proof.stdout)?;
    let keys = copy.folder.join("keys");
    let program = copy.folder.join("standard");
    go(&program).await?;
    let verify = async |key: &Path, proof: &str| {
        program::run(&program.to_string_lossy(), &[&key.to_string_lossy(), proof], "").await
    };
    let said = verify(&keys, &good).await?;
    ensure!(said.contains(&format!("entry {}", number["n"])), "{said}");
    let index = format!("index {}\n", number["n"]);
    let other = person.file("other", &proof.stdout.replace(&index, "index 0\n"))?;
    ensure!(verify(&keys, &other).await.is_err(), "a proof of another place is taken");
    Ok(())
}

async fn go(out: &Path) -> Result<()> {
    let script = format!(
        "cd '{STANDARD}' && GOFLAGS= GOWORK=off GOTOOLCHAIN=local CGO_ENABLED=0 go build -o '{}' .",
        out.display()
    );
    program::run("sh", &["-c", &script], "").await.map(drop)
}
