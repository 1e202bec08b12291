//! Parts of rows that log entries and history records hold as well.

use super::DecodeError;
use super::words::{
    LeaseBytes, StoredMetadata, StoredMode, StoredOwner, StoredVerdicts, lease_in, lease_out,
    metadata_in, metadata_out, mode_in, mode_out, owner_in, owner_out, request_in, resource_in,
    verdicts_in, verdicts_out,
};
use leasehold_core::limits::{DomainLimits, DomainSettings, Limits};
use leasehold_core::outcome::Grant;
use leasehold_core::{RequestId, Revision, TicketId, Token};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

#[derive(Serialize, Deserialize)]
pub(super) struct StoredGrant<'a> {
    token: u64,
    resource: &'a str,
    #[serde(borrow)]
    owner: StoredOwner<'a>,
    lease: LeaseBytes,
    single: bool,
    mode: StoredMode,
    ticket: Option<u64>,
    attachment: u32,
    #[serde(borrow)]
    request_id: Option<&'a str>,
    asked_at_ms: u64,
    /// Counted from `asked_at_ms`: shorter in nearly every case, and these are the most numerous
    /// rows and records.
    granted_after_ms: u64,
    claim_ms: Option<u64>,
    ttl_cap_ms: Option<u64>,
    #[serde(borrow)]
    policies: Option<StoredVerdicts<'a>>,
    #[serde(borrow)]
    metadata: Option<StoredMetadata<'a>>,
    draining: bool,
}

pub(super) fn grant_out(grant: &Grant) -> StoredGrant<'_> {
    StoredGrant {
        token: grant.token.0,
        resource: grant.resource.as_str(),
        owner: owner_out(&grant.owner),
        lease: lease_out(grant.lease),
        single: grant.single,
        mode: mode_out(grant.mode),
        ticket: grant.ticket.map(|ticket| ticket.0),
        attachment: grant.attachment,
        request_id: grant.request_id.as_ref().map(RequestId::as_str),
        asked_at_ms: grant.asked_at_ms,
        granted_after_ms: grant.granted_at_ms.wrapping_sub(grant.asked_at_ms),
        claim_ms: grant.claim_ms,
        ttl_cap_ms: grant.ttl_cap_ms,
        policies: verdicts_out(grant.policies.as_ref()),
        metadata: metadata_out(grant.metadata.as_ref()),
        draining: grant.draining,
    }
}

pub(super) fn grant_in(stored: StoredGrant<'_>) -> Result<Grant, DecodeError> {
    Ok(Grant {
        token: Token(stored.token),
        resource: resource_in(stored.resource)?,
        owner: Arc::new(owner_in(&stored.owner)?),
        lease: lease_in(stored.lease),
        single: stored.single,
        mode: mode_in(stored.mode),
        ticket: stored.ticket.map(TicketId),
        attachment: stored.attachment,
        request_id: request_in(stored.request_id)?,
        asked_at_ms: stored.asked_at_ms,
        granted_at_ms: stored.asked_at_ms.wrapping_add(stored.granted_after_ms),
        claim_ms: stored.claim_ms,
        ttl_cap_ms: stored.ttl_cap_ms,
        policies: verdicts_in(stored.policies),
        metadata: metadata_in(stored.metadata),
        draining: stored.draining,
    })
}

/// In the order of the fields of `Limits`; new ones are appended in a new version.
#[derive(Serialize, Deserialize)]
pub(super) struct StoredLimits {
    ttl_min_ms: u64,
    ttl_max_ms: u64,
    queue_max: u32,
    client_tickets_max: u32,
    tickets_max: u64,
    grants_max: u64,
    leases_max: u64,
    lease_items_max: u32,
    metadata_bytes_max: u64,
    client_ended_max: u32,
    ended_max: u64,
    piece_max: u32,
    walk_max: u32,
    overtaken_max: u32,
    claim_window_ms: u64,
    remember_ms: u64,
    history_max: u64,
    history_ms: u64,
}

pub(super) fn limits_out(limits: &Limits) -> StoredLimits {
    StoredLimits {
        ttl_min_ms: limits.ttl_min_ms,
        ttl_max_ms: limits.ttl_max_ms,
        queue_max: limits.queue_max,
        client_tickets_max: limits.client_tickets_max,
        tickets_max: limits.tickets_max,
        grants_max: limits.grants_max,
        leases_max: limits.leases_max,
        lease_items_max: limits.lease_items_max,
        metadata_bytes_max: limits.metadata_bytes_max,
        client_ended_max: limits.client_ended_max,
        ended_max: limits.ended_max,
        piece_max: limits.piece_max,
        walk_max: limits.walk_max,
        overtaken_max: limits.overtaken_max,
        claim_window_ms: limits.claim_window_ms,
        remember_ms: limits.remember_ms,
        history_max: limits.history_max,
        history_ms: limits.history_ms,
    }
}

pub(super) fn limits_in(stored: &StoredLimits) -> Limits {
    Limits {
        ttl_min_ms: stored.ttl_min_ms,
        ttl_max_ms: stored.ttl_max_ms,
        queue_max: stored.queue_max,
        client_tickets_max: stored.client_tickets_max,
        tickets_max: stored.tickets_max,
        grants_max: stored.grants_max,
        leases_max: stored.leases_max,
        lease_items_max: stored.lease_items_max,
        metadata_bytes_max: stored.metadata_bytes_max,
        client_ended_max: stored.client_ended_max,
        ended_max: stored.ended_max,
        piece_max: stored.piece_max,
        walk_max: stored.walk_max,
        overtaken_max: stored.overtaken_max,
        claim_window_ms: stored.claim_window_ms,
        remember_ms: stored.remember_ms,
        history_max: stored.history_max,
        history_ms: stored.history_ms,
    }
}

#[derive(Serialize, Deserialize, Clone, Copy)]
pub(super) struct StoredLimitsOfDomain {
    queue_max: Option<u32>,
}

pub(super) fn domain_limits_out(limits: DomainLimits) -> StoredLimitsOfDomain {
    StoredLimitsOfDomain { queue_max: limits.queue_max }
}

pub(super) fn domain_limits_in(stored: StoredLimitsOfDomain) -> DomainLimits {
    DomainLimits { queue_max: stored.queue_max }
}

#[derive(Serialize, Deserialize, Clone, Copy)]
pub(super) struct StoredDomain {
    limits: StoredLimitsOfDomain,
    version: u64,
}

pub(super) fn domain_out(settings: DomainSettings) -> StoredDomain {
    StoredDomain { limits: domain_limits_out(settings.limits), version: settings.version.0 }
}

pub(super) fn domain_in(stored: StoredDomain) -> DomainSettings {
    DomainSettings { limits: domain_limits_in(stored.limits), version: Revision(stored.version) }
}
