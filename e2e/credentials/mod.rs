//! Brokered credentials: a secret reaches its host and is nowhere else, what stands for it is worth nothing elsewhere, it changes and goes
//! without a restart, and nobody has one used that is not theirs to use.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::{
    authorization::v1::SubjectAccessReview,
    core::v1::{Event, Pod, Secret, ServiceAccount},
    rbac::v1::Role,
};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, ListParams, LogParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::{
    cli::Person,
    harness::{Cases, Outcome, Runtime, Sandbox, Test, program, random, wait},
};

mod named;

const USER: &str = include_str!("user.py");
const SEARCH: &str = include_str!("search.py");
/// Who gets the secret, and somebody else whom a rule names.
const HOST: &str = "api.allowed.example";
const OTHER: &str = "allowed.example";

pub(crate) fn cases(cases: &mut Cases) {
    cases.each_runtime("credentials::a_secret_reaches_its_host_and_is_nowhere_else", 300, secret);
    cases.add("credentials::what_stands_for_one_is_worth_nothing_elsewhere", 300, elsewhere);
    cases.add("credentials::a_secret_changes_and_goes_without_a_restart", 300, rotated);
    cases.add("credentials::a_token_is_made_for_its_audience", 300, token);
    cases.add("credentials::who_may_not_use_a_secret_does_not_name_it", 0, named::rights);
    cases.add("credentials::the_controller_grants_nothing_else", 0, named::grants);
}

/// A Secret with one key, in the test's namespace.
async fn keep(test: &Test, name: &str, value: &str) -> Result<()> {
    let api: Api<Secret> = test.api();
    let secret = serde_json::from_value(json!({"metadata": {"name": name}, "stringData": {"token": value}}))?;
    api.create(&PostParams::default(), &secret).await?;
    Ok(())
}

/// A sandbox that uses a credential all the time.
async fn using(test: &Test, runtime: Runtime, credential: Value, rule: Value) -> Result<Sandbox> {
    test.world().await?;
    let spec = json!({
        "command": ["python3", "-u", "-c", USER],
        "egress": {"allow": [rule, {"name": "other", "hosts": [OTHER], "protocol": "HTTPS"}]},
        "credentials": [credential],
    });
    test.running(runtime, "brokered", &spec).await
}

fn api() -> Value {
    json!({"name": "api", "hosts": [HOST]})
}

fn of_secret() -> Value {
    json!({"name": "api", "env": "API_KEY", "hosts": [HOST], "secretRef": {"name": "api", "key": "token"}})
}

/// Looks for these texts inside a sandbox, and on its node in all that its pod is made of. Where each was found.
async fn search(test: &Test, sandbox: &Sandbox, texts: &[&str]) -> Result<Vec<Vec<String>>> {
    let backwards = |text: &&str| text.bytes().rev().map(|byte| format!("{byte:02x}")).collect::<String>();
    let needles: Vec<String> = texts.iter().map(backwards).collect();
    let inside: Vec<&str> = ["inside"].into_iter().chain(needles.iter().map(String::as_str)).collect();
    let within = sandbox.python(SEARCH, &inside).await?;
    let pod = sandbox.pod().await?;
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).context("a pod on no node")?;
    let uid = pod.uid().context("a pod without uid")?;
    let command: Vec<&str> =
        ["python3", "-c", SEARCH, &uid].into_iter().chain(needles.iter().map(String::as_str)).collect();
    let without = test.local()?.on_node(&node, &command).await?;
    let mut all = vec![Vec::new(); texts.len()];
    for (where_from, text) in [("inside", within), ("on the node", without)] {
        let told: Value = serde_json::from_str(text.trim()).with_context(|| text.clone())?;
        println!("figure: {where_from}: {} processes, {} bytes", told["processes"], told["bytes"]);
        ensure!(told["processes"].as_u64() > Some(0), "nothing was searched {where_from}: {told}");
        for (found, places) in all.iter_mut().zip(told["found"].as_array().context("no places")?) {
            found.extend(
                places.as_array().into_iter().flatten().map(|place| format!("{where_from}: {place}")),
            );
        }
    }
    Ok(all)
}

