//! `GET /v1/grants`: every grant that is live or remembered, newest first.

use crate::acquire::PolicyVerdict;
use crate::metadata::Metadata;
use crate::mode::Mode;
use crate::schema;
use crate::time::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// A grant from its request to its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GrantRecord<'a> {
    /// What is or was held.
    pub resource: Cow<'a, str>,
    /// Its token.
    #[schemars(schema_with = "schema::token")]
    pub token: u64,
    /// The label of the holder.
    pub client_id: Cow<'a, str>,
    /// Who the service knows the holder to be.
    pub principal: Cow<'a, str>,
    /// Exclusive or shared.
    pub mode: Mode,
    /// Whether it is live or has ended.
    pub state: GrantState,
    /// When it was asked for.
    pub asked_at: Time,
    /// When it was granted.
    pub granted_at: Time,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Time>,
    /// How it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub how: Option<EndedHow>,
    /// Milliseconds until its lease may end, if it is live.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in_ms: Option<u64>,
    /// Whether it was valid at the time that the request asks about (`at`), with a `token`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub valid: Option<bool>,
    /// What the policies said.
    pub policies: Vec<PolicyVerdict<'a>>,
    /// What the client attached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Metadata<'a>>,
}

/// Whether a grant still stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum GrantState {
    /// It is held.
    Live,
    /// It is over.
    Ended,
}

/// How a grant ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EndedHow {
    /// Its holder gave it back.
    Released,
    /// Its deadline passed.
    Expired,
    /// An operator ended it.
    Forced,
    /// Its lease was ended by an operator.
    Revoked,
    /// Nobody claimed it within the window.
    PassedOn,
    /// A restore or recovery ended it.
    Restored,
    /// The wait was cancelled.
    Cancelled,
}
