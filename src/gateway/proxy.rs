//! The proxy's port: CONNECT, and requests with a whole URI.

use std::{net::IpAddr, sync::Arc};

use tokio::{io::AsyncWriteExt as _, net::TcpStream};

use super::{
    admit::{Gateway, Visit, is_opaque},
    authority,
    entry::Entry,
    flow::Asked,
    head::Target,
    hello::Hello,
    intake::{self, answer, last_words, refuse, turn_away},
    opened::{self, can_open},
    reason::{Reason, Refusal, Trouble},
    tls,
    web::{self, Expected},
};
use crate::policy::{Destination, Host, Wire};

const ESTABLISHED: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";

/// Serves one connection.
pub(super) async fn serve(gateway: Arc<Gateway>, mut client: TcpStream, source: IpAddr) {
    let mut visit = match Visit::enter(gateway, source, Entry::Connect).await {
        Ok(visit) => visit,
        Err(turned) => {
            let words = answer(Entry::Connect, &Refusal::raw(turned.reason, b"", 0));
            return turn_away(client, turned, &words).await;
        }
    };
    let (request, rest) = match intake::request(&visit, &mut client, Vec::new()).await {
        Ok(read) => read,
        Err(Some(trouble)) => return refuse(&visit, client, Refusal::raw(trouble, b"", 0)).await,
        Err(None) => return,
    };
    match &request.target {
        Target::Authority(target) => match connect_to(target, request.host.as_deref()) {
            Ok((destination, port)) => connect(&visit, client, destination, port, rest).await,
            Err(refusal) => refuse(&visit, client, refusal).await,
        },
        Target::Absolute { .. } => {
            visit.entry = Entry::Absolute;
            Box::pin(web::exchange(&visit, client, request, &rest, &Expected::Any)).await;
        }
        Target::Origin(_) => refuse(&visit, client, Refusal::raw(Trouble::NotAProxyRequest, b"", 0)).await,
    }
}

/// Where a CONNECT goes. Its Host field, if there is one, may leave the port out and must not say otherwise.
fn connect_to(target: &str, host: Option<&str>) -> Result<(Destination, u16), Refusal> {
    let refused = |reason: Reason| Refusal::raw(reason, target.as_bytes(), 0);
    let (destination, port) = authority::parse(target).map_err(refused)?;
    let port = port.ok_or(Trouble::PortUnclear).map_err(|trouble| refused(trouble.into()))?;
    // Most clients say the same twice, which is read once.
    if let Some(host) = host.filter(|host| *host != target) {
        let (named, at) = authority::parse(host).map_err(refused)?;
        if named != destination || at.is_some_and(|at| at != port) {
            return Err(refused(Trouble::AuthorityMismatch.into()));
        }
    }
    Ok((destination, port))
}

/// What goes through a tunnel decides how closely it is looked at.
async fn connect(visit: &Visit, client: TcpStream, destination: Destination, port: u16, rest: Vec<u8>) {
    let asked = Asked { destination, port, wire: Wire::Tls, request: None };
    visit.ask_first(&asked, Some(&client)).await;
    let as_http = |asked: &Asked| Asked { wire: Wire::Http, ..asked.clone() };
    match (visit.judge(&asked), &asked.destination) {
        (Ok(protocol), destination) if is_opaque(protocol, destination) => {
            opaque(visit, client, Asked { wire: Wire::Tcp, ..asked }, rest).await;
        }
        (Ok(_), Destination::Name(host)) => {
            let host = host.clone();
            sealed(visit, client, asked, &host, &rest).await;
        }
        (Err(refusal), Destination::Name(host)) if can_open(visit, &refusal) => {
            Box::pin(open(visit, client, host, port, &rest)).await;
        }
        (Err(_), destination) if visit.judge(&as_http(&asked)).is_ok() => {
            Box::pin(plain(visit, client, destination, port, rest)).await;
        }
        (Err(refusal), _) => refuse(visit, client, refusal).await,
        // An address is opaque, whatever its rule.
        (Ok(_), Destination::Address(_)) => {}
    }
}

async fn establish(client: &mut TcpStream) -> bool {
    client.write_all(ESTABLISHED).await.is_ok()
}

/// Any bytes.
async fn opaque(visit: &Visit, mut client: TcpStream, asked: Asked, rest: Vec<u8>) {
    match visit.reach(asked).await {
        Ok((upstream, dialled)) => {
            if establish(&mut client).await {
                dialled.relay(&client, &upstream, rest).await;
            }
        }
        Err(refusal) => last_words(client, &answer(visit.entry, &refusal)).await,
    }
}

/// TLS, whose hello must name the host of the CONNECT. Nothing is dialled before it does.
async fn sealed(visit: &Visit, mut client: TcpStream, asked: Asked, host: &Host, rest: &[u8]) {
    let port = asked.port;
    let found = async { visit.pin(visit.authorize(asked)?).await };
    let pinned = match found.await {
        Ok(pinned) => pinned,
        Err(refusal) => return last_words(client, &answer(visit.entry, &refusal)).await,
    };
    let Some(hello) = agreeing(visit, &mut client, host, port, rest).await else {
        return;
    };
    match visit.dial(pinned).await {
        Ok((upstream, dialled)) => dialled.relay(&client, &upstream, hello.bytes).await,
        Err(refusal) => last_words(client, tls::alert(&refusal)).await,
    }
}

/// TLS that the gateway opens, whose hello must name the host too.
async fn open(visit: &Visit, mut client: TcpStream, host: &Host, port: u16, rest: &[u8]) {
    if let Some(hello) = agreeing(visit, &mut client, host, port, rest).await {
        opened::serve(visit, client, hello, host, port).await;
    }
}

/// Opens the tunnel, and reads a hello that names the host; otherwise the tunnel is closed again.
async fn agreeing(
    visit: &Visit,
    client: &mut TcpStream,
    host: &Host,
    port: u16,
    rest: &[u8],
) -> Option<Hello> {
    if !establish(client).await {
        return None;
    }
    let about = |trouble: Trouble| Refusal::raw(trouble, host.as_str().as_bytes(), port);
    let refusal = match intake::hello(visit, client, rest).await {
        Err(None) => return None,
        Err(Some(trouble)) => about(trouble),
        Ok(hello) => match tls::named(&hello, port) {
            Ok(named) if named == *host => return Some(hello),
            Ok(_) => about(Trouble::ServerNameMismatch),
            Err(refusal) => refusal,
        },
    };
    let refusal = visit.refuse(refusal);
    last_words(client, tls::alert(&refusal)).await;
    None
}

/// HTTP in a tunnel: one request, for the host of the CONNECT.
async fn plain(visit: &Visit, mut client: TcpStream, destination: &Destination, port: u16, rest: Vec<u8>) {
    if !establish(&mut client).await {
        return;
    }
    match intake::request(visit, &mut client, rest).await {
        Ok((request, rest)) => {
            web::exchange(visit, client, request, &rest, &Expected::Tunnel(destination, port)).await;
        }
        Err(Some(trouble)) => {
            let refusal = Refusal::raw(trouble, destination.to_string().as_bytes(), port);
            refuse(visit, client, refusal).await;
        }
        Err(None) => {}
    }
}
