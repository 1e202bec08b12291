//! Strict reading of a request body.
//!
//! The typed parse is fast and says little about what is wrong. Only when it fails is the body
//! read again, loosely, and compared with the table of fields of its shape, so that the error
//! names the field and says what is allowed there.

use crate::diagnose;
use serde::{Deserialize, Deserializer, de};
use std::borrow::Cow;
use std::fmt;

/// A request body that knows its own fields.
pub trait Shape<'a>: Deserialize<'a> {
    /// Every field that the body may have, in the order in which missing ones are reported.
    const FIELDS: &'static [Field];
}

/// One field of a shape.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    /// Its name in JSON.
    pub name: &'static str,
    /// Whether a body without it is refused.
    pub required: bool,
    /// What may stand in it.
    pub kind: Kind,
}

impl Field {
    /// A field that must be there.
    #[must_use]
    pub const fn required(name: &'static str, kind: Kind) -> Self {
        Self { name, required: true, kind }
    }

    /// A field that may be left out. It may not be `null`: that could mean too many things.
    #[must_use]
    pub const fn optional(name: &'static str, kind: Kind) -> Self {
        Self { name, required: false, kind }
    }
}

/// What may stand in a field.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// A string.
    Text,
    /// A whole number, not negative, below 2^64.
    Count,
    /// `true` or `false`.
    Flag,
    /// One of a few strings.
    Choice(&'static [&'static str]),
    /// An object whose values are strings; see [`crate::metadata`] for its bounds.
    TextMap,
    /// A list of strings.
    Texts,
    /// A list of objects.
    Objects(&'static [Field]),
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text => f.write_str("a string"),
            Self::Count => f.write_str("a whole number that is not negative"),
            Self::Flag => f.write_str("true or false"),
            Self::Choice(words) => write!(f, "one of {}", words.join(", ")),
            Self::TextMap => f.write_str("an object whose values are strings"),
            Self::Texts => f.write_str("a list of strings"),
            Self::Objects(_) => f.write_str("a list of objects"),
        }
    }
}

/// Why a request cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invalid {
    /// The field that is wrong, e.g. `operations[3].ttl_ms`; absent if the body as a whole is.
    pub field: Option<Cow<'static, str>>,
    /// What is wrong, as the rest of a sentence that starts with the field.
    pub problem: Cow<'static, str>,
    /// What is allowed there.
    pub allowed: Option<Cow<'static, str>>,
}

impl Invalid {
    /// Something is wrong with one field.
    #[must_use]
    pub fn field(
        field: impl Into<Cow<'static, str>>,
        problem: impl Into<Cow<'static, str>>,
        allowed: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self { field: Some(field.into()), problem: problem.into(), allowed: Some(allowed.into()) }
    }

    /// Something is wrong with the body as a whole.
    #[must_use]
    pub fn body(problem: impl Into<Cow<'static, str>>) -> Self {
        Self { field: None, problem: problem.into(), allowed: Some(Cow::Borrowed("a JSON object")) }
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.field {
            Some(field) => write!(f, "`{field}` {}", self.problem),
            None => write!(f, "the body {}", self.problem),
        }
    }
}

impl std::error::Error for Invalid {}

/// Reads a body, borrowing its strings where they have no escapes.
///
/// # Errors
/// [`Invalid`] names the first field that is wrong.
pub fn parse<'a, T: Shape<'a>>(body: &'a [u8]) -> Result<T, Invalid> {
    let read = match serde_json::from_slice(body) {
        // Serde takes the values of a struct as a list too, in the order of its fields.
        Ok(_) if has_list_for_object(body) => Err(de::Error::custom("an object was expected")),
        read => read,
    };
    read.map_err(|cause| diagnose::explain(body, T::FIELDS, &cause))
}

/// Whether a list stands where only an object may: as the whole body, or in another list. No shape
/// has a list of lists.
fn has_list_for_object(body: &[u8]) -> bool {
    if !body.contains(&b'[') {
        return false;
    }
    // Valid JSON by now, so brackets match.
    let (mut lists, mut in_text, mut escaped) = (Vec::new(), false, false);
    for byte in body {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            _ if in_text => {}
            b'[' if lists.last().is_none_or(|in_list| *in_list) => return true,
            b'[' | b'{' => lists.push(*byte == b'['),
            b']' | b'}' => drop(lists.pop()),
            _ => {}
        }
    }
    false
}

/// Reads an optional field that is there: `null` is an error, not an absence.
pub(crate) fn given<'de, T, D>(source: D) -> Result<Option<T>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    T::deserialize(source).map(Some)
}

/// Like [`given`], for strings that borrow from the body.
pub(crate) fn given_text<'de: 'a, 'a, D>(source: D) -> Result<Option<Cow<'a, str>>, D::Error>
where
    D: Deserializer<'de>,
{
    /// Serde reads a bare `Cow` as an owned string; this wrapper lets it borrow.
    #[derive(Deserialize)]
    struct Text<'a>(#[serde(borrow)] Cow<'a, str>);
    Text::deserialize(source).map(|text| Some(text.0))
}
