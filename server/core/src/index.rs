//! Who has what, and where somebody waits: so that a reader's page costs what it shows, however
//! much there is beside it.
//!
//! Nothing of this is in a snapshot. An import builds it anew from the rows, and
//! [`sound`](crate::LockTable::sound) compares it with everything else.

use crate::cow_map::CowMap;
use crate::ids::{LeaseId, TicketId, Token};
use crate::name::{ClientId, Owner, ResourceName};
use crate::state::Item;
use std::cmp::Ordering;
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

/// The indexes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Index {
    /// Every ticket and grant, under its client's label.
    things: CowMap<Labelled<Piece>, ()>,
    /// Leases that can hold many things. Those for one thing are found through it.
    leases: CowMap<Labelled<LeaseId>, ()>,
    /// Owners of at least one lease. Who is only remembered for ended requests is not here: there
    /// may be a million of them.
    pub(crate) owners: CowMap<ByLabel, ()>,
    /// Resources with a line.
    pub(crate) contended: CowMap<ResourceName, ()>,
}

/// A ticket or grant as the lists of a client are sorted: what stands on a lease of its own before
/// what stands on one for many, tickets before grants, and then by number. So what becomes a grant
/// while somebody turns the pages is seen twice at worst, and never missed.
///
/// Eight bytes, because there is one for every lock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Piece(u64);

impl Piece {
    const ON_MANY: u64 = 1 << 63;
    const GRANT: u64 = 1 << 62;
    const NUMBER: u64 = Self::GRANT - 1;

    pub(crate) fn new(item: Item, single: bool) -> Self {
        let of_lease = if single { 0 } else { Self::ON_MANY };
        Self(match item {
            Item::Ticket(TicketId(id)) => of_lease | (id & Self::NUMBER),
            Item::Grant(Token(token)) => of_lease | Self::GRANT | (token & Self::NUMBER),
        })
    }

    pub(crate) fn item(self) -> Item {
        let number = self.0 & Self::NUMBER;
        if self.0 & Self::GRANT == 0 {
            Item::Ticket(TicketId(number))
        } else {
            Item::Grant(Token(number))
        }
    }

    /// Whether it stands on a lease of its own.
    #[must_use]
    pub fn single(self) -> bool {
        self.0 & Self::ON_MANY == 0
    }

    /// Reads what [`fmt::Display`] writes, and nothing else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (kind, digits) = text.split_at_checked(2)?;
        let bits = match kind {
            "st" => 0,
            "sg" => Self::GRANT,
            "mt" => Self::ON_MANY,
            "mg" => Self::ON_MANY | Self::GRANT,
            _ => return None,
        };
        let number = digits.parse::<u64>().ok().filter(|number| *number <= Self::NUMBER)?;
        let piece = Self(bits | number);
        (piece.to_string() == text).then_some(piece)
    }
}

impl fmt::Display for Piece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lease = if self.single() { 's' } else { 'm' };
        match self.item() {
            Item::Ticket(id) => write!(f, "{lease}t{id}"),
            Item::Grant(token) => write!(f, "{lease}g{token}"),
        }
    }
}

impl fmt::Debug for Piece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Sorts by the label of its owner and then by itself. The principal plays no part: numbers and
/// ids are unique without it, and a cursor need not name it.
#[derive(Debug, Clone)]
struct Labelled<T> {
    owner: Arc<Owner>,
    what: T,
}

impl<T: Ord> Ord for Labelled<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        // Nearly always the same allocation, so that its text is not looked at.
        let label = if Arc::ptr_eq(&self.owner, &other.owner) {
            Ordering::Equal
        } else {
            self.owner.client.cmp(&other.owner.client)
        };
        label.then_with(|| self.what.cmp(&other.what))
    }
}

impl<T: Ord> PartialOrd for Labelled<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T: Ord> PartialEq for Labelled<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<T: Ord> Eq for Labelled<T> {}

/// An owner, sorted by its label and then by its principal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ByLabel(pub(crate) Arc<Owner>);

impl Ord for ByLabel {
    fn cmp(&self, other: &Self) -> Ordering {
        if Arc::ptr_eq(&self.0, &other.0) {
            return Ordering::Equal;
        }
        let (one, other) = (&*self.0, &*other.0);
        one.client.cmp(&other.client).then_with(|| one.principal.cmp(&other.principal))
    }
}

impl PartialOrd for ByLabel {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Index {
    pub(crate) fn put(&mut self, owner: &Arc<Owner>, item: Item, single: bool) {
        let what = Piece::new(item, single);
        self.things.insert(Labelled { owner: owner.clone(), what }, ());
    }

