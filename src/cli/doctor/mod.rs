//! `doctor`: examines a cluster by looking alone, as the caller. Changes nothing, and starts nothing.
//!
//! Each finding says what to do. What the caller may not see is said to be unknown, never to be good.

mod caller;
mod classes;
mod installation;
mod trail;

use serde::Serialize;

use super::{
    cluster::Cluster,
    fault::{BROKEN, Fault, Outcome},
    options::{ClusterOptions, Format, SessionOptions},
    print,
    text::{self, Cell, Colours, Tone},
};

/// Examines a cluster, and says what to mend.
///
/// Looks at the API server, the custom resources, the controller, the gateway and the session, the classes and their runtimes, whether
/// the network holds sandboxes back, and what you may do in the namespace.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  glovebox doctor
  glovebox doctor --namespace team-a
  glovebox doctor -o json | jq '.findings[] | select(.state != \"Ok\")'

Exit codes: 0 if nothing is broken, 1 if something is, 125 if the cluster can't be looked at.")]
pub struct Options {
    /// How it is told.
    #[arg(short, long, value_enum, default_value = "table")]
    output: Format,
    #[command(flatten)]
    cluster: ClusterOptions,
    #[command(flatten)]
    session: SessionOptions,
}

/// How something is.
#[derive(Serialize, Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Ok,
    /// It works, and is not as it should be; or it is not needed by everybody.
    Warning,
    /// Sandboxes do not work because of it.
    Broken,
    /// It can't be seen.
    Unknown,
}

/// One thing that was looked at.
#[derive(Serialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
struct Finding {
    /// What was looked at, in one word.
    check: &'static str,
    state: State,
    message: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    fix: Option<String>,
}

impl Finding {
    fn ok(check: &'static str, message: impl Into<String>) -> Self {
        Self { check, state: State::Ok, message: message.into(), fix: None }
    }

    fn bad(check: &'static str, state: State, message: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { check, state, message: message.into(), fix: Some(fix.into()) }
    }
}

/// All that is told.
#[derive(Serialize, Debug)]
struct Report {
    findings: Vec<Finding>,
}

/// What is examined.
struct Patient<'a> {
    cluster: &'a Cluster,
    session: &'a SessionOptions,
}

/// Carries it out.
pub(super) async fn doctor(options: Options) -> Outcome {
    if matches!(options.output, Format::Wide | Format::Name) {
        return Err(Fault::usage("doctor has no such output; use -o table, json or yaml"));
    }
    let cluster = Cluster::open(&options.cluster).await?;
    let patient = Patient { cluster: &cluster, session: &options.session };
    let report = examine(&patient).await?;
    match options.output {
        Format::Json => print::json(&report)?,
        Format::Yaml => print::yaml(&report)?,
        Format::Table | Format::Wide | Format::Name => print::words(&report.shown(print::colours()))?,
    }
    Ok(report.code())
}

async fn examine(patient: &Patient<'_>) -> anyhow::Result<Report> {
    let mut findings = vec![installation::api_server(patient).await?];
    findings.extend(installation::definitions(patient).await);
    let (installed, namespace) = installation::deployments(patient).await;
    findings.extend(installed);
    findings.push(trail::trail(patient).await);
    let (classes, default) = classes::classes(patient).await;
    findings.extend(classes);
    findings.extend(caller::rights(patient, default.as_deref(), namespace.as_deref()).await);
    findings.push(caller::session(patient).await);
    Ok(Report { findings })
}

impl Report {
    fn count(&self, state: State) -> usize {
        self.findings.iter().filter(|finding| finding.state == state).count()
    }

    fn code(&self) -> u8 {
        if self.count(State::Broken) > 0 { BROKEN } else { 0 }
    }

    fn shown(&self, colours: Colours) -> String {
        let mut rows: Vec<Vec<Cell>> = Vec::new();
        for finding in &self.findings {
            let state = match finding.state {
                State::Ok => Cell(Tone::Good, "ok".into()),
                State::Warning => Cell(Tone::Doubtful, "warning".into()),
                State::Broken => Cell(Tone::Bad, "broken".into()),
                State::Unknown => Cell(Tone::Doubtful, "unknown".into()),
            };
            rows.push(vec![state, finding.check.into(), finding.message.clone().into()]);
            let fix = finding.fix.iter().map(|fix| vec![" ".into(), " ".into(), format!("-> {fix}").into()]);
            rows.extend(fix);
        }
        let (broken, warned, unknown) =
            (self.count(State::Broken), self.count(State::Warning), self.count(State::Unknown));
        let sum = match (broken, warned, unknown) {
            (0, 0, 0) => "all is well".to_owned(),
            _ => format!("{broken} broken, {warned} warnings, {unknown} unknown"),
        };
        text::aligned(&rows, colours) + "\n" + &sum + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_broken_fails() {
        let report = |states: &[State]| Report {
            findings: states.iter().map(|state| Finding::bad("check", *state, "m\x1b", "do it")).collect(),
        };
        assert_eq!(report(&[State::Ok, State::Warning, State::Unknown]).code(), 0);
        assert_eq!(report(&[State::Ok, State::Broken]).code(), 1);
        let shown = report(&[State::Broken, State::Warning]).shown(Colours(false));
        assert_eq!(
            shown,
            "broken    check   m\\u{1b}\n                  -> do it\nwarning   check   m\\u{1b}\n                  -> do it\n\n1 broken, 1 warnings, 0 unknown\n"
        );
        let good = Report { findings: vec![Finding::ok("a", "b")] };
        assert!(good.shown(Colours(false)).ends_with("all is well\n"));
    }
}
