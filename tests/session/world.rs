//! A session, an API server, a sandbox `a/s` with its agent, and somebody who may call it.

use std::{path::PathBuf, sync::Arc, time::Duration};

use clap::{Args as _, FromArgMatches as _};
use ed25519_dalek::{SigningKey, pkcs8::EncodePrivateKey as _};
use glovebox::session::{
    Addresses, Listeners, Options, Parts, Timing, certificate::Authority, directory::Directory,
    metrics::Metrics, serve,
};
use serde_json::{Value, json};
use tokio::{net::TcpStream, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use crate::{
    agent::Agent,
    client::{Reply, exchange, request},
    cluster::Cluster,
};

/// The uid of the sandbox.
pub(crate) const UID: &str = "5c1f4a2e-0000-4000-8000-000000000001";
/// The token of somebody who may.
pub(crate) const TOKEN: &str = "good-token";
pub(crate) const FILES: &str = "/v1/namespaces/a/sandboxes/s/files";
pub(crate) const EXEC: &str = "/v1/namespaces/a/sandboxes/s/exec";

pub(crate) struct World {
    pub(crate) at: Addresses,
    pub(crate) agent: Agent,
    pub(crate) cluster: Cluster,
    pub(crate) directory: Arc<Directory>,
    pub(crate) authority: Arc<Authority>,
    pub(crate) stop: CancellationToken,
    pub(crate) done: JoinHandle<anyhow::Result<()>>,
    pub(crate) files: Files,
}

/// A directory that goes with the test.
pub(crate) struct Files(pub(crate) PathBuf);

impl Files {
    pub(crate) fn new() -> Self {
        let name = format!("glovebox-session-{}-{:016x}", std::process::id(), rand());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn rand() -> u64 {
    use std::hash::{BuildHasher as _, Hasher as _};
    std::hash::RandomState::new().build_hasher().finish()
}

pub(crate) fn timing() -> Timing {
    let ms = Duration::from_millis;
    Timing {
        handshake: ms(500),
        head: ms(500),
        body: ms(400),
        stalled: ms(500),
        review: ms(300),
        believed: Duration::from_secs(10),
        dial: ms(500),
        greeting: ms(300),
        guard: ms(300),
        gone: ms(200),
        hold: ms(300),
        kept: Duration::from_secs(600),
        renew: ms(30),
    }
}

pub(crate) fn key(seed: u8) -> SigningKey {
    SigningKey::from_bytes(&[seed; 32])
}

pub(crate) fn pem(key: &SigningKey) -> String {
    key.to_pkcs8_pem(ed25519_dalek::pkcs8::spki::der::pem::LineEnding::LF).unwrap().to_string()
}

/// Options as a command line gives them.
pub(crate) fn options(flags: &[&str]) -> Result<Options, clap::Error> {
    let command = Options::augment_args(clap::Command::new("session").args_override_self(true));
    Options::from_arg_matches(&command.try_get_matches_from(["session"].iter().chain(flags))?)
}

/// What calls are held to that nothing else is said of.
fn execution() -> Value {
    json!({"timeout": "30s", "maxTimeout": "10m", "outputBytes": "1Mi", "maxOutputBytes": "64Mi", "maxConcurrent": 8})
}

pub(crate) fn sandbox(name: &str, uid: &str, phase: &str, ready: bool) -> Value {
    let status = if ready { "True" } else { "False" };
    json!({
        "apiVersion": "glovebox.dev/v1alpha1", "kind": "AgentSandbox",
        "metadata": {"name": name, "namespace": "a", "uid": uid}, "spec": {"image": "i"},
        "status": {"phase": phase, "podName": name, "expiresAt": "2030-01-01T00:00:00Z", "execution": execution(), "conditions": [
            {"type": "Ready", "status": status, "reason": "Running", "message": "as it should be", "lastTransitionTime": "2026-01-01T00:00:00Z"},
        ]},
    })
}

pub(crate) fn pod(name: &str, owner: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "a", "ownerReferences": [
            {"apiVersion": "glovebox.dev/v1alpha1", "kind": "AgentSandbox", "name": name, "uid": owner, "controller": true},
        ]},
        "status": {"phase": "Running", "podIP": "127.0.0.1"},
    })
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with(&[], timing()).await
    }

    pub(crate) async fn with(flags: &[&str], timing: Timing) -> Self {
        Self::over(flags, timing, Files::new(), &["--insecure-http"]).await
    }

    /// With these flags for TLS.
    pub(crate) async fn over(flags: &[&str], timing: Timing, files: Files, tls: &[&str]) -> Self {
        let agent = Agent::listen(key(1).verifying_key(), UID).await;
        let signing = files.write("signing.pem", &pem(&key(1)));
        let port = agent.at.port().to_string();
        let ours = [
            "--listen=127.0.0.1:0",
            "--admin=127.0.0.1:0",
            "--signing-key",
            &signing,
            "--agent-port",
            &port,
            "--drain=300ms",
            "--max-calls=16",
        ];
        let flags: Vec<&str> = ours.iter().chain(tls).chain(flags).copied().collect();
        let options = options(&flags).unwrap();
        let (cluster, directory) = (Cluster::default(), Arc::new(Directory::default()));
        cluster.knows(TOKEN, "alice");
        cluster.lets("alice", "create", "agentsandboxes/exec", "a");
        cluster.lets("alice", "get", "agentsandboxes", "a");
        for verb in ["get", "create", "update", "delete"] {
            cluster.lets("alice", verb, "agentsandboxes/files", "a");
        }
        directory.sandbox(&serde_json::from_value(sandbox("s", UID, "Running", true)).unwrap());
        directory.pod(&serde_json::from_value(pod("s", UID)).unwrap());
        directory.load();
        let listeners = Listeners::bind(&options).await.unwrap();
        let at = listeners.addresses().unwrap();
        let metrics = Arc::new(Metrics::default());
        let authority = Arc::<Authority>::default();
        let parts = Parts {
            recorder: glovebox::audit::Recorder::none(),
            client: cluster.client(),
            directory: directory.clone(),
            authority: authority.clone(),
            metrics,
            timing,
        };
        let stop = CancellationToken::new();
        let done = tokio::spawn(serve(options, listeners, parts, stop.clone()));
        Self { at, agent, cluster, directory, authority, stop, done, files }
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.at.api).await.unwrap()
    }

    pub(crate) async fn send(&self, bytes: &[u8]) -> Reply {
        exchange(self.connect().await, bytes).await
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.send(&request("GET", path, &[("authorization", &format!("Bearer {TOKEN}"))], "")).await
    }

    /// A file operation, with a body where it has one.
    pub(crate) async fn files(&self, method: &str, below: &str, body: &str) -> Reply {
        self.send(&request(
            method,
            &format!("{FILES}{below}"),
            &[("authorization", &format!("Bearer {TOKEN}"))],
            body,
        ))
        .await
    }

    pub(crate) async fn exec(&self, body: &Value) -> Reply {
        self.send(&exec(TOKEN, &[], body)).await
    }

    pub(crate) async fn keyed(&self, key: &str, body: &Value) -> Reply {
        self.send(&exec(TOKEN, &[("idempotency-key", key)], body)).await
    }

    pub(crate) async fn metrics(&self) -> String {
        let bytes = request("GET", "/metrics", &[], "");
        let reply = exchange(TcpStream::connect(self.at.admin).await.unwrap(), &bytes).await;
        String::from_utf8(reply.body).unwrap()
    }

    /// Whether it says that it can do its work.
    pub(crate) async fn ready(&self) -> bool {
        let bytes = request("GET", "/readyz", &[], "");
        exchange(TcpStream::connect(self.at.admin).await.unwrap(), &bytes).await.status == 200
    }

    /// Another sandbox, at the same agent.
    pub(crate) fn put(&self, sandbox: &Value) {
        self.directory.sandbox(&serde_json::from_value(sandbox.clone()).unwrap());
    }
}

/// A call of the sandbox, as bytes.
pub(crate) fn exec(token: &str, fields: &[(&str, &str)], body: &Value) -> Vec<u8> {
    let bearer = format!("Bearer {token}");
    let mut all = vec![("authorization", bearer.as_str()), ("content-type", "application/json")];
    all.extend(fields);
    request("POST", EXEC, &all, &body.to_string())
}

/// A call that must work.
pub(crate) fn command(words: &[&str]) -> Value {
    json!({"command": words})
}

/// Asks again and again until it is so, for a few seconds.
pub(crate) async fn soon(mut is: impl AsyncFnMut() -> bool) {
    for _ in 0..200 {
        if is().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("it did not become so");
}
