//! `approvals`: destinations that sandboxes want and no rule names, and a person's word on them.

use std::collections::HashMap;

use anyhow::{Context as _, bail};
use futures::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::{api::authentication::v1::SelfSubjectReview, apimachinery::pkg::apis::meta::v1::Time};
use kube::{
    Api, ResourceExt as _,
    api::{ListParams, Patch, PatchParams, PostParams},
    runtime::{WatchStreamExt as _, watcher},
};
use serde_json::json;

use super::{
    cluster::{Cluster, explained},
    fault::Outcome,
    interrupt::Signals,
    options::{ClusterOptions, Format},
    print,
    progress::say,
    text::{self, Cell, Tone},
};
use crate::{
    api::{ApprovalPhase, ApprovalVerdict, Decision, EgressApproval, Span},
    sandbox::approvals,
};

/// What a person does with what sandboxes want.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    #[command(visible_alias = "ls")]
    List(List),
    Approve(Approve),
    Deny(Deny),
}

/// Lists what sandboxes want and no rule names.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  glovebox approvals list
  glovebox approvals list -A -w")]
pub struct List {
    /// Of every namespace.
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    all_namespaces: bool,
    /// Goes on, with a line for each question and each answer, until it is interrupted.
    #[arg(short, long, conflicts_with = "output")]
    watch: bool,
    /// How they are shown.
    #[arg(short, long, value_enum, default_value = "table")]
    output: Format,
    #[command(flatten)]
    cluster: ClusterOptions,
}

/// Lets destinations be reached, each for a while.
///
/// You need `update` and `approve` on `egressapprovals`, and `approve-own` if you made the sandbox yourself.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  glovebox approvals approve review-42-1f0c3b9a77
  glovebox approvals approve review-42-1f0c3b9a77 --ttl 30m --reason 'the task needs it'")]
pub struct Approve {
    /// For how long, up to what the class allows. Without it, the class's default.
    #[arg(long, value_name = "DURATION")]
    ttl: Option<Span>,
    #[command(flatten)]
    what: What,
}

/// Says that destinations may not be reached. They are not asked for again.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  glovebox approvals deny review-42-1f0c3b9a77 --reason 'use the mirror'")]
pub struct Deny {
    #[command(flatten)]
    what: What,
}

/// On what, and why.
#[derive(clap::Args, Debug)]
struct What {
    /// The questions, by the names that `list` shows.
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    /// Why, for the record.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    #[command(flatten)]
    cluster: ClusterOptions,
}

/// Carries it out.
pub(super) async fn carry_out(command: Command) -> Outcome {
    match command {
        Command::List(options) => list(options).await,
        Command::Approve(Approve { ttl, what }) => decide(what, ApprovalVerdict::Approved, ttl).await,
        Command::Deny(Deny { what }) => decide(what, ApprovalVerdict::Denied, None).await,
    }
}

async fn list(options: List) -> Outcome {
    let cluster = Cluster::open(&options.cluster).await?;
    let api: Api<EgressApproval> =
        if options.all_namespaces { Api::all(cluster.client.clone()) } else { cluster.here() };
    if options.watch {
        return Signals::catch()?.unless(watch(api)).await;
    }
    let found = api.list(&ListParams::default()).await.map_err(|error| explained(error, "approvals"))?;
    match options.output {
        Format::Json => print::json(&found)?,
        Format::Yaml => print::yaml(&found)?,
        Format::Name => {
            let names: String = found.iter().map(|one| text::line(&one.name_any()) + "\n").collect();
            print::words(&names)?;
        }
        Format::Table | Format::Wide if found.items.is_empty() => say("nothing is asked for"),
        Format::Table | Format::Wide => {
            let wide = options.output == Format::Wide;
            let shown = table(&found.items, options.all_namespaces, wide, Timestamp::now(), print::colours());
            print::words(&shown)?;
        }
    }
    Ok(0)
}

/// A line for each change, for ever.
async fn watch(api: Api<EgressApproval>) -> anyhow::Result<u8> {
    let changes = watcher(api, watcher::Config::default()).default_backoff().applied_objects();
    let mut changes = std::pin::pin!(changes);
    let mut shown = HashMap::new();
    while let Some(change) = changes.next().await {
        match change {
            // A question or an answer, and not that it was wanted once more.
            Ok(one) => {
                let stands = (one.metadata.generation, phase(&one));
                if shown.insert(one.metadata.uid.clone(), stands) != Some(stands) {
                    print::words(&line(&one))?;
                }
            }
            Err(error) => say(&format!("the watch is made again: {}", text::line(&error.to_string()))),
        }
    }
    Ok(0)
}

fn line(approval: &EgressApproval) -> String {
    let spec = &approval.spec;
    let by = spec.decision.as_ref().map(|decision| format!("  by {}", decision.by)).unwrap_or_default();
    let words = format!(
        "{}/{}  {}  {}:{}{by}",
        approval.namespace().unwrap_or_default(),
        approval.name_any(),
        phase(approval).as_str(),
        spec.host,
        spec.port
    );
    text::line(&words) + "\n"
}

fn phase(approval: &EgressApproval) -> ApprovalPhase {
    approval.status.as_ref().map_or(ApprovalPhase::Pending, |status| status.phase)
}

