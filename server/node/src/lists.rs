//! Pages of locks, leases and clients, and the cursors between them.
//!
//! A cursor is opaque to clients, and one that no page of the list gave out is refused. None names
//! a lease to somebody who may not list leases: the id of a lease is what its owner acts with.

use crate::answer::{AtRevision, Call, Failure, Holder, LeaseStatus, Page};
use crate::node::Node;
use leasehold_core::list::{ClientView, LeasesAfter, LockFilter, LocksAfter};
use leasehold_core::{ClientId, LeaseId, Owner, Piece, Principal, ResourceName};

/// Which locks are listed.
#[derive(Debug, Clone, Default)]
pub struct LocksFilter {
    /// Only names that start with this.
    pub prefix: Option<String>,
    /// Only this domain.
    pub domain: Option<String>,
    /// Only locks that this client holds or waits for.
    pub client: Option<ClientId>,
    /// Only locks in this state.
    pub state: Option<LockState>,
    /// How many a page has at most.
    pub limit: usize,
    /// Where the page before ended.
    pub after: Option<LocksAfter>,
}

/// The states that a list can ask for. A free lock leaves no trace and is never listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockState {
    /// Somebody holds it.
    Held,
    /// Somebody waits for it.
    Contended,
}

/// A lock in a list.
#[derive(Debug, Clone)]
pub struct LockSummary {
    /// Its resource.
    pub resource: ResourceName,
    /// At most eight of its holders.
    pub holders: Vec<Holder>,
    /// How many there are.
    pub holders_total: usize,
    /// How many stand in line.
    pub queue_length: usize,
}

/// Which leases are listed.
#[derive(Debug, Clone, Default)]
pub struct LeasesFilter {
    /// Only leases of this client.
    pub client: Option<ClientId>,
    /// How many a page has at most.
    pub limit: usize,
    /// Where the page before ended.
    pub after: Option<LeasesAfter>,
}

/// Which clients are listed.
#[derive(Debug, Clone, Default)]
pub struct ClientsFilter {
    /// Only this label, under whatever principal.
    pub client: Option<ClientId>,
    /// How many a page has at most.
    pub limit: usize,
    /// Where the page before ended.
    pub after: Option<Owner>,
}

impl LocksFilter {
    /// Goes on where a page ended; nothing if no page of this list gave out such a cursor.
    #[must_use]
    pub fn go_on(self, cursor: &str) -> Option<Self> {
        let (kind, rest) = cursor.split_at_checked(1)?;
        let after = match (kind, &self.client) {
            ("p", Some(_)) => LocksAfter::Piece(Piece::parse(rest)?),
            ("n", None) => LocksAfter::Name(ResourceName::parse(rest).ok()?),
            _ => return None,
        };
        Some(Self { after: Some(after), ..self })
    }

    fn is_everything(&self) -> bool {
        self.prefix.is_none()
            && self.domain.is_none()
            && self.client.is_none()
            && self.state.is_none()
    }

    fn filter(self) -> LockFilter {
        LockFilter {
            prefix: self.prefix,
            domain: self.domain,
            client: self.client,
            held: self.state == Some(LockState::Held),
            contended: self.state == Some(LockState::Contended),
            after: self.after,
        }
    }
}

impl LeasesFilter {
    /// Goes on where a page ended; nothing if no page of this list gave out such a cursor.
    #[must_use]
    pub fn go_on(self, cursor: &str) -> Option<Self> {
        let after = match cursor.strip_prefix('p') {
            Some(piece) => {
                let piece = Piece::parse(piece).filter(|_| self.client.is_some());
                LeasesAfter::Piece(piece.filter(|piece| piece.single())?)
            }
            None => LeasesAfter::Lease(LeaseId::parse(cursor)?),
        };
        Some(Self { after: Some(after), ..self })
    }
}

impl ClientsFilter {
    /// Goes on where a page ended; nothing if no page of this list gave out such a cursor.
    #[must_use]
    pub fn go_on(self, cursor: &str) -> Option<Self> {
        let owner = read_owner(cursor)?;
        let of_list = self.client.as_ref().is_none_or(|client| *client == owner.client);
        of_list.then_some(Self { after: Some(owner), ..self })
    }
}

fn write_locks(after: &LocksAfter) -> String {
    match after {
        LocksAfter::Name(name) => format!("n{name}"),
        LocksAfter::Piece(piece) => format!("p{piece}"),
    }
}

fn write_leases(after: LeasesAfter) -> String {
    match after {
        LeasesAfter::Lease(id) => id.to_string(),
        LeasesAfter::Piece(piece) => format!("p{piece}"),
    }
}

/// Both names may have any letter, so the length of the first tells where the second begins.
fn write_owner(owner: &Owner) -> String {
    format!("{}.{}{}", owner.principal.as_str().len(), owner.principal, owner.client)
}

