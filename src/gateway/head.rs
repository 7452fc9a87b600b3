//! The head of an HTTP/1 message: parsed whole and strictly, and written anew from what was parsed.
//!
//! Hostile bytes. Whatever two readers could read in two ways is refused; no byte of a head is ever passed on as it came.

mod fields;

use self::fields::{Fields, Hosts};
use super::framing::Framing;

/// Most bytes of a head.
pub const MOST_BYTES: usize = 16 * 1024;
const MOST_HEADERS: usize = 100;
/// Most fields of a head that are passed on: Host, a length, Connection and Upgrade are written anew, and what is written has to
/// be within the bounds of what is read.
const MOST_PASSED: usize = MOST_HEADERS - 4;
/// Most bytes of the first line and of the fields that are passed on, for the same reason: a host has at most 253.
const MOST_PASSED_BYTES: usize = MOST_BYTES - 512;
const MOST_METHOD: usize = 32;

/// Why bytes are no head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum HeadError {
    /// More than [`MOST_BYTES`], more than a hundred fields, or too near to either to be passed on.
    #[error("the head is longer than 16 KiB or has more than 100 fields, what is added on the way included")]
    TooLong,
    /// A line that ends in something else than CR LF.
    #[error("a line of the head does not end in CR LF")]
    LineEnd,
    /// A NUL or another control character.
    #[error("the head has a control character")]
    Control,
    /// Another byte that has no place there.
    #[error("the head has a non-ASCII byte, or a #, where none may be")]
    Byte,
    /// A field that goes on in the next line.
    #[error("a field goes on in the next line (obs-fold)")]
    Folded,
    /// No HTTP/1 head.
    #[error("not an HTTP/1.0 or HTTP/1.1 head")]
    Syntax,
    /// The target is no form that this method may have.
    #[error("the request target is not a path, an http:// URI or, for CONNECT, host:port")]
    Target,
    /// Not http.
    #[error("the scheme is not http; use CONNECT for TLS")]
    Scheme,
    /// None or two of them.
    #[error("a request needs exactly one Host field")]
    Host,
    /// The length of the body can be read in two ways.
    #[error(
        "the length of the body is ambiguous: at most one Content-Length or one Transfer-Encoding: chunked"
    )]
    Framing,
    /// An answer that takes the connection away from HTTP.
    #[error("the answer switches to another protocol")]
    Switch,
}

/// Version of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// HTTP/1.0
    Http10,
    /// HTTP/1.1
    Http11,
}

impl Version {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Http10 => "HTTP/1.0",
            Self::Http11 => "HTTP/1.1",
        }
    }
}

/// What a request asks for, in its first line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// `/path?query`, or `*`.
    Origin(String),
    /// `http://authority/path?query`
    Absolute {
        /// Host, and port if there is one.
        authority: String,
        /// Path and query; at least `/`.
        path: String,
    },
    /// `host:port`, of CONNECT.
    Authority(String),
}

/// A request's head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Method, as it came: methods know case.
    pub method: String,
    /// Target.
    pub target: Target,
    /// Version.
    pub version: Version,
    /// The Host field. Only a CONNECT may come without.
    pub host: Option<String>,
    /// How long the body is.
    pub framing: Framing,
    /// Whether it asks for a WebSocket, the one protocol that a connection may go over to.
    pub websocket: bool,
    /// What is passed on: neither hop-by-hop nor a proxy's.
    fields: Vec<(String, Vec<u8>)>,
}

/// An answer's head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Status.
    pub status: u16,
    reason: String,
    /// How long the body is; none if it ends with the connection.
    pub framing: Option<Framing>,
    fields: Vec<(String, Vec<u8>)>,
}

/// Where the head ends, if it is whole: the bytes up to there are lines that end in CR LF and nothing else.
fn end(bytes: &[u8]) -> Result<Option<usize>, HeadError> {
    let control = |byte: &u8| (*byte < b' ' && *byte != b'\t') || *byte == 0x7f;
    let head = bytes.get(..MOST_BYTES).unwrap_or(bytes);
    let mut line = 0;
    while let Some(rest @ [first, ..]) = head.get(line..) {
        if matches!(first, b' ' | b'\t') {
            return Err(if line == 0 { HeadError::Syntax } else { HeadError::Folded });
        }
        let Some(length) = rest.iter().position(control) else { break };
        match rest.get(length..).unwrap_or_default() {
            [b'\r', b'\n', ..] if length > 0 => line += length + 2,
            [b'\r', b'\n', ..] if line > 0 => return Ok(Some(line + 2)),
            [b'\r', b'\n', ..] => return Err(HeadError::Syntax),
            [b'\r'] => break,
            [b'\r' | b'\n', ..] => return Err(HeadError::LineEnd),
            _ => return Err(HeadError::Control),
        }
    }
    if bytes.len() >= MOST_BYTES { Err(HeadError::TooLong) } else { Ok(None) }
}

