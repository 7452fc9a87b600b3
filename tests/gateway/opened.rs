//! TLS that the gateway opens, since a rule has its requests looked at.

use std::{sync::Arc, time::Duration};

use glovebox::gateway::ca::Ca;
use jiff::Timestamp;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::{
    TlsConnector,
    client::TlsStream,
    rustls::{
        self,
        pki_types::{CertificateDer, pem::PemObject},
    },
};

use crate::{
    authority::{PKCS8, SEC1},
    http::refusal,
    world::{CERTIFICATE, KEY, ROOTS, SANDBOX, Setup, World, from, handshake, policy, soon},
};

async fn opened(world: &World, name: &str) -> TlsStream<TcpStream> {
    handshake(from(SANDBOX, world.at.tls).await, name, &world.ca_roots).await.unwrap()
}

async fn said(stream: &mut TlsStream<TcpStream>, text: &str) -> String {
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut bytes = Vec::new();
    let _ = soon(stream.read_to_end(&mut bytes)).await;
    String::from_utf8(bytes).unwrap()
}

async fn get(world: &World, name: &str, text: &str) -> String {
    said(&mut opened(world, name).await, text).await
}

fn requests(world: &World) -> Vec<String> {
    world.secure.lock().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_are_judged_one_by_one() {
    let world = World::new().await;
    let answer =
        get(&world, "secure.example", "GET /ok/a HTTP/1.1\r\nHost: secure.example\r\nProxy-X: y\r\n\r\n")
            .await;
    assert_eq!(answer, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello");
    let body = "POST /ok HTTP/1.1\r\nHost: secure.example\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
    assert!(get(&world, "secure.example", body).await.starts_with("HTTP/1.1 200 "));
    let port = world.tls.0.port();
    let got = requests(&world);
    assert_eq!(
        got[0],
        format!("GET /ok/a HTTP/1.1\r\nHost: secure.example:{port}\r\nConnection: close\r\n\r\n")
    );
    assert!(got[1].ends_with("3\r\nabc\r\n0\r\n\r\n"), "{}", got[1]);
    for (line, reason) in [
        ("DELETE /ok/a", "RequestNotAllowed"),
        ("GET /no", "RequestNotAllowed"),
        ("GET /ok/../no", "AmbiguousPath"),
    ] {
        let answer =
            get(&world, "secure.example", &format!("{line} HTTP/1.1\r\nHost: secure.example\r\n\r\n")).await;
        assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
        assert_eq!(refusal(&answer)["reason"], reason);
    }
    let two = "GET /ok/a HTTP/1.1\r\nHost: secure.example\r\n\r\nDELETE /no HTTP/1.1\r\nHost: secure.example\r\n\r\n";
    assert_eq!(get(&world, "secure.example", two).await.matches("HTTP/1.1 ").count(), 1);
    assert_eq!(requests(&world).len(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_for_another_host_is_severe() {
    let world = World::new().await;
    for host in ["evil.example", "wrong.example", "tls.example", "secure.example:1"] {
        let answer =
            get(&world, "secure.example", &format!("GET /ok HTTP/1.1\r\nHost: {host}\r\n\r\n")).await;
        assert!(answer.starts_with("HTTP/1.1 421 "), "{answer}");
        assert_eq!(refusal(&answer)["reason"], "OpenedMismatch");
    }
    assert!(requests(&world).is_empty() && world.authority.asked().is_empty());
    assert!(world.alarms.all().iter().all(|(reason, _)| reason == "OpenedMismatch"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tunnel_is_opened_too_and_must_agree() {
    let world = World::new().await;
    let target = format!("secure.example:{}", world.tls.0.port());
    let (answer, stream) = world.connect(&target).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let mut stream = handshake(stream, "secure.example", &world.ca_roots).await.unwrap();
    assert!(
        said(&mut stream, "GET /ok HTTP/1.1\r\nHost: secure.example\r\n\r\n")
            .await
            .starts_with("HTTP/1.1 200 ")
    );
    let (_, stream) = world.connect(&target).await;
    assert!(handshake(stream, "wrong.example", &world.ca_roots).await.is_err());
    assert_eq!(world.alarms.all(), [("ServerNameMismatch".to_owned(), Some("one".to_owned()))]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_can_not_prove_its_name_is_not_spoken_to() {
    let world = World::new().await;
    let answer =
        get(&world, "wrong.example", "GET /ok HTTP/1.1\r\nHost: wrong.example\r\nAuthorization: x\r\n\r\n")
            .await;
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
    assert_eq!(refusal(&answer)["reason"], "Untrusted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_can_not_be_opened_does_not_go_out() {
    let world = World::new().await;
    // A client that trusts the web alone.
    let stream = from(SANDBOX, world.at.tls).await;
    assert!(handshake(stream, "secure.example", &world.roots).await.is_err());
    // One that speaks nothing that can be judged.
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(world.ca_roots.clone())
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let name = "secure.example".to_owned().try_into().unwrap();
    let stream = from(SANDBOX, world.at.tls).await;
    assert!(TlsConnector::from(Arc::new(config)).connect(name, stream).await.is_err());
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(world.refusals().contains(&("NotOpened".into(), "secure.example".into())));
    // An installation without an authority opens nothing, and passes nothing through instead.
    let world = World::made(Setup { ca: false, ..Setup::default() }).await;
    let stream = from(SANDBOX, world.at.tls).await;
    assert!(handshake(stream, "secure.example", &world.ca_roots).await.is_err());
    assert_eq!(world.refusals(), [("MustBeOpened".to_owned(), "secure.example".to_owned())]);
    let (answer, mut stream) = world.connect(&format!("secure.example:{}", world.tls.0.port())).await;
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    let told = refusal(&(answer + &crate::world::rest(&mut stream).await));
    assert_eq!(told["reason"], "MustBeOpened");
    assert!(told["howToAsk"].as_str().unwrap().contains("gateway.ca"), "{told}");
    assert!(requests(&world).is_empty() && world.authority.asked().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revoke_ends_what_is_open() {
    let world = World::new().await;
    let mut stream = opened(&world, "secure.example").await;
    // A body that does not end.
    let text = "POST /ok HTTP/1.1\r\nHost: secure.example\r\nContent-Length: 100\r\n\r\nhalf";
    stream.write_all(text.as_bytes()).await.unwrap();
    while world.tenant.open_flows() == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let _ = world.tenant.swap(&policy(serde_json::json!([])), world.tenant.terms().limits, Timestamp::now());
    let mut bytes = Vec::new();
    let ended = tokio::time::timeout(Duration::from_secs(2), stream.read_to_end(&mut bytes)).await;
    assert!(ended.is_ok() && requests(&world).is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_websocket_goes_through_where_its_path_does() {
    let world = World::new().await;
    let ask = |path: &str, host: &str| {
        format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
    };
    let mut sealed = opened(&world, "secure.example").await;
    sealed.write_all(ask("/ok/socket", "secure.example").as_bytes()).await.unwrap();
    let mut plain = from(SANDBOX, world.at.http).await;
    plain.write_all(ask("/ok/socket", "web.example").as_bytes()).await.unwrap();
    let mut head = vec![0; crate::fakes::AGREED.len()];
    soon(sealed.read_exact(&mut head)).await.unwrap();
    assert_eq!(String::from_utf8_lossy(&head), crate::fakes::AGREED);
    soon(plain.read_exact(&mut head)).await.unwrap();
    assert_eq!(String::from_utf8_lossy(&head), crate::fakes::AGREED);
    for _ in 0..3 {
        crate::world::echoes(&mut sealed, b"frames").await;
        crate::world::echoes(&mut plain, b"frames").await;
    }
    let _ = world.tenant.swap(&policy(serde_json::json!([])), world.tenant.terms().limits, Timestamp::now());
    let mut bytes = Vec::new();
    let _ = soon(sealed.read_to_end(&mut bytes)).await;
    let _ = soon(plain.read_to_end(&mut bytes)).await;
    assert!(bytes.is_empty(), "a revoke ends them");
    let world = World::new().await;
    let answer = get(&world, "secure.example", &ask("/no/socket", "secure.example")).await;
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
}

fn roots(certificate: &str) -> rustls::RootCertStore {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()).unwrap();
    roots
}

/// What `secure.example` answers whoever trusts these; nothing if the gateway can't prove itself to him.
async fn answered(world: &World, trusted: &rustls::RootCertStore) -> Option<String> {
    let mut stream = handshake(from(SANDBOX, world.at.tls).await, "secure.example", trusted).await.ok()?;
    Some(said(&mut stream, "GET /ok HTTP/1.1\r\nHost: secure.example\r\n\r\n").await)
}

async fn until(world: &World, trusted: &rustls::RootCertStore, wanted: &str) {
    let begins = async {
        while !answered(world, trusted).await.is_some_and(|answer| answer.starts_with(wanted)) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    soon(begins).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_authority_and_roots_that_change_are_taken_without_a_restart() {
    let files = std::env::temp_dir().join(format!("glovebox-opened-{}", std::process::id()));
    std::fs::create_dir_all(&files).unwrap();
    let write = |(certificate, key): (&str, &str)| {
        std::fs::write(files.join(CERTIFICATE), certificate).unwrap();
        std::fs::write(files.join(KEY), key).unwrap();
    };
    write(SEC1);
    let world = World::made(Setup { files: Some(files.clone()), ..Setup::default() }).await;
    let (first, second) = (roots(SEC1.0), roots(PKCS8.0));
    // A root that the web does not have vouches for the host.
    until(&world, &first, "HTTP/1.1 200 ").await;
    assert_eq!(answered(&world, &second).await, None);
    let expires = Ca::from_pem(SEC1.0, SEC1.1).unwrap().expires().as_second();
    let metrics = world.metrics().await;
    let line = format!("glovebox_gateway_authority_expiry_timestamp_seconds {expires}\n");
    assert!(metrics.contains(&line), "{metrics}");
    write(PKCS8);
    until(&world, &second, "HTTP/1.1 200 ").await;
    assert_eq!(answered(&world, &first).await, None);
    // What is no pair changes nothing.
    write((SEC1.0, PKCS8.1));
    tokio::time::sleep(Duration::from_millis(300)).await;
    until(&world, &second, "HTTP/1.1 200 ").await;
    write(SEC1);
    until(&world, &first, "HTTP/1.1 200 ").await;
    // Nobody vouches for the host any more.
    std::fs::write(files.join(ROOTS), PKCS8.0).unwrap();
    until(&world, &first, "HTTP/1.1 502 ").await;
    let answer = answered(&world, &first).await.unwrap();
    assert_eq!(refusal(&answer)["reason"], "Untrusted");
    std::fs::remove_dir_all(&files).unwrap();
}
