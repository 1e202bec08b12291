//! `state.redb`: two slots for snapshots, and one row that says which of them is valid.

use super::FILE;
use super::data::{SnapshotData, SnapshotError, Totals};
use crate::codec::{self, DecodeError, SlotHead};
use crate::fatal::{Fatal, StorageFault};
use crate::types::{LogId, SnapshotMeta};
use leasehold_core::LockTable;
use parking_lot::Mutex;
use redb::{
    Database, Durability, ReadOnlyTable, ReadableDatabase, TableDefinition, WriteTransaction,
};
use std::sync::Arc;
use std::time::Duration;

/// Chunks by number, for each of the slots.
const SLOTS: [TableDefinition<'_, u32, &[u8]>; 2] =
    [TableDefinition::new("slot0"), TableDefinition::new("slot1")];
const META: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");
const ACTIVE: &str = "active";

/// Chunks of one transaction, about 4 MiB.
const PIECE_CHUNKS: usize = 16;
/// The longest pause after a transaction; see [`SlotStore::write`].
const PAUSE_MAX: Duration = Duration::from_millis(50);

/// Why a state file cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StateFileError {
    #[error("it could not be read")]
    Read(#[source] Box<redb::Error>),
    #[error("the head of its snapshot is not readable")]
    Head(#[source] DecodeError),
    #[error("its snapshot names slot {0}, and there are two")]
    NoSuchSlot(u8),
    #[error("its snapshot is damaged")]
    Snapshot(#[source] SnapshotError),
}

impl<E: Into<redb::Error>> From<E> for StateFileError {
    fn from(cause: E) -> Self {
        Self::Read(Box::new(cause.into()))
    }
}

/// Makes the tables of a new file.
pub(crate) fn create(db: &Database) -> Result<(), redb::Error> {
    let txn = db.begin_write()?;
    for slot in SLOTS {
        txn.open_table(slot)?;
    }
    txn.open_table(META)?;
    Ok(txn.commit()?)
}

/// The head of the valid snapshot.
pub(crate) fn head(db: &impl ReadableDatabase) -> Result<Option<SlotHead>, StateFileError> {
    let meta = db.begin_read()?.open_table(META)?;
    let Some(bytes) = meta.get(ACTIVE)? else { return Ok(None) };
    let head = codec::decode_slot(bytes.value()).map_err(StateFileError::Head)?;
    if usize::from(head.slot) >= SLOTS.len() {
        return Err(StateFileError::NoSuchSlot(head.slot));
    }
    Ok(Some(head))
}

/// The valid snapshot of a node that knows commands up to a version; the version that it takes if
/// that is a higher one.
pub(crate) fn load_known(
    db: &impl ReadableDatabase,
    knows: u16,
) -> Result<Result<Option<(SlotHead, LockTable)>, u16>, StateFileError> {
    match head(db)? {
        Some(head) if head.level > knows => Ok(Err(head.level)),
        _ => load(db).map(Ok),
    }
}

/// Reads and checks the valid snapshot, all of it.
pub(crate) fn load(
    db: &impl ReadableDatabase,
) -> Result<Option<(SlotHead, LockTable)>, StateFileError> {
    let Some(head) = head(db)? else { return Ok(None) };
    let table = data(db, &head)?.table().map_err(StateFileError::Snapshot)?;
    Ok(Some((head, table)))
}

fn data(db: &impl ReadableDatabase, head: &SlotHead) -> Result<SnapshotData, redb::Error> {
    let chunks = db.begin_read()?.open_table(SLOTS[usize::from(head.slot) % SLOTS.len()])?;
    Ok(SnapshotData::in_slot(SlotChunks(chunks), totals(head)))
}

fn totals(head: &SlotHead) -> Totals {
    let SlotHead { chunks, rows, bytes, digest, level, .. } = *head;
    Totals { chunks, rows, bytes, digest, level }
}

/// The chunks of one slot as they were when this was made.
pub(super) struct SlotChunks(ReadOnlyTable<u32, &'static [u8]>);

impl SlotChunks {
    pub(super) fn get(&self, number: u32) -> Result<Option<Vec<u8>>, StorageFault> {
        let found = self.0.get(number);
        let found = found.map_err(|cause| StorageFault::new(FILE, "read", cause))?;
        Ok(found.map(|bytes| bytes.value().to_vec()))
    }
}

impl std::fmt::Debug for SlotChunks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SlotChunks")
    }
}

/// The file, its valid snapshot, and the right to write the next one.
#[derive(Debug)]
pub(crate) struct SlotStore {
    db: Arc<Database>,
    active: Mutex<Option<SlotHead>>,
    /// Held for as long as a slot is being written.
    writing: Mutex<()>,
    fatal: Fatal,
}

impl SlotStore {
    pub(crate) fn new(db: Database, active: Option<SlotHead>, fatal: Fatal) -> Self {
        Self { db: Arc::new(db), active: Mutex::new(active), writing: Mutex::new(()), fatal }
    }

    pub(crate) fn active(&self) -> Option<SlotHead> {
        self.active.lock().clone()
    }

    /// The valid snapshot, if there is one.
    pub(super) fn current(&self) -> Result<Option<(SnapshotMeta, SnapshotData)>, StorageFault> {
        let Some(head) = self.active() else { return Ok(None) };
        let data = data(&*self.db, &head).map_err(|cause| self.broken("read", cause))?;
        Ok(Some((head.meta, data)))
    }

    /// Writes chunks into the slot that is not valid, and makes it the valid one. Does nothing if
    /// a snapshot as new is there already.
    ///
    /// `settle` runs when all chunks are durable and before the slot becomes valid. Between its
    /// transactions this pauses for as long as they take: the log shares the disk, and a snapshot
    /// has time.
    pub(super) fn write(
        &self,
        meta: SnapshotMeta,
        mut chunks: impl FnMut() -> Result<Option<Vec<u8>>, SnapshotError>,
        totals: impl FnOnce() -> Totals,
        settle: impl FnOnce() -> Result<(), StorageFault>,
    ) -> Result<(), StorageFault> {
        let _writing = self.writing.lock();
        let active = self.active();
        if active.as_ref().is_some_and(|head| is_as_new(head, meta.last_log_id)) {
            return Ok(());
        }
        let slot = active.map_or(0, |head| 1 - head.slot.min(1));
        let written = self.write_chunks(slot, &mut chunks)?;
        settle()?;
        let Totals { rows, bytes, digest, level, .. } = totals();
        self.flip(SlotHead { slot, meta, chunks: written, rows, bytes, digest, level })
    }

    fn write_chunks(
        &self,
        slot: u8,
        chunks: &mut impl FnMut() -> Result<Option<Vec<u8>>, SnapshotError>,
    ) -> Result<u32, StorageFault> {
        let definition = SLOTS[usize::from(slot) % SLOTS.len()];
        self.transact(|txn| txn.delete_table(definition).map(|_| ()).map_err(Into::into))?;
        let mut number = 0;
        loop {
            let started = crate::runtime::now();
            let piece = take_piece(chunks)
                .map_err(|cause| StorageFault::new(FILE, "take over a snapshot", cause))?;
            if piece.is_empty() && number > 0 {
                return Ok(number);
            }
            let full = piece.len() == PIECE_CHUNKS;
            self.transact(|txn| insert(txn, definition, &piece, &mut number))?;
            if !full {
                return Ok(number);
            }
            std::thread::sleep(crate::runtime::since(started).min(PAUSE_MAX));
        }
    }

    fn flip(&self, head: SlotHead) -> Result<(), StorageFault> {
        let bytes = codec::encode_slot(&head);
        let flipped = self.transact(|txn| {
            // A file this large takes long to repair; this commit is rare enough to pay for not
            // having to.
            txn.set_quick_repair(true);
            txn.open_table(META)?.insert(ACTIVE, bytes.as_slice())?;
            Ok(())
        });
        flipped.inspect(|()| *self.active.lock() = Some(head))
    }

    fn transact(
        &self,
        change: impl FnOnce(&mut WriteTransaction) -> Result<(), redb::Error>,
    ) -> Result<(), StorageFault> {
        let run = || -> Result<(), redb::Error> {
            let mut txn = self.db.begin_write()?;
            txn.set_durability(Durability::Immediate)?;
            change(&mut txn)?;
            Ok(txn.commit()?)
        };
        run().map_err(|cause| self.broken("write and sync", cause))
    }

    fn broken(&self, doing: &'static str, cause: redb::Error) -> StorageFault {
        let fault = StorageFault::new(FILE, doing, cause);
        self.fatal.report(&fault);
        fault
    }
}

fn is_as_new(head: &SlotHead, last: Option<LogId>) -> bool {
    head.meta.last_log_id >= last
}

fn take_piece(
    chunks: &mut impl FnMut() -> Result<Option<Vec<u8>>, SnapshotError>,
) -> Result<Vec<Vec<u8>>, SnapshotError> {
    let mut piece = Vec::new();
    while piece.len() < PIECE_CHUNKS
        && let Some(chunk) = chunks()?
    {
        piece.push(chunk);
    }
    Ok(piece)
}

fn insert(
    txn: &WriteTransaction,
    slot: TableDefinition<'_, u32, &'static [u8]>,
    piece: &[Vec<u8>],
    number: &mut u32,
) -> Result<(), redb::Error> {
    let mut table = txn.open_table(slot)?;
    for chunk in piece {
        table.insert(*number, chunk.as_slice())?;
        *number += 1;
    }
    Ok(())
}
