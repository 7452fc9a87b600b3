//! What a sandbox reaches: what its rules open, for as long as they do, and nothing else. Every place that must not be
//! reached answers to others.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::{
    core::v1::{Node, Service},
    networking::v1::NetworkPolicy,
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use serde_json::{Map, Value, json};

use glovebox::api::{ConditionType, Phase};

use crate::{
    attacks,
    harness::{
        Cases, Outcome, Runtime, Sandbox, Test,
        audit::{Audit, Entry},
        pods,
        sandbox::{says, told},
        wait,
    },
};

/// Seconds until a policy must have taken effect.
const PATIENCE: &str = "60";
const FENCE: &str = "glovebox-fence";
/// What listens and answers, for a neighbour.
const LISTENER: &str = "import socket
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); s.bind(('0.0.0.0', 8080)); s.listen()
print('listening', flush=True)
while True: s.accept()[0].close()";

pub(crate) fn cases(cases: &mut Cases) {
    cases.each_runtime("egress::without_rules_nothing_is_reached", 550, nothing);
    cases.each_runtime("egress::allowed_range_and_port_alone", 300, allowed);
    cases.add("egress::edits_take_effect_while_it_runs", 300, edits);
    cases.add("egress::a_refused_edit_closes", 300, refused_edit);
    cases.add("egress::a_rule_that_is_refused_at_birth_makes_no_pod", 0, refused_at_birth);
    cases.add("egress::the_fence_stands_before_the_first_pod_and_after_the_last", 300, order);
    cases.add("egress::the_fence_is_put_back", 300, put_back);
    cases.add("neighbours::sandboxes_do_not_reach_each_other", 900, neighbours);
}

/// Looks from inside until every place is as expected; what arrived in the world afterwards is held against it too.
async fn look(test: &Test, sandbox: &Sandbox, open: &[&str], closed: &[&str]) -> Outcome {
    let ip = sandbox.status().await?.pod_ip.context("no address")?;
    let each = |places: &[&str], answer: bool| {
        places.iter().map(|place| ((*place).to_owned(), json!(answer))).collect::<Vec<_>>()
    };
    let expected: Map<String, Value> = each(open, true).into_iter().chain(each(closed, false)).collect();
    attacks::PROBE.by_exec(sandbox, &[&Value::Object(expected.clone()).to_string(), PATIENCE]).await?;
    let Some(world) = &test.cluster.world else { return Ok(()) };
    // It holds from now on, for whoever asks again.
    world.forget(&ip);
    attacks::PROBE.by_exec(sandbox, &[&Value::Object(expected).to_string(), "20"]).await?;
    let arrived = world.arrivals(&ip);
    let strange: Vec<&String> = arrived.iter().filter(|place| !open.contains(&place.as_str())).collect();
    ensure!(strange.is_empty(), "arrived in the world from {ip}: {strange:?}");
    Ok(())
}

/// Addresses of the cluster itself: the node's kubelet, the API server by node and by Service, the cluster's DNS.
async fn cluster_places(test: &Test) -> Result<Vec<String>> {
    let nodes = Api::<Node>::all(test.client.clone()).list(&ListParams::default()).await?.items;
    let addresses = nodes.iter().filter_map(|node| node.status.as_ref()?.addresses.as_ref()).flatten();
    let internal: Vec<&str> = addresses
        .filter(|address| address.type_ == "InternalIP")
        .map(|address| address.address.as_str())
        .collect();
    let service = async |namespace: &str, name: &str| {
        let found = Api::<Service>::namespaced(test.client.clone(), namespace).get(name).await?;
        found.spec.and_then(|spec| spec.cluster_ip).context("a Service without address")
    };
    let api = service("default", "kubernetes").await?;
    let dns = service("kube-system", "kube-dns").await?;
    let mut places = vec![format!("tcp {api}:443"), format!("tcp {dns}:53"), format!("udp {dns}:53")];
    for ip in internal {
        places.extend([format!("tcp {ip}:10250"), format!("tcp {ip}:6443")]);
    }
    Ok(places)
}

/// Every place of the world but one port of one address.
const WORLD_BUT_ONE: [&str; 9] = [
    "tcp 203.0.113.7:8443",
    "tcp 203.0.113.8:443",
    "tcp 203.0.113.8:53",
    "udp 203.0.113.8:53",
    "tcp 198.51.100.7:443",
    "tcp 169.254.169.254:80",
    "tcp 10.0.0.7:443",
    "tcp 192.168.0.7:443",
    "udp 198.51.100.53:53",
];
const ONE: &str = "tcp 203.0.113.7:443";

