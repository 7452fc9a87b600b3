//! `audit query` and `audit tail`.

use futures::StreamExt as _;
use jiff::Timestamp;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::{TrailOptions, show};
use crate::{
    api::Span,
    audit::{
        act::Act,
        entry::{Entry, MOST_LINE},
        ocsf,
        query::{self, Filter},
    },
    cli::{
        cluster::Cluster, fault::Outcome, interrupt::Signals, options::ClusterOptions, print, progress::say,
        session::Session, text,
    },
};

const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_');

/// Which records.
#[derive(clap::Args, Clone, Debug)]
pub(super) struct Wanted {
    /// Of every namespace. You need `get` on auditrecords in all of them.
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    all_namespaces: bool,
    /// Of sandboxes with this name.
    #[arg(value_name = "SANDBOX")]
    sandbox: Option<String>,
    /// Of the sandbox with this uid: names are given again.
    #[arg(long)]
    uid: Option<String>,
    /// Of this act, such as `EgressRefused`. Repeatable.
    #[arg(long = "act", value_name = "ACT", value_parser = query::act)]
    acts: Vec<Act>,
    /// By this user.
    #[arg(long, value_name = "USER")]
    actor: Option<String>,
    /// With this reason, such as `NoRule`.
    #[arg(long)]
    reason: Option<String>,
    /// Toward this host.
    #[arg(long)]
    host: Option<String>,
    /// One JSON object a line, as OCSF has it, in place of words.
    #[arg(long, value_name = "FORMAT", value_enum, short, default_value = "text")]
    output: Format,
    #[command(flatten)]
    cluster: ClusterOptions,
    #[command(flatten)]
    trail: TrailOptions,
}

/// How records are shown.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// A line each, for people.
    Text,
    /// OCSF events, a line each.
    Json,
    /// The trail's own lines, as they were hashed.
    Raw,
}

impl Wanted {
    fn filter(&self, namespace: &str) -> Filter {
        Filter {
            namespace: (!self.all_namespaces).then(|| namespace.to_owned()),
            sandbox: self.sandbox.clone(),
            uid: self.uid.clone(),
            acts: self.acts.clone(),
            actor: self.actor.clone(),
            reason: self.reason.clone(),
            host: self.host.clone(),
            ..Filter::default()
        }
    }
}

/// Shows what was recorded.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  glovebox audit query review-42
  glovebox audit query --act EgressRefused --since 1h
  glovebox audit query -A --actor ada@example.com -o json

You need `get` on auditrecords (glovebox.dev) in the namespace, or with -A in all.")]
pub struct Options {
    #[command(flatten)]
    wanted: Wanted,
    /// Not older than this, such as 1h.
    #[arg(long, value_name = "DURATION")]
    since: Option<Span>,
    /// At most so many, the oldest first.
    #[arg(long, value_name = "RECORDS")]
    limit: Option<u64>,
}

/// Shows what is recorded from now on, until Ctrl-C.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  glovebox audit tail
  glovebox audit tail -A --act EgressRefused --act CallStarted")]
pub struct Tail {
    #[command(flatten)]
    wanted: Wanted,
}

/// Carries it out.
pub(super) async fn query(options: Options) -> Outcome {
    let Options { wanted, since, limit } = options;
    let cluster = Cluster::open(&wanted.cluster).await?;
    let mut filter = wanted.filter(&cluster.namespace);
    let ago = |span: Span| i64::try_from(span.duration().as_millis()).unwrap_or(i64::MAX);
    filter.since = since.map(|span| Timestamp::now().as_millisecond().saturating_sub(ago(span)));
    let mut trail = wanted.trail.open(&cluster).await?;
    let more = limit.map(|limit| format!("&limit={limit}")).unwrap_or_default();
    let path = format!("/v1/entries?{}{more}", parameters(&filter));
    let shown = Signals::catch()?.unless(hand_on(&mut trail, &path, wanted.output)).await?;
    if shown == 0 {
        say("no records");
    }
    Ok(0)
}

/// Carries it out.
pub(super) async fn tail(options: Tail) -> Outcome {
    let wanted = options.wanted;
    let cluster = Cluster::open(&wanted.cluster).await?;
    let mut filter = wanted.filter(&cluster.namespace);
    filter.since = Some(Timestamp::now().as_millisecond());
    let mut trail = wanted.trail.open(&cluster).await?;
    let path = format!("/v1/entries?{}&follow=true", parameters(&filter));
    Signals::catch()?.unless(hand_on(&mut trail, &path, wanted.output)).await.map(|_| 0)
}

fn parameters(filter: &Filter) -> String {
    let pairs = filter.pairs().into_iter();
    let pairs = pairs.map(|(name, value)| format!("{name}={}", utf8_percent_encode(&value, ESCAPED)));
    pairs.collect::<Vec<_>>().join("&")
}

/// How many were shown.
async fn hand_on(trail: &mut Session, path: &str, format: Format) -> anyhow::Result<u64> {
    let mut pieces = std::pin::pin!(trail.read(path).await?);
    let (mut held, mut shown) = (Vec::new(), 0);
    while let Some(piece) = pieces.next().await {
        held.extend_from_slice(&piece?);
        let end = held.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let whole: Vec<u8> = held.drain(..end).collect();
        anyhow::ensure!(held.len() <= MOST_LINE, "the trail says what no trail says: a line without end");
        for line in whole.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let entry = Entry::read(line).map_err(anyhow::Error::msg)?;
            print::words(&match format {
                Format::Text => show::line(&entry),
                Format::Json => text::json(&ocsf::event(&entry).to_string()) + "\n",
                Format::Raw => text::json(&String::from_utf8_lossy(line)) + "\n",
            })?;
            shown += 1;
        }
    }
    Ok(shown)
}
