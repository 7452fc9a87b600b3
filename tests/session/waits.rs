//! Where a sandbox stands, and waiting for it.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::world::{UID, World, pod, sandbox};

const STATUS: &str = "/v1/namespaces/a/sandboxes/s";

#[tokio::test]
async fn a_sandbox_says_where_it_stands() {
    let world = World::new().await;
    let status = world.get(STATUS).await.json();
    assert_eq!(
        status,
        json!({"namespace": "a", "name": "s", "uid": UID, "phase": "Running", "ready": true, "endsAt": "2030-01-01T00:00:00Z",
            "reason": "Running", "message": "as it should be"})
    );
    assert_eq!(world.get("/v1/namespaces/a/sandboxes/t").await.problem(), (404, "NotFound".into()));
}

#[tokio::test]
async fn a_wait_ends_when_it_is_so_or_never_will_be_or_is_over() {
    let world = World::new().await;
    let wait = async |query: &str| world.get(&format!("{STATUS}/wait?{query}")).await;
    let reached = |reply: &crate::client::Reply| reply.json()["reached"].as_bool();
    assert_eq!(reached(&wait("for=Ready").await), Some(true));
    let began = Instant::now();
    let reply = wait("for=Finished&timeout=200ms").await;
    assert_eq!((reply.status, reached(&reply)), (200, Some(false)));
    assert!(began.elapsed() >= Duration::from_millis(200));

    let later = |change: &'static (dyn Fn(&World) + Sync)| {
        let world = &world;
        async move {
            tokio::time::sleep(Duration::from_millis(100)).await;
            change(world);
        }
    };
    world.put(&sandbox("s", UID, "Starting", false));
    let change = later(&|world| world.put(&sandbox("s", UID, "Running", true)));
    let (reply, ()) = tokio::join!(wait("for=Ready"), change);
    assert_eq!((reached(&reply), &reply.json()["phase"]), (Some(true), &json!("Running")));
    // Ready is who can be called: the pod must be known too.
    world.directory.no_pod("a", "s");
    let change = later(&|world| world.directory.pod(&serde_json::from_value(pod("s", UID)).unwrap()));
    let (reply, ()) = tokio::join!(wait("for=Ready"), change);
    assert_eq!(reached(&reply), Some(true));
    world.put(&sandbox("s", UID, "Starting", false));
    let change = later(&|world| world.put(&sandbox("s", UID, "Failed", false)));
    let (reply, ()) = tokio::join!(wait("for=Ready"), change);
    assert_eq!(reply.problem(), (410, "Ended".into()));
    assert_eq!(reached(&wait("for=Finished").await), Some(true));
    world.put(&sandbox("s", UID, "Running", true));
    let change = later(&|world| world.directory.no_sandbox("a", "s"));
    let (reply, ()) = tokio::join!(wait("for=Finished"), change);
    assert_eq!(reply.problem(), (410, "Ended".into()));
    // One that is made in a moment is waited for, one that is not is not.
    assert_eq!(wait("for=Ready").await.problem(), (404, "NotFound".into()));
    let change = later(&|world| world.put(&sandbox("s", UID, "Running", true)));
    let (reply, ()) = tokio::join!(wait("for=Ready"), change);
    assert_eq!(reached(&reply), Some(true));
    assert_eq!(wait("for=Sleep").await.problem(), (400, "InvalidRequest".into()));
}
