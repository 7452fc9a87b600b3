//! Retries with an idempotency key: the same call, never a second one.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

use crate::world::{TOKEN, UID, World, command, exec, sandbox, soon};

#[tokio::test]
async fn a_retry_gets_the_same_result_while_it_runs_and_after() {
    let world = World::new().await;
    let body = command(&["sleep", "150"]);
    let (one, two) = tokio::join!(world.keyed("k", &body), world.keyed("k", &body));
    let three = world.keyed("k", &body).await;
    assert_eq!((one.status, &one.body), (200, &two.body));
    assert_eq!((three.status, &one.body), (200, &three.body));
    assert_eq!(world.agent.calls(), 1);
    // However it is written.
    let same = json!({"timeout": "30000ms", "command": ["sleep", "150"]});
    assert_eq!(world.keyed("k", &same).await.problem().0, 422, "another timeout, by its words");
    let spaced = String::from_utf8(exec(TOKEN, &[("idempotency-key", "k")], &body)).unwrap();
    let (length, longer) = (body.to_string().len(), body.to_string().len() + 1);
    let spaced = spaced.replace("{\"command\"", "{ \"command\"");
    let spaced = spaced.replace(&format!("content-length: {length}"), &format!("content-length: {longer}"));
    assert_eq!(world.send(spaced.as_bytes()).await.body, one.body);
    assert_ne!(world.keyed("other", &body).await.json()["id"], one.json()["id"]);
    assert_ne!(world.exec(&body).await.json()["id"], one.json()["id"]);
    let metrics = world.metrics().await;
    assert!(metrics.contains("glovebox_session_repeated_calls_total 3"), "{metrics}");
}

#[tokio::test]
async fn a_key_is_for_one_request_of_one_user_to_one_sandbox() {
    let world = World::new().await;
    let first = world.keyed("k", &command(&["echo", "a"])).await;
    let reply = world.keyed("k", &command(&["echo", "b"])).await;
    assert_eq!(reply.problem(), (422, "KeyReused".into()));
    assert_eq!(reply.json()["error"]["field"], json!("Idempotency-Key"));
    world.cluster.knows("bobs-token", "bob");
    world.cluster.lets("bob", "create", "agentsandboxes/exec", "a");
    let bobs = world.send(&exec("bobs-token", &[("idempotency-key", "k")], &command(&["echo", "b"]))).await;
    assert_eq!((bobs.status, &bobs.json()["stdout"]), (200, &json!("b")), "another user knows nothing of it");
    // The sandbox ended, the result is still there.
    world.put(&sandbox("s", UID, "Succeeded", false));
    assert_eq!(world.keyed("k", &command(&["echo", "a"])).await.body, first.body);
    world.directory.no_sandbox("a", "s");
    assert_eq!(world.keyed("k", &command(&["echo", "a"])).await.body, first.body);
    assert_eq!(world.keyed("l", &command(&["echo", "a"])).await.problem().0, 404);
    // Whoever lost the right gets nothing, not even what was theirs.
    world.cluster.knows("carols-token", "carol");
    let carols =
        world.send(&exec("carols-token", &[("idempotency-key", "k")], &command(&["echo", "a"]))).await;
    assert_eq!(carols.problem().0, 403);
}

#[tokio::test]
async fn who_hangs_up_finds_the_result_later() {
    let world = World::new().await;
    let body = command(&["sleep", "200"]);
    let mut client = world.connect().await;
    client.write_all(&exec(TOKEN, &[("idempotency-key", "k")], &body)).await.unwrap();
    soon(async || world.agent.calls() > 0).await;
    drop(client);
    let reply = world.keyed("k", &body).await;
    assert_eq!((reply.status, &reply.json()["outcome"]), (200, &json!("Exited")));
    assert_eq!(world.agent.calls(), 1);
}

#[tokio::test]
async fn what_may_have_run_is_not_run_again() {
    let world = World::new().await;
    let body = command(&["echo"]);
    world.agent.does(|mut visit| async move {
        visit.open().await;
    });
    assert_eq!(world.keyed("k", &body).await.problem(), (502, "CallLost".into()));
    assert_eq!(world.keyed("k", &body).await.problem(), (502, "CallLost".into()));
    assert_eq!(world.agent.calls(), 1);
    // What has not is tried again.
    world.agent.does(|mut visit| async move {
        visit.say(crate::agent::REFUSED, &json!("Busy")).await;
        visit.hung_up().await;
    });
    assert_eq!(world.keyed("l", &body).await.problem(), (429, "SandboxBusy".into()));
    world.agent.does(crate::agent::honest);
    assert_eq!(world.keyed("l", &body).await.status, 200);
}

#[tokio::test]
async fn keys_are_bounded_and_not_for_streams() {
    let world = World::new().await;
    for key in ["", "a b", &"k".repeat(256)] {
        let reply = world.keyed(key, &command(&["echo"])).await;
        assert_eq!(
            (reply.problem().0, &reply.json()["error"]["field"]),
            (400, &json!("Idempotency-Key")),
            "{key:?}"
        );
    }
    let reply = world.keyed("k", &json!({"command": ["echo"], "stream": true})).await;
    assert_eq!((reply.problem().0, &reply.json()["error"]["field"]), (400, &json!("Idempotency-Key")));
    let twice = exec(TOKEN, &[("idempotency-key", "a"), ("idempotency-key", "b")], &command(&["echo"]));
    assert_eq!(world.send(&twice).await.problem().0, 400);
    assert_eq!(world.agent.calls(), 0);
    tokio::time::timeout(Duration::from_secs(1), world.agent.alone()).await.unwrap();
    let _: Value = world.exec(&command(&["echo"])).await.json();
}
