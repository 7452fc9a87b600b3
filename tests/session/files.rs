//! Files, between clients and an agent that keeps to the protocol: what goes in arrives, what comes out is all of it, and who may not
//! learns nothing.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::{
    agent::{ENTRY, RESULT, STDOUT, Visit},
    client::request,
    world::{FILES, TOKEN, World, soon, timing},
};

/// A good result, but for what is said here.
pub(crate) fn ended(but: Value) -> Value {
    let mut result = json!({"bytes": 0, "entries": 0, "skipped": 0, "truncated": false});
    for (name, value) in but.as_object().unwrap() {
        result[name] = value.clone();
    }
    result
}

pub(crate) fn entry(path: &str, kind: &str, size: usize) -> Value {
    json!({"path": path, "kind": kind, "size": size, "mode": 0o644, "modifiedMs": 1_700_000_000_123_i64})
}

/// An agent with one file and what was written last.
fn keeps(world: &World, content: Vec<u8>) -> Arc<Mutex<Vec<u8>>> {
    let kept = Arc::new(Mutex::new(content));
    let own = kept.clone();
    world.agent.does(move |visit| serve(visit, own.clone()));
    kept
}

async fn serve(mut visit: Visit, kept: Arc<Mutex<Vec<u8>>>) {
    let Some(asked) = visit.open_file().await else { return };
    let content = kept.lock().unwrap().clone();
    let size = content.len();
    let result = match asked["operation"].as_str() {
        Some("Stat") => {
            visit.say(ENTRY, &entry("", "File", size)).await;
            ended(json!({"entries": 1}))
        }
        Some("List") => {
            for name in ["b", "a"] {
                visit.say(ENTRY, &entry(name, "File", size)).await;
            }
            ended(json!({"entries": 2, "skipped": 1, "truncated": true}))
        }
        Some(word @ ("Read" | "Pack")) => {
            let path = if word == "Read" { "" } else { "d/f" };
            visit.say(ENTRY, &entry(path, "File", size)).await;
            for piece in content.chunks(60_000) {
                visit.send(STDOUT, piece).await;
            }
            ended(json!({"entries": 1, "bytes": size}))
        }
        _ if asked["operation"].get("Delete").is_some() => ended(json!({"entries": 3})),
        _ => {
            let Some(input) = visit.input().await else { return };
            let size = input.len();
            *kept.lock().unwrap() = input;
            ended(json!({"entries": 1, "bytes": size}))
        }
    };
    visit.say(RESULT, &result).await;
}

#[tokio::test]
async fn what_goes_in_comes_out() {
    let world = World::new().await;
    let kept = keeps(&world, Vec::new());
    for size in [0, 1, 100_000, 3_000_000] {
        let content: Vec<u8> = (0..size).map(|at: u32| at.to_le_bytes()[0] ^ 0xa5).collect();
        let head = String::from_utf8(request(
            "PUT",
            &format!("{FILES}?path=a%20b"),
            &[("authorization", &format!("Bearer {TOKEN}"))],
            "",
        ))
        .unwrap();
        let head = head.replace("content-length: 0", &format!("content-length: {size}"));
        let reply = world.send(&[head.as_bytes(), &content].concat()).await;
        assert_eq!((reply.status, reply.json()["bytes"].as_u64()), (200, Some(size.into())), "{reply:?}");
        assert!(*kept.lock().unwrap() == content, "{size} bytes");
        let reply = world.files("GET", "?path=a%20b", "").await;
        assert!(reply.status == 200 && reply.whole && reply.body == content, "{size} bytes: {}", reply.head);
        assert!(reply.head.contains(&format!("content-length: {size}")), "{}", reply.head);
        assert!(reply.head.contains("content-type: application/octet-stream"), "{}", reply.head);
    }
    let asked = world.agent.told.lock().unwrap().clone();
    assert_eq!(asked[0]["path"], "a b");
    assert_eq!(asked[0]["operation"], json!({"Write": {"parents": false, "replace": true}}));
    soon(async || world.metrics().await.contains("glovebox_session_buffered_bytes 0")).await;
    let metrics = world.metrics().await;
    let line = "glovebox_session_file_operations_total{operation=\"writeFile\",outcome=\"Done\"} 4";
    assert!(metrics.contains(line), "{metrics}");
}

