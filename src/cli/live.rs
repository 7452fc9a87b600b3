//! A command that is spoken with while it runs: standard input as it is typed, a terminal and its size, over a WebSocket of the
//! session.
//!
//! Must leave the caller's terminal as it was, however the command ends.

use std::{
    io::{self, IsTerminal as _},
    pin::pin,
};

use anyhow::{Context as _, ensure};
use futures::{Sink, SinkExt as _, StreamExt as _};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use tokio::{
    io::AsyncReadExt as _,
    signal::unix::{Signal, SignalKind, signal},
};
use tokio_tungstenite::tungstenite::{self, Message};

use super::{
    cluster::Cluster,
    exec::{end, write},
    fault::{Fault, Outcome},
    lines::{Said, read},
    options::SessionOptions,
    session::{self, HUNG_UP, Talk},
};
use crate::session::api::{ExecControl, ExecRequest, STDERR, Terminal};

/// What is read at once of standard input.
const CHUNK: usize = 32 * 1024;
/// The size of the caller's terminal, which there must be.
pub(super) fn terminal() -> anyhow::Result<Terminal> {
    let message =
        "-t needs a terminal on standard input and output; leave it out where these are files or pipes";
    ensure!(io::stdin().is_terminal() && io::stdout().is_terminal(), Fault::usage(message));
    size().context("the terminal does not say its size")
}

fn size() -> io::Result<Terminal> {
    let size = tcgetwinsize(io::stdin())?;
    Ok(Terminal { rows: size.ws_row.max(1), columns: size.ws_col.max(1) })
}

/// The caller's terminal, raw as long as this lives: each key is the command's.
struct Raw(Termios);

impl Raw {
    fn begin() -> anyhow::Result<Self> {
        let before = tcgetattr(io::stdin()).context("the terminal can't be asked")?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(io::stdin(), OptionalActions::Flush, &raw).context("the terminal can't be made raw")?;
        Ok(Self(before))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // There is nobody to tell.
        let _ = tcsetattr(io::stdin(), OptionalActions::Flush, &self.0);
    }
}

/// Has a command run, hands on what both sides say until it ends, and gives the code to end with.
pub(super) async fn call(
    cluster: &Cluster,
    options: &SessionOptions,
    name: &str,
    request: &ExecRequest,
) -> Outcome {
    let talk = session::live(cluster, options, name, request).await?;
    let terminal = request.terminal.is_some();
    // What carries it lives as long as it is spoken with.
    let Talk { socket, forward: _forward } = talk;
    let (sink, mut said) = socket.split();
    let raw = terminal.then(Raw::begin).transpose()?;
    let mut told = pin!(tell(sink, terminal));
    let (mut out, mut err) = (tokio::io::stdout(), tokio::io::stderr());
    let result = loop {
        let message = tokio::select! {
            biased;
            message = said.next() => message,
            failed = &mut told => {
                failed?;
                continue;
            }
        };
        match message.context(HUNG_UP)?.context(HUNG_UP)? {
            Message::Binary(bytes) => match bytes.split_first() {
                Some((&STDERR, bytes)) => write(&mut err, bytes).await?,
                Some((_, bytes)) => write(&mut out, bytes).await?,
                None => {}
            },
            Message::Text(text) => match read(text.as_bytes())? {
                Said::Ended(result) => break result,
                Said::Wrong(problem) => return Err(problem.into()),
                Said::Out(_) | Said::Err(_) => anyhow::bail!("the session says what belongs elsewhere"),
            },
            Message::Close(_) => anyhow::bail!(HUNG_UP),
            Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => {}
        }
    };
    drop(raw);
    Ok(end(&result))
}

/// Standard input and the terminal's size, as they come. Ends only by an error: of a session that hung up, the reader learns.
async fn tell<S>(mut sink: S, terminal: bool) -> anyhow::Result<()>
where
    S: Sink<Message, Error = tungstenite::Error> + Unpin,
{
    let mut resized: Option<Signal> = terminal.then(|| signal(SignalKind::window_change())).transpose()?;
    let mut input = tokio::io::stdin();
    let mut buffer = vec![0; CHUNK];
    let mut open = true;
    loop {
        let changed = async {
            match &mut resized {
                Some(signal) => signal.recv().await,
                None => std::future::pending().await,
            }
        };
        let message = tokio::select! {
            read = input.read(&mut buffer), if open => match read.context("standard input")? {
                0 => {
                    open = false;
                    control(ExecControl::EndOfInput {})?
                }
                read => Message::binary(buffer.get(..read).unwrap_or_default().to_vec()),
            },
            _ = changed => control(ExecControl::Resize(size()?))?,
        };
        if sink.send(message).await.is_err() {
            return std::future::pending().await;
        }
    }
}

fn control(said: ExecControl) -> anyhow::Result<Message> {
    Ok(Message::text(serde_json::to_string(&said)?))
}
