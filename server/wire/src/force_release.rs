//! `POST /v1/lock/force-release`: an operator ends a grant against its holder's will.

use crate::parse::{Field, Kind, Shape};
use crate::schema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// Which grant ends, why, and when the next client is let in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ForceRelease<'a> {
    /// The resource held.
    #[serde(borrow)]
    #[schemars(schema_with = "schema::resource")]
    pub resource: Cow<'a, str>,
    /// The token that the operator saw. If another one holds by now, nothing happens.
    #[schemars(schema_with = "schema::token")]
    pub token: u64,
    /// Why, for the audit: 1 to 512 bytes.
    #[serde(borrow)]
    #[schemars(schema_with = "schema::reason")]
    pub reason: Cow<'a, str>,
    /// At the deadline unless it says otherwise.
    #[serde(default)]
    pub when: ForceWhen,
}

impl ForceRelease<'_> {
    /// The longest reason, in bytes.
    pub const REASON_MAX: usize = 512;
}

impl<'a> Shape<'a> for ForceRelease<'a> {
    const FIELDS: &'static [Field] = &[
        Field::required("resource", Kind::Text),
        Field::required("token", Kind::Count),
        Field::required("reason", Kind::Text),
        Field::optional("when", Kind::Choice(&["drain", "now"])),
    ];
}

/// When the next client is let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ForceWhen {
    /// At the deadline: the grant is not renewed any more, and nobody overlaps.
    #[default]
    Drain,
    /// At once. The holder may still believe that it holds: only fencing stops it.
    Now,
}

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ForceReleased {
    /// Whether the grant has ended; if not, it ends at its deadline.
    pub ended: bool,
    /// Milliseconds until the deadline; 0 if it has ended.
    pub expires_in_ms: u64,
    /// Whether the old holder may still believe that it holds, although another may by now.
    pub overlap: bool,
}
