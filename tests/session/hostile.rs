//! Agents that misbehave, each in its way, seen from a client: a typed error, no hang, nothing of what they said.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

use crate::{
    agent::{NONCE, OPEN, RESULT, STARTED, STDERR, STDOUT, Visit, result},
    client::Reply,
    world::{TOKEN, World, command, exec, soon},
};

const SECRET: &str = "what-a-hostile-agent-says";

/// A call to an agent that does this once it was asked; the answer, and how long it took.
async fn run<F: Future<Output = ()> + Send + 'static>(
    world: &World,
    script: impl Fn(Visit) -> F + Send + Sync + 'static,
) -> (Reply, Duration) {
    world.agent.does(script);
    let began = Instant::now();
    let body = json!({"command": ["x"], "timeout": "200ms", "maxOutputBytes": 1000});
    let reply = tokio::time::timeout(Duration::from_secs(5), world.exec(&body)).await.expect("a call hangs");
    assert!(!String::from_utf8_lossy(&reply.body).contains(SECRET), "{reply:?}");
    (reply, began.elapsed())
}

/// What it says after it was asked.
async fn says(world: &World, pieces: Vec<Vec<u8>>) -> Reply {
    let script = move |mut visit: Visit| {
        let pieces = pieces.clone();
        async move {
            visit.open().await;
            for piece in pieces {
                visit.raw(&piece).await;
            }
            visit.hung_up().await;
        }
    };
    run(world, script).await.0
}

fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
    crate::agent::frame(kind, payload)
}

fn end(but: Value) -> Vec<u8> {
    frame(RESULT, result(but).to_string().as_bytes())
}

#[tokio::test]
async fn what_no_agent_says_ends_the_call_at_once() {
    let world = World::new().await;
    let started = || frame(STARTED, b"");
    for pieces in [
        vec![frame(STDOUT, SECRET.as_bytes())],
        vec![frame(200, SECRET.as_bytes())],
        vec![started(), frame(STDOUT, &[b'x'; 70_000])],
        vec![started(), vec![STDOUT, 0xff, 0xff, 0xff, 0xff]],
        vec![started(), vec![OPEN, 0, 15, 0, 0]],
        vec![started(), frame(NONCE, &[0; 32])],
        vec![started(), frame(STDOUT, &[b'x'; 600]), frame(STDERR, &[b'x'; 401])],
        vec![started(), end(json!({"stdoutBytes": 10}))],
        vec![started(), frame(STDOUT, b"12345"), end(json!({"stdoutBytes": 4}))],
        vec![started(), end(json!({"outcome": "NotStarted", "message": format!("{SECRET}\n")}))],
        vec![started(), frame(RESULT, SECRET.as_bytes())],
        vec![started(), frame(RESULT, &[b'['; 4096])],
        vec![end(json!({}))],
    ] {
        let reply = says(&world, pieces.clone()).await;
        assert_eq!(
            reply.problem(),
            (502, "AgentFailed".into()),
            "{:?}",
            pieces.last().map(|last| &last[..5])
        );
        assert!(
            reply.message().contains("forged") && !reply.message().contains("has not run"),
            "{}",
            reply.message()
        );
    }
    tokio::time::timeout(Duration::from_secs(2), world.agent.alone()).await.expect("connections are left");
}

#[tokio::test]
async fn output_without_end_has_an_end() {
    let world = World::new().await;
    let script = |mut visit: Visit| async move {
        visit.open().await;
        visit.send(STARTED, b"").await;
        while visit.send(STDOUT, &[b'x'; 100]).await {}
    };
    assert_eq!(run(&world, script).await.0.problem(), (502, "AgentFailed".into()));
    // In a stream too, where it has begun by then.
    let reply = world.exec(&json!({"command": ["x"], "maxOutputBytes": 1000, "stream": true})).await;
    let lines = reply.lines();
    assert_eq!((reply.status, lines.last().unwrap()["error"]["reason"].as_str()), (200, Some("AgentFailed")));
    assert_eq!(lines.len(), 11);
}

