//! The role as a process: it starts, says that it is not ready while it knows nobody, denies, and stops when told.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::world::{SANDBOX, ask, soon};

fn free() -> SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An API server that knows the gateway's Service and nothing else. Ends with the test.
async fn api_server() -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer(stream));
        }
    });
    address
}

async fn answer(mut stream: tokio::net::TcpStream) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let Ok(byte) = stream.read_u8().await else { return };
        head.push(byte);
    }
    let (status, body) = if head
        .starts_with(b"GET /api/v1/namespaces/glovebox-system/services/glovebox-gateway")
    {
        let service = r#"{"kind":"Service","apiVersion":"v1","metadata":{"name":"glovebox-gateway"},"spec":{"clusterIP":"10.96.0.9"}}"#;
        ("200 OK", service)
    } else {
        (
            "404 Not Found",
            r#"{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}"#,
        )
    };
    let length = body.len();
    let text = format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    );
    let _ = stream.write_all(text.as_bytes()).await;
}

/// A kubeconfig for it.
fn kubeconfig(server: SocketAddr) -> PathBuf {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("gateway.kubeconfig");
    let text = serde_json::json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "x",
        "clusters": [{"name": "x", "cluster": {"server": format!("http://{server}")}}],
        "users": [{"name": "x", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
    });
    std::fs::write(&file, text.to_string()).unwrap();
    file
}

fn start(kubeconfig: &Path, ports: &[(&str, SocketAddr)], more: &[&str]) -> Killed {
    let mut command = Command::new(env!("CARGO_BIN_EXE_glovebox"));
    command.arg("gateway").args(more).env("KUBECONFIG", kubeconfig).stderr(Stdio::null());
    for (flag, address) in ports {
        command.arg(flag).arg(address.to_string());
    }
    Killed(command.spawn().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn starts_denies_and_stops() {
    let [proxy, admin, tls, http, dns, tripwire] = std::array::from_fn(|_| free());
    let ports = [
        ("--proxy", proxy),
        ("--admin", admin),
        ("--tls", tls),
        ("--http", http),
        ("--dns", dns),
        ("--tripwire", tripwire),
    ];
    let kubeconfig = kubeconfig(api_server().await);
    let mut process = start(&kubeconfig, &ports, &["--upstream", "192.0.2.53:53"]);
    let started = Instant::now();
    while std::net::TcpStream::connect(admin).is_err() {
        assert!(started.elapsed() < Duration::from_secs(10));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let probe = async |path: &str| {
        ask(SANDBOX, admin, format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")).await
    };
    assert!(probe("/livez").await.starts_with("HTTP/1.1 200 "));
    assert!(probe("/readyz").await.starts_with("HTTP/1.1 503 "), "it knows nobody");
    let answer = soon(ask(SANDBOX, proxy, "CONNECT tls.example:443 HTTP/1.1\r\n\r\n")).await;
    assert!(answer.starts_with("HTTP/1.1 403 ") && answer.contains("UnknownSource"), "{answer}");
    let id = rustix::process::Pid::from_child(&process.0);
    rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
    let stopped = Instant::now();
    let status = loop {
        if let Some(status) = process.0.try_wait().unwrap() {
            break status;
        }
        assert!(stopped.elapsed() < Duration::from_secs(10));
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert!(status.success(), "{status}");
}

#[test]
fn does_not_start_without_what_it_needs() {
    for more in [
        &["--upstream", "192.0.2.53:53"][..],
        &["--upstream", "dns.example:53"],
        &["--upstream", "192.0.2.53:53", "--ca-cert", "/nonexistent"],
        &["--upstream", "192.0.2.53:53", "--ca-cert", "/nonexistent", "--ca-key", "/nonexistent"],
        &["--upstream", "192.0.2.53:53", "--extra-roots", "/nonexistent"],
    ] {
        let nowhere = Path::new("/nonexistent");
        assert!(!start(nowhere, &[], more).0.wait().unwrap().success(), "{more:?}");
    }
}
