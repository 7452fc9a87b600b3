//! A command that is spoken with while it runs, over a WebSocket: input, a terminal and its size, signals. Who, whether they may and
//! what for are asked as for any other call.
//!
//! Messages: the client's first is the request; then what is binary is standard input, and what is text an [`ExecControl`]. The
//! session sends output as binary messages, whose first byte says of which stream, and at last a text: a result or an error.
//!
//! Must keep no more of what one side says than one message until the other has taken it.

use std::{sync::Arc, time::Duration};

use axum::{
    body::Bytes,
    extract::{
        FromRequestParts as _, WebSocketUpgrade,
        ws::{CloseFrame, Message, WebSocket, close_code},
    },
    http::{header, request::Parts},
    response::Response,
};
use futures::{
    SinkExt as _, StreamExt as _,
    stream::{SplitSink, SplitStream},
};
use tokio::{
    sync::{Mutex, OwnedSemaphorePermit, mpsc},
    time::{interval, timeout},
};

use super::{
    api::{ExecControl, ExecLine, STDERR, STDOUT},
    directory::Place,
    exec::STREAMED,
    input::{Input, Word},
    output::{Gone, Output, Stream},
    problem::{Problem, Reason},
    request::{self, Way},
    reviews::{Right, User},
    routes::App,
    runner::Job,
};
use crate::call::MOST_PAYLOAD;

/// Longest message of a client: a request with all its words.
const MOST_MESSAGE: usize = MOST_PAYLOAD;
/// A client is asked so often whether it is still there.
const PING: Duration = Duration::from_secs(20);
/// Who has not even said so for as long is gone.
const SILENT: Duration = Duration::from_secs(60);
/// How long a client has to read the last message before the connection is closed.
const LINGER: Duration = Duration::from_secs(2);

/// A connection's place among those that there may be. What goes on after its request keeps it.
#[derive(Clone, Debug)]
pub(super) struct Seat {
    _place: Arc<OwnedSemaphorePermit>,
}

impl Seat {
    pub(super) fn new(place: OwnedSemaphorePermit) -> Self {
        Self { _place: Arc::new(place) }
    }
}

type Sink = Mutex<SplitSink<WebSocket, Message>>;

/// Takes a connection over.
pub(super) async fn serve(app: &Arc<App>, at: Place, parts: &mut Parts) -> Result<Response, Problem> {
    let user = app.reviewer.who(parts).await?;
    app.may(&user, Right::Exec, &at).await?;
    app.is_open()?;
    // A page in a browser may open one anywhere, and the browser shows a client certificate unasked.
    if parts.headers.contains_key(header::ORIGIN) && !parts.headers.contains_key(header::AUTHORIZATION) {
        let message = "a request of a web page needs a token; a certificate alone does not tell who began it";
        return Err(Problem::new(Reason::InvalidRequest, message).about("Origin"));
    }
    let upgrade = WebSocketUpgrade::from_request_parts(parts, &()).await.map_err(|_| {
        let message = "GET of this path is a WebSocket (Connection: Upgrade, Upgrade: websocket, version 13); POST has a command run without one";
        Problem::new(Reason::InvalidRequest, message)
    })?;
    let seat = parts.extensions.get::<Seat>().cloned();
    let app = app.clone();
    Ok(upgrade.max_message_size(MOST_MESSAGE).max_frame_size(MOST_MESSAGE).on_upgrade(move |socket| {
        let tasks = app.tasks.clone();
        tasks.track_future(async move {
            let _seat = seat;
            conversation(&app, at, user, socket).await;
        })
    }))
}

/// From the request to the last word.
async fn conversation(app: &App, at: Place, user: Arc<User>, socket: WebSocket) {
    let (sink, mut stream) = socket.split();
    let sink = Mutex::new(sink);
    let Some(last) = called(app, at, user, &sink, &mut stream).await else { return };
    let said = async {
        let text = serde_json::to_string(&last).map_err(axum::Error::new)?;
        let closing = CloseFrame { code: close_code::NORMAL, reason: "".into() };
        let mut sink = sink.lock().await;
        sink.send(Message::Text(text.into())).await?;
        sink.send(Message::Close(Some(closing))).await?;
        drop(sink);
        // Closed with bytes unread, the connection would be reset, and what was said last be lost.
        while let Some(Ok(_)) = stream.next().await {}
        Ok::<_, axum::Error>(())
    };
    if !matches!(timeout(app.runner.timing.stalled.min(LINGER), said).await, Ok(Ok(()))) {
        tracing::debug!("a client did not hear the end");
    }
}

