//! A streamed call as lines of JSON: read piece by piece, bounded, and taken apart. Pure.

use anyhow::{Context as _, bail};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::Deserialize;

use crate::session::api::ExecResult;

/// Longest line, in bytes: several times what a session puts into one.
const MOST: usize = 16 * 1024 * 1024;

/// What a line says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Said {
    Out(Vec<u8>),
    Err(Vec<u8>),
    /// How it ended. Nothing follows.
    Ended(Box<ExecResult>),
    /// It went wrong. Nothing follows.
    Wrong(Problem),
}

/// Why a request was not carried out, in the session's words. Newer sessions may know more reasons.
#[derive(Deserialize, Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the call went wrong: {message} ({reason})")]
pub(super) struct Problem {
    pub(super) reason: String,
    pub(super) message: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
enum Line {
    Stdout(String),
    StdoutBase64(String),
    Stderr(String),
    StderrBase64(String),
    Result(Box<ExecResult>),
    Error(Problem),
}

/// The bytes of a stream that are no whole line yet.
#[derive(Debug, Default)]
pub(super) struct Lines(Vec<u8>);

impl Lines {
    /// Takes a piece; gives the lines that became whole.
    pub(super) fn take(&mut self, piece: &[u8]) -> anyhow::Result<Vec<Said>> {
        let mut said = Vec::new();
        let mut rest = piece;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let (line, after) = rest.split_at(end);
            self.add(line)?;
            said.push(read(&std::mem::take(&mut self.0))?);
            rest = after.get(1..).unwrap_or_default();
        }
        self.add(rest)?;
        Ok(said)
    }

    fn add(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        if self.0.len() + bytes.len() > MOST {
            bail!("the session sends a line without end");
        }
        self.0.extend_from_slice(bytes);
        Ok(())
    }
}

/// One line.
pub(super) fn read(line: &[u8]) -> anyhow::Result<Said> {
    let bytes =
        |text: String| STANDARD.decode(text).ok().context("the session sends output that is no base64");
    let line: Line = serde_json::from_slice(line).ok().context(
        "the session says what this version can't read; use the one that is installed in the cluster",
    )?;
    Ok(match line {
        Line::Stdout(text) => Said::Out(text.into_bytes()),
        Line::Stderr(text) => Said::Err(text.into_bytes()),
        Line::StdoutBase64(text) => Said::Out(bytes(text)?),
        Line::StderrBase64(text) => Said::Err(bytes(text)?),
        Line::Result(result) => Said::Ended(result),
        Line::Error(problem) => Said::Wrong(problem),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::session::api::{ExecLine, Outcome};

    #[test]
    fn lines_are_what_a_session_writes() {
        let result: ExecResult = serde_json::from_str(
            r#"{"id":"a","outcome":"Exited","exitCode":3,"stdoutBytes":1,"stderrBytes":0,"truncated":false,"durationMs":1}"#,
        )
        .unwrap();
        let problem = serde_json::json!({"error": {"reason": "NewReason", "message": "m", "field": "f"}});
        let mut text = String::new();
        for line in [
            ExecLine::Stdout("a\n".into()),
            ExecLine::StdoutBase64("/w==".into()),
            ExecLine::Stderr("b".into()),
            ExecLine::StderrBase64("/g==".into()),
            ExecLine::Result(result),
        ] {
            text += &(serde_json::to_string(&line).unwrap() + "\n");
        }
        text += &(problem.to_string() + "\n");
        for size in [1, 2, 7, 1000] {
            let mut lines = Lines::default();
            let said: Vec<Said> =
                text.as_bytes().chunks(size).flat_map(|piece| lines.take(piece).unwrap()).collect();
            let [
                Said::Out(a),
                Said::Out(b),
                Said::Err(c),
                Said::Err(d),
                Said::Ended(ended),
                Said::Wrong(wrong),
            ] = &said[..]
            else {
                panic!("{said:?}")
            };
            assert_eq!(
                (a.as_slice(), b.as_slice(), c.as_slice(), d.as_slice()),
                (&b"a\n"[..], &b"\xff"[..], &b"b"[..], &b"\xfe"[..])
            );
            assert_eq!(
                (ended.outcome, ended.exit_code, wrong.reason.as_str()),
                (Outcome::Exited, Some(3), "NewReason")
            );
            assert!(lines.0.is_empty());
        }
    }

    #[test]
    fn what_no_session_writes_is_an_error() {
        for text in [
            "\n",
            "{}\n",
            "{\"stdout\":1}\n",
            "{\"stdoutBase64\":\"!\"}\n",
            "{\"other\":1}\n",
            "\"stdout\"\n",
        ] {
            assert!(Lines::default().take(text.as_bytes()).is_err(), "{text}");
        }
        let mut lines = Lines::default();
        let piece = vec![b'x'; 1 << 20];
        assert!((0..17).any(|_| lines.take(&piece).is_err()), "a line without end");
    }

    proptest! {
        #[test]
        fn bytes_never_panic(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..10)) {
            let mut lines = Lines::default();
            for piece in pieces {
                let _ = lines.take(&piece);
            }
        }
    }
}