impl Request {
    /// Reads a head at the beginning of the bytes; how long it is comes with it. None while it is not whole.
    ///
    /// # Errors
    /// When these bytes can't become a head, or one that all read alike.
    pub fn parse(bytes: &[u8]) -> Result<Option<(Self, usize)>, HeadError> {
        let Some(length) = end(bytes)? else { return Ok(None) };
        let mut fields = [httparse::EMPTY_HEADER; MOST_HEADERS];
        let mut request = httparse::Request::new(&mut fields);
        let head = bytes.get(..length).unwrap_or_default();
        match request.parse(head) {
            Ok(httparse::Status::Complete(read)) if read == length => {}
            Err(httparse::Error::TooManyHeaders) => return Err(HeadError::TooLong),
            _ => return Err(HeadError::Syntax),
        }
        let version = version(request.version)?;
        let method = request.method.unwrap_or_default();
        let target = target(method, request.path.unwrap_or_default())?;
        let fields = Fields::read(request.headers)?;
        let framing = fields.framing(version)?.unwrap_or(Framing::Length(0));
        let host = match (fields.host, &target) {
            (Hosts::One(host), _) => Some(host),
            (Hosts::None, Target::Authority(_)) => None,
            _ => return Err(HeadError::Host),
        };
        if method.len() > MOST_METHOD {
            return Err(HeadError::Syntax);
        }
        if matches!(target, Target::Authority(_)) && framing != Framing::Length(0) {
            return Err(HeadError::Framing);
        }
        let websocket = fields.websocket
            && (method, version, framing) == ("GET", Version::Http11, Framing::Length(0))
            && !matches!(target, Target::Authority(_));
        let (method, fields) = (method.to_owned(), fields.kept);
        let request = Self { method, target, version, host, framing, websocket, fields };
        fits(request.method.len() + request.path().len(), &request.fields)?;
        Ok(Some((request, length)))
    }

    /// Path and query, as they are passed on.
    #[must_use]
    pub fn path(&self) -> &str {
        match &self.target {
            Target::Origin(path) | Target::Absolute { path, .. } => path,
            Target::Authority(_) => "",
        }
    }

    /// Fields that are passed on, by name and value as they came.
    pub fn fields(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.fields.iter().map(|(name, value)| (name.as_str(), value.as_slice()))
    }

    /// Takes away fields by their names.
    pub(super) fn remove(&mut self, which: impl Fn(&str) -> bool) {
        self.fields.retain(|(name, _)| !which(name));
    }

    /// Adds a field, whose value is fit to be one.
    pub(super) fn push(&mut self, name: &str, value: Vec<u8>) {
        self.fields.push((name.to_owned(), value));
    }

    /// The head for whom `host` names: one request, then the connection ends.
    #[must_use]
    pub fn render(&self, host: &str) -> Vec<u8> {
        let mut out = Vec::with_capacity(512);
        line(&mut out, &[&self.method, " ", self.path(), " ", self.version.as_str()]);
        line(&mut out, &["Host: ", host]);
        let implied =
            self.framing == Framing::Length(0) && !matches!(&*self.method, "POST" | "PUT" | "PATCH");
        render(&mut out, &self.fields, (!implied).then_some(self.framing), self.websocket);
        out
    }
}

impl Answer {
    /// Reads the answer to a request of this method and version, which may have asked for a WebSocket.
    ///
    /// # Errors
    /// As [`Request::parse`].
    pub fn parse(
        bytes: &[u8],
        method: &str,
        asked: Version,
        websocket: bool,
    ) -> Result<Option<(Self, usize)>, HeadError> {
        let Some(length) = end(bytes)? else { return Ok(None) };
        let mut fields = [httparse::EMPTY_HEADER; MOST_HEADERS];
        let mut answer = httparse::Response::new(&mut fields);
        match answer.parse(bytes.get(..length).unwrap_or_default()) {
            Ok(httparse::Status::Complete(read)) if read == length => {}
            Err(httparse::Error::TooManyHeaders) => return Err(HeadError::TooLong),
            _ => return Err(HeadError::Syntax),
        }
        let version = version(answer.version)?;
        let status = answer.code.filter(|code| (100..600).contains(code)).ok_or(HeadError::Syntax)?;
        let fields = Fields::read(answer.headers)?;
        fits(answer.reason.unwrap_or_default().len(), &fields.kept)?;
        if status == 101 && !(websocket && fields.websocket) {
            return Err(HeadError::Switch);
        }
        let framing = fields.framing(version)?;
        if asked == Version::Http10 && framing == Some(Framing::Chunked) {
            return Err(HeadError::Framing);
        }
        let bodiless = method == "HEAD" || status < 200 || status == 204 || status == 304;
        let framing = if bodiless { Some(Framing::Length(0)) } else { framing };
        // To a HEAD the length of what a GET would bring is worth saying; it frames nothing.
        let mut kept = fields.kept;
        if let (true, Some(length)) = (method == "HEAD", fields.length) {
            kept.push(("Content-Length".into(), length.to_string().into_bytes()));
        }
        kept.retain(|(name, _)| !name.eq_ignore_ascii_case("alt-svc"));
        let reason = answer.reason.unwrap_or_default().to_owned();
        Ok(Some((Self { status, reason, framing, fields: kept }, length)))
    }

