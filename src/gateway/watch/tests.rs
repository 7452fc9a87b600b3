//! A small API server that can go away: lists and watches as a real one streams them, and silence or errors for as long as it
//! takes. Time is paused, so that five minutes pass at once.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    net::IpAddr,
    sync::{Mutex, atomic::Ordering},
};

use axum::{body::Body, http};
use futures::{FutureExt as _, channel::mpsc};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::sleep;
use tower::service_fn;

use super::*;
use crate::{
    gateway::flow::{Asked, Cause},
    policy::{Destination, Wire},
};

const ADDRESS: &str = "10.244.0.7";
const NEXT: &str = "10.244.0.8";

/// How the server is away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Away {
    No,
    /// Connections are refused.
    Refusing,
    /// Requests get no answer and watches no end, until it is there again.
    Silent,
    /// Every answer is 503.
    Failing,
}

type Line = Result<String, Infallible>;

struct Cluster {
    objects: BTreeMap<&'static str, Vec<Value>>,
    away: Away,
    version: u64,
    watches: Vec<(&'static str, mpsc::UnboundedSender<Line>)>,
    asked: usize,
}

/// The server. Clones are the same.
#[derive(Clone)]
struct Fake(Arc<Mutex<Cluster>>);

fn plural(path: &str) -> &'static str {
    let kinds = [
        "pods",
        "agentsandboxes",
        "sandboxclasses",
        "egresspolicies",
        "egressapprovals",
        "nodes",
        "services",
    ];
    kinds.into_iter().find(|kind| path.ends_with(kind)).unwrap_or_else(|| panic!("{path} is not served"))
}

fn line(kind: &str, object: &Value) -> Line {
    Ok(json!({"type": kind, "object": object}).to_string() + "\n")
}

impl Fake {
    fn new() -> Self {
        let objects = BTreeMap::from([
            ("pods", vec![pod("s", "sandbox-uid", ADDRESS)]),
            ("agentsandboxes", vec![sandbox("s", "sandbox-uid")]),
            ("sandboxclasses", vec![class()]),
            ("egresspolicies", vec![]),
            ("egressapprovals", vec![]),
            ("nodes", vec![]),
            ("services", vec![]),
        ]);
        let cluster = Cluster { objects, away: Away::No, version: 1, watches: Vec::new(), asked: 0 };
        Self(Arc::new(Mutex::new(cluster)))
    }

    fn client(&self) -> Client {
        let this = self.clone();
        Client::new(service_fn(move |request| this.clone().serve(request)), "default")
    }

    async fn serve(
        self,
        request: http::Request<kube::client::Body>,
    ) -> Result<http::Response<Body>, tower::BoxError> {
        let away = {
            let mut cluster = self.0.lock().unwrap();
            cluster.asked += 1;
            cluster.away
        };
        match away {
            Away::No => Ok(self.answer(request.uri())),
            Away::Refusing => Err("connection refused".into()),
            Away::Silent => {
                // Until it is there again, and knows nothing of the connection.
                while self.0.lock().unwrap().away == Away::Silent {
                    sleep(Duration::from_secs(1)).await;
                }
                Err("connection reset by peer".into())
            }
            Away::Failing => Ok(http::Response::builder().status(503).body(Body::from("{}")).unwrap()),
        }
    }

