//! Requests to the session over one connection.

use std::time::Duration;

use anyhow::{Context as _, bail};
use axum::{
    body::{Body, Bytes},
    http::{HeaderValue, Request, Response, StatusCode, header},
};
use futures::{Stream, StreamExt as _};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use kube::api::Portforwarder;
use serde::{Deserialize, de::DeserializeOwned};
use tokio::time::timeout;

use super::{
    caller::Caller,
    cluster::Cluster,
    connect::{self, Connection},
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
const ANSWERED: Duration = Duration::from_secs(30);
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
        let caller = Caller::of(&cluster.config, options).await?;
        let reached = timeout(REACHED, connect::connect(cluster, options, &caller)).await;
        let connection =
            reached.with_context(|| format!("the session did not answer within {REACHED:?}"))??;
        Self::over(connection, &caller).await
    }

    async fn over(connection: Connection, caller: &Caller) -> anyhow::Result<Self> {
        let Connection { stream, host, forward } = connection;
        let (sender, driver) =
            http1::handshake(TokioIo::new(stream)).await.context("the session does not speak HTTP")?;
        // An error of the connection is an error of the request that it carries.
        tokio::spawn(driver);
        let token = match caller {
            Caller::Token(token) => Some(token.clone()),
            Caller::Certificate(_) => None,
        };
        Ok(Self { sender, host, token, _forward: forward })
    }

    async fn send(
        &mut self,
        method: &str,
        path: &str,
        body: Option<Vec<u8>>,
    ) -> anyhow::Result<Response<Body>> {
        let mut request = Request::builder().method(method).uri(path).header(header::HOST, &self.host);
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, token);
        }
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        let request = request.body(Body::from(body.unwrap_or_default()))?;
        self.sender.ready().await.context("the session hung up")?;
        let response = self.sender.send_request(request).await;
        // TLS 1.3 tells a client that its certificate is not taken only when it reads.
        let response = response.context(
            "the session hung up without an answer; if you have a client certificate, it may not take it: `glovebox doctor` says more",
        )?;
        Ok(response.map(Body::new))
    }

    /// What is at a path.
    pub(super) async fn get<T: DeserializeOwned>(
        &mut self,
        path: &str,
        patience: Duration,
    ) -> anyhow::Result<T> {
        let answer = timeout(patience, async {
            let response = self.send("GET", path, None).await?;
            let status = response.status();
            Ok::<_, anyhow::Error>((status, whole(response.into_body()).await?))
        });
        let (status, bytes) = answer.await.context("the session does not answer")??;
        if status != StatusCode::OK {
            return Err(refused(status, &bytes));
        }
        serde_json::from_slice(&bytes).context(
            "the session says what this version can't read; use the one that is installed in the cluster",
        )
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
        let response = self.send("POST", &path, Some(serde_json::to_vec(request)?)).await?;
        let status = response.status();
        if status != StatusCode::OK {
            return Err(refused(status, &whole(response.into_body()).await?));
        }
        let mut lines = Lines::default();
        Ok(response.into_body().into_data_stream().map(move |piece| {
            let piece = piece.context(
                "the session hung up before the command had ended; it was killed, or will be soon",
            )?;
            lines.take(&piece)
        }))
    }
}

fn place(namespace: &str, name: &str) -> String {
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