#[tokio::test]
async fn silence_is_given_up_at_the_guard_and_no_later() {
    let world = World::new().await;
    let greets_not = |mut visit: Visit| async move { visit.hung_up().await };
    let (reply, took) = run(&world, greets_not).await;
    assert_eq!(reply.problem(), (503, "AgentUnreachable".into()));
    assert!(reply.message().contains("has not run") && took < Duration::from_secs(2), "{took:?}");

    let starts_not = |mut visit: Visit| async move {
        visit.open().await;
        visit.hung_up().await;
    };
    let (reply, took) = run(&world, starts_not).await;
    assert_eq!(reply.problem(), (504, "DeadlineMissed".into()));
    assert!(reply.message().contains("may have run"), "{}", reply.message());
    assert!((Duration::from_millis(500)..Duration::from_secs(2)).contains(&took), "{took:?}");

    let ends_not = |mut visit: Visit| async move {
        visit.open().await;
        visit.send(STARTED, b"").await;
        // A byte from time to time is still no result.
        while visit.send(STDOUT, b"x").await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let (reply, took) = run(&world, ends_not).await;
    assert_eq!(reply.problem(), (504, "DeadlineMissed".into()));
    assert!(reply.message().contains("had started") && took < Duration::from_secs(2), "{took:?}");
}

#[tokio::test]
async fn an_agent_that_goes_away_is_told_from_one_that_never_came() {
    let world = World::new().await;
    let after_open = |mut visit: Visit| async move {
        visit.open().await;
    };
    let (reply, _) = run(&world, after_open).await;
    assert_eq!(reply.problem(), (502, "CallLost".into()));
    assert!(reply.message().contains("may have run"), "{}", reply.message());
    let in_a_frame = |mut visit: Visit| async move {
        visit.open().await;
        visit.send(STARTED, b"").await;
        visit.raw(&[STDOUT, 0, 0, 1, 0, b'x']).await;
    };
    assert_eq!(run(&world, in_a_frame).await.0.problem(), (502, "CallLost".into()));
    let at_once = |_: Visit| async {};
    let (reply, _) = run(&world, at_once).await;
    assert_eq!(reply.problem(), (502, "CallLost".into()));
    assert!(reply.message().contains("has not run"), "{}", reply.message());
    // Nobody listens.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let free = listener.local_addr().unwrap().port();
    drop(listener);
    let other = World::with(&["--agent-port", &free.to_string()], crate::world::timing()).await;
    assert_eq!(other.exec(&command(&["echo"])).await.problem(), (503, "AgentUnreachable".into()));
}

#[tokio::test]
async fn a_refusal_says_what_to_do() {
    let world = World::new().await;
    for (word, problem) in [
        ("Busy", (429, "SandboxBusy")),
        ("NoResources", (429, "SandboxBusy")),
        ("ShuttingDown", (410, "Ended")),
        ("Malformed", (502, "AgentFailed")),
        ("NotSigned", (502, "AgentFailed")),
    ] {
        let reply = says(&world, vec![frame(6, json!(word).to_string().as_bytes())]).await;
        assert_eq!(reply.problem(), (problem.0, problem.1.to_owned()), "{word}");
        assert!(reply.message().contains("has not run"), "{}", reply.message());
        assert_eq!(reply.head.contains("retry-after: 1"), problem.0 == 429, "{}", reply.head);
    }
}

#[tokio::test]
async fn a_sandbox_that_dies_takes_its_calls_along() {
    let world = World::new().await;
    for stream in [false, true] {
        // A pod that is gone sends nothing, not even that it is.
        let mut client = world.connect().await;
        let body = json!({"command": ["sleep"], "timeout": "5m", "stream": stream});
        client.write_all(&exec(TOKEN, &[], &body)).await.unwrap();
        let calls = world.agent.calls();
        soon(async || world.agent.calls() > calls).await;
        tokio::time::sleep(Duration::from_millis(30)).await;
        world.directory.no_pod("a", "s");
        let reply =
            tokio::time::timeout(Duration::from_secs(2), crate::client::exchange(client, b"")).await.unwrap();
        let error = if stream {
            reply.lines().pop().unwrap()["error"].clone()
        } else {
            reply.json()["error"].clone()
        };
        assert_eq!(error["reason"], json!("Ended"), "{error}");
        world.directory.pod(&serde_json::from_value(crate::world::pod("s", crate::world::UID)).unwrap());
    }
}

#[tokio::test]
async fn a_client_that_reads_nothing_holds_nothing_for_long() {
    let world = World::new().await;
    world.agent.does(|mut visit: Visit| async move {
        visit.open().await;
        visit.send(STARTED, b"").await;
        while visit.send(STDOUT, &[b'x'; 60_000]).await {}
    });
    let mut client = world.connect().await;
    let body = json!({"command": ["x"], "timeout": "10m", "maxOutputBytes": "64Mi", "stream": true});
    client.write_all(&exec(TOKEN, &[], &body)).await.unwrap();
    soon(async || world.agent.calls() > 0).await;
    // The agent has to wait meanwhile, and then the connection is closed, not kept for ten minutes.
    tokio::time::timeout(Duration::from_secs(4), world.agent.alone()).await.expect("it is still talked to");
    soon(async || world.metrics().await.contains("glovebox_session_buffered_bytes 0")).await;
    drop(client);
}
