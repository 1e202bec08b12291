//! `GET /v1/lock` and `GET /v1/locks`

use crate::answer::{Answer, Answered};
use crate::ask::Ask;
use crate::{from_wire, to_wire};
use leasehold_node::{LockState, LocksFilter};
use leasehold_wire::Invalid;
use std::ops::RangeInclusive;

/// Items of one page.
pub(crate) const LIMIT: RangeInclusive<usize> = 1..=1_000;
pub(crate) const LIMIT_DEFAULT: usize = 100;

/// Waiters that one lock's answer lists; its `queue_length` counts them all.
const QUEUE_SHOWN: usize = 256;

pub(crate) const ONE_PARAMETERS: &[&str] = &["resource", "consistency"];

/// `GET /v1/lock?resource=`
pub(crate) async fn one(ask: Ask) -> Answered {
    let query = ask.query(ONE_PARAMETERS)?;
    let resource = from_wire::resource(query.required("resource")?)?;
    let stale = query.stale()?;
    let status = ask.node().lock(ask.call, resource, QUEUE_SHOWN, stale).await?;
    Ok(ask.read(Answer::json(&to_wire::lock(&status.value)), status.revision, stale))
}

/// `GET /v1/locks`
pub(crate) async fn list(ask: Ask) -> Answered {
    let filter = filter(&ask)?;
    let stale = ask.query(LIST_PARAMETERS)?.stale()?;
    let page = ask.node().locks(ask.call, filter, stale).await?;
    Ok(ask.read(Answer::json(&to_wire::locks(&page.value)), page.revision, stale))
}

pub(crate) const LIST_PARAMETERS: &[&str] =
    &["prefix", "domain", "client_id", "state", "limit", "cursor", "consistency"];

fn filter(ask: &Ask) -> Result<LocksFilter, Invalid> {
    let query = ask.query(LIST_PARAMETERS)?;
    let states = [("held", LockState::Held), ("contended", LockState::Contended)];
    let filter = LocksFilter {
        prefix: query.text("prefix").map(str::to_owned),
        domain: query.text("domain").map(str::to_owned),
        client: query.text("client_id").map(from_wire::client_id).transpose()?,
        state: query.choice("state", &states)?,
        limit: query.number("limit", LIMIT)?.unwrap_or(LIMIT_DEFAULT),
        ..LocksFilter::default()
    };
    match query.text("cursor") {
        Some(cursor) => filter.go_on(cursor).ok_or_else(not_ours),
        None => Ok(filter),
    }
}

/// A cursor that no page of this list gave out.
pub(crate) fn not_ours() -> Invalid {
    Invalid::field("cursor", "is not from a page of this list", "a `next_cursor` of the same query")
}

impl Ask {
    /// Marks a reader's answer with the revision that it saw, and a stale one with its age.
    ///
    /// The age counts from the last word of a quorum, or of the leader, that this node heard:
    /// whatever has happened since, it may not know of.
    pub(crate) fn read(&self, answer: Answer, revision: u64, stale: bool) -> Answer {
        let age_ms = self.app.onward.age().map(|age| age.as_micros().div_ceil(1_000) as u64);
        let answer = if stale { answer.aged(age_ms) } else { answer.at(revision) };
        answer.unstored()
    }
}
