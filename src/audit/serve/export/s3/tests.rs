//! A real server of the protocol, in Python: what it keeps is a trail, and it is kept.

use std::process::{Child, Command, Stdio};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use super::*;
use crate::audit::{
    Act, Record,
    note::{Signer, Verifier},
    tests::Folder,
    walk::Trust,
    writer::Writer,
};

/// The Python that has the server; `cargo xtask test unit` names it.
const PYTHON: &str = "GLOVEBOX_PYTHON";

struct Server {
    child: Child,
    url: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    async fn start(python: &str) -> Self {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let child = Command::new(python)
            .args(["-m", "moto.server", "-H", "127.0.0.1", "-p", &port.to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let began = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).await.is_err() {
            assert!(began.elapsed() < Duration::from_secs(60), "the server does not start");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Self { child, url: format!("http://127.0.0.1:{port}") }
    }

    /// A request that is signed as `sign` says, and what was answered.
    async fn ask(&self, method: &str, url: &str, headers: &[(&str, &str)]) -> (u16, String) {
        let target = Target::new(self.url.parse().unwrap(), None, None).unwrap();
        let path = url.strip_prefix(&self.url).unwrap();
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let said = target.send(None, request, Bytes::new()).await.unwrap();
        (said.status.as_u16(), String::from_utf8_lossy(&said.body).into_owned())
    }
}

fn bucket(server: &Server) -> (Bucket, Credentials) {
    let endpoint = server.url.parse().unwrap();
    let bucket = Bucket::new(endpoint, UrlStyle::Path, "trails", "us-east-1").unwrap();
    (bucket, Credentials::new("id", "secret"))
}

/// An object, whole: the client of the product reads no more than the beginning of an answer.
async fn object(server: &Server, name: &str, version: Option<&str>) -> Vec<u8> {
    let (bucket, credentials) = bucket(server);
    let mut action = bucket.get_object(Some(&credentials), name);
    if let Some(version) = version {
        action.query_mut().insert("versionId", version.to_owned());
    }
    let url = action.sign(SIGNED);
    let host = server.url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(host).await.unwrap();
    let head = format!("GET {}?{} HTTP/1.0\r\nHost: {host}\r\n\r\n", url.path(), url.query().unwrap());
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await.unwrap();
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
    assert!(bytes.starts_with(b"HTTP/1.1 200") || bytes.starts_with(b"HTTP/1.0 200"), "{name}");
    bytes.split_off(end + 4)
}

fn signer() -> Signer {
    Signer::new("t", ed25519_dalek::SigningKey::from_bytes(&[1; 32])).unwrap()
}

fn say(writer: &mut Writer, count: usize) {
    let records = (0..count).map(|_| (None, Record::new(Act::TrailPruned, 5)));
    writer.write(records, 2).unwrap();
}

fn between<'t>(text: &'t str, tag: &str) -> Vec<&'t str> {
    let (begin, end) = (format!("<{tag}>"), format!("</{tag}>"));
    let parts: Vec<&str> = text.split(begin.as_str()).skip(1).collect();
    parts.into_iter().filter_map(|part| Some(part.split_once(end.as_str())?.0)).collect()
}

