//! What everything is compared with: as little as a proxy in Rust can do. The head is skipped, the backend is fixed.

use std::{io, net::SocketAddr};

use anyhow::Result;
use rustix::pipe::{PipeFlags, SpliceFlags, pipe_with, splice};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, Interest, copy_bidirectional_with_sizes},
    net::{
        TcpListener, TcpStream, UdpSocket,
        tcp::{ReadHalf, WriteHalf},
    },
};

use super::process::say;

/// What is read at once while copying.
const COPY: usize = 8 * 1024;
/// After so many bytes a direction is spliced.
const SPLICE_AFTER: usize = 256 * 1024;
const PIPE: usize = 64 * 1024;

/// Copies, by tokio's own means; or copies first and then splices.
pub(crate) async fn relay(backend: SocketAddr, splices: bool) -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    say(listener.local_addr()?.port());
    loop {
        let (mut client, _) = listener.accept().await?;
        client.set_nodelay(true)?;
        tokio::spawn(async move {
            let mut head = [0; 1024];
            let mut length = 0;
            while !head[..length].ends_with(b"\r\n\r\n") {
                match client.read(&mut head[length..]).await {
                    Ok(read) if read > 0 => length += read,
                    _ => return,
                }
            }
            let Ok(mut upstream) = TcpStream::connect(backend).await else { return };
            let _ = upstream.set_nodelay(true);
            if client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.is_err() {
                return;
            }
            if splices {
                let ((from_client, to_client), (from_backend, to_backend)) =
                    (client.split(), upstream.split());
                let _ = tokio::try_join!(one_way(from_client, to_backend), one_way(from_backend, to_client));
            } else {
                let _ = copy_bidirectional_with_sizes(&mut client, &mut upstream, COPY, COPY).await;
            }
        });
    }
}

/// Sends back what it gets: the least that a query by UDP can cost.
pub(crate) async fn echo() -> Result<()> {
    let socket = UdpSocket::bind("127.0.0.1:0").await?;
    say(socket.local_addr()?.port());
    let mut buffer = [0; 4096];
    loop {
        let (length, peer) = socket.recv_from(&mut buffer).await?;
        let _ = socket.try_send_to(&buffer[..length], peer);
    }
}

async fn one_way(mut from: ReadHalf<'_>, mut to: WriteHalf<'_>) -> io::Result<()> {
    let mut buffer = vec![0; COPY];
    let mut carried = 0;
    while carried < SPLICE_AFTER {
        let read = from.read(&mut buffer).await?;
        if read == 0 {
            return to.shutdown().await;
        }
        to.write_all(&buffer[..read]).await?;
        carried += read;
    }
    drop(buffer);
    spliced(from.as_ref(), to.as_ref()).await?;
    to.shutdown().await
}

async fn spliced(from: &TcpStream, to: &TcpStream) -> io::Result<()> {
    let (out, into) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
    loop {
        from.readable().await?;
        let read = from.try_io(Interest::READABLE, || Ok(splice(from, None, &into, None, PIPE, flags)?));
        let mut left = match read {
            Ok(0) => return Ok(()),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) => return Err(error),
        };
        while left > 0 {
            to.writable().await?;
            match to.try_io(Interest::WRITABLE, || Ok(splice(&out, None, to, None, left, flags)?)) {
                Ok(written) => left -= written,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }
}
