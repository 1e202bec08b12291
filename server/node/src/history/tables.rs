//! The layout of `history.redb`: partitions, each with a table of records and three indexes.
//!
//! Records go into the newest partition in the order in which grants ended. When it is full
//! another one begins; to forget is to delete the oldest partition whole. So a batch works on
//! small trees, and nothing is ever removed row by row.
//!
//! What comes from a peer goes into partitions of their own, whose names begin with `incoming.`:
//! nobody reads them until a snapshot makes them the newest ones, which is a change of names.

use leasehold_core::{ClientId, ResourceName};
use redb::{
    ReadOnlyTable, ReadTransaction, ReadableDatabase, ReadableTable, Table, TableDefinition,
    TableError, Value, WriteTransaction,
};
use std::ops::RangeInclusive;

/// Numbers by name; see [`Layout`].
const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
const APPLIED: &str = "applied";
const FIRST: &str = "first";
const CURRENT: &str = "current";
const BEFORE_MS: &str = "before_ms";
const DROPPED_MS: &str = "dropped_ms";
const STAGED: &str = "incoming";
const STAGED_FROM_MS: &str = "incoming_from_ms";
const STAGED_DROPPED_MS: &str = "incoming_dropped_ms";
const STAGED_BEFORE_MS: &str = "incoming_before_ms";

/// Changes by the number of the first, [`super::journal::BLOCK`] at most. Values: see
/// `codec::change`.
pub(super) const CHANGES: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("changes");

/// Deeds of operators by the number of the change. Values: see `codec::administer`.
pub(super) const AUDIT: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("audit");

/// Two numbers, the second a token.
pub(super) type Key = (u64, u64);

/// What the file says about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Layout {
    /// The newest log entry whose ended grants are all in this file.
    pub(super) applied: u64,
    /// The oldest partition.
    pub(super) first: u64,
    /// The partition that grows.
    pub(super) current: u64,
    /// What ended before this instant is forgotten, even where it is still there.
    pub(super) before_ms: u64,
    /// When the last of those ended that were dropped, or may have been lost;
    /// [`super::UNTIL_IT_BEGINS`] while nobody can say when that is.
    pub(super) dropped_ms: u64,
    /// What came from a peer and counts only with its snapshot.
    pub(super) staged: Staged,
}

/// Partitions that nobody reads yet. They hold what ended at `from_ms` or later, in the order in
/// which it ended, up to the last row that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Staged {
    /// How many there are, numbered from 0.
    pub(super) count: u64,
    pub(super) from_ms: u64,
    /// What ended up to this instant the peer had dropped before it could be sent.
    pub(super) dropped_ms: u64,
    /// What ended before this instant the peer had forgotten.
    pub(super) before_ms: u64,
}

/// Where a partition is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shelf {
    /// Among those that are read.
    Kept,
    /// Among those that came from a peer.
    Staged,
}

/// The tables of one partition, for writing.
pub(super) struct Filling<'t> {
    /// By token. Values: see `codec::record`.
    pub(super) records: Table<'t, u64, &'static [u8]>,
    /// Hash of the resource, token; the value says whether the grant was exclusive.
    ///
    /// A hash and not the name: rows of 17 bytes instead of up to 520, and whoever finds a row
    /// reads the record anyway and compares the name.
    pub(super) by_resource: Table<'t, Key, bool>,
    /// Hash of the client's label, token.
    pub(super) by_client: Table<'t, Key, ()>,
    /// When it ended, token.
    pub(super) by_time: Table<'t, Key, ()>,
}

/// The tables of one partition as they were at one commit.
pub(super) struct Partition {
    pub(super) records: ReadOnlyTable<u64, &'static [u8]>,
    pub(super) by_resource: ReadOnlyTable<Key, bool>,
    pub(super) by_client: ReadOnlyTable<Key, ()>,
    pub(super) by_time: ReadOnlyTable<Key, ()>,
    /// No other tokens are in it.
    pub(super) tokens: RangeInclusive<u64>,
}

