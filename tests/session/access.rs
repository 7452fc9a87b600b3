//! Who may, who may not, and what they learn of what is not theirs.

use serde_json::json;

use crate::{
    cluster::Away,
    world::{EXEC, TOKEN, World, command, exec, sandbox, timing},
};

#[tokio::test]
async fn who_is_nobody_is_told_so() {
    let world = World::new().await;
    for fields in [
        &[][..],
        &[("authorization", "Bearer stolen")],
        &[("authorization", "Basic YTpi")],
        &[("authorization", "Bearer good-token"), ("authorization", "Bearer good-token")],
    ] {
        let all = [fields, &[("content-type", "application/json")]].concat();
        let reply = world.send(&crate::client::request("POST", EXEC, &all, "{\"command\":[\"echo\"]}")).await;
        assert_eq!(reply.problem(), (401, "Unauthenticated".into()), "{fields:?}");
        assert!(reply.head.contains("www-authenticate: bearer"), "{}", reply.head);
    }
    assert_eq!(world.agent.calls(), 0);
    assert_eq!(world.cluster.asked("SubjectAccessReview"), 0);
}

#[tokio::test]
async fn the_missing_rule_is_named_and_nothing_else() {
    let world = World::new().await;
    world.cluster.knows("bobs-token", "bob");
    world.cluster.lets("bob", "get", "agentsandboxes", "a");
    world.cluster.lets("bob", "create", "agentsandboxes/exec", "b");
    let run = async |path: &str| {
        let bytes = String::from_utf8(exec("bobs-token", &[], &command(&["echo"]))).unwrap();
        world.send(bytes.replace(EXEC, path).as_bytes()).await
    };
    let there = run(EXEC).await;
    assert_eq!(there.problem(), (403, "Forbidden".into()));
    let rule = "apiGroups: [glovebox.dev], resources: [agentsandboxes/exec], verbs: [create]";
    assert!(there.message().contains(rule) && there.message().contains("namespace a"), "{}", there.message());
    // What is there and what is not there look the same to whoever may not.
    let not_there = run("/v1/namespaces/a/sandboxes/nothing/exec").await;
    assert_eq!((not_there.status, not_there.message()), (there.status, there.message()));
    assert_eq!(run("/v1/namespaces/b/sandboxes/s/exec").await.problem(), (404, "NotFound".into()));
    // Even a request that can't be read tells nothing before.
    let bytes = exec("bobs-token", &[], &json!({"x": 1}));
    assert_eq!(world.send(&bytes).await.problem(), (403, "Forbidden".into()));
    let get = async |token: &str, path: &str| {
        let bearer = format!("Bearer {token}");
        world.send(&crate::client::request("GET", path, &[("authorization", &bearer)], "")).await
    };
    assert_eq!(get("bobs-token", "/v1/namespaces/a/sandboxes/s").await.status, 200);
    for path in ["/v1/namespaces/b/sandboxes/s", "/v1/namespaces/b/sandboxes/s/wait?for=Ready"] {
        let reply = get("bobs-token", path).await;
        assert_eq!(reply.problem(), (403, "Forbidden".into()));
        let rule = "apiGroups: [glovebox.dev], resources: [agentsandboxes], verbs: [get]";
        assert!(reply.message().contains(rule), "{}", reply.message());
    }
    assert_eq!(world.agent.calls(), 0);
}

#[tokio::test]
async fn the_api_server_is_asked_once_for_many() {
    let world = World::new().await;
    world.cluster.is(Away::Slow);
    let body = command(&["echo"]);
    let all = futures::future::join_all((0..8).map(|_| world.exec(&body))).await;
    assert!(all.iter().all(|reply| reply.status == 200), "{all:?}");
    assert_eq!((world.cluster.asked("TokenReview"), world.cluster.asked("SubjectAccessReview")), (1, 1));
    // Remembered, and still asked for each sandbox and each right.
    assert_eq!(world.get("/v1/namespaces/a/sandboxes/s").await.status, 200);
    assert_eq!((world.cluster.asked("TokenReview"), world.cluster.asked("SubjectAccessReview")), (1, 2));
    let metrics = world.metrics().await;
    assert!(
        metrics.contains("glovebox_session_reviews_total{review=\"token\",cached=\"yes\"} 8"),
        "{metrics}"
    );
}

#[tokio::test]
async fn what_is_believed_is_believed_for_a_moment() {
    let believed = std::time::Duration::from_millis(300);
    let world = World::with(&[], glovebox::session::Timing { believed, ..timing() }).await;
    assert_eq!(world.exec(&command(&["echo"])).await.status, 200);
    world.cluster.0.lock().unwrap().tokens.clear();
    tokio::time::sleep(believed).await;
    assert_eq!(world.exec(&command(&["echo"])).await.problem(), (401, "Unauthenticated".into()));
    world.cluster.knows(TOKEN, "alice");
    tokio::time::sleep(believed).await;
    assert_eq!(world.exec(&command(&["echo"])).await.status, 200);
    world.cluster.0.lock().unwrap().may.clear();
    tokio::time::sleep(believed).await;
    assert_eq!(world.exec(&command(&["echo"])).await.problem(), (403, "Forbidden".into()));
}

#[tokio::test]
async fn without_the_api_server_nobody_is_let_in() {
    for away in [Away::Refusing, Away::Silent, Away::Forbidding] {
        let world = World::new().await;
        world.cluster.is(away);
        let reply = world.exec(&command(&["echo"])).await;
        assert_eq!(reply.problem(), (503, "ApiUnavailable".into()), "{away:?}");
        assert!(!String::from_utf8_lossy(&reply.body).contains(TOKEN));
        assert_eq!(world.agent.calls(), 0);
        world.cluster.is(Away::No);
        assert_eq!(world.exec(&command(&["echo"])).await.status, 200, "a failure is not remembered");
        // Whom it knows it still knows for a moment; whether they may do something else it does not.
        world.cluster.is(away);
        assert_eq!(world.exec(&command(&["echo"])).await.status, 200);
        assert_eq!(world.get("/v1/namespaces/a/sandboxes/s").await.problem(), (503, "ApiUnavailable".into()));
    }
}

#[tokio::test]
async fn a_token_for_another_audience_is_no_token() {
    let world = World::with(&["--audience=glovebox", "--audience=other"], timing()).await;
    assert_eq!(world.exec(&command(&["echo"])).await.problem(), (401, "Unauthenticated".into()));
    let user = world.cluster.0.lock().unwrap().tokens[TOKEN].0.clone();
    for (token, audience) in [("ours", "glovebox"), ("theirs", "somebody")] {
        world.cluster.0.lock().unwrap().tokens.insert(token.into(), (user.clone(), Some(audience.into())));
    }
    assert_eq!(world.send(&exec("ours", &[], &command(&["echo"]))).await.status, 200);
    assert_eq!(world.send(&exec("theirs", &[], &command(&["echo"]))).await.status, 401);
}

#[tokio::test]
async fn one_sandbox_is_not_another() {
    let world = World::new().await;
    // Of the same namespace, with a pod of somebody else's.
    world.put(&sandbox("t", "uid-t", "Running", true));
    let bytes = String::from_utf8(exec(TOKEN, &[], &command(&["echo"]))).unwrap();
    let reply = world.send(bytes.replace("/s/exec", "/t/exec").as_bytes()).await;
    assert_eq!(reply.problem(), (409, "NotReady".into()));
    assert_eq!(world.agent.calls(), 0);
}
