//! What no rule names, where a class has it asked for: refused, listed, approved for its hash and a while, reached, over, refused; and each way
//! to cheat with that, which fails.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use glovebox::api::{ApprovalPhase, EgressApproval};
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::{
    cli::Person,
    harness::{Cases, Outcome, Runtime, Sandbox, Test, wait},
    session::caller,
};

const ASKER: &str = include_str!("asker.py");
const HOST: &str = "granted.example";

pub(crate) fn cases(cases: &mut Cases) {
    cases.each_runtime("approvals::asked_listed_approved_reached_over_and_refused", 300, story);
    cases.add("approvals::a_connection_waits_for_the_answer_where_the_class_holds_it", 300, held);
    cases.add("approvals::who_may_decide_is_rbac_and_never_who_made_the_sandbox", 300, rights);
    cases.add("approvals::a_flood_asks_no_more_than_it_may", 300, flood);
    cases.add("approvals::a_namesake_has_nothing_of_it", 450, namesake);
}

/// A class that has things asked for.
async fn class(test: &Test, ask: Value) -> Result<String> {
    test.world().await?;
    test.class(Runtime::Runc, "asks", &json!({"egress": {"unmatched": "Ask", "ask": ask}})).await
}

async fn asking(test: &Test, class: &str, runtime: Runtime, arguments: &[&str]) -> Result<Sandbox> {
    let command: Vec<&str> = ["python3", "-u", "-c", ASKER].iter().chain(arguments).copied().collect();
    let spec = json!({"className": class, "command": command});
    test.running(runtime, "asks", &spec).await
}

/// The one question of a sandbox, in this phase.
async fn question(test: &Test, phase: ApprovalPhase) -> Result<EgressApproval> {
    let api: Api<EgressApproval> = test.api();
    let what = format!("one question is {}", phase.as_str());
    wait::poll(&what, async || {
        let all = api.list(&ListParams::default()).await?.items;
        ensure!(all.len() < 2, "there are {} questions", all.len());
        let right = |one: &EgressApproval| one.status.as_ref().is_some_and(|status| status.phase == phase);
        Ok(all.into_iter().find(right))
    })
    .await
}

async fn story(test: Arc<Test>, runtime: Runtime) -> Outcome {
    let person = Person::admin(&test)?;
    let world = test.world().await?;
    let questions = world.questions()?;
    let name = test
        .class(
            runtime,
            "asks",
            &json!({"egress": {"unmatched": "Ask", "ask": {"ttl": {"default": "8s", "max": "1h"}}}}),
        )
        .await?;
    let sandbox = asking(&test, &name, runtime, &[HOST]).await?;
    sandbox.logged("says Asked").await?;
    let asked = question(&test, ApprovalPhase::Pending).await?;
    ensure!(asked.spec.host == HOST && asked.spec.port == 443, "{:?}", asked.spec);
    let listed = person.glovebox(&["approvals", "list"]).await?;
    listed.is(0)?;
    for part in [HOST, "Pending", "asks"] {
        ensure!(listed.stdout.contains(part), "{part:?} is not in\n{}", listed.stdout);
    }
    let long = person.glovebox(&["approvals", "approve", &asked.name_any(), "--ttl", "2h"]).await?;
    long.is(0)?;
    let invalid = question(&test, ApprovalPhase::Invalid).await?;
    let why = invalid.status.and_then(|status| status.message).unwrap_or_default();
    ensure!(why.contains("the class allows at most 1h"), "{why}");
    let words = ["approvals", "approve", &asked.name_any(), "--reason", "the task needs it"];
    person.glovebox(&words).await?.is(0)?;
    sandbox.logged("says reached").await?;
    question(&test, ApprovalPhase::Expired).await?;
    let log = wait::poll("it is refused again", async || {
        let log = sandbox.log().await?;
        // One more where a replica heard of the approval later than another.
        Ok((log.matches("says Asked").count() >= 2).then_some(log))
    })
    .await?;
    println!("figure: {}", log.lines().last().unwrap_or_default());
    // Nothing was asked of any name server while nobody had decided.
    let all = questions.until(HOST).await?;
    ensure!(!all.is_empty(), "the world's DNS was never asked");
    // Once more, and then no.
    let reached = log.matches("says reached").count();
    person.glovebox(&["approvals", "approve", &asked.name_any(), "--ttl", "1h"]).await?.is(0)?;
    wait::poll("it is reached again", async || {
        Ok((sandbox.log().await?.matches("says reached").count() > reached).then_some(()))
    })
    .await?;
    person.glovebox(&["approvals", "deny", &asked.name_any(), "--reason", "use the mirror"]).await?.is(0)?;
    sandbox.logged("says AskedInVain").await?;
    question(&test, ApprovalPhase::Denied).await?;
    recorded(&person).await
}

