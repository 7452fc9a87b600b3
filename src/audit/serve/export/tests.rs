//! A collector that fails, and comes back.

use std::{
    path::Path,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use axum::{Router, body::Bytes, extract::State, http::StatusCode, routing::post};
use ed25519_dalek::SigningKey;
use serde_json::Value;
use tokio::net::TcpListener;

use super::*;
use crate::audit::{Act, Record, note::Signer, tests::Folder, writer::Writer};

#[derive(Default)]
struct Taken {
    bodies: Mutex<Vec<Value>>,
    asked: AtomicUsize,
}

/// Takes what comes, but for each second request.
async fn collector() -> (Uri, Arc<Taken>) {
    let taken = Arc::new(Taken::default());
    let take = async |State(taken): State<Arc<Taken>>, body: Bytes| {
        if taken.asked.fetch_add(1, Ordering::Relaxed).is_multiple_of(2) {
            return StatusCode::SERVICE_UNAVAILABLE;
        }
        taken.bodies.lock().unwrap().push(serde_json::from_slice(&body).unwrap());
        StatusCode::ACCEPTED
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/in?x=1", listener.local_addr().unwrap()).parse().unwrap();
    let router = Router::new().route("/in", post(take)).with_state(taken.clone());
    tokio::spawn(async move { axum::serve(listener, router).await });
    (url, taken)
}

fn writer(folder: &Path) -> Writer {
    let signer = Signer::new("t", SigningKey::from_bytes(&[1; 32])).unwrap();
    Writer::open(folder, "t", vec![signer], 1).unwrap()
}

fn say(writer: &mut Writer, count: usize) {
    let records = (0..count).map(|_| (None, Record::new(Act::TrailPruned, 5)));
    writer.write(records, 2).unwrap();
}

fn sequences(bodies: &[Value]) -> Vec<u64> {
    let events = bodies.iter().flat_map(|body| body["events"].as_array().unwrap());
    events.map(|event| event["metadata"]["sequence"].as_u64().unwrap()).collect()
}

fn options(webhook: Option<Uri>, otlp: Option<Uri>) -> ExportOptions {
    ExportOptions { export_webhook: webhook, export_otlp: otlp, ..ExportOptions::default() }
}

async fn until(taken: &Taken, wanted: usize) -> Vec<Value> {
    loop {
        let bodies = taken.bodies.lock().unwrap().clone();
        if bodies.len() >= wanted {
            return bodies;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_entry_is_handed_on_in_order_and_from_where_it_was() {
    let folder = Folder::new("export-order");
    let (url, taken) = collector().await;
    let mut writer = writer(&folder.0);
    say(&mut writer, 699);
    let (told, committed) = watch::channel(Arc::new(writer.committed().clone()));
    let directory = writer.directory().clone();
    let start = || {
        let collector = options(Some(url.clone()), None).collectors().unwrap().remove(0);
        tokio::spawn(collector.follow(directory.clone(), committed.clone()))
    };
    let first = start();
    let bodies = until(&taken, 2).await;
    assert_eq!(sequences(&bodies), (0..700).collect::<Vec<_>>(), "the first is the trail's own word");
    say(&mut writer, 1);
    told.send_replace(Arc::new(writer.committed().clone()));
    until(&taken, 3).await;
    // The cursor is written once it was taken.
    let cursor = folder.0.join("cursor-webhook");
    while std::fs::read_to_string(&cursor).unwrap() != "701" {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    first.abort();
    say(&mut writer, 2);
    told.send_replace(Arc::new(writer.committed().clone()));
    let second = start();
    let bodies = until(&taken, 4).await;
    assert_eq!(sequences(&bodies), (0..703).collect::<Vec<_>>());
    second.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_of_telemetry_gets_log_records() {
    let folder = Folder::new("export-otlp");
    let (url, taken) = collector().await;
    let mut writer = writer(&folder.0);
    say(&mut writer, 1);
    let (_told, committed) = watch::channel(Arc::new(writer.committed().clone()));
    let collector = options(None, Some(url)).collectors().unwrap().remove(0);
    let running = tokio::spawn(collector.follow(writer.directory().clone(), committed));
    let bodies = until(&taken, 1).await;
    let log = &bodies[0]["resourceLogs"][0]["scopeLogs"][0]["logRecords"];
    assert_eq!(log.as_array().unwrap().len(), 2);
    assert_eq!(log[1]["timeUnixNano"], "5000000");
    assert_eq!(log[1]["attributes"][0]["value"]["stringValue"], "TrailPruned");
    let event: Value = serde_json::from_str(log[1]["body"]["stringValue"].as_str().unwrap()).unwrap();
    assert_eq!(event["metadata"]["sequence"], 1);
    running.abort();
}

#[test]
fn a_collector_is_named_strictly() {
    let refused = |url: &str, token: Option<&str>| {
        let token = token.map(PathBuf::from);
        ExportOptions {
            export_webhook: Some(url.parse().unwrap()),
            export_webhook_token: token,
            ..ExportOptions::default()
        }
        .collectors()
        .is_err()
    };
    assert!(!refused("https://collector.example/in", None) && !refused("http://collector:8080", None));
    for url in ["ftp://collector.example", "/in", "collector.example", "https://ada:secret@collector.example"]
    {
        assert!(refused(url, None), "{url}");
    }
    assert!(refused("http://collector:8080", Some("/dev/null")), "a token without TLS");
    assert!(refused("https://collector.example", Some("/does/not/exist")));
}