/// The call, until it ends or its client is gone, which leaves nobody to tell.
async fn called(
    app: &App,
    at: Place,
    user: Arc<User>,
    sink: &Sink,
    stream: &mut SplitStream<WebSocket>,
) -> Option<ExecLine> {
    let asked = match timeout(app.runner.timing.body, first(stream)).await {
        Ok(asked) => asked?,
        Err(_) => {
            return Some(ExecLine::Error(Problem::new(Reason::TooSlow, "no request came; send it first")));
        }
    };
    let admitted = job(app, at, user, &asked).and_then(|job| Ok((app.room(&job.at.0, STREAMED)?, job)));
    let (_room, job) = match admitted {
        Ok(admitted) => admitted,
        Err(problem) => return Some(ExecLine::Error(problem)),
    };
    let (words, heard) = mpsc::channel(1);
    let (mut input, mut output) = (Said(heard), Messages(sink));
    tokio::select! {
        biased;
        ended = app.runner.run(&job, &mut input, &mut output) => Some(match ended {
            Ok(result) => ExecLine::Result(result),
            Err(failed) => ExecLine::Error(failed.problem),
        }),
        problem = listen(stream, words) => problem.map(ExecLine::Error),
        () = ping(sink) => None,
    }
}

/// The request; nothing from a client that went away.
async fn first(stream: &mut SplitStream<WebSocket>) -> Option<Bytes> {
    loop {
        match stream.next().await?.ok()? {
            Message::Text(text) => return Some(text.into()),
            Message::Binary(bytes) => return Some(bytes),
            Message::Ping(_) | Message::Pong(_) => {}
            Message::Close(_) => return None,
        }
    }
}

fn job(app: &App, at: Place, user: Arc<User>, asked: &[u8]) -> Result<Job, Problem> {
    let wanted = request::read(asked, app.new_id()?, &app.bounds(&at), Way::Live)?;
    let target = app.runner.directory.target(&at)?;
    Ok(Job { at, target, user, wanted })
}

/// Passes on what the client says. Ends when it is gone, or has said what can't be understood.
async fn listen(stream: &mut SplitStream<WebSocket>, words: mpsc::Sender<Word>) -> Option<Problem> {
    loop {
        // While the command takes no input, the client is not listened to, and need not be heard.
        let Ok(Some(Ok(message))) = timeout(SILENT, stream.next()).await else { return None };
        let word = match message {
            Message::Binary(bytes) if bytes.is_empty() => continue,
            Message::Binary(bytes) => Word::Input(bytes),
            Message::Text(text) => match control(&text) {
                Ok(word) => word,
                Err(problem) => return Some(problem),
            },
            Message::Ping(_) | Message::Pong(_) => continue,
            Message::Close(_) => return None,
        };
        if words.send(word).await.is_err() {
            // The call ends, and says so itself.
            return std::future::pending().await;
        }
    }
}

fn control(text: &str) -> Result<Word, Problem> {
    let said = serde_json::from_str(text).map_err(|error| {
        let message = format!("expected resize, signal or endOfInput, see docs/session.md: {error}");
        Problem::new(Reason::InvalidRequest, message)
    })?;
    match said {
        ExecControl::Resize(terminal) => Ok(Word::Resize(terminal.into())),
        ExecControl::Signal(number) if (1..=64).contains(&number) => Ok(Word::Signal(number)),
        ExecControl::Signal(_) => Err(Problem::field("signal", "expected a number from 1 to 64")),
        ExecControl::EndOfInput {} => Ok(Word::End),
    }
}

/// Asks the client whether it is there; ends when it can't be asked.
async fn ping(sink: &Sink) {
    let mut beat = interval(PING);
    beat.tick().await;
    loop {
        beat.tick().await;
        if sink.lock().await.send(Message::Ping(Bytes::new())).await.is_err() {
            return;
        }
    }
}

/// What a client says.
struct Said(mpsc::Receiver<Word>);

impl Input for Said {
    async fn next(&mut self) -> Option<Word> {
        self.0.recv().await
    }
}

/// Output as messages.
struct Messages<'a>(&'a Sink);

impl Output for Messages<'_> {
    async fn started(&mut self) -> Result<(), Gone> {
        Ok(())
    }

    async fn take(&mut self, stream: Stream, mut bytes: Vec<u8>) -> Result<(), Gone> {
        bytes.insert(0, if stream == Stream::Out { STDOUT } else { STDERR });
        self.0.lock().await.send(Message::Binary(bytes.into())).await.map_err(|_| Gone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::Size;

    #[test]
    fn what_is_said_on_the_way_is_read_strictly() {
        let size = Size { rows: 24, columns: 80 };
        assert_eq!(control(r#"{"resize":{"rows":24,"columns":80}}"#).unwrap(), Word::Resize(size));
        assert_eq!(control(r#"{"signal":2}"#).unwrap(), Word::Signal(2));
        assert_eq!(control(r#"{"endOfInput":{}}"#).unwrap(), Word::End);
        for text in [
            "",
            "{}",
            r#"{"signal":0}"#,
            r#"{"signal":65}"#,
            r#"{"signal":2,"resize":{"rows":1,"columns":1}}"#,
            r#"{"resize":{"rows":24}}"#,
            r#"{"endOfInput":{"x":1}}"#,
            r#"{"command":["true"]}"#,
        ] {
            assert_eq!(control(text).unwrap_err().reason, Reason::InvalidRequest, "{text}");
        }
    }
}
