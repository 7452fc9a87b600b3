//! Named TCP: a port of ours stands for one host and port outside, for protocols that don't say whom they want.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use tokio::net::TcpStream;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    admit::{Gateway, Visit},
    entry::Entry,
    flow::Asked,
    listen,
};
use crate::policy::{Destination, Wire};

/// Until a port that could not be had is tried again: it may be that of a listener which is about to end.
const AGAIN: Duration = Duration::from_millis(500);

/// Keeps a listener for each port of the directory's table, as the table changes.
pub(super) async fn serve(
    gateway: Arc<Gateway>,
    address: IpAddr,
    stop: CancellationToken,
    tasks: TaskTracker,
) {
    let mut table = gateway.directory.named_ports();
    let mut open: BTreeMap<u16, CancellationToken> = BTreeMap::new();
    loop {
        let wanted = table.borrow_and_update().clone();
        open.retain(|port, stop| {
            let kept = wanted.ports().contains_key(port);
            if !kept {
                stop.cancel();
            }
            kept
        });
        let mut missing = false;
        for port in wanted.ports().keys().copied() {
            if open.contains_key(&port) {
                continue;
            }
            match listen::bind(SocketAddr::new(address, port)) {
                Ok(listener) => {
                    let stop = stop.child_token();
                    let handle = move |gateway, client, source| reach(gateway, client, source, port);
                    tasks.spawn(listen::serve(
                        listener,
                        gateway.clone(),
                        stop.clone(),
                        tasks.clone(),
                        handle,
                    ));
                    open.insert(port, stop);
                }
                Err(error) => {
                    tracing::warn!(port, %error, "can't listen for a named host");
                    missing = true;
                }
            }
        }
        gateway.directory.listens(&wanted);
        tokio::select! {
            changed = table.changed() => if changed.is_err() { return },
            () = stop.cancelled() => return,
            () = tokio::time::sleep(AGAIN), if missing => {}
        }
    }
}

async fn reach(gateway: Arc<Gateway>, client: TcpStream, source: IpAddr, port: u16) {
    // What the port stands for now, which may be another host than when it was opened.
    let Some(named) = gateway.directory.named(port) else { return };
    let Ok(visit) = Visit::enter(gateway, source, Entry::Tcp).await else { return };
    let asked = Asked {
        destination: Destination::Name(named.host),
        port: named.port,
        wire: Wire::Tcp,
        request: None,
    };
    // There is no word for a refusal in bytes of an unknown protocol: it is recorded, and the connection closed.
    if let Ok((upstream, dialled)) = visit.reach(asked).await {
        dialled.relay(&client, &upstream, Vec::new()).await;
    }
}
