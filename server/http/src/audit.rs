//! `GET /v1/audit`: who did what.

use crate::answer::{Answer, Answered};
use crate::ask::Ask;
use crate::locks::{LIMIT, LIMIT_DEFAULT, not_ours};
use crate::to_wire;
use leasehold_wire as wire;

pub(crate) const PARAMETERS: &[&str] = &["limit", "cursor"];

/// `GET /v1/audit`
pub(crate) async fn list(ask: Ask) -> Answered {
    let query = ask.query(PARAMETERS)?;
    let before = query.text("cursor").map(|text| text.parse::<u64>());
    let before = before.transpose().map_err(|_| not_ours())?;
    let limit = query.number("limit", LIMIT)?.unwrap_or(LIMIT_DEFAULT);
    let page = ask.node().audit(ask.call, before, limit).await?;
    let shape = wire::Page {
        items: page.value.items.iter().map(to_wire::history::audit_record).collect(),
        next_cursor: page.value.next.as_deref().map(Into::into),
        total: None,
    };
    Ok(Answer::json(&shape).at(page.revision).unstored())
}
