//! The process: certificates and keys that change, slow clients, and the end.

use std::{sync::Arc, time::Duration};

use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::{TlsConnector, rustls};

use crate::{
    client::{Reply, exchange, request},
    world::{EXEC, Files, TOKEN, World, command, exec, key, options, pem, soon, timing},
};

/// A certificate for `session`, its key, and who trusts it.
pub(crate) fn certificate() -> (String, String, rustls::RootCertStore) {
    let made = rcgen::generate_simple_self_signed(["session".to_owned()]).unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    (made.cert.pem(), made.signing_key.serialize_pem(), roots)
}

async fn over_tls(
    world: &World,
    roots: &rustls::RootCertStore,
    bytes: &[u8],
) -> Result<Reply, std::io::Error> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder =
        rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = builder.with_root_certificates(roots.clone()).with_no_client_auth();
    let name = "session".try_into().unwrap();
    let stream = TlsConnector::from(Arc::new(config)).connect(name, world.connect().await).await?;
    Ok(exchange(stream, bytes).await)
}

#[tokio::test]
async fn tls_is_served_and_its_certificate_followed() {
    let files = Files::new();
    let (cert, cert_key, roots) = certificate();
    let (cert_file, key_file) = (files.write("tls.crt", &cert), files.write("tls.key", &cert_key));
    let world = World::over(&[], timing(), files, &["--tls-cert", &cert_file, "--tls-key", &key_file]).await;
    let call = exec(TOKEN, &[], &command(&["echo", "hi"]));
    assert_eq!(over_tls(&world, &roots, &call).await.unwrap().json()["stdout"], json!("hi"));
    // Without TLS nothing is answered.
    let mut plain = world.connect().await;
    plain.write_all(&call).await.unwrap();
    let mut all = Vec::new();
    let _ = plain.read_to_end(&mut all).await;
    assert!(!String::from_utf8_lossy(&all).contains("HTTP"));
    // What can't be read leaves what was; what can be is taken.
    world.files.write("tls.crt", "nothing");
    tokio::time::sleep(timing().renew * 4).await;
    assert_eq!(over_tls(&world, &roots, &call).await.unwrap().status, 200);
    let (cert, cert_key, new_roots) = certificate();
    world.files.write("tls.crt", &cert);
    world.files.write("tls.key", &cert_key);
    soon(async || over_tls(&world, &new_roots, &call).await.is_ok_and(|reply| reply.status == 200)).await;
    assert!(over_tls(&world, &roots, &call).await.is_err());
}

#[tokio::test]
async fn the_signing_key_is_followed() {
    let world = World::new().await;
    world.agent.believes.lock().unwrap().0 = key(2).verifying_key();
    assert_eq!(world.exec(&command(&["echo"])).await.problem(), (502, "AgentFailed".into()));
    world.files.write("signing.pem", "nothing");
    tokio::time::sleep(timing().renew * 4).await;
    assert_eq!(world.exec(&command(&["echo"])).await.problem(), (502, "AgentFailed".into()));
    world.files.write("signing.pem", &pem(&key(2)));
    soon(async || world.exec(&command(&["echo"])).await.status == 200).await;
}

#[tokio::test]
async fn flags_are_held_against_each_other() {
    let all = ["--signing-key=k", "--tls-cert=c", "--tls-key=k"];
    options(&all).unwrap();
    for flags in [
        &["--signing-key=k"][..],
        &["--signing-key=k", "--tls-cert=c"],
        &["--tls-cert=c", "--tls-key=k"],
        &["--signing-key=k", "--tls-cert=c", "--tls-key=k", "--insecure-http"],
        &["--signing-key=k", "--insecure-http", "--client-certificates"],
        &["--signing-key=k", "--insecure-http", "--max-output=lots"],
        &["--signing-key=k", "--insecure-http", "--drain=1"],
        &["--signing-key=k", "--insecure-http", "--max-calls=0"],
    ] {
        assert!(options(flags).is_err(), "{flags:?}");
    }
}

#[tokio::test]
async fn what_comes_slowly_is_not_waited_for() {
    let world = World::new().await;
    // A head that never ends, and none at all.
    for begun in [&b"GET / HTTP/1.1\r\nx: "[..], b""] {
        let mut client = world.connect().await;
        client.write_all(begun).await.unwrap();
        let mut all = Vec::new();
        let read = client.read_to_end(&mut all);
        let _ = timeout(Duration::from_secs(2), read).await.expect("it is waited for");
    }
    // A body that does not come.
    let bearer = format!("Bearer {TOKEN}");
    let fields = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    let bytes = String::from_utf8(request("POST", EXEC, &fields, "{")).unwrap();
    let bytes = bytes.replace("content-length: 1", "content-length: 100");
    let reply =
        timeout(Duration::from_secs(2), world.send(bytes.as_bytes())).await.expect("it is waited for");
    assert_eq!(reply.problem(), (408, "TooSlow".into()));
    // A head that is too long.
    let long = request("GET", "/openapi.json", &[("x", &"y".repeat(500_000))], "");
    assert_eq!(world.send(&long).await.status, 431);
}

#[tokio::test]
async fn at_the_end_what_runs_may_end_and_nothing_begins() {
    let world = World::with(&["--drain=2s"], timing()).await;
    soon(async || world.ready().await).await;
    let mut client = world.connect().await;
    client.write_all(&exec(TOKEN, &[], &command(&["sleep", "300"]))).await.unwrap();
    let mut waiting = world.connect().await;
    let wait = "/v1/namespaces/a/sandboxes/s/wait?for=Finished&timeout=1m";
    let bearer = format!("Bearer {TOKEN}");
    waiting.write_all(&request("GET", wait, &[("authorization", &bearer)], "")).await.unwrap();
    soon(async || world.agent.calls() == 1).await;
    world.stop.cancel();
    soon(async || !world.ready().await).await;
    assert_eq!(
        exchange(waiting, b"").await.problem(),
        (503, "ShuttingDown".into()),
        "who waits is told at once"
    );
    soon(async || TcpStream::connect(world.at.api).await.is_err()).await;
    let reply = exchange(client, b"").await;
    assert_eq!((reply.status, &reply.json()["outcome"]), (200, &json!("Exited")));
    timeout(Duration::from_secs(2), world.done).await.expect("it goes on").unwrap().unwrap();
}

#[tokio::test]
async fn what_does_not_end_in_time_is_hung_up_on() {
    let world = World::new().await;
    let mut clients = Vec::new();
    for body in [command(&["sleep"]), json!({"command": ["sleep"], "stream": true})] {
        let mut client = world.connect().await;
        client.write_all(&exec(TOKEN, &[], &body)).await.unwrap();
        clients.push(client);
    }
    soon(async || world.agent.calls() == 2).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    world.stop.cancel();
    let streamed = exchange(clients.pop().unwrap(), b"").await;
    assert_eq!(streamed.lines().pop().unwrap()["error"]["reason"], json!("ShuttingDown"));
    let reply = exchange(clients.pop().unwrap(), b"").await;
    assert_eq!(reply.problem(), (503, "ShuttingDown".into()));
    assert!(reply.message().contains("had started"), "{}", reply.message());
    timeout(Duration::from_secs(2), world.done).await.expect("it goes on").unwrap().unwrap();
    timeout(Duration::from_secs(1), world.agent.alone()).await.expect("the agent was not hung up on");
}