/// The file at one commit: partitions, the newest first, and what came after they were invented.
pub(super) struct View {
    pub(super) partitions: Vec<Partition>,
    pub(super) changes: Option<ReadOnlyTable<u64, &'static [u8]>>,
    pub(super) audit: Option<ReadOnlyTable<u64, &'static [u8]>>,
    pub(super) dropped_ms: u64,
    pub(super) before_ms: u64,
}

/// The names of a partition's tables.
struct Names {
    records: String,
    by_resource: String,
    by_client: String,
    by_time: String,
}

impl Names {
    fn new(shelf: Shelf, partition: u64) -> Self {
        let prefix = match shelf {
            Shelf::Kept => "",
            Shelf::Staged => "incoming.",
        };
        let name = |table: &str| format!("{prefix}{table}.{partition}");
        Self {
            records: name("records"),
            by_resource: name("by_resource"),
            by_client: name("by_client"),
            by_time: name("by_time"),
        }
    }
}

fn table<K: redb::Key + 'static, V: Value + 'static>(name: &str) -> TableDefinition<'_, K, V> {
    TableDefinition::new(name)
}

impl<'t> Filling<'t> {
    pub(super) fn open(
        txn: &'t WriteTransaction,
        shelf: Shelf,
        partition: u64,
    ) -> Result<Self, TableError> {
        let names = Names::new(shelf, partition);
        Ok(Self {
            records: txn.open_table(table(&names.records))?,
            by_resource: txn.open_table(table(&names.by_resource))?,
            by_client: txn.open_table(table(&names.by_client))?,
            by_time: txn.open_table(table(&names.by_time))?,
        })
    }
}

/// Removes a partition.
pub(super) fn delete(
    txn: &WriteTransaction,
    shelf: Shelf,
    partition: u64,
) -> Result<(), TableError> {
    let names = Names::new(shelf, partition);
    txn.delete_table(table::<u64, &[u8]>(&names.records))?;
    txn.delete_table(table::<Key, bool>(&names.by_resource))?;
    txn.delete_table(table::<Key, ()>(&names.by_client))?;
    txn.delete_table(table::<Key, ()>(&names.by_time))?;
    Ok(())
}

/// A staged partition becomes one of those that are read.
pub(super) fn unveil(txn: &WriteTransaction, staged: u64, kept: u64) -> Result<(), TableError> {
    let (from, to) = (Names::new(Shelf::Staged, staged), Names::new(Shelf::Kept, kept));
    txn.rename_table(table::<u64, &[u8]>(&from.records), table::<u64, &[u8]>(&to.records))?;
    txn.rename_table(table::<Key, bool>(&from.by_resource), table::<Key, bool>(&to.by_resource))?;
    txn.rename_table(table::<Key, ()>(&from.by_client), table::<Key, ()>(&to.by_client))?;
    txn.rename_table(table::<Key, ()>(&from.by_time), table::<Key, ()>(&to.by_time))?;
    Ok(())
}

