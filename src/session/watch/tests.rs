//! A small API server that streams lists and watches, and breaks them off. Time is paused.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::{Mutex, MutexGuard},
    time::Duration,
};

use axum::{body::Body, http};
use futures::channel::mpsc;
use serde_json::{Value, json};
use tokio::time::sleep;
use tower::service_fn;

use super::*;
use crate::session::{Reason, bounds::usual, directory::Target};

type Line = Result<String, Infallible>;

#[derive(Default)]
struct Cluster {
    objects: BTreeMap<&'static str, Vec<Value>>,
    watches: Vec<(&'static str, mpsc::UnboundedSender<Line>)>,
    asked: Vec<String>,
}

/// The server. Clones are the same.
#[derive(Clone, Default)]
struct Fake(Arc<Mutex<Cluster>>);

const PODS: &str = "pods";
const SANDBOXES: &str = "agentsandboxes";

fn line(kind: &str, object: &Value) -> Line {
    Ok(json!({"type": kind, "object": object}).to_string() + "\n")
}

fn sandbox(name: &str, uid: &str) -> Value {
    json!({
        "apiVersion": "glovebox.dev/v1alpha1", "kind": "AgentSandbox",
        "metadata": {"name": name, "namespace": "a", "uid": uid, "resourceVersion": "1"}, "spec": {"image": "i"},
        "status": {"phase": "Running", "podName": name, "execution": usual(), "conditions": [
            {"type": "Ready", "status": "True", "reason": "Running", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"},
        ]},
    })
}

fn pod(name: &str, owner: &str, address: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "a", "uid": "p", "resourceVersion": "1", "ownerReferences": [
            {"apiVersion": "glovebox.dev/v1alpha1", "kind": "AgentSandbox", "name": name, "uid": owner, "controller": true},
        ]},
        "status": {"phase": "Running", "podIP": address},
    })
}

impl Fake {
    fn lock(&self) -> MutexGuard<'_, Cluster> {
        self.0.lock().unwrap()
    }

    fn client(&self) -> Client {
        let this = self.clone();
        let serve = move |request: http::Request<kube::client::Body>| {
            let answer = this.answer(request.uri());
            async move { Ok::<_, Infallible>(answer) }
        };
        Client::new(service_fn(serve), "default")
    }

    fn answer(&self, uri: &http::Uri) -> http::Response<Body> {
        let kind = if uri.path().ends_with(PODS) { PODS } else { SANDBOXES };
        let mut cluster = self.lock();
        cluster.asked.push(uri.to_string());
        let (sender, lines) = mpsc::unbounded();
        for object in cluster.objects.get(kind).into_iter().flatten() {
            sender.unbounded_send(line("ADDED", object)).unwrap();
        }
        let like = if kind == PODS { pod("x", "x", "") } else { sandbox("x", "x") };
        let mut end = like;
        end["metadata"] =
            json!({"resourceVersion": "9", "annotations": {"k8s.io/initial-events-end": "true"}});
        sender.unbounded_send(line("BOOKMARK", &end)).unwrap();
        cluster.watches.push((kind, sender));
        http::Response::new(Body::from_stream(lines))
    }

    fn tell(&self, to: &str, kind: &str, object: &Value) {
        for (_, watch) in self.lock().watches.iter().filter(|(watched, _)| *watched == to) {
            let _ = watch.unbounded_send(line(kind, object));
        }
    }

    /// All watches end as the server ends those that are too old, so that everything is listed again.
    fn expire(&self) {
        let gone = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Expired", "message": "", "code": 410});
        for kind in [PODS, SANDBOXES] {
            self.tell(kind, "ERROR", &gone);
        }
        self.lock().watches.clear();
    }
}

fn target(directory: &Directory, name: &str) -> Result<Target, Reason> {
    directory.target(&("a".into(), name.into())).map_err(|problem| problem.reason)
}

fn address(directory: &Directory, name: &str) -> Option<String> {
    target(directory, name).ok().map(|target| target.address.to_string())
}

#[tokio::test(start_paused = true)]
async fn the_directory_is_as_the_cluster_is() {
    let fake = Fake::default();
    // One that can't be read hides no other.
    let mut poison = sandbox("poison", "z");
    poison["spec"] = json!("no spec at all");
    fake.lock().objects = BTreeMap::from([
        (SANDBOXES, vec![poison.clone(), sandbox("s", "u"), sandbox("t", "v")]),
        (PODS, vec![pod("s", "u", "10.0.0.1"), pod("t", "v", "10.0.0.2")]),
    ]);
    let (directory, stop) = (Arc::new(Directory::default()), CancellationToken::new());
    let filling = tokio::spawn(fill(fake.client(), directory.clone(), Arc::default(), stop.clone()));
    directory.until(|| directory.is_loaded().then_some(())).await;
    assert_eq!((address(&directory, "s").as_deref(), directory.len()), (Some("10.0.0.1"), 2));
    assert!(
        fake.lock().asked.iter().any(|uri| uri.contains("labelSelector=glovebox.dev")),
        "pods of others are not read"
    );

    let settle = || sleep(Duration::from_millis(10));
    fake.tell(PODS, "MODIFIED", &pod("s", "u", "10.0.0.9"));
    settle().await;
    assert_eq!(address(&directory, "s").as_deref(), Some("10.0.0.9"));
    fake.tell(PODS, "DELETED", &pod("s", "u", "10.0.0.9"));
    settle().await;
    assert_eq!(target(&directory, "s"), Err(Reason::NotReady));
    fake.tell(SANDBOXES, "DELETED", &sandbox("s", "u"));
    settle().await;
    assert_eq!(target(&directory, "s"), Err(Reason::NotFound));
    // One that can be read no more is as good as gone.
    poison["metadata"]["name"] = json!("t");
    fake.tell(SANDBOXES, "MODIFIED", &poison);
    settle().await;
    assert_eq!(target(&directory, "t"), Err(Reason::NotFound));

    // Listed again: what went meanwhile is gone.
    fake.lock().objects =
        BTreeMap::from([(SANDBOXES, vec![sandbox("n", "w")]), (PODS, vec![pod("n", "w", "10.0.0.3")])]);
    fake.expire();
    sleep(Duration::from_secs(60)).await;
    assert_eq!((address(&directory, "n").as_deref(), directory.len()), (Some("10.0.0.3"), 1));
    stop.cancel();
    filling.await.unwrap();
}
