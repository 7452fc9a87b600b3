//! Requests to the session over one connection.

use std::time::Duration;

use anyhow::{Context as _, bail};
use axum::{
    body::{Body, Bytes},
    http::{HeaderValue, Request, StatusCode, header},
};
use futures::{SinkExt as _, Stream, StreamExt as _};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use kube::api::Portforwarder;
use serde::{Deserialize, de::DeserializeOwned};
use tokio::{io::AsyncReadExt as _, time::timeout};
use tokio_tungstenite::{
    WebSocketStream, client_async,
    tungstenite::{self, Message, client::IntoClientRequest as _},
};
use tokio_util::io::ReaderStream;

use super::{
    caller::Caller,
    cluster::Cluster,
    connect::{self, Connection},
    exec::write,
    lines::{Lines, Problem, Said},
    options::SessionOptions,
};
use crate::{
    api::Span,
    session::api::{ExecRequest, SandboxStatus},
};

/// Until the session is reached and has agreed on TLS.
const REACHED: Duration = Duration::from_secs(20);
/// Until an answer comes that waits for nothing.
pub(super) const ANSWERED: Duration = Duration::from_secs(30);
/// What became of a command whose session hangs up.
pub(super) const HUNG_UP: &str =
    "the session hung up before the command had ended; it was killed, or will be soon";
/// Longest answer that is no stream, in bytes.
const MOST: usize = 4 * 1024 * 1024;

/// The session, reached.
pub(super) struct Session {
    sender: SendRequest<Body>,
    host: String,
    token: Option<HeaderValue>,
    _forward: Option<Portforwarder>,
}

/// A session's answer that is not what was asked for.
#[derive(Debug, thiserror::Error)]
#[error("the session refuses: {} ({})", problem.message, problem.reason)]
pub(super) struct Refused {
    pub(super) problem: Problem,
}

#[derive(Deserialize)]
struct ErrorBody {
    error: Problem,
}

impl Session {
    /// Reaches it as the caller.
    pub(super) async fn open(cluster: &Cluster, options: &SessionOptions) -> anyhow::Result<Self> {
        let (connection, caller) = reach(cluster, options).await?;
        Self::over(connection, &caller).await
    }

    /// Reaches the trail, which speaks as a session does.
    pub(super) async fn open_trail(cluster: &Cluster, options: &SessionOptions) -> anyhow::Result<Self> {
        let caller = Caller::of(&cluster.config, options).await?;
        let reached = timeout(REACHED, connect::forwarded(cluster, &connect::TRAIL, options, &caller)).await;
        let connection =
            reached.with_context(|| format!("the audit trail did not answer within {REACHED:?}"))??;
        Self::over(connection, &caller).await
    }

    async fn over(connection: Connection, caller: &Caller) -> anyhow::Result<Self> {
        let Connection { stream, host, forward } = connection;
        let (sender, driver) =
            http1::handshake(TokioIo::new(stream)).await.context("the session does not speak HTTP")?;
        // An error of the connection is an error of the request that it carries.
        tokio::spawn(driver);
        Ok(Self { sender, host, token: caller.token().cloned(), _forward: forward })
    }

    /// The answer's body, if it is one that the request was carried out.
    async fn send(&mut self, method: &str, path: &str, body: Option<Sent>) -> anyhow::Result<Body> {
        let mut request = Request::builder().method(method).uri(path).header(header::HOST, &self.host);
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, token);
        }
        let request = match body {
            None => request.body(Body::empty())?,
            Some(Sent { kind, length, body }) => request
                .header(header::CONTENT_TYPE, kind)
                .header(header::CONTENT_LENGTH, length)
                .body(body)?,
        };
        self.sender.ready().await.context("the session hung up")?;
        let response = self.sender.send_request(request).await;
        // TLS 1.3 tells a client that its certificate is not taken only when it reads.
        let response = response.context(
            "the session hung up without an answer; if you have a client certificate, it may not take it: `glovebox doctor` says more",
        )?;
        let (status, body) = (response.status(), Body::new(response.into_body()));
        if status == StatusCode::OK { Ok(body) } else { Err(refused(status, &whole(body).await?)) }
    }

    /// What is at a path.
    pub(super) async fn get<T: DeserializeOwned>(
        &mut self,
        path: &str,
        patience: Duration,
    ) -> anyhow::Result<T> {
        let answer = timeout(patience, async { whole(self.send("GET", path, None).await?).await });
        let bytes = answer.await.context("the session does not answer")??;
        serde_json::from_slice(&bytes).context(
            "the session says what this version can't read; use the one that is installed in the cluster",
        )
    }

    /// What is at a path, as it comes.
    pub(super) async fn read(
        &mut self,
        path: &str,
    ) -> anyhow::Result<impl Stream<Item = anyhow::Result<Bytes>> + use<>> {
        let body = self.send("GET", path, None).await?;
        let broken = "the session's answer broke off: it is not whole";
        Ok(body.into_data_stream().map(move |piece| piece.context(broken)))
    }

    /// Hands what is at a path on to standard output, as it comes.
    pub(super) async fn hand_on(&mut self, path: &str) -> anyhow::Result<()> {
        let mut pieces = std::pin::pin!(self.read(path).await?);
        let mut out = tokio::io::stdout();
        while let Some(piece) = pieces.next().await {
            write(&mut out, &piece?).await?;
        }
        Ok(())
    }

    /// Puts what a file holds at a path.
    pub(super) async fn put(&mut self, path: &str, file: tokio::fs::File) -> anyhow::Result<()> {
        let length = file.metadata().await?.len();
        let body = Body::from_stream(ReaderStream::new(file.take(length)));
        let sent = Sent { kind: "application/octet-stream", length, body };
        whole(self.send("PUT", path, Some(sent)).await?).await.map(drop)
    }

    /// Where a sandbox stands.
    pub(super) async fn status(&mut self, namespace: &str, name: &str) -> anyhow::Result<SandboxStatus> {
        self.get(&place(namespace, name), ANSWERED).await
    }

    /// Waits until the session knows a sandbox as one that takes calls: it may learn of it a moment after everybody else.
    pub(super) async fn ready(
        &mut self,
        namespace: &str,
        name: &str,
        patience: Duration,
    ) -> anyhow::Result<()> {
        let path = format!("{}/wait?for=Ready&timeout={}", place(namespace, name), Span::from(patience));
        let status: SandboxStatus = self.get(&path, patience + ANSWERED).await?;
        if status.reached == Some(false) {
            let why = status.reason.unwrap_or_default();
            bail!("the sandbox is ready, and the session does not know it yet: {why}: {}", status.message);
        }
        Ok(())
    }

    /// Has a command run; what it says comes as it is said. Whoever drops the stream and this session hangs up.
    pub(super) async fn exec(
        &mut self,
        namespace: &str,
        name: &str,
        request: &ExecRequest,
    ) -> anyhow::Result<impl Stream<Item = anyhow::Result<Vec<Said>>>> {
        let path = format!("{}/exec", place(namespace, name));
        let body = serde_json::to_vec(request)?;
        let sent = Sent { kind: "application/json", length: body.len() as u64, body: body.into() };
        let body = self.send("POST", &path, Some(sent)).await?;
        let mut lines = Lines::default();
        Ok(body.into_data_stream().map(move |piece| lines.take(&piece.context(HUNG_UP)?)))
    }
}

