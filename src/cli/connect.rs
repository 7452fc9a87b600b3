//! The way to a session: straight to its address, or by a port-forward through the API server to one of its pods. TLS inside either.
//!
//! Must hand credentials to nobody whose certificate was not verified. Plain HTTP is spoken with this machine alone, and then
//! without a client certificate, which TLS alone can carry.

use std::{collections::BTreeMap, sync::Arc};

use anyhow::{Context as _, bail, ensure};
use axum::http::{Uri, uri::Scheme};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::{
    Api, ResourceExt,
    api::{ListParams, Portforwarder},
    core::Selector,
};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject as _},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use tokio_rustls::TlsConnector;

use super::{
    caller::Caller,
    cluster::{Cluster, explained},
    options::SessionOptions,
};
use crate::sandbox::names;

/// What is reached by a port-forward.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reached {
    /// In words.
    what: &'static str,
    /// Its Service, for which its certificate is.
    service: &'static str,
    /// Where the chart says whom to trust for it.
    authority: &'static str,
    /// The port of its pods.
    port: u16,
    /// Its pods' labels.
    labels: fn() -> BTreeMap<String, String>,
    /// What a person does to have it.
    enabled: &'static str,
}

/// The session.
pub(super) const SESSION: Reached = Reached {
    what: "session",
    service: "glovebox-session",
    authority: "glovebox-session-ca",
    port: 8444,
    labels: names::session_labels,
    enabled: "session.enabled=true",
};

/// The trail.
pub(super) const TRAIL: Reached = Reached {
    what: "audit trail",
    service: "glovebox-audit",
    authority: "glovebox-audit-ca",
    port: 8445,
    labels: names::audit_labels,
    enabled: "audit.enabled=true",
};

/// Bytes to and from the session.
pub(super) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// A connection.
pub(super) struct Connection {
    pub(super) stream: Box<dyn Stream>,
    /// The host that requests name.
    pub(super) host: String,
    /// What carries it, which must live as long.
    pub(super) forward: Option<Portforwarder>,
}

/// Connects as the options say.
pub(super) async fn connect(
    cluster: &Cluster,
    options: &SessionOptions,
    caller: &Caller,
) -> anyhow::Result<Connection> {
    match &options.session {
        Some(url) => straight(&Address::parse(url)?, options, caller).await,
        None => forwarded(cluster, &SESSION, options, caller).await,
    }
}

/// Where a session is.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Address {
    host: String,
    port: u16,
    tls: bool,
}

impl Address {
    fn parse(url: &str) -> anyhow::Result<Self> {
        let uri: Uri = url.parse().ok().context("--session: expected https://HOST or https://HOST:PORT")?;
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let bare = matches!(uri.path(), "" | "/")
            && uri.query().is_none()
            && uri.authority().is_none_or(|all| !all.as_str().contains('@'));
        ensure!(
            !host.is_empty() && bare,
            "--session: expected https://HOST or https://HOST:PORT, and nothing more"
        );
        let tls = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            Some(scheme) if *scheme == Scheme::HTTP => false,
            _ => bail!("--session: expected an address that begins with https://"),
        };
        let here = host == "localhost"
            || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
        ensure!(
            tls || here,
            "--session: without TLS whoever sees the network could read your token; http:// is for this machine alone"
        );
        Ok(Self { port: uri.port_u16().unwrap_or(if tls { 443 } else { 80 }), host, tls })
    }
}

async fn straight(
    address: &Address,
    options: &SessionOptions,
    caller: &Caller,
) -> anyhow::Result<Connection> {
    let Address { host, port, tls } = address;
    let tcp = TcpStream::connect((host.as_str(), *port))
        .await
        .with_context(|| format!("the session can't be reached at {host}:{port}"))?;
    // Small messages are all that is sent; a system that can't sends them a little later.
    let _ = tcp.set_nodelay(true);
    let stream: Box<dyn Stream> = if *tls {
        let roots = match &options.session_ca {
            Some(file) => read_roots(file)?,
            None => RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() },
        };
        let hint = "name what vouches for it by --session-ca; for a certificate that the chart made that is ca.crt of the ConfigMap glovebox-session-ca";
        Box::new(secured(tcp, host, roots, caller).await.context(hint)?)
    } else {
        ensure!(
            matches!(caller, Caller::Token(_)),
            "--session: a client certificate can be shown over TLS alone, and the address is http://; use https://, or a token"
        );
        Box::new(tcp)
    };
    Ok(Connection { stream, host: host.clone(), forward: None })
}

/// A connection through the API server.
pub(super) async fn forwarded(
    cluster: &Cluster,
    reached: &Reached,
    options: &SessionOptions,
    caller: &Caller,
) -> anyhow::Result<Connection> {
    let elsewhere = "for a session, its address can be named by --session, which needs no right to do that";
    let pod = pod(cluster, reached, options).await.context(elsewhere)?;
    let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
    let roots = match &options.session_ca {
        Some(file) => read_roots(file)?,
        None => published_roots(cluster, reached, &namespace).await?,
    };
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), &namespace);
    let mut forward = pods
        .portforward(&name, &[reached.port])
        .await
        .map_err(|error| explained(error, &format!("port-forward to pod {namespace}/{name}")))
        .context(elsewhere)?;
    let stream = forward.take_stream(reached.port).context("the port-forward has no stream; report this")?;
    let host = format!("{}.{namespace}.svc", reached.service);
    let stream = secured(stream, &host, roots, caller).await?;
    Ok(Connection { stream: Box::new(stream), host, forward: Some(forward) })
}

