//! TLS that the gateway opens, for hosts whose rule has requests looked at: the client trusts the installation's authority.
//!
//! Never falls back: what can't be opened, or whose other side can't be trusted, does not go out.

use std::{io::Cursor, sync::Arc};

use tokio::{
    io::{AsyncReadExt as _, join},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::{
    admit::Visit,
    ca::Ca,
    clock::Clock,
    hello::Hello,
    intake,
    reason::{Reason, Refusal, Trouble},
    trust::Trust,
    web::{self, Expected},
};
use crate::policy::{DenyReason, Host};

/// What opens TLS and closes it again.
pub struct Opener {
    /// Speaks in the hosts' names.
    pub ca: Ca,
    /// Speaks to the hosts, http/1.1 alone.
    pub connector: TlsConnector,
}

impl Opener {
    /// With this authority, towards hosts for which one of these vouches.
    ///
    /// # Errors
    /// When TLS can't be set up.
    pub fn new(ca: Ca, trust: &Trust) -> Result<Self, rustls::Error> {
        // What is spoken is what can be judged.
        Ok(Self { ca, connector: TlsConnector::from(Arc::new(trust.client(&[b"http/1.1"])?)) })
    }
}

/// Whether it was refused only because it must be opened, and can be.
pub(super) fn can_open(visit: &Visit, refusal: &Refusal) -> bool {
    refusal.reason == Reason::Policy(DenyReason::MustBeOpened) && visit.gateway.opener.load().is_some()
}

/// Opens TLS whose hello was read, and serves one request in it.
pub(super) async fn serve(visit: &Visit, client: TcpStream, hello: Hello, host: &Host, port: u16) {
    let Some(opener) = visit.gateway.opener.load_full() else { return };
    let about = |trouble: Trouble| Refusal::raw(trouble, host.as_str().as_bytes(), port);
    // There is no TLS to say it in: it is recorded, and the connection closed.
    let refused = || drop(visit.refuse(about(Trouble::NotOpened)));
    let config = match opener.ca.server(host, Clock::wall()) {
        Ok(config) => config,
        Err(error) => {
            tracing::error!(%error, "no certificate could be made");
            return refused();
        }
    };
    // The hello was read before: it comes first once more.
    let (rest, write) = client.into_split();
    let replayed = join(Cursor::new(hello.bytes).chain(rest), write);
    let accepted = timeout(visit.gateway.timing.hello, TlsAcceptor::from(config).accept(replayed)).await;
    let Ok(Ok(mut client)) = accepted else {
        return refused();
    };
    match intake::request(visit, &mut client, Vec::new()).await {
        Ok((request, rest)) => {
            let expected = Expected::Opened(host, port, &opener.connector);
            web::exchange(visit, client, request, &rest, &expected).await;
        }
        Err(Some(trouble)) => intake::refuse(visit, client, about(trouble)).await,
        Err(None) => {}
    }
}
