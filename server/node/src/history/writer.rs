//! The thread that moves records into the file.
//!
//! What a batch costs is the number of rows and of pages that it touches, so each index is filled
//! in its own order: records that are neighbours in an index then share the copy of a page.

use super::generation::Generation;
use super::journal::BLOCK;
use super::pending::{Job, Pending};
use super::tables::{self, Filling, Key, Layout, View, client_key, resource_key};
use super::{FILE, HistorySetup, trim};
use crate::codec;
use crate::fatal::{Fatal, Sentinel, StorageFault};
use leasehold_core::command::Mode;
use parking_lot::RwLock;
use redb::{Database, Durability, WriteTransaction};
use std::sync::Arc;

pub(super) struct Writer {
    db: Arc<Database>,
    pending: Arc<Pending>,
    view: Arc<RwLock<Arc<View>>>,
    layout: Layout,
    fatal: Fatal,
    keep_changes: u64,
    keep_audits: u64,
    scratch: Vec<u8>,
}

impl Writer {
    pub(super) fn new(
        db: Arc<Database>,
        pending: Arc<Pending>,
        view: Arc<RwLock<Arc<View>>>,
        layout: Layout,
        setup: HistorySetup,
    ) -> Self {
        Self {
            db,
            pending,
            view,
            layout,
            fatal: setup.fatal,
            keep_changes: setup.keep_changes,
            keep_audits: setup.keep_audits,
            scratch: Vec::new(),
        }
    }

    pub(super) fn run(mut self) {
        let sentinel = Sentinel { fatal: self.fatal.clone(), file: FILE };
        loop {
            let job = self.pending.next();
            if let Err(cause) = self.write(&job) {
                let fault = StorageFault::new(FILE, "write and sync", cause);
                self.fatal.report(&fault);
                self.pending.fail(&fault);
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
        let mut txn = self.db.begin_write()?;
        txn.set_durability(Durability::Immediate)?;
        let mut layout = Layout { applied: job.applied, ..self.layout };
        {
            let mut filling = Filling::open(&txn, layout.current)?;
            insert_records(&mut filling, &job.generation, &mut self.scratch)?;
            insert_indexes(&mut filling, &job.generation)?;
        }
        insert_changes(&txn, job, &mut self.scratch)?;
        insert_audits(&txn, job, &mut self.scratch)?;
        trim::trim(&txn, &mut layout, job.retention)?;
        trim::trim_changes(&txn, self.keep_changes)?;
        trim::trim_audits(&txn, self.keep_audits)?;
        tables::write_layout(&txn, layout)?;
        txn.commit()?;
        self.layout = layout;
        *self.view.write() = Arc::new(View::open(&*self.db)?);
        Ok(())
    }
}

fn insert_records(
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

fn insert_indexes(filling: &mut Filling<'_>, generation: &Generation) -> Result<(), redb::Error> {
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

fn insert_changes(
    txn: &WriteTransaction,
    job: &Job,
    scratch: &mut Vec<u8>,
) -> Result<(), redb::Error> {
    let mut table = txn.open_table(tables::CHANGES)?;
    let all: Vec<_> = job.changes.iter().flat_map(|batch| batch.iter()).cloned().collect();
    // A snapshot that took the place of entries leaves a hole in the numbers.
    for run in all.chunk_by(|a, b| a.revision + 1 == b.revision) {
        for block in run.chunks(BLOCK) {
            scratch.clear();
            codec::encode_changes(block, scratch);
            table.insert(block[0].revision, scratch.as_slice())?;
        }
    }
    Ok(())
}

fn insert_audits(
    txn: &WriteTransaction,
    job: &Job,
    scratch: &mut Vec<u8>,
) -> Result<(), redb::Error> {
    let mut table = txn.open_table(tables::AUDIT)?;
    for audited in &job.audits {
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
