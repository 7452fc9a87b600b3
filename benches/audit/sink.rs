//! A server that takes all records and keeps none, and a gateway that records to it.

use std::{convert::Infallible, path::Path, sync::Arc};

use anyhow::{Context as _, Result};
use axum::body::Body;
use glovebox::audit::{AuditOptions, Recorder};
use hyper::{Request, Response, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use kube::{Client, Config};
use tokio::net::TcpListener;
use tokio_rustls::{
    TlsAcceptor,
    rustls::{ServerConfig, crypto::aws_lc_rs, pki_types::PrivatePkcs8KeyDer},
};

use super::{process::say, roles};

const AUTHORITY: &str = "ca.crt";
const TOKEN: &str = "token";

fn one_thread<F: Future<Output = Result<()>>>(work: F) -> Result<()> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}

/// Takes all; what vouches for it is left in the folder.
pub(crate) fn serve(folder: &str) -> Result<()> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    std::fs::write(Path::new(folder).join(AUTHORITY), made.cert.pem())?;
    std::fs::write(Path::new(folder).join(TOKEN), "token")?;
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key.into())?;
    let acceptor = TlsAcceptor::from(Arc::new(config));
    one_thread(async move {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        say(listener.local_addr()?.port());
        loop {
            let (client, _) = listener.accept().await?;
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(client) = acceptor.accept(client).await else { return };
                let taken = http1::Builder::new().serve_connection(TokioIo::new(client), service_fn(take));
                let _ = taken.await;
            });
        }
    })
}

async fn take(request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
    let _ = axum::body::to_bytes(Body::new(request.into_body()), usize::MAX).await;
    Ok(Response::new(Body::from("{}")))
}

/// The gateway of the other benchmark, recording by the product's own sender.
pub(crate) fn recorded(sink: &str, folder: &str, backend: &str, dns: &str) -> Result<()> {
    one_thread(async move {
        let file = |name: &str| Some(Path::new(folder).join(name));
        let options = AuditOptions {
            audit: Some(format!("localhost:{sink}")),
            audit_ca: file(AUTHORITY),
            audit_token: file(TOKEN),
            audit_fail_closed: false,
        };
        // Asked for nothing: where the trail is, is said.
        let client = Client::try_from(Config::new("http://127.0.0.1:1".parse()?)).context("a client")?;
        let recorder = Recorder::start(&options, &client)?;
        roles::gateway(backend.parse()?, dns.parse()?, recorder).await
    })
}
