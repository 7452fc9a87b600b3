//! `exec`: a command in a sandbox that is there; and the call itself, which `run` has too.

use std::{io, pin::pin, time::Duration};

use futures::StreamExt as _;
use tokio::io::{AsyncWrite, AsyncWriteExt as _};

use super::{
    cluster::Cluster,
    fault::{self, Fault, Outcome},
    interrupt::Signals,
    lines::Said,
    live,
    options::{CallOptions, ClusterOptions, SessionOptions},
    progress::say,
    session::{HUNG_UP, Session},
    spec, text,
};
use crate::session::api::{ExecRequest, ExecResult};

/// How long the session may take to learn of a sandbox that is ready.
pub(super) const LEARNT: Duration = Duration::from_secs(15);
/// What writing to a pipe that nobody reads ends a program by.
const SIGPIPE: u8 = 13;

/// Runs a command in a sandbox that is there, and ends as it ended.
///
/// What the command writes comes out as it is written, byte by byte, on the stream that it was written to. Ctrl-C ends the
/// command, and all that it has started.
#[derive(clap::Args, Debug)]
#[command(after_help = examples())]
pub struct Options {
    /// The sandbox.
    name: String,
    /// The command and its arguments, looked up in the sandbox's PATH. No shell stands between.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
    #[command(flatten)]
    call: CallOptions,
    #[command(flatten)]
    cluster: ClusterOptions,
    #[command(flatten)]
    session: SessionOptions,
}

fn examples() -> String {
    format!(
        "Examples:\n  glovebox exec review-42 -- python -c 'print(6 * 7)'\n  glovebox exec review-42 --timeout 30s --cwd /workspace -- make test\n  echo hello | glovebox exec review-42 -i -- wc -c\n  glovebox exec review-42 -it -- bash\n\n{}",
        fault::CODES
    )
}

/// Carries it out.
pub(super) async fn exec(options: Options) -> Outcome {
    let Options { name, command, call: asked, cluster, session } = &options;
    let request = request(command, asked)?;
    Signals::catch()?
        .unless(async {
            let cluster = Cluster::open(cluster).await?;
            if asked.live() {
                return live::call(&cluster, session, name, &request).await;
            }
            let mut session = Session::open(&cluster, session).await?;
            call(&mut session, &cluster.namespace, name, &request).await
        })
        .await
}

/// What the session is asked.
pub(super) fn request(command: &[String], options: &CallOptions) -> anyhow::Result<ExecRequest> {
    let terminal = options.tty.then(live::terminal).transpose()?;
    Ok(spec::call(command, options, terminal))
}

/// Has a command run, hands its output on, and gives the code to end with.
pub(super) async fn call(
    session: &mut Session,
    namespace: &str,
    name: &str,
    request: &ExecRequest,
) -> Outcome {
    let mut pieces = pin!(session.exec(namespace, name, request).await?);
    let (mut out, mut err) = (tokio::io::stdout(), tokio::io::stderr());
    while let Some(piece) = pieces.next().await {
        for said in piece? {
            match said {
                Said::Out(bytes) => write(&mut out, &bytes).await?,
                Said::Err(bytes) => write(&mut err, &bytes).await?,
                Said::Ended(result) => return Ok(end(&result)),
                Said::Wrong(problem) => return Err(problem.into()),
            }
        }
    }
    anyhow::bail!(HUNG_UP)
}

pub(super) async fn write(stream: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> anyhow::Result<()> {
    let written = async {
        stream.write_all(bytes).await?;
        stream.flush().await
    };
    written.await.map_err(|error| match error.kind() {
        // Whoever read has had enough.
        io::ErrorKind::BrokenPipe => Fault::signal(SIGPIPE),
        _ => anyhow::Error::new(error).context("the output can't be written; the command was ended"),
    })
}

pub(super) fn end(result: &ExecResult) -> u8 {
    if result.truncated {
        let total = result.stdout_bytes + result.stderr_bytes;
        say(&format!(
            "glovebox: the command wrote {total} bytes, and some of them were dropped; --max-output hands on more"
        ));
    }
    let (code, words) = fault::ended(result);
    if let Some(words) = words {
        say(&format!("glovebox: {}", text::line(&words)));
    }
    code
}