/// What goes with a request.
struct Sent {
    kind: &'static str,
    length: u64,
    body: Body,
}

async fn reach(cluster: &Cluster, options: &SessionOptions) -> anyhow::Result<(Connection, Caller)> {
    let caller = Caller::of(&cluster.config, options).await?;
    let reached = timeout(REACHED, connect::connect(cluster, options, &caller)).await;
    let connection = reached.with_context(|| format!("the session did not answer within {REACHED:?}"))??;
    Ok((connection, caller))
}

/// A command that is spoken with while it runs.
pub(super) struct Talk {
    pub(super) socket: WebSocketStream<Box<dyn connect::Stream>>,
    /// What carries it, which must live as long.
    pub(super) forward: Option<Portforwarder>,
}

/// Has a command run that is spoken with. The session's last word is how it ended.
pub(super) async fn live(
    cluster: &Cluster,
    options: &SessionOptions,
    name: &str,
    request: &ExecRequest,
) -> anyhow::Result<Talk> {
    let (Connection { stream, host, forward }, caller) = reach(cluster, options).await?;
    let path = place(&cluster.namespace, name) + "/exec";
    let mut upgrade = format!("ws://{host}{path}").into_client_request()?;
    if let Some(token) = caller.token() {
        upgrade.headers_mut().insert(header::AUTHORIZATION, token.clone());
    }
    let opened =
        timeout(ANSWERED, client_async(upgrade, stream)).await.context("the session does not answer")?;
    let mut socket = match opened {
        Ok((socket, _)) => socket,
        Err(tungstenite::Error::Http(response)) => {
            let status = response.status();
            return Err(refused(status, response.body().as_deref().unwrap_or_default()));
        }
        Err(error) => return Err(anyhow::Error::new(error).context("the session does not speak WebSocket")),
    };
    socket.send(Message::text(serde_json::to_string(request)?)).await.context("the session hung up")?;
    Ok(Talk { socket, forward })
}

/// The session's reason in an error, if it refused.
pub(super) fn reason(error: &anyhow::Error) -> Option<&str> {
    error.downcast_ref().map(|Refused { problem }| problem.reason.as_str())
}

/// Where a sandbox is in the API.
pub(super) fn place(namespace: &str, name: &str) -> String {
    format!("/v1/namespaces/{namespace}/sandboxes/{name}")
}

async fn whole(body: Body) -> anyhow::Result<Bytes> {
    axum::body::to_bytes(body, MOST).await.context("the session's answer broke off, or is too long")
}

fn refused(status: StatusCode, bytes: &[u8]) -> anyhow::Error {
    let problem = serde_json::from_slice(bytes).map_or_else(
        |_| Problem {
            reason: status.as_u16().to_string(),
            message: "this is no answer of a session; is the address right?".into(),
        },
        |ErrorBody { error }| error,
    );
    let hint = match (status, problem.reason.as_str()) {
        (StatusCode::UNAUTHORIZED, _) => Some(
            "the session does not take who you are by this kubeconfig; if it wants tokens for an audience of its own, name one by --session-token-file",
        ),
        (_, "NotReady") => Some("`glovebox describe` says why"),
        _ => None,
    };
    let error = anyhow::Error::new(Refused { problem });
    match hint {
        Some(hint) => error.context(hint),
        None => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_in_the_sessions_words() {
        let told = |status: u16, body: &str| {
            format!("{:#}", refused(StatusCode::from_u16(status).unwrap(), body.as_bytes()))
        };
        let body = r#"{"error":{"reason":"Forbidden","message":"ada may not","field":"x"}}"#;
        assert_eq!(told(403, body), "the session refuses: ada may not (Forbidden)");
        assert!(
            told(401, r#"{"error":{"reason":"Unauthenticated","message":"m"}}"#)
                .contains("--session-token-file")
        );
        assert!(told(502, "<html>").contains("is the address right?"));
    }
}
