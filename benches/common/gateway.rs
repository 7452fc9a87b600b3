//! The product's gateway on loopback, with a directory that the benchmark fills, and the name server outside.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
};

use anyhow::{Context as _, Result};
use glovebox::{
    api::{ClassEgress, EgressRule},
    audit::{AuditOptions, Recorder},
    gateway::{
        Listeners, Options, Parts,
        admit::LogAlarms,
        broker::{NoSource, ProviderOptions},
        clock::Clock,
        config::{Timing, Transport, Upstream},
        directory::Directory,
        limit::Rate,
        serve,
        trust::Trust,
    },
    policy::{ClusterRanges, Policy, Source},
    telemetry::LogFormat,
};
use hickory_proto::{
    op::{Message, Metadata, OpCode},
    rr::{RData, Record},
};
use tokio::net::UdpSocket;
use tokio_util::sync::CancellationToken;

pub(crate) fn local(port: u16) -> SocketAddr {
    ([127, 0, 0, 1], port).into()
}

/// A rate that nothing here comes near.
pub(crate) fn plenty() -> Rate {
    Rate::new(10_000_000, 10_000_000)
}

/// An authority for every name.
pub(crate) async fn authority(socket: UdpSocket) -> Result<()> {
    let mut buffer = [0; 4096];
    loop {
        let (length, peer) = socket.recv_from(&mut buffer).await?;
        let query = Message::from_vec(&buffer[..length])?;
        let mut reply = Message::response(query.metadata.id, OpCode::Query);
        reply.metadata = Metadata::response_from_request(&query.metadata);
        let question = query.queries.first().context("no question")?.clone();
        let address = RData::A(Ipv4Addr::LOCALHOST.into());
        reply.add_answer(Record::from_rdata(question.name.clone(), 3600, address)).add_query(question);
        socket.send_to(&reply.to_vec()?, peer).await?;
    }
}

/// Rules as a user writes them, compiled.
pub(crate) fn compile(rules: &[EgressRule]) -> Result<Arc<Policy>> {
    let sources = [Source { policy: None, rules }];
    let compiled = Policy::compile(&sources, &ClassEgress::default(), &ClusterRanges::default());
    Ok(Arc::new(compiled.map_err(|rejection| anyhow::anyhow!("{rejection}"))?))
}

/// Every entry at a free port.
pub(crate) fn options(dns: u16, tls_port: u16, max_connections: Option<u32>) -> Options {
    let any = local(0);
    Options {
        dns: any,
        proxy: any,
        tls: any,
        http: any,
        tripwire: any,
        admin: any,
        tls_port,
        http_port: 80,
        service: "glovebox-gateway".into(),
        namespace: "glovebox-system".into(),
        pod_name: None,
        own_ips: vec![],
        upstreams: vec![Upstream { address: local(dns), transport: Transport::UdpAndTcp }],
        audit: AuditOptions::default(),
        providers: ProviderOptions::default(),
        cluster_cidrs: vec![],
        drain_seconds: 0,
        max_connections,
        ca_cert: None,
        ca_key: None,
        extra_roots: None,
        log_format: LogFormat::Human,
    }
}

/// Serves whom the directory knows, for ever. Names may lead to this machine.
pub(crate) async fn run(
    options: Options,
    listeners: Listeners,
    directory: Arc<Directory>,
    clock: Clock,
    recorder: Recorder,
) -> Result<()> {
    let parts = Parts {
        here: [10, 96, 0, 9].into(),
        metrics: Arc::default(),
        directory,
        checker: Arc::new(|_, address| Ok(address)),
        recorder,
        secrets: Arc::new(NoSource),
        alarms: Arc::new(LogAlarms),
        trust: Trust::default(),
        ca: None,
        timing: Timing::default(),
        clock,
    };
    serve(options, listeners, parts, CancellationToken::new()).await
}
