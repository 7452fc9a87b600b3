//! The process: opens the trail before it listens, and ends when it does not know what the disk holds.

use std::sync::Arc;

use anyhow::{Context as _, bail};
use arc_swap::ArcSwap;
use ed25519_dalek::{SigningKey, pkcs8::DecodePrivateKey as _};
use kube::Client;
use tokio::sync::Semaphore;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    config::Options,
    export::{self, Collector, Lag},
    routes::{self, App},
    store::Store,
};
use crate::{
    audit::{
        note::{Signer, is_name},
        sender::CONNECTION_AGE,
    },
    kubernetes,
    session::{
        Timing,
        certificate::Authority,
        clients,
        listen::{self, Door},
        metrics::Metrics,
        renew::Files,
        reviews::Reviewer,
    },
    telemetry::{
        self,
        http::{self, Health},
    },
};

/// Most connections of producers and readers.
const MOST_CONNECTIONS: usize = 1024;

/// Runs until SIGTERM or SIGINT.
///
/// # Errors
/// When it can't start, when the trail was altered, or when the disk fails.
pub async fn run(options: Options) -> anyhow::Result<()> {
    let stop = CancellationToken::new();
    telemetry::stop_on_signal(stop.clone())?;
    let signers = signers(&options)?;
    let keys = signers.iter().map(|signer| format!("{}\n", signer.verifier())).collect::<Vec<_>>().concat();
    let authority: Arc<Authority> = Arc::default();
    let clients = options.client_certificates.then(|| authority.clone());
    let files = Files::new(options.tls_cert.clone(), options.tls_key.clone(), clients);
    let tls = Arc::new(ArcSwap::from_pointee(files.read()?));
    let listener = telemetry::listener("--listen", options.listen).await?;
    let admin = telemetry::listener("--admin", options.admin).await?;
    let keep = options.keep.as_ref().map(crate::api::Quantity::units).transpose().context("--keep")?;
    let (store, mut failed) = Store::open(&options.data, &options.origin, signers, keep)?;
    tracing::info!(size = store.committed.borrow().size, "the trail is open");
    let client = kubernetes::client().await?;
    let (timing, metrics) = (Timing::default(), Arc::new(Metrics::default()));
    if options.client_certificates {
        let (client, authority) = (client.clone(), authority.clone());
        tokio::spawn(clients::follow(client, authority, metrics.clone(), stop.clone()));
    }
    let lags = hand_on(&options, &store)?;
    let committed = store.committed.clone();
    let app = Arc::new(app(&options, store, keys, &client, &authority, &metrics));
    let door = Door { tls: Some(tls.clone()), router: routes::router(&app), timing, stop: stop.clone() };
    let (tasks, health) = (TaskTracker::new(), Health::default());
    let places = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    tasks.spawn(listen::serve(listener, door, places, metrics, tasks.clone()));
    let render = move || figures(committed.borrow().size, &lags);
    tokio::spawn(http::serve(admin, health.clone(), render, axum::Router::new(), stop.clone()));
    tokio::spawn(async move { files.follow(timing.renew, &tls).await });
    health.ready(true);
    tokio::select! {
        () = stop.cancelled() => {}
        error = &mut failed => {
            stop.cancel();
            match error {
                Ok(error) => bail!(error),
                Err(_) => bail!("the writer ended"),
            }
        }
    }
    tasks.close();
    let _ = tokio::time::timeout(timing.guard, tasks.wait()).await;
    Ok(())
}

fn app(
    options: &Options,
    store: Store,
    keys: String,
    client: &Client,
    authority: &Arc<Authority>,
    metrics: &Arc<Metrics>,
) -> App {
    let reviewer = |audiences, timing: &Timing| {
        Reviewer::new(client.clone(), audiences, authority.clone(), timing, metrics.clone())
    };
    // While the API server is away, whoever produces records goes on to be known for as long as a connection of theirs lasts.
    let patient = Timing { believed: CONNECTION_AGE, ..Timing::default() };
    let producers = options.producers.iter().map(|producer| (producer.user.clone(), producer.role)).collect();
    App {
        producing: reviewer(vec![options.audience.clone()], &patient),
        reading: reviewer(Vec::new(), &Timing::default()),
        producers,
        keys,
        readers: routes::readers(),
        store,
    }
}

/// How long a copy waits that could not be made.
const AGAIN: std::time::Duration = std::time::Duration::from_secs(30);

/// Hands records on to the collectors, for as long as the process lives.
fn hand_on(options: &Options, store: &Store) -> anyhow::Result<Vec<Lag>> {
    let collectors = options.export.collectors()?;
    let kept = options.export.store()?;
    let lags = collectors.iter().map(Collector::lag).chain(kept.iter().map(export::Store::lag)).collect();
    if let Some(kept) = kept {
        let (directory, committed) = (store.directory.clone(), store.committed.clone());
        tokio::spawn(async move {
            while let Err(error) = kept.follow(directory.clone(), committed.clone()).await {
                tracing::error!(
                    error = format!("{error:#}"),
                    "the trail is not copied, and it is tried again"
                );
                tokio::time::sleep(AGAIN).await;
            }
        });
    }
    for collector in collectors {
        let (directory, committed) = (store.directory.clone(), store.committed.clone());
        tokio::spawn(async move {
            if let Err(error) = collector.follow(directory, committed).await {
                tracing::error!(error = format!("{error:#}"), "records are not handed on any more");
            }
        });
    }
    Ok(lags)
}

/// As OpenMetrics has it. Labels are names of ours.
fn figures(size: u64, lags: &[Lag]) -> String {
    let mut text = format!(
        "# HELP glovebox_audit_entries Entries of the trail.\n# TYPE glovebox_audit_entries gauge\nglovebox_audit_entries {size}\n"
    );
    text += "# HELP glovebox_audit_export_lag Entries that a collector has not taken.\n# TYPE glovebox_audit_export_lag gauge\n";
    for (collector, lag) in lags.iter().map(|lag| lag.read(size)) {
        text +=
            &["glovebox_audit_export_lag{collector=\"", collector, "\"} ", &lag.to_string(), "\n"].concat();
    }
    text + "# EOF\n"
}

fn signers(options: &Options) -> anyhow::Result<Vec<Signer>> {
    if !is_name(&options.origin) {
        bail!(
            "--origin: {:?} is no name: expected printable ASCII without spaces and plus signs",
            options.origin
        );
    }
    let read = |file: &std::path::PathBuf| {
        let text = std::fs::read_to_string(file)
            .with_context(|| format!("--signing-key: can't read {}", file.display()))?;
        // The parser's own words could repeat what it read.
        let key = SigningKey::from_pkcs8_pem(&text)
            .ok()
            .context("--signing-key: this is no Ed25519 key as PKCS#8 PEM; openssl genpkey -algorithm ed25519 makes one")?;
        Signer::new(&options.origin, key).context("--origin")
    };
    options.signing_keys.iter().map(read).collect()
}
