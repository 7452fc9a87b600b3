//! One request to somebody whom the installation names, over a connection of its own: such requests are few, and nothing that hangs
//! outlives its time.

use std::{path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context as _, bail, ensure};
use axum::{
    body::{Body, Bytes},
    http::{HeaderValue, Request, StatusCode, Uri, header, request::Builder, uri::Scheme},
};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::Service;
use kube::{Api, Client};
use rustls::pki_types::ServerName;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::TlsConnector;

use crate::trust::Trust;

/// How long a request may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// Bytes a second that a long body is given time for.
const SLOWEST: u64 = 128 * 1024;
/// How much of an answer is read.
const MOST_ANSWER: usize = 64 * 1024;

/// Somebody who takes requests.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    url: Uri,
    host: String,
    port: u16,
    tls: bool,
    token: Option<PathBuf>,
    ca: Option<PathBuf>,
}

/// What was answered.
pub(crate) struct Said {
    /// The status.
    pub(crate) status: StatusCode,
    /// As much of the body as is read; empty if that is not all.
    pub(crate) body: Bytes,
}

impl Target {
    /// At this URL. The token's file, and that of whom to trust, are read again for each request.
    ///
    /// # Errors
    /// What is wrong with any of the three.
    pub(crate) fn new(url: Uri, token: Option<PathBuf>, ca: Option<PathBuf>) -> anyhow::Result<Self> {
        let tls = match url.scheme() {
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            Some(scheme) if *scheme == Scheme::HTTP => false,
            _ => bail!("expected a URL that begins with https:// or http://"),
        };
        let host = url.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        ensure!(!host.is_empty(), "the URL has no host");
        ensure!(
            url.authority().is_none_or(|all| !all.as_str().contains('@')),
            "a password in a URL is in every listing of processes: name a token's file"
        );
        ensure!(
            tls || token.is_none(),
            "without TLS whoever sees the network could read the token; use https://"
        );
        let port = url.port_u16().unwrap_or(if tls { 443 } else { 80 });
        let target = Self { url, host, port, tls, token, ca };
        target.trust()?;
        target.authorization()?;
        Ok(target)
    }

    fn trust(&self) -> anyhow::Result<Trust> {
        let Some(file) = &self.ca else { return Ok(Trust::default()) };
        let text = std::fs::read_to_string(file).with_context(|| format!("can't read {}", file.display()))?;
        Trust::alone(&text).with_context(|| file.display().to_string())
    }

    fn authorization(&self) -> anyhow::Result<Option<HeaderValue>> {
        let Some(file) = &self.token else { return Ok(None) };
        let text = std::fs::read_to_string(file).with_context(|| format!("can't read {}", file.display()))?;
        let value = HeaderValue::try_from(format!("Bearer {}", text.trim()));
        let mut value = value.ok().with_context(|| format!("{} has no token", file.display()))?;
        value.set_sensitive(true);
        Ok(Some(value))
    }

    /// Sends JSON to the URL. Where there is a client, the host of a Service is asked of the API server.
    ///
    /// # Errors
    /// When there was no answer in time.
    pub(crate) async fn post(&self, services: Option<&Client>, body: Bytes) -> anyhow::Result<Said> {
        let path = self.url.path_and_query().map_or("/", |path| path.as_str());
        let mut request = Request::post(path).header(header::CONTENT_TYPE, "application/json");
        if let Some(token) = self.authorization()? {
            request = request.header(header::AUTHORIZATION, token);
        }
        self.send(services, request, body).await
    }

    /// Sends a request whose target is a path.
    ///
    /// # Errors
    /// As [`Self::post`].
    pub(crate) async fn send(
        &self,
        services: Option<&Client>,
        request: Builder,
        body: Bytes,
    ) -> anyhow::Result<Said> {
        let authority = self.url.authority().map_or(self.host.as_str(), |authority| authority.as_str());
        let request = request.header(header::HOST, authority).header(header::CONNECTION, "close");
        let length = body.len() as u64;
        let request = request.body(Body::from(body))?;
        let sent = async {
            let address = match services {
                Some(client) => address(client, &self.host).await?,
                None => self.host.clone(),
            };
            let tcp = TcpStream::connect((address.as_str(), self.port)).await.context("connect")?;
            if !self.tls {
                return exchange(tcp, request).await;
            }
            let config = self.trust()?.client(&[])?;
            let name = ServerName::try_from(self.host.clone()).context("the host is no name")?;
            let tls = TlsConnector::from(Arc::new(config)).connect(name, tcp).await.context("TLS")?;
            exchange(tls, request).await
        };
        // At the least of what a link should carry.
        let patience = PATIENCE + Duration::from_secs(length / SLOWEST);
        timeout(patience, sent).await.context("no answer in time")?
    }
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Body>,
) -> anyhow::Result<Said> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let answer = sender.send_request(request).await?;
    let status = answer.status();
    let body = axum::body::to_bytes(Body::new(answer.into_body()), MOST_ANSWER).await.unwrap_or_default();
    Ok(Said { status, body })
}

/// The address of a Service by its name in the cluster, NAME.NAMESPACE.svc, or the host as it is: not every role asks the cluster's name
/// servers.
///
/// # Errors
/// When there is no such Service, or it has no address of its own.
pub(crate) async fn address(client: &Client, host: &str) -> anyhow::Result<String> {
    let parts: Vec<&str> = host.split('.').collect();
    let [name, namespace, "svc"] = parts.as_slice() else { return Ok(host.to_owned()) };
    let services: Api<Service> = Api::namespaced(client.clone(), namespace);
    let service = services.get(name).await.with_context(|| format!("Service {namespace}/{name}"))?;
    let address = service.spec.and_then(|spec| spec.cluster_ip).filter(|address| address != "None");
    address.with_context(|| format!("Service {namespace}/{name} has no address of its own"))
}
