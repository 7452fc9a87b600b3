//! Clients: 64 at once, as fast as they are served. The first line says that it began, the next how long clients waited:
//! the middle one and the slowest of a hundred, in microseconds.

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Result, bail, ensure};
use hickory_proto::{
    op::{Message, Query},
    rr::{Name, RecordType},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpStream, UdpSocket},
    task::JoinSet,
};

use super::process::say;

const CLIENTS: usize = 64;
/// How an answer begins that opens a tunnel.
const OPEN: &[u8] = b"HTTP/1.1 200 ";
const MEBIBYTE: usize = 1 << 20;
/// Between two connections that come whether or not the one before was served.
const PACE: Duration = Duration::from_millis(1);

pub(crate) async fn run(kind: &str, port: u16, host: &str, backend: u16, count: usize) -> Result<()> {
    let proxy: SocketAddr = ([127, 0, 0, 1], port).into();
    let target = (host != "-").then(|| format!("{host}:{backend}").into());
    let there = There { at: proxy, target };
    say("");
    let mut times = match kind {
        "exchange" => many(count, move || exchange(there.clone(), b"x".repeat(64).into())).await?,
        "sni" => {
            let hello: Arc<[u8]> = hello(host).into();
            many(count, move || exchange(there.clone(), hello.clone())).await?
        }
        "paced" => paced(count, there).await?,
        "denied" => many(count, move || denied(there.clone())).await?,
        "bulk" => many(1, move || bulk(there.clone(), count * MEBIBYTE)).await?,
        "hold" => return hold(there, count).await,
        "dns" => {
            let host = host.to_owned();
            many(CLIENTS, move || queries(proxy, host.clone(), count / CLIENTS)).await?
        }
        _ => bail!("no load {kind}"),
    };
    times.sort_unstable();
    let part = |percent: usize| times[(times.len() * percent / 100).min(times.len() - 1)].as_micros();
    say(format!("{} {}", part(50), part(99)));
    Ok(())
}

/// Where to: through a proxy that is asked for a target, or to whatever listens there.
#[derive(Clone)]
struct There {
    at: SocketAddr,
    target: Option<Arc<str>>,
}

