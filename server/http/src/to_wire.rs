//! Meaning to shapes.

pub(crate) mod cluster;
pub(crate) mod history;

use leasehold_core::LeaseId;
use leasehold_core::command::{EndedHow, LeftHow, Metadata, Mode, PolicyVerdict};
use leasehold_core::list::ClientView;
use leasehold_core::outcome::{CycleStep, Grant};
use leasehold_core::row::LostGrant;
use leasehold_node::{
    DrainingGrant, FenceStatus, Granted, Holder, LeaseStatus, LockStatus, LockSummary, Page,
    Released, Renewed, WaiterStatus,
};
use leasehold_wire::{self as wire, HexId, Time};
use std::sync::Arc;

pub(crate) fn granted(granted: &Granted) -> wire::Grant<'_> {
    let grant = &*granted.grant;
    wire::Grant {
        resource: grant.resource.as_str().into(),
        token: grant.token.0,
        lease_id: hex(grant.lease),
        client_id: grant.owner.client.as_str().into(),
        mode: mode(grant.mode),
        ttl_ms: granted.ttl_ms,
        expires_in_ms: granted.validity.expires_in_ms,
        valid_for_ms: granted.validity.valid_for_ms,
        granted_at: Time(grant.granted_at_ms),
        waited_ms: granted.waited_ms,
        policies: policies(grant.policies.as_deref()),
    }
}

pub(crate) fn policies(verdicts: Option<&[PolicyVerdict]>) -> Vec<wire::PolicyVerdict<'_>> {
    let shapes = verdicts.into_iter().flatten().map(|verdict| wire::PolicyVerdict {
        name: (&*verdict.name).into(),
        version: (&*verdict.version).into(),
        verdict: (&*verdict.verdict).into(),
    });
    shapes.collect()
}

/// What the holder sends on to storage. A shared grant is for reading and fences nothing.
pub(crate) fn fencing_token(grant: &Grant) -> Option<u64> {
    (grant.mode == Mode::Exclusive).then_some(grant.token.0)
}

pub(crate) fn renewed(renewed: &Renewed) -> wire::Renewed<'static> {
    wire::Renewed {
        expires_in_ms: renewed.validity.expires_in_ms,
        valid_for_ms: renewed.validity.valid_for_ms,
        ended_grants: ended_grants(&renewed.lost),
        draining_grants: draining_grants(&renewed.draining),
    }
}

pub(crate) fn draining_grants(grants: &[DrainingGrant]) -> Vec<wire::DrainingGrant<'static>> {
    let shape = |grant: &DrainingGrant| wire::DrainingGrant {
        resource: owned(grant.resource.as_str()),
        token: grant.token.0,
        expires_in_ms: grant.validity.expires_in_ms,
        valid_for_ms: grant.validity.valid_for_ms,
    };
    grants.iter().map(shape).collect()
}

pub(crate) fn ended_grants(lost: &[LostGrant]) -> Vec<wire::EndedGrant<'static>> {
    let shape = |lost: &LostGrant| wire::EndedGrant {
        resource: owned(lost.resource.as_str()),
        token: lost.token.0,
        how: ended_how(lost.how).into(),
        ended_at: Time(lost.ended_at_ms),
    };
    lost.iter().map(shape).collect()
}

pub(crate) fn released(released: &Released) -> wire::Released {
    match released {
        Released::Now => wire::Released { released: true, reason: None },
        Released::Before => {
            wire::Released { released: false, reason: Some(wire::NotReleased::AlreadyReleased) }
        }
    }
}

pub(crate) fn lock(status: &LockStatus) -> wire::Lock<'_> {
    wire::Lock {
        resource: status.resource.as_str().into(),
        state: state(&status.holders),
        holders: status.holders.iter().map(holder_in_full).collect(),
        queue: status.queue.iter().map(waiter).collect(),
        queue_length: status.queue_length,
        last_token: status.last_token.map(|token| token.0),
    }
}

pub(crate) fn locks(page: &Page<LockSummary>) -> wire::Page<'_, wire::LockSummary<'_>> {
    let item = |summary: &LockSummary| wire::LockSummary {
        resource: owned(summary.resource.as_str()),
        state: state(&summary.holders),
        holders: holders(&summary.holders),
        holders_total: summary.holders_total,
        queue_length: summary.queue_length,
    };
    wire::Page {
        items: page.items.iter().map(item).collect(),
        next_cursor: page.next.as_deref().map(Into::into),
        total: page.total,
    }
}

fn state(holders: &[Holder]) -> wire::LockState {
    if holders.is_empty() { wire::LockState::Free } else { wire::LockState::Held }
}

pub(crate) fn waiter(waiter: &WaiterStatus) -> wire::Waiter<'_> {
    wire::Waiter {
        position: waiter.position,
        client_id: waiter.client_id.as_str().into(),
        mode: mode(waiter.mode),
        priority: waiter.priority,
        waiting_ms: waiter.waiting_ms,
        attached: waiter.attached,
    }
}

