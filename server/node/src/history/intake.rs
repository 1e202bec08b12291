//! What a peer sends of its history before its snapshot is taken over.
//!
//! Until the snapshot is, what comes must neither be seen as if it were complete nor be lost:
//!
//! - Ended grants go into partitions that nobody reads ([`super::tables::Staged`]). A transfer
//!   that breaks off is resumed after the last of them, also after a crash.
//! - Changes and deeds have a number of their own and are facts of the cluster, so they go where
//!   they belong. The log may bring them too: nothing is written twice under a number.
//! - With the snapshot one transaction makes the staged partitions the newest ones and says that
//!   the history goes up to its entry. Only then does the slot of the snapshot become valid.
//!
//! Of two transfers at once the later one goes on. A snapshot whose history did not come leaves a
//! hole that is told: watchers hear of a gap, and [`History::complete_since_ms`] rises.

use super::file::Books;
use super::generation::Generation;
use super::journal::Audited;
use super::outgoing::{Parcel, Reach};
use super::pending::Retention;
use super::tables::{self, Filling, Key, Shelf, Staged, client_key, resource_key};
use super::{History, trim, writer};
use crate::change::Change;
use crate::codec::{self, DecodeError};
use crate::fatal::StorageFault;
use leasehold_core::{LockTable, Token};
use redb::{ReadableTable, WriteTransaction};
use std::sync::Arc;

/// Bytes that gather before they are written: a sync a parcel would be slow.
const BATCH_BYTES: usize = 2 << 20;

