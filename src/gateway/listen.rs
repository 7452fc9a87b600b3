//! The accept loop of every TCP entry: room for all before anything else, and a handler for each connection.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::admit::Gateway;

/// When the process has no file descriptor left, one is awaited rather than asked for without end.
const OUT_OF_FILES: Duration = Duration::from_millis(50);

/// As long as the kernel's default lets it be.
const BACKLOG: u32 = 1024;

/// Listens. Bytes are passed on as they come, since waiting for more would only add delay: what is accepted has that from here, without
/// being told each time.
///
/// # Errors
/// When the address can't be had.
pub(super) fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    socket.set_nodelay(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Accepts until `stop`.
pub(super) async fn serve<H, F>(
    listener: TcpListener,
    gateway: Arc<Gateway>,
    stop: CancellationToken,
    tasks: TaskTracker,
    handle: H,
) where
    H: Fn(Arc<Gateway>, TcpStream, IpAddr) -> F + Clone + Send + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    let mut stopped = std::pin::pin!(stop.cancelled());
    loop {
        let accepted = tokio::select! {
            biased;
            () = &mut stopped => return,
            accepted = listener.accept() => accepted,
        };
        let (client, source) = match accepted {
            Ok((client, source)) => (client, source.ip().to_canonical()),
            Err(error) => {
                tracing::debug!(%error, "accept");
                tokio::time::sleep(OUT_OF_FILES).await;
                continue;
            }
        };
        let Some(place) = gateway.connections.enter(1, gateway.room.connections) else {
            gateway.metrics.full();
            continue;
        };
        let (gateway, handle) = (gateway.clone(), handle.clone());
        // Made where it runs: a future that is moved in takes its size twice, for as long as the connection lasts. In a box: a task is
        // moved several times until it runs, and once more when it is done.
        tasks.spawn(Box::pin(async move {
            handle(gateway, client, source).await;
            drop(place);
        }));
    }
}