async fn recorded(person: &Person) -> Outcome {
    wait::poll("it is on the record", async || {
        let ended = person.glovebox(&["audit", "query", "-o", "json", "asks"]).await?;
        ended.is(0)?;
        let all: Vec<Value> = ended.stdout.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
        let decided: Vec<&str> = all
            .iter()
            .filter(|one| one["activity_name"] == "EgressDecided" && one["dst_endpoint"]["hostname"] == HOST)
            .filter_map(|one| one["status_detail"].as_str())
            .collect();
        let asked = all.iter().filter(|one| one["activity_name"] == "EgressAsked").count();
        Ok((asked == 1 && decided == ["Invalid", "Approved", "Expired", "Approved", "Denied"]).then_some(()))
    })
    .await
}

async fn held(test: Arc<Test>) -> Outcome {
    let person = Person::admin(&test)?;
    let class = class(&test, json!({"hold": "60s"})).await?;
    let sandbox = asking(&test, &class, Runtime::Runc, &[HOST]).await?;
    let asked = question(&test, ApprovalPhase::Pending).await?;
    person.glovebox(&["approvals", "approve", &asked.name_any()]).await?.is(0)?;
    let log = sandbox.logged("says").await?;
    ensure!(log.contains("says reached") && !log.contains("Asked"), "it was refused first:\n{log}");
    Ok(())
}

/// Somebody with a token who has these verbs on approvals.
async fn somebody(test: &Test, name: &str, verbs: &[&str]) -> Result<Person> {
    let all: Vec<&str> = ["get", "list", "update", "patch"].iter().chain(verbs).copied().collect();
    let token =
        caller(test, name, &["egressapprovals", "agentsandboxes"], &[&all[..], &["create"]].concat(), None)
            .await?;
    Person::with_token(test, &token)
}

async fn rights(test: Arc<Test>) -> Outcome {
    let class = class(&test, json!({})).await?;
    let maker = somebody(&test, "maker", &["approve"]).await?;
    let binding: RoleBinding = serde_json::from_value(json!({
        "metadata": {"name": "use"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "use"},
        "subjects": [{"kind": "ServiceAccount", "name": "maker", "namespace": test.namespace}],
    }))?;
    let role = serde_json::from_value::<k8s_openapi::api::rbac::v1::Role>(json!({
        "metadata": {"name": "use"},
        "rules": [{"apiGroups": ["glovebox.dev"], "resources": ["sandboxclasses"], "verbs": ["use"]}],
    }))?;
    test.api().create(&PostParams::default(), &role).await?;
    test.api().create(&PostParams::default(), &binding).await?;
    let words = ["python3", "-u", "-c", ASKER, HOST];
    let create = ["create", "glovebox.dev/tools:1", "--name", "asks", "--class", &class, "--"];
    maker.glovebox(&[&create[..], &words].concat()).await?.is(0)?;
    let asked = question(&test, ApprovalPhase::Pending).await?;
    ensure!(
        asked.spec.sandbox.requester.as_deref().is_some_and(|who| who.ends_with(":maker")),
        "{:?}",
        asked.spec
    );
    let name = asked.name_any();
    let refused = async |who: &Person, why: &str| {
        let ended = who.glovebox(&["approvals", "approve", &name]).await?;
        ended.is(125)?;
        ensure!(ended.stderr.contains(why), "{why:?} is not in {}", ended.stderr);
        Ok::<_, anyhow::Error>(())
    };
    refused(&maker, "made this sandbox").await?;
    refused(&somebody(&test, "nobody", &[]).await?, "may not decide").await?;
    cheats(&test, &asked).await?;
    let other = somebody(&test, "other", &["approve"]).await?;
    other.glovebox(&["approvals", "approve", &name]).await?.is(0)?;
    question(&test, ApprovalPhase::Approved).await.map(drop)
}

