//! Calls as they should go, and what is asked wrongly.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::{
    agent::{RESULT, STARTED, STDOUT, result},
    client::request,
    world::{EXEC, TOKEN, World, command, exec, pod, sandbox},
};

#[tokio::test]
async fn a_command_runs_and_all_of_it_is_told() {
    let world = World::new().await;
    let reply = world.exec(&command(&["echo", "a", "ä\n"])).await;
    let answer = reply.json();
    assert_eq!(
        (reply.status, &answer["outcome"], &answer["exitCode"]),
        (200, &json!("Exited"), &json!(0)),
        "{answer}"
    );
    assert_eq!(
        (&answer["stdout"], &answer["stderr"], &answer["stdoutBytes"]),
        (&json!("a ä\n"), &json!(""), &json!(5))
    );
    assert_eq!(answer["truncated"], json!(false));
    assert!(reply.head.contains("cache-control: no-store"), "{}", reply.head);
    let told = world.agent.told.lock().unwrap()[0].clone();
    assert_eq!(told["id"], answer["id"]);
    assert_eq!((&told["timeoutMs"], &told["maxOutputBytes"]), (&json!(30_000), &json!(1 << 20)));

    let answer = world.exec(&command(&["fail", "7"])).await.json();
    assert_eq!(answer["exitCode"], json!(7));
    let answer = world.exec(&command(&["binary"])).await.json();
    assert_eq!(
        (&answer["stdoutBase64"], &answer["stderr"], &answer["stdout"]),
        (&json!("/wA="), &json!("e"), &Value::Null)
    );
    let reply = world.exec(&command(&["missing"])).await;
    let answer = reply.json();
    assert_eq!(
        (reply.status, &answer["outcome"], &answer["exitCode"]),
        (200, &json!("NotStarted"), &json!(127))
    );
    assert_eq!(answer["message"], json!("missing: no such program"));
}

#[tokio::test]
async fn input_comes_through_however_much_it_is() {
    let world = World::new().await;
    for input in [String::new(), "hello\n".into(), "x".repeat(1_000_000)] {
        let answer = world.exec(&json!({"command": ["cat"], "stdin": input})).await.json();
        assert!(answer["stdout"] == json!(input), "{} bytes", input.len());
    }
    let answer = world.exec(&json!({"command": ["cat"], "stdinBase64": "/wA="})).await.json();
    assert_eq!(answer["stdoutBase64"], json!("/wA="));
}

#[tokio::test]
async fn output_is_cut_where_it_was_asked_to_be() {
    let world = World::new().await;
    let answer = world.exec(&json!({"command": ["noise", "5000"], "maxOutputBytes": "1k"})).await.json();
    assert_eq!(answer["stdout"].as_str().unwrap().len(), 1000);
    assert_eq!((&answer["stdoutBytes"], &answer["truncated"]), (&json!(5000), &json!(true)));
    let answer =
        world.exec(&json!({"command": ["noise", "3000000"], "maxOutputBytes": 4_000_000})).await.json();
    assert_eq!((answer["stdout"].as_str().unwrap().len(), &answer["truncated"]), (3_000_000, &json!(false)));
}

#[tokio::test]
async fn what_was_asked_to_be_held_is_said_to_hold() {
    let world = World::new().await;
    let answer = world
        .exec(&json!({"command": ["echo"], "access": {"write": ["/workspace"], "network": false}}))
        .await
        .json();
    assert_eq!((&answer["write"], &answer["network"]), (&json!("Enforced"), &json!("Enforced")));
    let answer = world.exec(&json!({"command": ["echo"], "access": {}})).await.json();
    assert_eq!((&answer["write"], &answer["network"]), (&Value::Null, &Value::Null));
}

