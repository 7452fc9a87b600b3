//! Transparent TLS: the hello says where to, and is passed on as it came.

use std::{net::IpAddr, sync::Arc};

use tokio::net::TcpStream;

use super::{
    admit::{Gateway, Visit},
    entry::Entry,
    flow::Asked,
    hello::{ACCESS_DENIED, Hello, INTERNAL_ERROR},
    intake::{self, last_words, turn_away},
    opened::{self, can_open},
    reason::{Reason, Refusal, Trouble},
};
use crate::policy::{DenyReason, Destination, Host, Wire};

/// Serves one connection, whose client means this port.
pub(super) async fn serve(gateway: Arc<Gateway>, mut client: TcpStream, source: IpAddr, port: u16) {
    let visit = match Visit::enter(gateway, source, Entry::Tls).await {
        Ok(visit) => visit,
        Err(turned) => return turn_away(client, turned, &ACCESS_DENIED).await,
    };
    let refused = |trouble: Trouble| visit.refuse(Refusal::raw(trouble, b"", port));
    let read = async {
        let hello = intake::hello(&visit, &mut client, &[]).await.map_err(|silence| silence.map(refused))?;
        let host = named(&hello, port).map_err(|refusal| visit.refuse(refusal))?;
        Ok((hello, host))
    };
    let (hello, host) = match read.await {
        Ok(read) => read,
        Err(Some(refusal)) => return last_words(client, alert(&refusal)).await,
        Err(None) => return,
    };
    let asked = Asked { destination: Destination::Name(host.clone()), port, wire: Wire::Tls, request: None };
    visit.ask_first(&asked, Some(&client)).await;
    if visit.judge(&asked).is_err_and(|refusal| can_open(&visit, &refusal)) {
        // In a box: most connections are passed through, and need not carry its size around.
        return Box::pin(opened::serve(&visit, client, hello, &host, port)).await;
    }
    match visit.reach(asked).await {
        Ok((upstream, dialled)) => dialled.relay(&client, &upstream, hello.bytes).await,
        Err(refusal) => last_words(client, alert(&refusal)).await,
    }
}

/// The alert that fits. To what is no TLS nothing is said.
#[must_use]
pub(super) fn alert(refusal: &Refusal) -> &'static [u8] {
    match refusal.reason {
        Reason::Gateway(Trouble::NotTls) => &[],
        Reason::Gateway(trouble) if Reason::from(trouble).status() >= 500 => &INTERNAL_ERROR,
        _ => &ACCESS_DENIED,
    }
}

/// Whom a hello names.
///
/// # Errors
/// When it names nobody.
pub(super) fn named(hello: &Hello, port: u16) -> Result<Host, Refusal> {
    let Some(name) = &hello.server_name else {
        return Err(Refusal::raw(Trouble::ServerNameMissing, b"", port));
    };
    Host::parse(name.as_bytes()).map_err(|error| Refusal::raw(DenyReason::from(error), name.as_bytes(), port))
}