/// All that the installation says and the API server keeps of a test: logs of our own pods, the record, objects, Events.
async fn told(test: &Test, sandbox: &Sandbox) -> Result<String> {
    let person = Person::admin(test)?;
    let mut all = person.glovebox(&["audit", "query", "-A", "-o", "json"]).await?.stdout;
    let pods: Api<Pod> = Api::namespaced(test.client.clone(), &test.controller()?.namespace);
    for pod in pods.list(&ListParams::default()).await?.items {
        for container in pod.spec.iter().flat_map(|spec| &spec.containers) {
            let params = LogParams { container: Some(container.name.clone()), ..LogParams::default() };
            all += &pods.logs(&pod.name_any(), &params).await.unwrap_or_default();
        }
    }
    let kinds = "agentsandboxes,pods,events,roles,rolebindings,networkpolicies,egressapprovals";
    all += &program::kubectl(&["get", "-n", &test.namespace, "-o", "yaml", kinds]).await?;
    all += &person.glovebox(&["describe", "brokered"]).await?.stdout;
    all += &sandbox.log().await?;
    Ok(all)
}

/// Whether the gateway may read a Secret of the test's namespace.
async fn may_read(test: &Test, secret: &str) -> Result<bool> {
    let user = format!("system:serviceaccount:{}:glovebox-gateway", test.controller()?.namespace);
    let review: SubjectAccessReview = serde_json::from_value(json!({
        "metadata": {},
        "spec": {"user": user, "resourceAttributes": {
            "namespace": test.namespace, "verb": "get", "resource": "secrets", "name": secret,
        }},
    }))?;
    let api: Api<SubjectAccessReview> = Api::all(test.client.clone());
    Ok(api.create(&PostParams::default(), &review).await?.status.is_some_and(|status| status.allowed))
}

async fn secret(test: Arc<Test>, runtime: Runtime) -> Outcome {
    let secret = format!("sk-e2e-{}{}", random()?, random()?);
    keep(&test, "api", &secret).await?;
    keep(&test, "another", "not-for-anybody").await?;
    ensure!(!may_read(&test, "api").await?, "the gateway may read a Secret that nobody named");
    // The rule has no protocol: who has a secret added has requests looked at.
    let sandbox = using(&test, runtime, of_secret(), api()).await?;
    let log = sandbox.logged("said 200").await?;
    // It was echoed, and taken out.
    let stars = "*".repeat(secret.len());
    ensure!(log.contains(&format!("Authorization: Bearer {stars}")), "the host echoed nothing:\n{log}");
    ensure!(!log.contains(&secret), "the workload was told its secret");
    let world = test.world().await?;
    let got = world.requests(&secret);
    ensure!(!got.is_empty(), "the secret did not arrive");
    for head in &got {
        ensure!(
            head.contains(&format!("Host: {HOST}\\r\\n")) || head.contains(&format!("Host: {HOST}\r\n")),
            "{head}"
        );
        ensure!(head.contains(&format!("Authorization: Bearer {secret}")), "{head}");
    }
    let away = log.lines().find(|line| line.starts_with("away")).context("it was not led away")?;
    ensure!(away.contains("Tunnel connection failed: 403"), "{away}");
    ensure!(
        may_read(&test, "api").await? && !may_read(&test, "another").await?,
        "the grant is not as it should be"
    );
    let role: Role = test.api().get("glovebox-credentials-brokered").await?;
    ensure!(role.owner_references().iter().any(|owner| owner.uid == sandbox.uid), "{role:?}");
    // What stands for it is found by the same search, so that the search finds what is there.
    let ours = sandbox.sh("printf %s \"$API_KEY\"").await?;
    ensure!(ours.starts_with("glovebox-placeholder-"), "{ours:?}");
    let found = search(&test, &sandbox, &[&secret, &ours]).await?;
    ensure!(found[0].is_empty(), "the secret is in the sandbox: {:?}", found[0]);
    for place in ["inside", "on the node"] {
        ensure!(
            found[1].iter().any(|found| found.starts_with(place)),
            "the search finds nothing {place}: {:?}",
            found[1]
        );
    }
    let person = Person::admin(&test)?;
    let all = wait::poll("its use is on the record", async || {
        let ended =
            person.glovebox(&["audit", "query", "-o", "json", "brokered", "--act", "CredentialUsed"]).await?;
        Ok((!ended.stdout.is_empty()).then_some(ended.stdout))
    })
    .await?;
    let first: Value = serde_json::from_str(all.lines().next().context("no record")?)?;
    ensure!(first["credential"] == "api" && first["dst_endpoint"]["hostname"] == HOST, "{first}");
    ensure!(first["message"] == "key \"token\" of Secret \"api\"", "{first}");
    let told = told(&test, &sandbox).await?;
    ensure!(told.contains("CredentialUsed") && told.contains(&ours), "what is told is not all");
    let line = told.lines().find(|line| line.contains(&secret));
    ensure!(line.is_none(), "the secret is told: {line:?}");
    // With its end goes the right.
    sandbox.patch(json!({"ttl": "1s"})).await?;
    sandbox.ended().await?;
    wait::poll("the grant goes", async || Ok((!may_read(&test, "api").await?).then_some(()))).await?;
    sandbox.status().await.map(drop)
}

