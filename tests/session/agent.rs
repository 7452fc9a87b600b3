//! An agent in a sandbox, written apart from the code that talks to it: it knows the protocol by its numbers, holds each request
//! against its signature, and does what its script says, be it honest or not.

use std::{
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use ed25519_dalek::{Signature, VerifyingKey};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

pub(crate) const NONCE: u8 = 1;
pub(crate) const STARTED: u8 = 2;
pub(crate) const STDOUT: u8 = 3;
pub(crate) const STDERR: u8 = 4;
pub(crate) const RESULT: u8 = 5;
pub(crate) const REFUSED: u8 = 6;
pub(crate) const ENTRY: u8 = 7;
pub(crate) const OPEN: u8 = 16;
pub(crate) const STDIN: u8 = 17;
pub(crate) const OPEN_FILE: u8 = 20;

type Done = Pin<Box<dyn Future<Output = ()> + Send>>;
type Script = Arc<dyn Fn(Visit) -> Done + Send + Sync>;

/// An agent that listens. Clones are the same.
#[derive(Clone)]
pub(crate) struct Agent {
    pub(crate) at: SocketAddr,
    /// Commands that it was told to run, with good signatures.
    pub(crate) told: Arc<Mutex<Vec<Value>>>,
    /// Connections that are open.
    pub(crate) open: Arc<AtomicUsize>,
    /// Which keys and which sandbox it believes.
    pub(crate) believes: Arc<Mutex<(VerifyingKey, String)>>,
    script: Arc<Mutex<Script>>,
}

/// One connection.
pub(crate) struct Visit {
    pub(crate) stream: TcpStream,
    agent: Agent,
    number: u8,
}

impl Agent {
    pub(crate) async fn listen(key: VerifyingKey, uid: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let agent = Self {
            at: listener.local_addr().unwrap(),
            told: Arc::default(),
            open: Arc::default(),
            believes: Arc::new(Mutex::new((key, uid.to_owned()))),
            script: Arc::new(Mutex::new(Arc::new(|visit| Box::pin(honest(visit))))),
        };
        let serving = agent.clone();
        tokio::spawn(async move {
            for number in 0_u8.. {
                let Ok((stream, _)) = listener.accept().await else { return };
                let script = serving.script.lock().unwrap().clone();
                let (agent, open) = (serving.clone(), serving.open.clone());
                open.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(async move {
                    script(Visit { stream, agent, number: number.wrapping_mul(7) }).await;
                    open.fetch_sub(1, Ordering::Relaxed);
                });
            }
        });
        agent
    }

    /// From now on it does this.
    pub(crate) fn does<F: Future<Output = ()> + Send + 'static>(
        &self,
        script: impl Fn(Visit) -> F + Send + Sync + 'static,
    ) {
        *self.script.lock().unwrap() = Arc::new(move |visit| Box::pin(script(visit)));
    }

    pub(crate) fn calls(&self) -> usize {
        self.told.lock().unwrap().len()
    }

    /// Returns when nobody is connected any more.
    pub(crate) async fn alone(&self) {
        while self.open.load(Ordering::Relaxed) > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

pub(crate) fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap();
    [&[kind][..], &length.to_be_bytes(), payload].concat()
}

/// A good result, but for what is said here.
pub(crate) fn result(but: Value) -> Value {
    let mut result = json!({"outcome": "Exited", "exitCode": 0, "stdoutBytes": 0, "stderrBytes": 0, "truncated": false, "durationMs": 1});
    for (name, value) in but.as_object().unwrap() {
        if value.is_null() {
            result.as_object_mut().unwrap().remove(name);
        } else {
            result[name] = value.clone();
        }
    }
    result
}

impl Visit {
    /// Writes; that nobody reads it is no matter.
    pub(crate) async fn raw(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).await.is_ok()
    }

    pub(crate) async fn send(&mut self, kind: u8, payload: &[u8]) -> bool {
        self.raw(&frame(kind, payload)).await
    }

    pub(crate) async fn say(&mut self, kind: u8, value: &Value) -> bool {
        self.send(kind, value.to_string().as_bytes()).await
    }

    pub(crate) async fn frame(&mut self) -> Option<(u8, Vec<u8>)> {
        let mut header = [0; 5];
        self.stream.read_exact(&mut header).await.ok()?;
        let length = u32::from_be_bytes(header[1..].try_into().unwrap());
        assert!(length <= 1 << 20, "a frame of {length} bytes");
        let mut payload = vec![0; usize::try_from(length).unwrap()];
        self.stream.read_exact(&mut payload).await.ok()?;
        Some((header[0], payload))
    }

    /// The challenge, and what is asked; nothing if it is not signed as it should be.
    pub(crate) async fn open(&mut self) -> Option<Value> {
        self.opened(OPEN, b"glovebox call v1\0").await
    }

    /// The same for a file operation.
    pub(crate) async fn open_file(&mut self) -> Option<Value> {
        self.opened(OPEN_FILE, b"glovebox file v1\0").await
    }

    async fn opened(&mut self, wanted: u8, context: &[u8]) -> Option<Value> {
        let nonce = [self.number; 32];
        self.send(NONCE, &nonce).await;
        let (kind, payload) = self.frame().await?;
        assert_eq!(kind, wanted);
        let (signature, request) = payload.split_at(64);
        let (key, uid) = self.agent.believes.lock().unwrap().clone();
        let length = u64::try_from(uid.len()).unwrap().to_be_bytes();
        let signed = [context, &length[..], uid.as_bytes(), &nonce, request].concat();
        if key.verify_strict(&signed, &Signature::from_slice(signature).unwrap()).is_err() {
            self.say(REFUSED, &json!("NotSigned")).await;
            return None;
        }
        let asked: Value = serde_json::from_slice(request).unwrap();
        self.agent.told.lock().unwrap().push(asked.clone());
        Some(asked)
    }

    /// Standard input to its end.
    pub(crate) async fn input(&mut self) -> Option<Vec<u8>> {
        let mut all = Vec::new();
        loop {
            let (kind, payload) = self.frame().await?;
            assert_eq!(kind, STDIN);
            if payload.is_empty() {
                return Some(all);
            }
            all.extend(payload);
        }
    }

    /// Until the session hangs up.
    pub(crate) async fn hung_up(&mut self) {
        let mut buffer = [0; 1024];
        while self.stream.read(&mut buffer).await.is_ok_and(|read| read > 0) {}
    }
}

