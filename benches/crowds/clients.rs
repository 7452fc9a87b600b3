//! What sandboxes do: hold tunnels, work at an even pace, want more than they may, drip.

use std::{
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use hickory_proto::{
    op::{Message, Query},
    rr::{Name, RecordType},
};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpSocket, TcpStream, UdpSocket},
    task::JoinSet,
    time::{interval, sleep, timeout},
};

use crate::{common::local, gateway::source, process::say};

/// What is carried each way until a direction is spliced, and some more.
const SPLICED: usize = 320 * 1024;
/// Tunnels that are opened at once.
const AT_ONCE: usize = 32;

async fn from(source: IpAddr, to: SocketAddr) -> Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(SocketAddr::new(source, 0))?;
    let stream = socket.connect(to).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// A socket whose CONNECT was answered, and how.
async fn connect(source: IpAddr, proxy: u16, backend: u16) -> Result<(TcpStream, Vec<u8>)> {
    let mut stream = from(source, local(proxy)).await?;
    let target = format!("echo.example:{backend}");
    stream.write_all(format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n").as_bytes()).await?;
    let mut head = Vec::with_capacity(1024);
    while !head.windows(4).any(|window| window == b"\r\n\r\n") {
        ensure!(stream.read_buf(&mut head).await? > 0, "closed without an answer");
    }
    Ok((stream, head))
}

async fn tunnel(source: IpAddr, proxy: u16, backend: u16) -> Result<TcpStream> {
    let (stream, head) = connect(source, proxy, backend).await?;
    ensure!(head.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&head));
    Ok(stream)
}

async fn echo(stream: &mut TcpStream, bytes: &[u8]) -> Result<()> {
    let (mut read, mut write) = stream.split();
    let mut back = vec![0; bytes.len()];
    let (sent, got) = tokio::join!(write.write_all(bytes), read.read_exact(&mut back));
    sent?;
    got?;
    ensure!(back == bytes, "other bytes came back");
    Ok(())
}

/// Holds tunnels. Told `closed?`, it says so when all are; told `alive?`, how many still carry bytes.
pub(crate) async fn hold(words: &[&str]) -> Result<()> {
    let [proxy, backend, first, sandboxes, each, spliced] = words else { bail!("hold {words:?}") };
    let (proxy, backend) = (proxy.parse()?, backend.parse()?);
    let (first, sandboxes): (u8, u8) = (first.parse()?, sandboxes.parse()?);
    let (each, spliced): (usize, usize) = (each.parse()?, spliced.parse()?);
    say("");
    let mut wanted = (first..first + sandboxes).flat_map(|at| (0..each).map(move |nth| (at, nth < spliced)));
    let (mut opening, mut open) = (JoinSet::new(), Vec::new());
    loop {
        while opening.len() < AT_ONCE
            && let Some((at, spliced)) = wanted.next()
        {
            opening.spawn(async move {
                let mut stream = tunnel(source(at), proxy, backend).await?;
                echo(&mut stream, &vec![7; if spliced { SPLICED } else { 64 }]).await?;
                anyhow::Ok(stream)
            });
        }
        let Some(opened) = opening.join_next().await else { break };
        open.push(opened??);
    }
    say("open");
    let mut lines = BufReader::new(tokio_stdin()?).lines();
    while let Some(line) = lines.next_line().await? {
        match line.as_str() {
            "closed?" => {
                for stream in &mut open {
                    // Its end, or that it was reset: a byte would be a tunnel that still lives.
                    ensure!(!matches!(stream.read(&mut [0; 1]).await, Ok(1)), "a byte came");
                }
                say("closed");
            }
            _ => {
                let mut alive = 0;
                for stream in &mut open {
                    let echoed = timeout(Duration::from_secs(5), echo(stream, b"alive")).await;
                    alive += usize::from(matches!(echoed, Ok(Ok(()))));
                }
                say(alive);
            }
        }
    }
    Ok(())
}

/// Standard input without a thread for it: it is a pipe.
fn tokio_stdin() -> Result<tokio::net::unix::pipe::Receiver> {
    let input = std::os::fd::AsFd::as_fd(&std::io::stdin()).try_clone_to_owned()?;
    Ok(tokio::net::unix::pipe::Receiver::from_owned_fd(input)?)
}

