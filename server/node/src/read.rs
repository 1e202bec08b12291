//! Linearizable reads, and stale ones for those who say so.

use crate::answer::{
    AtRevision, Call, Failure, FenceStatus, Holder, LeaseStatus, LockStatus, Page, WaiterStatus,
};
use crate::node::Node;
use crate::runtime;
use leasehold_core::outcome::Refusal;
use leasehold_core::row::Ticket;
use leasehold_core::view::{LeaseView, LockFilter};
use leasehold_core::{ClientId, LeaseId, ResourceName, Token};
use std::sync::Arc;

/// Grants and tickets of a lease that one answer lists.
const LEASE_SHOWN: usize = 1_000;

/// Which locks are listed.
#[derive(Debug, Clone, Default)]
pub struct LocksFilter {
    /// Only names that start with this.
    pub prefix: Option<String>,
    /// Only this domain.
    pub domain: Option<String>,
    /// Only locks that this client holds or waits for.
    pub client_id: Option<String>,
    /// Only locks in this state.
    pub state: Option<LockState>,
    /// Only names after this one: the last of the page before.
    pub after: Option<String>,
    /// How many a page has at most.
    pub limit: usize,
}

/// The states that a list can ask for. A free lock leaves no trace and is never listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockState {
    /// Somebody holds it.
    Held,
    /// Somebody holds it and somebody waits.
    Contended,
}

/// A lock in a list.
#[derive(Debug, Clone)]
pub struct LockSummary {
    /// Its resource.
    pub resource: ResourceName,
    /// At most eight of its holders.
    pub holders: Vec<Holder>,
    /// How many there are.
    pub holders_total: usize,
    /// How many stand in line.
    pub queue_length: usize,
}

/// Which leases are listed.
#[derive(Debug, Clone, Default)]
pub struct LeasesFilter {
    /// Only leases of this client.
    pub client_id: Option<String>,
    /// Only ids after this one.
    pub after: Option<LeaseId>,
    /// How many a page has at most.
    pub limit: usize,
}

impl Node {
    pub(crate) async fn fresh(&self, stale: bool) -> Result<(), Failure> {
        if stale {
            return Ok(());
        }
        self.check_open()?;
        self.inner.confirmer.confirm().await.map(drop)
    }

    /// A lock with at most `queue_shown` of its line.
    ///
    /// # Errors
    /// [`Failure::NoLeader`] if the answer could not be confirmed.
    pub async fn lock(
        &self,
        _call: Call,
        resource: ResourceName,
        queue_shown: usize,
        stale: bool,
    ) -> Result<AtRevision<LockStatus>, Failure> {
        self.fresh(stale).await?;
        let (view, revision) = {
            let table = self.inner.shared.table.read();
            (table.lock_view(&resource, queue_shown), table.revision())
        };
        let last_token = match view.as_ref().and_then(|view| view.holders.last()) {
            Some(grant) => Some(grant.token),
            None => self.last_token(&resource, false).await?,
        };
        let holders =
            view.iter().flat_map(|view| &view.holders).map(|grant| self.holder(grant)).collect();
        let now_ms = self.wall_clock_ms();
        let queue = view.iter().flat_map(|view| view.queue.iter().enumerate());
        let value = LockStatus {
            holders,
            queue: queue.map(|(at, ticket)| waiter(at + 1, ticket, now_ms)).collect(),
            queue_length: view.as_ref().map_or(0, |view| view.queue_length),
            last_token,
            resource,
        };
        Ok(AtRevision { value, revision })
    }

    async fn last_token(
        &self,
        resource: &ResourceName,
        exclusive: bool,
    ) -> Result<Option<Token>, Failure> {
        let (history, resource) = (self.inner.history.clone(), resource.clone());
        match runtime::blocking(move || history.last_token_of(&resource, exclusive)).await {
            Some(Ok(token)) => Ok(token),
            Some(Err(fault)) => Err(Failure::Internal(fault.to_string())),
            None => Err(Failure::ShuttingDown),
        }
    }

