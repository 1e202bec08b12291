//! Asking for a lock: granted, queued or refused.

use crate::command::{Acquire, Basis};
use crate::ids::{LeaseId, TicketId, Token};
use crate::machine::Step;
use crate::name::Owner;
use crate::outcome::{Blockers, Bound, EventKind, Grant, Outcome, Refusal};
use crate::requests::fingerprint;
use crate::row::{Got, Ticket};
use crate::state::{Content, Item, Lease, Lock, RequestKey, State};
use std::cmp::Reverse;
use std::sync::Arc;

impl Step<'_> {
    /// Grants the lock, queues the caller, or says who or what stands in the way.
    ///
    /// Refusals are tested in this order: a repeat of an ended or different request; the hold
    /// after a restore; the lease; the service's capacity; the holders; the bounds of the line; a wait that would never end.
    pub(crate) fn acquire(&mut self, asked: &Acquire) -> Outcome {
        let fingerprint = fingerprint(asked);
        let owner = self.interned(&asked.owner);
        if let Some(id) = &asked.request_id {
            let key = RequestKey { owner: owner.clone(), id: id.clone() };
            if let Some(outcome) = self.repeat(&key, fingerprint, asked.wait) {
                return outcome;
            }
        }
        if self.state.head.hold_ms > 0 {
            return Outcome::Refused(Refusal::OnHold { hold_ms: self.state.head.hold_ms });
        }
        let checked = self.check_basis(asked).and_then(|()| self.check_capacity(asked));
        if let Err(refusal) = checked {
            return Outcome::Refused(refusal);
        }
        if self.free_for(asked) {
            return self.grant_at_once(asked, owner, fingerprint);
        }
        if !asked.wait {
            return Outcome::Refused(Refusal::Held(self.blockers(&asked.resource)));
        }
        if let Err(refusal) = self.check_line(asked, &owner) {
            return Outcome::Refused(refusal);
        }
        self.enqueue(asked, owner, fingerprint)
    }

    fn check_basis(&self, asked: &Acquire) -> Result<(), Refusal> {
        let limits = &self.state.limits;
        let ttl_ms = match asked.basis {
            Basis::Single { lease, ttl_ms } => {
                if !(limits.ttl_min_ms..=limits.ttl_max_ms).contains(&ttl_ms) {
                    return Err(self.ttl_out_of_range());
                }
                if self.state.knows_lease(lease) {
                    return Err(Refusal::Void);
                }
                self.room(Bound::Leases, self.state.leases.len() as u64, limits.leases_max, asked)?;
                ttl_ms
            }
            Basis::Explicit { lease } => self.check_explicit(lease, asked)?,
        };
        match asked.ttl_cap_ms {
            Some(cap_ms) if ttl_ms > cap_ms => Err(Refusal::TtlAboveCap { cap_ms }),
            _ => Ok(()),
        }
    }

    fn check_explicit(&self, id: LeaseId, asked: &Acquire) -> Result<u64, Refusal> {
        let lease = self.living_lease(id)?;
        if *lease.owner != asked.owner {
            return Err(Refusal::NotOwner);
        }
        let Content::Many { grants, tickets } = lease.content else {
            return Err(Refusal::LeaseIsSingle);
        };
        let max = u64::from(self.state.limits.lease_items_max);
        // A grant that was lost keeps its place until the client has confirmed it: so that list
        // is bounded too, and nothing ever drops out of it unseen.
        let lost = lease.extra.as_ref().map_or(0, |extra| extra.lost.len() as u64);
        self.room(Bound::LeaseItems, u64::from(grants) + u64::from(tickets) + lost, max, asked)?;
        Ok(lease.ttl_ms)
    }

    fn check_capacity(&self, asked: &Acquire) -> Result<(), Refusal> {
        let state = &*self.state;
        // A ticket is a grant to come, so it takes its place among the grants from the start.
        let grants = (state.grants.len() + state.tickets.len()) as u64;
        self.room(Bound::Grants, grants, state.limits.grants_max, asked)?;
        if !state.has_room_for(asked.metadata.as_ref()) {
            self.room(Bound::Metadata, u64::MAX, state.limits.metadata_bytes_max, asked)?;
        }
        // Every ticket may still take a token, whatever comes before it.
        let promised = state.head.last_token + state.tickets.len() as u64;
        self.room(Bound::Tokens, promised, Token::LIMIT - 1, asked)
    }

    fn check_line(&self, asked: &Acquire, owner: &Arc<Owner>) -> Result<(), Refusal> {
        let state = &*self.state;
        let in_line = state.locks.get(&asked.resource).map_or(0, Lock::line_len) as u64;
        self.room(Bound::Queue, in_line, u64::from(self.queue_max(&asked.resource)), asked)?;
        let of_client = state.clients.get(owner).map_or(0, |client| client.tickets);
        let client_max = u64::from(state.limits.client_tickets_max);
        self.room(Bound::ClientTickets, u64::from(of_client), client_max, asked)?;
        self.room(Bound::Tickets, state.tickets.len() as u64, state.limits.tickets_max, asked)?;
        match self.cycle_of(asked) {
            Some(cycle) => Err(Refusal::WouldDeadlock { cycle }),
            None => Ok(()),
        }
    }

    fn room(&self, bound: Bound, used: u64, max: u64, asked: &Acquire) -> Result<(), Refusal> {
        if used < max {
            return Ok(());
        }
        let queue_length = self.state.locks.get(&asked.resource).map_or(0, Lock::line_len);
        Err(Refusal::Full { bound, max, queue_length })
    }

    /// Nobody who holds or came first is in the way.
    fn free_for(&self, asked: &Acquire) -> bool {
        let Some(lock) = self.state.locks.get(&asked.resource) else { return true };
        let first = lock.line.as_ref().and_then(|line| line.attached.first_key_value());
        let nobody_first =
            first.is_none_or(|((Reverse(priority), _), _)| *priority < asked.priority);
        nobody_first && lock.admits(asked.mode)
    }

    pub(crate) fn blockers(&self, resource: &crate::name::ResourceName) -> Blockers {
        let Some(lock) = self.state.locks.get(resource) else {
            return Blockers { holders: Vec::new(), holders_total: 0, queue_length: 0 };
        };
        let grants = lock.holders.iter().filter_map(|token| self.state.grants.get(&token).cloned());
        Blockers {
            holders: grants.take(Blockers::SHOWN).collect(),
            holders_total: lock.holders.len(),
            queue_length: lock.line_len(),
        }
    }

    fn grant_at_once(&mut self, asked: &Acquire, owner: Arc<Owner>, fingerprint: u64) -> Outcome {
        let token = self.next_token();
        self.count_metadata(asked.metadata.as_ref());
        let (lease, ttl_ms, single) = self.put_on_lease(asked, &owner, Item::Grant(token));
        let grant = Arc::new(Grant {
            token,
            resource: asked.resource.clone(),
            owner,
            lease,
            single,
            mode: asked.mode,
            ticket: None,
            attachment: 1,
            request_id: asked.request_id.clone(),
            asked_at_ms: self.now_ms(),
            granted_at_ms: self.now_ms(),
            claim_ms: asked.claim_ms,
            ttl_cap_ms: asked.ttl_cap_ms,
            policies: asked.policies.clone(),
            metadata: asked.metadata.clone(),
            draining: false,
        });
        self.remember_live(&grant.owner, grant.request_id.as_ref(), fingerprint, Got::Grant(token));
        self.overtake(&asked.resource, asked.priority, TicketId(u64::MAX));
        self.place_grant(grant.clone(), ttl_ms);
        if self.state.locks.get(&asked.resource).is_some_and(|lock| lock.line.is_some()) {
            // Among those overtaken another may be first now, and fit beside the holders; or the
            // first one's lease is being ended, and it has nothing to wait for any more.
            self.pump(&asked.resource);
        }
        Outcome::Granted { grant, ttl_ms, repeat: false }
    }

    fn enqueue(&mut self, asked: &Acquire, owner: Arc<Owner>, fingerprint: u64) -> Outcome {
        let id = self.next_ticket();
        self.count_metadata(asked.metadata.as_ref());
        let (lease, _, _) = self.put_on_lease(asked, &owner, Item::Ticket(id));
        let behalf = self.behalf_of(asked);
        let ticket = Arc::new(Ticket {
            id,
            resource: asked.resource.clone(),
            owner: owner.clone(),
            lease,
            mode: asked.mode,
            priority: asked.priority,
            overtaken: 0,
            attached: true,
            attachment: 1,
            request_id: asked.request_id.clone(),
            asked_at_ms: self.now_ms(),
            claim_ms: asked.claim_ms,
            keep_place: asked.keep_place,
            behalf,
            metadata: asked.metadata.clone(),
            ttl_cap_ms: asked.ttl_cap_ms,
            policies: asked.policies.clone(),
        });
        self.remember_live(&owner, asked.request_id.as_ref(), fingerprint, Got::Ticket(id));
        self.emit(EventKind::Queued {
            ticket: id,
            resource: asked.resource.clone(),
            owner: owner.clone(),
            mode: asked.mode,
            priority: asked.priority,
        });
        self.stand_in_line(ticket);
        let queue_length = self.state.locks.get(&asked.resource).map_or(0, Lock::line_len);
        Outcome::Queued { ticket: id, attachment: 1, lease, queue_length }
    }

    /// Opens the lease if it is for this alone; answers its id, TTL and whether it is.
    fn put_on_lease(
        &mut self,
        asked: &Acquire,
        owner: &Arc<Owner>,
        item: Item,
    ) -> (LeaseId, u64, bool) {
        match asked.basis {
            Basis::Single { lease, ttl_ms } => {
                let opened_at_ms = self.now_ms();
                let new = Lease {
                    owner: owner.clone(),
                    ttl_ms,
                    longest_ttl_ms: ttl_ms,
                    opened_at_ms,
                    content: Content::Single(item),
                    extra: None,
                };
                self.state.leases.insert(lease, new);
                self.lease_came(owner, Some(item));
                self.state.index.put(owner, item, true);
                (lease, ttl_ms, true)
            }
            Basis::Explicit { lease } => {
                self.attach_to_lease(lease, item);
                let ttl_ms = self.state.leases.get(&lease).map_or(0, |lease| lease.ttl_ms);
                (lease, ttl_ms, false)
            }
        }
    }

    fn next_token(&mut self) -> Token {
        self.state.head.last_token += 1;
        Token(self.state.head.last_token)
    }

    fn next_ticket(&mut self) -> TicketId {
        self.state.head.last_ticket += 1;
        TicketId(self.state.head.last_ticket)
    }

    /// Turns a ticket that has left its line into a grant.
    pub(crate) fn grant_ticket(&mut self, ticket: &Ticket) {
        let token = self.next_token();
        let (ttl_ms, single) =
            self.swap_on_lease(ticket.lease, Item::Ticket(ticket.id), Item::Grant(token));
        let grant = Arc::new(Grant {
            token,
            resource: ticket.resource.clone(),
            owner: ticket.owner.clone(),
            lease: ticket.lease,
            single,
            mode: ticket.mode,
            ticket: Some(ticket.id),
            attachment: ticket.attachment,
            request_id: ticket.request_id.clone(),
            asked_at_ms: ticket.asked_at_ms,
            granted_at_ms: self.now_ms(),
            claim_ms: ticket.claim_ms,
            ttl_cap_ms: ticket.ttl_cap_ms,
            policies: ticket.policies.clone(),
            metadata: ticket.metadata.clone(),
            draining: false,
        });
        self.request_got(&ticket.owner, ticket.request_id.as_ref(), Got::Grant(token));
        self.place_grant(grant, ttl_ms);
    }

    fn place_grant(&mut self, grant: Arc<Grant>, ttl_ms: u64) {
        self.change_lock(&grant.resource, |lock| {
            lock.shared = grant.mode == crate::command::Mode::Shared;
            lock.holders.add(grant.token);
        });
        self.state.grants.insert(grant.token, grant.clone());
        self.emit(EventKind::Granted { grant, ttl_ms });
    }

    /// Changes the lock of a resource, made if it is free.
    pub(crate) fn change_lock<R>(
        &mut self,
        resource: &crate::name::ResourceName,
        change: impl FnOnce(&mut Lock) -> R,
    ) -> R {
        if let Some(lock) = self.state.locks.get_mut(resource) {
            return change(lock);
        }
        let mut lock = Lock::default();
        let result = change(&mut lock);
        self.state.locks.insert(resource.clone(), lock);
        result
    }

    fn count_metadata(&mut self, metadata: Option<&crate::command::Metadata>) {
        self.state.metadata_bytes += metadata_bytes(metadata);
    }
}

impl State {
    /// Whoever attaches nothing is not refused because of what others attached.
    pub(crate) fn has_room_for(&self, metadata: Option<&crate::command::Metadata>) -> bool {
        let bytes = metadata_bytes(metadata);
        bytes == 0 || self.metadata_bytes + bytes <= self.limits.metadata_bytes_max
    }
}

/// What metadata counts for against its bound.
pub(crate) fn metadata_bytes(metadata: Option<&crate::command::Metadata>) -> u64 {
    metadata.map_or(0, |pairs| pairs.iter().map(|(k, v)| (k.len() + v.len()) as u64).sum())
}
