//! Where a client stands with a resource, and what is in its way.

use crate::command::Mode;
use crate::index::Piece;
use crate::list::LOOKS_MAX;
use crate::machine::LockTable;
use crate::name::{ClientId, Owner, RequestId, ResourceName};
use crate::outcome::{Bound, CycleStep, Grant, Refusal};
use crate::row::{Got, Ticket};
use crate::state::{Item, Lock};
use std::sync::Arc;

/// Grants, tickets and holders that an answer names.
const SHOWN: usize = 8;
/// Principals with the same label that a request id is looked for under.
const OWNERS_MAX: usize = 1_000;

/// Who is asked about. Request ids belong to an owner: without a client all who hold or wait for
/// the resource are looked through for the id.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Whom {
    /// A client, under whatever principal.
    pub client: Option<ClientId>,
    /// A request.
    pub request: Option<RequestId>,
}

/// Where somebody stands with a resource.
#[derive(Debug, Clone)]
pub struct Standing {
    /// Who it is, if it has anything at all.
    pub owner: Option<Arc<Owner>>,
    /// What it holds of the resource, lowest token first; at most eight.
    pub grants: Vec<Arc<Grant>>,
    /// Its first place in the line.
    pub ticket: Option<Arc<Ticket>>,
    /// Those before it, nearest to the grant first, at most eight; without a place in the line all
    /// who wait.
    pub ahead: Vec<Arc<Ticket>>,
    /// How many there are.
    pub ahead_total: usize,
    /// Who holds the resource, lowest token first; at most eight.
    pub holders: Vec<Arc<Grant>>,
    /// How many there are.
    pub holders_total: usize,
    /// What stands in the way of an exclusive request that does not wait.
    pub refusal: Option<Refusal>,
    /// The bounds that count for a wait.
    pub bounds: [Usage; 4],
    /// The cycle that makes a wait of its owner for this resource endless: the wait that goes on,
    /// or an exclusive one that it might begin.
    ///
    /// Counted as if the request said everything that the owner holds. A request that says
    /// nothing (no `lease_id`, no `holding`) is let into the line all the same, because two
    /// threads may share a label; then only the end of a wait or of a lease resolves the cycle.
    pub cycle: Option<Vec<CycleStep>>,
    /// So many hold the resource or wait for it that not all were looked at: somebody who seems
    /// to have nothing here may have something.
    pub complete: bool,
}

/// A bound and how far it is used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Which.
    pub bound: Bound,
    /// How much is used.
    pub used: u64,
    /// How much there may be.
    pub max: u64,
}

/// What somebody has on one resource.
#[derive(Default)]
struct Found {
    grants: Vec<Arc<Grant>>,
    ticket: Option<Arc<Ticket>>,
    complete: bool,
}

impl Standing {
    /// The first bound that is reached, so that a wait is refused.
    #[must_use]
    pub fn full(&self) -> Option<Usage> {
        self.bounds.into_iter().find(|usage| usage.used >= usage.max)
    }
}

impl Whom {
    fn is(&self, owner: &Owner, request: Option<&RequestId>) -> bool {
        self.client.as_ref().is_none_or(|client| owner.client == *client)
            && self.request.as_ref().is_none_or(|id| request == Some(id))
    }
}

impl LockTable {
    /// Where `whom` stands with a resource.
    #[must_use]
    pub fn standing(&self, resource: &ResourceName, whom: &Whom) -> Standing {
        let lock = self.state.locks.get(resource);
        let found = self.found(resource, lock, whom);
        let owner = self.owner_of(&found, whom);
        let before = found.ticket.as_ref().and_then(|ticket| self.position(ticket));
        let holders = self.holders(resource).take(SHOWN).cloned().collect();
        let line = lock.and_then(|lock| lock.line.as_ref()).into_iter();
        let line = line.flat_map(|line| line.all.keys());
        let ahead_total = before.map_or(lock.map_or(0, Lock::line_len), |position| position - 1);
        let ahead = line.take(ahead_total.min(SHOWN));
        let asks = found.grants.is_empty().then_some(owner.as_ref()).flatten();
        Standing {
            ahead: ahead.filter_map(|(_, id)| self.ticket(*id).cloned()).collect(),
            ahead_total,
            holders,
            holders_total: lock.map_or(0, |lock| lock.holders.len()),
            refusal: self.refusal_now(lock),
            bounds: self.bounds(resource, owner.as_deref()),
            cycle: asks.and_then(|owner| {
                self.state.cycle_if_waiting(owner, resource, found.ticket.as_deref())
            }),
            complete: found.complete,
            owner,
            grants: found.grants,
            ticket: found.ticket,
        }
    }

    fn found(&self, resource: &ResourceName, lock: Option<&Lock>, whom: &Whom) -> Found {
        match (&whom.client, &whom.request, lock) {
            (_, _, None) => Found { complete: true, ..Found::default() },
            (Some(client), Some(id), _) => self.found_by_request(resource, client, id),
            (_, _, Some(lock)) => self.found_by_looking(resource, lock, whom),
        }
    }

