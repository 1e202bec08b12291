//! Rows back into a state. Rows that contradict each other are refused as a whole: a node that
//! served a broken state would spread it.

use crate::acquire::metadata_bytes;
use crate::command::Mode;
use crate::ids::{LeaseId, TicketId, Token};
use crate::index::ByLabel;
use crate::machine::LockTable;
use crate::name::{Owner, RequestId, ResourceName};
use crate::outcome::Grant;
use crate::row::{EndedRow, EndedWhat, Got, LeaseRow, LiveRequest, Row, Ticket};
use crate::state::{Client, Content, Item, Lease, LeaseExtra, Request, RequestKey, State};
use std::fmt;
use std::sync::Arc;

/// Why rows are not a state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImportError {
    /// The first row is not the head, or there is none.
    NoHead,
    /// A second head.
    SecondHead,
    /// The second row is not the limits: what a default would decide must not differ by build.
    NoLimits,
    /// A row comes twice, or before one that belongs before it.
    OutOfOrder,
    /// A grant or ticket names a lease that is not there, is another owner's, or holds another
    /// thing.
    NoLease(LeaseId),
    /// A lease for one thing came without it.
    EmptyLease(LeaseId),
    /// A grant beside one that it cannot stand beside.
    TwoHolders(ResourceName),
    /// A request and the ticket or grant that it names do not name each other.
    DanglingRequest,
    /// What is remembered as ended is alive, or is remembered twice.
    NotEnded,
    /// A number is above the counter that gives such numbers out, or the counter above its end.
    BeyondCounter,
}

impl fmt::Display for ImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoHead => write!(f, "the first row is not the head"),
            Self::SecondHead => write!(f, "there is a second head"),
            Self::NoLimits => write!(f, "the second row is not the limits"),
            Self::OutOfOrder => write!(f, "a row comes twice or too late"),
            Self::NoLease(id) => write!(f, "a row names {id:?}, which does not hold it"),
            Self::EmptyLease(id) => write!(f, "{id:?} was opened for one thing and has none"),
            Self::TwoHolders(resource) => {
                write!(f, "{resource:?} has holders that exclude each other")
            }
            Self::DanglingRequest => {
                write!(f, "a request and what it names do not name each other")
            }
            Self::NotEnded => write!(f, "what is remembered as ended is alive or remembered twice"),
            Self::BeyondCounter => write!(f, "a number is above the counter that gives it out"),
        }
    }
}

impl std::error::Error for ImportError {}

impl LockTable {
    /// Rebuilds a table from rows in their canonical order.
    ///
    /// # Errors
    /// [`ImportError`] if the rows contradict each other or come in another order.
    pub fn import(rows: impl IntoIterator<Item = Row>) -> Result<Self, ImportError> {
        let mut rows = rows.into_iter();
        let Some(Row::Head(head)) = rows.next() else { return Err(ImportError::NoHead) };
        let Some(Row::Limits(limits)) = rows.next() else { return Err(ImportError::NoLimits) };
        if head.last_token >= Token::LIMIT || head.last_ticket >= TicketId::LIMIT {
            return Err(ImportError::BeyondCounter);
        }
        let mut import = Import {
            state: State { head, limits: Arc::new(*limits), ..State::default() },
            before: None,
            unclaimed: 0,
        };
        for row in rows {
            import.put(row)?;
        }
        import.finish()
    }
}

/// A state being rebuilt.
struct Import {
    state: State,
    /// The row before.
    before: Option<Key>,
    /// Tickets and grants with a request id whose request has not been read yet.
    unclaimed: usize,
}

/// What rows are sorted by.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Domain(Arc<str>),
    Lease(LeaseId),
    Grant(Token),
    Ticket(TicketId),
    Live(Arc<Owner>, RequestId),
    Ended(u64),
}

/// Marks a single lease whose item has not been read yet. No ticket has this number.
const NOTHING_YET: Item = Item::Ticket(TicketId(0));

