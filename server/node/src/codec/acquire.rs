//! Requests for a lock, and how the commands about a grant name it.

use super::DecodeError;
use super::words::{
    LeaseBytes, StoredCaller, StoredMetadata, StoredMode, StoredOwner, StoredVerdicts, caller_in,
    caller_out, lease_in, lease_out, metadata_in, metadata_out, mode_in, mode_out, owner_in,
    owner_out, request_in, resource_in, verdicts_in, verdicts_out,
};
use leasehold_core::command::{Acquire, Basis, GrantRef, Holding};
use leasehold_core::name::NameError;
use leasehold_core::{LeaseId, RequestId, ResourceName, Token};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
pub(super) struct StoredAcquire<'a> {
    resource: &'a str,
    #[serde(borrow)]
    owner: StoredOwner<'a>,
    lease: LeaseBytes,
    /// With a TTL the lease is opened for this grant alone.
    ttl_ms: Option<u64>,
    mode: StoredMode,
    wait: bool,
    #[serde(borrow)]
    request_id: Option<&'a str>,
    claim_ms: Option<u64>,
    keep_place: bool,
    #[serde(borrow)]
    holding: Vec<(&'a str, u64)>,
    #[serde(borrow)]
    metadata: Option<StoredMetadata<'a>>,
    priority: u8,
    ttl_cap_ms: Option<u64>,
    #[serde(borrow)]
    policies: Option<StoredVerdicts<'a>>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct StoredGrantRef<'a> {
    resource: &'a str,
    token: u64,
    #[serde(borrow)]
    caller: StoredCaller<'a>,
}

pub(super) fn acquire_out(acquire: &Acquire) -> StoredAcquire<'_> {
    let (lease, ttl_ms) = basis_out(acquire.basis);
    StoredAcquire {
        resource: acquire.resource.as_str(),
        owner: owner_out(&acquire.owner),
        lease: lease_out(lease),
        ttl_ms,
        mode: mode_out(acquire.mode),
        wait: acquire.wait,
        request_id: acquire.request_id.as_ref().map(RequestId::as_str),
        claim_ms: acquire.claim_ms,
        keep_place: acquire.keep_place,
        holding: acquire.holding.iter().map(|h| (h.resource.as_str(), h.token.0)).collect(),
        metadata: metadata_out(acquire.metadata.as_ref()),
        priority: acquire.priority,
        ttl_cap_ms: acquire.ttl_cap_ms,
        policies: verdicts_out(acquire.policies.as_ref()),
    }
}

pub(super) fn acquire_in(stored: StoredAcquire<'_>) -> Result<Acquire, DecodeError> {
    let lease = lease_in(stored.lease);
    let holding = stored.holding.into_iter().map(holding_in).collect::<Result<_, _>>();
    Ok(Acquire {
        resource: resource_in(stored.resource)?,
        owner: owner_in(&stored.owner)?,
        basis: match stored.ttl_ms {
            Some(ttl_ms) => Basis::Single { lease, ttl_ms },
            None => Basis::Explicit { lease },
        },
        mode: mode_in(stored.mode),
        wait: stored.wait,
        request_id: request_in(stored.request_id)?,
        claim_ms: stored.claim_ms,
        keep_place: stored.keep_place,
        holding: holding.map_err(DecodeError::Name)?,
        metadata: metadata_in(stored.metadata),
        priority: stored.priority,
        ttl_cap_ms: stored.ttl_cap_ms,
        policies: verdicts_in(stored.policies),
    })
}

fn basis_out(basis: Basis) -> (LeaseId, Option<u64>) {
    match basis {
        Basis::Single { lease, ttl_ms } => (lease, Some(ttl_ms)),
        Basis::Explicit { lease } => (lease, None),
    }
}

fn holding_in((resource, token): (&str, u64)) -> Result<Holding, NameError> {
    Ok(Holding { resource: ResourceName::parse(resource)?, token: Token(token) })
}

pub(super) fn grant_ref_out(grant: &GrantRef) -> StoredGrantRef<'_> {
    StoredGrantRef {
        resource: grant.resource.as_str(),
        token: grant.token.0,
        caller: caller_out(&grant.caller),
    }
}

pub(super) fn grant_ref_in(stored: &StoredGrantRef<'_>) -> Result<GrantRef, DecodeError> {
    Ok(GrantRef {
        resource: resource_in(stored.resource)?,
        token: Token(stored.token),
        caller: caller_in(&stored.caller)?,
    })
}
