//! The invariants as a function. Property tests, fault tests and debug builds all call it.

use crate::command::Mode;
use crate::ids::{LeaseId, TicketId, Token};
use crate::index::ByLabel;
use crate::machine::LockTable;
use crate::name::{Owner, RequestId, ResourceName};
use crate::queue::place_of;
use crate::row::Got;
use crate::state::{Content, Item, Lease, Lock, Request, RequestKey};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// What a client has, counted by looking at everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Counted {
    leases: u32,
    grants: u32,
    tickets: u32,
    requests: u32,
    ended: usize,
}

/// An invariant that does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Breach {
    /// An exclusive holder beside another one.
    TwoHolders(ResourceName),
    /// A lock without holders and line was kept.
    IdleLock(ResourceName),
    /// A lock, lease or request names a grant that is not there, or not the other way round.
    LooseGrant(Token),
    /// A lock, lease or request names a ticket that is not there, or not the other way round.
    LooseTicket(TicketId),
    /// The first attached ticket could have been granted.
    Sleeper(TicketId),
    /// A lease's counts are wrong, or it holds what is not there.
    WrongLease(LeaseId),
    /// A client's counts are wrong.
    WrongClient(String),
    /// A counter is behind what it gave out.
    Counter(&'static str),
    /// More than a bound allows that no change of the limits can lower.
    Bound(&'static str),
    /// An index lacks something, or has something that is not there.
    Index(&'static str),
    /// Bytes of metadata are miscounted.
    Metadata,
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl LockTable {
    /// Checks every invariant; empty when all hold. Looks at the whole state.
    #[must_use]
    pub fn sound(&self) -> Vec<Breach> {
        let mut found = Vec::new();
        self.check_locks(&mut found);
        self.check_grants(&mut found);
        self.check_tickets(&mut found);
        self.check_leases(&mut found);
        self.check_clients(&mut found);
        self.check_bounds(&mut found);
        self.check_index(&mut found);
        found
    }

    fn check_locks(&self, found: &mut Vec<Breach>) {
        for (name, lock) in self.state.locks.iter() {
            if lock.is_idle() {
                found.push(Breach::IdleLock(name.clone()));
            }
            let grants: Vec<_> =
                lock.holders.iter().map(|token| (token, self.state.grants.get(&token))).collect();
            let exclusive =
                grants.iter().filter(|(_, g)| g.is_some_and(|g| g.mode == Mode::Exclusive)).count();
            if exclusive > 1
                || (exclusive == 1 && grants.len() > 1)
                || (exclusive == 1 && lock.shared)
            {
                found.push(Breach::TwoHolders(name.clone()));
            }
            for (token, grant) in grants {
                if grant.is_none_or(|grant| grant.resource != *name) {
                    found.push(Breach::LooseGrant(token));
                }
            }
            self.check_line(name, lock, found);
        }
    }

    fn check_line(&self, name: &ResourceName, lock: &Lock, found: &mut Vec<Breach>) {
        let Some(line) = &lock.line else { return };
        for (place, mode) in &line.all {
            let known = self.state.tickets.get(&place.1).is_some_and(|ticket| {
                place_of(ticket) == *place
                    && ticket.mode == *mode
                    && ticket.resource == *name
                    && ticket.attached == line.attached.contains_key(place)
            });
            if !known {
                found.push(Breach::LooseTicket(place.1));
            }
        }
        if line.attached.keys().any(|place| !line.all.contains_key(place)) || line.all.is_empty() {
            found.push(Breach::IdleLock(name.clone()));
        }
        if let Some(((_, id), mode)) = line.attached.first_key_value()
            && lock.admits(*mode)
        {
            found.push(Breach::Sleeper(*id));
        }
    }

    fn check_grants(&self, found: &mut Vec<Breach>) {
        for (token, grant) in self.state.grants.iter() {
            let held = self
                .state
                .locks
                .get(&grant.resource)
                .is_some_and(|lock| lock.holders.contains(*token));
            let leased = self.is_on_lease(grant.lease, Item::Grant(*token), &grant.owner);
            let asked = self.is_live(&grant.owner, grant.request_id.as_ref(), Got::Grant(*token));
            if !held || !leased || !asked || token.0 > self.state.head.last_token {
                found.push(Breach::LooseGrant(*token));
            }
        }
        if self.state.head.last_token >= Token::LIMIT {
            found.push(Breach::Counter("token"));
        }
    }

    fn check_tickets(&self, found: &mut Vec<Breach>) {
        for (id, ticket) in self.state.tickets.iter() {
            let line = self.state.locks.get(&ticket.resource).and_then(|lock| lock.line.as_ref());
            let in_line = line.is_some_and(|line| line.all.contains_key(&place_of(ticket)));
            let leased = self.is_on_lease(ticket.lease, Item::Ticket(*id), &ticket.owner);
            let asked = self.is_live(&ticket.owner, ticket.request_id.as_ref(), Got::Ticket(*id));
            if !in_line || !leased || !asked || id.0 > self.state.head.last_ticket {
                found.push(Breach::LooseTicket(*id));
            }
        }
        for ((_, id), ()) in self.state.on_behalf.iter() {
            if !self.state.tickets.contains(id) {
                found.push(Breach::LooseTicket(*id));
            }
        }
    }

    fn is_on_lease(&self, id: LeaseId, item: Item, owner: &Owner) -> bool {
        self.state.leases.get(&id).filter(|lease| *lease.owner == *owner).is_some_and(|lease| {
            match lease.content {
                Content::Single(one) => one == item,
                Content::Many { .. } => self.state.on_lease.contains(&(id, item)),
            }
        })
    }

    /// Whether a repeat finds this ticket or grant.
    fn is_live(&self, owner: &Arc<Owner>, id: Option<&RequestId>, is: Got) -> bool {
        let Some(id) = id else { return true };
        let key = RequestKey { owner: owner.clone(), id: id.clone() };
        matches!(self.state.requests.get(&key), Some(Request::Live { got, .. }) if *got == is)
    }

    fn check_leases(&self, found: &mut Vec<Breach>) {
        let mut on_leases = 0;
        for (id, lease) in self.state.leases.iter() {
            if lease.ending().is_some() != self.state.ending.contains(id) {
                found.push(Breach::WrongLease(*id));
            }
            let Content::Many { grants, tickets } = lease.content else { continue };
            let from = (*id, Item::Ticket(TicketId(0)));
            let to = (*id, Item::Grant(Token(u64::MAX)));
            let items: Vec<Item> =
                self.state.on_lease.range(from..=to).map(|((_, item), ())| *item).collect();
            on_leases += items.len();
            let held = items.iter().filter(|item| matches!(item, Item::Grant(_))).count();
            if held != grants as usize || items.len() - held != tickets as usize {
                found.push(Breach::WrongLease(*id));
            }
            for item in items {
                match item {
                    Item::Grant(token) if !self.state.grants.contains(&token) => {
                        found.push(Breach::LooseGrant(token))
                    }
                    Item::Ticket(id) if !self.state.tickets.contains(&id) => {
                        found.push(Breach::LooseTicket(id))
                    }
                    _ => {}
                }
            }
        }
        if on_leases != self.state.on_lease.len() {
            found.push(Breach::Counter("items on leases"));
        }
    }

    fn check_clients(&self, found: &mut Vec<Breach>) {
        let mut clients = self.recount();
        for (owner, client) in self.state.clients.iter() {
            let counted = clients.remove(owner).unwrap_or_default();
            let stored = Counted {
                leases: client.leases,
                grants: client.grants,
                tickets: client.tickets,
                requests: client.requests,
                ended: client.ended.len(),
            };
            if client.is_idle() || stored != counted {
                found.push(Breach::WrongClient(owner.client.to_string()));
            }
        }
        found.extend(clients.keys().map(|owner| Breach::WrongClient(owner.client.to_string())));
    }

    fn recount(&self) -> BTreeMap<Arc<Owner>, Counted> {
        let mut clients = BTreeMap::<_, Counted>::new();
        for (_, lease) in self.state.leases.iter() {
            clients.entry(lease.owner.clone()).or_default().leases += 1;
        }
        for (_, grant) in self.state.grants.iter() {
            clients.entry(grant.owner.clone()).or_default().grants += 1;
        }
        for (_, ticket) in self.state.tickets.iter() {
            clients.entry(ticket.owner.clone()).or_default().tickets += 1;
        }
        for (key, request) in self.state.requests.iter() {
            let counts = clients.entry(key.owner.clone()).or_default();
            match request {
                Request::Live { .. } => counts.requests += 1,
                Request::Ended(_) => counts.ended += 1,
            }
        }
        clients
    }

    /// Everything must be in its index, and nothing else: so the lengths decide the rest.
    fn check_index(&self, found: &mut Vec<Breach>) {
        let (state, index) = (&self.state, &self.state.index);
        let single = |lease| state.leases.get(&lease).is_some_and(Lease::single);
        let grants = state.grants.iter().all(|(token, grant)| {
            index.has(&grant.owner, Item::Grant(*token), single(grant.lease))
        });
        let tickets = state
            .tickets
            .iter()
            .all(|(id, ticket)| index.has(&ticket.owner, Item::Ticket(*id), single(ticket.lease)));
        let many = || state.leases.iter().filter(|(_, lease)| !lease.single());
        let leases = many().all(|(id, lease)| index.has_lease(&lease.owner, *id));
        let owners: BTreeSet<ByLabel> =
            state.leases.iter().map(|(_, lease)| ByLabel(lease.owner.clone())).collect();
        let lines = || state.locks.iter().filter(|(_, lock)| lock.line.is_some());
        let contended = lines().all(|(name, _)| index.contended.contains(name));
        let lens = [
            state.grants.len() + state.tickets.len(),
            many().count(),
            owners.len(),
            lines().count(),
        ];
        let known = owners.iter().all(|owner| index.owners.contains(owner));
        let all = [grants && tickets, leases, known, contended];
        for (at, what) in ["things", "leases", "owners", "contended"].into_iter().enumerate() {
            if !all[at] || lens[at] != index.lens()[at] {
                found.push(Breach::Index(what));
            }
        }
    }

    fn check_bounds(&self, found: &mut Vec<Breach>) {
        let state = &self.state;
        let metadata =
            state.grants.iter().map(|(_, g)| crate::acquire::metadata_bytes(g.metadata.as_ref()));
        let waiting =
            state.tickets.iter().map(|(_, t)| crate::acquire::metadata_bytes(t.metadata.as_ref()));
        let leases = state.leases.iter().filter_map(|(_, lease)| lease.extra.as_ref());
        let leases = leases.map(|extra| crate::acquire::metadata_bytes(extra.metadata.as_ref()));
        if metadata.chain(waiting).chain(leases).sum::<u64>() != state.metadata_bytes {
            found.push(Breach::Metadata);
        }
        for (_, request) in state.requests.iter() {
            match request {
                Request::Live { got: Got::Grant(token), .. } if !state.grants.contains(token) => {
                    found.push(Breach::LooseGrant(*token));
                }
                Request::Live { got: Got::Ticket(id), .. } if !state.tickets.contains(id) => {
                    found.push(Breach::LooseTicket(*id));
                }
                Request::Ended(seq) if !state.ended.contains(seq) => {
                    found.push(Breach::Counter("ended"))
                }
                _ => {}
            }
        }
    }
}
