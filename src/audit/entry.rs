//! One line of the trail: a record, when and from whom it came, and the hash of the line before. Pure.

use serde::{Deserialize, Serialize};

use super::{
    act::Role,
    record::{MOST_BYTES, Record},
    tree::Hash,
};

/// Longest line, in bytes: a record, and what is around it.
pub const MOST_LINE: usize = MOST_BYTES + 1024;

/// Who said it.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq, Hash)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// What it is.
    pub role: Role,
    /// Its pod, as the API server knows it.
    pub pod: String,
    /// What it drew when it started.
    pub boot: String,
    /// Its records are counted from 0.
    pub seq: u64,
}

/// A line.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Lines are counted from 0.
    pub n: u64,
    /// The hash of the line before, as the tree has it; zeros at the beginning.
    #[serde(with = "hash")]
    pub prev: Hash,
    /// When it was written, by the trail's clock, in milliseconds since 1970. It never goes back.
    pub at: i64,
    /// Who said it.
    pub by: Source,
    /// What was said.
    pub record: Record,
}

impl Entry {
    /// Reads a line.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(line: &[u8]) -> Result<Self, &'static str> {
        if line.len() > MOST_LINE {
            return Err("it is too long");
        }
        serde_json::from_slice(line).map_err(|_| "it does not have the shape of an entry")
    }
}

mod hash {
    use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    use super::Hash;

    pub(super) fn serialize<S: Serializer>(hash: &Hash, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&BASE64.encode(hash))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Hash, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes = BASE64.decode(text).map_err(|_| D::Error::custom("no base64"))?;
        bytes.try_into().map_err(|_| D::Error::custom("no hash"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::act::Act;

    #[test]
    fn is_written_and_read() {
        let by = Source { role: Role::Gateway, pod: "gateway-1".into(), boot: "b".into(), seq: 3 };
        let entry = Entry { n: 4, prev: [7; 32], at: 9, by, record: Record::new(Act::EgressOpened, 8) };
        let text = serde_json::to_string(&entry).unwrap();
        assert_eq!(Entry::read(text.as_bytes()), Ok(entry));
        for bad in ["", "{}", &text[1..], &text.replace("Bw", "bw"), &text.replace("\"n\":4", "\"n\":-4")] {
            let changed = Entry::read(bad.as_bytes());
            assert!(changed.is_err() || bad.contains("bw"), "{bad}");
        }
        assert!(Entry::read(text.replace("BwcH", "Bw").as_bytes()).is_err());
    }
}
