//! `POST /v1/renew-lock`: keeps a grant.

use crate::parse::{Field, Kind, Shape, given, given_text};
use crate::schema;
use crate::time::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// Which grant to keep.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Renew<'a> {
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
    /// A new time to live, for a lease that was opened for this grant alone.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::duration_ms")]
    pub ttl_ms: Option<u64>,
}

impl<'a> Shape<'a> for Renew<'a> {
    const FIELDS: &'static [Field] = &[
        Field::required("resource", Kind::Text),
        Field::required("token", Kind::Count),
        Field::optional("client_id", Kind::Text),
        Field::optional("ttl_ms", Kind::Count),
    ];
}

/// How long the lease of the grant is valid now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Renewed<'a> {
    /// Milliseconds until the service may end it, as the service counts.
    pub expires_in_ms: u64,
    /// Milliseconds for which the client may act, counted from the sending of this request.
    pub valid_for_ms: u64,
    /// Grants of the same lease that ended without the client's doing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ended_grants: Vec<EndedGrant<'a>>,
    /// Grants of the same lease that an operator lets run out: this renewal does not keep them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub draining_grants: Vec<DrainingGrant<'a>>,
}

/// A grant that is not renewed any more while its lease is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DrainingGrant<'a> {
    /// What is held.
    pub resource: Cow<'a, str>,
    /// The token of the grant.
    #[schemars(schema_with = "schema::token")]
    pub token: u64,
    /// Milliseconds until the service may end it, as the service counts.
    pub expires_in_ms: u64,
    /// Milliseconds for which the client may act under it, counted from the sending of this
    /// request.
    pub valid_for_ms: u64,
}

/// A grant that ended without its client's doing while its lease lives on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EndedGrant<'a> {
    /// What was held.
    pub resource: Cow<'a, str>,
    /// The token of the grant.
    #[schemars(schema_with = "schema::token")]
    pub token: u64,
    /// How it ended: `forced`, `passed_on`, ...
    pub how: Cow<'a, str>,
    /// When it ended.
    pub ended_at: Time,
}
