//! `POST /v1/cancel-wait`: leaves the line on purpose.

use crate::parse::{Field, Kind, Shape};
use crate::schema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// Which request waits no more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CancelWait<'a> {
    /// The label of the client that waits.
    #[serde(borrow)]
    #[schemars(schema_with = "schema::client_id")]
    pub client_id: Cow<'a, str>,
    /// The id that it gave its request.
    #[serde(borrow)]
    #[schemars(schema_with = "schema::request_id")]
    pub request_id: Cow<'a, str>,
}

impl<'a> Shape<'a> for CancelWait<'a> {
    const FIELDS: &'static [Field] =
        &[Field::required("client_id", Kind::Text), Field::required("request_id", Kind::Text)];
}

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WaitCancelled {
    /// Whether such a request stood in line.
    pub cancelled: bool,
}
