//! What readers see of one thing: copies of small parts, never more than was asked for. Lists are
//! in [`list`](crate::list).

use crate::command::{Acquire, Mode};
use crate::ids::{ClusterId, LeaseId, TicketId, Token};
use crate::limits::{DomainSettings, Limits};
use crate::list::Slice;
use crate::machine::LockTable;
use crate::name::{Owner, RequestId, ResourceName};
use crate::outcome::{Blockers, Bound as BoundOf, Grant, Refusal};
use crate::row::{Got, LostGrant, Ticket};
use crate::state::{Content, Item, Lease, Lock, Request, RequestKey};
use std::ops::Bound;
use std::sync::Arc;

/// A lock with its line.
#[derive(Debug, Clone)]
pub struct LockView {
    /// What is held or waited for.
    pub resource: ResourceName,
    /// The holders, lowest token first, at most as many as were asked for.
    pub holders: Vec<Arc<Grant>>,
    /// How many there are.
    pub holders_total: usize,
    /// The line, first first, at most as many as were asked for.
    pub queue: Vec<Arc<Ticket>>,
    /// How many stand in it.
    pub queue_length: usize,
}

/// A lease with what stands on it.
#[derive(Debug, Clone)]
pub struct LeaseView {
    /// Its id.
    pub id: LeaseId,
    /// Whose it is.
    pub owner: Arc<Owner>,
    /// Its TTL, in milliseconds.
    pub ttl_ms: u64,
    /// The longest that it ever had: a new leader gives it that much, since an older one may have
    /// promised it.
    pub longest_ttl_ms: u64,
    /// Opened for one grant, and ends with it.
    pub single: bool,
    /// When it was opened, by the proposer's wall clock.
    pub opened_at_ms: u64,
    /// Its grants, at most as many as were asked for.
    pub grants: Vec<Arc<Grant>>,
    /// How many there are.
    pub grants_total: usize,
    /// Its tickets, at most as many as were asked for.
    pub tickets: Vec<Arc<Ticket>>,
    /// How many there are.
    pub tickets_total: usize,
    /// Grants that ended without the client's doing.
    pub lost: Vec<LostGrant>,
}

/// How much there is of everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Resources that are held or waited for.
    pub locks: usize,
    /// Live grants.
    pub grants: usize,
    /// Places in lines.
    pub tickets: usize,
    /// Live leases.
    pub leases: usize,
    /// Clients with anything.
    pub clients: usize,
    /// Ended requests and leases that are remembered.
    pub ended: usize,
    /// Bytes of metadata.
    pub metadata_bytes: u64,
}

