//! Leases: opened, filled, emptied, ended.

use crate::acquire::metadata_bytes;
use crate::command::{Caller, EndedHow, LeftHow, OpenLease};
use crate::ids::LeaseId;
use crate::index::ByLabel;
use crate::machine::Step;
use crate::name::{Owner, ResourceName};
use crate::outcome::{Bound, EventKind, Outcome, Refusal};
use crate::row::{EndedWhat, LostGrant};
use crate::state::{Content, Item, Lease};
use std::sync::Arc;

impl Step<'_> {
    pub(crate) fn open_lease(&mut self, asked: &OpenLease) -> Outcome {
        if let Err(refusal) = self.check_open(asked) {
            return Outcome::Refused(refusal);
        }
        let owner = self.interned(&asked.owner);
        let mut lease = Lease {
            owner: owner.clone(),
            ttl_ms: asked.ttl_ms,
            longest_ttl_ms: asked.ttl_ms,
            opened_at_ms: self.now_ms(),
            content: Content::Many { grants: 0, tickets: 0 },
            extra: None,
        };
        if asked.metadata.is_some() {
            lease.extra_mut().metadata = asked.metadata.clone();
        }
        self.state.metadata_bytes += metadata_bytes(asked.metadata.as_ref());
        self.state.leases.insert(asked.lease, lease);
        self.lease_came(&owner, None);
        self.state.index.put_lease(&owner, asked.lease);
        self.emit(EventKind::LeaseOpened { lease: asked.lease, owner, ttl_ms: asked.ttl_ms });
        Outcome::LeaseOpened { ttl_ms: asked.ttl_ms }
    }

    fn check_open(&self, asked: &OpenLease) -> Result<(), Refusal> {
        let (state, limits) = (&*self.state, &self.state.limits);
        let full = |bound, max| Err(Refusal::Full { bound, max, queue_length: 0 });
        if !(limits.ttl_min_ms..=limits.ttl_max_ms).contains(&asked.ttl_ms) {
            return Err(self.ttl_out_of_range());
        }
        if state.knows_lease(asked.lease) {
            return Err(Refusal::Void);
        }
        if state.leases.len() as u64 >= limits.leases_max {
            return full(Bound::Leases, limits.leases_max);
        }
        if !state.has_room_for(asked.metadata.as_ref()) {
            return full(Bound::Metadata, limits.metadata_bytes_max);
        }
        Ok(())
    }

    /// A lease that has not ended, or how it ended as far as that is still known.
    pub(crate) fn living_lease(&self, id: LeaseId) -> Result<&Lease, Refusal> {
        let lease = self.state.leases.get(&id);
        match lease.map(Lease::ending) {
            Some(None) => lease.ok_or(Refusal::LeaseUnknown),
            Some(how) => Err(Refusal::LeaseEnded { how, ended_at_ms: Some(self.now_ms()) }),
            None => Err(self.state.lease_refusal(id)),
        }
    }

    pub(crate) fn end_lease(&mut self, id: LeaseId, caller: &Caller) -> Outcome {
        match self.living_lease(id) {
            Ok(lease) if !caller.is(&lease.owner) => Outcome::Refused(Refusal::NotOwner),
            Ok(_) => self.end_all(&[id], EndedHow::Released),
            Err(refusal) => Outcome::Refused(refusal),
        }
    }

    pub(crate) fn continue_ending(&mut self, id: LeaseId) -> Outcome {
        let Some(how) = self.state.leases.get(&id).and_then(Lease::ending) else {
            return Outcome::Refused(Refusal::Void);
        };
        self.end_all(&[id], how)
    }

    /// Ends leases and what is on them, as much as one step may end.
    ///
    /// Everything is taken out before the lines are pumped, in the order of the ended tokens:
    /// otherwise a lease could grant to itself, or to the next in this list, while it ends.
    pub(crate) fn end_all(&mut self, leases: &[LeaseId], how: EndedHow) -> Outcome {
        let mut budget = self.state.limits.piece_max.max(1) as usize;
        let mut touched = Vec::new();
        let mut more = false;
        for id in leases {
            more |= !self.end_within(*id, how, &mut budget, &mut touched);
        }
        for resource in &touched {
            self.pump(resource);
        }
        Outcome::Done { more }
    }

    /// Ends one lease as far as the budget goes; true when all is gone. From the first piece on
    /// the lease takes nothing more, is not renewed, and its tickets are not granted.
    pub(crate) fn end_within(
        &mut self,
        id: LeaseId,
        how: EndedHow,
        budget: &mut usize,
        touched: &mut Vec<ResourceName>,
    ) -> bool {
        let Some(content) = self.state.leases.get(&id).map(|lease| lease.content) else {
            return true;
        };
        let items = match content {
            Content::Single(item) if *budget > 0 => vec![item],
            Content::Single(_) => Vec::new(),
            Content::Many { .. } => self.items_of(id, *budget),
        };
        if !content.is_covered_by(&items) {
            self.mark_ending(id, how);
        }
        *budget -= items.len();
        touched.extend(items.iter().filter_map(|item| self.end_item(*item, how)));
        self.close_if_empty(id, how)
    }

    fn mark_ending(&mut self, id: LeaseId, how: EndedHow) {
        if let Some(lease) = self.state.leases.get_mut(&id).filter(|lease| lease.ending().is_none())
        {
            lease.extra_mut().ending = Some(how);
            self.state.ending.insert(id);
            self.emit(EventKind::Ending { lease: id });
        }
    }

    fn items_of(&self, id: LeaseId, at_most: usize) -> Vec<Item> {
        let first = (id, Item::Ticket(crate::ids::TicketId(0)));
        let from = std::ops::Bound::Included(&first);
        let of_lease = self.state.on_lease.range_from(from).map(|(key, ())| *key);
        of_lease.take_while(|(lease, _)| *lease == id).take(at_most).map(|(_, item)| item).collect()
    }

    fn end_item(&mut self, item: Item, how: EndedHow) -> Option<ResourceName> {
        match item {
            Item::Ticket(ticket) => {
                let ticket = self.state.tickets.get(&ticket)?.clone();
                self.end_ticket(&ticket, LeftHow::LeaseEnded);
                Some(ticket.resource.clone())
            }
            Item::Grant(token) => {
                let grant = self.state.grants.get(&token)?.clone();
                self.end_grant(&grant, how);
                Some(grant.resource.clone())
            }
        }
    }

    fn close_if_empty(&mut self, id: LeaseId, how: EndedHow) -> bool {
        match self.state.leases.get(&id).map(|lease| lease.content) {
            Some(Content::Many { grants: 0, tickets: 0 }) => {
                self.close(id, how);
                true
            }
            Some(_) => false,
            None => {
                self.state.ending.remove(&id);
                true
            }
        }
    }

    fn close(&mut self, id: LeaseId, how: EndedHow) {
        self.state.ending.remove(&id);
        let Some(lease) = self.drop_lease(id) else { return };
        self.remember_ended(how, EndedWhat::Lease { id });
        self.emit(EventKind::LeaseEnded { lease: id, owner: lease.owner, how });
    }

    fn drop_lease(&mut self, id: LeaseId) -> Option<Lease> {
        let lease = self.state.leases.remove(&id)?;
        let metadata = lease.extra.as_ref().and_then(|extra| extra.metadata.as_ref());
        self.state.metadata_bytes -= metadata_bytes(metadata);
        self.lease_went(&lease.owner, lease.content);
        match lease.content {
            Content::Single(item) => self.state.index.take(&lease.owner, item, true),
            Content::Many { .. } => self.state.index.take_lease(&lease.owner, id),
        }
        Some(lease)
    }

    /// Counts a lease, and the grant that it was opened for.
    pub(crate) fn lease_came(&mut self, owner: &Arc<Owner>, item: Option<Item>) {
        let granted = u32::from(matches!(item, Some(Item::Grant(_))));
        let first = self.count(owner, |client| {
            client.leases += 1;
            client.grants += granted;
            client.leases == 1
        });
        if first {
            self.state.index.owners.insert(ByLabel(owner.clone()), ());
        }
    }

    fn lease_went(&mut self, owner: &Arc<Owner>, content: Content) {
        let granted = u32::from(matches!(content, Content::Single(Item::Grant(_))));
        let last = self.count(owner, |client| {
            client.leases -= 1;
            client.grants -= granted;
            client.leases == 0
        });
        if last {
            self.state.index.owners.remove(&ByLabel(owner.clone()));
        }
    }

    pub(crate) fn attach_to_lease(&mut self, id: LeaseId, item: Item) {
        if let Some(lease) = self.state.leases.get_mut(&id) {
            lease.content.count(item, 1);
            let owner = lease.owner.clone();
            self.state.on_lease.insert((id, item), ());
            self.state.index.put(&owner, item, false);
            if matches!(item, Item::Grant(_)) {
                self.count(&owner, |client| client.grants += 1);
            }
        }
    }

    /// A lease opened for one thing ends with it.
    pub(crate) fn take_off_lease(&mut self, id: LeaseId, item: Item) {
        let Some(lease) = self.state.leases.get_mut(&id) else { return };
        if lease.single() {
            self.drop_lease(id);
            self.state.ending.remove(&id);
        } else {
            lease.content.count(item, -1);
            let owner = lease.owner.clone();
            self.state.on_lease.remove(&(id, item));
            self.state.index.take(&owner, item, false);
            if matches!(item, Item::Grant(_)) {
                self.count(&owner, |client| client.grants -= 1);
            }
        }
    }

    /// A ticket has become a grant; answers the lease's TTL and whether it is for this alone.
    pub(crate) fn swap_on_lease(&mut self, id: LeaseId, ticket: Item, grant: Item) -> (u64, bool) {
        let Some(lease) = self.state.leases.get_mut(&id) else { return (0, false) };
        let (ttl_ms, single, owner) = (lease.ttl_ms, lease.single(), lease.owner.clone());
        if single {
            lease.content = Content::Single(grant);
        } else {
            lease.content.count(ticket, -1);
            lease.content.count(grant, 1);
            self.state.on_lease.remove(&(id, ticket));
            self.state.on_lease.insert((id, grant), ());
        }
        self.state.index.take(&owner, ticket, single);
        self.state.index.put(&owner, grant, single);
        self.count(&owner, |client| client.grants += 1);
        (ttl_ms, single)
    }
}

