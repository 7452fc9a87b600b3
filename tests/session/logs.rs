//! Logs: whose, how much of them, and what becomes of what the API server says.

use crate::{
    client::request,
    world::{TOKEN, World, sandbox},
};

const LOGS: &str = "/v1/namespaces/a/sandboxes/s/logs";
/// What the API server is asked: of this pod, of this container, and no more than of a command's output.
const ASKED: &str = "/api/v1/namespaces/a/pods/s/log?&container=workload";

fn answers(world: &World, rest: &str, code: u16, text: &str) {
    let mut known = world.cluster.0.lock().unwrap();
    known.logs.insert(format!("{ASKED}{rest}"), (code, text.into()));
}

#[tokio::test]
async fn what_was_written_is_handed_over() {
    let world = World::new().await;
    world.cluster.lets("alice", "get", "agentsandboxes/logs", "a");
    answers(&world, "&limitBytes=67108864", 200, "one\ntwo\n");
    let reply = world.get(LOGS).await;
    assert_eq!((reply.status, reply.body.as_slice(), reply.whole), (200, &b"one\ntwo\n"[..], true));
    assert!(reply.head.contains("content-type: text/plain"), "{}", reply.head);
    answers(
        &world,
        "&follow=true&limitBytes=67108864&sinceSeconds=60&tailLines=1&timestamps=true",
        200,
        "two\n",
    );
    let reply = world.get(&format!("{LOGS}?follow=true&tailLines=1&since=1m&timestamps=true")).await;
    assert_eq!((reply.status, reply.body.as_slice()), (200, &b"two\n"[..]));
    assert_eq!(world.get(&format!("{LOGS}?tailLines=x")).await.problem(), (400, "InvalidRequest".into()));
}

#[tokio::test]
async fn who_may_not_and_what_is_not_there_is_told() {
    let world = World::new().await;
    let reply = world.get(LOGS).await;
    assert_eq!(reply.problem(), (403, "Forbidden".into()), "the right to have commands run is another one");
    assert!(
        reply.message().contains("resources: [agentsandboxes/logs], verbs: [get]"),
        "{}",
        reply.message()
    );
    let nobody = world.send(&request("GET", LOGS, &[], "")).await;
    assert_eq!(nobody.problem(), (401, "Unauthenticated".into()));
    // What was said of a right is believed for a while, so that another session is asked.
    let world = World::new().await;
    world.cluster.lets("alice", "get", "agentsandboxes/logs", "a");
    for (code, status, reason) in
        [(400, 409, "NotReady"), (403, 403, "Forbidden"), (404, 410, "Ended"), (500, 503, "ApiUnavailable")]
    {
        answers(&world, "&limitBytes=67108864", code, "words of the API server");
        let reply = world.get(LOGS).await;
        assert_eq!(reply.problem(), (status, reason.to_owned()));
        assert!(!reply.message().contains("words of"), "{}", reply.message());
    }
    // A pod of the same name that is somebody else's is not read.
    world.put(&sandbox("s", "another-uid", "Running", true));
    assert_eq!(world.get(LOGS).await.problem(), (409, "NotReady".into()));
    let bearer = format!("Bearer {TOKEN}");
    let other = request("GET", &LOGS.replace("/s/", "/t/"), &[("authorization", &bearer)], "");
    assert_eq!(world.send(&other).await.problem(), (404, "NotFound".into()));
}
