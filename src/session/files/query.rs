//! The parameters of file operations, read strictly: each once, and none that the operation has not.

use percent_encoding::percent_decode;

use super::Files;
use crate::{
    api::Span,
    session::{
        problem::Problem,
        query::{pairs, truth},
    },
};

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) path: String,
    pub(super) timeout: Option<Span>,
    pub(super) mode: Option<u32>,
    pub(super) parents: bool,
    pub(super) replace: bool,
    pub(super) recursive: bool,
}

impl Default for Asked {
    fn default() -> Self {
        Self {
            path: String::new(),
            timeout: None,
            mode: None,
            parents: false,
            replace: true,
            recursive: false,
        }
    }
}

impl Files {
    /// The parameters that it takes; the path comes first.
    pub(in crate::session) const fn parameters(self) -> &'static [&'static str] {
        match self {
            Self::Read | Self::Stat | Self::List | Self::Pack | Self::Unpack => &["path", "timeout"],
            Self::Write => &["path", "timeout", "mode", "parents", "replace"],
            Self::Delete => &["path", "timeout", "recursive"],
        }
    }

    /// Whether the path must be said; otherwise it is the workspace itself.
    pub(in crate::session) const fn needs_path(self) -> bool {
        matches!(self, Self::Read | Self::Write | Self::Delete)
    }
}

pub(super) fn parse(what: Files, query: &str) -> Result<Asked, Problem> {
    let mut asked = Asked::default();
    for (name, value) in pairs(query, what.parameters())? {
        take(&mut asked, name, value)?;
    }
    if what.needs_path() && asked.path.is_empty() {
        return Err(Problem::field("path", "expected a path below the workspace, such as src/main.py"));
    }
    Ok(asked)
}

fn take(asked: &mut Asked, name: &'static str, value: &str) -> Result<(), Problem> {
    match name {
        "path" => asked.path = path(value)?,
        "timeout" => {
            asked.timeout = Some(value.parse().map_err(|error: String| Problem::field(name, error))?);
        }
        "mode" => {
            let octal = (1..=4).contains(&value.len()) && value.bytes().all(|digit| digit.is_ascii_digit());
            let mode = u32::from_str_radix(value, 8).ok().filter(|_| octal);
            asked.mode =
                Some(mode.ok_or_else(|| Problem::field(name, "expected octal digits from 0 to 777"))?);
        }
        "parents" => asked.parents = truth(name, value)?,
        "replace" => asked.replace = truth(name, value)?,
        _ => asked.recursive = truth(name, value)?,
    }
    Ok(())
}

/// A plus is a space, as forms and most clients write one.
fn path(value: &str) -> Result<String, Problem> {
    let spaced = value.replace('+', " ");
    let text = percent_decode(spaced.as_bytes()).decode_utf8();
    text.map(Into::into).map_err(|_| Problem::field("path", "expected UTF-8, percent-encoded"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::problem::Reason;

    #[test]
    fn parameters_are_read_strictly() {
        let asked = parse(Files::Write, "path=a%2Fb+c%C3%A4&mode=0755&parents=true&replace=false&timeout=5s");
        let asked = asked.unwrap();
        assert_eq!((asked.path.as_str(), asked.mode), ("a/b cä", Some(0o755)));
        assert_eq!((asked.parents, asked.replace, asked.recursive), (true, false, false));
        assert_eq!(parse(Files::List, "").unwrap(), Asked::default());
        for (what, query, field) in [
            (Files::Read, "", Some("path")),
            (Files::Read, "path=", Some("path")),
            (Files::Read, "path=a&path=a", Some("path")),
            (Files::Read, "path=%ff", Some("path")),
            (Files::Read, "path=a&recursive=true", None),
            (Files::Read, "path=a&mode=644", None),
            (Files::Delete, "path=a&recursive", Some("recursive")),
            (Files::Delete, "path=a&recursive=1", Some("recursive")),
            (Files::Write, "path=a&mode=8", Some("mode")),
            (Files::Write, "path=a&mode=%2B7", Some("mode")),
            (Files::Write, "path=a&mode=07777", Some("mode")),
            (Files::Write, "path=a&timeout=1", Some("timeout")),
        ] {
            let problem = parse(what, query).unwrap_err();
            assert_eq!(
                (problem.reason, problem.field.as_deref()),
                (Reason::InvalidRequest, field),
                "{query}"
            );
        }
    }
}
