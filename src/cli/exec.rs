//! `exec`: a command in a sandbox that is there; and the call itself, which `run` has too.

use std::{
    io::{self, Read as _},
    pin::pin,
    time::Duration,
};

use anyhow::Context as _;
use futures::StreamExt as _;
use tokio::io::{AsyncWrite, AsyncWriteExt as _};

use super::{
    cluster::Cluster,
    fault::{self, Fault, Outcome},
    interrupt::Signals,
    lines::Said,
    options::{CallOptions, ClusterOptions, SessionOptions},
    progress::say,
    session::Session,
    spec, text,
};
use crate::session::api::{ExecRequest, ExecResult};

/// Most standard input, in bytes: as base64 it must fit into a request of 4 MiB.
const MOST_INPUT: usize = 3_000_000;
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
        "Examples:\n  glovebox exec review-42 -- python -c 'print(6 * 7)'\n  glovebox exec review-42 --timeout 30s --cwd /workspace -- make test\n  echo hello | glovebox exec review-42 -i -- wc -c\n\n{}",
        fault::CODES
    )
}

/// Carries it out.
pub(super) async fn exec(options: Options) -> Outcome {
    spec::check(&options.call)?;
    let mut signals = Signals::catch()?;
    signals
        .unless(async {
            let input = input(&options.call).await?;
            let cluster = Cluster::open(&options.cluster).await?;
            let request = spec::call(&options.command, &options.call, input.as_deref());
            let mut session = Session::open(&cluster, &options.session).await?;
            call(&mut session, &cluster.namespace, &options.name, &request).await
        })
        .await
}

/// Standard input to its end, if it is wanted.
pub(super) async fn input(options: &CallOptions) -> anyhow::Result<Option<Vec<u8>>> {
    if !options.stdin {
        return Ok(None);
    }
    let read = || {
        let mut bytes = Vec::new();
        io::stdin().lock().take(MOST_INPUT as u64 + 1).read_to_end(&mut bytes).map(|_| bytes)
    };
    let bytes = tokio::task::spawn_blocking(read).await?.context("standard input")?;
    if bytes.len() > MOST_INPUT {
        let message = format!(
            "standard input has more than {MOST_INPUT} bytes, which is the most that a call takes; put it into the image, or let the command fetch it"
        );
        return Err(Fault::usage(message));
    }
    Ok(Some(bytes))
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
                Said::Wrong(problem) => {
                    anyhow::bail!("the call went wrong: {} ({})", problem.message, problem.reason)
                }
            }
        }
    }
    anyhow::bail!("the session hung up before the command had ended; it was killed, or will be soon")
}

async fn write(stream: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> anyhow::Result<()> {
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

fn end(result: &ExecResult) -> u8 {
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