impl LockTable {
    /// The number of the newest change.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.state.head.revision
    }

    /// Which cluster this is; nothing before it is founded.
    #[must_use]
    pub fn cluster(&self) -> Option<ClusterId> {
        self.state.head.cluster
    }

    /// The highest version of commands that the log may hold.
    #[must_use]
    pub fn level(&self) -> u16 {
        self.state.head.level
    }

    /// The newest token given out.
    #[must_use]
    pub fn last_token(&self) -> Token {
        Token(self.state.head.last_token)
    }

    /// The largest wall clock seen, in milliseconds.
    #[must_use]
    pub fn at_ms(&self) -> u64 {
        self.state.head.at_ms
    }

    /// The limits in force.
    #[must_use]
    pub fn limits(&self) -> &Arc<Limits> {
        &self.state.limits
    }

    /// How much there is of everything.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let state = &self.state;
        Counts {
            locks: state.locks.len(),
            grants: state.grants.len(),
            tickets: state.tickets.len(),
            leases: state.leases.len(),
            clients: state.clients.len(),
            ended: state.ended.len(),
            metadata_bytes: state.metadata_bytes,
        }
    }

    /// When the oldest remembered request or lease ended.
    #[must_use]
    pub fn oldest_ended_at_ms(&self) -> Option<u64> {
        self.state.ended.first().map(|(_, row)| row.ended_at_ms)
    }

    /// How many stand in line for a resource, and how many may.
    #[must_use]
    pub fn line_of(&self, resource: &ResourceName) -> (usize, u32) {
        let of_domain =
            self.state.domains.get(resource.domain()).and_then(|own| own.limits.queue_max);
        let max = of_domain.unwrap_or(self.state.limits.queue_max);
        (self.state.locks.get(resource).map_or(0, Lock::line_len), max)
    }

    /// What a domain has set for itself.
    #[must_use]
    pub fn domain(&self, name: &str) -> Option<DomainSettings> {
        self.state.domains.get(name).copied()
    }

    /// Domains with settings of their own, by name, after `after`.
    #[must_use]
    pub fn domains(
        &self,
        after: Option<&str>,
        limit: usize,
    ) -> Slice<(Arc<str>, DomainSettings), Arc<str>> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let rest = self.state.domains.range::<str, _>((from, Bound::Unbounded));
        let mut items: Vec<_> =
            rest.map(|(name, own)| (name.clone(), *own)).take(limit + 1).collect();
        let more = items.len() > limit;
        items.truncate(limit);
        let next = items.last().filter(|_| more).map(|(name, _)| name.clone());
        Slice { items, next }
    }

    /// How many domains have settings of their own.
    #[must_use]
    pub fn domains_len(&self) -> usize {
        self.state.domains.len()
    }

    /// A refusal that applying this now would surely give, found from counters and the present
    /// holders. For requests that are no repeats; `None` says nothing.
    #[must_use]
    pub fn sure_refusal(&self, asked: &Acquire) -> Option<Refusal> {
        let (state, limits) = (&self.state, &self.state.limits);
        if state.head.hold_ms > 0 {
            // A repeat of what has ended with the restore is told so.
            let hold_ms = state.head.hold_ms;
            return (!self.remembers(asked)).then_some(Refusal::OnHold { hold_ms });
        }
        let lock = state.locks.get(&asked.resource);
        let queue_length = lock.map_or(0, Lock::line_len);
        let full = |bound, used: usize, max: u64| {
            (used as u64 >= max).then_some(Refusal::Full { bound, max, queue_length })
        };
        if let Some(refusal) =
            full(BoundOf::Grants, state.grants.len() + state.tickets.len(), limits.grants_max)
        {
            return Some(refusal);
        }
        let lock = lock.filter(|lock| !lock.admits(asked.mode))?;
        if !asked.wait {
            return Some(Refusal::Held(self.blockers(lock)));
        }
        let tickets = state.clients.get(&asked.owner).map_or(0, |client| client.tickets as usize);
        full(BoundOf::Queue, queue_length, u64::from(self.line_of(&asked.resource).1))
            .or_else(|| full(BoundOf::ClientTickets, tickets, u64::from(limits.client_tickets_max)))
            .or_else(|| full(BoundOf::Tickets, state.tickets.len(), limits.tickets_max))
    }

    pub(crate) fn blockers(&self, lock: &Lock) -> Blockers {
        let grants = lock.holders.iter().filter_map(|token| self.state.grants.get(&token).cloned());
        Blockers {
            holders: grants.take(Blockers::SHOWN).collect(),
            holders_total: lock.holders.len(),
            queue_length: lock.line_len(),
        }
    }

    /// Whether anybody holds a resource.
    #[must_use]
    pub fn is_held(&self, resource: &ResourceName) -> bool {
        self.state.locks.get(resource).is_some_and(|lock| !lock.holders.is_empty())
    }

    /// A live grant.
    #[must_use]
    pub fn grant(&self, token: Token) -> Option<&Arc<Grant>> {
        self.state.grants.get(&token)
    }

    /// The live grants of a resource, lowest token first.
    pub fn holders(&self, resource: &ResourceName) -> impl Iterator<Item = &Arc<Grant>> {
        let tokens =
            self.state.locks.get(resource).into_iter().flat_map(|lock| lock.holders.iter());
        tokens.filter_map(|token| self.state.grants.get(&token))
    }

    /// A place in a line.
    #[must_use]
    pub fn ticket(&self, id: TicketId) -> Option<&Arc<Ticket>> {
        self.state.tickets.get(&id)
    }

    /// Where a ticket stands, from 1.
    #[must_use]
    pub fn position(&self, ticket: &Ticket) -> Option<usize> {
        let line = self.state.locks.get(&ticket.resource)?.line.as_ref()?;
        Some(line.all.range(..=crate::queue::place_of(ticket)).count())
    }

    /// Whether the request was made before, as far as that is known.
    fn remembers(&self, asked: &Acquire) -> bool {
        let owner = self.state.clients.get_key(&asked.owner);
        let key = owner.zip(asked.request_id.as_ref());
        key.is_some_and(|(owner, id)| {
            self.state.requests.contains(&RequestKey { owner: owner.clone(), id: id.clone() })
        })
    }

    /// The ticket or token of a request that is still live.
    #[must_use]
    pub fn request(&self, owner: &Owner, id: &RequestId) -> Option<Got> {
        let owner = self.state.clients.get_key(owner)?.clone();
        match self.state.requests.get(&RequestKey { owner, id: id.clone() }) {
            Some(Request::Live { got, .. }) => Some(*got),
            _ => None,
        }
    }

    /// A lock with at most `shown` of its holders and of its line; `None` if it is free.
    #[must_use]
    pub fn lock_view(&self, resource: &ResourceName, shown: usize) -> Option<LockView> {
        let lock = self.state.locks.get(resource)?;
        Some(self.view_of(resource, lock, shown, shown))
    }

    pub(crate) fn view_of(
        &self,
        resource: &ResourceName,
        lock: &Lock,
        holders: usize,
        queue: usize,
    ) -> LockView {
        let grants = lock.holders.iter().filter_map(|token| self.state.grants.get(&token).cloned());
        let line = lock.line.iter().flat_map(|line| line.all.keys());
        let tickets = line.filter_map(|(_, id)| self.state.tickets.get(id).cloned());
        LockView {
            resource: resource.clone(),
            holders: grants.take(holders).collect(),
            holders_total: lock.holders.len(),
            queue: tickets.take(queue).collect(),
            queue_length: lock.line_len(),
        }
    }

    /// The owner and TTL of a living lease, or how it ended.
    ///
    /// # Errors
    /// [`Refusal::LeaseEnded`] or [`Refusal::LeaseUnknown`].
    pub fn lease(&self, id: LeaseId) -> Result<(&Arc<Owner>, u64), Refusal> {
        match self.state.leases.get(&id) {
            Some(lease) => match lease.ending() {
                None => Ok((&lease.owner, lease.ttl_ms)),
                how => Err(Refusal::LeaseEnded { how, ended_at_ms: Some(self.at_ms()) }),
            },
            None => Err(self.state.lease_refusal(id)),
        }
    }

    /// Grants of a living lease that ended without its client's doing.
    #[must_use]
    pub fn lost_on(&self, id: LeaseId) -> &[LostGrant] {
        self.state.lost_on(id)
    }

    /// A lease with at most `shown` of its grants and of its tickets.
    #[must_use]
    pub fn lease_view(&self, id: LeaseId, shown: usize) -> Option<LeaseView> {
        Some(self.lease_view_of(id, self.state.leases.get(&id)?, shown))
    }

    /// Every living lease that a new leader's clock must watch: with the longest TTL that it ever
    /// had, since an older leader may have promised it, and not only a
    /// ticket's own.
    pub fn watched_leases(&self) -> impl Iterator<Item = (LeaseId, u64)> {
        let watched = self.state.leases.iter().filter(|(_, lease)| {
            !matches!(lease.content, Content::Single(Item::Ticket(_))) && lease.ending().is_none()
        });
        watched.map(|(id, lease)| (*id, lease.longest_ttl_ms))
    }

    /// Leases that are being ended in pieces.
    pub fn ending_leases(&self) -> impl Iterator<Item = LeaseId> {
        self.state.ending.iter().copied()
    }

    /// Every place in a line.
    pub fn tickets(&self) -> impl Iterator<Item = &Arc<Ticket>> {
        self.state.tickets.iter().map(|(_, ticket)| ticket)
    }

    /// Every live grant.
    pub fn grants(&self) -> impl Iterator<Item = &Arc<Grant>> {
        self.state.grants.iter().map(|(_, grant)| grant)
    }

    fn lease_view_of(&self, id: LeaseId, lease: &Lease, shown: usize) -> LeaseView {
        let mut view = LeaseView {
            id,
            owner: lease.owner.clone(),
            ttl_ms: lease.ttl_ms,
            longest_ttl_ms: lease.longest_ttl_ms,
            single: lease.single(),
            opened_at_ms: lease.opened_at_ms,
            grants: Vec::new(),
            grants_total: 0,
            tickets: Vec::new(),
            tickets_total: 0,
            lost: self.lost_on(id).to_vec(),
        };
        match lease.content {
            Content::Single(item) => {
                view.grants_total = usize::from(matches!(item, Item::Grant(_)));
                view.tickets_total = 1 - view.grants_total;
                self.show(&mut view, item, shown);
            }
            Content::Many { grants, tickets } => {
                (view.grants_total, view.tickets_total) = (grants as usize, tickets as usize);
                self.show_many(&mut view, id, shown);
            }
        }
        view
    }

    fn show_many(&self, view: &mut LeaseView, id: LeaseId, shown: usize) {
        let tickets = (id, Item::Ticket(TicketId(0)))..(id, Item::Grant(Token(0)));
        let grants = (id, Item::Grant(Token(0)))..=(id, Item::Grant(Token(u64::MAX)));
        for ((_, item), ()) in self.state.on_lease.range(tickets).take(shown) {
            self.show(view, *item, shown);
        }
        for ((_, item), ()) in self.state.on_lease.range(grants).take(shown) {
            self.show(view, *item, shown);
        }
    }

    fn show(&self, view: &mut LeaseView, item: Item, shown: usize) {
        match item {
            Item::Grant(token) if view.grants.len() < shown => {
                view.grants.extend(self.state.grants.get(&token).cloned());
            }
            Item::Ticket(id) if view.tickets.len() < shown => {
                view.tickets.extend(self.state.tickets.get(&id).cloned());
            }
            _ => {}
        }
    }

    /// The highest token among the live grants of a resource.
    #[must_use]
    pub fn highest_live_token(&self, resource: &ResourceName) -> Option<Token> {
        self.state.locks.get(resource).and_then(|lock| lock.holders.highest())
    }

    /// The token of the live exclusive grant of a resource.
    #[must_use]
    pub fn exclusive_token(&self, resource: &ResourceName) -> Option<Token> {
        self.holders(resource).find(|grant| grant.mode == Mode::Exclusive).map(|grant| grant.token)
    }
}
