//! The process: every listener, until it is told to stop; then no new connection, time for the open ones, and an end.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::Path,
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use anyhow::Context as _;
use arc_swap::ArcSwapOption;
use ipnet::IpNet;
use kube::Api;
use tokio::net::{TcpListener, UdpSocket};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    admit::{Alarms, Gateway, LogAlarms},
    broker::{Kubernetes, NoSource, Providers, Source},
    ca::Ca,
    clock::Clock,
    config::{Options, Timing},
    directory::Directory,
    flow::Cause,
    limit::{Rate, Shared},
    listen,
    metrics::Metrics,
    name_server,
    opened::Opener,
    proxy, renew,
    resolve::{Checker, Resolver, checker},
    room::room,
    surroundings, tcp, tell, tls, tripwire,
    trust::Trust,
    watch, web,
};
use crate::{
    audit::Recorder,
    detect, kubernetes,
    policy::ClusterRanges,
    telemetry::{
        self,
        http::{self, Health},
    },
    used,
};

/// How often it is looked whether a rule has ended.
const EXPIRY: Duration = Duration::from_millis(250);
/// How long flows have to notice that they are ended.
const LAST_MOMENT: Duration = Duration::from_secs(1);
/// Most tasks that read the DNS socket. More than the machine has cores only wake each other.
const DNS_READERS: usize = 4;

/// Runs until SIGTERM or SIGINT.
///
/// # Errors
/// When it can't start.
pub async fn run(mut options: Options) -> anyhow::Result<()> {
    let stop = CancellationToken::new();
    telemetry::stop_on_signal(stop.clone())?;
    // Before anything is waited for: a port that somebody else has is told at once.
    let listeners = Listeners::bind(&options).await?;
    if options.upstreams.is_empty() {
        options.upstreams = surroundings::name_servers(Path::new("/etc/resolv.conf"))?;
    }
    let client = kubernetes::client().await?;
    let services = Api::namespaced(client.clone(), &options.namespace);
    let here = surroundings::address(&services, &options.service).await?;
    let own = options.own_ips.iter().copied().chain([here.into()]).collect();
    let ca = renew::Files::of(&options).map(|files| files.authority()).transpose()?;
    let recorder = Recorder::start(&options.audit, &client)?;
    let providers = Providers::new(&options.providers)?;
    let secrets: Arc<dyn Source> = if options.providers.broker_credentials {
        Arc::new(Kubernetes::new(client.clone(), providers))
    } else {
        Arc::new(NoSource)
    };
    let parts = Parts {
        recorder: recorder.clone(),
        secrets,
        here,
        directory: Arc::default(),
        checker: checker(own),
        alarms: Arc::new(LogAlarms),
        metrics: Arc::default(),
        trust: Trust::default(),
        ca,
        timing: Timing::default(),
        clock: Clock::default(),
    };
    let cluster =
        ClusterRanges::new(options.cluster_cidrs.iter().copied().chain([IpNet::from(IpAddr::from(here))]));
    let Parts { directory, metrics, clock, .. } = &parts;
    let watched = watch::Watched { client: client.clone(), namespace: options.namespace.clone() };
    let filled = watch::fill(watched, directory.clone(), *clock, cluster, metrics.clone(), stop.clone());
    tokio::spawn(filled);
    let told =
        tell::tell(client, options.pod_name.clone(), directory.clone(), recorder.clone(), stop.clone());
    tokio::spawn(told);
    let moved = surroundings::guard(services, options.service.clone(), here, directory.clone());
    let ended = tokio::select! {
        served = serve(options, listeners, parts, stop) => served,
        moved = moved => moved,
    };
    recorder.finish().await;
    ended
}

/// What the gateway is made of besides its options.
pub struct Parts {
    /// The address that DNS gives for every allowed name.
    pub here: Ipv4Addr,
    /// Counters.
    pub metrics: Arc<Metrics>,
    /// Who is which address; whoever watches the cluster fills it.
    pub directory: Arc<Directory>,
    /// Says whether an answer may be dialled.
    pub checker: Checker,
    /// Told of what is severe.
    pub alarms: Arc<dyn Alarms>,
    /// Whom it trusts outside, besides what the options add.
    pub trust: Trust,
    /// The installation's authority, for rules that have requests looked at.
    pub ca: Option<Ca>,
    /// How long things may take.
    pub timing: Timing,
    /// Time, the same as the directory's sandboxes have.
    pub clock: Clock,
    /// Where it is said what was done.
    pub recorder: Recorder,
    /// Whoever has the secrets that are added to requests.
    pub secrets: Arc<dyn Source>,
}

