//! `POST /v1/acquire-lock`: asks for a lock.

use crate::id::HexId;
use crate::metadata::Metadata;
use crate::mode::Mode;
use crate::parse::{Field, Kind, Shape, given, given_text};
use crate::schema;
use crate::time::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(transform = schema::basis)]
pub struct Acquire<'a> {
    /// What to lock: 1 to 512 bytes.
    #[serde(borrow)]
    #[schemars(schema_with = "schema::resource")]
    pub resource: Cow<'a, str>,
    /// The label of the client: 1 to 256 bytes.
    #[serde(borrow)]
    #[schemars(schema_with = "schema::client_id")]
    pub client_id: Cow<'a, str>,
    /// Opens a lease for this grant alone, with this time to live. Either this or `lease_id`.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::duration_ms")]
    pub ttl_ms: Option<u64>,
    /// Attaches the grant to a lease that was opened before.
    #[serde(
        borrow,
        default,
        deserialize_with = "given_text",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(schema_with = "schema::hex_id")]
    pub lease_id: Option<Cow<'a, str>>,
    /// Exclusive unless it says otherwise.
    #[serde(default, skip_serializing_if = "Mode::is_exclusive")]
    pub mode: Mode,
    /// How long to stand in line, in milliseconds; 0 tries once.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(range(max = 60_000))]
    pub wait_ms: u64,
    /// Makes the request safe to repeat: 1 to 128 bytes.
    #[serde(
        borrow,
        default,
        deserialize_with = "given_text",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(schema_with = "schema::request_id")]
    pub request_id: Option<Cow<'a, str>>,
    /// The grant passes on unless a renewal or release arrives within this many milliseconds.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::duration_ms")]
    pub claim_ms: Option<u64>,
    /// Keep the place in line for a while when the wait ends without a grant.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keep_place: bool,
    /// What the client holds already, so that waits for each other can be seen.
    #[serde(borrow, default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub holding: Vec<Holding<'a>>,
    /// String pairs to attach.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Metadata<'a>>,
}

impl Acquire<'_> {
    /// The longest wait of one request, in milliseconds.
    pub const WAIT_MS_MAX: u64 = 60_000;
    /// The longest list of grants in `holding`.
    pub const HOLDING_MAX: usize = 256;
}

pub(crate) const HOLDING_FIELDS: &[Field] =
    &[Field::required("resource", Kind::Text), Field::required("token", Kind::Count)];

impl<'a> Shape<'a> for Acquire<'a> {
    const FIELDS: &'static [Field] = &[
        Field::required("resource", Kind::Text),
        Field::required("client_id", Kind::Text),
        Field::optional("ttl_ms", Kind::Count),
        Field::optional("lease_id", Kind::Text),
        Field::optional("mode", Kind::Choice(Mode::WORDS)),
        Field::optional("wait_ms", Kind::Count),
        Field::optional("request_id", Kind::Text),
        Field::optional("claim_ms", Kind::Count),
        Field::optional("keep_place", Kind::Flag),
        Field::optional("holding", Kind::Objects(HOLDING_FIELDS)),
        Field::optional("metadata", Kind::TextMap),
    ];
}

/// A grant that the client says it holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Holding<'a> {
    /// The resource held.
    #[serde(borrow)]
    #[schemars(schema_with = "schema::resource")]
    pub resource: Cow<'a, str>,
    /// The token of that grant.
    #[schemars(schema_with = "schema::token")]
    pub token: u64,
}

/// A lock that was granted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Grant<'a> {
    /// What is held.
    pub resource: Cow<'a, str>,
    /// Strictly increasing a resource; what storage compares.
    #[schemars(schema_with = "schema::token")]
    pub token: u64,
    /// The lease that the grant stands on. Whoever knows it can end it.
    pub lease_id: HexId,
    /// The label of the holder.
    pub client_id: Cow<'a, str>,
    /// Exclusive or shared.
    pub mode: Mode,
    /// The time to live of the lease, in milliseconds.
    pub ttl_ms: u64,
    /// Milliseconds until the service may end it, as the service counts.
    pub expires_in_ms: u64,
    /// Milliseconds for which the client may act, counted from the sending of this request.
    pub valid_for_ms: u64,
    /// When it was granted.
    pub granted_at: Time,
    /// How long this request waited.
    pub waited_ms: u64,
    /// What the policies said.
    pub policies: Vec<PolicyVerdict<'a>>,
}

/// What one policy said about a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PolicyVerdict<'a> {
    /// The policy's name.
    pub name: Cow<'a, str>,
    /// The version that was asked.
    pub version: Cow<'a, str>,
    /// `allow`, `adjust`, ...
    pub verdict: Cow<'a, str>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}
