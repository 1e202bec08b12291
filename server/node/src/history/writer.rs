//! The thread that moves records into the file.
//!
//! What a batch costs is the number of pages that it touches, so each index is filled in its own
//! order: records that are neighbours in an index then share the copy of a page.

use super::pending::{Generation, Job, Pending};
use super::tables::{
    APPLIED, BY_CLIENT, BY_RESOURCE, BY_TIME, META, RECORDS, client_key, resource_key,
};
use super::trim::Trimmer;
use super::{FILE, HistorySetup};
use crate::codec;
use crate::fatal::{Fatal, Sentinel, StorageFault};
use leasehold_core::command::Mode;
use redb::{Database, Durability, WriteTransaction};
use std::sync::Arc;

pub(super) struct Writer {
    db: Arc<Database>,
    pending: Arc<Pending>,
    fatal: Fatal,
    trimmer: Trimmer,
    scratch: Vec<u8>,
}

impl Writer {
    pub(super) fn new(db: Arc<Database>, pending: Arc<Pending>, setup: HistorySetup) -> Self {
        Self { db, pending, fatal: setup.fatal, trimmer: Trimmer::default(), scratch: Vec::new() }
    }

    pub(super) fn run(mut self) {
        let sentinel = Sentinel { fatal: self.fatal.clone(), file: FILE };
        loop {
            let job = self.pending.next(self.trimmer.is_busy());
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
        insert_records(&txn, &job.generation, &mut self.scratch)?;
        insert_indexes(&txn, &job.generation)?;
        self.trimmer.trim(&txn, job.retention, job.generation.records().len())?;
        txn.open_table(META)?.insert(APPLIED, job.applied)?;
        Ok(txn.commit()?)
    }
}

fn insert_records(
    txn: &WriteTransaction,
    generation: &Generation,
    scratch: &mut Vec<u8>,
) -> Result<(), redb::Error> {
    let mut records: Vec<_> = generation.records().iter().collect();
    // Nearly sorted already: tokens are given out in order and most locks are held for long about
    // the same time.
    records.sort_by_key(|record| record.grant.token);
    let mut table = txn.open_table(RECORDS)?;
    for record in records {
        scratch.clear();
        codec::encode_record(record, scratch);
        table.insert(record.grant.token.0, scratch.as_slice())?;
    }
    Ok(())
}

fn insert_indexes(txn: &WriteTransaction, generation: &Generation) -> Result<(), redb::Error> {
    let records = generation.records();
    let mut resources = txn.open_table(BY_RESOURCE)?;
    let key = |at: usize| resource_key(&records[at].grant.resource);
    for (hash, token, at) in sorted(generation, key) {
        let exclusive = records[at].grant.mode == Mode::Exclusive;
        resources.insert((hash, token), exclusive)?;
    }
    let mut clients = txn.open_table(BY_CLIENT)?;
    for (hash, token, _) in sorted(generation, |at| client_key(&records[at].grant.owner.client)) {
        clients.insert((hash, token), ())?;
    }
    let mut times = txn.open_table(BY_TIME)?;
    for (ended_at_ms, token, _) in sorted(generation, |at| records[at].ended_at_ms) {
        times.insert((ended_at_ms, token), ())?;
    }
    Ok(())
}

/// Key, token and position of each record, in the order of an index.
fn sorted(generation: &Generation, key: impl Fn(usize) -> u64) -> Vec<(u64, u64, usize)> {
    let records = generation.records().iter().enumerate();
    let mut rows: Vec<_> = records.map(|(at, r)| (key(at), r.grant.token.0, at)).collect();
    rows.sort_unstable();
    rows
}
