//! A client of HTTP/1, as small as can be: what is sent is written here byte by byte, so that it may be wrong.

use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// An answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    /// Names and values, in lower case.
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
    /// Whether it came to its proper end.
    pub(crate) whole: bool,
}

impl Reply {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The lines of a stream.
    pub(crate) fn lines(&self) -> Vec<Value> {
        let text = std::str::from_utf8(&self.body).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The status and the reason of a problem.
    pub(crate) fn problem(&self) -> (u16, String) {
        let error = self.json()["error"].clone();
        assert!(error["message"].as_str().unwrap().len() > 10, "{error}");
        (self.status, error["reason"].as_str().unwrap().to_owned())
    }

    pub(crate) fn message(&self) -> String {
        self.json()["error"]["message"].as_str().unwrap().to_owned()
    }
}

/// A request as bytes.
pub(crate) fn request(method: &str, path: &str, fields: &[(&str, &str)], body: &str) -> Vec<u8> {
    let mut head = format!("{method} {path} HTTP/1.1\r\nhost: session\r\nconnection: close\r\n");
    for (name, value) in fields {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    if matches!(method, "POST" | "PUT") {
        head.push_str(&format!("content-length: {}\r\n", body.len()));
    }
    format!("{head}\r\n{body}").into_bytes()
}

/// Sends and reads to the end.
pub(crate) async fn exchange<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S, bytes: &[u8]) -> Reply {
    // A server that refuses early need not read all of it.
    let _ = stream.write_all(bytes).await;
    let mut all = Vec::new();
    let _ = stream.read_to_end(&mut all).await;
    parse(&all)
}

fn parse(bytes: &[u8]) -> Reply {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n").unwrap_or_else(|| {
        panic!("no head in {:?}", String::from_utf8_lossy(bytes));
    });
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap().to_lowercase();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let rest = &bytes[end + 4..];
    let (body, whole) = if head.contains("transfer-encoding: chunked") {
        unchunk(rest)
    } else {
        let length = head
            .split("content-length: ")
            .nth(1)
            .map_or(0, |rest| rest.lines().next().unwrap().parse().unwrap());
        (rest.to_vec(), rest.len() == length)
    };
    Reply { status, head, body, whole }
}

fn unchunk(mut rest: &[u8]) -> (Vec<u8>, bool) {
    let mut body = Vec::new();
    while let Some(line) = rest.windows(2).position(|window| window == b"\r\n") {
        let size = usize::from_str_radix(std::str::from_utf8(&rest[..line]).unwrap(), 16).unwrap();
        if size == 0 {
            return (body, true);
        }
        let Some(chunk) = rest.get(line + 2..line + 2 + size) else { break };
        body.extend(chunk);
        rest = rest.get(line + 4 + size..).unwrap_or_default();
    }
    (body, false)
}
