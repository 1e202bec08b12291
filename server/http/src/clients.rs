//! `GET /v1/clients`: who has anything.

use crate::answer::{Answer, Answered};
use crate::ask::Ask;
use crate::locks::{LIMIT, LIMIT_DEFAULT, not_ours};
use crate::{from_wire, to_wire};
use leasehold_node::ClientsFilter;

pub(crate) const PARAMETERS: &[&str] = &["client_id", "limit", "cursor", "consistency"];

pub(crate) async fn list(ask: Ask) -> Answered {
    let query = ask.query(PARAMETERS)?;
    let stale = query.stale()?;
    let mut filter = ClientsFilter {
        client: query.text("client_id").map(from_wire::client_id).transpose()?,
        limit: query.number("limit", LIMIT)?.unwrap_or(LIMIT_DEFAULT),
        ..ClientsFilter::default()
    };
    if let Some(cursor) = query.text("cursor") {
        filter = filter.go_on(cursor).ok_or_else(not_ours)?;
    }
    let reading = ask.reading(stale);
    let page = ask.node().clients(ask.call, filter, stale).await?;
    Ok(reading.answered(Answer::json(&to_wire::clients(&page.value)), page.revision))
}