/// What an agent should do, for a few commands.
pub(crate) async fn honest(mut visit: Visit) {
    let Some(asked) = visit.open().await else { return };
    let words: Vec<&str> =
        asked["command"].as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect();
    let most = asked["maxOutputBytes"].as_u64().unwrap();
    if words[0] == "missing" {
        let message = "missing: no such program";
        visit
            .say(RESULT, &result(json!({"outcome": "NotStarted", "exitCode": 127, "message": message})))
            .await;
        return;
    }
    visit.send(STARTED, b"").await;
    let (mut out, mut err, mut code) = (Vec::new(), Vec::new(), 0);
    match words.as_slice() {
        ["echo", rest @ ..] => out = rest.join(" ").into_bytes(),
        ["cat"] => match visit.input().await {
            Some(input) => out = input,
            None => return,
        },
        ["noise", size] => out = vec![b'x'; size.parse().unwrap()],
        ["binary"] => (out, err) = (vec![0xff, 0], b"e".to_vec()),
        ["fail", number] => code = number.parse().unwrap(),
        ["sleep"] => return visit.hung_up().await,
        ["sleep", ms] => tokio::time::sleep(Duration::from_millis(ms.parse().unwrap())).await,
        other => panic!("{other:?} is no command"),
    }
    let given = out.len().min(usize::try_from(most).unwrap());
    for piece in out[..given].chunks(60_000) {
        if !visit.send(STDOUT, piece).await {
            return;
        }
    }
    for piece in err.chunks(60_000) {
        visit.send(STDERR, piece).await;
    }
    let held = |asked: bool| if asked { json!("Enforced") } else { Value::Null };
    let but = json!({
        "exitCode": code, "stdoutBytes": out.len(), "stderrBytes": err.len(), "truncated": given < out.len(),
        "write": held(asked["access"]["write"].is_array()), "network": held(asked["access"]["network"] == json!(false)),
    });
    visit.say(RESULT, &result(but)).await;
}
