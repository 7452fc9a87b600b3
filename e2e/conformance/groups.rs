//! The groups of the conformance list, each a script that acts from inside one sandbox.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use kube::{Api, api::ListParams};
use serde_json::{Value, json};

use super::{Ground, checked, script, table};
use crate::{
    attacks::Attack,
    harness::{Cases, Outcome, Runtime, Sandbox, Test, classes::merge, pods, wait},
};

const NAMES: Attack = script!("names.py", 2600);
const ADDRESSES: Attack = script!("addresses.py", 500);
const DNS: Attack = script!("dns.py", 400);
const TLS: Attack = script!("tls.py", 88);
const HTTP: Attack = script!("http.py", 150);
const DOORS: Attack = script!("doors.py", 60);
const STRANGER: Attack = script!("stranger.py", 7);
const ORDINARY: Attack = script!("ordinary.py", 25);
const OPENED: Attack = script!("opened.py", 24);
/// Says how a CONNECT is answered, and nothing of whether that is right.
const ASK: Attack = Attack::new(
    concat!(
        include_str!("tools.py"),
        "\nanswer = connect(sys.argv[1])\nprint('answer', status(answer), body(answer).get('reason', '-'))\nreport(True, 'asked')\nfinish()"
    ),
    1,
);

pub(super) fn cases(cases: &mut Cases) {
    cases.add("conformance::names_and_every_byte_of_them", 350, names);
    cases.add("conformance::addresses_wildcards_and_names_that_lie", 350, addresses);
    cases.add("conformance::an_answer_that_turns_is_checked_each_time", 350, turns);
    cases.add("conformance::dns_carries_nothing", 350, dns);
    cases.each_runtime("conformance::tls_says_where_to_and_nothing_else_does", 350, tls);
    cases.each_runtime("conformance::http_is_read_in_one_way", 350, http);
    cases.each_runtime("conformance::doors_that_are_not_for_sandboxes", 350, doors);
    cases.add("conformance::a_pod_that_is_no_sandbox_is_not_served", 350, stranger);
    cases.add("conformance::ordinary_tools_with_their_ordinary_settings", 450, ordinary);
    cases.each_runtime("conformance::tools_trust_what_the_gateway_opens", 450, opened);
    cases.add("conformance::rules_for_what_is_always_denied_are_refused", 0, refused);
}

async fn group(test: &Test, runtime: Runtime, attack: Attack, arguments: Value) -> Outcome {
    let ground = Ground::open(test).await?;
    let sandbox = ground.sandbox(runtime, "attacker", &json!({})).await?;
    let attacked = ground.attack(&sandbox, attack, &arguments).await;
    // What was seen outside says more of a failure than the script alone.
    let leaked = ground.nothing_leaked(&sandbox).await;
    match (attacked, leaked) {
        (Err(error), Err(seen)) => Err(error.context(format!("and outside: {seen:#}"))),
        (attacked, leaked) => attacked.and(leaked),
    }
}

async fn names(test: Arc<Test>) -> Outcome {
    group(&test, Runtime::Runc, NAMES, json!({})).await
}

async fn addresses(test: Arc<Test>) -> Outcome {
    let mut cluster = nodes(&test).await?;
    cluster.push(service(&test, "default", "kubernetes").await?);
    group(&test, Runtime::Runc, ADDRESSES, json!({"cluster": cluster})).await
}

async fn dns(test: Arc<Test>) -> Outcome {
    let others = ["198.51.100.53", "203.0.113.8", "8.8.8.8"].map(str::to_owned);
    let mut others = others.to_vec();
    others.push(service(&test, "kube-system", "kube-dns").await?);
    let replicas = test.gateway().await?.pods().await?.len();
    group(&test, Runtime::Runc, DNS, json!({"others": others, "replicas": replicas})).await
}

async fn tls(test: Arc<Test>, runtime: Runtime) -> Outcome {
    group(&test, runtime, TLS, json!({})).await
}

async fn http(test: Arc<Test>, runtime: Runtime) -> Outcome {
    group(&test, runtime, HTTP, json!({})).await
}

async fn doors(test: Arc<Test>, runtime: Runtime) -> Outcome {
    let (pods, api) =
        (test.gateway().await?.addresses().await?, service(&test, "default", "kubernetes").await?);
    let mut cluster = vec![format!("{api}:443")];
    for node in nodes(&test).await? {
        cluster.extend([10250, 6443, 22, 9090].map(|port| format!("{node}:{port}")));
    }
    group(&test, runtime, DOORS, json!({"pods": pods, "cluster": cluster})).await
}

/// The same words from a sandbox and from an ordinary pod of its namespace.
async fn stranger(test: Arc<Test>) -> Outcome {
    let ground = Ground::open(&test).await?;
    let sandbox = ground.sandbox(Runtime::Runc, "known", &json!({})).await?;
    let told = asked(&sandbox, "allowed.example:443").await?;
    table::twin(56, told == "200 -");
    ensure!(told == "200 -", "a sandbox is answered {told:?} and not 200");
    test.ordinary_pod(&test.namespace, "stranger", "import time; time.sleep(600)", &json!({})).await?;
    let arguments = json!({"gateway": ground.gateway.address, "pods": ground.gateway.addresses().await?});
    let command = STRANGER.command(&[&arguments.to_string()]);
    let words: Vec<&str> = command.iter().map(String::as_str).collect();
    let pods: Api<Pod> = test.api();
    let output = pods::exec(&pods, "stranger", "main", &words).await?;
    table::note(&output.stdout);
    STRANGER.judge(&output.stdout).context(output.stderr)?;
    ground.nothing_leaked(&sandbox).await
}

