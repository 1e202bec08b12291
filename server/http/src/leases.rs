//! `/v1/leases`: leases that can hold many grants.

use crate::answer::{Answer, Answered};
use crate::ask::Ask;
use crate::caller::Permission;
use crate::fault::Fault;
use crate::locks::{LIMIT, LIMIT_DEFAULT, not_ours};
use crate::{failure, from_wire, to_wire};
use leasehold_core::LeaseId;
use leasehold_node::{Failure, LeasesFilter, Opened, Renewed};
use leasehold_wire::{self as wire, KeptAlive};

/// `POST /v1/leases`
pub(crate) async fn open(ask: Ask) -> Answered {
    let shape: wire::OpenLease<'_> = wire::parse(&ask.body)?;
    let asked = from_wire::open_lease(shape, &ask.rules())?;
    let (lease, client) = (asked.lease, asked.owner.client.clone());
    let opened = ask.node().open_lease(ask.call, asked).await?;
    let Opened { validity, ttl_ms } = opened.value;
    let shape = wire::LeaseOpened {
        lease_id: to_wire::hex(lease),
        client_id: client.as_str().into(),
        ttl_ms,
        expires_in_ms: validity.expires_in_ms,
        valid_for_ms: validity.valid_for_ms,
    };
    Ok(Answer::json(&shape).at(opened.revision))
}

/// `POST /v1/leases/{id}/keep-alive`
pub(crate) async fn keep_alive(ask: Ask) -> Answered {
    let shape: wire::KeepAlive<'_> =
        if ask.body.is_empty() { wire::KeepAlive::default() } else { wire::parse(&ask.body)? };
    let lease = from_wire::lease_id(ask.id())?;
    let caller = from_wire::acting_for(shape.client_id.as_deref(), &ask.caller)?;
    let mut results = ask.node().keep_alive(ask.call, caller, vec![lease]).await?;
    let renewed = results.pop().unwrap_or(Err(Failure::NotReady))?;
    let revision = renewed.revision;
    Ok(Answer::json(&kept(lease, &Ok(renewed))).at(revision))
}

/// `POST /v1/leases/keep-alive`
pub(crate) async fn keep_alive_many(ask: Ask) -> Answered {
    let shape: wire::KeepAliveMany<'_> = wire::parse(&ask.body)?;
    let (caller, leases) = from_wire::keep_alive_many(&shape, &ask.caller)?;
    let before = ask.node().revision();
    let renewed = ask.node().keep_alive(ask.call, caller, leases.clone()).await?;
    // What any of the answers has not seen comes after the lowest of their revisions.
    let seen = renewed.iter().flatten().map(|renewed| renewed.revision).min();
    let results = leases.into_iter().zip(&renewed).map(|(lease, renewed)| kept(lease, renewed));
    let answer = Answer::json(&wire::KeptAliveMany { results: results.collect() });
    Ok(answer.at(seen.unwrap_or(before)))
}

fn kept(lease: LeaseId, renewed: &Result<Renewed, Failure>) -> KeptAlive<'static> {
    let mut kept = KeptAlive {
        lease_id: to_wire::hex(lease),
        expires_in_ms: None,
        valid_for_ms: None,
        code: None,
        ended_grants: Vec::new(),
        draining_grants: Vec::new(),
    };
    match renewed {
        Ok(renewed) => {
            kept.expires_in_ms = Some(renewed.validity.expires_in_ms);
            kept.valid_for_ms = Some(renewed.validity.valid_for_ms);
            kept.ended_grants = to_wire::ended_grants(&renewed.lost);
            kept.draining_grants = to_wire::draining_grants(&renewed.draining);
        }
        Err(failure) => kept.code = Some(failure::problem(failure.clone()).code),
    }
    kept
}

/// `GET /v1/leases/{id}`
pub(crate) async fn get(ask: Ask) -> Answered {
    ask.query(&[])?;
    let lease = from_wire::lease_id(ask.id())?;
    let status = ask.node().lease(ask.call, lease).await?;
    Ok(Answer::json(&to_wire::lease(&status.value)).at(status.revision).unstored())
}

pub(crate) const LIST_PARAMETERS: &[&str] = &["client_id", "limit", "cursor", "consistency"];

/// `GET /v1/leases`
pub(crate) async fn list(ask: Ask) -> Answered {
    let query = ask.query(LIST_PARAMETERS)?;
    let stale = query.stale()?;
    let mut filter = LeasesFilter {
        client: query.text("client_id").map(from_wire::client_id).transpose()?,
        limit: query.number("limit", LIMIT)?.unwrap_or(LIMIT_DEFAULT),
        ..LeasesFilter::default()
    };
    if let Some(cursor) = query.text("cursor") {
        filter = filter.go_on(cursor).ok_or_else(not_ours)?;
    }
    let reading = ask.reading(stale);
    let page = ask.node().leases(ask.call, filter, stale).await?;
    Ok(reading.answered(Answer::json(&to_wire::leases(&page.value)), page.revision))
}

pub(crate) const END_PARAMETERS: &[&str] = &["client_id", "reason"];

/// `DELETE /v1/leases/{id}`: by its owner, or with a reason by an operator.
pub(crate) async fn end(ask: Ask) -> Answered {
    let query = ask.query(END_PARAMETERS)?;
    let lease = from_wire::lease_id(ask.id())?;
    if let Some(reason) = query.text("reason") {
        return revoke(&ask, lease, reason).await;
    }
    let caller = from_wire::acting_for(query.text("client_id"), &ask.caller)?;
    let ended = ask.node().end_lease(ask.call, caller, lease).await?;
    Ok(Answer::json(&wire::LeaseEnded { ended: true }).at(ended.revision))
}

async fn revoke(ask: &Ask, lease: LeaseId, reason: &str) -> Answered {
    if !ask.caller.role.may(Permission::Operate) {
        return Err(Fault::forbidden());
    }
    let operator = ask.caller.operator(from_wire::reason(reason)?);
    let revoked = ask.node().revoke_lease(ask.call, operator, lease).await?;
    Ok(Answer::json(&wire::LeaseEnded { ended: true }).at(revoked.revision))
}
