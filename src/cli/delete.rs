//! `delete`: sandboxes that are to end now.

use kube::{Api, api::DeleteParams};

use super::{
    cluster::{Cluster, explained},
    fault::Outcome,
    options::ClusterOptions,
    print, text,
};
use crate::api::AgentSandbox;

/// Ends sandboxes, and all that runs in them.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  glovebox delete review-42
  glovebox list -o name | xargs glovebox delete")]
pub struct Options {
    /// The sandboxes.
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    /// Take one that is not there for deleted.
    #[arg(long)]
    ignore_not_found: bool,
    #[command(flatten)]
    cluster: ClusterOptions,
}

/// Carries it out: as many as can be, and then the first error.
pub(super) async fn delete(options: Options) -> Outcome {
    let cluster = Cluster::open(&options.cluster).await?;
    let api: Api<AgentSandbox> = cluster.here();
    let mut first = None;
    for name in &options.names {
        match api.delete(name, &DeleteParams::default()).await {
            Ok(_) => print::words(&format!("sandbox {} deleted\n", text::line(name)))?,
            Err(kube::Error::Api(status)) if status.code == 404 && options.ignore_not_found => {}
            Err(error) => first = first.or(Some(explained(error, &format!("sandbox {name}")))),
        }
    }
    first.map_or(Ok(0), Err)
}
