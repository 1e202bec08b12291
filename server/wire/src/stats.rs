//! `GET /v1/stats`, `GET /v1/attention` and `GET /v1/config`: the service about itself.

use crate::why::Usage;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// The service in numbers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Stats<'a> {
    /// The node that answers.
    pub node_id: u64,
    /// The cluster, as 32 hexadecimal digits. One that was restored has another id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_id: Option<Cow<'a, str>>,
    /// The node that leads, if one does.
    pub leader: Option<u64>,
    /// The version of the answering node.
    pub version: Cow<'a, str>,
    /// How long it has been running.
    pub uptime_ms: u64,
    /// The newest change.
    pub revision: Cow<'a, str>,
    /// The newest token.
    pub last_token: u64,
    /// Resources that are held or waited for.
    pub locks: u64,
    /// Live grants.
    pub grants: u64,
    /// Places in lines.
    pub waiters: u64,
    /// Live leases.
    pub leases: u64,
    /// Clients with anything.
    pub clients: u64,
    /// The oldest change that `watch` can still tell; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_event: Option<Cow<'a, str>>,
    /// Streams of `watch` that are open on this node.
    pub watch_streams: u64,
    /// Every bound, and how far it is used up.
    pub usage: Vec<Usage<'a>>,
    /// How long requests took on this node since it started, by route.
    pub latency: Vec<Latency<'a>>,
}

/// How long requests of one route took.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Latency<'a> {
    /// The route.
    pub route: Cow<'a, str>,
    /// How many there were.
    pub count: u64,
    /// The upper end of the histogram bucket that half of them fit in, in milliseconds.
    pub p50_ms: f64,
    /// The same for 99 of 100.
    pub p99_ms: f64,
}

/// What needs somebody now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Attention<'a> {
    /// The worst first; empty if all is well.
    pub items: Vec<Concern<'a>>,
}

/// One thing that needs somebody.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Concern<'a> {
    /// How bad it is.
    pub severity: Severity,
    /// What it is, for programs.
    pub code: Cow<'a, str>,
    /// What it is and what to do, for people.
    pub message: Cow<'a, str>,
    /// The number that is out of bounds.
    pub value: u64,
    /// The bound.
    pub threshold: u64,
}

/// How bad something is.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Requests are refused or lost now.
    Critical,
    /// They soon will be.
    Warning,
}

/// The settings in force on the answering node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Config<'a> {
    /// In the order of the help. Secrets are left out.
    pub settings: Vec<Setting<'a>>,
}

/// One setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Setting<'a> {
    /// Its key.
    pub name: Cow<'a, str>,
    /// Its value, as it would be written.
    pub value: Cow<'a, str>,
    /// Where the value came from: `default`, a file, a variable, `flag`, or `cluster` where the
    /// replicated value counts and not this node's own.
    pub origin: Cow<'a, str>,
}