#[tokio::test]
async fn a_stream_comes_as_it_is_written() {
    let world = World::new().await;
    let (sender, receiver) = tokio::sync::oneshot::channel::<()>();
    let gate = Arc::new(Mutex::new(Some(receiver)));
    world.agent.does(move |mut visit| {
        let gate = gate.lock().unwrap().take();
        async move {
            visit.open().await.unwrap();
            visit.send(STARTED, b"").await;
            visit.send(STDOUT, b"one \xc3").await;
            gate.unwrap().await.unwrap();
            visit.send(STDOUT, b"\xa4").await;
            visit.send(STDOUT, b"\xff").await;
            visit.say(RESULT, &result(json!({"stdoutBytes": 7}))).await;
        }
    });
    let mut stream = world.connect().await;
    stream.write_all(&exec(TOKEN, &[], &json!({"command": ["x"], "stream": true}))).await.unwrap();
    let mut early = String::new();
    while !early.contains("{\"stdout\":\"one \"}\n") {
        let mut bytes = [0; 1024];
        let read = stream.read(&mut bytes).await.unwrap();
        assert!(read > 0, "{early}");
        early.push_str(std::str::from_utf8(&bytes[..read]).unwrap());
    }
    assert!(early.contains("application/x-ndjson") && early.contains("200 OK"), "{early}");
    sender.send(()).unwrap();
    let mut late = String::new();
    stream.read_to_string(&mut late).await.unwrap();
    assert!(
        late.contains("{\"stdout\":\"ä\"}\n") && late.contains("{\"stdoutBase64\":\"/w==\"}\n"),
        "{late}"
    );
    assert!(late.contains("{\"result\":{") && late.ends_with("0\r\n\r\n"), "{late}");
}

#[tokio::test]
async fn a_stream_ends_with_its_result_and_begins_only_when_the_command_does() {
    let world = World::new().await;
    let reply = world.exec(&json!({"command": ["noise", "200000"], "stream": true})).await;
    let lines = reply.lines();
    let bytes: usize = lines.iter().filter_map(|line| Some(line["stdout"].as_str()?.len())).sum();
    assert_eq!((bytes, reply.whole), (200_000, true));
    assert_eq!(lines.last().unwrap()["result"]["stdoutBytes"], json!(200_000));
    let reply = world.exec(&json!({"command": ["missing"], "stream": true})).await;
    assert_eq!((reply.status, &reply.lines()[0]["result"]["outcome"]), (200, &json!("NotStarted")));
    world.agent.believes.lock().unwrap().1 = "another".into();
    let reply = world.exec(&json!({"command": ["echo"], "stream": true})).await;
    assert_eq!(reply.problem(), (502, "AgentFailed".into()));
}

#[tokio::test]
async fn what_is_asked_wrongly_is_told_and_never_run() {
    let world = World::new().await;
    let reply = world.exec(&json!({"command": [], "x": 1})).await;
    assert_eq!(reply.problem(), (400, "InvalidRequest".into()));
    let reply = world.exec(&json!({"command": ["a"], "timeout": "11m"})).await;
    assert_eq!((reply.problem().0, &reply.json()["error"]["field"]), (400, &json!("timeout")));
    assert!(reply.message().contains("10m"), "{}", reply.message());
    let bearer = format!("Bearer {TOKEN}");
    let fields = [("authorization", bearer.as_str()), ("content-type", "text/plain")];
    let reply = world.send(&request("POST", EXEC, &fields, "{\"command\":[\"echo\"]}")).await;
    assert_eq!(reply.problem(), (415, "NotJson".into()));
    let big = json!({"command": ["cat"], "stdin": "x".repeat(5 << 20)});
    assert_eq!(world.exec(&big).await.problem(), (413, "TooLarge".into()));
    // The same without saying how long it is.
    let head = request(
        "PATCH",
        EXEC,
        &[&fields[..1], &[("content-type", "application/json"), ("transfer-encoding", "chunked")]].concat(),
        "",
    );
    let head = String::from_utf8(head).unwrap().replacen("PATCH", "POST", 1);
    let chunk = format!("100000\r\n{}\r\n", "x".repeat(1 << 20));
    let reply = world.send(format!("{head}{}", chunk.repeat(5)).as_bytes()).await;
    assert_eq!(reply.problem(), (413, "TooLarge".into()));
    for path in ["/", "/v1", "/v1/namespaces/a/sandboxes", "/v1/namespaces/a/sandboxes/s/nothing"] {
        assert_eq!(world.get(path).await.problem(), (404, "NoSuchPath".into()), "{path}");
    }
    let put = request("PUT", EXEC, &[("authorization", &format!("Bearer {TOKEN}"))], "");
    assert_eq!(world.send(&put).await.problem(), (405, "MethodNotAllowed".into()));
    assert_eq!(
        world.get("/v1/namespaces/a/sandboxes/%2e%2e").await.problem(),
        (400, "InvalidRequest".into())
    );
    assert_eq!(world.agent.calls(), 0);
    let metrics = world.metrics().await;
    assert!(metrics.contains("glovebox_session_refusals_total{reason=\"TooLarge\"} 2"), "{metrics}");
}

