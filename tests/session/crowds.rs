//! Many at once: each gets their own, a namespace leaves room for others, and what is too much is refused, not queued.

use std::time::Duration;

use futures::future::join_all;
use serde_json::json;
use tokio::io::AsyncWriteExt;

use crate::world::{EXEC, TOKEN, UID, World, command, exec, soon, timing};

#[tokio::test]
async fn a_namespace_has_half_and_leaves_the_rest() {
    let world = World::new().await;
    world.cluster.lets("alice", "create", "agentsandboxes/exec", "b");
    let mut holding = Vec::new();
    for _ in 0..8 {
        let mut client = world.connect().await;
        client.write_all(&exec(TOKEN, &[], &command(&["sleep"]))).await.unwrap();
        holding.push(client);
    }
    soon(async || world.agent.calls() == 8).await;
    let reply = world.exec(&command(&["echo"])).await;
    assert_eq!(reply.problem(), (429, "TooManyCalls".into()));
    assert!(reply.head.contains("retry-after: 1"), "{}", reply.head);
    // Another namespace has room.
    let mut other = crate::world::sandbox("s", UID, "Running", true);
    other["metadata"]["namespace"] = json!("b");
    world.put(&other);
    let mut pod = crate::world::pod("s", UID);
    pod["metadata"]["namespace"] = json!("b");
    world.directory.pod(&serde_json::from_value(pod).unwrap());
    let bytes = String::from_utf8(exec(TOKEN, &[], &command(&["echo"]))).unwrap();
    let bytes = bytes.replace(EXEC, "/v1/namespaces/b/sandboxes/s/exec");
    assert_eq!(world.send(bytes.as_bytes()).await.status, 200);
    drop(holding);
    tokio::time::timeout(Duration::from_secs(2), world.agent.alone()).await.unwrap();
    assert_eq!(world.exec(&command(&["echo"])).await.status, 200);
}

#[tokio::test]
async fn bytes_are_shared_as_calls_are() {
    let world = World::with(&["--max-buffered=10Mi", "--max-calls=1000"], timing()).await;
    let body = json!({"command": ["echo"], "maxOutputBytes": "6Mi"});
    assert_eq!(world.exec(&body).await.problem(), (429, "TooManyCalls".into()));
    let body = json!({"command": ["echo"], "maxOutputBytes": "4Mi"});
    assert_eq!(world.exec(&body).await.status, 200);
    assert!(world.metrics().await.contains("glovebox_session_buffered_bytes 0"));
}

#[tokio::test]
async fn nobody_gets_what_is_anothers() {
    let world = World::with(&["--max-calls=500"], timing()).await;
    let all = join_all((0..200).map(|number| {
        let world = &world;
        async move {
            let word = format!("word-{number}");
            let reply = if number % 3 == 0 {
                world.keyed(&word, &command(&["echo", &word])).await
            } else {
                world.exec(&json!({"command": ["cat"], "stdin": word})).await
            };
            assert_eq!((reply.status, &reply.json()["stdout"]), (200, &json!(word)), "{reply:?}");
            reply.json()["id"].as_str().unwrap().to_owned()
        }
    }))
    .await;
    let ids: std::collections::BTreeSet<_> = all.into_iter().collect();
    assert_eq!(ids.len(), 200);
    tokio::time::timeout(Duration::from_secs(2), world.agent.alone()).await.unwrap();
    let metrics = world.metrics().await;
    assert!(metrics.contains("glovebox_session_calls_total{outcome=\"Exited\"} 200"), "{metrics}");
    assert!(metrics.contains("glovebox_session_call_seconds_count 200"), "{metrics}");
}

#[tokio::test]
async fn connections_are_bounded() {
    let world = World::with(&["--max-connections=2"], timing()).await;
    let (one, two) = (world.connect().await, world.connect().await);
    tokio::time::sleep(Duration::from_millis(50)).await;
    let mut three = world.connect().await;
    let mut rest = Vec::new();
    let read = tokio::io::AsyncReadExt::read_to_end(&mut three, &mut rest);
    let _ = tokio::time::timeout(Duration::from_secs(2), read).await.expect("it is kept");
    assert!(rest.is_empty());
    drop((one, two));
    soon(async || world.get("/openapi.json").await.status == 200).await;
}
