//! HTTP: one request on each connection, judged by method and path, written anew, and its answer likewise.
//!
//! One request, so that no second one can go where only the first was allowed to. What a client sends after it is thrown away,
//! unless both sides agreed on a WebSocket.

use std::{net::IpAddr, sync::Arc};

use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::TlsConnector;

use super::{
    admit::{Dialled, Gateway, Visit},
    authority,
    broker::{self, Redactor},
    entry::Entry,
    flow::{Asked, Cause},
    head::Request,
    intake::{self, answer, last_words, refuse, turn_away},
    reason::{Reason, Refusal, Trouble},
    relay::Activity,
    way::Way,
};
use crate::policy::{Destination, Host, Wire};

const HTTP_PORT: u16 = 80;
const HTTPS_PORT: u16 = 443;

/// Whom a request may name.
pub(super) enum Expected<'a> {
    /// Whom it wants, by a whole URI.
    Any,
    /// Whom it wants, at this port alone: that is where the client believes to be.
    Port(u16),
    /// This one, in a tunnel.
    Tunnel(&'a Destination, u16),
    /// This one, in TLS that was opened; TLS to it is made with the connector.
    Opened(&'a Host, u16, &'a TlsConnector),
}

impl Expected<'_> {
    fn of(&self, request: &Request) -> Result<Asked, Refusal> {
        let default_port = match self {
            Self::Any => HTTP_PORT,
            Self::Port(port) | Self::Tunnel(_, port) | Self::Opened(_, port, _) => *port,
        };
        let host = request.host.as_deref().unwrap_or_default();
        let refused = |reason: Reason| Refusal::raw(reason, host.as_bytes(), default_port);
        let (destination, port) = authority::of(request, default_port).map_err(refused)?;
        let mismatch = match self {
            Self::Port(expected) if port != *expected => Some(Trouble::AuthorityMismatch),
            Self::Tunnel(this, expected) if destination != **this || port != *expected => {
                Some(Trouble::TunnelMismatch)
            }
            Self::Opened(this, expected, _) if destination.name() != Some(*this) || port != *expected => {
                Some(Trouble::OpenedMismatch)
            }
            _ => None,
        };
        if let Some(trouble) = mismatch {
            return Err(refused(trouble.into()));
        }
        let wire = if matches!(self, Self::Opened(..)) { Wire::Opened } else { Wire::Http };
        let line = (request.method.as_str().into(), request.path().into());
        Ok(Asked { destination, port, wire, request: Some(line) })
    }
}

/// Serves one connection of transparent HTTP, whose client means this port.
pub(super) async fn serve(gateway: Arc<Gateway>, mut client: TcpStream, source: IpAddr, port: u16) {
    let visit = match Visit::enter(gateway, source, Entry::Http).await {
        Ok(visit) => visit,
        Err(turned) => {
            let words = answer(Entry::Http, &Refusal::raw(turned.reason, b"", port));
            return turn_away(client, turned, &words).await;
        }
    };
    match intake::request(&visit, &mut client, Vec::new()).await {
        Ok((request, rest)) => exchange(&visit, client, request, &rest, &Expected::Port(port)).await,
        Err(Some(trouble)) => refuse(&visit, client, Refusal::raw(trouble, b"", port)).await,
        Err(None) => {}
    }
}

/// One request and its answer. `rest` came after the request's head.
pub(super) async fn exchange(
    visit: &Visit,
    mut client: impl AsyncRead + AsyncWrite + Unpin,
    mut request: Request,
    rest: &[u8],
    expected: &Expected<'_>,
) {
    let words = match reach(visit, &mut request, expected).await {
        Err(refusal) => answer(visit.entry, &refusal),
        Ok((upstream, dialled)) => {
            if let Expected::Opened(host, _, connector) = expected {
                let sealed = seal(visit, host, connector, upstream).await;
                match sealed.map_err(|trouble| dialled.about(trouble)) {
                    Ok(upstream) => match broker::add(visit, &dialled, &mut request).await {
                        Ok(redactor) => {
                            let sent = Sent::new(&request, &dialled, rest);
                            carry(visit, &mut client, upstream, dialled, &sent, redactor).await
                        }
                        Err(refusal) => answer(visit.entry, &visit.refuse(refusal)),
                    },
                    Err(refusal) => answer(visit.entry, &refusal),
                }
            } else {
                let sent = Sent::new(&request, &dialled, rest);
                carry(visit, &mut client, upstream, dialled, &sent, None).await
            }
        }
    };
    last_words(client, &words).await;
}

/// The verdict on a request, and a socket.
async fn reach<'v>(
    visit: &'v Visit,
    request: &mut Request,
    expected: &Expected<'_>,
) -> Result<(TcpStream, Dialled<'v>), Refusal> {
    let refuse = |refusal| visit.refuse(refusal);
    let asked = expected.of(request).map_err(refuse)?;
    broker::examine(visit, &asked, request).map_err(refuse)?;
    if asked.wire == Wire::Http {
        visit.ask_first(&asked, None).await;
    }
    let authorized = visit.authorize(asked)?;
    broker::own(&authorized, request).map_err(refuse)?;
    visit.dial(visit.pin(authorized).await?).await
}

