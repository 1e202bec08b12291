//! What a peer's history lacks, read in parcels for the way to it.
//!
//! A peer says how far its own history reaches ([`Reach`]) and gets everything after that, up to
//! the snapshot that it is to take over: first grants in the order in which they ended, then deeds
//! of operators, then changes. Each parcel is read from the newest commit of the file, so a slow
//! peer holds up nobody here; what was dropped between two parcels is told with the next one.
//!
//! The history goes on past the snapshot. Changes and deeds beyond it are left out by their
//! number. A grant that ended after it, in the very millisecond of its newest entry, may be among
//! those that are sent: the receiver knows from the table whether it had ended.

use super::History;
use super::read::{AnyError, unreadable};
use super::tables::{Key, Partition, View};
use crate::codec;
use crate::fatal::StorageFault;
use leasehold_core::row::Head;
use redb::Range;

/// Bytes of rows after which a parcel ends. One row alone may be larger.
const PARCEL_BYTES: usize = 192 << 10;
/// Changes in one value of a parcel: even the longest of them are no more than a parcel together.
const PIECE: usize = 32;

/// How far a history goes without a hole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Reach {
    /// Grants that ended up to here are not asked for: when the last one ended, in milliseconds,
    /// and its token.
    pub(crate) ended: (u64, u64),
    /// The newest change.
    pub(crate) revision: u64,
}

/// A part of a history, its rows as they are stored.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Parcel {
    /// Between this parcel and the one before, what ended up to this instant may be missing: it
    /// had been dropped. 0 if nothing is missing.
    pub(crate) dropped_ms: u64,
    /// What ended before this instant is forgotten where this comes from.
    pub(crate) before_ms: u64,
    /// Ended grants, in the order of when they ended and of their tokens.
    pub(crate) records: Vec<Vec<u8>>,
    /// Deeds of operators, by the number of the change.
    pub(crate) audits: Vec<(u64, Vec<u8>)>,
    /// Blocks of changes, by the number of the first.
    pub(crate) changes: Vec<(u64, Vec<u8>)>,
    /// Nothing comes after this one.
    pub(crate) last: bool,
}

/// How far a peer has been told.
#[derive(Debug, Clone, Copy)]
enum At {
    Records(Key),
    Audits(u64),
    Changes(u64),
    Done,
}

/// What is on its way to one peer. Its methods block on the disk.
#[derive(Debug)]
pub(crate) struct Outgoing {
    history: History,
    from: Reach,
    upto: Head,
    at: At,
    parcel_bytes: usize,
}

impl History {
    /// What comes after `from`, up to the snapshot with this head.
    pub(crate) fn outgoing(&self, from: Reach, upto: Head) -> Outgoing {
        let (history, at) = (self.clone(), At::Records(from.ended));
        Outgoing { history, from, upto, at, parcel_bytes: PARCEL_BYTES }
    }

    /// All that is kept, up to the state with this head.
    pub(crate) fn everything(&self, upto: Head) -> Outgoing {
        self.outgoing(Reach::default(), upto)
    }
}

impl Outgoing {
    #[cfg(test)]
    pub(crate) fn in_parcels_of(self, parcel_bytes: usize) -> Self {
        Self { parcel_bytes, ..self }
    }

    /// Whether the last parcel was taken.
    pub(crate) fn is_done(&self) -> bool {
        matches!(self.at, At::Done)
    }

    /// The next parcel. There is at least one.
    pub(crate) fn next(&mut self) -> Result<Parcel, StorageFault> {
        let view = self.history.view();
        let mut parcel = Parcel { before_ms: view.before_ms, ..Parcel::default() };
        let mut room = Room { left: self.parcel_bytes, begun: false };
        loop {
            let next = self.fill(&view, &mut parcel, &mut room).map_err(unreadable)?;
            let Some(next) = next else { break };
            self.at = next;
            if self.is_done() {
                parcel.last = true;
                break;
            }
        }
        Ok(parcel)
    }

    /// Adds rows of one kind; answers what comes next, or nothing once the parcel is full.
    fn fill(
        &mut self,
        view: &View,
        parcel: &mut Parcel,
        room: &mut Room,
    ) -> Result<Option<At>, AnyError> {
        Ok(match self.at {
            At::Records(after) => {
                if view.dropped_ms >= after.0 {
                    parcel.dropped_ms = view.dropped_ms;
                }
                match records(view, after, &self.upto, parcel, room)? {
                    Some(last) => self.pause(At::Records(last)),
                    None => Some(At::Audits(self.from.revision)),
                }
            }
            At::Audits(after) => match audits(view, after, self.upto.revision, parcel, room)? {
                Some(last) => self.pause(At::Audits(last)),
                None => Some(At::Changes(self.from.revision)),
            },
            At::Changes(after) => match changes(view, after, self.upto.revision, parcel, room)? {
                Some(last) => self.pause(At::Changes(last)),
                None => Some(At::Done),
            },
            At::Done => Some(At::Done),
        })
    }