async fn elsewhere(test: Arc<Test>) -> Outcome {
    keep(&test, "api", "sk-e2e-elsewhere").await?;
    let mut credential = of_secret();
    credential["paths"] = json!(["/ok", "/away"]);
    let rule = json!({"name": "api", "hosts": [HOST], "protocol": "HTTPS", "requireBrokered": true});
    let sandbox = using(&test, Runtime::Runc, credential, rule).await?;
    sandbox.logged("said 200").await?;
    let curl = |fields: &str, url: &str| {
        let script = format!("curl -sS -m 20 -w '\\n%{{http_code}}' {fields} '{url}'");
        let sandbox = &sandbox;
        async move { sandbox.sh(&script).await }
    };
    let ours = "-H \"Authorization: Bearer $API_KEY\"";
    for (fields, url, reason) in [
        (ours, format!("https://{OTHER}/ok"), "CredentialElsewhere"),
        ("-H \"X: $API_KEY\"", format!("https://{OTHER}/ok"), "CredentialElsewhere"),
        ("-u \"x:$API_KEY\"", format!("https://{OTHER}/ok"), "CredentialElsewhere"),
        (ours, format!("https://{HOST}/other"), "CredentialMisplaced"),
        ("-H 'Authorization: Bearer of-my-own'", format!("https://{HOST}/ok"), "CredentialForeign"),
        ("-H 'X-Api-Key: of-my-own'", format!("https://{HOST}/other"), "CredentialForeign"),
        ("-X PUT", format!("https://{HOST}/ok?X-Amz-Signature=of-my-own"), "CredentialForeign"),
        ("-H \"X-Api-Key: of-my-own; $API_KEY\"", format!("https://{HOST}/ok"), "CredentialForeign"),
        ("", format!("https://{HOST}/ok?key=of-my-own"), "CredentialDoubtful"),
    ] {
        let said = curl(fields, &url).await?;
        ensure!(
            said.contains(&format!("\"reason\":\"{reason}\"")) && said.ends_with("403"),
            "{fields} {url}: {said}"
        );
    }
    // The honest twins: with what stands for it, with nothing, and as a password.
    for fields in [ours, "", "-u \"x:$API_KEY\"", "-b session=of-my-own"] {
        let said = curl(fields, &format!("https://{HOST}/ok")).await?;
        ensure!(said.ends_with("200") && !said.contains("sk-e2e"), "{fields}: {said}");
    }
    ensure!(curl("", &format!("https://{HOST}/other")).await?.ends_with("200"), "without any it is refused");
    let world = test.world().await?;
    let place = sandbox.sh("printf %s \"$API_KEY\"").await?;
    ensure!(world.requests(&place).is_empty(), "what stands for a credential left the gateway");
    ensure!(world.requests("of-my-own").is_empty(), "a foreign credential left the gateway");
    let events: Api<Event> = test.api();
    wait::poll("an Event says it", async || {
        let all = events.list(&ListParams::default()).await?;
        let notes: Vec<String> = all.items.into_iter().filter_map(|event| event.message).collect();
        Ok(notes.iter().any(|note| note.contains("CredentialElsewhere")).then_some(()))
    })
    .await
}

