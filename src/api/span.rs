//! Durations as users write them: `30s`, `1h30m`.

use std::{borrow::Cow, fmt, str::FromStr, time::Duration};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A duration written as Go writes it, without sign or fraction: `500ms`, `30s`, `1h30m`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(Duration);

/// What the API server accepts; the same language as [`Span::from_str`].
const PATTERN: &str = "^([0-9]{1,9}(ms|s|m|h))+$";
/// Longest one: nobody writes more parts.
const MOST_CHARS: usize = 32;

impl Span {
    /// A span of whole seconds.
    #[must_use]
    pub const fn from_secs(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }

    /// The standard library's form.
    #[must_use]
    pub const fn duration(self) -> Duration {
        self.0
    }

    /// Whole seconds, rounded up, as `activeDeadlineSeconds` wants them.
    #[must_use]
    pub fn seconds_ceil(self) -> i64 {
        let whole = self.0.as_secs() + u64::from(self.0.subsec_nanos() > 0);
        i64::try_from(whole).unwrap_or(i64::MAX)
    }
}

impl From<Duration> for Span {
    fn from(duration: Duration) -> Self {
        Self(duration)
    }
}

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.len() > MOST_CHARS {
            return Err(format!(
                "a duration has at most {MOST_CHARS} characters; write it like 30s, 15m or 1h30m"
            ));
        }
        let bad = || format!("{text:?} is not a duration; write it like 30s, 15m or 1h30m");
        let mut rest = text;
        let mut total = Duration::ZERO;
        while !rest.is_empty() {
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            if digits == 0 || digits > 9 {
                return Err(bad());
            }
            let count: u64 = rest[..digits].parse().map_err(|_| bad())?;
            rest = &rest[digits..];
            let (unit_ms, width) = match rest.as_bytes() {
                [b'm', b's', ..] => (1, 2),
                [b's', ..] => (1_000, 1),
                [b'm', ..] => (60_000, 1),
                [b'h', ..] => (3_600_000, 1),
                _ => return Err(bad()),
            };
            // Nine digits of hours fit into u64 milliseconds by a factor of five thousand.
            total = total.checked_add(Duration::from_millis(count * unit_ms)).ok_or_else(bad)?;
            rest = &rest[width..];
        }
        if text.is_empty() { Err(bad()) } else { Ok(Self(total)) }
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, ms) = (self.0.as_secs(), self.0.subsec_millis());
        let parts =
            [(seconds / 3600, "h"), (seconds / 60 % 60, "m"), (seconds % 60, "s"), (u64::from(ms), "ms")];
        let mut empty = true;
        for (count, unit) in parts.into_iter().filter(|(count, _)| *count > 0) {
            write!(f, "{count}{unit}")?;
            empty = false;
        }
        if empty { f.write_str("0s") } else { Ok(()) }
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Cow::<str>::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl JsonSchema for Span {
    fn schema_name() -> Cow<'static, str> {
        "Span".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "pattern": PATTERN, "maxLength": MOST_CHARS})
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_what_people_write() {
        for (text, ms) in
            [("30s", 30_000), ("1h30m", 5_400_000), ("500ms", 500), ("1m1ms", 60_001), ("0s", 0)]
        {
            assert_eq!(text.parse::<Span>().unwrap().duration().as_millis(), ms, "{text}");
        }
        for text in ["", "5", "s", "-1s", "1.5h", "1d", "1 h", "1h ", "9999999999s", "１s"] {
            assert!(text.parse::<Span>().unwrap_err().contains("1h30m"), "{text}");
        }
    }

    #[test]
    fn rounds_up_to_seconds() {
        assert_eq!("1500ms".parse::<Span>().unwrap().seconds_ceil(), 2);
        assert_eq!("2s".parse::<Span>().unwrap().seconds_ceil(), 2);
    }

    proptest! {
        #[test]
        fn prints_what_it_reads(ms in 0..4_000_000_000_u64) {
            let span = Span(Duration::from_millis(ms));
            prop_assert_eq!(span.to_string().parse::<Span>().unwrap(), span);
        }

        #[test]
        fn never_panics(text in "\\PC{0,40}") {
            let _ = text.parse::<Span>();
        }
    }
}
