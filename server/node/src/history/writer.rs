//! The thread that moves records into the file.
//!
//! What a batch costs is the number of rows and of pages that it touches, so each index is filled
//! in its own order: records that are neighbours in an index then share the copy of a page.

use super::file::HistoryFile;
use super::generation::Generation;
use super::intake::{damaged, drop_outrun};
use super::journal::BLOCK;
use super::pending::{Job, Pending};
use super::tables::{self, Filling, Key, Shelf, client_key, resource_key};
use super::{Audited, FILE, trim};
use crate::change::Change;
use crate::codec;
use crate::fatal::{Fatal, Sentinel};
use leasehold_core::command::Mode;
use redb::{ReadableTable, WriteTransaction};
use std::sync::Arc;

pub(super) struct Writer {
    file: Arc<HistoryFile>,
    pending: Arc<Pending>,
    fatal: Fatal,
    scratch: Vec<u8>,
}

impl Writer {
    pub(super) fn new(file: Arc<HistoryFile>, pending: Arc<Pending>, fatal: Fatal) -> Self {
        Self { file, pending, fatal, scratch: Vec::new() }
    }

    pub(super) fn run(mut self) {
        let sentinel = Sentinel { fatal: self.fatal.clone(), file: FILE };
        loop {
            let job = self.pending.next();
            if let Err(cause) = self.write(&job) {
                self.pending.fail(&self.file.broken(cause));
                break;
            }
            self.pending.done(&job);
            if job.last {
                break;
            }
        }
        drop(sentinel);
    }

    fn write(&mut self, job: &Job) -> Result<(), redb::Error> {
        let (file, scratch) = (&self.file, &mut self.scratch);
        file.transact(|txn, books| {
            books.layout.applied = books.layout.applied.max(job.applied);
            {
                let mut filling = Filling::open(txn, Shelf::Kept, books.layout.current)?;
                insert_records(&mut filling, &job.generation, scratch)?;
                insert_indexes(&mut filling, &job.generation)?;
            }
            let changes = job.changes.iter().flat_map(|batch| batch.iter());
            append_changes(txn, changes, scratch)?;
            insert_audits(txn, &job.audits, scratch)?;
            drop_outrun(txn, books)?;
            trim::trim(txn, &mut books.layout, job.retention)?;
            trim::trim_changes(txn, file.keep_changes)?;
            trim::trim_audits(txn, file.keep_audits)
        })
    }
}

pub(super) fn insert_records(
    filling: &mut Filling<'_>,
    generation: &Generation,
    scratch: &mut Vec<u8>,
) -> Result<(), redb::Error> {
    let mut records: Vec<_> = generation.records().iter().collect();
    // Nearly sorted already: tokens are given out in order, and most locks are held for about as
    // long as each other.
    records.sort_by_key(|record| record.grant.token);
    for record in records {
        scratch.clear();
        codec::encode_record(record, scratch);
        filling.records.insert(record.grant.token.0, scratch.as_slice())?;
    }
    Ok(())
}

pub(super) fn insert_indexes(
    filling: &mut Filling<'_>,
    generation: &Generation,
) -> Result<(), redb::Error> {
    let records = generation.records();
    for (key, at) in sorted(generation, |at| resource_key(&records[at].grant.resource)) {
        filling.by_resource.insert(key, records[at].grant.mode == Mode::Exclusive)?;
    }
    for (key, _) in sorted(generation, |at| client_key(&records[at].grant.owner.client)) {
        filling.by_client.insert(key, ())?;
    }
    for (key, _) in sorted(generation, |at| records[at].ended_at_ms) {
        filling.by_time.insert(key, ())?;
    }
    Ok(())
}

/// Adds the changes that are not there yet: a peer may have sent what the log brings, too.
pub(super) fn append_changes<'a>(
    txn: &WriteTransaction,
    changes: impl Iterator<Item = &'a Change>,
    scratch: &mut Vec<u8>,
) -> Result<(), redb::Error> {
    let mut table = txn.open_table(tables::CHANGES)?;
    let newest = newest_change(&table)?;
    let new: Vec<_> = changes.filter(|change| change.revision > newest).cloned().collect();
    // A snapshot that took the place of entries may leave a hole in the numbers.
    for run in new.chunk_by(|a, b| a.revision.checked_add(1) == Some(b.revision)) {
        for block in run.chunks(BLOCK) {
            scratch.clear();
            codec::encode_changes(block, scratch);
            table.insert(block[0].revision, scratch.as_slice())?;
        }
    }
    Ok(())
}

/// The number of the newest change that is there; 0 if none is.
pub(super) fn newest_change(
    table: &impl ReadableTable<u64, &'static [u8]>,
) -> Result<u64, redb::Error> {
    let Some((first, block)) = table.last()? else { return Ok(0) };
    let block = codec::decode_changes(first.value(), block.value()).map_err(damaged)?;
    Ok(block.last().map_or(first.value(), |change| change.revision))
}

pub(super) fn insert_audits(
    txn: &WriteTransaction,
    audits: &[Audited],
    scratch: &mut Vec<u8>,
) -> Result<(), redb::Error> {
    let mut table = txn.open_table(tables::AUDIT)?;
    for audited in audits {
        scratch.clear();
        codec::encode_audit(audited.at_ms, &audited.record, scratch);
        table.insert(audited.revision, scratch.as_slice())?;
    }
    Ok(())
}

/// Key and position of each record, in the order of an index.
fn sorted(generation: &Generation, key: impl Fn(usize) -> u64) -> Vec<(Key, usize)> {
    let records = generation.records().iter().enumerate();
    let mut rows: Vec<_> = records.map(|(at, r)| ((key(at), r.grant.token.0), at)).collect();
    rows.sort_unstable();
    rows
}
