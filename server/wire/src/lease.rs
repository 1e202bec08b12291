//! `/v1/leases`: leases that can hold many grants.

use crate::code::Code;
use crate::id::HexId;
use crate::metadata::Metadata;
use crate::mode::Mode;
use crate::parse::{Field, Kind, Shape, given, given_text};
use crate::renew::{DrainingGrant, EndedGrant};
use crate::schema;
use crate::time::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// `POST /v1/leases`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OpenLease<'a> {
    /// The label of the client: 1 to 256 bytes.
    #[serde(borrow)]
    #[schemars(schema_with = "schema::client_id")]
    pub client_id: Cow<'a, str>,
    /// The time to live, in milliseconds.
    #[schemars(schema_with = "schema::duration_ms")]
    pub ttl_ms: u64,
    /// String pairs to attach.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Metadata<'a>>,
}

impl<'a> Shape<'a> for OpenLease<'a> {
    const FIELDS: &'static [Field] = &[
        Field::required("client_id", Kind::Text),
        Field::required("ttl_ms", Kind::Count),
        Field::optional("metadata", Kind::TextMap),
    ];
}

/// A lease that is open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LeaseOpened<'a> {
    /// Its id. Whoever knows it can use and end it.
    pub lease_id: HexId,
    /// The label of its client.
    pub client_id: Cow<'a, str>,
    /// Its time to live, in milliseconds.
    pub ttl_ms: u64,
    /// Milliseconds until the service may end it, as the service counts.
    pub expires_in_ms: u64,
    /// Milliseconds for which the client may act, counted from the sending of this request.
    pub valid_for_ms: u64,
}

/// `POST /v1/leases/{id}/keep-alive`; the body may be left out.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KeepAlive<'a> {
    /// The label of the client; compared if it is given.
    #[serde(
        borrow,
        default,
        deserialize_with = "given_text",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(schema_with = "schema::client_id")]
    pub client_id: Option<Cow<'a, str>>,
}

impl<'a> Shape<'a> for KeepAlive<'a> {
    const FIELDS: &'static [Field] = &[Field::optional("client_id", Kind::Text)];
}

/// `POST /v1/leases/keep-alive`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KeepAliveMany<'a> {
    /// At most 1,000.
    #[serde(borrow)]
    #[schemars(schema_with = "schema::lease_ids")]
    pub lease_ids: Vec<Cow<'a, str>>,
    /// The label of the client; compared if it is given.
    #[serde(
        borrow,
        default,
        deserialize_with = "given_text",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(schema_with = "schema::client_id")]
    pub client_id: Option<Cow<'a, str>>,
}

impl KeepAliveMany<'_> {
    /// How many leases one request may name.
    pub const LEASES_MAX: usize = 1_000;
}

impl<'a> Shape<'a> for KeepAliveMany<'a> {
    const FIELDS: &'static [Field] =
        &[Field::required("lease_ids", Kind::Texts), Field::optional("client_id", Kind::Text)];
}

/// What became of one lease: either the two durations or a code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KeptAlive<'a> {
    /// Which.
    pub lease_id: HexId,
    /// Milliseconds until the service may end it, as the service counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in_ms: Option<u64>,
    /// Milliseconds for which the client may act, counted from the sending of this request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub valid_for_ms: Option<u64>,
    /// Why it is not kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<Code>,
    /// Grants of the lease that ended without the client's doing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ended_grants: Vec<EndedGrant<'a>>,
    /// Grants of the lease that an operator lets run out: this renewal does not keep them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub draining_grants: Vec<DrainingGrant<'a>>,
}

/// One result a lease, in order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KeptAliveMany<'a> {
    /// In the order of the request.
    pub results: Vec<KeptAlive<'a>>,
}

/// `DELETE /v1/leases/{id}`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LeaseEnded {
    /// Always true: a lease that is not there is a problem instead.
    pub ended: bool,
}

/// `GET /v1/leases/{id}`, and an item of `GET /v1/leases`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Lease<'a> {
    /// Its id.
    pub lease_id: HexId,
    /// The label of its client.
    pub client_id: Cow<'a, str>,
    /// Its time to live, in milliseconds.
    pub ttl_ms: u64,
    /// When it was opened.
    pub opened_at: Time,
    /// It was opened for one grant, and ends with it.
    pub single: bool,
    /// Milliseconds until its earliest possible end, without a further renewal.
    pub earliest_end_in_ms: u64,
    /// Milliseconds until its latest possible end, without a further renewal or change of leader.
    /// Of a lease that only waits for its lock, both are as if its client left now.
    pub latest_end_in_ms: u64,
    /// How many grants stand on it.
    pub grants_total: usize,
    /// How many tickets stand on it.
    pub waiting_total: usize,
    /// The grants, at most 1,000; left out in a page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grants: Option<Vec<LeaseGrant<'a>>>,
    /// The resources that it waits for, at most 1,000; left out in a page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_for: Option<Vec<Cow<'a, str>>>,
}

/// A grant that stands on a lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LeaseGrant<'a> {
    /// What is held.
    pub resource: Cow<'a, str>,
    /// The token of the grant.
    #[schemars(schema_with = "schema::token")]
    pub token: u64,
    /// Exclusive or shared.
    pub mode: Mode,
    /// When it was granted.
    pub granted_at: Time,
}