#[tokio::test]
async fn what_is_told_and_done_is_answered() {
    let world = World::new().await;
    keeps(&world, b"12345".to_vec());
    let stat = world.files("GET", "/entry?path=d/f", "").await.json();
    assert_eq!(
        stat,
        json!({"path": "d/f", "kind": "File", "size": 5, "mode": "644", "modified": "2023-11-14T22:13:20.123Z"})
    );
    let list = world.files("GET", "/list", "").await.json();
    assert_eq!((&list["entries"][0]["path"], &list["entries"][1]["path"]), (&json!("a"), &json!("b")));
    assert_eq!((&list["truncated"], &list["skipped"]), (&json!(true), &json!(1)));
    let gone = world.files("DELETE", "?path=d&recursive=true", "").await.json();
    assert_eq!(gone["entries"], 3);
    let up = world.files("PUT", "/archive?path=d&timeout=5s", "tar").await;
    assert_eq!((up.status, up.json()["bytes"].as_u64()), (200, Some(3)));
    let down = world.files("GET", "/archive", "").await;
    assert!(down.status == 200 && down.whole && down.head.contains("application/x-tar"), "{}", down.head);
    let mut archive = tar::Archive::new(down.body.as_slice());
    let names: Vec<_> =
        archive.entries().unwrap().map(|entry| entry.unwrap().path().unwrap().into_owned()).collect();
    assert_eq!(names, [std::path::PathBuf::from("d/f")]);
    let told = world.agent.told.lock().unwrap().clone();
    assert_eq!((&told[3]["timeoutMs"], &told[3]["path"]), (&json!(5000), &json!("d")));
    assert_eq!(told[2]["operation"], json!({"Delete": {"recursive": true}}));
}

#[tokio::test]
async fn what_the_agent_refuses_is_told_with_what_to_do() {
    let world = World::new().await;
    for (word, status, reason) in [
        ("NotFound", 404, "NoSuchFile"),
        ("IsADirectory", 409, "FileConflict"),
        ("NotRegular", 422, "PathRefused"),
        ("LinkRefused", 422, "PathRefused"),
        ("ReadOnly", 422, "PathRefused"),
        ("TooBig", 413, "TooLarge"),
        ("NoSpace", 507, "NoSpace"),
        ("EntryRefused", 422, "ArchiveRefused"),
        ("DeadlineExceeded", 408, "DeadlineExceeded"),
    ] {
        world.agent.does(move |mut visit: Visit| async move {
            visit.open_file().await;
            // At once, though the body has not come: it is read all the same, so that the client hears of it.
            visit.say(RESULT, &ended(json!({"failure": {"reason": word, "at": "../x"}}))).await;
        });
        let reply = world.files("PUT", "/archive?path=d", &"x".repeat(1_000_000)).await;
        assert_eq!(reply.problem(), (status, reason.to_owned()), "{word}");
        assert!(reply.message().contains("entry \"../x\""), "{}", reply.message());
    }
}

#[tokio::test]
async fn wrong_requests_reach_no_agent() {
    let world = World::with(&["--max-transfer=1000"], timing()).await;
    for (method, below, field) in [
        ("GET", "?path=../../etc/passwd", "path"),
        ("GET", "?path=/etc/passwd", "path"),
        ("GET", "?path=%2Fetc", "path"),
        ("GET", "?path=a%00b", "path"),
        ("GET", "?path=a/%2e%2e/b", "path"),
        ("GET", "?path=%ff", "path"),
        ("GET", "", "path"),
        ("GET", "?path=a&timeout=11m", "timeout"),
        ("PUT", "?path=a&mode=4755", "mode"),
        ("PUT", "?path=a&replace=no", "replace"),
        ("DELETE", "?path=", "path"),
        ("PUT", "/archive?path=..", "path"),
    ] {
        let reply = world.files(method, below, "x").await;
        assert_eq!(reply.problem(), (400, "InvalidRequest".into()), "{method} {below}");
        assert_eq!(reply.json()["error"]["field"], json!(field), "{method} {below}");
    }
    let reply = world.files("PUT", "?path=a", &"x".repeat(1001)).await;
    assert_eq!(reply.problem(), (413, "TooLarge".into()));
    assert_eq!(world.agent.calls(), 0);
}