async fn rotated(test: Arc<Test>) -> Outcome {
    let (first, second) = (format!("sk-first-{}", random()?), format!("sk-second-{}", random()?));
    keep(&test, "api", &first).await?;
    let sandbox = using(&test, Runtime::Runc, of_secret(), api()).await?;
    sandbox.logged("said 200").await?;
    let world = test.world().await?;
    let secrets: Api<Secret> = test.api();
    let set = async |text: &str| {
        let patch = Patch::Merge(json!({"stringData": {"token": text}}));
        secrets.patch("api", &PatchParams::default(), &patch).await
    };
    set(&second).await?;
    wait::poll("the new secret arrives", async || Ok((!world.requests(&second).is_empty()).then_some(())))
        .await?;
    let pod = sandbox.pod().await?;
    ensure!(
        pod.status
            .iter()
            .flat_map(|status| status.container_statuses.iter().flatten())
            .all(|one| one.restart_count == 0),
        "{pod:?}"
    );
    // Each replica takes it up by itself: from some time on, a dozen come with the new one in a row, and none with the old.
    let mut last = (0, 0);
    wait::poll("the old secret is used no more", async || {
        let now = (world.requests(&first).len(), world.requests(&second).len());
        last = if now.0 == last.0 { last } else { now };
        Ok((now.1 >= last.1 + 12).then_some(()))
    })
    .await?;
    set("sk-broken\r\nX-Injected: y").await?;
    let events: Api<Event> = test.api();
    let noted = async |words: &str| {
        wait::poll(&format!("an Event says {words:?}"), async || {
            let all = events.list(&ListParams::default()).await?;
            let notes: Vec<String> = all.items.into_iter().filter_map(|event| event.message).collect();
            Ok(notes.iter().any(|note| note.contains(words)).then_some(()))
        })
        .await
    };
    sandbox.logged("said 503 CredentialUnavailable").await?;
    noted("has a line break at byte 9").await?;
    ensure!(world.requests("X-Injected").is_empty() && world.requests("sk-broken").is_empty(), "it was sent");
    secrets.delete("api", &DeleteParams::default()).await?;
    noted("Secret \"api\" is not there").await?;
    keep(&test, "api", &second).await?;
    let arrived = world.requests(&second).len();
    wait::poll("it is used again", async || Ok((world.requests(&second).len() > arrived).then_some(())))
        .await?;
    // Bound to another host, it does not go to this one.
    let bind = async |host: Option<&str>| {
        let patch = Patch::Merge(json!({"metadata": {"annotations": {"glovebox.dev/hosts": host}}}));
        secrets.patch("api", &PatchParams::default(), &patch).await
    };
    bind(Some("api.example.com")).await?;
    noted("Secret \"api\" is not for api.allowed.example").await?;
    bind(Some("api.example.com, api.allowed.example")).await?;
    let arrived = world.requests(&second).len();
    wait::poll("it goes where it may", async || Ok((world.requests(&second).len() > arrived).then_some(())))
        .await?;
    // Taken from the sandbox, it is not used any more.
    sandbox.patch(json!({"credentials": null})).await?;
    wait::poll("the grant goes", async || Ok((!may_read(&test, "api").await?).then_some(()))).await?;
    sandbox.running().await.map(drop)
}

async fn token(test: Arc<Test>) -> Outcome {
    let accounts: Api<ServiceAccount> = test.api();
    let account = serde_json::from_value(json!({"metadata": {"name": "worker"}}))?;
    accounts.create(&PostParams::default(), &account).await?;
    let audience = format!("https://{HOST}/{}", test.suffix);
    let credential = json!({"name": "api", "env": "API_KEY", "hosts": [HOST],
        "serviceAccountToken": {"name": "worker", "audience": audience}});
    let sandbox = using(&test, Runtime::Gvisor, credential, api()).await?;
    sandbox.logged("said 200").await?;
    let world = test.world().await?;
    let claims = world.requests("Bearer eyJ").iter().find_map(|head| {
        use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
        let token = head.split("Bearer ").nth(1)?.split(['\\', '\r', '"']).next()?;
        let claims: Value =
            serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(token.split('.').nth(1)?).ok()?).ok()?;
        (claims["aud"][0] == audience.as_str()).then_some(claims)
    });
    let claims = claims.context("no token for that audience arrived")?;
    ensure!(claims["sub"] == format!("system:serviceaccount:{}:worker", test.namespace), "{claims}");
    let life = claims["exp"].as_i64().zip(claims["iat"].as_i64()).map(|(end, begin)| end - begin);
    ensure!(life == Some(600), "{claims}");
    ensure!(!sandbox.log().await?.contains("eyJ"), "the workload was told its token");
    Ok(())
}
