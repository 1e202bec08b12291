//! `GET /v1/lock` and `GET /v1/locks`

use crate::answer::{Answer, Answered};
use crate::ask::Ask;
use crate::{from_wire, to_wire};
use leasehold_node::{LockState, LocksFilter};
use leasehold_wire::Invalid;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

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
    let reading = ask.reading(query.stale()?);
    let status = ask.node().lock(ask.call, resource, QUEUE_SHOWN, reading.stale).await?;
    Ok(reading.answered(Answer::json(&to_wire::lock(&status.value)), status.revision))
}

/// `GET /v1/locks`
pub(crate) async fn list(ask: Ask) -> Answered {
    let filter = filter(&ask)?;
    let reading = ask.reading(ask.query(LIST_PARAMETERS)?.stale()?);
    let page = ask.node().locks(ask.call, filter, reading.stale).await?;
    Ok(reading.answered(Answer::json(&to_wire::locks(&page.value)), page.revision))
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

/// A read that is about to be made, and for a stale one how old the state was before.
#[derive(Clone, Copy)]
pub(crate) struct Reading {
    pub(crate) stale: bool,
    seen: Option<(Duration, Instant)>,
}

impl Ask {
    /// Looks at the age now: by the time of the answer this node may have heard of more than was
    /// read.
    pub(crate) fn reading(&self, stale: bool) -> Reading {
        let begun = Instant::now();
        let age = stale.then(|| self.app.onward.age()).flatten();
        Reading { stale, seen: age.map(|age| (age, begun)) }
    }
}

impl Reading {
    /// Marks the answer with the revision that was seen, or a stale one with its age.
    ///
    /// The age counts from when this node certainly knew all that had happened: whatever has
    /// happened since, it may not know of.
    pub(crate) fn answered(self, answer: Answer, revision: u64) -> Answer {
        let age_ms = self.seen.map(|(age, begun)| {
            // A node that is its own quorum knows everything.
            let age = if age.is_zero() { age } else { age + begun.elapsed() };
            age.as_micros().div_ceil(1_000) as u64
        });
        let answer = if self.stale { answer.aged(age_ms) } else { answer.at(revision) };
        answer.unstored()
    }
}
