//! Commands that are spoken with while they run, by a client of WebSockets.

use std::time::Duration;

use futures::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::{
    WebSocketStream, client_async,
    tungstenite::{Error, Message, client::IntoClientRequest as _, http::Request},
};

use crate::{
    agent::{RESULT, STARTED, STDERR, STDIN, STDOUT, Visit, result},
    world::{EXEC, TOKEN, World, command, soon},
};

const SIGNAL: u8 = 18;
const RESIZE: u8 = 19;

type Socket = WebSocketStream<TcpStream>;

fn asked(fields: &[(&'static str, &str)]) -> Request<()> {
    let mut request = format!("ws://session{EXEC}").into_client_request().unwrap();
    for (name, value) in fields {
        request.headers_mut().insert(*name, value.parse().unwrap());
    }
    request
}

async fn open(world: &World, request: &Value) -> Socket {
    let bearer = format!("Bearer {TOKEN}");
    let (mut socket, _) =
        client_async(asked(&[("authorization", &bearer)]), world.connect().await).await.unwrap();
    socket.send(Message::text(request.to_string())).await.unwrap();
    socket
}

/// What is said next, but for what keeps a connection alive; nothing at its end.
async fn next(socket: &mut Socket) -> Option<Message> {
    loop {
        let said =
            tokio::time::timeout(Duration::from_secs(5), socket.next()).await.expect("it says nothing");
        match said?.ok()? {
            Message::Ping(_) | Message::Pong(_) => {}
            Message::Close(_) => return None,
            message => return Some(message),
        }
    }
}

async fn last(socket: &mut Socket) -> Value {
    let Some(Message::Text(text)) = next(socket).await else { panic!("no last word") };
    assert!(next(socket).await.is_none(), "and nothing after it");
    serde_json::from_str(&text).unwrap()
}

/// What the agent hears, until the input ends; then it ends, too.
async fn hears(mut visit: Visit) {
    if visit.open().await.is_none() {
        return;
    }
    visit.send(STARTED, b"").await;
    let mut written = [0, 0];
    loop {
        let Some((kind, payload)) = visit.frame().await else { return };
        match kind {
            STDIN if payload.is_empty() => break,
            STDIN => {
                written[0] += payload.len();
                visit.send(STDOUT, &payload).await;
            }
            SIGNAL | RESIZE => {
                let said = format!("{kind}:{payload:?}");
                written[1] += said.len();
                visit.send(STDERR, said.as_bytes()).await;
            }
            other => panic!("{other} is nothing that a session says now"),
        }
    }
    visit.say(RESULT, &result(json!({"stdoutBytes": written[0], "stderrBytes": written[1]}))).await;
}

#[tokio::test]
async fn a_command_is_spoken_with_while_it_runs() {
    let world = World::new().await;
    world.agent.does(hears);
    let terminal = json!({"command": ["sh"], "terminal": {"rows": 24, "columns": 80}});
    let mut socket = open(&world, &terminal).await;
    socket.send(Message::binary(&b"hello"[..])).await.unwrap();
    assert_eq!(next(&mut socket).await.unwrap(), Message::binary(&b"\x01hello"[..]));
    socket.send(Message::text(r#"{"resize":{"rows":50,"columns":300}}"#)).await.unwrap();
    assert_eq!(next(&mut socket).await.unwrap(), Message::binary(&b"\x0219:[0, 50, 1, 44]"[..]));
    socket.send(Message::text(r#"{"signal":2}"#)).await.unwrap();
    assert_eq!(next(&mut socket).await.unwrap(), Message::binary(&b"\x0218:[2]"[..]));
    socket.send(Message::text(r#"{"endOfInput":{}}"#)).await.unwrap();
    let ended = last(&mut socket).await;
    assert_eq!((&ended["result"]["outcome"], &ended["result"]["exitCode"]), (&json!("Exited"), &json!(0)));
    let told = world.agent.told.lock().unwrap()[0].clone();
    assert_eq!((&told["terminal"], &told["stdin"]), (&json!({"rows": 24, "columns": 80}), &json!(true)));
    // Whoever sits at a terminal has the most that there is.
    assert_eq!((&told["timeoutMs"], &told["maxOutputBytes"]), (&json!(600_000), &json!(64 << 20)));
    world.agent.alone().await;
}

#[tokio::test]
async fn a_client_that_goes_takes_its_command_along() {
    let world = World::new().await;
    for close in [true, false] {
        let mut socket = open(&world, &command(&["sleep"])).await;
        let calls = world.agent.calls();
        soon(async || world.agent.calls() > calls || world.agent.calls() > 0).await;
        if close {
            socket.close(None).await.unwrap();
        }
        drop(socket);
        world.agent.alone().await;
    }
    soon(async || world.metrics().await.contains("glovebox_session_buffered_bytes 0")).await;
}

#[tokio::test]
async fn what_is_wrong_is_the_last_word() {
    let world = World::new().await;
    for (request, reason, word) in [
        (json!({"command": []}), "InvalidRequest", "command"),
        (json!({"command": ["true"], "stdin": "x"}), "InvalidRequest", "binary"),
        (json!({"command": ["true"], "timeout": "1y"}), "InvalidRequest", ""),
        (json!({"command": ["true"], "terminal": {"rows": 1}}), "InvalidRequest", "columns"),
        (json!("x"), "InvalidRequest", ""),
    ] {
        let ended = last(&mut open(&world, &request).await).await;
        assert_eq!(ended["error"]["reason"], reason, "{request}");
        assert!(ended["error"]["message"].as_str().unwrap().contains(word), "{ended}");
    }
    assert_eq!(world.agent.calls(), 0);
    // On the way, too.
    let mut socket = open(&world, &command(&["sleep"])).await;
    soon(async || world.agent.calls() == 1).await;
    socket.send(Message::text("{}")).await.unwrap();
    assert_eq!(last(&mut socket).await["error"]["reason"], "InvalidRequest");
    world.agent.alone().await;
    // Nothing is waited for without end.
    let bearer = format!("Bearer {TOKEN}");
    let (mut silent, _) =
        client_async(asked(&[("authorization", &bearer)]), world.connect().await).await.unwrap();
    assert_eq!(last(&mut silent).await["error"]["reason"], "TooSlow");
    // What an agent must not say ends it, and is told to nobody.
    world.agent.does(|mut visit: Visit| async move {
        visit.open().await;
        visit.send(99, b"x").await;
    });
    let ended = last(&mut open(&world, &command(&["true"])).await).await;
    assert_eq!(ended["error"]["reason"], "AgentFailed");
}

#[tokio::test]
async fn nobody_is_let_in_who_may_not_call() {
    let world = World::new().await;
    let refused = async |fields: &[(&'static str, &str)]| match client_async(
        asked(fields),
        world.connect().await,
    )
    .await
    {
        Err(Error::Http(response)) => response.status().as_u16(),
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(&[]).await, 401);
    world.cluster.knows("bobs", "bob");
    assert_eq!(refused(&[("authorization", "Bearer bobs")]).await, 403);
    let bearer = format!("Bearer {TOKEN}");
    assert_eq!(refused(&[("authorization", &bearer), ("upgrade", "h2c")]).await, 400);
    assert_eq!(world.get(EXEC).await.problem(), (400, "InvalidRequest".into()), "a plain GET is none");
    let reply = world.exec(&json!({"command": ["true"], "terminal": {"rows": 1, "columns": 1}})).await;
    assert_eq!(reply.problem(), (400, "InvalidRequest".into()), "there is no terminal without one");
    assert_eq!(world.agent.calls(), 0);
}
