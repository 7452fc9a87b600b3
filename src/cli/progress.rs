//! What is told on standard error while something takes its time: one line that changes on a terminal, a line for each change
//! elsewhere.

use std::io::{IsTerminal as _, Write as _};

use super::text;

/// Longest line that is rewritten, in characters: one that wraps can't be.
const MOST: usize = 100;

/// Says something for good. Whoever closed standard error does not want to know.
pub(super) fn say(escaped: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{escaped}");
}

/// A line that changes.
#[derive(Debug)]
pub(super) struct Progress {
    terminal: bool,
    quiet: bool,
    last: String,
}

impl Progress {
    /// Nothing is said yet; nothing ever, if it is to be quiet.
    pub(super) fn new(quiet: bool) -> Self {
        Self { terminal: std::io::stderr().is_terminal(), quiet, last: String::new() }
    }

    /// Says where it stands.
    pub(super) fn tell(&mut self, words: &str) {
        let mut words = text::line(words);
        if self.quiet || words == self.last {
            return;
        }
        if self.terminal {
            if let Some((end, _)) = words.char_indices().nth(MOST) {
                words.truncate(end);
            }
            let mut out = std::io::stderr().lock();
            let _ = write!(out, "\r\x1b[K{words}").and_then(|()| out.flush());
        } else {
            say(&words);
        }
        self.last = words;
    }

    /// Leaves no trace on a terminal.
    pub(super) fn clear(&mut self) {
        if self.terminal && !self.last.is_empty() {
            let mut out = std::io::stderr().lock();
            let _ = write!(out, "\r\x1b[K").and_then(|()| out.flush());
        }
        self.last.clear();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}
