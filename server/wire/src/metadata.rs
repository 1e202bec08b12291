//! String pairs that a client attaches to a grant or lease.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};
use serde::ser::{Serialize, Serializer};
use std::borrow::Cow;
use std::fmt;

/// How many pairs there may be.
pub const ENTRIES_MAX: usize = 16;
/// How many bytes all names and values may have together.
pub const BYTES_MAX: usize = 4096;

pub(crate) const ALLOWED: &str = "at most 16 entries and 4096 bytes in all";

/// String pairs, in the order in which they came. A repeated name is an error.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Metadata<'a>(pub Vec<(Cow<'a, str>, Cow<'a, str>)>);

impl Serialize for Metadata<'_> {
    fn serialize<S: Serializer>(&self, sink: S) -> Result<S::Ok, S::Error> {
        sink.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

impl<'de> Deserialize<'de> for Metadata<'_> {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        source.deserialize_map(Pairs).map(Metadata)
    }
}

struct Pairs;

impl<'de> Visitor<'de> for Pairs {
    type Value = Vec<(Cow<'static, str>, Cow<'static, str>)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object whose values are strings")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let mut pairs = Self::Value::new();
        let mut bytes = 0;
        while let Some((name, value)) = entries.next_entry::<String, String>()? {
            bytes += name.len() + value.len();
            // Checked while reading, so that the search for repeats below stays short.
            if pairs.len() == ENTRIES_MAX || bytes > BYTES_MAX {
                return Err(de::Error::custom(ALLOWED));
            }
            if pairs.iter().any(|(earlier, _)| *earlier == name) {
                return Err(de::Error::custom("a name stands there more than once"));
            }
            pairs.push((Cow::Owned(name), Cow::Owned(value)));
        }
        Ok(pairs)
    }
}

impl JsonSchema for Metadata<'_> {
    fn schema_name() -> Cow<'static, str> {
        "Metadata".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "object",
            "description": format!("String pairs, {ALLOWED}."),
            "additionalProperties": { "type": "string", "maxLength": BYTES_MAX },
            "maxProperties": ENTRIES_MAX,
        })
    }
}
