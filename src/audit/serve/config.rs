//! The role's command line.

use std::{net::SocketAddr, path::PathBuf, str::FromStr};

use super::export::ExportOptions;
use crate::{api::Quantity, audit::Role, telemetry::LogFormat};

/// Run the audit trail: takes records of gateway, session and controller, and keeps them so that no change goes unseen.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Address at which records are taken and read.
    #[arg(long, default_value = "0.0.0.0:8445")]
    pub listen: SocketAddr,
    /// Address of /livez, /readyz and /metrics.
    #[arg(long, default_value = "0.0.0.0:9090")]
    pub admin: SocketAddr,
    /// Certificate chain, as PEM. Read again when it changes.
    #[arg(long, env = "GLOVEBOX_TLS_CERT")]
    pub tls_cert: PathBuf,
    /// Its key, as PEM without a password. Read again when it changes.
    #[arg(long, env = "GLOVEBOX_TLS_KEY")]
    pub tls_key: PathBuf,
    /// Ed25519 key that checkpoints are signed with, as PKCS#8 PEM. Repeatable: while a key is replaced, both sign.
    #[arg(long = "signing-key", value_name = "FILE", required = true)]
    pub signing_keys: Vec<PathBuf>,
    /// The trail's name, which no other trail has.
    #[arg(long)]
    pub origin: String,
    /// Directory of the trail.
    #[arg(long)]
    pub data: PathBuf,
    /// Whose records are taken, and as what: ROLE=USER, such as gateway=system:serviceaccount:NAMESPACE:NAME. Repeatable.
    #[arg(long = "producer", value_name = "ROLE=USER")]
    pub producers: Vec<Producer>,
    /// Take client certificates of readers that the cluster's own authority for users has signed, too.
    #[arg(long)]
    pub client_certificates: bool,
    /// Audience that a producer's token must be for.
    #[arg(long, default_value = "glovebox-audit")]
    pub audience: String,
    /// How much is kept; beyond it the oldest entries are removed, and their hashes stay. Absent: all.
    #[arg(long, value_parser = Quantity::parse)]
    pub keep: Option<Quantity>,
    /// Where records go besides.
    #[command(flatten)]
    pub export: ExportOptions,
    /// How log lines look.
    #[arg(long, value_enum, default_value = "json")]
    pub log_format: LogFormat,
}

/// A user whose records are taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Producer {
    /// As what.
    pub role: Role,
    /// As the API server knows them.
    pub user: String,
}

impl FromStr for Producer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "expected ROLE=USER, with a role of controller, gateway, session".to_owned();
        let (role, user) = text.split_once('=').ok_or_else(wrong)?;
        let roles = [Role::Controller, Role::Gateway, Role::Session];
        let role = roles.into_iter().find(|known| known.as_str() == role).ok_or_else(wrong)?;
        if user.is_empty() { Err(wrong()) } else { Ok(Self { role, user: user.to_owned() }) }
    }
}