#[tokio::test]
async fn the_body_is_counted_and_not_believed() {
    let world = World::with(&["--max-transfer=100000"], timing()).await;
    let kept = keeps(&world, Vec::new());
    let head = format!(
        "PUT {FILES}?path=a HTTP/1.1\r\nhost: s\r\nconnection: close\r\nauthorization: Bearer {TOKEN}\r\n"
    );
    // In chunks, which have no length before the end.
    let chunk = format!("{:x}\r\n{}\r\n", 50_000, "x".repeat(50_000));
    let chunked = format!("{head}transfer-encoding: chunked\r\n\r\n");
    let reply = world.send(format!("{chunked}{chunk}{chunk}0\r\n\r\n").as_bytes()).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    kept.lock().unwrap().clear();
    let reply = world.send(format!("{chunked}{chunk}{chunk}1\r\nx\r\n0\r\n\r\n").as_bytes()).await;
    assert_eq!(reply.problem(), (413, "TooLarge".into()));
    // Cut off in the middle, and not at all after a while: the agent is told of no end.
    let mut cut = world.connect().await;
    cut.write_all(format!("{head}content-length: 100\r\n\r\nhalf").as_bytes()).await.unwrap();
    soon(async || world.agent.calls() == 3).await;
    drop(cut);
    let reply = world.send(format!("{head}content-length: 100\r\n\r\nhalf").as_bytes()).await;
    assert_eq!(reply.problem(), (408, "TooSlow".into()));
    tokio::time::timeout(Duration::from_secs(2), world.agent.alone()).await.expect("the agent is hung up on");
    assert!(kept.lock().unwrap().is_empty(), "nothing was taken for whole");
}

#[tokio::test]
async fn each_right_is_one_of_its_own() {
    let world = World::new().await;
    keeps(&world, b"x".to_vec());
    world.cluster.knows("bobs-token", "bob");
    let ask = async |method: &str, below: &str| {
        let bytes =
            request(method, &format!("{FILES}{below}"), &[("authorization", "Bearer bobs-token")], "x");
        world.send(&bytes).await
    };
    for (method, below, verb) in [
        ("GET", "?path=a", "get"),
        ("GET", "/entry?path=a", "get"),
        ("GET", "/list", "get"),
        ("GET", "/archive", "get"),
        ("PUT", "?path=a", "update"),
        ("PUT", "/archive", "update"),
        ("PUT", "?path=a&replace=false", "create"),
        ("DELETE", "?path=a", "delete"),
    ] {
        // All other rights, and the same one in another namespace, are none.
        world.cluster.0.lock().unwrap().may.retain(|[name, ..]| name != "bob");
        for other in ["get", "create", "update", "delete"] {
            world.cluster.lets("bob", other, "agentsandboxes/files", "b");
            world.cluster.lets("bob", other, "agentsandboxes/exec", "a");
            world.cluster.lets("bob", other, "agentsandboxes", "a");
        }
        let reply = ask(method, below).await;
        assert_eq!(reply.problem(), (403, "Forbidden".into()), "{method} {below}");
        let rule = format!("resources: [agentsandboxes/files], verbs: [{verb}]");
        assert!(reply.message().contains(&rule), "{}", reply.message());
    }
    assert_eq!(world.agent.calls(), 0);
    let fresh = World::new().await;
    keeps(&fresh, b"x".to_vec());
    fresh.cluster.knows("bobs-token", "bob");
    fresh.cluster.lets("bob", "create", "agentsandboxes/files", "a");
    let put = |below: &str| {
        request("PUT", &format!("{FILES}{below}"), &[("authorization", "Bearer bobs-token")], "x")
    };
    assert_eq!(fresh.send(&put("?path=a&replace=false")).await.status, 200);
    assert_eq!(fresh.send(&put("?path=a")).await.status, 403);
}

#[tokio::test]
async fn a_namespace_has_its_share_and_a_slow_reader_holds_nothing_for_long() {
    let world = World::new().await;
    world.agent.does(|mut visit: Visit| async move {
        visit.open_file().await;
        visit.say(ENTRY, &entry("", "File", 100_000_000)).await;
        while visit.send(STDOUT, &[b'x'; 60_000]).await {}
    });
    let get =
        request("GET", &format!("{FILES}?path=a"), &[("authorization", &format!("Bearer {TOKEN}"))], "");
    let mut open = Vec::new();
    for turn in 0..8 {
        let mut client = world.connect().await;
        client.write_all(&get).await.unwrap();
        soon(async || world.agent.calls() > turn).await;
        open.push(client);
    }
    let reply = world.send(&get).await;
    assert_eq!(reply.problem(), (429, "TooManyCalls".into()));
    let mut begun = [0; 12];
    open[0].read_exact(&mut begun).await.unwrap();
    assert_eq!(&begun, b"HTTP/1.1 200");
    tokio::time::timeout(Duration::from_secs(5), world.agent.alone())
        .await
        .expect("they are still talked to");
    soon(async || world.metrics().await.contains("glovebox_session_buffered_bytes 0")).await;
}
