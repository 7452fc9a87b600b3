//! `run`: a sandbox for one command. Whatever happens, the sandbox is deleted: at the end, on an error, and on a signal. What kills
//! this program at once leaves it to its time to live.

use std::time::Duration;

use anyhow::Context as _;
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, PostParams, Preconditions},
};
use tokio::time::timeout;

use super::{
    cluster::{Cluster, explained},
    create::{self, names},
    exec::{self, LEARNT},
    fault::{self, Outcome},
    interrupt::Signals,
    live,
    options::{CallOptions, ClusterOptions, SandboxOptions, SessionOptions},
    progress::{Progress, say},
    session::Session,
    spec::{self, Draft},
    wait,
};
use crate::{
    api::{AgentSandbox, Span},
    session::api::ExecRequest,
};

/// How long is tried to delete the sandbox.
const DELETED: Duration = Duration::from_secs(15);
/// How long a command may take that does not say it.
const PATIENCE: Span = Span::from_secs(600);

/// Runs a command in a sandbox of its own, which is gone afterwards, and ends as the command ended.
///
/// Makes a sandbox, waits until it is fenced and ready, runs the command with its output as it comes, and deletes the sandbox: also
/// on Ctrl-C. The command reaches no host but those of --allow.
#[derive(clap::Args, Debug)]
#[command(after_help = examples())]
pub struct Options {
    /// Image to run the command in.
    image: String,
    /// The command and its arguments, looked up in the image's PATH. No shell stands between.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
    /// Leave the sandbox, and say its name.
    #[arg(long)]
    keep: bool,
    /// Say nothing while the sandbox starts.
    #[arg(short, long)]
    quiet: bool,
    /// How long the sandbox may take to start.
    #[arg(long, value_name = "DURATION", default_value = "5m")]
    start_timeout: Span,
    #[command(flatten)]
    sandbox: SandboxOptions,
    #[command(flatten)]
    call: CallOptions,
    #[command(flatten)]
    cluster: ClusterOptions,
    #[command(flatten)]
    session: SessionOptions,
}

fn examples() -> String {
    format!(
        "Examples:\n  glovebox run python:3.14-slim -- python -c 'print(6 * 7)'\n  glovebox run --allow pypi.org --allow files.pythonhosted.org python:3.14-slim -- pip download requests\n  cat suspicious.sh | glovebox run -i --timeout 1m debian:stable-slim -- sh\n\n{}",
        fault::CODES
    )
}

/// Carries it out.
pub(super) async fn run(options: Options) -> Outcome {
    let request = exec::request(&options.command, &options.call)?;
    let mut signals = Signals::catch()?;
    let cluster = signals.unless(Cluster::open(&options.cluster)).await?;
    let name = names::random("run")?;
    let draft =
        Draft { name: &name, namespace: &cluster.namespace, image: &options.image, ..Draft::default() };
    let api: Api<AgentSandbox> = cluster.here();
    // Not given up midway: whether it was made would not be known.
    let made = api.create(&PostParams::default(), &spec::sandbox(&draft, &options.sandbox)?).await;
    let made = made.map_err(|error| create::refused(error, &name))?;
    let outcome = Box::pin(signals.unless(inside(&options, &cluster, &made, request))).await;
    if options.keep {
        say(&format!("glovebox: sandbox {name} stays; `glovebox delete {name}` ends it"));
        return outcome;
    }
    if let Err(error) = signals.unless(remove(&api, &made)).await {
        say(&format!(
            "glovebox: sandbox {name} is left, and ends by its time to live: {}",
            super::text::line(&format!("{error:#}"))
        ));
    }
    outcome
}

async fn inside(options: &Options, cluster: &Cluster, made: &AgentSandbox, request: ExecRequest) -> Outcome {
    let name = made.name_any();
    let mut progress = Progress::new(options.quiet);
    progress.tell(&format!("sandbox {name} is made"));
    let patience = options.start_timeout.duration();
    let ready =
        wait::ready(cluster.here(), &name, made.metadata.uid.as_deref(), patience, &mut progress).await?;
    let mut session = Session::open(cluster, &options.session).await?;
    session.ready(&cluster.namespace, &name, LEARNT).await?;
    let request = unhurried(request, &ready);
    if options.call.live() {
        return live::call(cluster, &options.session, &name, &request).await;
    }
    exec::call(&mut session, &cluster.namespace, &name, &request).await
}

/// A command that is all that a sandbox is for may take its time and say what it has to, as far as the class allows.
fn unhurried(mut call: ExecRequest, ready: &AgentSandbox) -> ExecRequest {
    if let Some(held) = ready.status.as_ref().and_then(|status| status.execution.as_ref()) {
        call.timeout.get_or_insert_with(|| held.max_timeout.min(PATIENCE));
        call.max_output_bytes.get_or_insert_with(|| held.max_output_bytes.clone());
    }
    call
}

/// Deletes this sandbox, and no other of its name.
async fn remove(api: &Api<AgentSandbox>, made: &AgentSandbox) -> anyhow::Result<()> {
    let this = Preconditions { uid: made.uid(), resource_version: None };
    let params = DeleteParams { preconditions: Some(this), ..DeleteParams::default() };
    let name = made.name_any();
    let gone =
        timeout(DELETED, api.delete(&name, &params)).await.context("the API server does not answer")?;
    match gone {
        // Somebody else has deleted it, or made another one since.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        Err(error) => Err(explained(error, "deleting it")),
        Ok(_) => Ok(()),
    }
}
