//! Kubernetes quantities: `500m`, `2`, `512Mi`, with a schema of two lines instead of two kilobytes.

use std::{borrow::Cow, fmt};

use k8s_openapi::apimachinery::pkg::api::resource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, de};

/// An amount as Kubernetes writes it. Whole numbers, decimals, and the suffixes `m`, `k`, `M`, `G`, `T`, `Ki`, `Mi`,
/// `Gi`, `Ti`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Quantity(String);

/// What the API server accepts; the same language as [`Quantity::milli`] but for overflow.
const PATTERN: &str = r"^[0-9]{1,15}(\.[0-9]{1,3})?(m|k|M|G|T|Ki|Mi|Gi|Ti)?$";

/// Why a text is no amount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuantityError(String);

impl fmt::Display for QuantityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not a quantity; write it like 2, 500m, 512Mi or 1Gi", self.0)
    }
}

impl std::error::Error for QuantityError {}

impl Quantity {
    /// Takes the text as it is; [`Quantity::milli`] judges it.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// An amount of bytes, written with the largest binary suffix that divides it.
    #[must_use]
    pub fn from_bytes(bytes: u64) -> Self {
        let units = [(1_u64 << 40, "Ti"), (1 << 30, "Gi"), (1 << 20, "Mi"), (1 << 10, "Ki")];
        let unit = units.iter().find(|(size, _)| bytes > 0 && bytes.is_multiple_of(*size));
        Self(unit.map_or_else(|| bytes.to_string(), |(size, suffix)| format!("{}{suffix}", bytes / size)))
    }

    /// An amount of thousandths, written plainly when whole.
    #[must_use]
    pub fn from_milli(milli: u64) -> Self {
        Self(if milli.is_multiple_of(1000) { (milli / 1000).to_string() } else { format!("{milli}m") })
    }

    /// The text as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The amount in thousandths (CPU: millicores).
    ///
    /// # Errors
    /// When the text is no quantity, or more than `u64` holds.
    pub fn milli(&self) -> Result<u64, QuantityError> {
        parse_milli(&self.0)
            .and_then(|milli| u64::try_from(milli).ok())
            .ok_or_else(|| QuantityError(self.0.clone()))
    }

    /// Reads one of whole units, as a command line has it.
    ///
    /// # Errors
    /// What it should be.
    pub fn parse(text: &str) -> Result<Self, String> {
        let quantity = Self::new(text);
        quantity.units().map(|_| quantity).map_err(|error| error.to_string())
    }

    /// The amount in whole units, rounded up (memory: bytes).
    ///
    /// # Errors
    /// When the text is no quantity, or more than `u64` holds.
    pub fn units(&self) -> Result<u64, QuantityError> {
        let milli = parse_milli(&self.0).ok_or_else(|| QuantityError(self.0.clone()))?;
        u64::try_from(milli.div_ceil(1000)).map_err(|_| QuantityError(self.0.clone()))
    }
}

/// `None` when the text is not in the language of [`PATTERN`]. Fractions of a thousandth are rounded up, as Kubernetes does.
fn parse_milli(text: &str) -> Option<u128> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (whole, fraction) =
        number.split_once('.').map_or((number, None), |(whole, rest)| (whole, Some(rest)));
    let digits =
        |part: &str, most| (1..=most).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole, 15) || !fraction.is_none_or(|part| digits(part, 3)) {
        return None;
    }
    let thousandths: u128 = format!("{:0<3}", fraction.unwrap_or("")).parse().ok()?;
    let milli = whole.parse::<u128>().ok()? * 1000 + thousandths;
    let (multiply, divide) = match suffix {
        "m" => (1, 1000),
        "" => (1, 1),
        "k" => (1_000, 1),
        "M" => (1_000_000, 1),
        "G" => (1_000_000_000, 1),
        "T" => (1_000_000_000_000, 1),
        "Ki" => (1 << 10, 1),
        "Mi" => (1 << 20, 1),
        "Gi" => (1 << 30, 1),
        "Ti" => (1 << 40, 1),
        _ => return None,
    };
    Some((milli * multiply).div_ceil(divide))
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<&Quantity> for resource::Quantity {
    fn from(quantity: &Quantity) -> Self {
        Self(quantity.0.clone())
    }
}

impl From<&resource::Quantity> for Quantity {
    fn from(quantity: &resource::Quantity) -> Self {
        Self(quantity.0.clone())
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Quantity;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a quantity such as 2 or 512Mi")
            }
            fn visit_u64<E>(self, value: u64) -> Result<Quantity, E> {
                Ok(Quantity(value.to_string()))
            }
            fn visit_i64<E>(self, value: i64) -> Result<Quantity, E> {
                Ok(Quantity(value.to_string()))
            }
            fn visit_str<E>(self, value: &str) -> Result<Quantity, E> {
                Ok(Quantity(value.to_owned()))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

impl JsonSchema for Quantity {
    fn schema_name() -> Cow<'static, str> {
        "Quantity".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "pattern": PATTERN,
            "x-kubernetes-int-or-string": true,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_the_usual_forms() {
        for (text, milli) in
            [("2", 2000), ("500m", 500), ("1.5", 1500), ("1k", 1_000_000), ("0", 0), ("1m", 1)]
        {
            assert_eq!(Quantity::new(text).milli().unwrap(), milli, "{text}");
        }
        assert_eq!(Quantity::new("512Mi").units().unwrap(), 512 << 20);
        assert_eq!(Quantity::new("1.5Gi").units().unwrap(), 1536 << 20);
        assert_eq!(Quantity::new("1m").units().unwrap(), 1, "rounded up");
    }

    #[test]
    fn refuses_the_rest_by_name() {
        for text in [
            "",
            "-1",
            "1e3",
            "1.2.3",
            "1 Gi",
            "Gi",
            "1Gb",
            "+1",
            ".5",
            "1.",
            "0x10",
            "1.2345",
            "1234567890123456",
        ] {
            assert!(Quantity::new(text).milli().unwrap_err().to_string().contains(text), "{text}");
        }
        assert!(Quantity::new("999999999999Ti").milli().is_err(), "overflow is an error, not a wrap");
    }

    #[test]
    fn numbers_in_json_are_taken() {
        assert_eq!(serde_json::from_str::<Quantity>("2").unwrap(), Quantity::new("2"));
        assert!(serde_json::from_str::<Quantity>("true").is_err());
    }

    proptest! {
        #[test]
        fn bytes_round_trip(bytes in 0..(1_u64 << 40)) {
            prop_assert_eq!(Quantity::from_bytes(bytes).units().unwrap(), bytes);
        }

        #[test]
        fn millis_round_trip(milli in 0..1_000_000_000_u64) {
            prop_assert_eq!(Quantity::from_milli(milli).milli().unwrap(), milli);
        }

        #[test]
        fn never_panics(text in "\\PC{0,40}") {
            let _ = Quantity::new(text).milli();
        }
    }
}
