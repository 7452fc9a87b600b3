//! The roles, and what a person does, as subcommands; no logic.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
#[cfg(feature = "cli")]
use glovebox::cli;
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

/// What runs in the cluster comes after what a person runs.
#[derive(Debug, Subcommand)]
enum Role {
    #[cfg(feature = "cli")]
    #[command(flatten)]
    Person(cli::Command),
    #[cfg(feature = "controller")]
    #[command(display_order = 100)]
    Controller(controller::Options),
    #[cfg(feature = "controller")]
    #[command(display_order = 103)]
    Crds(definitions::Options),
    #[cfg(feature = "controller")]
    #[command(display_order = 104)]
    Cleanup(cleanup::Options),
    #[cfg(feature = "gateway")]
    #[command(display_order = 101)]
    Gateway(Box<gateway::Options>),
    #[cfg(feature = "session")]
    #[command(display_order = 102)]
    Session(Box<session::Options>),
    /// Print the session's OpenAPI document.
    #[cfg(feature = "session")]
    #[command(name = "openapi", display_order = 105)]
    OpenApi,
}

fn main() -> ExitCode {
    let role = asked();
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&error.into()),
    };
    let code = runtime.block_on(act(role));
    // A read of a terminal can't be ended, so that nobody waits for one.
    runtime.shutdown_background();
    code
}

fn asked() -> Role {
    #[cfg(feature = "cli")]
    if cli::is_plugin(std::env::args_os().next().as_deref()) {
        return Role::Person(cli::Plugin::of_kubectl().command);
    }
    Cli::parse().role
}

async fn act(role: Role) -> ExitCode {
    let ended = match role {
        #[cfg(feature = "cli")]
        Role::Person(command) => return cli::carry_out(command).await.into(),
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
        #[cfg(feature = "session")]
        Role::OpenApi => {
            println!("{:#}", session::openapi());
            Ok(())
        }
    };
    ended.map_or_else(|error| failed(&error), |()| ExitCode::SUCCESS)
}

/// As the standard library tells the error of `main`.
fn failed(error: &anyhow::Error) -> ExitCode {
    eprintln!("Error: {error:?}");
    ExitCode::FAILURE
}