    fn answer(&self, uri: &http::Uri) -> http::Response<Body> {
        let (kind, query) = (plural(uri.path()), uri.query().unwrap_or_default());
        let mut cluster = self.0.lock().unwrap();
        let version = cluster.version.to_string();
        if !query.contains("watch=true") {
            let list = json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList",
                "metadata": {"resourceVersion": version}, "items": []});
            return http::Response::new(Body::from(list.to_string()));
        }
        let (sender, lines) = mpsc::unbounded();
        if query.contains("sendInitialEvents=true") {
            for object in &cluster.objects[kind] {
                sender.unbounded_send(line("ADDED", object)).unwrap();
            }
            let mut end = json!({"metadata": {"resourceVersion": version, "annotations": {"k8s.io/initial-events-end": "true"}}});
            let head = cluster.objects[kind].first().cloned().unwrap_or_else(|| blank(kind));
            for field in ["apiVersion", "kind", "spec"] {
                end[field] = head[field].clone();
            }
            sender.unbounded_send(line("BOOKMARK", &end)).unwrap();
        } else {
            // Made again: what came since is told.
            let number = |text: &str| text.parse::<u64>().unwrap();
            let since =
                query.split('&').find_map(|part| part.strip_prefix("resourceVersion=")).map_or(0, number);
            let version = |object: &Value| number(object["metadata"]["resourceVersion"].as_str().unwrap());
            for object in cluster.objects[kind].iter().filter(|object| version(object) > since) {
                sender.unbounded_send(line("ADDED", object)).unwrap();
            }
        }
        cluster.watches.push((kind, sender));
        http::Response::new(Body::from_stream(lines))
    }

    /// Goes away, with all of its watches; silent, it leaves them open.
    fn leave(&self, away: Away) {
        let mut cluster = self.0.lock().unwrap();
        cluster.away = away;
        if away != Away::Silent {
            cluster.watches.clear();
        }
    }

    /// Is there again. What changed meanwhile is told by whatever watches are made now.
    fn come_back(&self) {
        let mut cluster = self.0.lock().unwrap();
        cluster.away = Away::No;
        cluster.watches.clear();
    }

    /// Adds an object and tells it to those who watch.
    fn add(&self, kind: &'static str, mut object: Value) {
        let mut cluster = self.0.lock().unwrap();
        cluster.version += 1;
        object["metadata"]["resourceVersion"] = json!(cluster.version.to_string());
        cluster.objects.get_mut(kind).unwrap().push(object.clone());
        if cluster.away == Away::No {
            for (_, watch) in cluster.watches.iter().filter(|(of, _)| *of == kind) {
                let _ = watch.unbounded_send(line("ADDED", &object));
            }
        }
    }
}

fn blank(kind: &str) -> Value {
    match kind {
        "services" => json!({"apiVersion": "v1", "kind": "Service", "spec": {}}),
        "nodes" => json!({"apiVersion": "v1", "kind": "Node", "spec": {}}),
        _ => json!({"apiVersion": "glovebox.dev/v1alpha1", "kind": "EgressPolicy", "spec": {"rules": []}}),
    }
}

fn pod(name: &str, owner: &str, address: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": "team-a", "uid": format!("pod-of-{owner}"), "resourceVersion": "1",
            "labels": {"glovebox.dev/sandbox": name, "glovebox.dev/class": "c"},
            "ownerReferences": [{"apiVersion": "glovebox.dev/v1alpha1", "kind": "AgentSandbox", "name": name, "uid": owner, "controller": true}],
        },
        "spec": {"containers": []},
        "status": {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]},
    })
}

fn sandbox(name: &str, uid: &str) -> Value {
    json!({
        "apiVersion": "glovebox.dev/v1alpha1", "kind": "AgentSandbox",
        "metadata": {"name": name, "namespace": "team-a", "uid": uid, "generation": 1, "resourceVersion": "1"},
        "spec": {"image": "i", "egress": {"allow": [{"name": "own", "hosts": ["own.example"]}]}},
    })
}

fn class() -> Value {
    json!({
        "apiVersion": "glovebox.dev/v1alpha1", "kind": "SandboxClass",
        "metadata": {"name": "c", "uid": "class-uid", "generation": 1, "resourceVersion": "1"},
        "spec": {"trust": "Trusted", "runtime": {"isolation": "SharedKernel"}, "ttl": {"default": "1h", "max": "1h"}},
    })
}

