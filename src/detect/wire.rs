//! How a replica tells the signs that it saw, and how the controller asks: one request that is answered when there is news. At the port
//! of health and metrics, which sandboxes can't reach.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::{
    Router,
    extract::Path,
    http::{StatusCode, header},
    routing::get,
};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::signs::Sign;
use crate::used;

/// How long a request without news is held.
const HELD: Duration = Duration::from_secs(20);
/// How long the controller waits for an answer.
const PATIENCE: Duration = Duration::from_secs(25);
/// Most sandboxes in an answer; the rest comes with the next.
const MOST_SANDBOXES: usize = 64;
/// Longest answer, in bytes: so many sandboxes with so many signs.
const MOST_BYTES: usize = 8 << 20;

/// What was heard so far of a replica.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Which process it is: another one begins anew.
    pub process: String,
    /// The newest change that was heard of.
    pub version: u64,
}

/// What one sandbox did, as one replica saw it.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// The AgentSandbox's.
    pub uid: String,
    /// When it last changed, by the replica's count.
    pub version: u64,
    /// All of its signs.
    pub signs: Vec<Sign>,
    /// What it wanted and no rule names, where such is asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub wanted: Vec<Wanted>,
}

/// A destination.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The host.
    pub host: String,
    /// The port.
    pub port: u16,
    /// First and last time, in milliseconds since 1970.
    pub first_ms: i64,
    /// The last.
    pub last_ms: i64,
    /// How often.
    pub count: u64,
}

/// An answer.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    /// Up to where it tells.
    pub(crate) at: Place,
    /// Sandboxes with news.
    pub(crate) sandboxes: Vec<Told>,
}

/// That there is news, counted.
#[derive(Debug)]
pub(crate) struct Board {
    process: String,
    version: Mutex<u64>,
    changed: watch::Sender<u64>,
}

impl Default for Board {
    fn default() -> Self {
        let process = format!("{:016x}", std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0));
        Self { process, version: Mutex::new(0), changed: watch::Sender::new(0) }
    }
}

impl Board {
    /// There is news. `mark` is given its number before anybody who asks could miss it.
    pub(crate) fn post(&self, mark: impl FnOnce(u64)) {
        let mut version = self.version.lock().unwrap_or_else(PoisonError::into_inner);
        *version += 1;
        mark(*version);
        self.changed.send_replace(*version);
    }

    /// What came after `place`, out of what `all` gives: now, or when there is something, or nothing after a while.
    async fn since(&self, place: Place, all: impl Fn(u64) -> Vec<Told>, stop: CancellationToken) -> Answer {
        let since = if place.process == self.process { place.version } else { 0 };
        let mut changed = self.changed.subscribe();
        let news = changed.wait_for(|version| *version > since);
        tokio::select! { _ = tokio::time::timeout(HELD, news) => {} () = stop.cancelled_owned() => {} }
        // What was posted up to here is marked. What is marked after it is told twice, which changes nothing.
        let mut version = *self.version.lock().unwrap_or_else(PoisonError::into_inner);
        let mut sandboxes = all(since);
        sandboxes.sort_by_key(|told| told.version);
        if sandboxes.len() > MOST_SANDBOXES {
            sandboxes.truncate(MOST_SANDBOXES);
            version = sandboxes.last().map_or(version, |told| told.version);
        }
        Answer { at: Place { process: self.process.clone(), version }, sandboxes }
    }
}

/// Answers with what `all` gives of the sandboxes that changed after a version. Nobody waits longer than until `stop`.
pub(crate) fn routes(
    board: Arc<Board>,
    all: impl Fn(u64) -> Vec<Told> + Clone + Send + Sync + 'static,
    stop: CancellationToken,
) -> Router {
    let answer = move |Path((process, version)): Path<(String, u64)>| async move {
        let place = Place { process, version };
        let answer = board.since(place, all, stop).await;
        let said = serde_json::to_vec(&answer).map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
        Ok::<_, StatusCode>(([(header::CONTENT_TYPE, "application/json")], said))
    };
    Router::new().route("/signs/{process}/{version}", get(answer))
}

/// Asks the replica at `replica` for what came after `place`.
///
/// # Errors
/// When it does not answer, or says something else.
pub(crate) async fn ask(replica: SocketAddr, place: &Place) -> anyhow::Result<Answer> {
    // What a replica calls itself is not trusted to be a part of an address.
    let process: String = place.process.chars().filter(char::is_ascii_alphanumeric).take(16).collect();
    let process = if process.is_empty() { "none" } else { process.as_str() };
    let path = format!("/signs/{process}/{}", place.version);
    used::request(replica, &path, MOST_BYTES, PATIENCE).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::detect::{Signs, Weight};

    #[derive(Clone, Default)]
    struct Replica {
        board: Arc<Board>,
        told: Arc<Mutex<Vec<Told>>>,
    }

    impl Replica {
        async fn serve(&self, stop: CancellationToken) -> SocketAddr {
            let told = self.told.clone();
            let all = move |since| {
                let told = told.lock().unwrap();
                told.iter().filter(|one| one.version > since).cloned().collect()
            };
            let router = routes(self.board.clone(), all, stop);
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            tokio::spawn(async move { axum::serve(listener, router).await });
            address
        }

        fn tell(&self, uid: &str) {
            let mut signs = Signs::default();
            signs.see(Sign::new(Weight::Severe, &[b"x"], "x".into()), 1);
            let signs = signs.all().cloned().collect();
            self.board.post(|version| {
                self.told.lock().unwrap().push(Told { uid: uid.into(), version, signs, wanted: vec![] });
            });
        }
    }

    fn uids(answer: &Answer) -> Vec<&str> {
        answer.sandboxes.iter().map(|told| told.uid.as_str()).collect()
    }

    #[tokio::test]
    async fn news_come_when_there_are_any_and_once() {
        let replica = Replica::default();
        let address = replica.serve(CancellationToken::new()).await;
        let asked = tokio::spawn(async move { ask(address, &Place::default()).await.unwrap() });
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(!asked.is_finished(), "there is nothing to say");
        replica.tell("one");
        let first = asked.await.unwrap();
        assert_eq!(uids(&first), ["one"]);
        replica.tell("two");
        let second = ask(address, &first.at).await.unwrap();
        assert_eq!(uids(&second), ["two"]);
        // Another process counts anew.
        let other = Place { process: "other".into(), ..second.at };
        assert_eq!(uids(&ask(address, &other).await.unwrap()), ["one", "two"]);
    }

    #[tokio::test]
    async fn more_than_fits_comes_piece_by_piece() {
        let replica = Replica::default();
        let address = replica.serve(CancellationToken::new()).await;
        for n in 0..150 {
            replica.tell(&n.to_string());
        }
        let (mut place, mut all) = (Place::default(), Vec::new());
        while all.len() < 150 {
            let answer = ask(address, &place).await.unwrap();
            assert!(answer.sandboxes.len() <= MOST_SANDBOXES && !answer.sandboxes.is_empty());
            all.extend(answer.sandboxes.into_iter().map(|told| told.uid));
            place = answer.at;
        }
        assert_eq!(all, (0..150).map(|n| n.to_string()).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn whoever_stops_holds_nobody() {
        let replica = Replica::default();
        let stop = CancellationToken::new();
        let address = replica.serve(stop.clone()).await;
        let asked = tokio::spawn(async move { ask(address, &Place::default()).await });
        tokio::time::sleep(Duration::from_millis(50)).await;
        stop.cancel();
        assert!(uids(&asked.await.unwrap().unwrap()).is_empty());
    }
}
