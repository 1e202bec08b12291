//! Acquire, and the line.

use super::*;
use leasehold_core::command::{Acquire, Basis, LeftHow};
use leasehold_core::name::{Owner, RequestId, ResourceName};
use leasehold_core::outcome::{Bound, EventKind, Grant, Outcome, Refusal};
use leasehold_core::row::Ticket;
use leasehold_core::{LeaseId, TicketId, Token};
use std::collections::BTreeSet;
use std::sync::Arc;

impl Naive {
    pub(super) fn acquire(&mut self, asked: &Acquire) -> Result<Outcome, Refusal> {
        let known = asked.request_id.as_ref().and_then(|id| self.repeat(asked, id));
        if let Some(answer) = known {
            return answer;
        }
        self.check(asked)?;
        let first = self.first(&asked.resource).map(|ticket| ticket.priority);
        if self.admitted(&asked.resource, asked.mode)
            && first.is_none_or(|first| first < asked.priority)
        {
            return Ok(self.grant_new(asked));
        }
        if !asked.wait {
            return Err(self.blockers(&asked.resource));
        }
        self.check_line(asked)?;
        Ok(self.queue(asked))
    }

    pub(super) fn repeat(
        &mut self,
        asked: &Acquire,
        id: &RequestId,
    ) -> Option<Result<Outcome, Refusal>> {
        let key = (asked.owner.clone(), id.clone());
        let old = self.ended.iter().find_map(|row| match &row.what {
            Memory::Request { owner, id: ended, content, token }
                if *owner == key.0 && *ended == key.1 =>
            {
                let refusal =
                    Refusal::RequestEnded { token: *token, how: row.how, ended_at_ms: row.at_ms };
                Some(if *content == content_of(asked) { refusal } else { Refusal::RequestReused })
            }
            _ => None,
        });
        if let Some(refusal) = old {
            return Some(Err(refusal));
        }
        if *self.requests.get(&key)? != content_of(asked) {
            return Some(Err(Refusal::RequestReused));
        }
        let is_mine = |owner: &Owner, request: &Option<RequestId>| {
            *owner == key.0 && request.as_ref() == Some(id)
        };
        if let Some(slot) =
            self.grants.iter_mut().find(|grant| is_mine(&grant.owner, &grant.request_id))
        {
            let lease = &self.leases[&slot.lease];
            if let Some(how) = lease.ending {
                return Some(Err(Refusal::RequestEnded {
                    token: Some(slot.token),
                    how,
                    ended_at_ms: self.now_ms,
                }));
            }
            // Whoever gave it up for lost before this repeat must see that it is another's now.
            *slot = Arc::new(Grant { attachment: slot.attachment + 1, ..(**slot).clone() });
            return Some(Ok(Outcome::Granted {
                grant: slot.clone(),
                ttl_ms: lease.ttl_ms,
                repeat: true,
            }));
        }
        let ticket =
            self.tickets.iter().find(|ticket| is_mine(&ticket.owner, &ticket.request_id))?.clone();
        if let Err(refusal) = self.living(ticket.lease) {
            return Some(Err(refusal));
        }
        Some(self.attach(&ticket, asked))
    }

    pub(super) fn attach(&mut self, ticket: &Ticket, asked: &Acquire) -> Result<Outcome, Refusal> {
        let resource = ticket.resource.clone();
        let before_it = self.line(&resource).into_iter().take_while(|other| other.id != ticket.id);
        let next = before_it.filter(|other| other.attached).count() == 0
            && self.admitted(&resource, ticket.mode);
        if !asked.wait && !next {
            return Err(self.blockers(&resource));
        }
        if !ticket.attached {
            let own = std::iter::once(ticket.lease)
                .chain(ticket.behalf.iter().flat_map(|all| all.iter().copied()));
            if let Some(cycle) = self.cycle(ticket, own.collect()) {
                self.ticket_left(ticket, LeftHow::Deadlock);
                self.pump(&resource);
                return Err(Refusal::WouldDeadlock { cycle });
            }
        }
        let attachment = ticket.attachment + 1;
        if let Some(again) = self.tickets.iter_mut().find(|one| one.id == ticket.id) {
            (again.attached, again.attachment) = (true, attachment);
        }
        self.pump(&resource);
        let granted = self.grants.iter().find(|grant| grant.ticket == Some(ticket.id)).cloned();
        Ok(match granted {
            Some(grant) => {
                Outcome::Granted { ttl_ms: self.leases[&grant.lease].ttl_ms, grant, repeat: true }
            }
            None => Outcome::Queued {
                ticket: ticket.id,
                attachment,
                lease: ticket.lease,
                queue_length: self.line(&resource).len(),
            },
        })
    }

