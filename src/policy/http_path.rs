//! Which requests a rule lets through: methods and paths. A path that two readers could read differently is refused, so
//! that the server behind never sees another one than was judged.

use std::fmt;

use crate::api::HttpRule;

/// A segment of a path pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    /// These bytes.
    Literal(Box<[u8]>),
    /// `*`: one segment that is not empty.
    Any,
}

/// A path pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathGlob {
    text: Box<str>,
    segments: Box<[Segment]>,
    /// Whether `**` ends it.
    rest: bool,
}

/// Methods and paths, compiled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HttpMatch {
    methods: Box<[Box<str>]>,
    paths: Box<[PathGlob]>,
}

impl HttpMatch {
    /// Reads a rule's `http`.
    ///
    /// # Errors
    /// In words: the field, its value, and what would be right.
    pub fn compile(rule: &HttpRule) -> Result<Self, String> {
        if rule.methods.is_empty() && rule.paths.is_empty() {
            return Err(
                "http needs methods, paths or both; leave http out to let every request through".into()
            );
        }
        let method = |text: &String| -> Result<Box<str>, String> {
            let good = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'-');
            match text.as_str() {
                "CONNECT" => {
                    Err("http.methods: CONNECT asks for a tunnel, which no rule lets through".into())
                }
                _ if !good => Err(format!("http.methods {text:?} is not a method in capitals, such as GET")),
                _ => Ok(text.as_str().into()),
            }
        };
        Ok(Self {
            methods: rule.methods.iter().map(method).collect::<Result<_, _>>()?,
            paths: rule.paths.iter().map(|text| PathGlob::parse(text)).collect::<Result<_, _>>()?,
        })
    }

    /// Whether a request is let through. The path is the target of the request line, with its query.
    #[must_use]
    pub fn permits(&self, method: &str, path: &str) -> bool {
        let method_fits = self.methods.is_empty() || self.methods.iter().any(|allowed| **allowed == *method);
        if !method_fits || method == "CONNECT" {
            return false;
        }
        self.paths.is_empty()
            || Path::parse(path).is_some_and(|path| self.paths.iter().any(|glob| glob.matches(path)))
    }

    /// Whether the path matters and could be read in two ways.
    #[must_use]
    pub fn is_ambiguous(&self, path: &str) -> bool {
        !self.paths.is_empty() && Path::parse(path).is_none()
    }
}

impl PathGlob {
    /// Reads a pattern such as `/repos/*/issues` or `/repos/org/**`.
    ///
    /// # Errors
    /// In words: what would be right.
    pub fn parse(text: &str) -> Result<Self, String> {
        let bad =
            |why: &str| format!("http.paths {text:?} {why}; write it like /repos/org/** or /repos/*/issues");
        if text.contains('?') {
            return Err(bad("has a query, which is not looked at"));
        }
        let path = Path::parse(text).ok_or_else(|| {
            bad("does not start with / or could be read in two ways (//, a . or .. segment, an encoded / or \\)")
        })?;
        let raw: Vec<&str> = path.0.split('/').skip(1).collect();
        let rest = raw.last() == Some(&"**");
        let kept = &raw[..raw.len() - usize::from(rest)];
        let segments = kept.iter().map(|segment| match *segment {
            "*" => Ok(Segment::Any),
            literal if literal.contains('*') => {
                Err(bad("has a * that is not a whole segment, or a ** that is not the last"))
            }
            literal => Ok(Segment::Literal(decoded(literal).collect())),
        });
        Ok(Self { text: text.into(), segments: segments.collect::<Result<_, _>>()?, rest })
    }

    fn matches(&self, path: Path<'_>) -> bool {
        let mut given = path.0.split('/').skip(1);
        for segment in &self.segments {
            let fits = match (given.next(), segment) {
                (None, _) => false,
                (Some(given), Segment::Any) => !given.is_empty(),
                (Some(given), Segment::Literal(bytes)) => decoded(given).eq(bytes.iter().copied()),
            };
            if !fits {
                return false;
            }
        }
        // `**` stands for a rest that has begun: `/a/**` is `/a/` and what is below it, not `/a`.
        given.next().is_some() == self.rest
    }
}

impl fmt::Display for PathGlob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// A path that has one reading, without its query.
#[derive(Clone, Copy)]
struct Path<'a>(&'a str);

impl<'a> Path<'a> {
    fn parse(target: &'a str) -> Option<Self> {
        let path = target.split_once('?').map_or(target, |(path, _)| path);
        let plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'\\' | b'#');
        if !path.starts_with('/') || !target.bytes().all(plain) {
            return None;
        }
        let mut segments = path.split('/').skip(1).peekable();
        while let Some(segment) = segments.next() {
            // An empty segment is the slash at the end, or two slashes that some servers merge.
            let misplaced = segment.is_empty() && segments.peek().is_some();
            if misplaced || !escapes_are_plain(segment) || is_dots(segment) {
                return None;
            }
        }
        Some(Self(path))
    }
}

/// Whether every `%` starts an escape that no server takes for a separator, an end or another escape.
fn escapes_are_plain(segment: &str) -> bool {
    let well_formed = segment.split('%').skip(1).all(|after| {
        after.as_bytes().first_chunk::<2>().is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    });
    let escaped = segment.split('%').skip(1).filter_map(|after| u8::from_str_radix(after.get(..2)?, 16).ok());
    well_formed && escaped.into_iter().all(|byte| !byte.is_ascii_control() && !b"/\\%?#;".contains(&byte))
}

/// Whether a segment is `.` or `..`, escaped or with parameters (`..;x`), which servers take away.
fn is_dots(segment: &str) -> bool {
    let name = segment.split(';').next().unwrap_or_default();
    let mut bytes = decoded(name);
    matches!((bytes.next(), bytes.next(), bytes.next()), (Some(b'.'), None | Some(b'.'), None))
}

/// The bytes that a segment stands for. Its escapes are well-formed.
fn decoded(segment: &str) -> impl Iterator<Item = u8> {
    let mut rest = segment.as_bytes();
    std::iter::from_fn(move || {
        let (byte, after) = match rest {
            [b'%', high, low, after @ ..] => (hex(*high) << 4 | hex(*low), after),
            [byte, after @ ..] => (*byte, after),
            [] => return None,
        };
        rest = after;
        Some(byte)
    })
}

fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20).wrapping_sub(b'a').wrapping_add(10) & 0xf,
    }
}
