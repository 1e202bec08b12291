//! `POST /v1/fence/check`: is this token good?
//!
//! For storage that cannot remember the highest token that it saw. Weaker than a check inside
//! the write itself: between the answer and the write the grant may end.

use crate::parse::{Field, Kind, Shape};
use crate::schema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// Which token is asked about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FenceCheck<'a> {
    /// The resource that is written to.
    #[serde(borrow)]
    #[schemars(schema_with = "schema::resource")]
    pub resource: Cow<'a, str>,
    /// The token that the writer showed.
    #[schemars(schema_with = "schema::token")]
    pub token: u64,
}

impl<'a> Shape<'a> for FenceCheck<'a> {
    const FIELDS: &'static [Field] =
        &[Field::required("resource", Kind::Text), Field::required("token", Kind::Count)];
}

/// The answer, as of a moment after the question arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FenceChecked {
    /// It is the token of a live exclusive grant.
    pub current: bool,
    /// The highest exclusive token of the resource; null if it is not known any more, and where a
    /// higher one may have been lost, as before a restore.
    pub highest_token: Option<u64>,
}
