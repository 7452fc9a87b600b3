//! Results on standard output: JSON, YAML, names, or what a command makes of them for people.

use std::io::{IsTerminal as _, Write as _};

use anyhow::Context as _;
use serde::Serialize;

use super::text::{self, Colours};

/// Colours for standard output as it is.
pub(super) fn colours() -> Colours {
    fitting(std::io::stdout().is_terminal())
}

/// Colours for a stream that is a terminal or not.
pub(super) fn fitting(terminal: bool) -> Colours {
    let variable = |name| std::env::var(name).ok();
    Colours::fitting(terminal, variable("NO_COLOR").as_deref(), variable("TERM").as_deref())
}

/// Text that is escaped already.
pub(super) fn words(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("standard output")
}

/// A value as JSON.
pub(super) fn json(value: &impl Serialize) -> anyhow::Result<()> {
    words(&(text::json(&serde_json::to_string_pretty(value)?) + "\n"))
}

/// A value as YAML.
pub(super) fn yaml(value: &impl Serialize) -> anyhow::Result<()> {
    words(&as_yaml(value)?)
}

fn as_yaml(value: &impl Serialize) -> anyhow::Result<String> {
    let value = serde_json::to_value(value)?;
    let mut text = serde_saphyr::to_string(&value)?;
    if !text.ends_with('\n') {
        text.push('\n');
    }
    // JSON is YAML, and its strings can be escaped without knowing how they are written.
    Ok(if text::is_plain(&text) { text } else { text::json(&serde_json::to_string_pretty(&value)?) + "\n" })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn yaml_is_plain_and_the_same() {
        assert_eq!(as_yaml(&json!({"a": "b"})).unwrap(), "a: b\n");
        let hostile = json!({"a": "\u{9b}2J\x1b[2J"});
        let text = as_yaml(&hostile).unwrap();
        assert!(text::is_plain(&text), "{text:?}");
        assert_eq!(serde_saphyr::from_str::<Value>(&text).unwrap(), hostile);
    }

    proptest! {
        #[test]
        fn yaml_never_steers_a_terminal(text in any::<String>()) {
            let shown = as_yaml(&json!({"a": text})).unwrap();
            prop_assert!(text::is_plain(&shown));
        }
    }
}
