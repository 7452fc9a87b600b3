//! Words for people: escaped, aligned, coloured where a terminal shows colours. Pure.
//!
//! What stands in a name, a reason or a message may come from a sandbox: no control character of it, and nothing that turns the
//! direction of writing, may reach a terminal.

use std::{fmt::Write as _, time::Duration};

use jiff::Timestamp;

/// Whether a character could steer a terminal, or make a text look like another.
fn steers(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// One line that can't steer a terminal.
pub(super) fn line(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if steers(c) { out.extend(c.escape_default()) } else { out.push(c) }
    }
    out
}

/// Lines that can't either.
pub(super) fn lines(text: &str) -> String {
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// JSON whose strings can't: what JSON lets through unescaped is escaped as it escapes the rest.
pub(super) fn json(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut units = [0; 2];
    for c in text.chars() {
        // Line ends stand between values, never inside a string.
        if steers(c) && c != '\n' {
            for unit in c.encode_utf16(&mut units) {
                // Writing to a String can't fail.
                let _ = write!(out, "\\u{unit:04x}");
            }
        } else {
            out.push(c);
        }
    }
    out
}

/// Whether a text could.
pub(super) fn is_plain(text: &str) -> bool {
    !text.chars().any(|c| steers(c) && c != '\n')
}

/// How a word is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    Plain,
    Good,
    Doubtful,
    Bad,
    Head,
}

/// Whether words are coloured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Colours(pub(super) bool);

impl Colours {
    /// Colours on a terminal that has them, unless `NO_COLOR` is set.
    pub(super) fn fitting(terminal: bool, no_color: Option<&str>, term: Option<&str>) -> Self {
        Self(terminal && no_color.unwrap_or_default().is_empty() && term != Some("dumb"))
    }

    /// The word, which must be escaped.
    pub(super) fn paint(self, tone: Tone, word: &str) -> String {
        let code = match tone {
            Tone::Plain => None,
            Tone::Good => Some("32"),
            Tone::Doubtful => Some("33"),
            Tone::Bad => Some("31"),
            Tone::Head => Some("1"),
        };
        match code.filter(|_| self.0) {
            Some(code) => format!("\x1b[{code}m{word}\x1b[0m"),
            None => word.to_owned(),
        }
    }
}

/// A cell of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cell(pub(super) Tone, pub(super) String);

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self(Tone::Plain, text.into())
    }
}

/// Between two columns.
const GAP: usize = 3;

/// Aligned columns below their heads. Cells are escaped here.
pub(super) fn table(heads: &[&str], rows: &[Vec<Cell>], colours: Colours) -> String {
    let heads = heads.iter().map(|head| Cell(Tone::Head, (*head).to_owned())).collect();
    let all: Vec<Vec<Cell>> = std::iter::once(heads).chain(rows.iter().cloned()).collect();
    aligned(&all, colours)
}

/// Aligned columns without heads.
pub(super) fn aligned(rows: &[Vec<Cell>], colours: Colours) -> String {
    let shown = |Cell(tone, text): &Cell| (*tone, if text.is_empty() { "-".to_owned() } else { line(text) });
    let rows: Vec<Vec<(Tone, String)>> = rows.iter().map(|row| row.iter().map(shown).collect()).collect();
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|(_, text)| text.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut out = String::new();
    for row in rows {
        let last = row.len().saturating_sub(1);
        for (column, ((tone, text), width)) in row.into_iter().zip(&widths).enumerate() {
            let fill = if column == last { 0 } else { width + GAP - text.chars().count() };
            out.push_str(&colours.paint(tone, &text));
            out.extend(std::iter::repeat_n(' ', fill));
        }
        out.push('\n');
    }
    out
}

/// A duration in its two largest units: `3d4h`, `42m`, `8s`.
pub(super) fn span(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let units = [(86_400, "d"), (3600, "h"), (60, "m"), (1, "s")];
    let Some(at) = units.iter().position(|(size, _)| seconds >= *size) else { return "0s".into() };
    let mut out = String::new();
    let mut rest = seconds;
    for (size, unit) in units.iter().skip(at).take(2) {
        let count = rest / size;
        rest %= size;
        if count > 0 {
            let _ = write!(out, "{count}{unit}");
        }
    }
    out
}

