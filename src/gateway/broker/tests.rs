//! How long a secret is kept, and what takes it away.

use std::sync::atomic::{AtomicU32, Ordering};

use futures::{FutureExt as _, future::BoxFuture};
use serde_json::json;

use super::*;
use crate::api::AgentSandbox;

/// Answers what it is told to, and counts how often it was asked.
#[derive(Default)]
struct Told {
    answer: Mutex<Option<Result<&'static str, Lack>>>,
    asked: AtomicU32,
}

impl Told {
    fn says(&self, answer: Result<&'static str, Lack>) {
        *self.answer.lock().unwrap() = Some(answer);
    }
}

impl Source for Told {
    fn fetch<'a>(
        &'a self,
        _: &'a Identity,
        _: &'a Credential,
        _: bool,
    ) -> BoxFuture<'a, Result<Fetched, Lack>> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let answer = self.answer.lock().unwrap().clone().unwrap();
        std::future::ready(answer.map(|text| Fetched {
            secret: Secret::new(text.as_bytes().to_vec()).unwrap(),
            fresh: Duration::from_millis(40),
            good: Some(Duration::from_millis(400)),
        }))
        .boxed()
    }
}

fn credential() -> Credential {
    let sandbox: AgentSandbox = serde_json::from_value(json!({
        "apiVersion": "glovebox.dev/v1alpha1", "kind": "AgentSandbox",
        "metadata": {"name": "one", "namespace": "team", "uid": "u"},
        "spec": {"image": "x", "credentials": [{"name": "api", "hosts": ["a.example"], "secretRef": {"name": "s", "key": "k"}}]},
    }))
    .unwrap();
    Credential::of(&sandbox).unwrap()[0].clone()
}

#[tokio::test(flavor = "current_thread")]
async fn a_secret_is_kept_for_a_moment_and_outlives_only_silence() {
    let (told, purse, credential) = (Told::default(), Purse::default(), credential());
    let who = Identity { uid: "u".into(), namespace: "team".into(), name: "one".into() };
    let clock = Clock::default();
    let get = || purse.secret(&told, &who, &credential, clock);
    let is = |answer: Result<Arc<Secret>, String>, text: &str| {
        assert_eq!(answer.unwrap().bytes(), text.as_bytes())
    };
    told.says(Ok("secret-1"));
    is(get().await, "secret-1");
    told.says(Ok("secret-2"));
    is(get().await, "secret-1");
    assert_eq!(told.asked.load(Ordering::Relaxed), 1);
    tokio::time::sleep(Duration::from_millis(50)).await;
    is(get().await, "secret-2");
    // Whoever does not answer takes nothing away, for a while.
    told.says(Err(Lack::Away("no answer".into())));
    tokio::time::sleep(Duration::from_millis(50)).await;
    is(get().await, "secret-2");
    tokio::time::sleep(Duration::from_millis(420)).await;
    assert_eq!(get().await.unwrap_err(), "no answer");
    // Whoever says that it is gone does so at once.
    told.says(Ok("secret-3"));
    tokio::time::sleep(REFUSED + Duration::from_millis(20)).await;
    is(get().await, "secret-3");
    told.says(Err(Lack::Gone("gone".into())));
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(get().await.unwrap_err(), "gone");
    // And is not asked again by each request.
    let asked = told.asked.load(Ordering::Relaxed);
    for _ in 0..10 {
        assert_eq!(get().await.unwrap_err(), "gone");
    }
    assert_eq!(told.asked.load(Ordering::Relaxed), asked);
    purse.keep(&[]);
    assert!(purse.0.lock().unwrap().is_empty());
}