    pub(super) fn check(&self, asked: &Acquire) -> Result<(), Refusal> {
        let queue_length = self.line(&asked.resource).len();
        let room = |bound, used: u64, max: u64| {
            if used < max { Ok(()) } else { Err(Refusal::Full { bound, max, queue_length }) }
        };
        let limits = &self.limits;
        let ttl_ms = match asked.basis {
            Basis::Single { lease, ttl_ms } => {
                self.check_new_lease(lease, ttl_ms)?;
                room(Bound::Leases, self.leases.len() as u64, limits.leases_max)?;
                ttl_ms
            }
            Basis::Explicit { lease: id } => {
                let lease = self.living(id)?;
                if lease.owner != asked.owner {
                    return Err(Refusal::NotOwner);
                }
                if lease.single {
                    return Err(Refusal::LeaseIsSingle);
                }
                let used = self.on_lease(id) + lease.lost.len();
                room(Bound::LeaseItems, used as u64, u64::from(limits.lease_items_max))?;
                lease.ttl_ms
            }
        };
        if let Some(cap_ms) = asked.ttl_cap_ms.filter(|cap_ms| ttl_ms > *cap_ms) {
            return Err(Refusal::TtlAboveCap { cap_ms });
        }
        room(Bound::Grants, (self.grants.len() + self.tickets.len()) as u64, limits.grants_max)?;
        let more = bytes(asked.metadata.as_ref());
        if more > 0 && self.metadata_bytes() + more > limits.metadata_bytes_max {
            return Err(Refusal::Full {
                bound: Bound::Metadata,
                max: limits.metadata_bytes_max,
                queue_length,
            });
        }
        room(Bound::Tokens, self.last_token + self.tickets.len() as u64, Token::LIMIT - 1)
    }

    pub(super) fn check_new_lease(&self, id: LeaseId, ttl_ms: u64) -> Result<(), Refusal> {
        let (min_ms, max_ms) = (self.limits.ttl_min_ms, self.limits.ttl_max_ms);
        if ttl_ms < min_ms || ttl_ms > max_ms {
            return Err(Refusal::TtlOutOfRange { min_ms, max_ms });
        }
        // An id that is known, living or not, is somebody's mistake.
        match self.living(id) {
            Err(Refusal::LeaseUnknown) => Ok(()),
            _ => Err(Refusal::Void),
        }
    }

    pub(super) fn check_line(&self, asked: &Acquire) -> Result<(), Refusal> {
        let queue_length = self.line(&asked.resource).len();
        let of_domain =
            self.domains.get(asked.resource.domain()).and_then(|own| own.limits.queue_max);
        let mine = self.tickets.iter().filter(|ticket| *ticket.owner == asked.owner).count();
        let bounds = [
            (Bound::Queue, queue_length, u64::from(of_domain.unwrap_or(self.limits.queue_max))),
            (Bound::ClientTickets, mine, u64::from(self.limits.client_tickets_max)),
            (Bound::Tickets, self.tickets.len(), self.limits.tickets_max),
        ];
        if let Some((bound, _, max)) =
            bounds.into_iter().find(|(_, used, max)| *used as u64 >= *max)
        {
            return Err(Refusal::Full { bound, max, queue_length });
        }
        let mut own: BTreeSet<LeaseId> = self.behalf(asked);
        if let Basis::Explicit { lease } = asked.basis {
            own.insert(lease);
        }
        let wait = self.ticket_of(asked, TicketId(u64::MAX));
        match self.cycle(&wait, own) {
            Some(cycle) => Err(Refusal::WouldDeadlock { cycle }),
            None => Ok(()),
        }
    }

    pub(super) fn behalf(&self, asked: &Acquire) -> BTreeSet<LeaseId> {
        let held =
            asked.holding.iter().filter_map(|held| self.live(&held.resource, held.token).ok());
        held.filter(|grant| *grant.owner == asked.owner).map(|grant| grant.lease).collect()
    }

