//! Transparent TLS and TLS in CONNECT.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::rustls::{self, pki_types::ServerName};

use crate::world::{SANDBOX, World, echoes, from, handshake, head, rest, soon};

/// `access_denied`
const DENIED: &[u8] = &[0x15, 3, 3, 0, 2, 2, 49];

/// A hello of a real client, for `name`; an address is sent without a name.
fn hello(name: &str) -> Vec<u8> {
    let provider = std::sync::Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let mut client = rustls::ClientConnection::new(std::sync::Arc::new(config), name).unwrap();
    let mut bytes = Vec::new();
    client.write_tls(&mut bytes).unwrap();
    bytes
}

async fn said(world: &World, bytes: &[u8]) -> Vec<u8> {
    let mut stream = from(SANDBOX, world.at.tls).await;
    stream.write_all(bytes).await.unwrap();
    let mut back = Vec::new();
    let _ = soon(stream.read_to_end(&mut back)).await;
    back
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_named_host_is_reached_and_another_is_not() {
    let world = World::new().await;
    let mut stream = world.tls_to("tls.example").await.unwrap();
    echoes(&mut stream, b"hello").await;
    assert_eq!(said(&world, &hello("evil.example")).await, DENIED);
    assert_eq!(said(&world, &hello("sub.tls.example")).await, DENIED);
    assert_eq!(said(&world, &hello("tls.example.evil.example")).await, DENIED);
    assert_eq!(world.tls_visits(), 1);
    let asked = world.authority.asked();
    assert!(asked.iter().all(|name| name == "tls.example."), "{asked:?}");
    let hosts: Vec<_> =
        world.refusals().into_iter().map(|(reason, host)| format!("{reason} {host}")).collect();
    assert_eq!(hosts, ["NoRule evil.example", "NoRule sub.tls.example", "NoRule tls.example.evil.example"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_is_one_whatever_its_case_and_is_asked_in_lower_case() {
    let world = World::new().await;
    let bytes = hello("TLS.Example");
    let mut stream = from(SANDBOX, world.at.tls).await;
    stream.write_all(&bytes).await.unwrap();
    assert_eq!(soon(stream.read_u8()).await.unwrap(), 0x16, "a server's hello");
    assert_eq!(world.authority.asked()[0], "tls.example.");
    assert_eq!(said(&world, &hello("EVIL.Example")).await, DENIED);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_name_and_an_address_are_denied_and_nothing_leaves() {
    let world = World::new().await;
    assert_eq!(said(&world, &hello("127.1.0.1")).await, DENIED);
    assert_eq!(said(&world, &hello("2001:db8::1")).await, DENIED);
    assert_eq!(world.refusals(), [("ServerNameMissing".to_owned(), String::new())]);
    assert_eq!((world.tls_visits(), world.authority.asked().len()), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_protocols_on_a_tls_port_are_closed_at_once() {
    let world = World::new().await;
    for bytes in
        [b"SSH-2.0-OpenSSH_9.9\r\n".as_slice(), b"GET / HTTP/1.1\r\nHost: tls.example\r\n\r\n", b"\0"]
    {
        assert_eq!(said(&world, bytes).await, b"");
    }
    let mut broken = hello("tls.example");
    broken[5] = 2;
    assert_eq!(said(&world, &broken).await, DENIED);
    let reasons: Vec<_> = world.refusals().into_iter().map(|(reason, _)| reason).collect();
    assert_eq!(reasons, ["HelloMalformed", "NotTls"]);
    assert_eq!(world.tls_visits(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hello_byte_by_byte_is_read_and_a_slow_one_is_not() {
    let world = World::new().await;
    let bytes = hello("tls.example");
    let mut stream = from(SANDBOX, world.at.tls).await;
    stream.set_nodelay(true).unwrap();
    for byte in &bytes {
        stream.write_all(&[*byte]).await.unwrap();
        tokio::task::yield_now().await;
    }
    assert_eq!(soon(stream.read_u8()).await.unwrap(), 0x16, "a server's hello");
    // The deadline is for the whole, not for each read.
    let mut slow = from(SANDBOX, world.at.tls).await;
    let started = std::time::Instant::now();
    let dripped = async {
        for byte in &bytes {
            if slow.write_all(&[*byte]).await.is_err() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let _ = tokio::time::timeout(Duration::from_secs(3), dripped).await;
    let mut back = Vec::new();
    let _ = soon(slow.read_to_end(&mut back)).await;
    assert!(back.is_empty() || back == DENIED, "{back:?}");
    assert!(started.elapsed() < Duration::from_secs(5));
    assert_eq!(world.refusals()[0].0, "HelloSlow");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connect_reaches_the_host_that_it_and_the_hello_name() {
    let world = World::new().await;
    let port = world.tls.0.port();
    for target in [format!("tls.example:{port}"), format!("TLS.example.:{port}")] {
        let (answer, stream) = world.connect(&target).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        let mut stream = handshake(stream, "tls.example", &world.roots).await.unwrap();
        echoes(&mut stream, b"through the tunnel").await;
    }
    assert_eq!(world.tls_visits(), 2);
    assert!(world.alarms.all().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_name_in_the_tunnel_is_severe_and_nothing_is_dialled() {
    let world = World::new().await;
    let port = world.tls.0.port();
    // The other name is allowed too: what counts is that they differ.
    for name in ["evil.example", "other.example"] {
        let (answer, mut stream) = world.connect(&format!("tls.example:{port}")).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        stream.write_all(&hello(name)).await.unwrap();
        let mut back = Vec::new();
        let _ = soon(stream.read_to_end(&mut back)).await;
        assert_eq!(back, DENIED);
    }
    assert_eq!(world.tls_visits(), 0);
    assert_eq!(world.alarms.all(), [("ServerNameMismatch".to_owned(), Some("one".to_owned()))]);
    assert!(world.authority.asked().iter().all(|name| name == "tls.example."));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tunnel_for_tls_carries_nothing_else() {
    let world = World::new().await;
    let port = world.tls.0.port();
    for bytes in [b"SSH-2.0-x\r\n".to_vec(), hello("127.1.0.1"), b"GET / HTTP/1.1\r\n\r\n".to_vec()] {
        let (_, mut stream) = world.connect(&format!("tls.example:{port}")).await;
        stream.write_all(&bytes).await.unwrap();
        let back = rest(&mut stream).await;
        assert!(back.is_empty() || back.as_bytes() == String::from_utf8_lossy(DENIED).as_bytes());
    }
    assert_eq!(world.tls_visits(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hello_that_came_with_the_connect_is_judged_like_any_other() {
    let world = World::new().await;
    let port = world.tls.0.port();
    for (name, visits) in [("evil.example", 0), ("tls.example", 1)] {
        let mut stream = from(SANDBOX, world.at.proxy).await;
        let mut bytes = format!("CONNECT tls.example:{port} HTTP/1.1\r\n\r\n").into_bytes();
        bytes.extend(hello(name));
        stream.write_all(&bytes).await.unwrap();
        assert!(head(&mut stream).await.starts_with("HTTP/1.1 200 "));
        let first = soon(stream.read_u8()).await.unwrap();
        assert_eq!(first, if visits == 1 { 0x16 } else { 0x15 });
        assert_eq!(world.tls_visits(), visits);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_hello_is_passed_on_whole() {
    let world = World::new().await;
    // Many protocols to choose from make a hello of tens of kilobytes.
    let provider = std::sync::Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(world.roots.clone())
        .with_no_client_auth();
    config.alpn_protocols = (0..240_u8).map(|i| vec![b'a' + i % 26; 250]).collect();
    let stream = from(SANDBOX, world.at.tls).await;
    let name = "tls.example".to_owned().try_into().unwrap();
    let connector = tokio_rustls::TlsConnector::from(std::sync::Arc::new(config));
    let mut stream = soon(connector.connect(name, stream)).await.unwrap();
    echoes(&mut stream, b"hello").await;
}
