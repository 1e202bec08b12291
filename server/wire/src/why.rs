//! `GET /v1/lock/why`: why a client waits, or would.

use crate::acquire::PolicyVerdict;
use crate::code::Code;
use crate::lock::{Holder, Waiter};
use crate::problem::CycleStep;
use crate::schema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// Where a client stands with a resource, and what is in its way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Why<'a> {
    /// The resource.
    pub resource: Cow<'a, str>,
    /// The client asked about; absent if only a request was named and it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_id: Option<Cow<'a, str>>,
    /// The request asked about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<Cow<'a, str>>,
    /// Where it stands.
    pub state: WhyState,
    /// The same as a sentence for people.
    pub explanation: Cow<'a, str>,
    /// The code that an exclusive request without a wait would get now, or, where it could not
    /// even stand in line, one with a wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<Code>,
    /// The token, if it holds the lock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::token")]
    pub token: Option<u64>,
    /// Its place in line, if it waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiter: Option<Waiter<'a>>,
    /// Those in line before it, nearest to the grant first; at most eight.
    pub ahead: Vec<Waiter<'a>>,
    /// How many stand in line before it.
    pub ahead_total: usize,
    /// At most eight of those who hold the lock.
    pub holders: Vec<Holder<'a>>,
    /// How many hold it.
    pub holders_total: usize,
    /// The bounds that count here, and how far each is used up.
    pub limits: Vec<Usage<'a>>,
    /// Who waits for whom, where a wait for this lock would never end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cycle: Option<Vec<CycleStep<'a>>>,
    /// What the policies said about the request that waits or holds.
    pub policies: Vec<PolicyVerdict<'a>>,
}

/// Where a client stands with a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WhyState {
    /// It holds the lock.
    Holds,
    /// It stands in line, and a live request waits.
    Waits,
    /// Its place in line is kept for a while, but no live request waits: nothing is granted to it.
    Detached,
    /// It asked for nothing; the lock is free.
    Free,
    /// It asked for nothing; it would have to stand in line.
    WouldWait,
    /// It asked for nothing; it could not even stand in line, because a bound is reached.
    WouldBeRefused,
}

/// A bound and how far it is used up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Usage<'a> {
    /// The setting that bounds it.
    pub name: Cow<'a, str>,
    /// How much is used.
    pub used: u64,
    /// How much there may be.
    pub max: u64,
}
