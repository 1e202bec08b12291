//! `POST /v1/release-lock`: gives a grant back.

use crate::parse::{Field, Kind, Shape, given_text};
use crate::schema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// Which grant to give back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Release<'a> {
    /// The resource held.
    #[serde(borrow)]
    #[schemars(schema_with = "schema::resource")]
    pub resource: Cow<'a, str>,
    /// The token of the grant.
    #[schemars(schema_with = "schema::token")]
    pub token: u64,
    /// The label of the holder; compared if it is given.
    #[serde(
        borrow,
        default,
        deserialize_with = "given_text",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(schema_with = "schema::client_id")]
    pub client_id: Option<Cow<'a, str>>,
}

impl<'a> Shape<'a> for Release<'a> {
    const FIELDS: &'static [Field] = &[
        Field::required("resource", Kind::Text),
        Field::required("token", Kind::Count),
        Field::optional("client_id", Kind::Text),
    ];
}

/// What became of the release.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Released {
    /// Whether this request gave the grant back.
    pub released: bool,
    /// Why it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<NotReleased>,
}

/// Why there was nothing to give back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NotReleased {
    /// The caller had given it back before.
    AlreadyReleased,
}
