//! How much the controller asks of the API server.

use std::{collections::BTreeMap, time::Duration};

use glovebox::testkit::{
    Driver,
    caches::{self, Lag},
    calls::Call,
    fixtures::{self, sandbox, sandbox_key},
    stage::SETTLE,
};

fn writes(calls: &[Call]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for call in calls.iter().filter(|call| call.is_write() && !call.is_event()) {
        *counts.entry(call.label()).or_default() += 1;
    }
    counts
}

fn counts(pairs: &[(&str, usize)]) -> BTreeMap<String, usize> {
    pairs.iter().map(|(label, count)| ((*label).to_owned(), *count)).collect()
}

/// From apply to gone, in a namespace that is in use already.
async fn life(lag: Lag) -> Vec<Call> {
    let mut driver = Driver::new();
    driver.create(&fixtures::gvisor_class());
    driver.create(&fixtures::with(sandbox("other", "gvisor"), &[("/spec/ttl", "1h".into())]));
    driver.run_for(SETTLE).await;
    let before = driver.calls().len();
    driver.lag = lag;
    driver.create(&sandbox("s", "gvisor"));
    driver.run_for(Duration::from_secs(7 * 60)).await;
    assert_eq!(driver.get(&sandbox_key("s")), None);
    assert_eq!(driver.violations(), Vec::<String>::new());
    driver.calls().split_off(before)
}

const LIFE: &[(&str, usize)] =
    &[("create Pod", 1), ("delete AgentSandbox", 1), ("delete Pod", 1), ("patch AgentSandbox/status", 2)];

#[tokio::test(start_paused = true)]
async fn a_life_costs_five_writes() {
    let calls = life(Lag::None).await;
    assert_eq!(writes(&calls), counts(LIFE));
    let events = calls.iter().filter(|call| call.is_event()).count();
    assert_eq!(events, 2, "it ran, it ended");
    let reads = calls.iter().filter(|call| !call.is_write()).count();
    assert_eq!(reads, 0, "everything comes from watches");
}

#[tokio::test(start_paused = true)]
async fn late_stores_cost_no_more() {
    let mut wrong = Vec::new();
    for lag in caches::watched().map(|kind| Lag::Kind(kind, 3)).chain([Lag::All(1), Lag::All(4)]) {
        let found = writes(&life(lag.clone()).await);
        if found != counts(LIFE) {
            wrong.push((lag, found));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The first sandbox of a namespace and class brings what stands around all of them.
#[tokio::test(start_paused = true)]
async fn the_first_of_a_class_brings_what_stands_around() {
    let mut driver = Driver::new();
    driver.create(&fixtures::gvisor_class());
    driver.create(&sandbox("s", "gvisor"));
    driver.run_for(SETTLE).await;
    let around = counts(&[
        ("create Pod", 1),
        ("patch AgentSandbox/status", 1),
        ("patch NetworkPolicy", 1),
        ("patch PriorityClass", 1),
        ("patch ResourceQuota", 1),
    ]);
    let mut found = writes(&driver.calls());
    // The quota's use is not known at once: the first pod may be refused once.
    let creates = found.insert("create Pod".into(), 1).unwrap();
    assert!(creates <= 2, "{creates}");
    assert_eq!(found, around);
}

/// A host that has ports of its own costs one write when it comes and one when it goes, however late stores are.
#[tokio::test(start_paused = true)]
async fn a_named_host_costs_two_writes() {
    for lag in [Lag::None, Lag::Kind("Service", 3), Lag::Kind("AgentSandbox", 3), Lag::All(4)] {
        let mut driver = Driver::new();
        driver.create(&fixtures::gvisor_class());
        driver.create(&fixtures::with(sandbox("other", "gvisor"), &[("/spec/ttl", "1h".into())]));
        driver.run_for(SETTLE).await;
        let before = driver.calls().len();
        driver.lag = lag.clone();
        let rules = serde_json::json!([{"name": "db", "hosts": ["db.example"], "ports": [5432, 5433], "protocol": "TCP"}]);
        driver.create(&fixtures::with(sandbox("s", "gvisor"), &[("/spec/egress/allow", rules)]));
        driver.run_for(Duration::from_secs(20 * 60)).await;
        let calls = driver.calls().split_off(before);
        let more: Vec<_> =
            LIFE.iter().copied().chain([("create Service", 1), ("delete Service", 1)]).collect();
        assert_eq!(writes(&calls), counts(&more), "{lag:?}");
        assert!(calls.iter().all(Call::is_write), "everything comes from watches");
        assert_eq!(driver.violations(), Vec::<String>::new());
    }
}

/// A hundred sandboxes that run cost nothing, whatever makes the controller look at them.
#[tokio::test(start_paused = true)]
async fn an_idle_cluster_is_quiet() {
    let mut driver = Driver::new();
    driver.create(&fixtures::gvisor_class());
    for number in 0..100 {
        let egress = serde_json::json!([
            {"name": "api", "cidrs": ["203.0.113.0/24"], "ports": [443]},
            {"name": "db", "hosts": [format!("db{}.example", number % 7)], "ports": [5432], "protocol": "TCP"},
        ]);
        let sandbox = sandbox(&format!("s{number}"), "gvisor");
        driver
            .create(&fixtures::with(sandbox, &[("/spec/ttl", "1h".into()), ("/spec/egress/allow", egress)]));
    }
    driver.run_for(SETTLE).await;
    let before = driver.calls().len();
    driver.look_again().await;
    driver.run_for(Duration::from_secs(5 * 60)).await;
    driver.start();
    driver.look_again().await;
    driver.run_for(SETTLE).await;
    let after = driver.calls().split_off(before);
    assert_eq!(after.iter().map(Call::label).collect::<Vec<_>>(), Vec::<String>::new());
    for number in 0..100 {
        assert_eq!(driver.get(&sandbox_key(&format!("s{number}"))).unwrap()["status"]["phase"], "Running");
    }
}