#[tokio::test]
async fn a_sandbox_that_can_not_be_called_says_why() {
    let world = World::new().await;
    let run = async || world.exec(&command(&["echo"])).await;
    world.put(&sandbox("s", crate::world::UID, "Starting", false));
    let reply = run().await;
    assert_eq!(reply.problem(), (409, "NotReady".into()));
    assert!(
        reply.message().contains("Starting") && reply.message().contains("as it should be"),
        "{}",
        reply.message()
    );
    world.put(&sandbox("s", crate::world::UID, "Expired", false));
    assert_eq!(run().await.problem(), (410, "Ended".into()));
    world.put(&sandbox("s", "another-uid", "Running", true));
    assert_eq!(run().await.problem(), (409, "NotReady".into()), "the pod is of another sandbox");
    // Made anew, with a pod of its own: its agent believes nothing that is signed for the one before.
    world.directory.pod(&serde_json::from_value(pod("s", "another-uid")).unwrap());
    assert_eq!(run().await.problem(), (502, "AgentFailed".into()));
    world.directory.no_sandbox("a", "s");
    assert_eq!(run().await.problem(), (404, "NotFound".into()));
    assert_eq!(world.agent.calls(), 0);
}

#[tokio::test]
async fn who_hangs_up_hangs_up_on_the_command() {
    let world = World::new().await;
    for stream in [false, true] {
        let mut client = world.connect().await;
        client.write_all(&exec(TOKEN, &[], &json!({"command": ["sleep"], "stream": stream}))).await.unwrap();
        let calls = world.agent.calls();
        while world.agent.calls() == calls {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        drop(client);
        tokio::time::timeout(Duration::from_secs(2), world.agent.alone())
            .await
            .expect("the agent is still talked to");
    }
    let metrics = world.metrics().await;
    assert!(metrics.contains("glovebox_session_calls_total{outcome=\"ClientGone\"} 2"), "{metrics}");
    assert!(metrics.contains("glovebox_session_calls_in_flight 0"), "{metrics}");
}

/// What the process logs, as text. All tests of it: a subscriber of one thread alone is not heard reliably.
#[derive(Clone, Default)]
struct Logged(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Logged {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn a_call_is_one_line_without_what_was_asked_or_said() {
    let logged = Logged::default();
    let writer = logged.clone();
    let lines = tracing_subscriber::fmt()
        .json()
        .with_env_filter("glovebox=trace")
        .with_writer(move || writer.clone());
    lines.init();
    let world = World::new().await;
    let body = json!({"command": ["cat"], "env": {"SECRET_NAME": "secret-value"}, "cwd": "/secret-place", "stdin": "secret-input"});
    world.exec(&body).await;
    world.exec(&json!({"command": ["echo", "secret-word"], "secret-field": 1})).await;
    world.agent.does(|mut visit| async move {
        visit.open().await;
        visit.send(STDOUT, b"secret-output").await;
        visit.hung_up().await;
    });
    world.exec(&body).await;
    let text = String::from_utf8(logged.0.lock().unwrap().clone()).unwrap();
    for (told, outcome) in world.agent.told.lock().unwrap().iter().zip(["Exited", "AgentBroken"]) {
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["fields"].clone());
        let of_call: Vec<Value> =
            lines.filter(|fields| fields["message"] == "call" && fields["id"] == told["id"]).collect();
        let [fields] = &of_call[..] else { panic!("{of_call:?}") };
        assert_eq!((&fields["outcome"], &fields["user"]), (&json!(outcome), &json!("alice")));
        assert_eq!((&fields["sandbox"], &fields["namespace"]), (&json!("s"), &json!("a")));
    }
    assert_eq!(world.agent.calls(), 2);
    for word in ["secret", "SECRET", TOKEN] {
        assert!(!text.contains(word), "{word}: {text}");
    }
}
