//! The process: two listeners, until it is told to stop; then nothing new, time for the calls that run, and an end.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use anyhow::Context as _;
use arc_swap::ArcSwap;
use kube::Client;
use tokio::{net::TcpListener, sync::Semaphore};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    certificate::Authority,
    clients,
    config::{Options, Timing},
    directory::Directory,
    key::{self, Key},
    listen::{self, Door},
    metrics::Metrics,
    renew,
    retries::Retries,
    reviews::Reviewer,
    routes::{self, App},
    runner::Runner,
    shares::Shares,
    watch,
};
use crate::{
    audit::Recorder,
    detect, kubernetes,
    telemetry::{
        self,
        http::{self, Health},
    },
    used,
};

/// How long calls have to tell that they were hung up.
const LAST_MOMENT: Duration = Duration::from_secs(1);

/// Runs until SIGTERM or SIGINT.
///
/// # Errors
/// When it can't start.
pub async fn run(options: Options) -> anyhow::Result<()> {
    let stop = CancellationToken::new();
    telemetry::stop_on_signal(stop.clone())?;
    // Before anything is waited for: a port that somebody else has is told at once.
    let listeners = Listeners::bind(&options).await?;
    let client = kubernetes::client().await?;
    let (directory, authority) = (Arc::default(), Arc::default());
    let recorder = Recorder::start(&options.audit, &client)?;
    let (metrics, timing) = (Arc::default(), Timing::default());
    let parts = Parts { client, directory, authority, metrics, timing, recorder: recorder.clone() };
    let Parts { client, directory, authority, metrics, .. } = &parts;
    tokio::spawn(watch::fill(client.clone(), directory.clone(), metrics.clone(), stop.clone()));
    if options.client_certificates {
        tokio::spawn(clients::follow(client.clone(), authority.clone(), metrics.clone(), stop.clone()));
    }
    let ended = serve(options, listeners, parts, stop).await;
    recorder.finish().await;
    ended
}

/// What the session is made of besides its options.
pub struct Parts {
    /// Says who somebody is and whether they may.
    pub client: Client,
    /// Which sandbox is where; whoever watches the cluster fills it.
    pub directory: Arc<Directory>,
    /// Who vouches for the certificates of callers; whoever watches the cluster tells it.
    pub authority: Arc<Authority>,
    /// Counters.
    pub metrics: Arc<Metrics>,
    /// How long things may take.
    pub timing: Timing,
    /// Where it is said what was done.
    pub recorder: Recorder,
}

/// Sockets that listen.
pub struct Listeners {
    api: TcpListener,
    admin: TcpListener,
}

/// Where they listen.
#[derive(Clone, Copy, Debug)]
pub struct Addresses {
    /// The API.
    pub api: SocketAddr,
    /// Health and metrics.
    pub admin: SocketAddr,
}

impl Listeners {
    /// Listens on both, or on none.
    ///
    /// # Errors
    /// Which address can't be listened on.
    pub async fn bind(options: &Options) -> anyhow::Result<Self> {
        Ok(Self {
            api: telemetry::listener("--listen", options.listen).await?,
            admin: telemetry::listener("--admin", options.admin).await?,
        })
    }

