//! `describe`: why a sandbox is as it is, what it may reach, and what was refused.

mod view;

use anyhow::Context as _;
use kube::{Api, ResourceExt as _};
use serde::Serialize;

use super::{
    cluster::{Cluster, explained},
    events::{self, Told},
    fault::{Fault, Outcome},
    options::{ClusterOptions, Format},
    print, text, wait,
};
use crate::api::{AgentSandbox, EgressPolicy, EgressRule};

/// Tells why a sandbox is as it is, what it may reach, and what was refused.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  glovebox describe review-42
  glovebox describe review-42 -o json")]
pub struct Options {
    /// The sandbox.
    name: String,
    /// How it is told.
    #[arg(short, long, value_enum, default_value = "table")]
    output: Format,
    #[command(flatten)]
    cluster: ClusterOptions,
}

/// All that is told.
#[derive(Serialize, Debug)]
#[serde(rename_all = "camelCase")]
struct Described {
    sandbox: AgentSandbox,
    /// Where its rules come from, and the rules.
    reach: Vec<Source>,
    refused: Vec<Told>,
    events: Vec<Told>,
    /// What could not be looked at, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unknown: Vec<String>,
}

/// Rules that come from one place.
#[derive(Serialize, Debug)]
#[serde(rename_all = "camelCase")]
struct Source {
    /// The EgressPolicy; none for the sandbox's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<String>,
    rules: Vec<EgressRule>,
}

/// Carries it out.
pub(super) async fn describe(options: Options) -> Outcome {
    let format = options.output;
    if matches!(format, Format::Wide | Format::Name) {
        return Err(Fault::usage("describe has no such output; use -o table, json or yaml"));
    }
    let cluster = Cluster::open(&options.cluster).await?;
    let sandbox = wait::by_name(&cluster.here(), &options.name).await?;
    let described = gather(&cluster, sandbox).await?;
    match format {
        Format::Json => print::json(&described)?,
        Format::Yaml => print::yaml(&described)?,
        Format::Table | Format::Wide | Format::Name => {
            print::words(&view::View::new(jiff::Timestamp::now(), print::colours()).all(&described))?;
        }
    }
    Ok(0)
}

async fn gather(cluster: &Cluster, sandbox: AgentSandbox) -> anyhow::Result<Described> {
    let uid = sandbox.uid().context("a sandbox without a uid; report this")?;
    let (mut reach, mut unknown) = (Vec::new(), Vec::new());
    if !sandbox.spec.egress.allow.is_empty() {
        reach.push(Source { policy: None, rules: sandbox.spec.egress.allow.clone() });
    }
    let policies: Api<EgressPolicy> = cluster.here();
    for name in &sandbox.spec.egress.policies {
        match policies.get(name).await {
            Ok(policy) => reach.push(Source { policy: Some(name.clone()), rules: policy.spec.rules }),
            Err(error) => unknown.push(format!("{:#}", explained(error, &format!("EgressPolicy {name}")))),
        }
    }
    let all = events::of(cluster, &uid).await.unwrap_or_else(|error| {
        unknown.push(format!("what was refused: {error:#}"));
        Vec::new()
    });
    let (refused, events) = all.into_iter().partition(Told::is_refusal);
    let unknown = unknown.iter().map(|words| text::lines(words)).collect();
    Ok(Described { sandbox, reach, refused, events, unknown })
}
