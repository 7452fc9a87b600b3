//! What was waited for is acted on when it comes, by an event and not by the next look around; and time is kept.

use std::time::Duration;

use glovebox::testkit::{
    Driver,
    fixtures::{self, NAMESPACE, gvisor_class, pod_key, sandbox, sandbox_key, with},
    store::Key,
};
use serde_json::{Value, json};

/// Long enough for an event to be acted on, far shorter than the controller's looks around.
const SOON: Duration = Duration::from_millis(900);
/// Long enough that whatever did not happen by then waits for something.
const LATER: Duration = Duration::from_secs(22);

/// Whether a sandbox has a pod of its own that is not going.
fn has_pod(driver: &Driver, name: &str) -> bool {
    driver.get(&pod_key(name)).is_some_and(|pod| {
        let meta = &pod["metadata"];
        meta["deletionTimestamp"].is_null() && meta["ownerReferences"][0]["kind"] == "AgentSandbox"
    })
}

/// A cluster in which `s` waits, then something happens, and it has its pod.
async fn wakes(class: &Value, sandbox: &Value, before: impl FnOnce(&Driver), then: impl FnOnce(&Driver)) {
    let mut driver = Driver::new();
    if class.is_object() {
        driver.create(class);
    }
    before(&driver);
    driver.run_for(LATER).await;
    driver.create(sandbox);
    driver.run_for(LATER).await;
    assert!(
        !has_pod(&driver, "s"),
        "it does not wait: {:#}",
        driver.get(&sandbox_key("s")).unwrap()["status"]
    );
    then(&driver);
    driver.run_for(SOON).await;
    assert!(has_pod(&driver, "s"), "it still waits: {:#}", driver.get(&sandbox_key("s")).unwrap()["status"]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_made_at_once() {
    let mut driver = Driver::new();
    driver.create(&gvisor_class());
    driver.create(&sandbox("first", "gvisor"));
    // The first of a namespace waits until its quota is counted.
    driver.run_for(Duration::from_millis(200)).await;
    assert!(has_pod(&driver, "first"));
    driver.create(&sandbox("s", "gvisor"));
    driver.run_for(Duration::from_millis(1)).await;
    assert!(has_pod(&driver, "s"));
}

#[tokio::test(start_paused = true)]
async fn it_wakes_when_its_class_comes() {
    wakes(&Value::Null, &sandbox("s", "gvisor"), |_| {}, |driver| driver.create(&gvisor_class())).await;
}

#[tokio::test(start_paused = true)]
async fn it_wakes_when_a_default_class_comes() {
    let unnamed = with(sandbox("s", "gvisor"), &[("/spec/className", Value::Null)]);
    let mark = |driver: &Driver| {
        driver.edit(&Key::new("SandboxClass", "", "gvisor"), |class| {
            class["metadata"]["annotations"] = json!({"glovebox.dev/is-default-class": "true"});
        });
    };
    wakes(&gvisor_class(), &unnamed, |_| {}, mark).await;
}

#[tokio::test(start_paused = true)]
async fn it_wakes_when_its_runtime_class_comes() {
    let key = Key::new("RuntimeClass", "", "gvisor");
    let object = json!({"kind": "RuntimeClass", "metadata": {"name": "gvisor"}, "handler": "runsc"});
    wakes(
        &gvisor_class(),
        &sandbox("s", "gvisor"),
        |driver| driver.delete(&key),
        |driver| driver.create(&object),
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn it_wakes_when_there_is_room() {
    let class = with(gvisor_class(), &[("/spec/quota", json!({"sandboxes": 1}))]);
    let first = with(sandbox("a", "gvisor"), &[("/spec/ttl", json!("1h"))]);
    wakes(
        &class,
        &sandbox("s", "gvisor"),
        |driver| driver.create(&first),
        |driver| driver.delete(&sandbox_key("a")),
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn it_wakes_when_its_namespace_is_let_in() {
    let class = with(gvisor_class(), &[("/spec/namespaces/selector/matchLabels", json!({"team": "a"}))]);
    let label = |driver: &Driver| {
        driver.edit(&Key::new("Namespace", "", NAMESPACE), |namespace| {
            namespace["metadata"]["labels"]["team"] = json!("a");
        });
    };
    wakes(&class, &sandbox("s", "gvisor"), |_| {}, label).await;
}

#[tokio::test(start_paused = true)]
async fn it_wakes_when_nothing_opens_the_fence_any_more() {
    let key = Key::new("NetworkPolicy", NAMESPACE, "open");
    let spec = json!({"podSelector": {}, "policyTypes": ["Ingress"], "ingress": [{}]});
    let policy =
        json!({"kind": "NetworkPolicy", "metadata": {"name": "open", "namespace": NAMESPACE}, "spec": spec});
    wakes(
        &gvisor_class(),
        &sandbox("s", "gvisor"),
        |driver| driver.create(&policy),
        |driver| driver.delete(&key),
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn it_wakes_when_its_name_is_free() {
    let other = json!({
        "kind": "Pod", "metadata": {"name": "s", "namespace": NAMESPACE, "labels": {"glovebox.dev/sandbox": "s"}},
        "spec": {"containers": []},
    });
    wakes(
        &gvisor_class(),
        &sandbox("s", "gvisor"),
        |driver| driver.create(&other),
        |driver| driver.delete(&pod_key("s")),
    )
    .await;
}

/// A new sandbox of the name gets its pod when the old one's has gone.
#[tokio::test(start_paused = true)]
async fn a_namesake_follows_at_once() {
    let mut driver = Driver::new();
    driver.create(&gvisor_class());
    driver.create(&sandbox("s", "gvisor"));
    driver.run_for(LATER).await;
    let old = driver.get(&pod_key("s")).unwrap()["metadata"]["uid"].clone();
    driver.delete(&sandbox_key("s"));
    driver.create(&sandbox("s", "gvisor"));
    driver.run_for(SOON).await;
    let new = driver.get(&pod_key("s")).unwrap()["metadata"]["uid"].clone();
    assert_ne!(old, new);
}

/// Running is told as it begins; the pod is told to go within a second of the end, and nothing runs two seconds after.
#[tokio::test(start_paused = true)]
async fn time_is_kept() {
    let mut driver = Driver::new();
    driver.create(&gvisor_class());
    driver.create(&with(sandbox("s", "gvisor"), &[("/spec/ttl", json!("100s"))]));
    driver.run_for(Duration::from_secs(1)).await;
    assert_eq!(driver.get(&sandbox_key("s")).unwrap()["status"]["phase"], "Running");
    driver.run_for(Duration::from_millis(98_900)).await;
    assert!(has_pod(&driver, "s"), "not before its time");
    driver.run_for(Duration::from_millis(1100)).await;
    assert!(!has_pod(&driver, "s"));
    driver.run_for(Duration::from_secs(1)).await;
    assert_eq!(driver.get(&pod_key("s")), None);
    assert_eq!(driver.get(&sandbox_key("s")).unwrap()["status"]["reason"], "TtlExpired");
}

/// A clock that jumps ahead ends what is over by then, within a minute; one that jumps back ends nothing early.
#[tokio::test(start_paused = true)]
async fn clocks_jump() {
    for (hours, over) in [(1, true), (-1, false)] {
        let mut driver = Driver::new();
        driver.create(&gvisor_class());
        driver.create(&with(sandbox("s", "gvisor"), &[("/spec/ttl", json!("30m"))]));
        driver.run_for(LATER).await;
        driver.jump(jiff::SignedDuration::from_hours(hours));
        driver.run_for(Duration::from_secs(61)).await;
        assert_eq!(has_pod(&driver, "s"), !over, "{hours} h");
        assert_eq!(driver.violations(), Vec::<String>::new());
    }
}

/// Nobody but the sandbox's own object and class decides: a pod of another namespace with the same name is not ours.
#[tokio::test(start_paused = true)]
async fn namespaces_are_apart() {
    let mut driver = Driver::new();
    driver.create(&gvisor_class());
    driver
        .create(&json!({"kind": "Namespace", "metadata": {"name": "team-b"}, "status": {"phase": "Active"}}));
    let elsewhere = with(sandbox("s", "gvisor"), &[("/metadata/namespace", json!("team-b"))]);
    driver.create(&elsewhere);
    driver.create(&sandbox("s", "gvisor"));
    driver.run_for(LATER).await;
    driver.delete(&fixtures::key(&elsewhere));
    driver.run_for(LATER).await;
    assert!(has_pod(&driver, "s"));
    assert_eq!(driver.get(&Key::new("Pod", "team-b", "s")), None);
    assert_eq!(driver.violations(), Vec::<String>::new());
}
