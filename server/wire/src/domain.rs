//! `/v1/domains`: the settings of one domain.

use crate::parse::{Field, Kind, Shape, given};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// `GET /v1/domains`, or one item of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Domain<'a> {
    /// Its name: what stands before the first `/` of a resource, or `default`.
    pub domain: Cow<'a, str>,
    /// Waiters for one of its resources; absent where the limit of the service counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_max: Option<u64>,
    /// Changes with every change, and stands in `ETag`: give it back in `If-Match`. Opaque.
    pub version: Cow<'a, str>,
}

/// `PUT /v1/domains?domain=`: replaces all settings of the domain.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SetDomain {
    /// Waiters for one of its resources, from 1 on; left out: as the service has it.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 200_000))]
    pub queue_max: Option<u64>,
}

impl<'a> Shape<'a> for SetDomain {
    const FIELDS: &'static [Field] = &[Field::optional("queue_max", Kind::Count)];
}
