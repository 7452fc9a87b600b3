//! Hosts with an address of their own, as a program without a proxy meets them, and as somebody else's sandbox does.

use std::{collections::BTreeMap, sync::Arc};

use anyhow::{Context, Result, ensure};
use k8s_openapi::{api::core::v1::Service, apimachinery::pkg::util::intstr::IntOrString};
use kube::{Api, ResourceExt, api::ListParams};
use serde_json::{Map, Value, json};

use glovebox::api::ConditionType;

use super::{Ground, script};
use crate::{
    attacks::{self, Attack},
    harness::{Cases, Outcome, Runtime, Sandbox, Test, pods, sandbox::says},
};

const NAMED: Attack = script!("named.py", 3);
/// Two hosts of the world at one address: only the port that stands for each keeps them apart.
const ONE: &str = "tcp.example";
const TWO: &str = "granted.example";
const PORT: u16 = 8443;

pub(super) fn cases(cases: &mut Cases) {
    cases.each_runtime("conformance::a_host_is_reached_by_name_without_a_proxy", 800, named);
}

fn tcp(host: &str) -> Value {
    json!({"name": host.replace('.', "-"), "hosts": [host], "ports": [PORT], "protocol": "TCP"})
}

/// Once its hosts have their ports.
async fn sandbox(ground: &Ground<'_>, runtime: Runtime, name: &str, rules: &[Value]) -> Result<Sandbox> {
    let spec =
        json!({"egress": {"allow": rules}, "ttl": "8m", "resources": {"cpu": "200m", "memory": "256Mi"}});
    let sandbox = ground.test.running(runtime, name, &spec).await?;
    ground.begins(&sandbox).await?;
    assigned(&sandbox).await?;
    Ok(sandbox)
}

async fn assigned(sandbox: &Sandbox) -> Outcome {
    let assigned = |status: &_| says(status, ConditionType::NamedPorts, "True", "PortsAssigned");
    sandbox.until("has ports for its hosts", assigned).await.map(|_| ())
}

/// Where each host is behind: the address of its Service, and the gateway's pods at their port.
async fn doors(ground: &Ground<'_>) -> Result<BTreeMap<String, Vec<String>>> {
    let namespace = &ground.test.controller()?.namespace;
    let services: Api<Service> = Api::namespaced(ground.test.client.clone(), namespace);
    let pods = ground.gateway.addresses().await?;
    let mut doors = BTreeMap::<String, Vec<String>>::new();
    for service in services.list(&ListParams::default().labels("glovebox.dev/named=tcp")).await? {
        let host =
            service.annotations().get("glovebox.dev/host").context("a Service without its host")?.clone();
        let spec = service.spec.clone().context("a Service without spec")?;
        let address = spec.cluster_ip.context("a Service without address")?;
        let all = doors.entry(host).or_default();
        for port in spec.ports.into_iter().flatten().filter(|port| port.port == i32::from(PORT)) {
            let Some(IntOrString::Int(inner)) = port.target_port else { continue };
            all.push(format!("{address}:{PORT}"));
            all.extend(pods.iter().map(|pod| format!("{pod}:{inner}")));
        }
    }
    Ok(doors)
}

async fn named(test: Arc<Test>, runtime: Runtime) -> Outcome {
    let ground = Ground::open(&test).await?;
    let web = json!({"name": "web", "hosts": [ONE]});
    // The mark is what `nothing_leaked` knows the name server's log by.
    let mark = json!({"name": "mark", "hosts": [ground.mark]});
    let one = sandbox(&ground, runtime, "one", &[tcp(ONE), web, mark]).await?;
    let two = sandbox(&ground, Runtime::Runc, "two", &[tcp(TWO)]).await?;
    let doors = doors(&ground).await?;
    let of = |host: &str| {
        doors.get(host).filter(|doors| doors.len() > 1).with_context(|| format!("{host} has no door"))
    };
    let (first, second) = (of(ONE)?, of(TWO)?);
    ensure!(first.iter().all(|door| !second.contains(door)), "two hosts behind one door: {doors:?}");
    let from_one = json!({"host": ONE, "port": PORT, "tls": true, "others": second, "foreign": TWO});
    ground.attack(&one, NAMED, &from_one).await?;
    let from_two = json!({"host": TWO, "port": PORT, "others": first, "foreign": ONE});
    ground.attack(&two, NAMED, &from_two).await?;
    // A pod that is no sandbox does not even get a connection.
    test.ordinary_pod(&test.namespace, "stranger", "import time; time.sleep(600)", &json!({})).await?;
    let closed: Map<String, Value> = first.iter().map(|door| (format!("tcp {door}"), json!(false))).collect();
    let command = attacks::PROBE.command(&[&Value::Object(closed).to_string(), "60"]);
    let words: Vec<&str> = command.iter().map(String::as_str).collect();
    let pods: Api<k8s_openapi::api::core::v1::Pod> = test.api();
    let said = pods::exec(&pods, "stranger", "main", &words).await?.good()?;
    ensure!(!said.contains("BREACH"), "an ordinary pod gets in:\n{said}");
    // A rule that is given while it runs.
    two.patch(json!({"egress": {"allow": [tcp(ONE), tcp(TWO)]}})).await?;
    for host in [ONE, TWO] {
        ground.attack(&two, NAMED, &json!({"host": host, "port": PORT, "others": ["127.0.0.1:1"]})).await?;
    }
    ground.nothing_leaked(&one).await
}