/// Sockets that listen.
pub struct Listeners {
    dns_udp: UdpSocket,
    dns_tcp: TcpListener,
    proxy: TcpListener,
    tls: TcpListener,
    http: TcpListener,
    tripwire: TcpListener,
    admin: TcpListener,
}

/// Where they listen.
#[derive(Clone, Copy, Debug)]
pub struct Addresses {
    /// DNS by UDP.
    pub dns_udp: SocketAddr,
    /// DNS by TCP.
    pub dns_tcp: SocketAddr,
    /// The proxy.
    pub proxy: SocketAddr,
    /// Transparent TLS.
    pub tls: SocketAddr,
    /// Transparent HTTP.
    pub http: SocketAddr,
    /// The tripwire.
    pub tripwire: SocketAddr,
    /// Health and metrics.
    pub admin: SocketAddr,
}

impl Listeners {
    /// Listens on all of them, or on none.
    ///
    /// # Errors
    /// Which address can't be listened on.
    pub async fn bind(options: &Options) -> anyhow::Result<Self> {
        let udp = UdpSocket::bind(options.dns);
        let dns_udp = udp.await.with_context(|| format!("--dns: can't listen on {} by UDP", options.dns))?;
        let entry = |flag: &str, address| {
            listen::bind(address).with_context(|| format!("{flag}: can't listen on {address}"))
        };
        Ok(Self {
            dns_udp,
            dns_tcp: entry("--dns", options.dns)?,
            proxy: entry("--proxy", options.proxy)?,
            tls: entry("--tls", options.tls)?,
            http: entry("--http", options.http)?,
            tripwire: telemetry::listener("--tripwire", options.tripwire).await?,
            admin: telemetry::listener("--admin", options.admin).await?,
        })
    }

    /// Where they listen.
    ///
    /// # Errors
    /// When a socket can't say.
    pub fn addresses(&self) -> std::io::Result<Addresses> {
        Ok(Addresses {
            dns_udp: self.dns_udp.local_addr()?,
            dns_tcp: self.dns_tcp.local_addr()?,
            proxy: self.proxy.local_addr()?,
            tls: self.tls.local_addr()?,
            http: self.http.local_addr()?,
            tripwire: self.tripwire.local_addr()?,
            admin: self.admin.local_addr()?,
        })
    }
}

/// Serves until `stop`, then drains.
///
/// # Errors
/// When it can't start.
pub async fn serve(
    options: Options,
    listeners: Listeners,
    parts: Parts,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let Parts {
        here,
        metrics,
        directory,
        checker,
        alarms,
        trust: base,
        ca,
        timing,
        clock,
        recorder,
        secrets,
    } = parts;
    let trust = renew::trust(&base, &options)?;
    let resolver = Resolver::new(&options.upstreams, timing.resolve, checker, &trust, metrics.clone())
        .context("--upstream: can't ask these DNS servers")?;
    let opener = ca.map(|ca| Opener::new(ca, &trust)).transpose()?;
    let room = room(options.max_connections);
    tracing::info!(connections = room.connections, pipes = room.pipes, "room");
    let gateway = Arc::new(Gateway {
        directory,
        resolver,
        metrics,
        opener: ArcSwapOption::from(opener.map(Arc::new)),
        alarms,
        timing,
        clock,
        room,
        connections: Arc::default(),
        pipes: Arc::default(),
        turned_away: Arc::default(),
        recorder,
        secrets,
        numbers: AtomicU64::new(0),
    });
    let health = Health::default();
    let (tasks, admin_stop) = (TaskTracker::new(), CancellationToken::new());
    let admin = spawn_admin(listeners.admin, &gateway, &health, &admin_stop);
    tokio::spawn(expire(gateway.clone(), health.clone(), stop.clone()));
    if let Some(files) = renew::Files::of(&options) {
        tokio::spawn(renew::follow(files, base, gateway.clone(), stop.clone()));
    }
    spawn_dns(listeners.dns_udp, listeners.dns_tcp, here, &gateway, &stop, &tasks);
    let named = tcp::serve(gateway.clone(), options.tls.ip(), stop.clone(), tasks.clone());
    tasks.spawn(named);
    let loud = Arc::new(Shared::new(Some(Rate::new(1, 10)), gateway.clock.now()));
    let (tls_port, http_port) = (options.tls_port, options.http_port);
    let entry = Entries { gateway: &gateway, stop: &stop, tasks: &tasks };
    entry.spawn(listeners.proxy, proxy::serve);
    entry.spawn(listeners.tls, move |gateway, client, source| tls::serve(gateway, client, source, tls_port));
    entry
        .spawn(listeners.http, move |gateway, client, source| web::serve(gateway, client, source, http_port));
    entry.spawn(listeners.tripwire, move |gateway, client, source| {
        tripwire::serve(gateway, client, source, loud.clone())
    });
    stop.cancelled().await;
    health.ready(false);
    drain(&gateway, &tasks, Duration::from_secs(options.drain_seconds.into())).await;
    admin_stop.cancel();
    let _ = admin.await;
    Ok(())
}

