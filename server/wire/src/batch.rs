//! `POST /v1/batch`: several operations in one request, without waits.

use crate::acquire::{Acquire, Grant, HOLDING_FIELDS, Holding};
use crate::metadata::Metadata;
use crate::mode::Mode;
use crate::parse::{Field, Invalid, Kind, Shape, given, given_text};
use crate::problem::Problem;
use crate::release::{Release, Released};
use crate::renew::{Renew, Renewed};
use crate::schema;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// Operations, done in order, each with its own outcome.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Batch<'a> {
    /// At most 256.
    #[serde(borrow)]
    #[schemars(length(max = 256))]
    pub operations: Vec<RawOperation<'a>>,
}

impl Batch<'_> {
    /// How many operations one request may have.
    pub const OPERATIONS_MAX: usize = 256;
}

impl<'a> Shape<'a> for Batch<'a> {
    const FIELDS: &'static [Field] =
        &[Field::required("operations", Kind::Objects(RawOperation::FIELDS))];
}

/// One operation, before it is known which fields its verb takes.
///
/// One flat struct rather than a tagged enum, which would read through a buffer and see neither
/// positions nor repeated fields.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawOperation<'a> {
    /// The verb.
    pub op: Verb,
    /// See [`Acquire`], [`Renew`] and [`Release`].
    #[serde(borrow)]
    pub resource: Cow<'a, str>,
    /// Of all verbs; acquire needs it.
    #[serde(
        borrow,
        default,
        deserialize_with = "given_text",
        skip_serializing_if = "Option::is_none"
    )]
    pub client_id: Option<Cow<'a, str>>,
    /// Of renew and release, which need it.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub token: Option<u64>,
    /// Of acquire and renew.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
    /// Of acquire.
    #[serde(
        borrow,
        default,
        deserialize_with = "given_text",
        skip_serializing_if = "Option::is_none"
    )]
    pub lease_id: Option<Cow<'a, str>>,
    /// Of acquire.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// Of acquire.
    #[serde(
        borrow,
        default,
        deserialize_with = "given_text",
        skip_serializing_if = "Option::is_none"
    )]
    pub request_id: Option<Cow<'a, str>>,
    /// Of acquire.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub claim_ms: Option<u64>,
    /// Of acquire.
    #[serde(
        borrow,
        default,
        deserialize_with = "given_holding",
        skip_serializing_if = "Option::is_none"
    )]
    pub holding: Option<Vec<Holding<'a>>>,
    /// Of acquire.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Metadata<'a>>,
}

/// The verbs of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verb {
    /// Ask for a lock.
    Acquire,
    /// Keep a grant.
    Renew,
    /// Give a grant back.
    Release,
}

impl RawOperation<'_> {
    const FIELDS: &'static [Field] = &[
        Field::required("op", Kind::Choice(&["acquire", "renew", "release"])),
        Field::required("resource", Kind::Text),
        Field::optional("client_id", Kind::Text),
        Field::optional("token", Kind::Count),
        Field::optional("ttl_ms", Kind::Count),
        Field::optional("lease_id", Kind::Text),
        Field::optional("mode", Kind::Choice(Mode::WORDS)),
        Field::optional("request_id", Kind::Text),
        Field::optional("claim_ms", Kind::Count),
        Field::optional("holding", Kind::Objects(HOLDING_FIELDS)),
        Field::optional("metadata", Kind::TextMap),
    ];

    /// The fields that are there although only an acquire takes them.
    fn only_of_acquire(&self) -> Option<&'static str> {
        [
            ("lease_id", self.lease_id.is_some()),
            ("mode", self.mode.is_some()),
            ("request_id", self.request_id.is_some()),
            ("claim_ms", self.claim_ms.is_some()),
            ("holding", self.holding.is_some()),
            ("metadata", self.metadata.is_some()),
        ]
        .into_iter()
        .find_map(|(name, there)| there.then_some(name))
    }
}

