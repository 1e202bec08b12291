//! `GET /v1/clients`: who has anything.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// What one client has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClientSummary<'a> {
    /// Its label.
    pub client_id: Cow<'a, str>,
    /// Who the service knows it to be.
    pub principal: Cow<'a, str>,
    /// How many leases it has.
    pub leases: u64,
    /// How many grants.
    pub grants: u64,
    /// How many places in lines.
    pub waiting: u64,
}
