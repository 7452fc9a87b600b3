//! `audit`: what was recorded, and whether it is as it was written.

mod copy;
mod query;
mod show;
mod verify;

use std::path::PathBuf;

use clap::Subcommand;

use super::{
    cluster::Cluster,
    fault::Outcome,
    options::{ClusterOptions, SessionOptions},
    session::Session,
};
use crate::{audit::serve, telemetry};

/// What a person does with the trail.
#[derive(Debug, Subcommand)]
#[expect(missing_docs, reason = "what each does stands at its options, where `--help` has it from")]
pub enum Command {
    Query(query::Options),
    Tail(query::Tail),
    Verify(verify::Options),
    Export(copy::Options),
    Prove(copy::Prove),
    // What runs in the cluster comes after what a person runs.
    #[command(display_order = 100)]
    Serve(Box<serve::Options>),
}

/// Carries it out.
pub(super) async fn carry_out(command: Command) -> Outcome {
    match command {
        Command::Query(options) => Box::pin(query::query(options)).await,
        Command::Tail(options) => Box::pin(query::tail(options)).await,
        Command::Verify(options) => Box::pin(verify::verify(options)).await,
        Command::Export(options) => Box::pin(copy::export(options)).await,
        Command::Prove(options) => Box::pin(copy::prove(options)).await,
        Command::Serve(options) => {
            telemetry::log(options.log_format);
            serve::run(*options).await.map(|()| 0)
        }
    }
}

/// How the trail is reached: by a port-forward through the API server.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Trail")]
pub(super) struct TrailOptions {
    /// Certificates that vouch for the trail, as PEM. Without them: those of the ConfigMap glovebox-audit-ca.
    #[arg(long, value_name = "FILE")]
    audit_ca: Option<PathBuf>,
    /// Token for the trail in place of what the kubeconfig has.
    #[arg(long, value_name = "FILE")]
    audit_token_file: Option<PathBuf>,
    /// Namespace in which Glovebox is installed. Without it, it is looked for.
    #[arg(long, env = "GLOVEBOX_NAMESPACE", value_name = "NAME")]
    glovebox_namespace: Option<String>,
}

impl TrailOptions {
    async fn open(&self, cluster: &Cluster) -> anyhow::Result<Session> {
        let Self { audit_ca, audit_token_file, glovebox_namespace } = self.clone();
        let options = SessionOptions {
            session: None,
            session_ca: audit_ca,
            session_token_file: audit_token_file,
            glovebox_namespace,
        };
        Session::open_trail(cluster, &options).await
    }

    async fn reach(&self, cluster: &ClusterOptions) -> anyhow::Result<Session> {
        self.open(&Cluster::open(cluster).await?).await
    }
}