/// One operation of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation<'a> {
    /// Ask for a lock.
    Acquire(Acquire<'a>),
    /// Keep a grant.
    Renew(Renew<'a>),
    /// Give a grant back.
    Release(Release<'a>),
}

impl<'a> RawOperation<'a> {
    /// Gives the operation the shape of its verb.
    ///
    /// # Errors
    /// [`Invalid`] names a field, relative to the operation, that the verb needs or does not take.
    pub fn shaped(self) -> Result<Operation<'a>, Invalid> {
        match self.op {
            Verb::Acquire => self.into_acquire().map(Operation::Acquire),
            Verb::Renew => self.into_renew().map(Operation::Renew),
            Verb::Release => self.into_release().map(Operation::Release),
        }
    }

    fn into_acquire(self) -> Result<Acquire<'a>, Invalid> {
        if self.token.is_some() {
            return Err(not_taken("token", "acquire"));
        }
        Ok(Acquire {
            resource: self.resource,
            client_id: self.client_id.ok_or_else(|| missing("client_id", Kind::Text))?,
            ttl_ms: self.ttl_ms,
            lease_id: self.lease_id,
            mode: self.mode.unwrap_or_default(),
            wait_ms: 0,
            request_id: self.request_id,
            claim_ms: self.claim_ms,
            keep_place: false,
            holding: self.holding.unwrap_or_default(),
            metadata: self.metadata,
        })
    }

    fn into_renew(self) -> Result<Renew<'a>, Invalid> {
        if let Some(name) = self.only_of_acquire() {
            return Err(not_taken(name, "renew"));
        }
        let token = self.token.ok_or_else(|| missing("token", Kind::Count))?;
        Ok(Renew { resource: self.resource, token, client_id: self.client_id, ttl_ms: self.ttl_ms })
    }

    fn into_release(self) -> Result<Release<'a>, Invalid> {
        let extra = self.only_of_acquire().or(self.ttl_ms.map(|_| "ttl_ms"));
        if let Some(name) = extra {
            return Err(not_taken(name, "release"));
        }
        let token = self.token.ok_or_else(|| missing("token", Kind::Count))?;
        Ok(Release { resource: self.resource, token, client_id: self.client_id })
    }
}

/// One schema a verb, because that is what can be said exactly and what clients build.
impl JsonSchema for RawOperation<'_> {
    fn schema_name() -> Cow<'static, str> {
        "BatchOperation".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "One operation of a batch.",
            "oneOf": [
                generator.subschema_for::<BatchAcquire>(),
                generator.subschema_for::<BatchRenew>(),
                generator.subschema_for::<BatchRelease>(),
            ],
        })
    }
}

macro_rules! operation_schemas {
    ($($name:ident $verb:literal $of:ty, without $without:expr;)+) => {$(
        /// Stands for the schema only; the operation is read as a [`RawOperation`].
        struct $name;

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(generator: &mut SchemaGenerator) -> Schema {
                schema::operation::<$of>(generator, $verb, $without)
            }
        }
    )+};
}

operation_schemas! {
    BatchAcquire "acquire" Acquire<'_>, without &["wait_ms", "keep_place"];
    BatchRenew "renew" Renew<'_>, without &[];
    BatchRelease "release" Release<'_>, without &[];
}

fn missing(name: &'static str, kind: Kind) -> Invalid {
    Invalid::field(name, "is missing", kind.to_string())
}

fn not_taken(name: &'static str, verb: &str) -> Invalid {
    Invalid::field(name, format!("is not a field of {verb}"), "nothing")
}

fn given_holding<'de: 'a, 'a, D: serde::Deserializer<'de>>(
    source: D,
) -> Result<Option<Vec<Holding<'a>>>, D::Error> {
    Vec::deserialize(source).map(Some)
}

/// One result an operation, in order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BatchResults<'a> {
    /// In the order of the operations.
    pub results: Vec<BatchResult<'a>>,
}

/// What became of one operation: a status, and the field that belongs to it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct BatchResult<'a> {
    /// The status that the operation would have had on its own.
    #[schemars(range(min = 200, max = 599))]
    pub status: u16,
    /// An acquire was granted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant: Option<Grant<'a>>,
    /// A renewal was done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renewed: Option<Renewed<'a>>,
    /// A release was done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub released: Option<Released>,
    /// The operation changed nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<Box<Problem<'a>>>,
}