/// Why a part of a history is not taken in.
#[derive(Debug, thiserror::Error)]
pub(crate) enum IntakeError {
    #[error("a row of its history cannot be read")]
    Row(#[from] DecodeError),
    #[error("its history is not in order")]
    Order,
    #[error("another transfer of the history has begun")]
    Superseded,
    #[error(transparent)]
    Storage(#[from] StorageFault),
}

/// A history that is arriving. Its methods block on the disk.
pub(crate) struct Intake {
    history: History,
    turn: u64,
    /// The log entry of the snapshot that it comes with.
    upto: u64,
    at: Reach,
    batch: Batch,
    batch_bytes: usize,
    is_whole: bool,
}

/// What is not written yet.
#[derive(Default)]
struct Batch {
    generation: Generation,
    audits: Vec<Audited>,
    changes: Vec<Change>,
    dropped_ms: u64,
    before_ms: u64,
    bytes: usize,
}

impl History {
    /// Begins to take in what this history lacks of a snapshot's at the log entry `upto`; answers
    /// how far it goes. Whoever was taking in before is turned away from here on. Blocks.
    pub(crate) fn take_in(&self, upto: u64) -> Result<(Intake, Reach), StorageFault> {
        // What this node knows by itself need not come again.
        self.flush(u64::MAX)?;
        let file = &self.core.file;
        let begun = file.transact(|txn, books| {
            books.turn += 1;
            books.whole = None;
            let layout = &mut books.layout;
            let mut from_ms = layout.before_ms.max(layout.dropped_ms);
            for partition in layout.first..=layout.current {
                let filling = Filling::open(txn, Shelf::Kept, partition)?;
                from_ms = from_ms.max(last_ended(&filling)?.map_or(0, |(ms, _)| ms));
            }
            let ended = resume(txn, &mut layout.staged, from_ms)?;
            let revision = writer::newest_change(&txn.open_table(tables::CHANGES)?)?;
            Ok((books.turn, Reach { ended, revision }))
        });
        let (turn, at) = begun.map_err(|cause| file.broken(cause))?;
        let (history, batch) = (self.clone(), Batch::default());
        let batch_bytes = BATCH_BYTES;
        Ok((Intake { history, turn, upto, at, batch, batch_bytes, is_whole: false }, at))
    }

    /// Whether the history up to the snapshot at this log entry is here.
    pub(crate) fn is_whole(&self, upto: u64) -> bool {
        let books = self.core.file.books();
        books.whole == Some(upto) || books.layout.applied >= upto
    }

    #[cfg(test)]
    pub(crate) fn staged_partitions(&self) -> u64 {
        self.core.file.books().layout.staged.count
    }

    /// Goes on from the snapshot at the log entry `upto`, which is `table`: what was taken in
    /// counts from here on, durably. Blocks.
    pub(crate) fn adopt(&self, upto: u64, table: &LockTable) -> Result<(), StorageFault> {
        self.flush(u64::MAX)?;
        let retention = self.core.pending.retention();
        let file = &self.core.file;
        let adopted = file.transact(|txn, books| {
            let layout = &mut books.layout;
            let whole = books.whole.take() == Some(upto);
            books.turn += 1;
            if whole {
                forget_known(txn, layout)?;
                forget_later(txn, layout.staged, table)?;
                unveil(txn, layout)?;
            } else if layout.applied < upto {
                let told_ms = layout.staged.dropped_ms;
                discard(txn, &mut layout.staged)?;
                layout.dropped_ms = layout.dropped_ms.max(told_ms).max(table.at_ms());
            }
            layout.applied = layout.applied.max(upto);
            let before_ms = layout.before_ms.max(retention.before_ms);
            trim::trim(txn, layout, Retention { before_ms, ..retention })?;
            Ok(before_ms)
        });
        let before_ms = adopted.map_err(|cause| file.broken(cause))?;
        self.core.pending.jump(upto, before_ms);
        Ok(())
    }
}

impl Intake {
    #[cfg(test)]
    pub(crate) fn in_batches_of(self, batch_bytes: usize) -> Self {
        Self { batch_bytes, ..self }
    }

    /// Whether the last part has come.
    pub(crate) fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Takes a part. What it says is checked before any of it is written.
    pub(crate) fn add(&mut self, parcel: Parcel) -> Result<(), IntakeError> {
        if self.is_whole {
            return Err(IntakeError::Order);
        }
        self.batch.dropped_ms = self.batch.dropped_ms.max(parcel.dropped_ms);
        self.batch.before_ms = self.batch.before_ms.max(parcel.before_ms);
        for row in &parcel.records {
            self.record(row)?;
        }
        for (revision, row) in &parcel.audits {
            let (at_ms, record) = codec::decode_audit(row)?;
            self.batch.bytes += row.len();
            self.batch.audits.push(Audited {
                revision: *revision,
                at_ms,
                record: Arc::new(record),
            });
        }
        for (first, row) in &parcel.changes {
            self.changes(*first, row)?;
        }
        if parcel.last || self.batch.bytes >= self.batch_bytes {
            self.write(parcel.last)?;
        }
        Ok(())
    }

    fn record(&mut self, row: &[u8]) -> Result<(), IntakeError> {
        let record = Arc::new(codec::decode_record(row)?);
        let key = (record.ended_at_ms, record.grant.token.0);
        if key <= self.at.ended {
            return Err(IntakeError::Order);
        }
        self.at.ended = key;
        self.batch.bytes += row.len();
        self.batch.generation.push(&record);
        Ok(())
    }

    fn changes(&mut self, first: u64, row: &[u8]) -> Result<(), IntakeError> {
        if first <= self.at.revision {
            return Err(IntakeError::Order);
        }
        let changes = codec::decode_changes(first, row)?;
        self.at.revision = changes.last().map_or(self.at.revision, |change| change.revision);
        self.batch.bytes += row.len();
        self.batch.changes.extend(changes);
        Ok(())
    }

    fn write(&mut self, last: bool) -> Result<(), IntakeError> {
        let batch = std::mem::take(&mut self.batch);
        let retention = self.history.core.pending.retention();
        let file = &self.history.core.file;
        let ours = file.transact(|txn, books| {
            if books.turn != self.turn {
                return Ok(false);
            }
            let staged = &mut books.layout.staged;
            staged.dropped_ms = staged.dropped_ms.max(batch.dropped_ms);
            staged.before_ms = staged.before_ms.max(batch.before_ms);
            stage(txn, staged, &batch.generation, retention)?;
            let mut scratch = Vec::new();
            writer::insert_audits(txn, &batch.audits, &mut scratch)?;
            writer::append_changes(txn, batch.changes.iter(), &mut scratch)?;
            trim::trim_changes(txn, file.keep_changes)?;
            trim::trim_audits(txn, file.keep_audits)?;
            if last {
                books.whole = Some(self.upto);
            }
            Ok(true)
        });
        match ours.map_err(|cause| file.broken(cause))? {
            true => self.is_whole = last,
            false => return Err(IntakeError::Superseded),
        }
        Ok(())
    }
}

/// Where to go on: after what is staged, or, if that ends before what is known by now, anew.
fn resume(txn: &WriteTransaction, staged: &mut Staged, from_ms: u64) -> Result<Key, redb::Error> {
    let end = match staged.count.checked_sub(1) {
        Some(last) => last_ended(&Filling::open(txn, Shelf::Staged, last)?)?,
        None => None,
    };
    if let Some(end) = end.filter(|(ms, _)| *ms >= from_ms) {
        return Ok(end);
    }
    discard(txn, staged)?;
    staged.from_ms = from_ms;
    Ok((from_ms, 0))
}

fn last_ended(filling: &Filling<'_>) -> Result<Option<Key>, redb::Error> {
    Ok(filling.by_time.last()?.map(|(key, _)| key.value()))
}

fn discard(txn: &WriteTransaction, staged: &mut Staged) -> Result<(), redb::Error> {
    for partition in 0..staged.count {
        tables::delete(txn, Shelf::Staged, partition)?;
    }
    *staged = Staged::default();
    Ok(())
}

fn stage(
    txn: &WriteTransaction,
    staged: &mut Staged,
    generation: &Generation,
    retention: Retention,
) -> Result<(), redb::Error> {
    if generation.records().is_empty() {
        return Ok(());
    }
    let full = match staged.count.checked_sub(1) {
        Some(last) => trim::is_full(&Filling::open(txn, Shelf::Staged, last)?, retention)?,
        None => true,
    };
    staged.count += u64::from(full);
    let mut filling = Filling::open(txn, Shelf::Staged, staged.count - 1)?;
    writer::insert_records(&mut filling, generation, &mut Vec::new())?;
    writer::insert_indexes(&mut filling, generation)
}

/// What a transfer left that broke off, and that the log has outrun since, is in the way of nobody
/// but the disk.
pub(super) fn drop_outrun(txn: &WriteTransaction, books: &mut Books) -> Result<(), redb::Error> {
    let layout = &mut books.layout;
    let Some(last) = layout.staged.count.checked_sub(1) else { return Ok(()) };
    let staged = last_ended(&Filling::open(txn, Shelf::Staged, last)?)?;
    let known = last_ended(&Filling::open(txn, Shelf::Kept, layout.current)?)?;
    if known.map(|(ms, _)| ms) > staged.map(|(ms, _)| ms) {
        discard(txn, &mut layout.staged)?;
        books.turn += 1;
        books.whole = None;
    }
    Ok(())
}

/// Takes out of what is staged what this node has by itself: what ended in the millisecond in
/// which the transfer begins, and what the log brought meanwhile.
fn forget_known(txn: &WriteTransaction, layout: &tables::Layout) -> Result<(), redb::Error> {
    let mut known = Vec::new();
    for partition in layout.first..=layout.current {
        let filling = Filling::open(txn, Shelf::Kept, partition)?;
        for row in filling.by_time.range((layout.staged.from_ms, 0)..)? {
            known.push(row?.0.value().1);
        }
    }
    for partition in 0..layout.staged.count {
        let mut filling = Filling::open(txn, Shelf::Staged, partition)?;
        known.iter().try_for_each(|token| remove(&mut filling, *token))?;
    }
    Ok(())
}

/// Takes out of what is staged what had not ended yet when the snapshot was made.
fn forget_later(
    txn: &WriteTransaction,
    staged: Staged,
    table: &LockTable,
) -> Result<(), redb::Error> {
    let at_ms = table.at_ms();
    let is_later = |(ms, token): Key| {
        ms > at_ms || token > table.last_token().0 || table.grant(Token(token)).is_some()
    };
    for partition in 0..staged.count {
        let mut filling = Filling::open(txn, Shelf::Staged, partition)?;
        let mut later = Vec::new();
        for row in filling.by_time.range((at_ms, 0)..)? {
            later.extend(Some(row?.0.value()).filter(|key| is_later(*key)));
        }
        later.into_iter().try_for_each(|(_, token)| remove(&mut filling, token))?;
    }
    Ok(())
}

fn remove(filling: &mut Filling<'_>, token: u64) -> Result<(), redb::Error> {
    let Some(row) = filling.records.remove(token)?.map(|row| row.value().to_vec()) else {
        return Ok(());
    };
    let record = codec::decode_record(&row).map_err(damaged)?;
    filling.by_resource.remove((resource_key(&record.grant.resource), token))?;
    filling.by_client.remove((client_key(&record.grant.owner.client), token))?;
    filling.by_time.remove((record.ended_at_ms, token))?;
    Ok(())
}

/// The staged partitions become the newest ones.
fn unveil(txn: &WriteTransaction, layout: &mut tables::Layout) -> Result<(), redb::Error> {
    let staged = std::mem::take(&mut layout.staged);
    for partition in 0..staged.count {
        layout.current += 1;
        tables::unveil(txn, partition, layout.current)?;
    }
    layout.dropped_ms = layout.dropped_ms.max(staged.dropped_ms);
    layout.before_ms = layout.before_ms.max(staged.before_ms);
    Ok(())
}

pub(super) fn damaged(cause: DecodeError) -> redb::Error {
    redb::Error::Corrupted(cause.to_string())
}
