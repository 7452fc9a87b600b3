//! Image references: one canonical form, so that what is judged is what is pulled.

use std::fmt;

/// A reference in its canonical parts: `docker.io/library/python`, tag or digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageRef {
    /// Registry and path, such as `docker.io/library/python`.
    pub repository: String,
    /// Tag, if one was named.
    pub tag: Option<String>,
    /// `sha256:` and 64 hexadecimal digits, if one was named.
    pub digest: Option<String>,
}

/// Why a text is no image reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageError(String);

impl fmt::Display for ImageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ImageError {}

impl ImageRef {
    /// Reads a reference by the grammar of the OCI distribution specification.
    ///
    /// # Errors
    /// Names the part that is wrong.
    pub fn parse(text: &str) -> Result<Self, ImageError> {
        let bad = |what: &str| {
            ImageError(format!("image {text:?}: {what}; write it like registry.example/team/app:1.2"))
        };
        let (rest, digest) = match text.split_once('@') {
            Some((rest, digest)) => {
                let hex = digest
                    .strip_prefix("sha256:")
                    .ok_or_else(|| bad("the digest must start with sha256:"))?;
                if hex.len() != 64 || !hex.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)) {
                    return Err(bad("the digest must have 64 lower-case hexadecimal digits"));
                }
                (rest, Some(digest.to_owned()))
            }
            None => (text, None),
        };
        // A colon after the last slash is a tag; one before it belongs to the registry's port.
        let (name, tag) = match rest.rsplit_once(':') {
            Some((name, tag)) if !tag.contains('/') => (name, Some(tag)),
            _ => (rest, None),
        };
        if tag.is_some_and(|tag| !is_tag(tag)) {
            return Err(bad("the tag may have 1 to 128 letters, digits and ._-"));
        }
        let repository = canonical(name).ok_or_else(|| bad("the repository is not valid"))?;
        Ok(Self { repository, tag: tag.map(ToOwned::to_owned), digest })
    }
}

fn is_tag(tag: &str) -> bool {
    (1..=128).contains(&tag.len())
        && tag.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
        && !tag.starts_with(['.', '-'])
}

/// Adds what every runtime adds: `python` is pulled from `docker.io/library/python`.
fn canonical(name: &str) -> Option<String> {
    let (registry, path) = match name.split_once('/') {
        Some((first, rest)) if first.contains(['.', ':']) || first == "localhost" => (first, rest.to_owned()),
        Some(_) => ("docker.io", name.to_owned()),
        None => ("docker.io", format!("library/{name}")),
    };
    let (host, port) = registry.split_once(':').map_or((registry, None), |(host, port)| (host, Some(port)));
    let host_ok = host.split('.').all(|label| {
        !label.is_empty()
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    });
    let port_ok = port
        .is_none_or(|port| port.parse::<u16>().is_ok_and(|number| number > 0 && port == number.to_string()));
    let path_ok = path.split('/').all(is_segment);
    (host_ok && port_ok && path_ok).then(|| format!("{}/{path}", registry.to_ascii_lowercase()))
}

/// Lower-case letters and digits, with separators only between them.
fn is_segment(segment: &str) -> bool {
    let edge = |b: Option<u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    edge(segment.bytes().next())
        && edge(segment.bytes().last())
        && segment
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'.' | b'_' | b'-'))
}

/// Whether a canonical repository fits one of the patterns. `*` as a whole segment is exactly one segment, `**` as the last
/// one or more. No other place of `*` has a meaning, and a pattern without meaning allows nothing.
#[must_use]
pub fn allowed(image: &ImageRef, patterns: &[String]) -> bool {
    patterns.iter().any(|pattern| fits(&image.repository, pattern))
}

fn fits(repository: &str, pattern: &str) -> bool {
    // `python` and `library/*` mean Docker Hub in a pattern too.
    let literal = pattern.replace("**", "0").replace('*', "0");
    let Some(filled) = canonical(&literal) else { return false };
    let added = filled.split('/').count() - literal.split('/').count();
    let full: Vec<&str> = filled.split('/').take(added).chain(pattern.split('/')).collect();
    let have: Vec<&str> = repository.split('/').collect();
    let (last, head) = match full.split_last() {
        Some((last, head)) => (*last, head),
        None => return false,
    };
    let segment =
        |want: &str, have: &str| want == "*" || (!want.contains('*') && want.eq_ignore_ascii_case(have));
    let head_fits = have.len() > head.len() && head.iter().zip(&have).all(|(want, have)| segment(want, have));
    match last {
        "**" => head_fits,
        last => head_fits && have.len() == full.len() && have.last().is_some_and(|have| segment(last, have)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn canonical_forms() {
        for (text, repository, tag) in [
            ("python", "docker.io/library/python", None),
            ("python:3.14-slim", "docker.io/library/python", Some("3.14-slim")),
            ("team/app", "docker.io/team/app", None),
            ("registry.example:5000/a/b:1", "registry.example:5000/a/b", Some("1")),
            ("Registry.Example/a", "registry.example/a", None),
            ("localhost/a", "localhost/a", None),
        ] {
            let image = ImageRef::parse(text).unwrap();
            assert_eq!((image.repository.as_str(), image.tag.as_deref()), (repository, tag), "{text}");
        }
        let digest = format!("sha256:{}", "a".repeat(64));
        assert_eq!(ImageRef::parse(&format!("a/b:1@{digest}")).unwrap().digest, Some(digest));
    }

    #[test]
    fn hostile_names_are_refused() {
        for text in [
            "",
            "/",
            "a//b",
            "../etc",
            "a/../b",
            "A/b",
            "a b",
            "a:b:c",
            "a@sha256:12",
            "a@md5:00",
            "reg.example:99999/a",
            "reg.example:080/a",
            "-a",
            "a/",
            "a:",
            "a:-x",
            "http://a/b",
            "a\n",
            "a\0b",
            "$(id)",
            "é",
        ] {
            assert!(ImageRef::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn patterns_are_compared_by_segment() {
        let fits =
            |image: &str, pattern: &str| allowed(&ImageRef::parse(image).unwrap(), &[pattern.to_owned()]);
        assert!(fits("registry.example/agents/py:1", "registry.example/agents/*"));
        assert!(!fits("registry.example/agents/deep/py", "registry.example/agents/*"));
        assert!(fits("registry.example/agents/deep/py", "registry.example/agents/**"));
        assert!(!fits("registry.example/agents", "registry.example/agents/**"));
        assert!(!fits("registry.example/agents-evil/py", "registry.example/agents/*"));
        assert!(!fits("evil.example/registry.example/agents/py", "registry.example/agents/*"));
        assert!(
            fits("python:3", "python")
                && fits("python", "library/*")
                && fits("python", "docker.io/library/python")
        );
        assert!(
            !fits("registry.example/agents/py", "registry.example/ag*/py"),
            "a star within a segment allows nothing"
        );
        assert!(!fits("registry.example/a", "*") && !fits("python", "**/python") && !fits("python", ""));
    }

    proptest! {
        #[test]
        fn never_panics(image in "\\PC{0,60}", pattern in "[a-z.*/:@-]{0,40}") {
            if let Ok(image) = ImageRef::parse(&image) {
                let _ = allowed(&image, &[pattern]);
            }
        }

        #[test]
        fn an_exact_pattern_fits_itself(image in "[a-z]{1,8}(/[a-z0-9]{1,8}){0,3}") {
            let image = ImageRef::parse(&image).unwrap();
            prop_assert!(allowed(&image, std::slice::from_ref(&image.repository)));
        }
    }
}
