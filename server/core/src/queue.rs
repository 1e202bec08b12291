//! The line for a resource: who stands where, who is next, who leaves.

use crate::command::{EndedHow, LeftHow};
use crate::ids::TicketId;
use crate::machine::Step;
use crate::name::{Owner, RequestId, ResourceName};
use crate::outcome::{EventKind, Outcome, Refusal};
use crate::row::{Got, Ticket};
use crate::state::{Item, Line, Lock, Place, Request, RequestKey};
use std::cmp::Reverse;
use std::sync::Arc;

pub(crate) fn place_of(ticket: &Ticket) -> Place {
    (Reverse(ticket.priority), ticket.id)
}

impl Step<'_> {
    /// Grants from the head of the line as long as the head is compatible with the holders.
    ///
    /// Called whenever a grant ends, or a ticket leaves or comes back. Only attached tickets are
    /// granted: a lock never goes to somebody who is not there.
    pub(crate) fn pump(&mut self, resource: &ResourceName) {
        while let Some((ticket, admitted)) = self.first_in_line(resource) {
            if self.living_lease(ticket.lease).is_err() {
                // Its lease is being ended in pieces and this one has not come up yet: it must
                // neither be granted nor keep others waiting.
                self.end_ticket(&ticket, LeftHow::LeaseEnded);
            } else if admitted {
                self.leave_line(&ticket);
                self.overtake(resource, ticket.priority, ticket.id);
                self.grant_ticket(&ticket);
            } else {
                break;
            }
        }
        self.drop_idle(resource);
    }

    /// A lock that nobody holds or waits for leaves no trace.
    pub(crate) fn drop_idle(&mut self, resource: &ResourceName) {
        if self.state.locks.get(resource).is_some_and(Lock::is_idle) {
            self.state.locks.remove(resource);
        }
    }

    /// The first attached ticket, and whether the holders admit it.
    fn first_in_line(&self, resource: &ResourceName) -> Option<(Arc<Ticket>, bool)> {
        let lock = self.state.locks.get(resource)?;
        let ((_, id), mode) = lock.line.as_ref()?.attached.first_key_value()?;
        Some((self.state.tickets.get(id)?.clone(), lock.admits(*mode)))
    }

    /// Whether this ticket is granted as soon as it is attached.
    pub(crate) fn would_be_next(&self, ticket: &Ticket) -> bool {
        let Some(lock) = self.state.locks.get(&ticket.resource) else { return false };
        let first = lock.line.as_ref().and_then(|line| line.attached.first_key_value());
        lock.admits(ticket.mode) && first.is_none_or(|(place, _)| *place > place_of(ticket))
    }

    pub(crate) fn stand_in_line(&mut self, ticket: Arc<Ticket>) {
        for lease in ticket.behalf.iter().flat_map(|leases| leases.iter()) {
            self.state.on_behalf.insert((*lease, ticket.id), ());
        }
        self.count(&ticket.owner, |client| client.tickets += 1);
        let first = self.change_lock(&ticket.resource, |lock| {
            let first = lock.line.is_none();
            lock.line.get_or_insert_default().put(&ticket);
            first
        });
        if first {
            self.state.index.contended.insert(ticket.resource.clone(), ());
        }
        self.state.tickets.insert(ticket.id, ticket);
    }

    /// Takes a ticket out of its line; its lease and request still name it.
    fn leave_line(&mut self, ticket: &Ticket) {
        for lease in ticket.behalf.iter().flat_map(|leases| leases.iter()) {
            self.state.on_behalf.remove(&(*lease, ticket.id));
        }
        self.state.tickets.remove(&ticket.id);
        if let Some(lock) = self.state.locks.get_mut(&ticket.resource)
            && let Some(line) = &mut lock.line
        {
            line.take(ticket);
            if line.all.is_empty() {
                lock.line = None;
                self.state.index.contended.remove(&ticket.resource);
            }
        }
        self.count(&ticket.owner, |client| client.tickets -= 1);
    }

    /// Whoever of a lower priority arrived before `arrival` and still waits was overtaken.
    pub(crate) fn overtake(&mut self, resource: &ResourceName, priority: u8, arrival: TicketId) {
        let Some(line) = self.state.locks.get(resource).and_then(|lock| lock.line.as_ref()) else {
            return;
        };
        if !line.mixed && priority == 0 {
            return;
        }
        // The granted one was first of all, so who arrived earlier has a lower priority.
        let behind: Vec<TicketId> =
            line.attached.keys().map(|(_, id)| *id).filter(|id| *id < arrival).collect();
        for id in behind {
            self.was_overtaken(id);
        }
    }

    fn was_overtaken(&mut self, id: TicketId) {
        let overtaken_max = self.state.limits.overtaken_max;
        let Some(slot) = self.state.tickets.get_mut(&id) else { return };
        let ticket = Arc::make_mut(slot);
        ticket.overtaken = ticket.overtaken.saturating_add(1);
        if ticket.overtaken < overtaken_max || ticket.priority == u8::MAX {
            return;
        }
        let before = ticket.clone();
        ticket.overtaken = 0;
        ticket.priority += 1;
        let after = ticket.clone();
        if let Some(line) =
            self.state.locks.get_mut(&after.resource).and_then(|lock| lock.line.as_mut())
        {
            line.take(&before);
            line.put(&after);
        }
    }

    /// Takes a ticket out for good. The caller pumps the line.
    pub(crate) fn end_ticket(&mut self, ticket: &Arc<Ticket>, how: LeftHow) {
        self.leave_line(ticket);
        self.state.metadata_bytes -= crate::acquire::metadata_bytes(ticket.metadata.as_ref());
        self.take_off_lease(ticket.lease, Item::Ticket(ticket.id));
        if how == LeftHow::Cancelled {
            // A late copy of the cancelled request must not stand in line again.
            let id = ticket.request_id.as_ref();
            self.request_ended(&ticket.owner, id, None, EndedHow::Cancelled);
        } else if let Some(id) = &ticket.request_id {
            self.forget_live(&ticket.owner, id);
        }
        self.emit(EventKind::Left {
            ticket: ticket.id,
            resource: ticket.resource.clone(),
            owner: ticket.owner.clone(),
            how,
        });
    }

    pub(crate) fn leave(&mut self, id: TicketId, attachment: u32, how: LeftHow) -> Outcome {
        match self.attached_as(id, attachment) {
            Ok(ticket) => {
                self.end_ticket(&ticket, how);
                self.pump(&ticket.resource);
                Outcome::Done { more: false }
            }
            Err(refusal) => Outcome::Refused(refusal),
        }
    }

    pub(crate) fn detach(&mut self, id: TicketId, attachment: u32) -> Outcome {
        match self.attached_as(id, attachment) {
            Ok(ticket) => {
                self.set_attached(&ticket, false, attachment);
                self.pump(&ticket.resource);
                Outcome::Done { more: false }
            }
            Err(refusal) => Outcome::Refused(refusal),
        }
    }

    /// The ticket, unless it is gone or a newer request waits for it.
    fn attached_as(&self, id: TicketId, attachment: u32) -> Result<Arc<Ticket>, Refusal> {
        let ticket = self.state.tickets.get(&id).ok_or(Refusal::NotWaiting)?;
        if ticket.attachment == attachment { Ok(ticket.clone()) } else { Err(Refusal::Void) }
    }

    /// A repeated request waits for a ticket again; it may be granted at once.
    pub(crate) fn attach_again(&mut self, ticket: &Arc<Ticket>) -> Outcome {
        if !ticket.attached
            && let Some(cycle) = self.cycle_of_ticket(ticket)
        {
            self.end_ticket(ticket, LeftHow::Deadlock);
            self.pump(&ticket.resource);
            return Outcome::Refused(Refusal::WouldDeadlock { cycle });
        }
        let attachment = ticket.attachment.saturating_add(1);
        self.set_attached(ticket, true, attachment);
        self.pump(&ticket.resource);
        match self.state.tickets.contains(&ticket.id) {
            true => Outcome::Queued {
                ticket: ticket.id,
                attachment,
                lease: ticket.lease,
                queue_length: self.state.locks.get(&ticket.resource).map_or(0, Lock::line_len),
            },
            false => self.grant_of_ticket(ticket),
        }
    }

    /// What a ticket has become. Found through its request, because the pump that granted it may
    /// have granted to others after it.
    fn grant_of_ticket(&self, ticket: &Ticket) -> Outcome {
        let key =
            ticket.request_id.clone().map(|id| RequestKey { owner: ticket.owner.clone(), id });
        let token = match key.and_then(|key| self.state.requests.get(&key)) {
            Some(Request::Live { got: Got::Grant(token), .. }) => *token,
            _ => return Outcome::Refused(Refusal::NotWaiting),
        };
        match (self.state.grants.get(&token), self.state.leases.get(&ticket.lease)) {
            (Some(grant), Some(lease)) => {
                Outcome::Granted { grant: grant.clone(), ttl_ms: lease.ttl_ms, repeat: true }
            }
            _ => Outcome::Refused(Refusal::NotWaiting),
        }
    }

    fn set_attached(&mut self, ticket: &Ticket, attached: bool, attachment: u32) {
        let Some(slot) = self.state.tickets.get_mut(&ticket.id) else { return };
        let changed = Arc::make_mut(slot);
        changed.attached = attached;
        changed.attachment = attachment;
        let changed = changed.clone();
        if let Some(line) =
            self.state.locks.get_mut(&ticket.resource).and_then(|lock| lock.line.as_mut())
        {
            line.take(ticket);
            line.put(&changed);
        }
    }

    pub(crate) fn cancel_wait(&mut self, owner: &Owner, id: &RequestId) -> Outcome {
        let key = RequestKey { owner: self.interned(owner), id: id.clone() };
        let Some(Request::Live { got: Got::Ticket(ticket), .. }) = self.state.requests.get(&key)
        else {
            return Outcome::Refused(Refusal::NotWaiting);
        };
        let Some(ticket) = self.state.tickets.get(ticket).cloned() else {
            return Outcome::Refused(Refusal::NotWaiting);
        };
        self.end_ticket(&ticket, LeftHow::Cancelled);
        self.pump(&ticket.resource);
        Outcome::Done { more: false }
    }

    pub(crate) fn queue_max(&self, resource: &ResourceName) -> u32 {
        let of_domain =
            self.state.domains.get(resource.domain()).and_then(|own| own.limits.queue_max);
        of_domain.unwrap_or(self.state.limits.queue_max)
    }
}

impl Line {
    pub(crate) fn put(&mut self, ticket: &Ticket) {
        let place = place_of(ticket);
        self.mixed |= ticket.priority != 0;
        self.all.insert(place, ticket.mode);
        if ticket.attached {
            self.attached.insert(place, ticket.mode);
        }
    }

    fn take(&mut self, ticket: &Ticket) {
        let place = place_of(ticket);
        self.all.remove(&place);
        self.attached.remove(&place);
    }
}
