//! The accept loop: room for a connection before anything else, then TLS, then HTTP/1, each within its time.

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use axum::{Router, extract::Request};
use hyper::{body::Incoming, server::conn::http1, service::Service as _};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use rustls::ServerConfig;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::timeout,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{certificate::Peer, config::Timing, live::Seat, metrics::Metrics, patient::Patient};

/// When the process has no file descriptor left, one is awaited rather than asked for without end.
const OUT_OF_FILES: Duration = Duration::from_millis(50);
/// Longest head of a request, in bytes; the longest token is a quarter of it.
const MOST_HEAD: usize = 64 * 1024;
/// Most fields of one.
const MOST_FIELDS: usize = 64;

/// What every connection needs.
#[derive(Clone)]
pub(crate) struct Door {
    /// With which certificate; none for tests.
    pub(crate) tls: Option<Arc<ArcSwap<ServerConfig>>>,
    pub(crate) router: Router,
    pub(crate) timing: Timing,
    pub(crate) stop: CancellationToken,
}

/// Accepts until the door's stop.
pub(crate) async fn serve(
    listener: TcpListener,
    door: Door,
    places: Arc<Semaphore>,
    metrics: Arc<Metrics>,
    tasks: TaskTracker,
) {
    let stop = door.stop.clone();
    let mut stopped = std::pin::pin!(stop.cancelled());
    loop {
        let accepted = tokio::select! {
            biased;
            () = &mut stopped => return,
            accepted = listener.accept() => accepted,
        };
        let client = match accepted {
            Ok((client, _)) => client,
            Err(error) => {
                tracing::debug!(%error, "accept");
                tokio::time::sleep(OUT_OF_FILES).await;
                continue;
            }
        };
        let Ok(place) = places.clone().try_acquire_owned() else {
            metrics.full();
            continue;
        };
        let _ = client.set_nodelay(true);
        let door = door.clone();
        tasks.spawn(async move {
            connection(client, Seat::new(place), door).await;
        });
    }
}

async fn connection(client: TcpStream, seat: Seat, door: Door) {
    let Some(tls) = door.tls.as_ref().map(|tls| tls.load_full()) else {
        return http(client, None, seat, door).await;
    };
    match timeout(door.timing.handshake, TlsAcceptor::from(tls).accept(client)).await {
        Ok(Ok(client)) => {
            let peer = Peer::of(client.get_ref().1.peer_certificates());
            http(client, peer, seat, door).await;
        }
        Ok(Err(error)) => tracing::debug!(%error, "no TLS"),
        Err(_) => tracing::debug!("no TLS in time"),
    }
}

async fn http<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    client: S,
    peer: Option<Peer>,
    seat: Seat,
    door: Door,
) {
    let router = TowerToHyperService::new(door.router);
    let service = hyper::service::service_fn(move |mut request: Request<Incoming>| {
        if let Some(peer) = &peer {
            request.extensions_mut().insert(peer.clone());
        }
        request.extensions_mut().insert(seat.clone());
        router.call(request)
    });
    let client = TokioIo::new(Patient::new(client, door.timing.stalled));
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(door.timing.head)
        .max_buf_size(MOST_HEAD)
        .max_headers(MOST_FIELDS)
        .serve_connection(client, service)
        .with_upgrades();
    let mut served = std::pin::pin!(served);
    let ended = tokio::select! {
        biased;
        ended = served.as_mut() => ended,
        () = door.stop.cancelled() => {
            // The request that runs is answered; no other is taken.
            served.as_mut().graceful_shutdown();
            served.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection broke");
    }
}