    fn pause(&mut self, at: At) -> Option<At> {
        self.at = at;
        None
    }
}

/// Bytes that still fit.
struct Room {
    left: usize,
    begun: bool,
}

impl Room {
    fn take(&mut self, bytes: usize) -> bool {
        if self.begun && bytes > self.left {
            return false;
        }
        self.begun = true;
        self.left = self.left.saturating_sub(bytes);
        true
    }
}

/// Adds grants that ended after `after`; answers the last one that fitted, if not all did.
fn records(
    view: &View,
    mut after: Key,
    upto: &Head,
    parcel: &mut Parcel,
    room: &mut Room,
) -> Result<Option<Key>, AnyError> {
    let mut rows = Ascending::new(view, after, upto.at_ms)?;
    while let Some((partition, key)) = rows.next()? {
        // What was granted after the snapshot.
        if key.1 <= upto.last_token
            && let Some(row) = partition.records.get(key.1)?
        {
            if !room.take(row.value().len()) {
                return Ok(Some(after));
            }
            parcel.records.push(row.value().to_vec());
        }
        after = key;
    }
    Ok(None)
}

fn audits(
    view: &View,
    mut after: u64,
    upto: u64,
    parcel: &mut Parcel,
    room: &mut Room,
) -> Result<Option<u64>, AnyError> {
    let Some(rows) = view.audit.as_ref().filter(|_| after < upto) else { return Ok(None) };
    for row in rows.range(after + 1..=upto)? {
        let (key, value) = row?;
        if !room.take(value.value().len()) {
            return Ok(Some(after));
        }
        after = key.value();
        parcel.audits.push((after, value.value().to_vec()));
    }
    Ok(None)
}

fn changes(
    view: &View,
    mut after: u64,
    upto: u64,
    parcel: &mut Parcel,
    room: &mut Room,
) -> Result<Option<u64>, AnyError> {
    let Some(blocks) = view.changes.as_ref().filter(|_| after < upto) else { return Ok(None) };
    let first = blocks.range(..=after + 1)?.next_back().transpose()?;
    let start = first.map_or(0, |(key, _)| key.value());
    for block in blocks.range(start..=upto)? {
        let (key, value) = block?;
        let mut block = codec::decode_changes(key.value(), value.value())?;
        block.retain(|change| change.revision > after && change.revision <= upto);
        for piece in block.chunks(PIECE) {
            let mut row = Vec::new();
            codec::encode_changes(piece, &mut row);
            if !room.take(row.len()) {
                return Ok(Some(after));
            }
            parcel.changes.push((piece[0].revision, row));
            after = piece.last().map_or(after, |change| change.revision);
        }
    }
    Ok(None)
}

/// When grants ended, over all partitions, the earliest first.
struct Ascending<'v> {
    sources: Vec<(&'v Partition, Range<'static, Key, ()>, Key)>,
}

impl<'v> Ascending<'v> {
    fn new(view: &'v View, after: Key, until_ms: u64) -> Result<Self, AnyError> {
        let (start, end) = ((after.0, after.1.saturating_add(1)), (until_ms, u64::MAX));
        let mut sources = Vec::new();
        for partition in view.partitions.iter().filter(|_| start <= end) {
            let mut rows = partition.by_time.range(start..=end)?;
            if let Some(head) = advance(&mut rows)? {
                sources.push((partition, rows, head));
            }
        }
        Ok(Self { sources })
    }

    fn next(&mut self) -> Result<Option<(&'v Partition, Key)>, AnyError> {
        let earliest = (0..self.sources.len()).min_by_key(|at| self.sources[*at].2);
        let Some(at) = earliest else { return Ok(None) };
        let (partition, rows, head) = &mut self.sources[at];
        let found = (*partition, *head);
        match advance(rows)? {
            Some(next) => *head = next,
            None => drop(self.sources.swap_remove(at)),
        }
        Ok(Some(found))
    }
}

fn advance(rows: &mut Range<'static, Key, ()>) -> Result<Option<Key>, AnyError> {
    let next = rows.next().transpose()?;
    Ok(next.map(|(key, _)| key.value()))
}