/// As many clients at once, one connection after the other; how long each took.
async fn many<F>(count: usize, one: impl Fn() -> F + Send + Clone + 'static) -> Result<Vec<Duration>>
where
    F: Future<Output = Result<()>> + Send + 'static,
{
    let mut clients = JoinSet::new();
    for client in 0..CLIENTS.min(count) {
        let one = one.clone();
        clients.spawn(async move {
            let mut times = Vec::new();
            for _ in (client..count).step_by(CLIENTS) {
                let started = Instant::now();
                one().await?;
                times.push(started.elapsed());
            }
            anyhow::Ok(times)
        });
    }
    gathered(clients).await
}

/// A connection at each beat, which does not wait for those before it.
async fn paced(count: usize, there: There) -> Result<Vec<Duration>> {
    let mut clients = JoinSet::new();
    let mut beat = tokio::time::interval(PACE);
    for _ in 0..count {
        let due = beat.tick().await;
        let there = there.clone();
        clients.spawn(async move {
            exchange(there, b"x".repeat(64).into()).await?;
            Ok(vec![due.elapsed()])
        });
    }
    gathered(clients).await
}

async fn gathered(mut clients: JoinSet<Result<Vec<Duration>>>) -> Result<Vec<Duration>> {
    let mut times = Vec::new();
    while let Some(done) = clients.join_next().await {
        times.extend(done??);
    }
    ensure!(!times.is_empty(), "there was nothing to do");
    Ok(times)
}

/// A socket whose CONNECT was answered, and how.
async fn connect(there: &There) -> Result<(TcpStream, Vec<u8>)> {
    let mut stream = TcpStream::connect(there.at).await?;
    stream.set_nodelay(true)?;
    let Some(target) = &there.target else { return Ok((stream, OPEN.to_vec())) };
    stream.write_all(format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n").as_bytes()).await?;
    let mut head = Vec::with_capacity(1024);
    while !head.windows(4).any(|window| window == b"\r\n\r\n") {
        ensure!(stream.read_buf(&mut head).await? > 0, "closed without an answer");
    }
    Ok((stream, head))
}

async fn tunnel(there: &There) -> Result<TcpStream> {
    let (stream, head) = connect(there).await?;
    ensure!(head.starts_with(OPEN), "{}", String::from_utf8_lossy(&head));
    Ok(stream)
}

async fn exchange(there: There, bytes: Arc<[u8]>) -> Result<()> {
    let mut stream = tunnel(&there).await?;
    stream.write_all(&bytes).await?;
    let mut back = vec![0; bytes.len()];
    stream.read_exact(&mut back).await?;
    ensure!(back == *bytes, "other bytes came back");
    Ok(())
}

async fn denied(there: There) -> Result<()> {
    let (_, head) = connect(&there).await?;
    ensure!(head.starts_with(b"HTTP/1.1 403 "), "{}", String::from_utf8_lossy(&head));
    Ok(())
}

async fn bulk(there: There, length: usize) -> Result<()> {
    let mut stream = tunnel(&there).await?;
    stream.write_all(b"Z").await?;
    let mut buffer = vec![0; 256 * 1024];
    let mut got = 0;
    while got < length {
        let read = stream.read(&mut buffer).await?;
        ensure!(read > 0, "it ended after {got}");
        got += read;
    }
    Ok(())
}

/// Opens all, says so, and says again when all were closed.
async fn hold(there: There, count: usize) -> Result<()> {
    let mut open = Vec::new();
    for _ in 0..count {
        open.push(tunnel(&there).await?);
    }
    // What the opening left behind is to be gone.
    tokio::time::sleep(Duration::from_millis(300)).await;
    say("open");
    for mut stream in open {
        let _ = stream.read(&mut [0; 1]).await;
    }
    say("closed");
    Ok(())
}

async fn queries(proxy: SocketAddr, host: String, count: usize) -> Result<()> {
    let socket = UdpSocket::bind("127.0.0.1:0").await?;
    socket.connect(proxy).await?;
    let mut message = Message::query();
    message.add_query(Query::query(Name::from_ascii(format!("{host}."))?, RecordType::A));
    let packet = message.to_vec()?;
    let mut buffer = [0; 2048];
    for _ in 0..count {
        socket.send(&packet).await?;
        tokio::time::timeout(Duration::from_secs(2), socket.recv(&mut buffer)).await??;
    }
    Ok(())
}

/// A hello with this name and nothing remarkable, as large as those of today.
fn hello(name: &str) -> Vec<u8> {
    let mut extensions = Vec::new();
    let mut extension = |kind: u16, body: &[u8]| {
        extensions.extend(kind.to_be_bytes());
        extensions.extend(u16::try_from(body.len()).unwrap_or(0).to_be_bytes());
        extensions.extend(body);
    };
    let length = u16::try_from(name.len()).unwrap_or(0);
    let mut body = (length + 3).to_be_bytes().to_vec();
    body.push(0);
    body.extend(length.to_be_bytes());
    body.extend(name.as_bytes());
    extension(0, &body);
    extension(13, &[0, 2, 4, 3]);
    extension(21, &[0; 1300]);
    let mut message = vec![3, 3];
    message.extend([7; 32]);
    message.extend([0, 0, 2, 0xc0, 0x2b, 1, 0]);
    message.extend(u16::try_from(extensions.len()).unwrap_or(0).to_be_bytes());
    message.extend(extensions);
    let mut record = vec![0x16, 3, 1];
    record.extend(u16::try_from(message.len() + 4).unwrap_or(0).to_be_bytes());
    record.push(1);
    record.extend(&u32::try_from(message.len()).unwrap_or(0).to_be_bytes()[1..]);
    record.extend(message);
    record
}
