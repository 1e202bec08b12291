//! Pages of locks, leases and clients: each costs what it returns, however much there is beside it.
//!
//! A list goes through the index that holds least besides what is wanted. What is left over to a
//! filter on the way is looked at, but only so much of it a page: then the page ends early, with a
//! cursor, instead of walking a million entries under the table's lock.

use crate::ids::LeaseId;
use crate::index::Piece;
use crate::machine::LockTable;
use crate::name::{ClientId, DEFAULT_DOMAIN, Owner, ResourceName};
use crate::state::{Item, Lock};
use crate::view::{LeaseView, LockView};
use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

/// How many entries one page may look at.
pub(crate) const LOOKS_MAX: usize = 10_000;
/// How many looks one jump over a foreign domain counts for: it is a search of its own.
const JUMP_LOOKS: usize = 10;
/// Holders of a lock that a list shows.
const HOLDERS_SHOWN: usize = 8;

/// Which locks are listed: those to which all of this applies.
#[derive(Debug, Clone, Default)]
pub struct LockFilter {
    /// Only names that start with this.
    pub prefix: Option<String>,
    /// Only this domain.
    pub domain: Option<String>,
    /// Only locks that this client holds or waits for, under whatever principal.
    pub client: Option<ClientId>,
    /// Only locks that somebody holds.
    pub held: bool,
    /// Only locks with somebody in line.
    pub contended: bool,
    /// Only what comes after this.
    pub after: Option<LocksAfter>,
}

/// Where a page of locks ended. A list of one client's locks takes only a [`LocksAfter::Piece`],
/// every other one only a [`LocksAfter::Name`]; the wrong one is not looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LocksAfter {
    /// Locks are listed by name.
    Name(ResourceName),
    /// One client's locks are listed by what it has there.
    Piece(Piece),
}

/// Where a page of leases ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeasesAfter {
    /// Leases are listed by id.
    Lease(LeaseId),
    /// One client's leases for one thing are listed after its others, by what stands on them.
    Piece(Piece),
}

/// A part of a list.
#[derive(Debug, Clone)]
pub struct Slice<T, K> {
    /// The items.
    pub items: Vec<T>,
    /// Where the list goes on, if it does. With it a slice may be shorter than was asked for.
    pub next: Option<K>,
}

/// What one owner has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientView {
    /// Who.
    pub owner: Arc<Owner>,
    /// Its leases.
    pub leases: u32,
    /// Its grants.
    pub grants: u32,
    /// Its places in lines.
    pub tickets: u32,
}

/// A page being filled.
struct Page<T, K> {
    items: Vec<T>,
    limit: usize,
    looks: usize,
    last: Option<K>,
}

impl<T, K> Page<T, K> {
    fn new(limit: usize) -> Self {
        Self { items: Vec::new(), limit, looks: 0, last: None }
    }

    fn is_full(&self) -> bool {
        self.items.len() >= self.limit || self.looks >= LOOKS_MAX
    }

    fn looked_at(&mut self, key: K, looks: usize) {
        self.last = Some(key);
        self.looks += looks;
    }

    fn cut(self) -> Slice<T, K> {
        Slice { items: self.items, next: self.last }
    }

    fn end(self) -> Slice<T, K> {
        Slice { items: self.items, next: None }
    }
}

impl LockTable {
    /// Locks by name. Those of one client instead in the order of [`Piece`]; a lock on which it
    /// has more than one thing stands once on a page, but may stand on another page again.
    #[must_use]
    pub fn locks(&self, filter: &LockFilter, limit: usize) -> Slice<LockView, LocksAfter> {
        match &filter.client {
            Some(client) => self.locks_of(client, filter, limit),
            None => self.locks_by_name(filter, limit),
        }
    }

    fn locks_of(
        &self,
        client: &ClientId,
        filter: &LockFilter,
        limit: usize,
    ) -> Slice<LockView, LocksAfter> {
        let after = match filter.after {
            Some(LocksAfter::Piece(piece)) => Some(piece),
            _ => None,
        };
        let mut page = Page::new(limit);
        let mut seen = BTreeSet::new();
        for piece in self.state.index.things_of(client, after) {
            if page.is_full() {
                return page.cut();
            }
            page.looked_at(LocksAfter::Piece(piece), 1);
            let Some((name, lock)) = self.lock_of(piece) else { continue };
            if seen.insert(name) && filter.takes(name, lock) {
                page.items.push(self.view_of(name, lock, HOLDERS_SHOWN, 0));
            }
        }
        page.end()
    }

    fn lock_of(&self, piece: Piece) -> Option<(&ResourceName, &Lock)> {
        let name = match piece.item() {
            Item::Ticket(id) => &self.state.tickets.get(&id)?.resource,
            Item::Grant(token) => &self.state.grants.get(&token)?.resource,
        };
        Some((name, self.state.locks.get(name)?))
    }