async fn ordinary(test: Arc<Test>) -> Outcome {
    let ground = Ground::open(&test).await?;
    let room = json!({"resources": {"cpu": "400m", "memory": "768Mi"}});
    let sandbox = ground.sandbox(Runtime::Runc, "tools", &room).await?;
    ground.attack(&sandbox, ORDINARY, &json!({"certificate": ground.world.certificate()})).await?;
    ground.nothing_leaked(&sandbox).await
}

/// Tools as they come, with the variables that every sandbox has.
async fn opened(test: Arc<Test>, runtime: Runtime) -> Outcome {
    let ground = Ground::open(&test).await?;
    let room = json!({"resources": {"cpu": "400m", "memory": "768Mi"}});
    let sandbox = ground.sandbox(runtime, "tools", &room).await?;
    ground.attack(&sandbox, OPENED, &json!({})).await?;
    ground.nothing_leaked(&sandbox).await
}

/// How a CONNECT is answered: the status and the reason.
async fn asked(sandbox: &Sandbox, target: &str) -> Result<String> {
    let log = ASK.by_exec(sandbox, &[target]).await?;
    let line = log.lines().find_map(|line| line.strip_prefix("answer "));
    Ok(line.with_context(|| format!("no answer is told: {log}"))?.to_owned())
}

/// A name that may be reached, and whose owner moves it inside once it was used.
async fn turns(test: Arc<Test>) -> Outcome {
    let ground = Ground::open(&test).await?;
    let name = format!("turn-{}.example", ground.suffix);
    let mut spec = ground.rules();
    spec["egress"]["allow"]
        .as_array_mut()
        .context("no rules")?
        .push(json!({"name": "turn", "hosts": [name]}));
    let sandbox = ground.sandbox(Runtime::Runc, "patient", &spec).await?;
    let hosts = test.local()?.run.join("world.hosts");
    let before = std::fs::read_to_string(&hosts).with_context(|| hosts.display().to_string())?;
    let target = format!("{name}:443");
    let moved = async {
        for (address, wanted) in [
            ("203.0.113.7", "200 -"),
            ("10.0.0.7", "502 NoUsableAddress"),
            ("169.254.169.254", "502 NoUsableAddress"),
            ("10.96.0.1", "502 NoUsableAddress"),
            ("203.0.113.7", "200 -"),
        ] {
            std::fs::write(&hosts, format!("{before}{address} {name}\n"))?;
            let what = format!("{name} moves to {address} and is answered {wanted:?}");
            let answered = wait::poll(&what, async || {
                let told = asked(&sandbox, &target).await?;
                Ok((told == wanted).then_some(told))
            });
            let answered = answered.await;
            if wanted.starts_with("200") {
                table::twin(14, answered.is_ok());
            } else {
                table::attack(14, answered.is_ok());
            }
            answered?;
        }
        Ok(())
    };
    let moved: Outcome = moved.await;
    std::fs::write(&hosts, &before)?;
    moved?;
    ground.nothing_leaked(&sandbox).await
}

/// A class or a user that writes such a rule is told, before anything runs.
async fn refused(test: Arc<Test>) -> Outcome {
    for (number, (row, rule, word)) in [
        (24, json!({"hosts": ["dns.google"]}), "dns.google"),
        (38, json!({"hosts": ["cloudflare-ech.com"]}), "cloudflare-ech.com"),
        (13, json!({"hosts": ["metadata.google.internal"]}), "metadata.google.internal"),
        (46, json!({"hosts": ["mail.example"], "ports": [25]}), "25"),
        (46, json!({"hosts": ["mail.example"], "ports": [853]}), "853"),
        (6, json!({"hosts": ["*.example"]}), "*.example"),
        (6, json!({"hosts": ["*.github.io"]}), "acknowledgeSharedSuffix"),
        (8, json!({"hosts": ["203.0.113.7"]}), "203.0.113.7"),
        (15, json!({"hosts": ["kubernetes.default.svc.cluster.local"]}), "cluster.local"),
    ]
    .into_iter()
    .enumerate()
    {
        let mut named = json!({"name": "bad"});
        merge(&mut named, &rule);
        let spec = json!({"egress": {"allow": [named]}});
        let sandbox = test.sandbox(Runtime::Runc, &format!("bad{number}"), &spec).await?;
        let told = sandbox.pending("EgressRejected", &["spec.egress.allow[bad]", word]).await;
        table::attack(row, told.is_ok());
        told.with_context(|| rule.to_string())?;
    }
    Ok(())
}

/// The nodes' addresses.
async fn nodes(test: &Test) -> Result<Vec<String>> {
    let nodes = Api::<Node>::all(test.client.clone()).list(&ListParams::default()).await?.items;
    let addresses = nodes.into_iter().filter_map(|node| node.status?.addresses).flatten();
    let internal = addresses.filter(|address| address.type_ == "InternalIP").map(|address| address.address);
    let found: Vec<String> = internal.filter(|address| checked(address).is_ok()).collect();
    ensure!(!found.is_empty(), "no node says its IPv4 address");
    Ok(found)
}

async fn service(test: &Test, namespace: &str, name: &str) -> Result<String> {
    let found = Api::<Service>::namespaced(test.client.clone(), namespace).get(name).await?;
    let address = found.spec.and_then(|spec| spec.cluster_ip).context("a Service without address")?;
    checked(&address)?;
    Ok(address)
}