/// TLS to the host, whose certificate must be good for its name. There is no way around that.
async fn seal(
    visit: &Visit,
    host: &Host,
    connector: &TlsConnector,
    upstream: TcpStream,
) -> Result<tokio_rustls::client::TlsStream<TcpStream>, Trouble> {
    let name = host.as_str().to_owned().try_into().map_err(|_| Trouble::Untrusted)?;
    match timeout(visit.gateway.timing.dial, connector.connect(name, upstream)).await {
        Ok(Ok(sealed)) => Ok(sealed),
        // What TLS finds wrong comes as such, what the network does comes as it is.
        Ok(Err(error)) if error.kind() == std::io::ErrorKind::InvalidData => Err(Trouble::Untrusted),
        Ok(Err(_)) => Err(Trouble::Unreachable),
        Err(_) => Err(Trouble::TimedOut),
    }
}

/// A request on its way.
struct Sent<'a> {
    request: &'a Request,
    head: Vec<u8>,
    rest: &'a [u8],
}

impl<'a> Sent<'a> {
    fn new(request: &'a Request, dialled: &Dialled<'_>, rest: &'a [u8]) -> Self {
        let asked = dialled.asked();
        let host = match (asked.wire, asked.port) {
            (Wire::Http, HTTP_PORT) | (Wire::Opened, HTTPS_PORT) => asked.destination.to_string(),
            (_, port) => format!("{}:{port}", asked.destination),
        };
        Self { request, head: request.render(&host), rest }
    }
}

/// Carries both; what remains to be said to the client. What the redactor knows is taken out of the answer.
async fn carry(
    visit: &Visit,
    client: &mut (impl AsyncRead + AsyncWrite + Unpin),
    upstream: impl AsyncRead + AsyncWrite + Unpin,
    dialled: Dialled<'_>,
    sent: &Sent<'_>,
    mut redactor: Option<Redactor>,
) -> Vec<u8> {
    let activity = Activity::new(visit.gateway.clock, &visit.tenant.used);
    let (mut from_client, mut to_client) = tokio::io::split(client);
    let (mut from_upstream, mut to_upstream) = tokio::io::split(upstream);
    let mut answered = false;
    let up = async {
        let mut out = Way { to: &mut to_upstream, toll: &dialled.up, activity: &activity, redactor: None };
        let carried = async {
            out.send(&sent.head).await?;
            out.body(&mut from_client, sent.rest, sent.request.framing).await
        };
        match carried.await {
            // A server may answer before it read all, and close: its answer counts.
            Ok(()) | Err(Cause::Broken) => std::future::pending().await,
            Err(cause) => cause,
        }
    };
    let down = async {
        let redactor = redactor.as_mut();
        let mut out = Way { to: &mut to_client, toll: &dialled.down, activity: &activity, redactor };
        out.answer(&mut from_upstream, sent.request, &mut answered).await
    };
    let idle = visit.gateway.timing.idle;
    let done = tokio::select! {
        biased;
        cause = dialled.flow().closed() => Err(cause),
        done = down => done,
        cause = up => Err(cause),
        () = activity.idle(idle) => Err(Cause::Idle),
    };
    let cause = match done {
        Err(cause) => cause,
        Ok(None) => Cause::Done,
        Ok(Some(first)) => {
            let mut up = Way { to: &mut to_upstream, toll: &dialled.up, activity: &activity, redactor: None };
            // Requests that got a secret go over to nothing else.
            let mut down =
                Way { to: &mut to_client, toll: &dialled.down, activity: &activity, redactor: None };
            let both = async {
                tokio::try_join!(up.all(&mut from_client, sent.rest), down.all(&mut from_upstream, &first))
            };
            tokio::select! {
                biased;
                cause = dialled.flow().closed() => cause,
                done = both => done.err().unwrap_or(Cause::Done),
                () = activity.idle(idle) => Cause::Idle,
            }
        }
    };
    let trouble = match cause {
        Cause::Suspected => Some(Trouble::Suspected),
        Cause::Malformed => Some(Trouble::AnswerMalformed),
        Cause::Encoded => Some(Trouble::AnswerEncoded),
        Cause::Broken => Some(Trouble::Unreachable),
        Cause::Idle => Some(Trouble::TimedOut),
        Cause::Spent => Some(Trouble::UploadSpent),
        Cause::Drained => Some(Trouble::Draining),
        Cause::Done | Cause::Revoked | Cause::Gone => None,
    };
    let said = trouble.filter(|_| !answered).map(|trouble| answer(visit.entry, &dialled.about(trouble)));
    dialled.end(cause);
    said.unwrap_or_default()
}
