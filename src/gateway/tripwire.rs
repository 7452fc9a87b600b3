//! The port that the fence forbids. Whoever reaches it proves that the fence does not hold where it stands.

use std::{
    net::IpAddr,
    sync::{Arc, atomic::Ordering},
};

use tokio::net::TcpStream;

use super::{
    admit::Gateway,
    entry::Entry,
    intake::last_words,
    limit::Shared,
    reason::{Refusal, Trouble},
};

/// What is said: a probe that reads it knows what it has found, and not another open port.
pub const WORDS: &[u8] = b"glovebox tripwire: the fence does not hold\n";

/// Takes one connection. `loud` bounds what is said of sources that are no sandbox.
pub(super) async fn serve(gateway: Arc<Gateway>, client: TcpStream, source: IpAddr, loud: Arc<Shared>) {
    gateway.metrics.tripwire();
    let tenant = gateway.directory.find(source);
    // The network programs a new pod's policies a moment late, and the agent waits for that moment to pass: no workload has
    // run yet that could have used it. It is counted all the same.
    let proving = tenant.as_ref().is_some_and(|tenant| !tenant.begun.load(Ordering::Relaxed));
    if proving {
        tracing::debug!(%source, "the fence does not stand yet");
    } else if tenant.is_some() || loud.one(|| gateway.clock.now()) {
        gateway.refuse(tenant.as_deref(), source, Entry::Tripwire, &Refusal::raw(Trouble::Tripwire, b"", 0));
    }
    last_words(client, WORDS).await;
}