    pub(super) fn ticket_of(&self, asked: &Acquire, id: TicketId) -> Ticket {
        let (Basis::Single { lease, .. } | Basis::Explicit { lease }) = asked.basis;
        let behalf: Vec<LeaseId> = self.behalf(asked).into_iter().collect();
        Ticket {
            id,
            resource: asked.resource.clone(),
            owner: Arc::new(asked.owner.clone()),
            lease,
            mode: asked.mode,
            priority: asked.priority,
            overtaken: 0,
            attached: true,
            attachment: 1,
            request_id: asked.request_id.clone(),
            asked_at_ms: self.now_ms,
            claim_ms: asked.claim_ms,
            keep_place: asked.keep_place,
            behalf: (!behalf.is_empty()).then(|| behalf.into()),
            metadata: asked.metadata.clone(),
            ttl_cap_ms: asked.ttl_cap_ms,
            policies: asked.policies.clone(),
        }
    }

    pub(super) fn open_single(&mut self, asked: &Acquire) {
        if let Basis::Single { lease, ttl_ms } = asked.basis {
            let owner = asked.owner.clone();
            let new = Lease {
                owner,
                ttl_ms,
                single: true,
                ending: None,
                metadata: None,
                lost: Vec::new(),
            };
            self.leases.insert(lease, new);
        }
        if let Some(id) = &asked.request_id {
            self.requests.insert((asked.owner.clone(), id.clone()), content_of(asked));
        }
    }

    pub(super) fn grant_new(&mut self, asked: &Acquire) -> Outcome {
        self.open_single(asked);
        let ticket = self.ticket_of(asked, TicketId(u64::MAX));
        let grant = self.grant(&ticket, None);
        self.pump(&asked.resource);
        Outcome::Granted { ttl_ms: self.leases[&grant.lease].ttl_ms, grant, repeat: false }
    }

    pub(super) fn queue(&mut self, asked: &Acquire) -> Outcome {
        self.open_single(asked);
        self.last_ticket += 1;
        let ticket = self.ticket_of(asked, TicketId(self.last_ticket));
        self.tell(EventKind::Queued {
            ticket: ticket.id,
            resource: ticket.resource.clone(),
            owner: ticket.owner.clone(),
            mode: ticket.mode,
            priority: ticket.priority,
        });
        let (id, lease) = (ticket.id, ticket.lease);
        self.tickets.push(ticket);
        Outcome::Queued {
            ticket: id,
            attachment: 1,
            lease,
            queue_length: self.line(&asked.resource).len(),
        }
    }

    /// Gives the lock to whoever asked; those who waited longer and stand behind are overtaken.
    pub(super) fn grant(&mut self, asked: &Ticket, ticket: Option<TicketId>) -> Arc<Grant> {
        self.last_token += 1;
        self.tickets.retain(|one| one.id != asked.id);
        for other in self.tickets.iter_mut().filter(|one| one.resource == asked.resource) {
            if other.attached && other.id < asked.id {
                other.overtaken += 1;
                if other.overtaken >= self.limits.overtaken_max {
                    (other.overtaken, other.priority) = (0, other.priority + 1);
                }
            }
        }
        let lease = &self.leases[&asked.lease];
        let grant = Arc::new(Grant {
            token: Token(self.last_token),
            resource: asked.resource.clone(),
            owner: asked.owner.clone(),
            lease: asked.lease,
            single: lease.single,
            mode: asked.mode,
            ticket,
            attachment: asked.attachment,
            request_id: asked.request_id.clone(),
            asked_at_ms: asked.asked_at_ms,
            granted_at_ms: self.now_ms,
            claim_ms: asked.claim_ms,
            ttl_cap_ms: asked.ttl_cap_ms,
            policies: asked.policies.clone(),
            metadata: asked.metadata.clone(),
            draining: false,
        });
        let ttl_ms = lease.ttl_ms;
        self.grants.push(grant.clone());
        self.tell(EventKind::Granted { grant: grant.clone(), ttl_ms });
        grant
    }

    /// Whoever is first gets what is free.
    pub(super) fn pump(&mut self, resource: &ResourceName) {
        while let Some(first) = self.first(resource).cloned() {
            if self.living(first.lease).is_err() {
                self.ticket_left(&first, LeftHow::LeaseEnded);
            } else if self.admitted(resource, first.mode) {
                self.grant(&first, Some(first.id));
            } else {
                return;
            }
        }
    }
}

pub(super) fn content_of(asked: &Acquire) -> Content {
    let (lease, ttl_ms) = match asked.basis {
        Basis::Single { ttl_ms, .. } => (None, ttl_ms),
        Basis::Explicit { lease } => (Some(lease), 0),
    };
    let metadata = asked.metadata.iter().flat_map(|pairs| pairs.iter().cloned()).collect();
    (asked.resource.clone(), asked.mode, lease, ttl_ms, metadata)
}
