//! Arguments that several commands have.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::api::{Quantity, Span};

/// Which cluster.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Cluster")]
pub(super) struct ClusterOptions {
    /// Kubeconfig in place of $KUBECONFIG, ~/.kube/config or the pod's own account.
    #[arg(long, value_name = "FILE")]
    pub(super) kubeconfig: Option<PathBuf>,
    /// Context of it in place of the current one.
    #[arg(long, value_name = "NAME")]
    pub(super) context: Option<String>,
    /// Namespace in place of the context's.
    #[arg(short, long, value_name = "NAME")]
    pub(super) namespace: Option<String>,
}

/// How the session is reached.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Session")]
pub(super) struct SessionOptions {
    /// Address of the session's API. Without it, a session's pod is reached by a port-forward through the API server.
    #[arg(long, env = "GLOVEBOX_SESSION", value_name = "URL")]
    pub(super) session: Option<String>,
    /// Certificates that vouch for the session, as PEM. Without them: those of the ConfigMap glovebox-session-ca, or with --session
    /// those that the web trusts.
    #[arg(long, env = "GLOVEBOX_SESSION_CA", value_name = "FILE")]
    pub(super) session_ca: Option<PathBuf>,
    /// Token for the session in place of what the kubeconfig has, such as one for an audience of its own.
    #[arg(long, env = "GLOVEBOX_SESSION_TOKEN_FILE", value_name = "FILE")]
    pub(super) session_token_file: Option<PathBuf>,
    /// Namespace in which Glovebox is installed. Without it, it is looked for.
    #[arg(long, env = "GLOVEBOX_NAMESPACE", value_name = "NAME")]
    pub(super) glovebox_namespace: Option<String>,
}

/// What a new sandbox is to be.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Sandbox")]
pub(super) struct SandboxOptions {
    /// Class in place of the default one; `kubectl get sandboxclasses` lists them.
    #[arg(long, value_name = "NAME")]
    pub(super) class: Option<String>,
    /// How long it may live at most, whatever happens: 30m, 2h.
    #[arg(long, value_name = "DURATION")]
    pub(super) ttl: Option<Span>,
    /// CPU cores, such as 500m or 2.
    #[arg(long, value_name = "QUANTITY", value_parser = Quantity::parse)]
    pub(super) cpu: Option<Quantity>,
    /// Memory, such as 1Gi.
    #[arg(long, value_name = "QUANTITY", value_parser = Quantity::parse)]
    pub(super) memory: Option<Quantity>,
    /// Size of /workspace, such as 512Mi.
    #[arg(long, value_name = "QUANTITY", value_parser = Quantity::parse)]
    pub(super) workspace: Option<Quantity>,
    /// Host that it may reach by TLS, on port 443 or another one. Repeatable; without it, it reaches nothing.
    #[arg(long, value_name = "HOST[:PORT]", value_parser = allowed)]
    pub(super) allow: Vec<Allowed>,
}

/// What a call is held to.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Call")]
pub(super) struct CallOptions {
    /// After how long the command, and all that it has started, is killed, up to what the sandbox's class allows. Without it: with
    /// run 10m or what the class allows, if that is less; with exec what the sandbox says.
    #[arg(long, value_name = "DURATION")]
    pub(super) timeout: Option<Span>,
    /// Variable for the command. Repeatable.
    #[arg(short, long, value_name = "NAME=VALUE", value_parser = variable)]
    pub(super) env: Vec<(String, String)>,
    /// Directory to start in, in place of the sandbox's own.
    #[arg(long, value_name = "DIR")]
    pub(super) cwd: Option<String>,
    /// How much output is handed over; what comes beyond is dropped, and said. Without it: with run as much as the class allows, with
    /// exec what the sandbox says.
    #[arg(long, value_name = "QUANTITY", value_parser = Quantity::parse)]
    pub(super) max_output: Option<Quantity>,
    /// Hand standard input on to the command, as it comes.
    #[arg(short = 'i', long)]
    pub(super) stdin: bool,
    /// Give the command a terminal, and hand each key on to it. It may take as long as the class allows, unless --timeout says less.
    #[arg(short = 't', long)]
    pub(super) tty: bool,
}

impl CallOptions {
    /// Whether the command is spoken with while it runs.
    pub(super) const fn live(&self) -> bool {
        self.stdin || self.tty
    }
}

/// How a result looks.
#[derive(ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Format {
    /// Columns.
    #[default]
    Table,
    /// More columns.
    Wide,
    /// JSON.
    Json,
    /// YAML.
    Yaml,
    /// Names alone, as other commands take them.
    Name,
}

/// A host and port that a sandbox may reach.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Allowed {
    pub(super) port: u16,
    pub(super) host: String,
}

fn allowed(text: &str) -> Result<Allowed, String> {
    let (host, port) = match text.split_once(':') {
        None => (text, 443),
        Some((host, port)) => {
            let port = port.parse().ok().filter(|port| *port > 0);
            (
                host,
                port.ok_or_else(|| {
                    format!("{text:?}: expected HOST or HOST:PORT; addresses are for spec.egress of a file")
                })?,
            )
        }
    };
    if host.is_empty() || host.contains('/') {
        return Err(format!("{text:?}: expected a host such as pypi.org, without https:// and path"));
    }
    Ok(Allowed { port, host: host.to_owned() })
}

pub(super) fn variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(format!("{text:?}: expected NAME=VALUE")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_read() {
        let of = |host: &str, port| Ok(Allowed { port, host: host.into() });
        assert_eq!(allowed("pypi.org"), of("pypi.org", 443));
        assert_eq!(allowed("*.example.com:8443"), of("*.example.com", 8443));
        for bad in ["", ":443", "a:", "a:0", "a:x", "a:70000", "https://pypi.org", "pypi.org/simple", "::1"] {
            assert!(allowed(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn variables_are_read() {
        assert_eq!(variable("A=b=c"), Ok(("A".into(), "b=c".into())));
        assert_eq!(variable("A="), Ok(("A".into(), String::new())));
        assert!(variable("A").is_err() && variable("=b").is_err());
    }
}