    /// Request ids are sorted by owner, so nothing has to be looked through.
    fn found_by_request(
        &self,
        resource: &ResourceName,
        client: &ClientId,
        id: &RequestId,
    ) -> Found {
        let mut looks = 0;
        for owner in self.state.index.owners_from(Some(client), None).take(OWNERS_MAX) {
            looks += 1;
            let mut found = Found { complete: true, ..Found::default() };
            match self.request(owner, id) {
                Some(Got::Grant(token)) => found.grants.extend(self.grant(token).cloned()),
                Some(Got::Ticket(id)) => found.ticket = self.ticket(id).cloned(),
                None => continue,
            }
            found.grants.retain(|grant| grant.resource == *resource);
            found.ticket = found.ticket.filter(|ticket| ticket.resource == *resource);
            if !found.grants.is_empty() || found.ticket.is_some() {
                return found;
            }
        }
        Found { complete: looks < OWNERS_MAX, ..Found::default() }
    }

    fn found_by_looking(&self, resource: &ResourceName, lock: &Lock, whom: &Whom) -> Found {
        let is = |grant: &Arc<Grant>| whom.is(&grant.owner, grant.request_id.as_ref());
        let (grants, all_grants) = match &whom.client {
            // There may be a million who share it; then one looks at what the client has.
            Some(client) if lock.holders.len() > LOOKS_MAX => {
                let mut looks = 0;
                let pieces = self.state.index.things_of(client, None).take(LOOKS_MAX);
                let grants = pieces.inspect(|_| looks += 1).filter_map(|p| self.grant_at(p));
                let here = grants.filter(|grant| grant.resource == *resource && is(grant));
                let shown: Vec<_> = here.take(SHOWN).cloned().collect();
                (shown, looks < LOOKS_MAX)
            }
            _ => {
                let holders = self.holders(resource).take(LOOKS_MAX).filter(|grant| is(grant));
                (holders.take(SHOWN).cloned().collect(), lock.holders.len() <= LOOKS_MAX)
            }
        };
        let line = lock.line.iter().flat_map(|line| line.all.keys()).take(LOOKS_MAX);
        let mut tickets = line.filter_map(|(_, id)| self.ticket(*id));
        let ticket = tickets.find(|ticket| whom.is(&ticket.owner, ticket.request_id.as_ref()));
        let all = all_grants && (ticket.is_some() || lock.line_len() <= LOOKS_MAX);
        Found { ticket: ticket.cloned(), complete: all || !grants.is_empty(), grants }
    }

    fn grant_at(&self, piece: Piece) -> Option<&Arc<Grant>> {
        match piece.item() {
            Item::Grant(token) => self.grant(token),
            Item::Ticket(_) => None,
        }
    }

    fn owner_of(&self, found: &Found, whom: &Whom) -> Option<Arc<Owner>> {
        let holder = found.grants.first().map(|grant| &grant.owner);
        let here = holder.or(found.ticket.as_ref().map(|ticket| &ticket.owner));
        let label = whom.client.as_ref();
        let elsewhere =
            || label.and_then(|label| self.state.index.owners_from(Some(label), None).next());
        here.or_else(elsewhere).cloned()
    }

    fn refusal_now(&self, lock: Option<&Lock>) -> Option<Refusal> {
        let (used, max) = (self.grants_used(), self.state.limits.grants_max);
        if used >= max {
            let queue_length = lock.map_or(0, Lock::line_len);
            return Some(Refusal::Full { bound: Bound::Grants, max, queue_length });
        }
        let lock = lock.filter(|lock| !lock.admits(Mode::Exclusive) || lock.attached())?;
        Some(Refusal::Held(self.blockers(lock)))
    }

    /// A ticket is a grant to come.
    fn grants_used(&self) -> u64 {
        (self.state.grants.len() + self.state.tickets.len()) as u64
    }

    fn bounds(&self, resource: &ResourceName, owner: Option<&Owner>) -> [Usage; 4] {
        let (state, limits) = (&self.state, &self.state.limits);
        let (in_line, queue_max) = self.line_of(resource);
        let client = owner.and_then(|owner| state.clients.get(owner));
        let usage = |bound, used: usize, max| Usage { bound, used: used as u64, max };
        let tickets = client.map_or(0, |client| client.tickets as usize);
        [
            usage(Bound::Queue, in_line, queue_max.into()),
            usage(Bound::ClientTickets, tickets, limits.client_tickets_max.into()),
            usage(Bound::Tickets, state.tickets.len(), limits.tickets_max),
            Usage { bound: Bound::Grants, used: self.grants_used(), max: limits.grants_max },
        ]
    }
}

impl Lock {
    /// Whether a live request stands in line: nobody passes it.
    fn attached(&self) -> bool {
        self.line.as_ref().is_some_and(|line| !line.attached.is_empty())
    }
}