fn options(url: &str, keys: &Path) -> S3Options {
    S3Options {
        url: Some(format!("{url}/trails/here").parse().unwrap()),
        region: None,
        credentials: Some(keys.to_owned()),
        lock_days: Some(30),
        every: Some("1s".parse().unwrap()),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_store_keeps_is_a_trail_and_is_kept() {
    let Ok(python) = std::env::var(PYTHON) else {
        println!("{PYTHON} names no Python with the server: run cargo xtask test unit");
        return;
    };
    let server = Server::start(&python).await;
    let (folder, keys, copy) = (Folder::new("s3"), Folder::new("s3-keys"), Folder::new("s3-copy"));
    for made in [&keys.0, &copy.0] {
        std::fs::create_dir_all(made).unwrap();
    }
    std::fs::write(keys.0.join(ACCESS_KEY), "id\n").unwrap();
    std::fs::write(keys.0.join(SECRET_KEY), "secret\n").unwrap();
    let locked = [("x-amz-bucket-object-lock-enabled", "true")];
    let (status, said) = server.ask("PUT", &format!("{}/trails", server.url), &locked).await;
    assert_eq!(status, 200, "{said}");

    let mut writer = Writer::open(&folder.0, "t", vec![signer()], 1).unwrap();
    say(&mut writer, 700);
    let (told, committed) = watch::channel(Arc::new(writer.committed().clone()));
    let start = || {
        let store = Store::new(&options(&server.url, &keys.0), None).unwrap().unwrap();
        let (lag, directory, committed) = (store.lag(), Directory::at(&folder.0), committed.clone());
        (tokio::spawn(async move { store.follow(directory, committed).await }), lag)
    };
    let (task, _) = start();
    let began = Instant::now();
    while !folder.0.join(CURSOR).exists() {
        assert!(began.elapsed() < Duration::from_secs(30), "it is not copied");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(kept(&server, 1).await[0].ends_with("/00000000000000000000.jsonl"));
    task.abort();
    // It goes on from where it was: over the end of a segment, and in the next.
    say(&mut writer, 3500);
    told.send_replace(Arc::new(writer.committed().clone()));
    let (task, lag) = start();
    let began = Instant::now();
    let size = writer.committed().size;
    while lag.read(size).1 != 0 || kept(&server, 4).await.len() < 4 {
        assert!(began.elapsed() < Duration::from_secs(30), "it is not copied: {:?} are left", lag.read(size));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    task.abort();

    for name in kept(&server, 4).await {
        let bytes = object(&server, &name, None).await;
        std::fs::write(copy.0.join(name.rsplit('/').next().unwrap()), bytes).unwrap();
    }
    let verifier: Verifier = signer().verifier().clone();
    let trust = Trust { verifiers: vec![verifier], origin: "t".into() };
    let report = Directory::at(&copy.0).verify(&trust, &[], &mut |_, _, _| {}).unwrap();
    assert_eq!(report.size, writer.committed().size, "the copy is a trail, to its end");

    // A piece that is missing is missed.
    let names =
        std::fs::read_dir(&copy.0).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
    let names: std::collections::BTreeSet<String> = names.filter(|name| name.ends_with(".jsonl")).collect();
    let middle = copy.0.join(names.into_iter().nth(1).unwrap());
    let bytes = std::fs::read(&middle).unwrap();
    std::fs::remove_file(&middle).unwrap();
    assert!(Directory::at(&copy.0).verify(&trust, &[], &mut |_, _, _| {}).is_err());
    std::fs::write(&middle, bytes).unwrap();
    // Nobody takes it away: not by its version, and the newest is what was copied.
    let (_, listed) = server.ask("GET", &format!("{}/trails?versions", server.url), &[]).await;
    let (key, version) = (between(&listed, "Key")[0], between(&listed, "VersionId")[0]);
    let delete = async |name: &str, version: Option<&str>| {
        let (bucket, credentials) = bucket(&server);
        let mut action = bucket.delete_object(Some(&credentials), name);
        if let Some(version) = version {
            action.query_mut().insert("versionId", version.to_owned());
        }
        server.ask("DELETE", action.sign(SIGNED).as_str(), &[]).await
    };
    let (status, said) = delete(key, Some(version)).await;
    assert!(status == 403 && said.contains("AccessDenied"), "{status} {said}");
    // One that is not locked goes.
    let (bucket, credentials) = bucket(&server);
    let put = bucket.put_object(Some(&credentials), "unlocked").sign(SIGNED);
    assert_eq!(server.ask("PUT", put.as_str(), &[]).await.0, 200);
    assert_eq!(delete("unlocked", None).await.0, 204);
    assert!(!object(&server, key, Some(version)).await.is_empty());
}

/// Names of the objects, once there are so many.
async fn kept(server: &Server, count: usize) -> Vec<String> {
    let began = Instant::now();
    loop {
        let (_, listed) = server.ask("GET", &format!("{}/trails?list-type=2", server.url), &[]).await;
        let names: Vec<String> = between(&listed, "Key").into_iter().map(ToOwned::to_owned).collect();
        if names.len() >= count || began.elapsed() > Duration::from_secs(20) {
            return names;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[test]
fn what_can_not_be_used_is_said_at_the_start() {
    let keys = Folder::new("s3-bad");
    std::fs::create_dir_all(&keys.0).unwrap();
    let url = "https://s3.example";
    let missing = Store::new(&options(url, &keys.0), None).err().unwrap();
    assert!(format!("{missing:#}").contains(ACCESS_KEY), "{missing:#}");
    std::fs::write(keys.0.join(ACCESS_KEY), "id").unwrap();
    std::fs::write(keys.0.join(SECRET_KEY), "secret").unwrap();
    let mut none = options(url, &keys.0);
    none.url = Some(url.parse().unwrap());
    let error = Store::new(&none, None).err().unwrap();
    assert!(error.to_string().contains("names no bucket"), "{error}");
}

#[test]
fn a_piece_ends_behind_a_checkpoint() {
    let entry = format!("{{{}}}\n", "x".repeat(1000));
    let check = "\"t\\n1\\nroot\\n\"\n";
    let batch = [entry.repeat(3000), check.to_owned()].concat();
    let bytes = batch.repeat(4).into_bytes();
    let end = cut(&bytes);
    assert_eq!(end % batch.len(), 0, "{end}");
    assert!(end > 0 && end < bytes.len());
    assert_eq!(cut(&bytes[..100]), 100);
    // One that is too long by itself is not cut, and what is behind it is none of its.
    let long = [entry.repeat(9000), check.to_owned()].concat();
    assert_eq!(cut(long.as_bytes()), long.len());
    let both = [long.clone(), batch].concat();
    assert_eq!(cut(both.as_bytes()), long.len());
}