async fn nothing(test: Arc<Test>, runtime: Runtime) -> Outcome {
    test.world().await?;
    let neighbour = test.ordinary_pod(&test.namespace, "neighbour", LISTENER, &json!({})).await?;
    let neighbour = format!("tcp {}:8080", pods::address(&neighbour)?);
    let sandbox = test.running(runtime, "fenced", &json!({})).await?;
    let cluster = cluster_places(&test).await?;
    let mut closed: Vec<&str> = WORLD_BUT_ONE.iter().copied().chain([ONE, neighbour.as_str()]).collect();
    closed.extend(cluster.iter().map(String::as_str));
    look(&test, &sandbox, &[], &closed).await?;
    // An ordinary pod beside it reaches all that: it is the fence that holds, not an empty network.
    let reach: Map<String, Value> = closed
        .iter()
        .filter(|place| !place.contains("169.254"))
        .map(|place| ((*place).to_owned(), json!(true)))
        .collect();
    let command = attacks::PROBE.command(&[&Value::Object(reach).to_string(), PATIENCE]);
    let words: Vec<&str> = command.iter().map(String::as_str).collect();
    let free = pods::exec(&sandbox.pods(), "neighbour", "main", &words).await?.good()?;
    ensure!(!free.contains("BREACH"), "an unfenced pod does not reach what is called closed:\n{free}");
    Ok(())
}

async fn allowed(test: Arc<Test>, runtime: Runtime) -> Outcome {
    test.world().await?;
    let rule = json!({"egress": {"allow": [{"name": "one", "cidrs": ["203.0.113.7/32"], "ports": [443]}]}});
    let sandbox = test.running(runtime, "allowed", &rule).await?;
    let cluster = cluster_places(&test).await?;
    let closed: Vec<&str> = WORLD_BUT_ONE.iter().copied().chain(cluster.iter().map(String::as_str)).collect();
    look(&test, &sandbox, &[ONE], &closed).await
}

async fn edits(test: Arc<Test>) -> Outcome {
    test.world().await?;
    let sandbox = test.running(Runtime::Runc, "edited", &json!({})).await?;
    look(&test, &sandbox, &[], &[ONE]).await?;
    sandbox
        .patch(json!({"egress": {"allow": [{"name": "a", "cidrs": ["203.0.113.0/24"], "ports": [443]}]}}))
        .await?;
    look(&test, &sandbox, &[ONE, "tcp 203.0.113.8:443"], &["tcp 203.0.113.7:8443"]).await?;
    sandbox
        .patch(json!({"egress": {"allow": [{"name": "a", "cidrs": ["203.0.113.8/32"], "ports": [443]}]}}))
        .await?;
    look(&test, &sandbox, &["tcp 203.0.113.8:443"], &[ONE]).await?;
    sandbox.patch(json!({"egress": {"allow": []}})).await?;
    look(&test, &sandbox, &[], &[ONE, "tcp 203.0.113.8:443"]).await?;
    let policies: Api<NetworkPolicy> = test.api();
    wait::gone(policies, "edited-cidrs", "the policy goes with the rules").await
}

async fn refused_edit(test: Arc<Test>) -> Outcome {
    test.world().await?;
    let good = json!({"name": "good", "cidrs": ["203.0.113.7/32"], "ports": [443]});
    let sandbox = test.running(Runtime::Runc, "greedy", &json!({"egress": {"allow": [good]}})).await?;
    look(&test, &sandbox, &[ONE], &["tcp 203.0.113.8:443"]).await?;
    let bad = json!({"name": "bad", "cidrs": ["169.254.169.254/32"], "ports": [80]});
    sandbox.patch(json!({"egress": {"allow": [good, bad]}})).await?;
    let status = sandbox
        .until("refuses the edit", |status| says(status, ConditionType::Accepted, "False", "EgressRejected"))
        .await?;
    for word in ["spec.egress.allow[bad]", "169.254.169.254/32"] {
        ensure!(told(&status).contains(word), "{word} is not told: {}", told(&status));
    }
    ensure!(status.phase == Some(Phase::Running), "a refused edit ended it: {}", told(&status));
    look(&test, &sandbox, &[], &[ONE, "tcp 169.254.169.254:80"]).await?;
    sandbox.patch(json!({"egress": {"allow": [good]}})).await?;
    sandbox
        .until("takes it back", |status| says(status, ConditionType::Accepted, "True", "Accepted"))
        .await?;
    look(&test, &sandbox, &[ONE], &["tcp 203.0.113.8:443"]).await
}

async fn refused_at_birth(test: Arc<Test>) -> Outcome {
    let nodes = Api::<Node>::all(test.client.clone()).list(&ListParams::default()).await?.items;
    let node = nodes
        .iter()
        .filter_map(|node| node.status.as_ref()?.addresses.as_ref())
        .flatten()
        .find(|a| a.type_ == "InternalIP");
    let node = format!("{}/32", node.context("no address")?.address);
    for (number, cidr) in
        ["0.0.0.0/1", "127.0.0.0/8", "169.254.0.0/16", "203.0.113.7/24", &node].into_iter().enumerate()
    {
        let rule = json!({"egress": {"allow": [{"name": "bad", "cidrs": [cidr], "ports": [443]}]}});
        let sandbox = test.sandbox(Runtime::Runc, &format!("bad{number}"), &rule).await?;
        sandbox
            .pending("EgressRejected", &["spec.egress.allow[bad]", cidr.split('/').next().unwrap_or(cidr)])
            .await?;
        ensure!(sandbox.pods().get_opt(&sandbox.name).await?.is_none(), "{cidr}: a pod was made");
    }
    Ok(())
}

