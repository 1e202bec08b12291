//! Places in line, as rows of a snapshot.

use super::DecodeError;
use super::words::{
    LeaseBytes, StoredMetadata, StoredMode, StoredOwner, StoredVerdicts, lease_in, lease_out,
    metadata_in, metadata_out, mode_in, mode_out, owner_in, owner_out, request_in, resource_in,
    verdicts_in, verdicts_out,
};
use leasehold_core::row::Ticket;
use leasehold_core::{RequestId, TicketId};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

#[derive(Serialize, Deserialize)]
pub(super) struct StoredTicket<'a> {
    id: u64,
    resource: &'a str,
    #[serde(borrow)]
    owner: StoredOwner<'a>,
    lease: LeaseBytes,
    mode: StoredMode,
    priority: u8,
    overtaken: u32,
    attached: bool,
    attachment: u32,
    #[serde(borrow)]
    request_id: Option<&'a str>,
    asked_at_ms: u64,
    claim_ms: Option<u64>,
    keep_place: bool,
    behalf: Option<Vec<LeaseBytes>>,
    #[serde(borrow)]
    metadata: Option<StoredMetadata<'a>>,
    ttl_cap_ms: Option<u64>,
    #[serde(borrow)]
    policies: Option<StoredVerdicts<'a>>,
}

pub(super) fn ticket_out(ticket: &Ticket) -> StoredTicket<'_> {
    StoredTicket {
        id: ticket.id.0,
        resource: ticket.resource.as_str(),
        owner: owner_out(&ticket.owner),
        lease: lease_out(ticket.lease),
        mode: mode_out(ticket.mode),
        priority: ticket.priority,
        overtaken: ticket.overtaken,
        attached: ticket.attached,
        attachment: ticket.attachment,
        request_id: ticket.request_id.as_ref().map(RequestId::as_str),
        asked_at_ms: ticket.asked_at_ms,
        claim_ms: ticket.claim_ms,
        keep_place: ticket.keep_place,
        behalf: ticket.behalf.as_ref().map(|ids| ids.iter().copied().map(lease_out).collect()),
        metadata: metadata_out(ticket.metadata.as_ref()),
        ttl_cap_ms: ticket.ttl_cap_ms,
        policies: verdicts_out(ticket.policies.as_ref()),
    }
}

pub(super) fn ticket_in(stored: StoredTicket<'_>) -> Result<Ticket, DecodeError> {
    Ok(Ticket {
        id: TicketId(stored.id),
        resource: resource_in(stored.resource)?,
        owner: Arc::new(owner_in(&stored.owner)?),
        lease: lease_in(stored.lease),
        mode: mode_in(stored.mode),
        priority: stored.priority,
        overtaken: stored.overtaken,
        attached: stored.attached,
        attachment: stored.attachment,
        request_id: request_in(stored.request_id)?,
        asked_at_ms: stored.asked_at_ms,
        claim_ms: stored.claim_ms,
        keep_place: stored.keep_place,
        behalf: stored.behalf.map(|ids| ids.into_iter().map(lease_in).collect()),
        metadata: metadata_in(stored.metadata),
        ttl_cap_ms: stored.ttl_cap_ms,
        policies: verdicts_in(stored.policies),
    })
}
