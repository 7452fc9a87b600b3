//! Agents that lie about files: a typed error where there is still an answer to give, a stream that breaks off where there is not, no
//! hang, and nothing that leads out.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::{
    agent::{ENTRY, NONCE, RESULT, STARTED, STDERR, STDOUT, Visit, frame},
    client::Reply,
    files::{ended, entry},
    world::World,
};

const SECRET: &str = "what-a-hostile-agent-says";

fn says(world: &World, pieces: Vec<Vec<u8>>) {
    world.agent.does(move |mut visit: Visit| {
        let pieces = pieces.clone();
        async move {
            visit.open_file().await;
            for piece in pieces {
                visit.raw(&piece).await;
            }
            visit.hung_up().await;
        }
    });
}

fn told(value: &Value) -> Vec<u8> {
    frame(ENTRY, value.to_string().as_bytes())
}

fn end(but: Value) -> Vec<u8> {
    frame(RESULT, ended(but).to_string().as_bytes())
}

async fn within(world: &World, method: &str, below: &str, body: &str) -> Reply {
    let reply = tokio::time::timeout(Duration::from_secs(60), world.files(method, below, body)).await;
    reply.expect("it hangs")
}

/// Whether an answer is that of a broken agent, or broken off itself.
fn is_caught(reply: &Reply) -> bool {
    if reply.status == 200 { !reply.whole } else { reply.problem() == (502, "AgentFailed".into()) }
}

#[tokio::test]
async fn what_no_agent_says_ends_it_at_once() {
    let world = World::new().await;
    let file = |size| told(&entry("", "File", size));
    for (method, below, pieces) in [
        ("GET", "?path=a", vec![frame(STDOUT, SECRET.as_bytes())]),
        ("GET", "?path=a", vec![told(&entry("", "Directory", 1))]),
        ("GET", "?path=a", vec![told(&entry("b", "File", 1))]),
        ("GET", "?path=a", vec![file(usize::MAX)]),
        ("GET", "?path=a", vec![file(300 << 20)]),
        ("GET", "?path=a", vec![file(3), file(3)]),
        ("GET", "?path=a", vec![file(3), frame(STDOUT, b"1234")]),
        ("GET", "?path=a", vec![file(3), frame(STDOUT, b"12"), end(json!({"entries": 1, "bytes": 2}))]),
        ("GET", "?path=a", vec![file(3), frame(STDERR, b"123")]),
        ("GET", "?path=a", vec![file(3), frame(NONCE, &[0; 32])]),
        ("GET", "?path=a", vec![frame(STARTED, b"")]),
        ("GET", "?path=a", vec![vec![ENTRY, 0xff, 0xff, 0xff, 0xff]]),
        ("GET", "?path=a", vec![frame(ENTRY, SECRET.as_bytes())]),
        ("GET", "?path=a", vec![frame(200, SECRET.as_bytes())]),
        ("GET", "?path=a", vec![end(json!({"entries": 1}))]),
        ("GET", "?path=a", vec![end(json!({"failure": {"reason": "NotFound", "at": SECRET}}))]),
        ("GET", "?path=a", vec![end(json!({"failure": {"reason": SECRET}}))]),
        ("GET", "/entry", vec![end(json!({}))]),
        ("GET", "/list", vec![told(&entry("../x", "File", 1))]),
        ("GET", "/list", vec![told(&entry("x", "File", 1)), end(json!({"entries": 2}))]),
        ("GET", "/list", vec![told(&entry("x", "File", 1)), frame(STDOUT, b"x")]),
        ("GET", "/archive", vec![told(&entry("../../.bashrc", "File", 1))]),
        ("GET", "/archive", vec![told(&entry("/etc/passwd", "File", 1))]),
        ("GET", "/archive", vec![told(&entry("link", "Symlink", 0))]),
        ("PUT", "?path=a", vec![told(&entry("", "File", 1))]),
        ("PUT", "?path=a", vec![end(json!({"entries": 1, "truncated": true}))]),
        ("DELETE", "?path=a", vec![end(json!({"entries": 0}))]),
    ] {
        says(&world, pieces.clone());
        let begun = Instant::now();
        let reply = within(&world, method, below, "body").await;
        assert!(is_caught(&reply), "{method} {below} {:?}: {reply:?}", pieces.last().map(|last| &last[..5]));
        assert!(!String::from_utf8_lossy(&reply.body).contains(SECRET), "{reply:?}");
        assert!(begun.elapsed() < Duration::from_secs(2), "{method} {below}: {:?}", begun.elapsed());
    }
    tokio::time::timeout(Duration::from_secs(2), world.agent.alone()).await.expect("connections are left");
}

#[tokio::test]
async fn what_never_ends_has_an_end() {
    let world = World::with(&["--max-transfer=1000000"], crate::world::timing()).await;
    // A listing, an archive, and what a file holds.
    for (below, size) in [("/list", 0), ("/archive", 0), ("/archive", 60_000)] {
        world.agent.does(move |mut visit: Visit| async move {
            visit.open_file().await;
            for turn in 0_u64.. {
                let content = vec![b'x'; size];
                if !visit.say(ENTRY, &entry(&format!("f{turn}"), "File", size)).await
                    || size > 0 && !visit.send(STDOUT, &content).await
                {
                    return;
                }
            }
        });
        let reply = within(&world, "GET", below, "").await;
        assert!(is_caught(&reply), "{below}: {} bytes", reply.body.len());
        assert!(reply.body.len() < 100_000_000, "{} bytes", reply.body.len());
    }
    // Silence, before and after it begins.
    for pieces in [vec![], vec![told(&entry("", "File", 10)), frame(STDOUT, b"12345")]] {
        let began = !pieces.is_empty();
        says(&world, pieces);
        let reply = within(&world, "GET", "?path=a&timeout=200ms", "").await;
        if began {
            assert!(reply.status == 200 && !reply.whole && reply.body == b"12345", "{reply:?}");
        } else {
            assert_eq!(reply.problem(), (504, "DeadlineMissed".into()));
        }
    }
    tokio::time::timeout(Duration::from_secs(2), world.agent.alone()).await.expect("connections are left");
}

#[tokio::test]
async fn an_agent_that_goes_away_or_knows_nothing_of_files_is_told_from_one_that_lies() {
    let world = World::new().await;
    world.agent.does(|mut visit: Visit| async move {
        visit.open_file().await;
    });
    assert_eq!(within(&world, "PUT", "?path=a", "x").await.problem(), (502, "CallLost".into()));
    for word in ["Busy", "NoFiles", "NotSigned", "Malformed"] {
        let reason = if word == "Busy" { (429, "SandboxBusy") } else { (502, "AgentFailed") };
        says(&world, vec![frame(6, json!(word).to_string().as_bytes())]);
        let reply = within(&world, "PUT", "?path=a", "x").await;
        assert_eq!(reply.problem(), (reason.0, reason.1.to_owned()), "{word}");
        assert!(reply.message().contains("was not begun"), "{}", reply.message());
    }
    world.directory.no_pod("a", "s");
    assert_eq!(within(&world, "GET", "?path=a", "").await.problem(), (409, "NotReady".into()));
}