/// How long ago.
pub(super) fn ago(then: Timestamp, now: Timestamp) -> String {
    span(now.duration_since(then).try_into().unwrap_or_default())
}

/// When something comes, or that it came.
pub(super) fn until(then: Timestamp, now: Timestamp) -> String {
    match Duration::try_from(then.duration_since(now)) {
        Ok(left) if !left.is_zero() => format!("in {}", span(left)),
        _ => "over".into(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn nothing_steers_a_terminal() {
        assert_eq!(line("plain ä 日本"), "plain ä 日本");
        assert_eq!(
            line("\x1b[2J\u{9b}2Ja\nb\r\u{202e}\u{7f}"),
            "\\u{1b}[2J\\u{9b}2Ja\\nb\\r\\u{202e}\\u{7f}"
        );
        assert_eq!(lines("a\x07\nb\r\n"), "a\\u{7}\nb");
        let hostile = serde_json::json!({"a": "\u{9b}2J\u{202e}\x1b\u{e0041}"}).to_string();
        assert!(!is_plain(&hostile) && is_plain(&json(&hostile)));
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&json(&hostile)).unwrap(),
            serde_json::from_str::<serde_json::Value>(&hostile).unwrap()
        );
    }

    #[test]
    fn columns_are_aligned_and_escaped() {
        let rows = vec![
            vec!["a".into(), Cell(Tone::Good, "Running".into())],
            vec!["longer".into(), "\x1b[31m".into()],
            vec![String::new().into(), "x".into()],
        ];
        assert_eq!(
            table(&["NAME", "PHASE"], &rows, Colours(false)),
            "NAME     PHASE\na        Running\nlonger   \\u{1b}[31m\n-        x\n"
        );
        let coloured = table(&["NAME", "PHASE"], &rows, Colours(true));
        assert!(
            coloured.contains("\x1b[32mRunning\x1b[0m") && coloured.starts_with("\x1b[1mNAME\x1b[0m     ")
        );
    }

    #[test]
    fn colours_are_for_terminals_that_want_them() {
        let fitting = |terminal, no_color, term| Colours::fitting(terminal, no_color, term).0;
        assert!(fitting(true, None, Some("xterm")) && fitting(true, Some(""), None));
        assert!(!fitting(false, None, Some("xterm")) && !fitting(true, Some("1"), None));
        assert!(!fitting(true, None, Some("dumb")));
    }

    #[test]
    fn times_are_short() {
        for (seconds, text) in
            [(0, "0s"), (59, "59s"), (60, "1m"), (61, "1m1s"), (3600, "1h"), (3661, "1h1m"), (90_000, "1d1h")]
        {
            assert_eq!(span(Duration::from_secs(seconds)), text);
        }
        let at = |second| Timestamp::from_second(second).unwrap();
        assert_eq!((ago(at(10), at(70)), ago(at(70), at(10))), ("1m".into(), "0s".into()));
        assert_eq!((until(at(70), at(10)), until(at(10), at(70))), ("in 1m".into(), "over".into()));
    }

    proptest! {
        #[test]
        fn a_line_is_always_harmless(text in any::<String>()) {
            let shown = line(&text);
            prop_assert!(!shown.chars().any(steers));
            prop_assert_eq!(line(&shown), shown);
        }

        #[test]
        fn json_stays_what_it_was(text in any::<String>()) {
            let written = json(&serde_json::to_string_pretty(&vec![&text]).unwrap());
            prop_assert!(is_plain(&written));
            prop_assert_eq!(serde_json::from_str::<Vec<String>>(&written).unwrap(), [text]);
        }

        #[test]
        fn tables_never_panic(cells in prop::collection::vec(prop::collection::vec(any::<String>(), 0..4), 0..4)) {
            let rows: Vec<Vec<Cell>> = cells.into_iter().map(|row| row.into_iter().map(Into::into).collect()).collect();
            let shown = table(&["A", "B"], &rows, Colours(false));
            prop_assert_eq!(shown.lines().count(), rows.len() + 1);
        }
    }
}
