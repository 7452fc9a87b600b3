//! The role's command line.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use crate::{
    api::{Quantity, Span},
    audit::AuditOptions,
    sandbox::names::ports,
    telemetry::LogFormat,
};

/// Run the session API: tools have commands run in sandboxes through it, with a deadline that holds.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Address of the API.
    #[arg(long, default_value = "0.0.0.0:8444")]
    pub listen: SocketAddr,
    /// Address of /livez, /readyz and /metrics.
    #[arg(long, default_value = "0.0.0.0:9090")]
    pub admin: SocketAddr,
    /// Certificate chain of the API, as PEM. Read again when it changes.
    #[arg(long, env = "GLOVEBOX_TLS_CERT", required_unless_present = "insecure_http", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// Its key, as PEM without a password. Read again when it changes.
    #[arg(long, env = "GLOVEBOX_TLS_KEY", required_unless_present = "insecure_http", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Serve without TLS: tokens can be read by whoever sees the network. For tests.
    #[arg(long, conflicts_with_all = ["tls_cert", "tls_key"])]
    pub insecure_http: bool,
    /// Take client certificates that the cluster's own authority for users has signed, too. It is read from the ConfigMap
    /// kube-system/extension-apiserver-authentication, and again when it changes.
    #[arg(long, conflicts_with = "insecure_http")]
    pub client_certificates: bool,
    /// Ed25519 key that calls are signed with, as PKCS#8 PEM; sandboxes know its public half. Read again when it changes.
    #[arg(long, env = "GLOVEBOX_SIGNING_KEY")]
    pub signing_key: PathBuf,
    /// Audience that a token must be for; absent: the API server's own. Repeatable, one of them is enough.
    #[arg(long = "audience", value_name = "AUDIENCE", value_delimiter = ',')]
    pub audiences: Vec<String>,
    /// Port of sandboxes at which their agents take calls.
    #[arg(long, default_value_t = ports::CALLS)]
    pub agent_port: u16,
    /// How much output is handed over of one call at most, whatever its sandbox's class allows.
    #[arg(long, default_value = "64Mi", value_parser = Quantity::parse)]
    pub max_output: Quantity,
    /// How much one file operation carries at most, be it a file or an archive. As much as a workspace has by default.
    #[arg(long, default_value = "256Mi", value_parser = Quantity::parse)]
    pub max_transfer: Quantity,
    /// Most calls and file operations that this replica runs at once; a namespace may have half of what others leave free.
    #[arg(long, default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub max_calls: u32,
    /// Most connections of clients at once.
    #[arg(long, default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub max_connections: u32,
    /// Most bytes of bodies and of output that is asked for in one piece, of all calls together; each call is counted with the most
    /// that it may have. A namespace may have half of what others leave free. The process may need three times as much.
    #[arg(long, default_value = "512Mi", value_parser = Quantity::parse)]
    pub max_buffered: Quantity,
    /// How long running calls may go on after the stop signal; the pod's grace period must be longer.
    #[arg(long, default_value = "60s")]
    pub drain: Span,
    /// Where it is said what was done.
    #[command(flatten)]
    pub audit: AuditOptions,
    /// How log lines look.
    #[arg(long, value_enum, default_value = "json")]
    pub log_format: LogFormat,
}

/// How long things may take.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// Until TLS is agreed on.
    pub handshake: Duration,
    /// Until a request's head is whole, and between two requests.
    pub head: Duration,
    /// Until its body is.
    pub body: Duration,
    /// Without a byte taken by a client for whom there are some.
    pub stalled: Duration,
    /// Until the API server says who somebody is, or whether they may.
    pub review: Duration,
    /// How long that is believed.
    pub believed: Duration,
    /// Until a sandbox takes the connection.
    pub dial: Duration,
    /// Until its agent has said the first word.
    pub greeting: Duration,
    /// Beyond a call's own deadline, until its agent is given up.
    pub guard: Duration,
    /// Until the agent of a sandbox that is gone is given up.
    pub gone: Duration,
    /// Until a sandbox that is not known, and is waited for, does not exist.
    pub hold: Duration,
    /// How long the result of a call with an idempotency key is kept.
    pub kept: Duration,
    /// Between two looks at files.
    pub renew: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            handshake: Duration::from_secs(10),
            head: Duration::from_secs(30),
            body: Duration::from_secs(30),
            stalled: Duration::from_secs(30),
            review: Duration::from_secs(5),
            believed: Duration::from_secs(10),
            dial: Duration::from_secs(5),
            greeting: Duration::from_secs(5),
            guard: Duration::from_secs(5),
            gone: Duration::from_secs(2),
            hold: Duration::from_secs(2),
            kept: Duration::from_secs(600),
            renew: Duration::from_secs(10),
        }
    }
}