fn table(
    all: &[EgressApproval],
    namespaces: bool,
    wide: bool,
    now: Timestamp,
    colours: text::Colours,
) -> String {
    let mut heads = vec!["NAME", "SANDBOX", "HOST", "PORT", "PHASE", "EXPIRES", "TIMES", "LAST"];
    if namespaces {
        heads.insert(0, "NAMESPACE");
    }
    if wide {
        heads.extend(["BY", "REASON", "MESSAGE"]);
    }
    let row = |one: &EgressApproval| -> Vec<Cell> {
        let (spec, status) = (&one.spec, one.status.as_ref());
        let tone = match phase(one) {
            ApprovalPhase::Pending => Tone::Doubtful,
            ApprovalPhase::Approved => Tone::Good,
            ApprovalPhase::Denied | ApprovalPhase::Invalid => Tone::Bad,
            ApprovalPhase::Expired => Tone::Plain,
        };
        let expires = status.and_then(|status| status.expires_at.as_ref());
        let last = status.and_then(|status| status.last_seen.as_ref());
        let mut row: Vec<Cell> = vec![
            one.name_any().into(),
            spec.sandbox.name.clone().into(),
            spec.host.clone().into(),
            spec.port.to_string().into(),
            Cell(tone, phase(one).as_str().into()),
            expires.map(|time| text::until(time.0, now)).unwrap_or_default().into(),
            status.and_then(|status| status.count).map(|count| count.to_string()).unwrap_or_default().into(),
            last.map(|time| text::ago(time.0, now)).unwrap_or_default().into(),
        ];
        if namespaces {
            row.insert(0, one.namespace().unwrap_or_default().into());
        }
        if wide {
            let decision = spec.decision.as_ref();
            row.push(decision.map(|decision| decision.by.clone()).unwrap_or_default().into());
            row.push(decision.and_then(|decision| decision.reason.clone()).unwrap_or_default().into());
            row.push(status.and_then(|status| status.message.clone()).unwrap_or_default().into());
        }
        row
    };
    text::table(&heads, &all.iter().map(row).collect::<Vec<_>>(), colours)
}

/// As many as can be, and then the first error.
async fn decide(what: What, verdict: ApprovalVerdict, ttl: Option<Span>) -> Outcome {
    let cluster = Cluster::open(&what.cluster).await?;
    let by = who(&cluster).await?;
    let api: Api<EgressApproval> = cluster.here();
    let mut first = None;
    for name in &what.names {
        let reason = what.reason.clone();
        let decided = one(&api, name, |rule_hash| Decision {
            verdict,
            rule_hash,
            by: by.clone(),
            at: Some(Time(Timestamp::now())),
            ttl,
            reason,
        });
        match decided.await {
            Ok(words) => print::words(&words)?,
            Err(error) => first = first.or(Some(error)),
        }
    }
    first.map_or(Ok(0), Err)
}

/// The name by which the API server knows whoever asks.
async fn who(cluster: &Cluster) -> anyhow::Result<String> {
    let api: Api<SelfSubjectReview> = Api::all(cluster.client.clone());
    let review = api.create(&PostParams::default(), &SelfSubjectReview::default()).await;
    let review = review.map_err(|error| explained(error, "who you are"))?;
    let user = review.status.and_then(|status| status.user_info).and_then(|user| user.username);
    user.context("the API server does not say who you are")
}

async fn one(
    api: &Api<EgressApproval>,
    name: &str,
    decision: impl FnOnce(String) -> Decision,
) -> anyhow::Result<String> {
    let seen = api.get(name).await.map_err(|error| explained(error, &format!("approval {name}")))?;
    let spec = &seen.spec;
    let hash = approvals::hash(&spec.sandbox.uid, &spec.host, spec.port, spec.protocol);
    if hash != spec.rule_hash {
        bail!(
            "approval {name}: its ruleHash is not that of {}:{}; somebody changed it",
            spec.host,
            spec.port
        );
    }
    let decision = decision(hash);
    let verb = if decision.verdict == ApprovalVerdict::Approved { "approved" } else { "denied" };
    // What was looked at, and nothing newer.
    let version = seen.resource_version();
    let mut decision = serde_json::to_value(&decision).context("a decision that can't be written")?;
    // A merge keeps what it does not name: of an earlier decision nothing is to stay.
    for field in ["ttl", "reason"] {
        decision[field] = decision.get(field).cloned().unwrap_or_default();
    }
    let patch = json!({"metadata": {"resourceVersion": version}, "spec": {"decision": decision}});
    let patched = api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
    patched.map_err(|error| explained(error, &format!("approval {name}")))?;
    let words = format!("{verb}: {}:{} for sandbox {}", spec.host, spec.port, spec.sandbox.name);
    Ok(text::line(&words) + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_tell_who_wants_what_and_where_it_stands() {
        let all: Vec<EgressApproval> = serde_json::from_value(json!([
            {"metadata": {"name": "a-1", "namespace": "n"}, "spec": {"sandbox": {"name": "a", "uid": "u"}, "host": "x.example", "port": 443, "protocol": "TLS", "ruleHash": "0"}},
            {"metadata": {"name": "a-2", "namespace": "n"}, "spec": {"sandbox": {"name": "a", "uid": "u"}, "host": "y.example", "port": 80, "protocol": "HTTP", "ruleHash": "0",
                "decision": {"verdict": "Approved", "ruleHash": "0", "by": "ada\u{1b}[2J", "reason": "needed"}},
             "status": {"phase": "Approved", "expiresAt": "2026-01-01T01:00:00Z", "lastSeen": "2026-01-01T00:09:00Z", "count": 7}},
        ]))
        .unwrap();
        let now = "2026-01-01T00:10:00Z".parse().unwrap();
        let shown = table(&all, true, true, now, text::Colours(false));
        for part in [
            "a-1",
            "x.example   443    Pending",
            "y.example   80     Approved   in 50m",
            "ada\\u{1b}[2J",
            "needed",
        ] {
            assert!(shown.contains(part), "{part:?} is not in\n{shown}");
        }
        assert!(text::is_plain(&shown) && text::is_plain(&line(&all[1])));
        assert_eq!(line(&all[0]), "n/a-1  Pending  x.example:443\n");
    }
}