/// So many exchanges at an even pace, each on a connection of its own; says the median and the 99th percentile in microseconds.
pub(crate) async fn good(words: &[&str]) -> Result<()> {
    let [proxy, backend, at, count] = words else { bail!("good {words:?}") };
    let (proxy, backend, at) = (proxy.parse()?, backend.parse()?, source(at.parse()?));
    let count: usize = count.parse()?;
    say("");
    let mut pace = interval(Duration::from_millis(8));
    let mut took = Vec::with_capacity(count);
    for _ in 0..count {
        pace.tick().await;
        let started = Instant::now();
        let exchanged = async { echo(&mut tunnel(at, proxy, backend).await?, &[b'x'; 64]).await };
        timeout(Duration::from_secs(5), exchanged).await.context("good traffic was held up")??;
        took.push(started.elapsed().as_micros());
    }
    took.sort_unstable();
    say(format!("{} {}", took[count / 2], took[count * 99 / 100]));
    Ok(())
}

/// Wants twice of all that it may: connections, heads, bytes, queries. Never ends by itself.
pub(crate) async fn greedy(words: &[&str]) -> Result<()> {
    let [proxy, dns, backend, at] = words else { bail!("greedy {words:?}") };
    let (proxy, dns, backend): (u16, u16, u16) = (proxy.parse()?, dns.parse()?, backend.parse()?);
    let at = source(at.parse()?);
    // Before its connections are used up: two tunnels that carry as much as they are let.
    for _ in 0..2 {
        let (mut read, mut write) = tunnel(at, proxy, backend).await?.into_split();
        tokio::spawn(async move { while write.write_all(&[7; 16 << 10]).await.is_ok() {} });
        tokio::spawn(async move {
            let mut buffer = vec![0; 64 << 10];
            while read.read(&mut buffer).await.is_ok_and(|read| read > 0) {}
        });
    }
    for _ in 0..256 {
        tokio::spawn(async move {
            loop {
                if let Ok(mut stream) = from(at, local(proxy)).await {
                    let _ = stream.write_all(b"C").await;
                    let _ = stream.read(&mut [0; 1]).await;
                }
                sleep(Duration::from_secs(1)).await;
            }
        });
    }
    let udp = UdpSocket::bind(SocketAddr::new(at, 0)).await?;
    udp.connect(local(dns)).await?;
    let mut message = Message::query();
    message.add_query(Query::query(Name::from_ascii("echo.example.")?, RecordType::A));
    let query = message.to_vec()?;
    let (mut connections, mut queries) =
        (interval(Duration::from_micros(2500)), interval(Duration::from_millis(1)));
    sleep(Duration::from_millis(500)).await;
    say("");
    let mut buffer = [0; 2048];
    loop {
        tokio::select! {
            _ = connections.tick() => { tokio::spawn(connect(at, proxy, backend)); }
            _ = queries.tick() => { let _ = udp.try_send(&query); }
            _ = udp.recv(&mut buffer) => {}
        }
    }
}

/// Heads that never end: a byte a second on each connection, and a new connection for each that was closed.
pub(crate) async fn drip(words: &[&str]) -> Result<()> {
    let [proxy, tls, first, sandboxes, each] = words else { bail!("drip {words:?}") };
    let (proxy, tls): (u16, u16) = (proxy.parse()?, tls.parse()?);
    let (first, sandboxes, each): (u8, u8, usize) = (first.parse()?, sandboxes.parse()?, each.parse()?);
    let mut nth = 0_u32;
    for at in (first..first + sandboxes).map(source) {
        for _ in 0..each {
            nth += 1;
            let (to, bytes): (_, &[u8]) = if nth.is_multiple_of(2) {
                (local(tls), b"\x16\x03\x01\x02\x00\x01\x00")
            } else {
                (local(proxy), b"CONNECT a")
            };
            let mut stream = from(at, to).await?;
            tokio::spawn(async move {
                // Not all in the same moment.
                sleep(Duration::from_millis(u64::from(nth % 1000))).await;
                loop {
                    for byte in bytes.iter().chain(std::iter::repeat(&b'a')) {
                        if stream.write_all(&[*byte]).await.is_err() {
                            break;
                        }
                        sleep(Duration::from_secs(1)).await;
                    }
                    match from(at, to).await {
                        Ok(again) => stream = again,
                        Err(_) => sleep(Duration::from_secs(1)).await,
                    }
                }
            });
        }
    }
    say("");
    std::future::pending().await
}