impl Import {
    fn put(&mut self, row: Row) -> Result<(), ImportError> {
        let key = key_of(&row)?;
        if self.before.as_ref().is_some_and(|before| *before >= key) {
            return Err(ImportError::OutOfOrder);
        }
        self.before = Some(key);
        match row {
            Row::Head(_) | Row::Limits(_) => return Err(ImportError::OutOfOrder),
            Row::Domain { domain, settings } => {
                self.state.domains.insert(domain, settings);
            }
            Row::Lease(row) => self.put_lease(row),
            Row::Grant(grant) => self.put_grant(&grant)?,
            Row::Ticket(ticket) => self.put_ticket(&ticket)?,
            Row::Live(request) => self.put_live(request)?,
            Row::Ended(row) => self.put_ended(row)?,
        }
        Ok(())
    }

    fn put_lease(&mut self, row: LeaseRow) {
        let owner = self.known(&row.owner);
        self.count(&owner, |client| client.leases += 1);
        self.state.index.owners.insert(ByLabel(owner.clone()), ());
        if !row.single {
            self.state.index.put_lease(&owner, row.id);
        }
        self.state.metadata_bytes += metadata_bytes(row.metadata.as_ref());
        if row.ending.is_some() {
            self.state.ending.insert(row.id);
        }
        let plain = row.metadata.is_none() && row.ending.is_none() && row.lost.is_empty();
        let extra = LeaseExtra { metadata: row.metadata, ending: row.ending, lost: row.lost };
        let content = if row.single {
            Content::Single(NOTHING_YET)
        } else {
            Content::Many { grants: 0, tickets: 0 }
        };
        let lease = Lease {
            owner,
            ttl_ms: row.ttl_ms,
            longest_ttl_ms: row.longest_ttl_ms,
            opened_at_ms: row.opened_at_ms,
            content,
            extra: (!plain).then(|| Arc::new(extra)),
        };
        self.state.leases.insert(row.id, lease);
    }

    fn put_grant(&mut self, grant: &Arc<Grant>) -> Result<(), ImportError> {
        if grant.token.0 > self.state.head.last_token {
            return Err(ImportError::BeyondCounter);
        }
        let owner =
            self.put_on(grant.lease, Some(grant.single), &grant.owner, Item::Grant(grant.token))?;
        let grant = Arc::new(Grant { owner, ..(**grant).clone() });
        self.state.metadata_bytes += metadata_bytes(grant.metadata.as_ref());
        self.unclaimed += usize::from(grant.request_id.is_some());
        let mut lock = self.state.locks.remove(&grant.resource).unwrap_or_default();
        if !lock.admits(grant.mode) {
            return Err(ImportError::TwoHolders(grant.resource.clone()));
        }
        lock.shared = grant.mode == Mode::Shared;
        lock.holders.add(grant.token);
        self.state.locks.insert(grant.resource.clone(), lock);
        self.state.grants.insert(grant.token, grant);
        Ok(())
    }

    fn put_ticket(&mut self, ticket: &Arc<Ticket>) -> Result<(), ImportError> {
        if ticket.id.0 > self.state.head.last_ticket || ticket.id.0 == 0 {
            return Err(ImportError::BeyondCounter);
        }
        let owner = self.put_on(ticket.lease, None, &ticket.owner, Item::Ticket(ticket.id))?;
        let ticket = Arc::new(Ticket { owner: owner.clone(), ..(**ticket).clone() });
        self.count(&owner, |client| client.tickets += 1);
        self.state.metadata_bytes += metadata_bytes(ticket.metadata.as_ref());
        self.unclaimed += usize::from(ticket.request_id.is_some());
        for lease in ticket.behalf.iter().flat_map(|leases| leases.iter()) {
            self.state.on_behalf.insert((*lease, ticket.id), ());
        }
        let mut lock = self.state.locks.remove(&ticket.resource).unwrap_or_default();
        lock.line.get_or_insert_default().put(&ticket);
        self.state.index.contended.insert(ticket.resource.clone(), ());
        self.state.locks.insert(ticket.resource.clone(), lock);
        self.state.tickets.insert(ticket.id, ticket);
        Ok(())
    }