struct Entries<'a> {
    gateway: &'a Arc<Gateway>,
    stop: &'a CancellationToken,
    tasks: &'a TaskTracker,
}

impl Entries<'_> {
    fn spawn<H, F>(&self, listener: TcpListener, handle: H)
    where
        H: Fn(Arc<Gateway>, tokio::net::TcpStream, std::net::IpAddr) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let (gateway, stop, tasks) = (self.gateway.clone(), self.stop.clone(), self.tasks.clone());
        self.tasks.spawn(listen::serve(listener, gateway, stop, tasks, handle));
    }
}

fn spawn_admin(
    listener: TcpListener,
    gateway: &Arc<Gateway>,
    health: &Health,
    stop: &CancellationToken,
) -> tokio::task::JoinHandle<()> {
    let counted = gateway.clone();
    let render = move || {
        let (connections, pipes) = (counted.connections.now(), counted.pipes.now());
        counted.recorder.measured(counted.metrics.render(&counted.directory, connections, pipes))
    };
    let asked = gateway.clone();
    let told = gateway.directory.clone();
    let signs = detect::routes(told.board.clone(), move |since| told.told(since), stop.clone());
    let routes = used::routes(move |uid, address| asked.used(uid, address)).merge(signs);
    let served = http::serve(listener, health.clone(), render, routes, stop.clone());
    tokio::spawn(async move {
        if let Err(error) = served.await {
            tracing::error!(%error, "health and metrics ended");
        }
    })
}

fn spawn_dns(
    udp: UdpSocket,
    tcp: TcpListener,
    here: Ipv4Addr,
    gateway: &Arc<Gateway>,
    stop: &CancellationToken,
    tasks: &TaskTracker,
) {
    let udp = Arc::new(udp);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    for _ in 0..cores.min(DNS_READERS) {
        let (gateway, stop) = (gateway.clone(), stop.clone());
        tasks.spawn(name_server::udp(gateway, udp.clone(), here, stop, tasks.clone()));
    }
    Entries { gateway, stop, tasks }
        .spawn(tcp, move |gateway, client, source| name_server::tcp(gateway, client, source, here));
}

/// Ends what has expired; says that it is ready once it knows who is who.
async fn expire(gateway: Arc<Gateway>, health: Health, stop: CancellationToken) {
    let mut every = tokio::time::interval(EXPIRY);
    every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut ready = false;
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            _ = every.tick() => {}
        }
        // A port that is assigned while it is ready takes a moment; one that was assigned before must not refuse anybody.
        ready |= gateway.directory.is_loaded() && gateway.directory.is_listening();
        health.ready(ready);
        gateway.directory.expire(Clock::wall());
    }
}

async fn drain(gateway: &Gateway, tasks: &TaskTracker, patience: Duration) {
    tasks.close();
    tracing::info!(flows = gateway.directory.open_flows(), "draining");
    if tokio::time::timeout(patience, tasks.wait()).await.is_ok() {
        return;
    }
    tracing::warn!(flows = gateway.directory.open_flows(), "closing what did not end in time");
    for tenant in gateway.directory.tenants() {
        tenant.end(Cause::Drained);
    }
    // What has no flow, such as a head that never came, ends with the process.
    let _ = tokio::time::timeout(LAST_MOMENT, tasks.wait()).await;
}
