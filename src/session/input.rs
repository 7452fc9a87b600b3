//! What a command is told while it runs: what was there from the beginning, or what its client says at its own pace.

use axum::body::Bytes;

use super::{agent::INPUT_CHUNK, request::Wanted};
use crate::call::Size;

/// One thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// For standard input.
    Input(Bytes),
    /// Standard input ends.
    End,
    /// A signal for the command's process group.
    Signal(u8),
    /// The terminal has another size.
    Resize(Size),
}

/// Gives what comes next, and waits until there is something.
pub(super) trait Input: Send {
    /// The next; none when nothing will come any more.
    fn next(&mut self) -> impl Future<Output = Option<Word>> + Send;
}

/// Standard input that is there as a whole, and its end.
#[derive(Debug)]
pub(super) struct Whole(Option<Bytes>);

impl Whole {
    /// That of a call; nothing at all where it has none.
    pub(super) fn of(wanted: &Wanted) -> Self {
        Self::new(wanted.exec.stdin.then(|| wanted.stdin.clone()))
    }

    /// These bytes; without any, not even an end.
    pub(super) const fn new(bytes: Option<Bytes>) -> Self {
        Self(bytes)
    }
}

impl Input for Whole {
    async fn next(&mut self) -> Option<Word> {
        let rest = self.0.as_mut()?;
        if rest.is_empty() {
            self.0 = None;
            return Some(Word::End);
        }
        Some(Word::Input(rest.split_to(rest.len().min(INPUT_CHUNK))))
    }
}