pub(crate) fn holders(holders: &[Holder]) -> Vec<wire::Holder<'static>> {
    holders.iter().map(|holder| holder_of(&holder.grant, holder.expires_in_ms)).collect()
}

/// A holder without what its client attached.
pub(crate) fn holder_of(grant: &Grant, expires_in_ms: Option<u64>) -> wire::Holder<'static> {
    wire::Holder {
        client_id: owned(grant.owner.client.as_str()),
        token: grant.token.0,
        mode: mode(grant.mode),
        granted_at: Time(grant.granted_at_ms),
        expires_in_ms,
        draining: grant.draining,
        metadata: None,
    }
}

fn holder_in_full(holder: &Holder) -> wire::Holder<'static> {
    let attached = holder.grant.metadata.as_ref().map(metadata);
    wire::Holder { metadata: attached, ..holder_of(&holder.grant, holder.expires_in_ms) }
}

fn metadata(pairs: &Metadata) -> wire::Metadata<'static> {
    wire::Metadata(pairs.iter().map(|(name, value)| (owned(name), owned(value))).collect())
}

/// A lease with what stands on it.
pub(crate) fn lease(status: &LeaseStatus) -> wire::Lease<'_> {
    let grant = |grant: &Arc<Grant>| wire::LeaseGrant {
        resource: owned(grant.resource.as_str()),
        token: grant.token.0,
        mode: mode(grant.mode),
        granted_at: Time(grant.granted_at_ms),
    };
    let waiting_for = status.waiting_for.iter().map(|resource| resource.as_str().into());
    wire::Lease {
        grants: Some(status.grants.iter().map(grant).collect()),
        waiting_for: Some(waiting_for.collect()),
        ..lease_summary(status)
    }
}

fn lease_summary(status: &LeaseStatus) -> wire::Lease<'_> {
    wire::Lease {
        lease_id: hex(status.id),
        client_id: status.client_id.as_str().into(),
        ttl_ms: status.ttl_ms,
        opened_at: Time(status.opened_at_ms),
        single: status.single,
        earliest_end_in_ms: status.earliest_end_in_ms,
        latest_end_in_ms: status.latest_end_in_ms,
        grants_total: status.grants_total,
        waiting_total: status.waiting_total,
        grants: None,
        waiting_for: None,
    }
}

pub(crate) fn leases(page: &Page<LeaseStatus>) -> wire::Page<'_, wire::Lease<'_>> {
    wire::Page {
        items: page.items.iter().map(lease_summary).collect(),
        next_cursor: page.next.as_deref().map(Into::into),
        total: page.total,
    }
}

pub(crate) fn clients(page: &Page<ClientView>) -> wire::Page<'_, wire::ClientSummary<'_>> {
    let item = |view: &ClientView| wire::ClientSummary {
        client_id: owned(view.owner.client.as_str()),
        principal: owned(view.owner.principal.as_str()),
        leases: view.leases.into(),
        grants: view.grants.into(),
        waiting: view.tickets.into(),
    };
    wire::Page {
        items: page.items.iter().map(item).collect(),
        next_cursor: page.next.as_deref().map(Into::into),
        total: page.total,
    }
}

pub(crate) fn cycle(steps: &[CycleStep]) -> Vec<wire::CycleStep<'static>> {
    let shape = |step: &CycleStep| wire::CycleStep {
        client_id: owned(step.owner.client.as_str()),
        resource: owned(step.resource.as_str()),
    };
    steps.iter().map(shape).collect()
}

pub(crate) fn fence(status: FenceStatus) -> wire::FenceChecked {
    wire::FenceChecked {
        current: status.current,
        highest_token: status.highest_token.map(|token| token.0),
    }
}

pub(crate) fn hex(lease: LeaseId) -> HexId {
    HexId(lease.0)
}

fn mode(mode: Mode) -> wire::Mode {
    match mode {
        Mode::Exclusive => wire::Mode::Exclusive,
        Mode::Shared => wire::Mode::Shared,
    }
}

/// How something ended, in one word.
pub(crate) fn ended_how(how: EndedHow) -> &'static str {
    match how {
        EndedHow::Released => "released",
        EndedHow::Expired => "expired",
        EndedHow::Forced => "forced",
        EndedHow::Revoked => "revoked",
        EndedHow::PassedOn => "passed_on",
        EndedHow::Restored => "restored",
        EndedHow::Cancelled => "cancelled",
    }
}

/// Why a line was left, in one word.
fn left_how(how: LeftHow) -> &'static str {
    match how {
        LeftHow::TimedOut => "timed_out",
        LeftHow::Disconnected => "disconnected",
        LeftHow::Cancelled => "cancelled",
        LeftHow::LeaseEnded => "lease_ended",
        LeftHow::Deadlock => "would_deadlock",
    }
}

fn owned(text: &str) -> std::borrow::Cow<'static, str> {
    text.to_owned().into()
}
