//! The roles as subcommands; no logic.

use clap::{Parser, Subcommand};
#[cfg(feature = "gateway")]
use glovebox::gateway;
#[cfg(feature = "session")]
use glovebox::session;
use glovebox::telemetry;
#[cfg(feature = "controller")]
use glovebox::{
    controller::{self, cleanup, definitions},
    telemetry::LogFormat,
};

/// Faster by a tenth of what the gateway does for a connection than the C library's.
#[cfg(feature = "gateway")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Ephemeral, fenced sandboxes for AI agents on Kubernetes.
#[derive(Debug, Parser)]
#[command(name = "glovebox", version, about, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    role: Role,
}

#[derive(Debug, Subcommand)]
enum Role {
    #[cfg(feature = "controller")]
    Controller(controller::Options),
    #[cfg(feature = "controller")]
    Crds(definitions::Options),
    #[cfg(feature = "controller")]
    Cleanup(cleanup::Options),
    #[cfg(feature = "gateway")]
    Gateway(Box<gateway::Options>),
    #[cfg(feature = "session")]
    Session(Box<session::Options>),
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    match Cli::parse().role {
        #[cfg(feature = "controller")]
        Role::Controller(options) => {
            telemetry::log(options.log_format);
            controller::run(options).await
        }
        #[cfg(feature = "controller")]
        Role::Crds(options) => {
            telemetry::log(LogFormat::Human);
            definitions::run(options).await
        }
        #[cfg(feature = "controller")]
        Role::Cleanup(options) => {
            telemetry::log(LogFormat::Human);
            cleanup::run(options).await
        }
        #[cfg(feature = "gateway")]
        Role::Gateway(options) => {
            telemetry::log(options.log_format);
            gateway::run(*options).await
        }
        #[cfg(feature = "session")]
        Role::Session(options) => {
            telemetry::log(options.log_format);
            session::run(*options).await
        }
    }
}
