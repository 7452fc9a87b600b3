//! Where a call's output goes: into one answer, or line by line to a client that reads at its own pace.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use tokio::sync::mpsc;

use super::api::ExecLine;

/// Which of a command's streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stream {
    Out,
    Err,
}

/// Nobody takes the output any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gone;

/// Takes what comes, and lets whoever brings it wait.
pub(super) trait Output: Send {
    /// The command runs.
    fn started(&mut self) -> impl Future<Output = Result<(), Gone>> + Send;

    /// It wrote this.
    fn take(&mut self, stream: Stream, bytes: Vec<u8>) -> impl Future<Output = Result<(), Gone>> + Send;
}

/// All of it. Bounded by whoever brings it.
#[derive(Debug, Default)]
pub(super) struct Collected {
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: Vec<u8>,
}

impl Output for Collected {
    async fn started(&mut self) -> Result<(), Gone> {
        Ok(())
    }

    async fn take(&mut self, stream: Stream, bytes: Vec<u8>) -> Result<(), Gone> {
        match stream {
            Stream::Out => self.stdout.extend_from_slice(&bytes),
            Stream::Err => self.stderr.extend_from_slice(&bytes),
        }
        Ok(())
    }
}

/// One of both: text where it is UTF-8, base64 where it is not.
pub(super) fn text_or_base64(mut bytes: Vec<u8>, truncated: bool) -> (Option<String>, Option<String>) {
    if truncated {
        // A character that was cut in two at the limit makes no text something else.
        bytes.truncate(bytes.len() - unfinished(&bytes));
    }
    match String::from_utf8(bytes) {
        Ok(text) => (Some(text), None),
        Err(error) => (None, Some(STANDARD.encode(error.as_bytes()))),
    }
}

/// How many bytes at the end are the beginning of a character.
fn unfinished(bytes: &[u8]) -> usize {
    match std::str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() => bytes.len() - error.valid_up_to(),
        _ => 0,
    }
}

/// What a client that streams is told.
#[derive(Debug)]
pub(super) enum Event {
    /// The command runs.
    Started,
    /// A line.
    Line(ExecLine),
    /// The last line.
    Last(ExecLine),
}

/// Line by line.
#[derive(Debug)]
pub(super) struct Lines {
    events: mpsc::Sender<Event>,
    /// The beginning of a character whose end has not come yet, of each stream.
    begun: [Vec<u8>; 2],
}

impl Lines {
    pub(super) fn new(events: mpsc::Sender<Event>) -> Self {
        Self { events, begun: Default::default() }
    }

    async fn send(&self, event: Event) -> Result<(), Gone> {
        self.events.send(event).await.map_err(|_| Gone)
    }

    /// What came of characters that were never whole, and the last line.
    pub(super) async fn end(mut self, last: ExecLine) -> Result<(), Gone> {
        for stream in [Stream::Out, Stream::Err] {
            let begun = std::mem::take(&mut self.begun[stream as usize]);
            if !begun.is_empty() {
                self.send(Event::Line(line(stream, Err(begun)))).await?;
            }
        }
        self.send(Event::Last(last)).await
    }
}

impl Output for Lines {
    async fn started(&mut self) -> Result<(), Gone> {
        self.send(Event::Started).await
    }

    async fn take(&mut self, stream: Stream, bytes: Vec<u8>) -> Result<(), Gone> {
        let begun = &mut self.begun[stream as usize];
        let mut bytes = if begun.is_empty() { bytes } else { [std::mem::take(begun), bytes].concat() };
        *begun = bytes.split_off(bytes.len() - unfinished(&bytes));
        if bytes.is_empty() {
            return Ok(());
        }
        let text = String::from_utf8(bytes).map_err(std::string::FromUtf8Error::into_bytes);
        self.send(Event::Line(line(stream, text))).await
    }
}

fn line(stream: Stream, text: Result<String, Vec<u8>>) -> ExecLine {
    match (stream, text) {
        (Stream::Out, Ok(text)) => ExecLine::Stdout(text),
        (Stream::Out, Err(bytes)) => ExecLine::StdoutBase64(STANDARD.encode(bytes)),
        (Stream::Err, Ok(text)) => ExecLine::Stderr(text),
        (Stream::Err, Err(bytes)) => ExecLine::StderrBase64(STANDARD.encode(bytes)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::session::{Problem, Reason};

    #[test]
    fn what_is_no_text_is_base64() {
        let text = |text: &str| (Some(text.to_owned()), None);
        assert_eq!(text_or_base64(b"a\n".to_vec(), false), text("a\n"));
        assert_eq!(text_or_base64(Vec::new(), true), text(""));
        assert_eq!(text_or_base64(b"a\xff".to_vec(), true), (None, Some("Yf8=".into())));
        assert_eq!(text_or_base64(b"a\xc3".to_vec(), false), (None, Some("YcM=".into())));
        assert_eq!(text_or_base64(b"a\xc3".to_vec(), true), text("a"));
    }

    /// Lines put together again.
    async fn through(pieces: Vec<Vec<u8>>) -> (Vec<u8>, bool) {
        let (sender, mut events) = mpsc::channel(1000);
        let mut lines = Lines::new(sender);
        for piece in pieces {
            lines.take(Stream::Out, piece).await.unwrap();
        }
        lines.end(ExecLine::Error(Problem::new(Reason::Internal, ""))).await.unwrap();
        let (mut bytes, mut all_text) = (Vec::new(), true);
        while let Some(event) = events.recv().await {
            match event {
                Event::Line(ExecLine::Stdout(text)) => bytes.extend(text.into_bytes()),
                Event::Line(ExecLine::StdoutBase64(text)) => {
                    all_text = false;
                    bytes.extend(STANDARD.decode(text).unwrap());
                }
                Event::Last(_) => {}
                other => panic!("{other:?}"),
            }
        }
        (bytes, all_text)
    }

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
    }

    proptest! {
        #[test]
        fn nothing_is_lost_in_lines(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..6), 0..30)) {
            let want = pieces.concat();
            prop_assert_eq!(block_on(through(pieces)).0, want);
        }

        #[test]
        fn text_stays_text_however_it_is_split(text in "[aä€𝄞]{0,30}", size in 1..5_usize) {
            let pieces = text.as_bytes().chunks(size).map(<[u8]>::to_vec).collect();
            prop_assert_eq!(block_on(through(pieces)), (text.into_bytes(), true));
        }
    }
}