    pub(crate) fn take(&mut self, owner: &Arc<Owner>, item: Item, single: bool) {
        let what = Piece::new(item, single);
        self.things.remove(&Labelled { owner: owner.clone(), what });
    }

    pub(crate) fn put_lease(&mut self, owner: &Arc<Owner>, lease: LeaseId) {
        self.leases.insert(Labelled { owner: owner.clone(), what: lease }, ());
    }

    pub(crate) fn take_lease(&mut self, owner: &Arc<Owner>, lease: LeaseId) {
        self.leases.remove(&Labelled { owner: owner.clone(), what: lease });
    }

    /// The tickets and grants of a client after `after`.
    pub(crate) fn things_of(
        &self,
        client: &ClientId,
        after: Option<Piece>,
    ) -> impl Iterator<Item = Piece> + use<'_> {
        of_label(&self.things, client, after, Piece(0))
    }

    /// The same downwards from `before`.
    pub(crate) fn things_of_downwards(
        &self,
        client: &ClientId,
        before: Option<Piece>,
    ) -> impl Iterator<Item = Piece> {
        let what = before.unwrap_or(Piece(u64::MAX));
        let end = Labelled { owner: Arc::new(Owner::first_of(client)), what };
        let below = self.things.downwards_from(Some(end)).map(|(thing, ())| thing);
        let client = client.clone();
        below.take_while(move |thing| thing.owner.client == client).map(|thing| thing.what)
    }

    /// The leases of a client that can hold many things, after `after`.
    pub(crate) fn leases_of(
        &self,
        client: &ClientId,
        after: Option<LeaseId>,
    ) -> impl Iterator<Item = LeaseId> + use<'_> {
        of_label(&self.leases, client, after, LeaseId(0))
    }

    /// Owners after `after`, or from the first with this label on.
    pub(crate) fn owners_from(
        &self,
        client: Option<&ClientId>,
        after: Option<&Owner>,
    ) -> impl Iterator<Item = &Arc<Owner>> {
        let first = client.map(|client| ByLabel(Arc::new(Owner::first_of(client))));
        let after = after.map(|after| ByLabel(Arc::new(after.clone())));
        let from = match (&first, &after) {
            (Some(first), Some(after)) if after < first => Bound::Included(first),
            (_, Some(after)) => Bound::Excluded(after),
            (Some(first), None) => Bound::Included(first),
            (None, None) => Bound::Unbounded,
        };
        let label = client.cloned();
        let owners = self.owners.range_from(from).map(|(owner, ())| &owner.0);
        owners.take_while(move |owner| label.as_ref().is_none_or(|label| owner.client == *label))
    }

    /// How much there is in it: things, leases for many, owners, contended resources.
    pub(crate) fn lens(&self) -> [usize; 4] {
        [self.things.len(), self.leases.len(), self.owners.len(), self.contended.len()]
    }

    pub(crate) fn has(&self, owner: &Arc<Owner>, item: Item, single: bool) -> bool {
        let what = Piece::new(item, single);
        let key = Labelled { owner: owner.clone(), what };
        // The label alone decides where it stands, so whose it is has to be looked at.
        self.things.get_key(&key).is_some_and(|found| found.owner == *owner)
    }

    pub(crate) fn has_lease(&self, owner: &Arc<Owner>, lease: LeaseId) -> bool {
        let key = Labelled { owner: owner.clone(), what: lease };
        self.leases.get_key(&key).is_some_and(|found| found.owner == *owner)
    }
}

fn of_label<'a, T: Ord + Copy>(
    map: &'a CowMap<Labelled<T>, ()>,
    client: &ClientId,
    after: Option<T>,
    first: T,
) -> impl Iterator<Item = T> + use<'a, T> {
    let probe = Labelled { owner: Arc::new(Owner::first_of(client)), what: after.unwrap_or(first) };
    let from = if after.is_some() { Bound::Excluded(&probe) } else { Bound::Included(&probe) };
    let label = client.clone();
    map.range_from(from)
        .take_while(move |(key, ())| key.owner.client == label)
        .map(|(key, ())| key.what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_is_read_back_from_its_text_alone() {
        for item in [Item::Ticket(TicketId(1)), Item::Grant(Token(Token::LIMIT - 1))] {
            for single in [true, false] {
                let piece = Piece::new(item, single);
                assert_eq!(Piece::parse(&piece.to_string()), Some(piece));
                assert_eq!((piece.item(), piece.single()), (item, single));
            }
        }
        let beyond = format!("sg{}", 1u64 << 62);
        for text in ["", "s", "sg", "sg-1", "sg+1", "sg01", "xg1", "SG1", "sg1 ", "é1", &beyond] {
            assert_eq!(Piece::parse(text), None, "{text}");
        }
    }
}