async fn order(test: Arc<Test>) -> Outcome {
    let audit = Audit::from_now(&test)?;
    let sandbox = test.running(Runtime::Runc, "first", &json!({})).await?;
    let entries = audit.entries(&test).await?;
    let ours = |entry: &&Entry| entry.namespace() == test.namespace && entry.good();
    let fence = entries
        .iter()
        .filter(ours)
        .find(|entry| entry.resource() == "networkpolicies" && entry.name() == FENCE);
    let pod = entries.iter().filter(ours).find(|entry| entry.resource() == "pods" && entry.verb == "create");
    let (fence, pod) = (fence.context("no fence was written")?, pod.context("no pod was created")?);
    ensure!(
        fence.stage_timestamp <= pod.request_received_timestamp,
        "{} is not before {}",
        fence.shown(),
        pod.shown()
    );
    sandbox.delete().await?;
    // Once a second sandbox ran and went, whatever would remove the fence with the first has had its chance.
    test.running(Runtime::Runc, "second", &json!({})).await?.delete().await?;
    let policies: Api<NetworkPolicy> = test.api();
    let fence = policies.get_opt(FENCE).await?.context("the fence went with the last sandbox")?;
    ensure!(
        fence.owner_references().is_empty(),
        "the fence belongs to somebody who can go: {:?}",
        fence.owner_references()
    );
    let deleted = audit
        .entries(&test)
        .await?
        .into_iter()
        .filter(|entry| ours(&entry) && entry.resource() == "networkpolicies" && entry.verb == "delete");
    let deleted: Vec<String> = deleted.map(|entry| entry.shown()).collect();
    ensure!(deleted.is_empty(), "a policy was deleted meanwhile: {deleted:?}");
    Ok(())
}

async fn put_back(test: Arc<Test>) -> Outcome {
    test.world().await?;
    let sandbox = test.running(Runtime::Runc, "fenced", &json!({})).await?;
    // Even for a sandbox whose spec is not valid any more.
    sandbox.patch(json!({"ttl": "59m"})).await?;
    sandbox
        .until("refuses the edit", |status| says(status, ConditionType::Accepted, "False", "ExceedsClass"))
        .await?;
    let policies: Api<NetworkPolicy> = test.api();
    let first = policies.get(FENCE).await?;
    policies.delete(FENCE, &DeleteParams::default()).await?;
    let another = |policy: Option<&NetworkPolicy>| policy.is_some_and(|policy| policy.uid() != first.uid());
    wait::until(policies.clone(), FENCE, "the fence is put back", another).await?;
    look(&test, &sandbox, &[], &[ONE]).await?;
    let open = Patch::Merge(json!({"spec": {"egress": [{}], "ingress": [{}]}}));
    policies.patch(FENCE, &PatchParams::default(), &open).await?;
    let closed = |policy: Option<&NetworkPolicy>| policy.is_some_and(|policy| policy.spec == first.spec);
    wait::until(policies.clone(), FENCE, "the opened fence is closed again", closed).await?;
    look(&test, &sandbox, &[], &[ONE]).await
}

async fn neighbours(test: Arc<Test>) -> Outcome {
    let there = test.another_namespace("restricted").await?;
    let listens = json!({"command": ["python3", "-u", "-c", LISTENER]});
    let made = [
        test.sandbox(Runtime::Runc, "a", &listens).await?,
        test.sandbox(Runtime::Gvisor, "b", &listens).await?,
        test.sandbox_in(&there, Runtime::Runc, "c", &listens).await?,
    ];
    let mut places = Vec::new();
    for sandbox in &made {
        sandbox.running().await?;
        sandbox.logged("listening").await?;
        let ip = sandbox.status().await?.pod_ip.context("no address")?;
        // From itself it answers, so it is not for want of a listener that others get none.
        attacks::PROBE
            .by_exec(sandbox, &[&json!({format!("tcp {ip}:8080"): true}).to_string(), PATIENCE])
            .await?;
        places.push(format!("tcp {ip}:8080"));
    }
    for (at, sandbox) in made.iter().enumerate() {
        let others: Vec<&str> = places
            .iter()
            .enumerate()
            .filter(|(other, _)| *other != at)
            .map(|(_, place)| place.as_str())
            .collect();
        look(&test, sandbox, &[], &others).await?;
    }
    // Nor does an ordinary pod of the namespace get in.
    test.ordinary_pod(&test.namespace, "stranger", "import time; time.sleep(600)", &json!({})).await?;
    let expected: Map<String, Value> = places.iter().map(|place| (place.clone(), json!(false))).collect();
    let command = attacks::PROBE.command(&[&Value::Object(expected).to_string(), PATIENCE]);
    let words: Vec<&str> = command.iter().map(String::as_str).collect();
    let pods: Api<k8s_openapi::api::core::v1::Pod> = test.api();
    let said = pods::exec(&pods, "stranger", "main", &words).await?.good()?;
    ensure!(!said.contains("BREACH"), "an ordinary pod gets in:\n{said}");
    Ok(())
}
