//! The secret name of a lease, as text.

use crate::schema;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::{self, Deserialize, Deserializer};
use serde::ser::{Serialize, Serializer};
use std::borrow::Cow;
use std::fmt;

/// 128 bits, written as 32 hexadecimal digits. Opaque to clients.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct HexId(pub u128);

impl fmt::Display for HexId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// Debug output ends up in logs, where the whole id would let a reader act as its owner.
impl fmt::Debug for HexId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HexId({:08x}..)", self.0 >> 96)
    }
}

impl HexId {
    /// Reads what [`fmt::Display`] writes, and nothing else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let digits =
            text.len() == 32 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        digits.then(|| u128::from_str_radix(text, 16).ok().map(Self)).flatten()
    }
}

impl Serialize for HexId {
    fn serialize<S: Serializer>(&self, sink: S) -> Result<S::Ok, S::Error> {
        sink.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for HexId {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        let text = Cow::<'_, str>::deserialize(source)?;
        Self::parse(&text).ok_or_else(|| de::Error::custom("expected 32 hexadecimal digits"))
    }
}

impl JsonSchema for HexId {
    fn schema_name() -> Cow<'static, str> {
        "HexId".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        schema::hex_id(generator)
    }
}
