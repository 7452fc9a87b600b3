//! Hosts that have ports of their own: their Services come with the first sandbox that needs them and go after the last.

use serde_json::{Value, json};

use super::{gvisor, scenarios};
use crate::testkit::{
    fixtures::{self, SYSTEM_NAMESPACE, sandbox_key, with},
    stage::Stage,
};

/// Seconds after which what nobody needs is gone, though the controller died on the way and began to count anew.
const LONGEST: u64 = 24 * 60;

/// A rule for any bytes to a host.
fn tcp(host: &str, ports: &[u16]) -> Value {
    json!({"name": host.replace('.', "-"), "hosts": [host], "ports": ports, "protocol": "TCP"})
}

fn allowing(name: &str, rules: &[Value]) -> Value {
    with(gvisor(name), &[("/spec/egress/allow", json!(rules)), ("/spec/ttl", json!("1h"))])
}

/// Hosts that have Services, each with its ports outside, in order.
fn services(stage: &Stage) -> Vec<(String, Vec<i64>)> {
    let inner = stage.driver.server.lock();
    let ours = inner.store.list("Service", SYSTEM_NAMESPACE).map(|(_, service)| service);
    let ours = ours.filter(|service| service["metadata"]["labels"]["glovebox.dev/named"] == "tcp");
    let mut all: Vec<_> = ours
        .map(|service| {
            let ports = service["spec"]["ports"].as_array().unwrap();
            let host = service["metadata"]["annotations"]["glovebox.dev/host"].as_str().unwrap();
            (host.to_owned(), ports.iter().map(|port| port["port"].as_i64().unwrap()).collect())
        })
        .collect();
    all.sort();
    all
}

fn said(stage: &Stage, name: &str) -> Option<(Value, Value)> {
    let condition = stage.condition(name, "NamedPorts")?;
    Some((condition["status"].clone(), condition["reason"].clone()))
}

fn assigned() -> Option<(Value, Value)> {
    Some((json!("True"), json!("PortsAssigned")))
}

scenarios! {
    /// Two sandboxes share a host's Service. It stays a while after the last of them, then goes.
    async fn named_ports_come_and_go(stage) {
        let rules = [tcp("db.example", &[5432, 443]), json!({"name": "web", "hosts": ["web.example"]})];
        stage.begin(&fixtures::gvisor_class(), &allowing("a", &rules));
        stage.driver.create(&allowing("b", &[tcp("db.example", &[5432])]));
        stage.driver.create(&gvisor("c"));
        stage.stop().await;
        assert_eq!(services(stage), [("db.example".into(), vec![80, 443, 5432])]);
        assert_eq!((said(stage, "a"), said(stage, "b"), said(stage, "c")), (assigned(), assigned(), None));
        stage.driver.delete(&sandbox_key("a"));
        stage.wait(13 * 60).await;
        stage.stop().await;
        assert_eq!(services(stage).len(), 1, "b needs it");
        stage.driver.delete(&sandbox_key("b"));
        stage.wait(8 * 60).await;
        assert_eq!(services(stage).len(), 1, "whoever comes back finds it");
        stage.wait(LONGEST).await;
        stage.stop().await;
        assert_eq!(services(stage), []);
    }

    /// Rules that change while it runs: another host, another port of the same host, none.
    async fn named_ports_grow(stage) {
        stage.begin(&fixtures::gvisor_class(), &allowing("a", &[tcp("db.example", &[5432])]));
        stage.stop().await;
        let set = |stage: &Stage, rules: &[Value]| {
            stage.driver.edit(&sandbox_key("a"), |sandbox| sandbox["spec"]["egress"]["allow"] = json!(rules));
        };
        set(stage, &[tcp("db.example", &[5432, 5433]), tcp("cache.example", &[6379])]);
        stage.stop().await;
        let grown = ("db.example".to_owned(), vec![80, 443, 5432, 5433]);
        assert_eq!(
            services(stage),
            [("cache.example".into(), vec![80, 443, 6379]), ("db.example".into(), vec![80, 443, 5432]), grown.clone()]
        );
        assert_eq!(said(stage, "a"), assigned());
        stage.wait(LONGEST).await;
        stage.stop().await;
        assert_eq!(services(stage), [("cache.example".into(), vec![80, 443, 6379]), grown], "the smaller one is idle");
        set(stage, &[tcp("db.example", &[443, 80])]);
        stage.stop().await;
        assert_eq!(said(stage, "a"), None);
        stage.driver.delete(&sandbox_key("a"));
        stage.wait(LONGEST).await;
        stage.stop().await;
        assert_eq!(services(stage), []);
    }

    /// Somebody deletes one: it is made anew. Somebody has the name that it would have: it gets another.
    async fn named_ports_are_put_back(stage) {
        stage.begin(&fixtures::gvisor_class(), &allowing("a", &[tcp("db.example", &[5432])]));
        stage.stop().await;
        let key = |stage: &Stage| {
            let inner = stage.driver.server.lock();
            let mut all = inner.store.list("Service", SYSTEM_NAMESPACE);
            all.find(|(key, _)| key.name.starts_with("glovebox-tcp-")).unwrap().0.clone()
        };
        let first = key(stage);
        stage.driver.delete(&first);
        stage.stop().await;
        assert_eq!(key(stage), first, "a host comes back to its port");
        stage.driver.delete(&first);
        stage.driver.create(&json!({"kind": "Service", "metadata": {"name": first.name, "namespace": SYSTEM_NAMESPACE}, "spec": {}}));
        stage.stop().await;
        assert_eq!(services(stage), [("db.example".into(), vec![80, 443, 5432])]);
        assert_eq!(stage.driver.get(&first).unwrap()["metadata"]["labels"], Value::Null, "and leaves others alone");
        assert_eq!(said(stage, "a"), assigned());
        stage.driver.delete(&sandbox_key("a"));
        stage.driver.delete(&first);
        stage.wait(LONGEST).await;
        stage.stop().await;
        assert_eq!(services(stage), []);
    }

    /// A namespace that asks for more than its share is told so, runs nonetheless, and gets them once there is room.
    async fn named_ports_run_out(stage) {
        let many = |from: u16| tcp(&format!("h{from}.example"), &(from..from + 60).collect::<Vec<_>>());
        let wide: Vec<Value> = [1000, 2000, 3000].map(many).into();
        stage.begin(&fixtures::gvisor_class(), &allowing("a", &wide));
        stage.stop().await;
        stage.driver.create(&allowing("b", &[many(4000), many(5000)]));
        stage.stop().await;
        stage.expect("b", "Running", "Running");
        assert_eq!(said(stage, "a"), assigned());
        let told = stage.condition("b", "NamedPorts").unwrap();
        assert_eq!((&told["status"], &told["reason"]), (&json!("False"), &json!("NoPortsLeft")));
        let message = told["message"].as_str().unwrap();
        assert!(message.contains("h5000.example") && message.contains("250") && message.contains("CONNECT"), "{message}");
        stage.driver.delete(&sandbox_key("a"));
        stage.stop().await;
        assert_eq!(said(stage, "b"), assigned());
        stage.driver.delete(&sandbox_key("b"));
        stage.wait(LONGEST).await;
        stage.stop().await;
        assert_eq!(services(stage), []);
    }
}