    /// Whether another head follows.
    #[must_use]
    pub const fn interim(&self) -> bool {
        self.status < 200 && !self.switches()
    }

    /// Whether what follows is no HTTP.
    #[must_use]
    pub const fn switches(&self) -> bool {
        self.status == 101
    }

    /// Whether all of what follows is there to be read: in no code that would have to be undone, and not a part that the client chose.
    #[must_use]
    pub fn is_searchable(&self) -> bool {
        if self.framing == Some(Framing::Length(0)) {
            return !self.switches();
        }
        let hides = |(name, value): &(String, Vec<u8>)| match &*name.to_ascii_lowercase() {
            "content-encoding" => !(value.is_empty() || value.eq_ignore_ascii_case(b"identity")),
            "content-range" => true,
            "content-type" => value.to_ascii_lowercase().starts_with(b"multipart/byteranges"),
            _ => false,
        };
        self.status != 206 && !self.fields.iter().any(hides)
    }

    /// The head for the client.
    #[must_use]
    pub fn render(&self, version: Version, method: &str) -> Vec<u8> {
        let mut out = Vec::with_capacity(512);
        line(&mut out, &[version.as_str(), " ", &self.status.to_string(), " ", &self.reason]);
        if self.interim() {
            out.extend(b"\r\n");
            return out;
        }
        let bodiless = method == "HEAD" || matches!(self.status, 101 | 204 | 304);
        render(&mut out, &self.fields, self.framing.filter(|_| !bodiless), self.switches());
        out
    }
}

/// Whether what is passed on leaves room for what is added to it.
fn fits(first_line: usize, fields: &[(String, Vec<u8>)]) -> Result<(), HeadError> {
    let bytes: usize = fields.iter().map(|(name, value)| name.len() + value.len() + 4).sum();
    if fields.len() > MOST_PASSED || first_line + bytes > MOST_PASSED_BYTES {
        return Err(HeadError::TooLong);
    }
    Ok(())
}

fn line(out: &mut Vec<u8>, parts: &[&str]) {
    for part in parts {
        out.extend(part.as_bytes());
    }
    out.extend(b"\r\n");
}

fn render(out: &mut Vec<u8>, fields: &[(String, Vec<u8>)], framing: Option<Framing>, websocket: bool) {
    for (name, value) in fields {
        out.extend(name.as_bytes());
        out.extend(b": ");
        out.extend(value);
        out.extend(b"\r\n");
    }
    match framing {
        Some(Framing::Chunked) => line(out, &["Transfer-Encoding: chunked"]),
        Some(Framing::Length(length)) => line(out, &["Content-Length: ", &length.to_string()]),
        None => {}
    }
    let end: &[u8] = if websocket {
        b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    } else {
        b"Connection: close\r\n\r\n"
    };
    out.extend(end);
}

fn version(minor: Option<u8>) -> Result<Version, HeadError> {
    match minor {
        Some(0) => Ok(Version::Http10),
        Some(1) => Ok(Version::Http11),
        _ => Err(HeadError::Syntax),
    }
}

fn target(method: &str, text: &str) -> Result<Target, HeadError> {
    if !text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#') {
        return Err(HeadError::Byte);
    }
    if method == "CONNECT" {
        return Ok(Target::Authority(text.into()));
    }
    if text.starts_with('/') || (text == "*" && method == "OPTIONS") {
        return Ok(Target::Origin(text.into()));
    }
    let Some((scheme, rest)) = text.split_once("://") else { return Err(HeadError::Target) };
    if !scheme.eq_ignore_ascii_case("http") {
        return Err(HeadError::Scheme);
    }
    let at = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(at);
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    Ok(Target::Absolute { authority: authority.into(), path })
}

#[cfg(test)]
mod tests;
