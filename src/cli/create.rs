//! `create`: a sandbox that stays.

use kube::{Api, api::PostParams};

use super::{
    cluster::{Cluster, explained},
    fault::{Fault, Outcome},
    interrupt::Signals,
    options::{ClusterOptions, Format, SandboxOptions, variable},
    print,
    progress::Progress,
    spec::{self, Draft},
    text, wait,
};
use crate::api::{AgentSandbox, Span};

/// Makes a sandbox, and prints its name.
///
/// Without a command it idles and waits for calls (`glovebox exec`) until its time to live is over.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  glovebox create python:3.14-slim --name review-42 --ttl 30m --wait
  glovebox create --allow api.github.com python:3.14-slim -- python agent.py
  glovebox create --dry-run -o yaml python:3.14-slim > sandbox.yaml")]
pub struct Options {
    /// Image that it runs.
    image: String,
    /// The workload's program and its arguments. Absent: it idles.
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
    /// Name in place of one that is made up.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Variable of the workload. Repeatable.
    #[arg(short, long, value_name = "NAME=VALUE", value_parser = variable)]
    env: Vec<(String, String)>,
    /// Wait until it takes calls.
    #[arg(long, conflicts_with = "dry_run")]
    wait: bool,
    /// How long that may take.
    #[arg(long, value_name = "DURATION", default_value = "5m")]
    start_timeout: Span,
    /// Print it and make nothing.
    #[arg(long)]
    dry_run: bool,
    /// How it is printed: `table` is its name and what became of it.
    #[arg(short, long, value_enum, default_value = "table")]
    output: Format,
    #[command(flatten)]
    sandbox: SandboxOptions,
    #[command(flatten)]
    cluster: ClusterOptions,
}

/// Carries it out.
pub(super) async fn create(options: Options) -> Outcome {
    if options.output == Format::Wide {
        return Err(Fault::usage("create has no -o wide; use table, json, yaml or name"));
    }
    let cluster = Cluster::open(&options.cluster).await?;
    let name = options.name.clone().map_or_else(|| names::random("sandbox"), Ok)?;
    let Options { image, command, env, .. } = &options;
    let draft = Draft { name: &name, namespace: &cluster.namespace, image, command, env };
    let wanted = spec::sandbox(&draft, &options.sandbox)?;
    if options.dry_run {
        print(&wanted, &name, "would be made", options.output)?;
        return Ok(0);
    }
    let api: Api<AgentSandbox> = cluster.here();
    let made = api.create(&PostParams::default(), &wanted).await.map_err(|error| refused(error, &name))?;
    print(&made, &name, "made", options.output)?;
    if options.wait {
        let mut progress = Progress::new(false);
        let patience = options.start_timeout.duration();
        let ready = wait::ready(api, &name, made.metadata.uid.as_deref(), patience, &mut progress);
        let _ready = Signals::catch()?.unless(ready).await?;
    }
    Ok(0)
}

fn print(sandbox: &AgentSandbox, name: &str, what: &str, format: Format) -> anyhow::Result<()> {
    match format {
        Format::Json => print::json(sandbox),
        Format::Yaml => print::yaml(sandbox),
        Format::Name => print::words(&(text::line(name) + "\n")),
        Format::Table | Format::Wide => print::words(&format!("sandbox {} {what}\n", text::line(name))),
    }
}

/// Why a sandbox can't be made.
pub(super) fn refused(error: kube::Error, name: &str) -> anyhow::Error {
    match &error {
        kube::Error::Api(status) if status.code == 409 => {
            anyhow::anyhow!(
                "there is a sandbox {name} already; choose another name, or `glovebox delete {name}`"
            )
        }
        _ => explained(error, "the sandbox can't be made"),
    }
}

/// Names that are made up.
pub(super) mod names {
    use rustls::crypto::aws_lc_rs::default_provider;

    /// Without vowels, so that no word comes out, and what looks like another one.
    const LETTERS: &[u8; 16] = b"bcdfghjkmnpqrtvx";

    /// A name that nobody has: eight letters out of sixteen.
    pub(in crate::cli) fn random(begin: &str) -> anyhow::Result<String> {
        let mut bytes = [0; 8];
        default_provider()
            .secure_random
            .fill(&mut bytes)
            .map_err(|_| anyhow::anyhow!("there is no randomness"))?;
        let letters =
            bytes.iter().filter_map(|byte| LETTERS.get(usize::from(byte & 15)).copied().map(char::from));
        Ok(format!("{begin}-{}", letters.collect::<String>()))
    }

    #[cfg(test)]
    mod tests {
        #[test]
        fn names_are_names_and_differ() {
            let names: std::collections::BTreeSet<String> =
                (0..100).map(|_| super::random("run").unwrap()).collect();
            assert_eq!(names.len(), 100);
            for name in names {
                assert!(
                    name.len() == 12 && name.bytes().all(|byte| byte == b'-' || byte.is_ascii_lowercase()),
                    "{name}"
                );
            }
        }
    }
}