    fn locks_by_name(&self, filter: &LockFilter, limit: usize) -> Slice<LockView, LocksAfter> {
        let mut page = Page::new(limit);
        let Some(prefix) = filter.common_prefix() else { return page.end() };
        let after = match &filter.after {
            Some(LocksAfter::Name(name)) if name.as_str() >= prefix.as_str() => Some(name.as_str()),
            _ => None,
        };
        let from = after.map_or(Bound::Included(prefix.as_str()), Bound::Excluded);
        let mut names = self.names(filter.contended, from);
        while let Some((name, lock)) = names.next().filter(|(name, _)| name.starts_with(&prefix)) {
            if page.is_full() {
                return page.cut();
            }
            if let Some(foreign) = filter.foreign_domain(name) {
                // All of it lies between these two; the cursor names none of its resources.
                let (all, end) = (format!("{foreign}/"), format!("{foreign}0"));
                names = self.names(filter.contended, Bound::Included(&end));
                page.looks += JUMP_LOOKS;
                page.last = ResourceName::parse(&all).ok().map(LocksAfter::Name).or(page.last);
                continue;
            }
            page.looked_at(LocksAfter::Name(name.clone()), 1);
            if filter.takes(name, lock) {
                page.items.push(self.view_of(name, lock, HOLDERS_SHOWN, 0));
            }
        }
        page.end()
    }

    fn names<'a>(
        &'a self,
        contended: bool,
        from: Bound<&str>,
    ) -> Box<dyn Iterator<Item = (&'a ResourceName, &'a Lock)> + 'a> {
        let locks = &self.state.locks;
        if contended {
            let names = self.state.index.contended.range_from(from);
            Box::new(names.filter_map(|(name, ())| Some((name, locks.get(name)?))))
        } else {
            Box::new(locks.range_from(from))
        }
    }

    /// Leases by id; those of one client in two parts, the ones for many things before the others.
    #[must_use]
    pub fn leases(
        &self,
        client: Option<&ClientId>,
        after: Option<LeasesAfter>,
        limit: usize,
    ) -> Slice<LeaseView, LeasesAfter> {
        let mut page = Page::new(limit);
        for (key, id) in self.lease_ids(client, after) {
            if page.is_full() {
                return page.cut();
            }
            page.looked_at(key, 1);
            page.items.extend(self.lease_view(id, 0));
        }
        page.end()
    }

    fn lease_ids<'a>(
        &'a self,
        client: Option<&'a ClientId>,
        after: Option<LeasesAfter>,
    ) -> Box<dyn Iterator<Item = (LeasesAfter, LeaseId)> + 'a> {
        let (id, piece) = match after {
            Some(LeasesAfter::Lease(id)) => (Some(id), None),
            Some(LeasesAfter::Piece(piece)) => (None, Some(piece)),
            None => (None, None),
        };
        let by_id = |id: LeaseId| (LeasesAfter::Lease(id), id);
        let Some(client) = client else {
            let from = id.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
            return Box::new(self.state.leases.range_from(from).map(move |(id, _)| by_id(*id)));
        };
        let index = &self.state.index;
        let first = piece.is_none().then(|| index.leases_of(client, id));
        let second = index.things_of(client, piece).take_while(|piece| piece.single());
        let second =
            second.filter_map(|piece| Some((LeasesAfter::Piece(piece), self.lease_of(piece)?)));
        Box::new(first.into_iter().flatten().map(by_id).chain(second))
    }

    fn lease_of(&self, piece: Piece) -> Option<LeaseId> {
        match piece.item() {
            Item::Ticket(id) => self.state.tickets.get(&id).map(|ticket| ticket.lease),
            Item::Grant(token) => self.state.grants.get(&token).map(|grant| grant.lease),
        }
    }

    /// Owners with a lease, by label and then by principal. Whoever is only remembered for what
    /// ended is not among them.
    #[must_use]
    pub fn clients(
        &self,
        client: Option<&ClientId>,
        after: Option<&Owner>,
        limit: usize,
    ) -> Slice<ClientView, Owner> {
        let mut page = Page::new(limit);
        for owner in self.state.index.owners_from(client, after) {
            if page.is_full() {
                return page.cut();
            }
            page.looked_at((**owner).clone(), 1);
            page.items.extend(self.client_view(owner));
        }
        page.end()
    }

    fn client_view(&self, owner: &Arc<Owner>) -> Option<ClientView> {
        let client = self.state.clients.get(owner)?;
        Some(ClientView {
            owner: owner.clone(),
            leases: client.leases,
            grants: client.grants,
            tickets: client.tickets,
        })
    }

    /// How many owners have a lease.
    #[must_use]
    pub fn clients_total(&self) -> usize {
        self.state.index.owners.len()
    }
}

impl LockFilter {
    /// What all wanted names start with, or nothing if no name can be wanted.
    fn common_prefix(&self) -> Option<String> {
        let prefix = self.prefix.as_deref().unwrap_or("");
        match self.domain.as_deref() {
            // Names of this domain stand among those of all others.
            None | Some(DEFAULT_DOMAIN) => Some(prefix.to_owned()),
            Some(domain) if domain.is_empty() || domain.contains('/') => None,
            Some(domain) => {
                let all = format!("{domain}/");
                match prefix.starts_with(&all) {
                    true => Some(prefix.to_owned()),
                    false => all.starts_with(prefix).then_some(all),
                }
            }
        }
    }

    /// The domain of a name, if it is another one than the wanted one.
    fn foreign_domain<'a>(&self, name: &'a ResourceName) -> Option<&'a str> {
        let wanted = self.domain.as_deref()?;
        Some(name.domain()).filter(|domain| *domain != wanted)
    }

    fn takes(&self, name: &ResourceName, lock: &Lock) -> bool {
        self.prefix.as_deref().is_none_or(|prefix| name.starts_with(prefix))
            && self.domain.as_deref().is_none_or(|domain| name.domain() == domain)
            && (!self.held || !lock.holders.is_empty())
            && (!self.contended || lock.line.is_some())
    }
}

impl ResourceName {
    fn starts_with(&self, prefix: &str) -> bool {
        self.as_str().starts_with(prefix)
    }
}
