//! What `describe` knows, for people. Pure.

use std::fmt::Write as _;

use jiff::Timestamp;
use kube::ResourceExt as _;

use super::{Described, Source};
use crate::{
    api::{AgentSandboxStatus, Credential, EgressRule, Enforced, EnforcedState, Phase, Protocol},
    cli::{
        events::Told,
        list,
        text::{self, Cell, Colours, Tone},
        wait::{Standing, standing},
    },
};

/// Most Events that are shown of either kind.
const MOST: usize = 20;

/// When it is, and whether in colour.
pub(super) struct View {
    now: Timestamp,
    colours: Colours,
}

impl View {
    pub(super) const fn new(now: Timestamp, colours: Colours) -> Self {
        Self { now, colours }
    }

    /// Everything.
    pub(super) fn all(&self, described: &Described) -> String {
        let status = described.sandbox.status.clone().unwrap_or_default();
        let mut out = self.head(described, &status);
        let parts = [
            ("May reach", self.reach(&described.reach, &described.sandbox.spec.credentials)),
            ("Added by the gateway", self.credentials(&described.sandbox.spec.credentials)),
            ("Refused", self.told(&described.refused, "nothing that is still remembered")),
            ("Conditions", self.conditions(&status)),
            ("What holds", self.holds(&status)),
            ("Events", self.told(&described.events, "none that is still remembered")),
        ];
        for (head, body) in parts.into_iter().filter(|(_, body)| !body.is_empty()) {
            let head = self.colours.paint(Tone::Head, &format!("{head}:"));
            // Writing to a String can't fail.
            let _ = write!(out, "\n{head}\n{body}");
        }
        for words in &described.unknown {
            let head = self.colours.paint(Tone::Doubtful, "Not known:");
            let _ = writeln!(out, "\n{head} {}", text::line(words));
        }
        out
    }

    fn head(&self, described: &Described, status: &AgentSandboxStatus) -> String {
        let sandbox = &described.sandbox;
        let spec = &sandbox.spec;
        let words: Vec<&str> = spec.command.iter().chain(&spec.args).map(String::as_str).collect();
        let command = if words.is_empty() { "none: it waits for calls".to_owned() } else { words.join(" ") };
        let class = status.class_name.clone().or_else(|| spec.class_name.clone());
        let expires = status.expires_at.as_ref().map(|time| (time.0, text::until(time.0, self.now)));
        let over = status.phase.is_some_and(Phase::is_terminal);
        let mut rows: Vec<Vec<Cell>> = vec![
            row("Name", sandbox.name_any()),
            row("Namespace", sandbox.namespace().unwrap_or_default()),
            row("Class", class.unwrap_or_else(|| "the default one".into())),
            vec!["Phase:".into(), list::phase(status.phase)],
            vec!["Takes calls:".into(), takes_calls(described)],
            row("Image", spec.image.clone()),
            row("Command", command),
        ];
        rows.extend(status.runtime.clone().map(|runtime| row("Kernel", runtime)));
        rows.extend(status.reason.clone().map(|reason| row("Reason", reason)));
        rows.extend(status.exit_code.map(|code| row("Exit code", code.to_string())));
        rows.extend(expires.filter(|_| !over).map(|(at, left)| row("Ends", format!("{left} ({at:.0})"))));
        rows.extend(status.node_name.clone().map(|node| row("Node", node)));
        text::aligned(&rows, self.colours)
    }

    fn credentials(&self, credentials: &[Credential]) -> String {
        if credentials.is_empty() {
            return String::new();
        }
        let row = |one: &Credential| -> Vec<Cell> {
            vec![
                one.name.clone().into(),
                one.hosts.join(", ").into(),
                one.header.clone().into(),
                one.origin().into(),
                one.env.clone().unwrap_or_default().into(),
            ]
        };
        let rows: Vec<_> = credentials.iter().map(row).collect();
        text::table(&["CREDENTIAL", "HOSTS", "FIELD", "FROM", "VARIABLE"], &rows, self.colours)
    }

    fn reach(&self, sources: &[Source], credentials: &[Credential]) -> String {
        let brokered = |rule: &EgressRule| {
            credentials.iter().flat_map(|one| &one.hosts).any(|host| rule.hosts.contains(host))
        };
        let mut rows = Vec::new();
        for Source { policy, rules } in sources {
            let from = policy.as_ref().map_or_else(|| "its own".to_owned(), |name| format!("policy {name}"));
            for rule in rules {
                let ports: Vec<String> = rule.ports.iter().map(ToString::to_string).collect();
                let default = if brokered(rule) { Protocol::Https } else { Protocol::default() };
                let protocol = rule.protocol.unwrap_or(default).as_str();
                let what = if rule.cidrs.is_empty() { &rule.hosts } else { &rule.cidrs };
                let protocol = if rule.cidrs.is_empty() { protocol } else { "past the gateway" };
                let ends = rule.expires_at.as_ref().map(|time| text::until(time.0, self.now));
                rows.push(vec![
                    rule.name.clone().into(),
                    from.clone().into(),
                    what.join(", ").into(),
                    ports.join(", ").into(),
                    protocol.into(),
                    ends.unwrap_or_default().into(),
                ]);
            }
        }
        if rows.is_empty() {
            return "nothing: it has no rule\n".into();
        }
        text::table(&["RULE", "FROM", "HOSTS", "PORTS", "PROTOCOL", "ENDS"], &rows, self.colours)
    }