impl Partition {
    fn open(txn: &ReadTransaction, partition: u64) -> Result<Option<Self>, redb::Error> {
        let names = Names::new(Shelf::Kept, partition);
        let records = match txn.open_table(table::<u64, &[u8]>(&names.records)) {
            Err(TableError::TableDoesNotExist(_)) => return Ok(None),
            records => records?,
        };
        let token = |end: Option<(redb::AccessGuard<'_, u64>, _)>| end.map(|(key, _)| key.value());
        let (first, last) = (token(records.first()?), token(records.last()?));
        let (Some(first), Some(last)) = (first, last) else { return Ok(None) };
        Ok(Some(Self {
            records,
            by_resource: txn.open_table(table(&names.by_resource))?,
            by_client: txn.open_table(table(&names.by_client))?,
            by_time: txn.open_table(table(&names.by_time))?,
            tokens: first..=last,
        }))
    }
}

impl View {
    pub(super) fn open(db: &impl ReadableDatabase) -> Result<Self, redb::Error> {
        let txn = db.begin_read()?;
        let layout = layout(&txn.open_table(META)?)?;
        let partitions = (layout.first..=layout.current).rev();
        let partitions = partitions.map(|n| Partition::open(&txn, n)).filter_map(Result::transpose);
        Ok(Self {
            partitions: partitions.collect::<Result<_, _>>()?,
            changes: optional(&txn, CHANGES)?,
            audit: optional(&txn, AUDIT)?,
            dropped_ms: layout.dropped_ms,
            before_ms: layout.before_ms,
        })
    }
}

fn optional(
    txn: &ReadTransaction,
    table: TableDefinition<'_, u64, &'static [u8]>,
) -> Result<Option<ReadOnlyTable<u64, &'static [u8]>>, redb::Error> {
    match txn.open_table(table) {
        Ok(table) => Ok(Some(table)),
        Err(TableError::TableDoesNotExist(_)) => Ok(None),
        Err(cause) => Err(cause.into()),
    }
}

fn layout(meta: &impl ReadableTable<&'static str, u64>) -> Result<Layout, redb::Error> {
    let get =
        |name| -> Result<u64, redb::Error> { Ok(meta.get(name)?.map_or(0, |value| value.value())) };
    Ok(Layout {
        applied: get(APPLIED)?,
        first: get(FIRST)?,
        current: get(CURRENT)?,
        before_ms: get(BEFORE_MS)?,
        dropped_ms: get(DROPPED_MS)?,
        staged: Staged {
            count: get(STAGED)?,
            from_ms: get(STAGED_FROM_MS)?,
            dropped_ms: get(STAGED_DROPPED_MS)?,
            before_ms: get(STAGED_BEFORE_MS)?,
        },
    })
}

pub(super) fn write_layout(txn: &WriteTransaction, layout: Layout) -> Result<(), redb::Error> {
    let mut meta = txn.open_table(META)?;
    meta.insert(APPLIED, layout.applied)?;
    meta.insert(FIRST, layout.first)?;
    meta.insert(CURRENT, layout.current)?;
    meta.insert(BEFORE_MS, layout.before_ms)?;
    meta.insert(DROPPED_MS, layout.dropped_ms)?;
    meta.insert(STAGED, layout.staged.count)?;
    meta.insert(STAGED_FROM_MS, layout.staged.from_ms)?;
    meta.insert(STAGED_DROPPED_MS, layout.staged.dropped_ms)?;
    meta.insert(STAGED_BEFORE_MS, layout.staged.before_ms)?;
    Ok(())
}

pub(super) fn read_layout(db: &impl ReadableDatabase) -> Result<Layout, redb::Error> {
    layout(&db.begin_read()?.open_table(META)?)
}

/// Makes the table that is there from the beginning.
pub(crate) fn create(db: &redb::Database) -> Result<(), redb::Error> {
    let txn = db.begin_write()?;
    txn.open_table(META)?;
    Ok(txn.commit()?)
}

/// Whether all tables are there and begin and end with readable rows; answers the log entry up
/// to which the file is complete.
pub(crate) fn check(db: &impl ReadableDatabase) -> Result<u64, redb::Error> {
    View::open(db)?;
    Ok(read_layout(db)?.applied)
}

pub(super) fn resource_key(resource: &ResourceName) -> u64 {
    hash(resource.as_str())
}

pub(super) fn client_key(client: &ClientId) -> u64 {
    hash(client.as_str())
}

/// Stored, so it can never change: FNV-1a, its weak high bits stirred at the end. Two names with
/// one hash cost a reader some comparisons, no more.
///
/// Source: Fowler, Noll and Vo 1991; the last steps after Appleby's MurmurHash3.
fn hash(text: &str) -> u64 {
    let mut hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}