fn read_owner(cursor: &str) -> Option<Owner> {
    let (length, names) = cursor.split_once('.')?;
    let (principal, client) = names.split_at_checked(length.parse().ok()?)?;
    let principal = Principal::parse(principal).ok()?;
    let owner = Owner { principal, client: ClientId::parse(client).ok()? };
    (write_owner(&owner) == cursor).then_some(owner)
}

impl Node {
    /// Locks, a page at a time: by name, or those of one client in the order in which it came to
    /// wait for them and to hold them.
    ///
    /// # Errors
    /// [`Failure::NoLeader`] if the answer could not be confirmed.
    pub async fn locks(
        &self,
        _call: Call,
        filter: LocksFilter,
        stale: bool,
    ) -> Result<AtRevision<Page<LockSummary>>, Failure> {
        self.fresh(stale).await?;
        let (limit, everything) = (filter.limit, filter.is_everything());
        let filter = filter.filter();
        let table = self.inner.shared.table.read();
        let slice = table.locks(&filter, limit);
        let (revision, total) = (table.revision(), table.counts().locks as u64);
        drop(table);
        let items = slice.items.into_iter().map(|view| LockSummary {
            holders: view.holders.iter().map(|grant| self.holder(grant)).collect(),
            holders_total: view.holders_total,
            queue_length: view.queue_length,
            resource: view.resource,
        });
        let value = Page {
            items: items.collect(),
            next: slice.next.as_ref().map(write_locks),
            total: everything.then_some(total),
        };
        Ok(AtRevision { value, revision })
    }

    /// Leases, a page at a time, without what stands on them.
    ///
    /// # Errors
    /// [`Failure::NoLeader`] if the answer could not be confirmed.
    pub async fn leases(
        &self,
        _call: Call,
        filter: LeasesFilter,
        stale: bool,
    ) -> Result<AtRevision<Page<LeaseStatus>>, Failure> {
        self.fresh(stale).await?;
        let table = self.inner.shared.table.read();
        let slice = table.leases(filter.client.as_ref(), filter.after, filter.limit);
        let (revision, total) = (table.revision(), table.counts().leases as u64);
        drop(table);
        let value = Page {
            items: slice.items.into_iter().map(|view| self.lease_status(view)).collect(),
            next: slice.next.map(write_leases),
            total: filter.client.is_none().then_some(total),
        };
        Ok(AtRevision { value, revision })
    }

    /// Owners with a lease, a page at a time, by label.
    ///
    /// # Errors
    /// [`Failure::NoLeader`] if the answer could not be confirmed.
    pub async fn clients(
        &self,
        _call: Call,
        filter: ClientsFilter,
        stale: bool,
    ) -> Result<AtRevision<Page<ClientView>>, Failure> {
        self.fresh(stale).await?;
        let table = self.inner.shared.table.read();
        let slice = table.clients(filter.client.as_ref(), filter.after.as_ref(), filter.limit);
        let (revision, total) = (table.revision(), table.clients_total() as u64);
        drop(table);
        let value = Page {
            items: slice.items,
            next: slice.next.as_ref().map(write_owner),
            total: filter.client.is_none().then_some(total),
        };
        Ok(AtRevision { value, revision })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client() -> Option<ClientId> {
        ClientId::parse("a").ok()
    }

    #[test]
    fn a_list_takes_its_own_cursors_alone() {
        let (plain, of_a) =
            (LocksFilter::default(), LocksFilter { client: client(), ..LocksFilter::default() });
        assert!(plain.clone().go_on("npay/1").is_some() && of_a.clone().go_on("psg7").is_some());
        for text in ["", "n", "pay/1", "psg7", "xa", "é", "n\0"] {
            assert!(plain.clone().go_on(text).is_none(), "{text}");
        }
        for text in ["npay/1", "p", "pxx7", "psg07", "sg7"] {
            assert!(of_a.clone().go_on(text).is_none(), "{text}");
        }
        let id = LeaseId(7).to_string();
        let (plain, of_a) =
            (LeasesFilter::default(), LeasesFilter { client: client(), ..LeasesFilter::default() });
        assert!(plain.clone().go_on(&id).is_some() && of_a.clone().go_on("pst7").is_some());
        assert!(plain.go_on("pst7").is_none() && of_a.clone().go_on("pmg7").is_none());
        assert!(of_a.go_on(&id[1..]).is_none());
    }

    #[test]
    fn an_owner_is_read_back_whatever_its_names_look_like() {
        for (principal, label) in [("a", "b"), ("3.a", "1.é"), ("é", "."), ("12", "3")] {
            let owner = Owner {
                principal: Principal::parse(principal).expect("legal principal"),
                client: ClientId::parse(label).expect("legal label"),
            };
            assert_eq!(read_owner(&write_owner(&owner)), Some(owner));
        }
        for text in ["", ".", "1.a", "01.ab", "1.éb", "3.éb", "9.ab", "-1.ab", "+1.ab", "1"] {
            assert_eq!(read_owner(text), None, "{text}");
        }
        let other = ClientsFilter { client: client(), ..ClientsFilter::default() };
        assert!(other.go_on("1.pb").is_none(), "the cursor of another list");
    }
}