    /// Where they listen.
    ///
    /// # Errors
    /// When a socket can't say.
    pub fn addresses(&self) -> std::io::Result<Addresses> {
        Ok(Addresses { api: self.api.local_addr()?, admin: self.admin.local_addr()? })
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
    let timing = parts.timing;
    let key = Arc::new(Key::from_pem(&key::text(&options.signing_key)?).context("--signing-key")?);
    let files = renew::Files::of(&options, &parts.authority)?;
    let authority = options.client_certificates.then(|| parts.authority.clone());
    let tls = files
        .as_ref()
        .map(renew::Files::read)
        .transpose()?
        .map(|config| Arc::new(ArcSwap::from_pointee(config)));
    if tls.is_none() {
        tracing::warn!("--insecure-http: tokens can be read by whoever sees the network");
    }
    let hang_up = CancellationToken::new();
    let app = Arc::new(app(&options, parts, key.clone(), stop.clone(), hang_up.clone())?);
    let (tasks, places) = (app.tasks.clone(), Arc::new(Semaphore::new(options.max_connections as usize)));
    let (health, admin_stop) = (Health::default(), CancellationToken::new());
    let admin = spawn_admin(listeners.admin, &app, &places, options.max_connections, &health, &admin_stop);
    let door = Door { tls: tls.clone(), router: routes::router(&app), timing, stop: stop.clone() };
    tasks.spawn(listen::serve(listeners.api, door, places, app.metrics.clone(), tasks.clone()));
    let follow = async move {
        let certificate = async {
            if let Some((files, tls)) = files.zip(tls) {
                files.follow(timing.renew, &tls).await;
            }
        };
        tokio::join!(certificate, renew::follow_key(&options.signing_key, timing.renew, &key));
    };
    tokio::spawn(stop.clone().run_until_cancelled_owned(follow));
    let known = async {
        app.runner.directory.until(|| app.runner.directory.is_loaded().then_some(())).await;
        if let Some(authority) = authority {
            authority.asked().await;
        }
    };
    tokio::select! {
        () = stop.cancelled() => {}
        () = known => {
            health.ready(true);
            stop.cancelled().await;
        }
    }
    health.ready(false);
    drain(&app, &tasks, options.drain.duration(), &hang_up).await;
    admin_stop.cancel();
    let _ = admin.await;
    Ok(())
}

fn app(
    options: &Options,
    parts: Parts,
    key: Arc<Key>,
    stop: CancellationToken,
    hang_up: CancellationToken,
) -> anyhow::Result<App> {
    let Parts { client, directory, authority, metrics, timing, recorder } = parts;
    let reviewer =
        Reviewer::new(client.clone(), options.audiences.clone(), authority, &timing, metrics.clone());
    let runner = Runner {
        directory,
        key,
        metrics: metrics.clone(),
        timing,
        uses: Arc::default(),
        recorder: recorder.clone(),
        port: options.agent_port,
        hang_up,
    };
    Ok(App {
        client,
        reviewer,
        runner: Arc::new(runner),
        max_output: options.max_output.units().context("--max-output")?,
        max_transfer: options.max_transfer.units().context("--max-transfer")?,
        retries: Retries::new(timing.kept),
        calls: Shares::new(options.max_calls.into()),
        buffered: Shares::new(options.max_buffered.units().context("--max-buffered")?),
        // The other half of the connections is for calls.
        waits: Shares::new(u64::from(options.max_connections.div_ceil(2))),
        metrics,
        random: rustls::crypto::aws_lc_rs::default_provider().secure_random,
        tasks: TaskTracker::new(),
        recorder,
        stop,
    })
}

fn spawn_admin(
    listener: TcpListener,
    app: &Arc<App>,
    places: &Arc<Semaphore>,
    most: u32,
    health: &Health,
    stop: &CancellationToken,
) -> tokio::task::JoinHandle<()> {
    let (counted, places) = (app.clone(), places.clone());
    let render = move || {
        let connections = (most as usize).saturating_sub(places.available_permits());
        let runner = &counted.runner;
        runner.recorder.measured(counted.metrics.render(
            connections,
            counted.buffered.taken(),
            runner.directory.len(),
        ))
    };
    let uses = app.runner.uses.clone();
    let told = uses.clone();
    let signs = detect::routes(told.board.clone(), move |since| told.told(since), stop.clone());
    let routes = used::routes(move |uid, _| uses.used(uid)).merge(signs);
    let served = http::serve(listener, health.clone(), render, routes, stop.clone());
    tokio::spawn(async move {
        if let Err(error) = served.await {
            tracing::error!(%error, "health and metrics ended");
        }
    })
}

async fn drain(app: &App, tasks: &TaskTracker, patience: Duration, hang_up: &CancellationToken) {
    tasks.close();
    tracing::info!(calls = app.calls.taken(), "draining");
    if tokio::time::timeout(patience, tasks.wait()).await.is_ok() {
        return;
    }
    tracing::warn!(calls = app.calls.taken(), "hanging up on what did not end in time");
    hang_up.cancel();
    let _ = tokio::time::timeout(LAST_MOMENT, tasks.wait()).await;
}