/// Until it is so, at most ten minutes of the paused time.
async fn until(what: &str, so: impl Fn() -> bool) {
    let waited = async {
        while !so() {
            sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(600), waited).await.unwrap_or_else(|_| panic!("never: {what}"));
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

async fn away(how: Away) {
    let (fake, directory, stop) = (Fake::new(), Arc::new(Directory::default()), CancellationToken::new());
    let metrics = Arc::new(Metrics::default());
    let filled = fill(
        Watched { client: fake.client(), namespace: "glovebox-system".into() },
        directory.clone(),
        Clock::default(),
        ClusterRanges::default(),
        metrics.clone(),
        stop.clone(),
    );
    let filled = tokio::spawn(filled);
    until("loaded", || directory.is_loaded()).await;
    let tenant = directory.find(address(ADDRESS)).expect("the sandbox of the lists");
    let destination = Destination::parse(b"own.example").unwrap();
    let asked = Asked { destination, port: 443, wire: Wire::Tls, request: None };
    let open = tenant.open(&asked, tenant.terms().generation, Timestamp::now()).unwrap();

    // What is quiet is not old: it is told so at each beat, though nothing changes for minutes.
    directory.heard(Timestamp::UNIX_EPOCH);
    sleep(Duration::from_secs(300)).await;
    assert!(directory.last_heard() > 0, "a quiet cluster is heard");

    fake.leave(how);
    sleep(BEAT * 2).await;
    directory.heard(Timestamp::UNIX_EPOCH);
    fake.add("agentsandboxes", sandbox("next", "next-uid"));
    fake.add("pods", pod("next", "next-uid", NEXT));
    sleep(Duration::from_secs(300)).await;
    // The last good policy stays, open tunnels go on, and who is new is nobody.
    let still = directory.find(address(ADDRESS)).unwrap();
    assert!(Arc::ptr_eq(&still, &tenant));
    assert!(asked.judge(&tenant.terms().policy, Timestamp::now()).denied().is_none());
    assert!(open.closed().now_or_never().is_none());
    assert!(directory.hold(address(NEXT), Duration::from_secs(2)).await.is_none(), "a new identity");
    // And whoever looks at the metrics sees since when.
    assert_eq!(directory.last_heard(), 0);
    let shown = metrics.render(&directory, 0, 0);
    assert!(shown.contains("glovebox_gateway_directory_heard_timestamp_seconds 0\n"), "{shown}");

    fake.come_back();
    until("the new one is known", || directory.find(address(NEXT)).is_some()).await;
    until("heard again", || directory.last_heard() > 0).await;
    assert!(Arc::ptr_eq(&directory.find(address(ADDRESS)).unwrap(), &tenant), "nothing was begun anew");
    assert!(open.closed().now_or_never().is_none());

    // It is heard of an end as before.
    tenant.begun.store(true, Ordering::Relaxed);
    {
        let mut ended = pod("s", "sandbox-uid", ADDRESS);
        ended["status"]["phase"] = json!("Failed");
        fake.0.lock().unwrap().objects.get_mut("pods").unwrap().remove(0);
        fake.add("pods", ended);
    }
    until("the old one is gone", || directory.find(address(ADDRESS)).is_none()).await;
    assert_eq!(open.closed().await, Cause::Gone);
    stop.cancel();
    filled.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn five_minutes_without_an_api_server_that_refuses() {
    away(Away::Refusing).await;
}

#[tokio::test(start_paused = true)]
async fn five_minutes_without_an_api_server_that_is_silent() {
    away(Away::Silent).await;
}

#[tokio::test(start_paused = true)]
async fn five_minutes_without_an_api_server_that_fails() {
    away(Away::Failing).await;
}

/// A replica that starts meanwhile knows nobody, and says so by not being ready.
#[tokio::test(start_paused = true)]
async fn who_starts_without_an_api_server_serves_nobody() {
    let (fake, directory, stop) = (Fake::new(), Arc::new(Directory::default()), CancellationToken::new());
    fake.leave(Away::Refusing);
    let filled = fill(
        Watched { client: fake.client(), namespace: "glovebox-system".into() },
        directory.clone(),
        Clock::default(),
        ClusterRanges::default(),
        Arc::default(),
        stop.clone(),
    );
    let filled = tokio::spawn(filled);
    sleep(Duration::from_secs(300)).await;
    assert!(!directory.is_loaded() && directory.find(address(ADDRESS)).is_none());
    assert_eq!(directory.last_heard(), 0);
    assert!(fake.0.lock().unwrap().asked > 10, "and goes on asking");
    fake.come_back();
    until("loaded", || directory.find(address(ADDRESS)).is_some()).await;
    stop.cancel();
    filled.await.unwrap();
}
