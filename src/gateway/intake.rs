//! Reads what a client says first, within deadlines and limits, and says refusals so that they arrive.

use std::{
    io,
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use serde_json::json;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

use super::{
    admit::{TurnedAway, Visit},
    entry::Entry,
    head::Request,
    hello::{Hello, HelloError, Peek},
    limit::Inside,
    reason::{Reason, Refusal, Trouble},
};
use crate::policy::DenyReason;

/// What is read at once of a head; most fit in. Whoever says nothing holds no more than this.
const HEAD_CHUNK: usize = 1000;
/// The same of a hello.
const HELLO_CHUNK: usize = 2048;
/// How long a refused client has to read its refusal.
const LINGER: Duration = Duration::from_secs(1);
/// Most bytes of it that are thrown away meanwhile.
const MOST_LINGERED: usize = 256 * 1024;

/// Why nothing was said: a reason, or none if the client went away.
pub(super) type Silence = Option<Trouble>;

/// A place among those that have not said what they want, and what they hold.
struct Head {
    held: Inside,
    most: u32,
    _place: Inside,
}

impl Head {
    /// # Errors
    /// When there is no place.
    fn of(visit: &Visit) -> Result<Self, Trouble> {
        let limits = visit.tenant.terms().limits;
        let place = visit.tenant.heads.enter(1, limits.heads).ok_or(Trouble::TooManyHeads)?;
        let held = visit.tenant.buffered.enter(0, limits.buffered_bytes).ok_or(Trouble::TooManyHeads)?;
        Ok(Self { held, most: limits.buffered_bytes, _place: place })
    }

    /// Holds more bytes.
    ///
    /// # Errors
    /// When the sandbox holds as many as it may.
    fn hold(&mut self, more: usize) -> Result<(), Trouble> {
        let more = u32::try_from(more).unwrap_or(u32::MAX);
        if self.held.grow(more, self.most) { Ok(()) } else { Err(Trouble::TooManyHeads) }
    }
}

/// A TLS hello, whole. `first` was read before.
///
/// # Errors
/// When none came.
pub(super) async fn hello(visit: &Visit, client: &mut TcpStream, first: &[u8]) -> Result<Hello, Silence> {
    let mut head = Head::of(visit)?;
    let read = async {
        let mut peek = Peek::default();
        peek.room().extend_from_slice(first);
        let mut read = first.len();
        loop {
            head.hold(read)?;
            if peek.look().map_err(|error: HelloError| Trouble::from(error))? {
                return Ok(peek.into_hello());
            }
            // Exactly: what is read must not be more than what is counted next.
            peek.room().reserve_exact(HELLO_CHUNK);
            read = match client.read_buf(peek.room()).await {
                Ok(read) if read > 0 => read,
                _ => return Err(None),
            };
        }
    };
    timeout(visit.gateway.timing.hello, read).await.unwrap_or(Err(Some(Trouble::HelloSlow)))
}

/// A request's head, whole, and the bytes after it. `first` was read before.
///
/// # Errors
/// When none came.
pub(super) async fn request(
    visit: &Visit,
    client: &mut (impl AsyncRead + Unpin),
    first: Vec<u8>,
) -> Result<(Request, Vec<u8>), Silence> {
    let mut head: Head = Head::of(visit)?;
    let read = async {
        let mut bytes = first;
        head.hold(bytes.len())?;
        loop {
            if let Some((request, length)) = Request::parse(&bytes).map_err(Trouble::from)? {
                return Ok((request, bytes.split_off(length)));
            }
            bytes.reserve(HEAD_CHUNK);
            match client.read_buf(&mut bytes).await {
                Ok(read) if read > 0 => head.hold(read)?,
                _ => return Err(None),
            }
        }
    };
    timeout(visit.gateway.timing.head, read).await.unwrap_or(Err(Some(Trouble::HeadSlow)))
}

/// Writes, and ends the connection so that what was written is read: closed at once, with bytes unread, it would be reset.
pub(super) async fn last_words(mut client: impl AsyncRead + AsyncWrite + Unpin, words: &[u8]) {
    let said = async {
        client.write_all(words).await?;
        client.shutdown().await?;
        let mut lingered = 0;
        let mut thrown_away = [0_u8; 512];
        while lingered < MOST_LINGERED {
            match client.read(&mut thrown_away).await? {
                0 => break,
                read => lingered += read,
            }
        }
        Ok(())
    };
    // Whoever does not read it has had its chance.
    let _: Result<io::Result<()>, _> = timeout(LINGER, said).await;
}

/// Tells a client that it was not let in, if there is room for that. It holds none of a sandbox's places, so it is counted apart.
pub(super) async fn turn_away(client: TcpStream, turned: TurnedAway, words: &[u8]) {
    if let Some(_place) = turned.place {
        last_words(client, words).await;
    }
}

/// Records a refusal and says it as an HTTP answer.
pub(super) async fn refuse(visit: &Visit, client: impl AsyncRead + AsyncWrite + Unpin, refusal: Refusal) {
    let refusal = visit.refuse(refusal);
    last_words(client, &answer(visit.entry, &refusal)).await;
}

/// A refusal as an HTTP answer, for a program to read.
#[must_use]
pub(super) fn answer(entry: Entry, refusal: &Refusal) -> Vec<u8> {
    let missing = matches!(
        refusal.reason,
        Reason::Policy(DenyReason::NoRule | DenyReason::PortNotAllowed)
            | Reason::Gateway(Trouble::Asked | Trouble::AskedInVain)
    );
    let message = match &refusal.words {
        Some(words) => format!("{}: {words}", refusal.reason.words()),
        None => refusal.reason.words().to_owned(),
    };
    let body = json!({
        "layer": entry.as_str(),
        "host": refusal.host,
        "port": refusal.port,
        "reason": refusal.reason.as_str(),
        "message": message,
        "rule": refusal.rule.as_deref(),
        "policy": refusal.policy.as_deref(),
        "ruleMissing": missing,
        "requestId": request_id(),
        "howToAsk": refusal.reason.how_to_ask(),
    })
    .to_string();
    let status = refusal.reason.status();
    let head = format!(
        "HTTP/1.1 {status} {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        phrase(status),
        body.len() + 1
    );
    format!("{head}{body}\n").into_bytes()
}

const fn phrase(status: u16) -> &'static str {
    match status {
        400 => "Bad Request",
        403 => "Forbidden",
        421 => "Misdirected Request",
        408 => "Request Timeout",
        429 => "Too Many Requests",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        _ => "Refused",
    }
}

/// Unlike any other of any replica, as far as anybody cares.
fn request_id() -> String {
    use std::hash::{BuildHasher as _, RandomState};
    static PROCESS: OnceLock<u64> = OnceLock::new();
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let process = PROCESS.get_or_init(|| RandomState::new().hash_one(std::process::id()));
    format!("{process:016x}-{:x}", NEXT.fetch_add(1, Ordering::Relaxed))
}
