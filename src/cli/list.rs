//! `list`: sandboxes, as columns or as data.

use jiff::Timestamp;
use kube::{
    Api, ResourceExt as _,
    api::{ListParams, ObjectList},
};

use super::{
    cluster::{Cluster, explained},
    fault::Outcome,
    options::{ClusterOptions, Format},
    print,
    progress::say,
    text::{self, Cell, Tone},
};
use crate::api::{AgentSandbox, ConditionType, Phase};

/// Lists sandboxes.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  glovebox list
  glovebox list --all-namespaces -o wide
  glovebox list --selector team=red -o json")]
pub struct Options {
    /// Of every namespace.
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    all_namespaces: bool,
    /// With these labels alone.
    #[arg(short = 'l', long, value_name = "LABELS")]
    selector: Option<String>,
    /// How they are shown.
    #[arg(short, long, value_enum, default_value = "table")]
    output: Format,
    #[command(flatten)]
    cluster: ClusterOptions,
}

/// Carries it out.
pub(super) async fn list(options: Options) -> Outcome {
    let cluster = Cluster::open(&options.cluster).await?;
    let api: Api<AgentSandbox> =
        if options.all_namespaces { Api::all(cluster.client.clone()) } else { cluster.here() };
    let params = ListParams { label_selector: options.selector.clone(), ..ListParams::default() };
    let found = api.list(&params).await.map_err(|error| explained(error, "sandboxes"))?;
    match options.output {
        Format::Json => print::json(&found)?,
        Format::Yaml => print::yaml(&found)?,
        Format::Name => print::words(&names(&found))?,
        Format::Table | Format::Wide => {
            if found.items.is_empty() {
                say("no sandboxes");
                return Ok(0);
            }
            let view = View {
                namespaces: options.all_namespaces,
                wide: options.output == Format::Wide,
                now: Timestamp::now(),
            };
            print::words(&view.table(&found.items, print::colours()))?;
        }
    }
    Ok(0)
}

fn names(found: &ObjectList<AgentSandbox>) -> String {
    found.iter().map(|sandbox| text::line(&sandbox.name_any()) + "\n").collect()
}

/// What is shown.
struct View {
    namespaces: bool,
    wide: bool,
    now: Timestamp,
}

impl View {
    fn table(&self, sandboxes: &[AgentSandbox], colours: text::Colours) -> String {
        let mut heads = vec!["NAME", "CLASS", "RUNTIME", "PHASE", "READY", "EXPIRES", "AGE"];
        if self.namespaces {
            heads.insert(0, "NAMESPACE");
        }
        if self.wide {
            heads.extend(["NODE", "POD", "REASON"]);
        }
        let rows: Vec<Vec<Cell>> = sandboxes.iter().map(|sandbox| self.row(sandbox)).collect();
        text::table(&heads, &rows, colours)
    }

    fn row(&self, sandbox: &AgentSandbox) -> Vec<Cell> {
        let status = sandbox.status.clone().unwrap_or_default();
        let over = status.phase.is_some_and(Phase::is_terminal);
        let ready = status.conditions.iter().find(|one| one.type_ == ConditionType::Ready.as_str());
        let ready = ready.map_or("Unknown", |one| one.status.as_str()).to_owned();
        let expires = status.expires_at.filter(|_| !over).map(|time| text::until(time.0, self.now));
        let age = sandbox.creation_timestamp().map(|time| text::ago(time.0, self.now));
        let mut row: Vec<Cell> = vec![
            sandbox.name_any().into(),
            status.class_name.or_else(|| sandbox.spec.class_name.clone()).unwrap_or_default().into(),
            status.runtime.unwrap_or_default().into(),
            phase(status.phase),
            ready.into(),
            expires.unwrap_or_default().into(),
            age.unwrap_or_default().into(),
        ];
        if self.namespaces {
            row.insert(0, sandbox.namespace().unwrap_or_default().into());
        }
        if self.wide {
            let rest = [status.node_name, status.pod_name, status.reason];
            row.extend(rest.into_iter().map(|text| Cell::from(text.unwrap_or_default())));
        }
        row
    }
}

/// A phase in its colour.
pub(super) fn phase(phase: Option<Phase>) -> Cell {
    let phase = phase.unwrap_or(Phase::Pending);
    let tone = match phase {
        Phase::Running | Phase::Succeeded => Tone::Good,
        Phase::Pending | Phase::Starting => Tone::Doubtful,
        Phase::Failed => Tone::Bad,
        Phase::Expired => Tone::Plain,
    };
    Cell(tone, phase.as_str().into())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rows_tell_where_each_stands() {
        let sandboxes: Vec<AgentSandbox> = serde_json::from_value(json!([
            {"metadata": {"name": "a", "namespace": "n", "creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": {"image": "i", "className": "asked"}},
            {"metadata": {"name": "b", "namespace": "n", "creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": {"image": "i"}, "status": {
                "phase": "Running", "className": "untrusted", "runtime": "gVisor\u{1b}[2J", "nodeName": "node", "podName": "b", "reason": "X",
                "expiresAt": "2026-01-01T01:10:00Z",
                "conditions": [{"type": "Ready", "status": "True", "reason": "Running", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}},
            {"metadata": {"name": "c", "namespace": "n"}, "spec": {"image": "i"}, "status": {"phase": "Expired", "expiresAt": "2026-01-01T00:00:00Z"}},
        ]))
        .unwrap();
        let now = "2026-01-01T00:10:00Z".parse().unwrap();
        let shown = View { namespaces: false, wide: false, now }.table(&sandboxes, text::Colours(false));
        let rows: Vec<Vec<&str>> = shown
            .lines()
            .map(|line| line.split("   ").map(str::trim).filter(|cell| !cell.is_empty()).collect())
            .collect();
        assert_eq!(rows[1], ["a", "asked", "-", "Pending", "Unknown", "-", "10m"]);
        assert_eq!(rows[2], ["b", "untrusted", "gVisor\\u{1b}[2J", "Running", "True", "in 1h", "10m"]);
        assert_eq!(rows[3], ["c", "-", "-", "Expired", "Unknown", "-", "-"]);
        let wide = View { namespaces: true, wide: true, now }.table(&sandboxes, text::Colours(false));
        assert!(
            wide.starts_with("NAMESPACE") && wide.lines().nth(2).unwrap().ends_with("node   b     X"),
            "{wide}"
        );
    }
}