    fn told(&self, told: &[Told], none: &str) -> String {
        if told.is_empty() {
            return format!("{none}\n");
        }
        let row = |told: &Told| -> Vec<Cell> {
            let last = told.last.as_ref().map(|at| text::ago(at.0, self.now)).unwrap_or_default();
            vec![
                last.into(),
                told.count.to_string().into(),
                told.reason.clone().into(),
                told.message.clone().into(),
            ]
        };
        let rows: Vec<_> = told.iter().take(MOST).map(row).collect();
        text::table(&["LAST", "TIMES", "REASON", "MESSAGE"], &rows, self.colours)
    }

    fn conditions(&self, status: &AgentSandboxStatus) -> String {
        if status.conditions.is_empty() {
            return "none: the controller has not looked at it yet; `glovebox doctor` says whether it runs\n"
                .into();
        }
        let row = |one: &k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition| -> Vec<Cell> {
            let age = text::ago(one.last_transition_time.0, self.now);
            vec![
                one.type_.clone().into(),
                one.status.clone().into(),
                one.reason.clone().into(),
                age.into(),
                one.message.clone().into(),
            ]
        };
        let rows: Vec<_> = status.conditions.iter().map(row).collect();
        text::table(&["TYPE", "STATUS", "REASON", "SINCE", "MESSAGE"], &rows, self.colours)
    }

    fn holds(&self, status: &AgentSandboxStatus) -> String {
        let Some(all) = &status.enforcement else { return String::new() };
        let row = |(name, one): (&str, &Enforced)| -> Vec<Cell> {
            let state = match one.state {
                EnforcedState::Enforced => Cell(Tone::Good, "Enforced".into()),
                EnforcedState::NotEnforced => Cell(Tone::Bad, "NotEnforced".into()),
                EnforcedState::Unknown => Cell(Tone::Doubtful, "Unknown".into()),
            };
            vec![name.into(), state, one.mechanism.clone().into()]
        };
        let rows: Vec<_> = [
            ("kernelIsolation", &all.kernel_isolation),
            ("readOnlyRoot", &all.read_only_root),
            ("workspaceQuota", &all.workspace_quota),
            ("diskQuota", &all.disk_quota),
            ("egressFence", &all.egress_fence),
            ("seccomp", &all.seccomp),
            ("userNamespace", &all.user_namespace),
            ("protectedPaths", &all.protected_paths),
        ]
        .into_iter()
        .map(row)
        .collect();
        text::table(&["CONTROL", "STATE", "BY"], &rows, self.colours)
    }
}

fn row(name: &str, value: String) -> Vec<Cell> {
    vec![format!("{name}:").into(), value.into()]
}

fn takes_calls(described: &Described) -> Cell {
    match standing(&described.sandbox) {
        Standing::Ready => Cell(Tone::Good, "yes".into()),
        Standing::Waiting(why) => Cell(Tone::Doubtful, format!("not yet: {why}")),
        Standing::Never(why) => Cell(Tone::Bad, format!("no: {why}")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn described() -> Described {
        let sandbox = json!({
            "metadata": {"name": "a", "namespace": "n", "uid": "u"},
            "spec": {"image": "python", "egress": {"allow": [{"name": "index", "hosts": ["pypi.org", "*.pythonhosted.org"]}, {"name": "api", "hosts": ["api.example"]}]},
                "credentials": [{"name": "key", "env": "KEY", "hosts": ["api.example"], "secretRef": {"name": "s", "key": "k"}}]},
            "status": {"phase": "Pending", "expiresAt": "2026-01-01T01:00:00Z", "conditions": [
                {"type": "RuntimeAvailable", "status": "False", "reason": "NoEligibleNode", "message": "no node\u{1b}[2J fits", "lastTransitionTime": "2026-01-01T00:00:00Z"},
            ]},
        });
        let sandbox: crate::api::AgentSandbox = serde_json::from_value(sandbox).unwrap();
        let refused = Told {
            reason: "EgressRefused".into(),
            message: "evil.example was not reached".into(),
            source: "glovebox-gateway".into(),
            count: 3,
            last: serde_json::from_value(json!("2026-01-01T00:09:00Z")).unwrap(),
        };
        let reach = vec![Source { policy: None, rules: sandbox.spec.egress.allow.clone() }];
        Described {
            sandbox,
            reach,
            refused: vec![refused],
            events: vec![],
            unknown: vec!["EgressPolicy x: you may not".into()],
        }
    }

    #[test]
    fn a_person_learns_why() {
        let view = View::new("2026-01-01T00:10:00Z".parse().unwrap(), Colours(false));
        let shown = view.all(&described());
        for part in [
            "Takes calls:   not yet: Pending, NoEligibleNode: no node\\u{1b}[2J fits",
            "Command:       none: it waits for calls",
            "Ends:          in 50m (2026-01-01T01:00:00Z)",
            "index   its own   pypi.org, *.pythonhosted.org   443     TLS        -",
            "api     its own   api.example                    443     HTTPS      -",
            "key          api.example   Authorization   key \"k\" of Secret \"s\"   KEY",
            "1m     3       EgressRefused   evil.example was not reached",
            "RuntimeAvailable   False    NoEligibleNode   10m",
            "Not known: EgressPolicy x: you may not",
        ] {
            assert!(shown.contains(part), "{part:?} is not in\n{shown}");
        }
        assert!(text::is_plain(&shown));
    }

    #[test]
    fn who_may_nothing_is_told_so() {
        let mut described = described();
        described.reach.clear();
        described.refused.clear();
        described.sandbox.status = None;
        let shown = View::new(Timestamp::UNIX_EPOCH, Colours(false)).all(&described);
        for part in [
            "nothing: it has no rule",
            "nothing that is still remembered",
            "the controller has not looked at it yet",
        ] {
            assert!(shown.contains(part), "{shown}");
        }
    }
}