impl crate::state::State {
    /// Ids are random, so a second lease under a known one is a mistake of its proposer.
    pub(crate) fn knows_lease(&self, id: LeaseId) -> bool {
        self.leases.contains(&id) || self.ended_leases.contains(&id)
    }

    /// Grants of a lease that ended without its client's doing.
    pub(crate) fn lost_on(&self, id: LeaseId) -> &[LostGrant] {
        let extra = self.leases.get(&id).and_then(|lease| lease.extra.as_deref());
        extra.map_or(&[], |extra| &extra.lost)
    }

    /// What is known of a lease that is not there.
    pub(crate) fn lease_refusal(&self, id: LeaseId) -> Refusal {
        let row = self.ended_leases.get(&id).and_then(|seq| self.ended.get(seq));
        match row {
            Some(row) => {
                Refusal::LeaseEnded { how: Some(row.how), ended_at_ms: Some(row.ended_at_ms) }
            }
            None => Refusal::LeaseUnknown,
        }
    }
}

impl Content {
    /// Whether these items are all there is.
    fn is_covered_by(self, items: &[Item]) -> bool {
        let all = match self {
            Self::Single(_) => 1,
            Self::Many { grants, tickets } => grants as usize + tickets as usize,
        };
        items.len() >= all
    }

    fn count(&mut self, item: Item, by: i32) {
        let Self::Many { grants, tickets } = self else { return };
        let counter = match item {
            Item::Grant(_) => grants,
            Item::Ticket(_) => tickets,
        };
        *counter = counter.saturating_add_signed(by);
    }
}
