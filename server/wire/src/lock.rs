//! `GET /v1/lock` and `GET /v1/locks`: what readers see of a lock.

use crate::metadata::Metadata;
use crate::mode::Mode;
use crate::schema;
use crate::time::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// Whether somebody holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LockState {
    /// Nobody.
    Free,
    /// One or several.
    Held,
}

/// One lock with its line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Lock<'a> {
    /// Its name.
    pub resource: Cow<'a, str>,
    /// Whether somebody holds it.
    pub state: LockState,
    /// Who holds it.
    pub holders: Vec<Holder<'a>>,
    /// Who stands in line, first first.
    pub queue: Vec<Waiter<'a>>,
    /// How many stand in line; more than `queue` lists if it is long.
    pub queue_length: usize,
    /// The newest token that is still known.
    pub last_token: Option<u64>,
}

/// One lock in a page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LockSummary<'a> {
    /// Its name.
    pub resource: Cow<'a, str>,
    /// Whether somebody holds it.
    pub state: LockState,
    /// At most eight of those who hold it.
    pub holders: Vec<Holder<'a>>,
    /// How many hold it.
    pub holders_total: usize,
    /// How many stand in line.
    pub queue_length: usize,
}

/// Who holds a lock, as anybody may see it: the lease's id is not in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Holder<'a> {
    /// The label of the client.
    pub client_id: Cow<'a, str>,
    /// The token of the grant.
    #[schemars(schema_with = "schema::token")]
    pub token: u64,
    /// Exclusive or shared.
    pub mode: Mode,
    /// Since when.
    pub granted_at: Time,
    /// Milliseconds until its lease may end; absent where the answer came from elsewhere than
    /// the lease clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in_ms: Option<u64>,
    /// An operator asked for its end: it is not renewed any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub draining: bool,
    /// What the client attached; left out in problems and pages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Metadata<'a>>,
}

/// Who stands in line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Waiter<'a> {
    /// From 1.
    pub position: usize,
    /// The label of the client.
    pub client_id: Cow<'a, str>,
    /// Exclusive or shared.
    pub mode: Mode,
    /// Higher goes first.
    pub priority: u8,
    /// For how long.
    pub waiting_ms: u64,
    /// Whether a live request waits; if not, the place is kept for a while.
    pub attached: bool,
}
