//! `GET /v1/grants`: how it was.

use crate::answer::{Answer, Answered};
use crate::ask::Ask;
use crate::fault::Fault;
use crate::locks::{LIMIT, LIMIT_DEFAULT, not_ours};
use crate::query::Query;
use crate::{from_wire, to_wire};
use leasehold_core::{ResourceName, Token};
use leasehold_node::{GrantSeen, GrantsFilter, NoGrant};
use leasehold_wire::{self as wire, Code, Invalid, Problem, Time};

pub(crate) const PARAMETERS: &[&str] = &["resource", "token", "client_id", "at", "limit", "cursor"];

/// `GET /v1/grants`
pub(crate) async fn list(ask: Ask) -> Answered {
    let query = ask.query(PARAMETERS)?;
    let at_ms = query.text("at").map(|text| instant(text, &ask)).transpose()?;
    let resource = query.text("resource").map(from_wire::resource).transpose()?;
    if let Some(token) = query.token("token")? {
        return one(ask, &query, token, resource, at_ms).await;
    }
    let filter = GrantsFilter {
        resource,
        client: query.text("client_id").map(from_wire::client_id).transpose()?,
        at_ms,
    };
    let cursor = query.text("cursor");
    if cursor.is_some_and(|text| !filter.goes_on_from(text)) {
        return Err(not_ours().into());
    }
    let limit = query.number("limit", LIMIT)?.unwrap_or(LIMIT_DEFAULT);
    let page = ask.node().grants(ask.call, filter, cursor, limit).await?;
    let items = page.value.items.iter().map(|seen| to_wire::history::grant_record(seen, None));
    let shape = wire::Page {
        items: items.collect(),
        next_cursor: page.value.next.as_deref().map(Into::into),
        total: None,
    };
    Ok(Answer::json(&shape).at(page.revision).unstored())
}

/// One grant by its token: with `at`, the answer to "was token N valid at time T".
async fn one(
    ask: Ask,
    query: &Query,
    token: Token,
    resource: Option<ResourceName>,
    at_ms: Option<u64>,
) -> Answered {
    if let Some(other) = ["client_id", "cursor"].into_iter().find(|name| query.text(name).is_some())
    {
        let allowed = "token with resource, at and limit only";
        return Err(Invalid::field(other, "stands beside `token`", allowed).into());
    }
    query.number("limit", LIMIT)?;
    let found = ask.node().grant(ask.call, token).await?;
    let seen = found.value.map_err(|why| unknown(token, why))?;
    if resource.is_some_and(|resource| seen.grant.resource != resource) {
        return Err(elsewhere(&seen).into());
    }
    let items = vec![to_wire::history::grant_record(&seen, at_ms)];
    let shape = wire::Page { items, next_cursor: None, total: Some(1) };
    Ok(Answer::json(&shape).at(found.revision).unstored())
}

/// The future is not known, so a question about it has no answer.
fn instant(text: &str, ask: &Ask) -> Result<u64, Invalid> {
    let allowed = "a time in the past, like 2026-05-04T03:02:01.000Z";
    let read = Time::read(text)
        .ok_or_else(|| Invalid::field("at", "is not a time in RFC 3339", allowed))?;
    if read.0 > ask.node().wall_clock_ms() {
        return Err(Invalid::field("at", "lies in the future", allowed));
    }
    Ok(read.0)
}

fn unknown(token: Token, why: NoGrant) -> Fault {
    let (reason, detail) = match why {
        NoGrant::NeverIssued => ("never_issued", format!("token {token} was never given out")),
        NoGrant::Forgotten => (
            "forgotten",
            format!("the grant with token {token} ended so long ago that it is not known any more"),
        ),
    };
    let problem = Problem::new(404, Code::NotFound, detail);
    Problem { reason: Some(reason.into()), token: Some(token.0), ..problem }.into()
}

fn elsewhere(seen: &GrantSeen) -> Problem<'static> {
    let token = seen.grant.token;
    let detail = format!("token {token} was given out for another resource");
    Problem {
        reason: Some("other_resource".into()),
        token: Some(token.0),
        ..Problem::new(404, Code::NotFound, detail)
    }
}
