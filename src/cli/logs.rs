//! `logs`: what a sandbox's workload wrote.

use std::fmt::Write as _;

use super::{
    cluster::Cluster,
    fault::Outcome,
    interrupt::Signals,
    options::{ClusterOptions, SessionOptions},
    session::{Session, place},
};
use crate::api::Span;

/// Shows what a sandbox's workload wrote to its output and error output.
///
/// It comes byte by byte, as a terminal would get it: pipe what you do not trust through `less` or into a file.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  glovebox logs review-42
  glovebox logs review-42 --follow --tail 20
  glovebox logs review-42 --since 5m --timestamps | less

What calls write is in their answers, and not here. You need `get` on agentsandboxes/logs.")]
pub struct Options {
    /// The sandbox.
    name: String,
    /// Go on as more is written, until the workload ends.
    #[arg(short, long)]
    follow: bool,
    /// So many lines of the end alone.
    #[arg(long, value_name = "LINES", value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    tail: Option<u32>,
    /// What is not older than this alone, such as 5m.
    #[arg(long, value_name = "DURATION")]
    since: Option<Span>,
    /// Begin each line with its time.
    #[arg(long)]
    timestamps: bool,
    #[command(flatten)]
    cluster: ClusterOptions,
    #[command(flatten)]
    session: SessionOptions,
}

/// Carries it out.
pub(super) async fn logs(options: Options) -> Outcome {
    Signals::catch()?
        .unless(async {
            let cluster = Cluster::open(&options.cluster).await?;
            let mut session = Session::open(&cluster, &options.session).await?;
            let path = place(&cluster.namespace, &options.name) + "/logs?" + &query(&options);
            session.hand_on(&path).await.map(|()| 0)
        })
        .await
}

fn query(options: &Options) -> String {
    let Options { follow, tail, since, timestamps, .. } = options;
    let mut query = format!("follow={follow}&timestamps={timestamps}");
    if let Some(lines) = tail {
        let _ = write!(query, "&tailLines={lines}");
    }
    if let Some(span) = since {
        let _ = write!(query, "&since={span}");
    }
    query
}
