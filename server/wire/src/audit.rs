//! `GET /v1/audit`: who did what, when, from where, and with what result.

use crate::schema;
use crate::time::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// One thing that somebody did to what is not their own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuditRecord<'a> {
    /// Its number in the order of all changes. Opaque.
    pub revision: Cow<'a, str>,
    /// When, by the wall clock of the leader of that time.
    pub happened_at: Time,
    /// Who did it.
    pub principal: Cow<'a, str>,
    /// The address that the request came from.
    pub source: Cow<'a, str>,
    /// What was done: `force_release_now`, `force_release_drain`, `set_domain`, `add_node`, ...
    pub action: Cow<'a, str>,
    /// To what: a resource, a domain or a node.
    pub target: Cow<'a, str>,
    /// To which grant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::token")]
    pub token: Option<u64>,
    /// Why, in the words of whoever did it.
    pub reason: Cow<'a, str>,
    /// `done`, or why nothing was: `not_live` (the token held nothing there), `no_lease`,
    /// `version_differs`, `full`. Of a change of the cluster, which is not decided where this is
    /// recorded: `begun`, and a second record `refused` if it was not made.
    pub result: Cow<'a, str>,
}
