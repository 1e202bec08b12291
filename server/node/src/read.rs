//! Linearizable reads, and stale ones for those who say so.

use crate::answer::{
    AtRevision, Call, Failure, FenceStatus, LeaseStatus, LockStatus, WaiterStatus,
};
use crate::fatal::StorageFault;
use crate::history::History;
use crate::node::Node;
use crate::runtime;
use leasehold_core::outcome::{GrantRecord, Refusal};
use leasehold_core::row::Ticket;
use leasehold_core::view::LeaseView;
use leasehold_core::{LeaseId, ResourceName, Token};
use std::sync::Arc;

/// Grants and tickets of a lease that one answer lists.
const LEASE_SHOWN: usize = 1_000;

impl Node {
    /// Reads the history away from the tasks that must not block.
    pub(crate) async fn read_history<T: Send + 'static>(
        &self,
        read: impl FnOnce(&History) -> Result<T, StorageFault> + Send + 'static,
    ) -> Result<T, Failure> {
        let history = self.inner.history.clone();
        let read = runtime::blocking(move || read(&history)).await;
        read.ok_or(Failure::ShuttingDown)?.map_err(|fault| Failure::Internal(fault.to_string()))
    }

    /// What is on record of a grant that has ended.
    pub(crate) async fn record(&self, token: Token) -> Result<Option<Arc<GrantRecord>>, Failure> {
        self.read_history(move |history| history.by_token(token)).await
    }

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
        let (view, highest, revision) = {
            let table = self.inner.shared.table.read();
            let view = table.lock_view(&resource, queue_shown);
            (view, table.highest_live_token(&resource), table.revision())
        };
        let last_token = match highest {
            Some(token) => Some(token),
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
        let resource = resource.clone();
        self.read_history(move |history| history.last_token_of(&resource, exclusive)).await
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

    pub(crate) fn lease_status(&self, view: LeaseView) -> LeaseStatus {
        // On the leader it has ended since it was seen; how much of it is over elsewhere, only the
        // leader knows.
        let ends = self.inner.hub.deadline(view.id);
        let left = ends.map_or(0, |at| runtime::ms(at.saturating_duration_since(runtime::now())));
        LeaseStatus {
            id: view.id,
            client_id: view.owner.client.to_string(),
            ttl_ms: view.ttl_ms,
            opened_at_ms: view.opened_at_ms,
            single: view.single,
            earliest_end_in_ms: left,
            // Another leader would start it anew, after an election that has yet to happen, and with
            // the longest TTL that anybody can have been promised.
            latest_end_in_ms: left.max(view.longest_ttl_ms)
                + runtime::ms(self.inner.timing.election()),
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
            None => self.read_history(move |history| history.highest_token_of(&resource)).await?,
        };
        Ok(AtRevision {
            value: FenceStatus { current: live == Some(token), highest_token },
            revision,
        })
    }
}

pub(crate) fn waiter(position: usize, ticket: &Arc<Ticket>, now_ms: u64) -> WaiterStatus {
    WaiterStatus {
        position,
        client_id: ticket.owner.client.to_string(),
        mode: ticket.mode,
        priority: ticket.priority,
        waiting_ms: now_ms.saturating_sub(ticket.asked_at_ms),
        attached: ticket.attached,
    }
}