/// A pod of it that is ready.
async fn pod(cluster: &Cluster, reached: &Reached, options: &SessionOptions) -> anyhow::Result<Pod> {
    let pods: Api<Pod> = match &options.glovebox_namespace {
        Some(namespace) => Api::namespaced(cluster.client.clone(), namespace),
        None => Api::all(cluster.client.clone()),
    };
    let wanted = ListParams::default().labels_from(&Selector::from_iter((reached.labels)()));
    let found = pods.list(&wanted).await.map_err(|error| match error {
        error if options.glovebox_namespace.is_none() => {
            explained(error, &format!("looking for the pods of the {} in all namespaces", reached.what))
                .context("name Glovebox's namespace by --glovebox-namespace if you may see pods there alone")
        }
        error => explained(error, &format!("looking for the pods of the {}", reached.what)),
    })?;
    choose(reached, found.items)
}

/// The first that is ready. That two installations can't be told apart is an error, not a choice.
fn choose(reached: &Reached, pods: Vec<Pod>) -> anyhow::Result<Pod> {
    ensure!(
        !pods.is_empty(),
        "there is no {}: install the chart with {}, or name its namespace by --glovebox-namespace",
        reached.what,
        reached.enabled
    );
    let total = pods.len();
    let mut ready: Vec<Pod> = pods.into_iter().filter(is_ready).collect();
    ready.sort_by_key(ResourceExt::name_any);
    let mut namespaces: Vec<String> = ready.iter().filter_map(ResourceExt::namespace).collect();
    namespaces.dedup();
    ensure!(
        namespaces.len() <= 1,
        "there is a {} in several namespaces, {}: choose one by --glovebox-namespace",
        reached.what,
        namespaces.join(", ")
    );
    let none =
        || format!("none of the {}'s {total} pods is ready; `glovebox doctor` says more", reached.what);
    ready.into_iter().next().with_context(none)
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    pod.metadata.deletion_timestamp.is_none()
        && conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

async fn published_roots(
    cluster: &Cluster,
    reached: &Reached,
    namespace: &str,
) -> anyhow::Result<RootCertStore> {
    let authority = reached.authority;
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), namespace);
    let map = maps
        .get(authority)
        .await
        .map_err(|error| explained(error, &format!("ConfigMap {namespace}/{authority}")))
        .context("name what vouches for the session by --session-ca")?;
    let text = map.data.as_ref().and_then(|data| data.get("ca.crt")).with_context(|| format!("ConfigMap {namespace}/{authority} has no ca.crt; name what vouches for the session by --session-ca"))?;
    roots(text.as_bytes()).with_context(|| format!("ConfigMap {namespace}/{authority}"))
}

fn read_roots(file: &std::path::Path) -> anyhow::Result<RootCertStore> {
    let text = std::fs::read(file).with_context(|| format!("--session-ca: can't read {}", file.display()))?;
    roots(&text).context("--session-ca")
}

fn roots(pem: &[u8]) -> anyhow::Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        roots.add(certificate.ok().context("this is no PEM")?).context("a certificate can't be used")?;
    }
    ensure!(!roots.is_empty(), "there is no certificate as PEM in it");
    Ok(roots)
}

/// TLS, by which the session is known. The caller's certificate is shown where there is no token.
async fn secured<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    host: &str,
    roots: RootCertStore,
    caller: &Caller,
) -> anyhow::Result<tokio_rustls::client::TlsStream<S>> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots);
    let mut config = match caller {
        Caller::Token(_) => builder.with_no_client_auth(),
        Caller::Certificate(resolver) => builder.with_client_cert_resolver(resolver.clone()),
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let name = ServerName::try_from(host.to_owned()).with_context(|| format!("{host} is no host name"))?;
    let connected = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
    connected.with_context(|| format!("no TLS with the session as {host}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn addresses_are_read_strictly() {
        let at = |host: &str, port, tls| Address { host: host.into(), port, tls };
        for (url, address) in [
            ("https://session.example", at("session.example", 443, true)),
            ("https://session.example:8443/", at("session.example", 8443, true)),
            ("https://[::1]:1", at("::1", 1, true)),
            ("http://localhost:8080", at("localhost", 8080, false)),
            ("http://127.0.0.1", at("127.0.0.1", 80, false)),
        ] {
            assert_eq!(Address::parse(url).unwrap(), address, "{url}");
        }
        for url in [
            "",
            "session.example",
            "ftp://session.example",
            "http://session.example",
            "http://10.0.0.1",
            "https://session.example/v1",
            "https://session.example?x=1",
            "https://ada@session.example",
            "https://",
            "http://localhost.example",
        ] {
            assert!(Address::parse(url).is_err(), "{url}");
        }
    }

    fn pod(namespace: &str, name: &str, ready: &str) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": namespace},
            "status": {"conditions": [{"type": "Ready", "status": ready}]},
        }))
        .unwrap()
    }

    #[test]
    fn a_pod_that_is_ready_is_chosen() {
        let chosen =
            choose(&SESSION, vec![pod("g", "c", "True"), pod("g", "a", "False"), pod("g", "b", "True")])
                .unwrap();
        assert_eq!(chosen.name_any(), "b");
        let refused = |pods| choose(&SESSION, pods).unwrap_err().to_string();
        assert!(refused(vec![]).contains("there is no session"));
        assert!(refused(vec![pod("g", "a", "False")]).contains("none of the session's 1 pods"));
        assert!(refused(vec![pod("g", "a", "True"), pod("h", "b", "True")]).contains("g, h"));
    }

    #[test]
    fn only_certificates_vouch() {
        let pem = rcgen::generate_simple_self_signed(["s".to_owned()]).unwrap().cert.pem();
        assert_eq!(roots(pem.as_bytes()).unwrap().len(), 1);
        assert!(roots(b"").is_err() && roots(b"nothing").is_err());
    }
}