    /// Locks by name, a page at a time.
    ///
    /// # Errors
    /// [`Failure::NoLeader`] if the answer could not be confirmed.
    pub async fn locks(
        &self,
        _call: Call,
        filter: LocksFilter,
        stale: bool,
    ) -> Result<AtRevision<Page<LockSummary>>, Failure> {
        self.fresh(stale).await?;
        let wanted = LockFilter {
            prefix: filter.prefix,
            domain: filter.domain,
            client: filter.client_id.as_deref().and_then(|text| ClientId::parse(text).ok()),
            contended: filter.state == Some(LockState::Contended),
            after: filter.after.as_deref().and_then(|text| ResourceName::parse(text).ok()),
        };
        let unfiltered =
            wanted.prefix.is_none() && wanted.domain.is_none() && wanted.client.is_none();
        let table = self.inner.shared.table.read();
        let slice = table.locks(&wanted, filter.limit);
        let (revision, total) = (table.revision(), table.counts().locks as u64);
        drop(table);
        let items = slice.items.into_iter().map(|view| LockSummary {
            holders: view.holders.iter().map(|grant| self.holder(grant)).collect(),
            holders_total: view.holders_total,
            queue_length: view.queue_length,
            resource: view.resource,
        });
        let value = Page {
            items: items.collect(),
            next: slice.next.map(|name| name.to_string()),
            total: (unfiltered && filter.state != Some(LockState::Contended)).then_some(total),
        };
        Ok(AtRevision { value, revision })
    }

    /// A lease with what stands on it.
    ///
    /// # Errors
    /// [`Failure::Refused`] if it has ended or was never there.
    pub async fn lease(
        &self,
        _call: Call,
        lease: LeaseId,
    ) -> Result<AtRevision<LeaseStatus>, Failure> {
        self.fresh(false).await?;
        let table = self.inner.shared.table.read();
        table.lease(lease).map_err(Failure::Refused)?;
        let view =
            table.lease_view(lease, LEASE_SHOWN).ok_or(Failure::Refused(Refusal::LeaseUnknown))?;
        let revision = table.revision();
        drop(table);
        Ok(AtRevision { value: self.lease_status(view), revision })
    }

    /// Leases, a page at a time, without what stands on them.
    ///
    /// # Errors
    /// [`Failure::NoLeader`] if the answer could not be confirmed.
    pub async fn leases(
        &self,
        _call: Call,
        filter: LeasesFilter,
        stale: bool,
    ) -> Result<AtRevision<Page<LeaseStatus>>, Failure> {
        self.fresh(stale).await?;
        let client = filter.client_id.as_deref().and_then(|text| ClientId::parse(text).ok());
        let table = self.inner.shared.table.read();
        let slice = table.leases(client.as_ref(), filter.after, filter.limit);
        let (revision, total) = (table.revision(), table.counts().leases as u64);
        drop(table);
        let value = Page {
            items: slice.items.into_iter().map(|view| self.lease_status(view)).collect(),
            next: slice.next.map(|id| id.to_string()),
            total: client.is_none().then_some(total),
        };
        Ok(AtRevision { value, revision })
    }

    fn lease_status(&self, view: LeaseView) -> LeaseStatus {
        let now = runtime::now();
        let earliest = self.inner.hub.deadline(view.id);
        let left =
            earliest.map_or(view.ttl_ms, |at| runtime::ms(at.saturating_duration_since(now)));
        LeaseStatus {
            id: view.id,
            client_id: view.owner.client.to_string(),
            ttl_ms: view.ttl_ms,
            opened_at_ms: view.opened_at_ms,
            single: view.single,
            earliest_end_in_ms: left,
            // Another leader would start it anew, after an election that has yet to happen.
            latest_end_in_ms: left.max(view.ttl_ms) + self.inner.election_max_ms,
            grants: view.grants,
            grants_total: view.grants_total,
            waiting_for: view.tickets.iter().map(|ticket| ticket.resource.clone()).collect(),
            waiting_total: view.tickets_total,
        }
    }

    /// Whether a token is that of the live exclusive grant, and the highest one known.
    ///
    /// # Errors
    /// [`Failure::NoLeader`] if the answer could not be confirmed.
    pub async fn fence_check(
        &self,
        _call: Call,
        resource: ResourceName,
        token: Token,
    ) -> Result<AtRevision<FenceStatus>, Failure> {
        self.fresh(false).await?;
        let (live, revision) = {
            let table = self.inner.shared.table.read();
            (table.exclusive_token(&resource), table.revision())
        };
        let highest_token = match live {
            Some(token) => Some(token),
            None => self.last_token(&resource, true).await?,
        };
        Ok(AtRevision {
            value: FenceStatus { current: live == Some(token), highest_token },
            revision,
        })
    }
}

fn waiter(position: usize, ticket: &Arc<Ticket>, now_ms: u64) -> WaiterStatus {
    WaiterStatus {
        position,
        client_id: ticket.owner.client.to_string(),
        mode: ticket.mode,
        priority: ticket.priority,
        waiting_ms: now_ms.saturating_sub(ticket.asked_at_ms),
        attached: ticket.attached,
    }
}
