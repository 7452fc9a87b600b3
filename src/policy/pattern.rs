//! Host patterns of rules, ceilings and denials: compared by whole labels, never as text.

use std::{collections::HashMap, fmt};

use super::host::{Host, suffixes};

/// Names that have shared suffixes somewhere below them without being one: `**` here reaches anybody's bucket.
const ABOVE_SHARED: &[&str] = &[
    "amazonaws.com",
    "amazonaws.com.cn",
    "azure.com",
    "backblazeb2.com",
    "core.windows.net",
    "googleapis.com",
    "oraclecloud.com",
    "windows.net",
];

/// How many labels stand for the wildcard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Width {
    /// None: the name itself.
    Exact,
    /// `*.`: one.
    One,
    /// `**.`: one or more.
    Many,
}

/// A host pattern.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pattern {
    width: Width,
    name: Host,
}

/// Whether a wildcard below a suffix where anybody can register a name is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shared {
    /// Somebody said so, or it is a bound rather than a grant.
    Meant,
    /// It is refused.
    Refused,
}

impl Pattern {
    /// Reads a pattern. Other letters than ASCII are taken to the form that is sent over the wire.
    ///
    /// # Errors
    /// In words: the pattern, what is wrong with it, and what would be right.
    pub fn parse(text: &str, shared: Shared) -> Result<Self, String> {
        let (width, rest) = match text.split_once('.') {
            Some(("*", rest)) => (Width::One, rest),
            Some(("**", rest)) => (Width::Many, rest),
            _ => (Width::Exact, text),
        };
        if rest.contains('*') {
            return Err(format!(
                "host {text:?} has a wildcard that is not the whole leftmost label; write *.example.com for one label, **.example.com for one or more"
            ));
        }
        let name =
            name(rest).map_err(|why| format!("host {text:?}: {why}; write it like api.example.com"))?;
        if !name.as_str().contains('.') {
            return Err(if width == Width::Exact {
                format!("host {text:?} has one label; write the full name, such as api.example.com")
            } else {
                format!("host {text:?} needs at least two labels after the wildcard, such as *.example.com")
            });
        }
        let pattern = Self { width, name };
        match pattern.shared_suffix() {
            Some(suffix) if shared == Shared::Refused => Err(format!(
                "host {text:?} lies below {suffix:?}, where anybody can have a name, also whoever controls the sandbox; name the hosts, or set acknowledgeSharedSuffix: true"
            )),
            _ => Ok(pattern),
        }
    }

    /// How many labels the wildcard stands for.
    #[must_use]
    pub const fn width(&self) -> Width {
        self.width
    }

    /// The name, without the wildcard.
    #[must_use]
    pub const fn name(&self) -> &Host {
        &self.name
    }

    /// Whether it matches the host.
    #[must_use]
    pub fn matches(&self, host: &Host) -> bool {
        let name = self.name.as_str();
        match self.width {
            Width::Exact => host == &self.name,
            Width::One => host.suffixes().nth(1) == Some(name),
            Width::Many => host.suffixes().skip(1).any(|suffix| suffix == name),
        }
    }

    /// Whether it matches all that the other matches.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        match (self.width, other.width) {
            (_, Width::Exact) => self.matches(&other.name),
            (Width::Exact, _) | (Width::One, Width::Many) => false,
            (Width::One, Width::One) => self.name == other.name,
            (Width::Many, _) => self.name == other.name || self.matches(&other.name),
        }
    }

    /// The suffix that makes a wildcard reach names that anybody can register.
    fn shared_suffix(&self) -> Option<String> {
        let name = self.name.as_str();
        let is_suffix = |name: &str| psl::suffix(name.as_bytes()).is_some_and(|found| found == name);
        match self.width {
            Width::Exact => None,
            _ if is_suffix(name) => Some(name.to_owned()),
            Width::One => None,
            // The list has wildcards of its own, such as that below compute.amazonaws.com: whatever label stands there.
            Width::Many if is_suffix(&format!("label.{name}")) => Some(format!("*.{name}")),
            Width::Many => ABOVE_SHARED.contains(&name).then(|| name.to_owned()),
        }
    }
}

/// The canonical name of what a person wrote.
fn name(text: &str) -> Result<Host, String> {
    if text.is_ascii() {
        return Host::parse(text.as_bytes()).map_err(|error| error.to_string());
    }
    let ascii = idna::domain_to_ascii_strict(text)
        .map_err(|_| "it is not an internationalized domain name".to_owned())?;
    Host::parse(ascii.as_bytes()).map_err(|error| error.to_string())
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wildcard = match self.width {
            Width::Exact => "",
            Width::One => "*.",
            Width::Many => "**.",
        };
        write!(f, "{wildcard}{}", self.name)
    }
}

/// By a hash that is quick rather than safe from those who choose keys: these are chosen by whoever writes rules, of whom so many are
/// taken, and a sandbox can only look them up.
type Map<T> = HashMap<Host, Vec<T>, foldhash::quality::RandomState>;

/// Patterns by name, for a lookup that costs as much for ten thousand as for ten.
#[derive(Clone, Debug)]
pub(super) struct PatternMap<T> {
    exact: Map<T>,
    one: Map<T>,
    many: Map<T>,
    /// The most labels that a name in `many` has: longer suffixes of a host are not looked up.
    deepest: usize,
}

impl<T> Default for PatternMap<T> {
    fn default() -> Self {
        Self { exact: Map::default(), one: Map::default(), many: Map::default(), deepest: 0 }
    }
}

impl<T: PartialEq> PatternMap<T> {
    /// Adds a value to a pattern, once where the same is added again at once.
    pub(super) fn add(&mut self, pattern: &Pattern, value: T) {
        let map = match pattern.width {
            Width::Exact => &mut self.exact,
            Width::One => &mut self.one,
            Width::Many => {
                self.deepest = self.deepest.max(suffixes(pattern.name.as_str()).count());
                &mut self.many
            }
        };
        let values = map.entry(pattern.name.clone()).or_default();
        // Values come in order, so that a look at the last one is enough, however many there are.
        if values.last() != Some(&value) {
            values.push(value);
        }
    }

    /// Values of the pattern that is this very name.
    pub(super) fn exact(&self, host: &Host) -> &[T] {
        self.exact.get(host).map_or(&[], Vec::as_slice)
    }

    /// Values of each pattern that covers this one.
    pub(super) fn covering<'a>(&'a self, pattern: &Pattern) -> impl Iterator<Item = &'a [T]> {
        let name = &pattern.name;
        let (exact, one, nearest) = match pattern.width {
            Width::Exact => (self.exact.get(name.as_str()), name.suffixes().nth(1), 1),
            Width::One => (None, Some(name.as_str()), 0),
            Width::Many => (None, None, 0),
        };
        let one = one.and_then(|name| self.one.get(name));
        let many = name.suffixes().skip(nearest).filter_map(|suffix| self.many.get(suffix));
        exact.into_iter().chain(one).chain(many).map(Vec::as_slice)
    }

    /// Values of each pattern that matches, the most specific pattern first.
    pub(super) fn matching<'a>(&'a self, host: &Host) -> impl Iterator<Item = &'a [T]> {
        let labels = host.suffixes().count();
        let exact = self.exact.get(host.as_str());
        let one = host.suffixes().nth(1).and_then(|parent| self.one.get(parent));
        let many = host
            .suffixes()
            .skip(labels.saturating_sub(self.deepest).max(1))
            .filter_map(|suffix| self.many.get(suffix));
        exact.into_iter().chain(one).chain(many).map(Vec::as_slice)
    }
}