/// What even an administrator can't: decide in another's name, on something else than was asked, or on what nobody asked for.
async fn cheats(test: &Test, asked: &EgressApproval) -> Outcome {
    let api: Api<EgressApproval> = test.api();
    let name = asked.name_any();
    let decision = json!({"verdict": "Approved", "ruleHash": asked.spec.rule_hash, "by": "somebody else"});
    let other = json!({"host": "evil.example"});
    for (what, spec, why) in [
        ("in another's name", json!({"decision": decision}), "spec.decision.by"),
        ("another host", other, "only spec.decision may be changed"),
        ("another sandbox", json!({"sandbox": {"uid": "other"}}), "only spec.decision may be changed"),
    ] {
        let patched = api.patch(&name, &PatchParams::default(), &Patch::Merge(json!({"spec": spec}))).await;
        let error = patched.err().with_context(|| format!("{what}: it was taken"))?.to_string();
        ensure!(error.contains(why), "{what}: {error}");
    }
    let mut forged = asked.clone();
    forged.metadata = kube::api::ObjectMeta { name: Some("forged".into()), ..Default::default() };
    let made = api.create(&PostParams::default(), &forged).await;
    let error = made.err().context("a question that nobody asked was made")?.to_string();
    ensure!(error.contains("made by the Glovebox controller alone"), "{error}");
    Ok(())
}

async fn flood(test: Arc<Test>) -> Outcome {
    let class = class(&test, json!({"mostPending": 3})).await?;
    let sandbox = asking(&test, &class, Runtime::Runc, &["flood.example", "50"]).await?;
    sandbox.logged("flooded").await?;
    let metadata = sandbox.python("import os, socket\np = os.environ['http_proxy'].removeprefix('http://').rstrip('/').rsplit(':', 1)\ns = socket.create_connection((p[0], int(p[1])))\ns.sendall(b'CONNECT metadata.google.internal:443 HTTP/1.1\\r\\nHost: metadata.google.internal:443\\r\\n\\r\\n')\nprint(s.recv(4096).decode())", &[]).await?;
    ensure!(metadata.contains("MetadataName"), "{metadata}");
    let api: Api<EgressApproval> = test.api();
    let all = wait::poll("there are questions", async || {
        let all = api.list(&ListParams::default()).await?.items;
        Ok((all.len() >= 3).then_some(all))
    })
    .await?;
    let hosts: Vec<&str> = all.iter().map(|one| one.spec.host.as_str()).collect();
    ensure!(all.len() == 3 && hosts.iter().all(|host| host.ends_with(".flood.example")), "{hosts:?}");
    Ok(())
}

async fn namesake(test: Arc<Test>) -> Outcome {
    let person = Person::admin(&test)?;
    let class = class(&test, json!({})).await?;
    let sandbox = asking(&test, &class, Runtime::Runc, &[HOST]).await?;
    let asked = question(&test, ApprovalPhase::Pending).await?;
    person.glovebox(&["approvals", "approve", &asked.name_any()]).await?.is(0)?;
    sandbox.logged("says reached").await?;
    sandbox.delete().await?;
    sandbox.gone().await?;
    let again = asking(&test, &class, Runtime::Runc, &[HOST]).await?;
    let log = again.logged("says").await?;
    ensure!(log.contains("says Asked") && !log.contains("reached"), "a namesake reaches it:\n{log}");
    let api: Api<EgressApproval> = test.api();
    // What the former one had goes with it; until then it is no use.
    wait::gone(api.clone(), &asked.name_any(), "the former approval").await?;
    let new = question(&test, ApprovalPhase::Pending).await?;
    ensure!(new.spec.rule_hash != asked.spec.rule_hash, "the same hash for another sandbox");
    api.delete(&new.name_any(), &DeleteParams::default()).await.map(drop)?;
    Ok(())
}
