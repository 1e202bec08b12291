//! The one shape of every error: RFC 9457, `application/problem+json`.

use crate::code::Code;
use crate::lock::Holder;
use crate::schema;
use crate::time::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// What went wrong. Which of the optional fields are there follows from `code`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Problem<'a> {
    /// `urn:leasehold:problem:` and the code.
    #[serde(rename = "type")]
    pub kind: Cow<'a, str>,
    /// One short phrase, the same at every occurrence.
    pub title: Cow<'a, str>,
    /// The status of the answer, or of the operation in a batch.
    #[schemars(range(min = 200, max = 599))]
    pub status: u16,
    /// What programs switch on.
    pub code: Code,
    /// What happened this time, for people.
    pub detail: Cow<'a, str>,
    /// Finds the request in logs; absent in a batch, where it is the same for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<Cow<'a, str>>,
    /// The field that is wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<Cow<'a, str>>,
    /// What is allowed in it, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed: Option<Cow<'a, str>>,
    /// The least that is allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<u64>,
    /// The most that is allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<u64>,
    /// What was expected: types of content, preconditions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<Cow<'a, str>>,
    /// The policy that said no.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<Cow<'a, str>>,
    /// Its version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<Cow<'a, str>>,
    /// Why, for programs, in the policy's own words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason_code: Option<Cow<'a, str>>,
    /// Why: the budget that is used up, or the policy's words for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Cow<'a, str>>,
    /// The domain whose budget is used up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<Cow<'a, str>>,
    /// At most eight of the holders.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holders: Option<Vec<Holder<'a>>>,
    /// How many there are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holders_total: Option<usize>,
    /// How many stand in line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_length: Option<usize>,
    /// How long this request waited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waited_ms: Option<u64>,
    /// The place in line when the wait ended, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<usize>,
    /// Who waits for whom, starting with the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cycle: Option<Vec<CycleStep<'a>>>,
    /// How a grant or lease ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub how: Option<Cow<'a, str>>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Time>,
    /// The token of the grant that ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::token")]
    pub token: Option<u64>,
    /// The present version, where a precondition failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<Cow<'a, str>>,
    /// What to repeat the request with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<Cow<'a, str>>,
    /// When to try again, beside the header `Retry-After`, which knows only seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
}

impl<'a> Problem<'a> {
    /// A problem without any of the optional fields.
    #[must_use]
    pub fn new(status: u16, code: Code, detail: impl Into<Cow<'a, str>>) -> Self {
        Self {
            kind: Cow::Borrowed(code.urn()),
            title: Cow::Borrowed(code.title()),
            status,
            code,
            detail: detail.into(),
            trace_id: None,
            field: None,
            allowed: None,
            min: None,
            max: None,
            expected: None,
            policy: None,
            version: None,
            reason_code: None,
            reason: None,
            domain: None,
            holders: None,
            holders_total: None,
            queue_length: None,
            waited_ms: None,
            position: None,
            cycle: None,
            how: None,
            ended_at: None,
            token: None,
            current: None,
            request_id: None,
            retry_after_ms: None,
        }
    }
}

/// One step of a cycle of waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CycleStep<'a> {
    /// Who waits.
    pub client_id: Cow<'a, str>,
    /// For what.
    pub resource: Cow<'a, str>,
}