    fn put_on(
        &mut self,
        id: LeaseId,
        single: Option<bool>,
        owner: &Owner,
        item: Item,
    ) -> Result<Arc<Owner>, ImportError> {
        let lease = self.state.leases.get_mut(&id).ok_or(ImportError::NoLease(id))?;
        if *lease.owner != *owner || single.is_some_and(|single| single != lease.single()) {
            return Err(ImportError::NoLease(id));
        }
        match (&mut lease.content, item) {
            (Content::Single(slot), _) if *slot == NOTHING_YET => *slot = item,
            (Content::Single(_), _) => return Err(ImportError::NoLease(id)),
            (Content::Many { grants, .. }, Item::Grant(_)) => *grants += 1,
            (Content::Many { tickets, .. }, Item::Ticket(_)) => *tickets += 1,
        }
        let (owner, single) = (lease.owner.clone(), lease.single());
        if !single {
            self.state.on_lease.insert((id, item), ());
        }
        self.state.index.put(&owner, item, single);
        if matches!(item, Item::Grant(_)) {
            self.count(&owner, |client| client.grants += 1);
        }
        Ok(owner)
    }

    fn put_live(&mut self, request: LiveRequest) -> Result<(), ImportError> {
        let named_by = match request.got {
            Got::Ticket(id) => {
                self.state.tickets.get(&id).map(|ticket| (&ticket.owner, &ticket.request_id))
            }
            Got::Grant(token) => {
                self.state.grants.get(&token).map(|grant| (&grant.owner, &grant.request_id))
            }
        };
        if named_by
            .is_none_or(|(owner, id)| **owner != *request.owner || id.as_ref() != Some(&request.id))
        {
            return Err(ImportError::DanglingRequest);
        }
        // Rows are sorted by owner and id, so none is counted twice.
        self.unclaimed -= 1;
        let owner = self.known(&request.owner);
        self.count(&owner, |client| client.requests += 1);
        let live = Request::Live { fingerprint: request.fingerprint, got: request.got };
        self.state.requests.insert(RequestKey { owner, id: request.id }, live);
        Ok(())
    }

    fn put_ended(&mut self, mut row: EndedRow) -> Result<(), ImportError> {
        if row.seq > self.state.head.last_ended {
            return Err(ImportError::BeyondCounter);
        }
        let seq = row.seq;
        let known = match &mut row.what {
            EndedWhat::Request { owner, id, .. } => {
                *owner = self.known(owner);
                let (owner, id) = (owner.clone(), id.clone());
                self.count(&owner, |client| client.ended.push_back(seq));
                self.state.requests.insert(RequestKey { owner, id }, Request::Ended(seq)).is_some()
            }
            EndedWhat::Lease { id } => {
                self.state.leases.contains(id) || self.state.ended_leases.insert(*id, seq).is_some()
            }
        };
        self.state.ended.insert(seq, Arc::new(row));
        if known { Err(ImportError::NotEnded) } else { Ok(()) }
    }

    fn finish(self) -> Result<LockTable, ImportError> {
        let empty = self
            .state
            .leases
            .iter()
            .find(|(_, lease)| lease.content == Content::Single(NOTHING_YET));
        match empty {
            Some((id, _)) => Err(ImportError::EmptyLease(*id)),
            None if self.unclaimed > 0 => Err(ImportError::DanglingRequest),
            None => Ok(LockTable { state: self.state }),
        }
    }

    fn known(&self, owner: &Arc<Owner>) -> Arc<Owner> {
        self.state.clients.get_key(owner).unwrap_or(owner).clone()
    }

    fn count(&mut self, owner: &Arc<Owner>, change: impl FnOnce(&mut Client)) {
        if !self.state.clients.contains(owner) {
            self.state.clients.insert(owner.clone(), Client::default());
        }
        if let Some(client) = self.state.clients.get_mut(owner) {
            change(client);
        }
    }
}

fn key_of(row: &Row) -> Result<Key, ImportError> {
    Ok(match row {
        Row::Head(_) => return Err(ImportError::SecondHead),
        Row::Limits(_) => return Err(ImportError::OutOfOrder),
        Row::Domain { domain, .. } => Key::Domain(domain.clone()),
        Row::Lease(lease) => Key::Lease(lease.id),
        Row::Grant(grant) => Key::Grant(grant.token),
        Row::Ticket(ticket) => Key::Ticket(ticket.id),
        Row::Live(request) => Key::Live(request.owner.clone(), request.id.clone()),
        Row::Ended(row) => Key::Ended(row.seq),
    })
}
