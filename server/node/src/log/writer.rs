//! The thread that writes the log. Everything that waits becomes one transaction and one sync.
//!
//! No timer collects a batch: while one sync runs, the next batch gathers by itself.

use super::cut::{Cut, Waiting};
use super::queue::{Op, Queue, Queued, Woken};
use super::runs::Durable;
use super::tables::{COMMITTED, LOG, MEMBER, META, PURGED, VOTE};
use super::{FILE, LogSetup, View};
use crate::codec;
use crate::fatal::{Sentinel, StorageFault};
use crate::types::{Entry, LogId};
use redb::{Database, Durability, Table};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

/// Purged entries that one transaction removes: removing a million at once would hold up the
/// appends behind it.
const PURGE_PIECE: usize = 2048;

type Log<'t> = Table<'t, u64, &'static [u8]>;
type Meta<'t> = Table<'t, &'static str, &'static [u8]>;

/// Entries after which the newest `committed` is stored again.
const COMMITTED_EVERY: u64 = 256;

pub(super) struct Writer {
    db: Arc<Database>,
    queue: Arc<Queue>,
    view: Arc<View>,
    setup: LogSetup,
    durable: Durable,
    /// Taken from the queue and not yet written.
    backlog: VecDeque<Queued>,
    scratch: Vec<u8>,
    /// The index of the `committed` that is stored.
    committed: u64,
    closing: bool,
}

impl Writer {
    pub(super) fn new(
        db: Arc<Database>,
        queue: Arc<Queue>,
        view: Arc<View>,
        setup: LogSetup,
        durable: Durable,
    ) -> Self {
        let (backlog, scratch) = (VecDeque::new(), Vec::new());
        Self { db, queue, view, setup, durable, backlog, scratch, committed: 0, closing: false }
    }

    pub(super) fn run(mut self) {
        let sentinel = Sentinel { fatal: self.setup.fatal.clone(), file: FILE };
        loop {
            let busy = self.durable.garbage_below().is_some();
            let woken = self.queue.take(&mut self.backlog, busy);
            self.closing = woken == Woken::Closed;
            if self.closing && self.backlog.is_empty() {
                break;
            }
            if let Err(fault) = self.write() {
                self.fail(&fault);
                break;
            }
        }
        drop(sentinel);
    }

    /// One transaction, from the first thing in line to the acknowledgements.
    fn write(&mut self) -> Result<(), StorageFault> {
        let started = crate::runtime::now();
        let mut cut = Cut::default();
        let result = self.commit(&mut cut, started);
        match result {
            Ok(()) => cut.answer(Ok(())),
            Err(cause) => {
                let fault = StorageFault::new(FILE, "write and sync", cause);
                // The node must know before openraft does: it is to end, and say why.
                self.setup.fatal.report(&fault);
                cut.answer(Err(&fault));
                return Err(fault);
            }
        }
        Ok(())
    }

    fn commit(&mut self, cut: &mut Cut, started: Instant) -> Result<(), redb::Error> {
        let db = Arc::clone(&self.db);
        let mut txn = db.begin_write()?;
        txn.set_durability(Durability::Immediate)?;
        {
            let mut log = txn.open_table(LOG)?;
            let mut meta = txn.open_table(META)?;
            while !cut.is_full()
                && let Some(queued) = self.backlog.pop_front()
            {
                cut.took(&queued);
                self.take_up(queued.op, cut, &mut log, &mut meta)?;
            }
            self.remove_garbage(&mut log)?;
            self.put_committed(cut, &mut meta)?;
        }
        let write = crate::runtime::since(started);
        txn.commit()?;
        self.publish(cut, started, write);
        Ok(())
    }

    fn take_up(
        &mut self,
        op: Op,
        cut: &mut Cut,
        log: &mut Log<'_>,
        meta: &mut Meta<'_>,
    ) -> Result<(), redb::Error> {
        match op {
            Op::Append { entries, done } => {
                // Before anything can fail: whoever waits must hear of it.
                cut.waiting.push(Waiting::Append(done));
                entries.iter().try_for_each(|entry| self.append(entry, cut, log))?;
            }
            Op::Vote { vote, done } => {
                cut.waiting.push(Waiting::Vote(done));
                cut.vote = Some(vote);
                meta.insert(VOTE, codec::encode_vote(&vote).as_slice())?;
            }
            Op::Committed(id) => cut.committed = Some(id),
            Op::Member => drop(meta.insert(MEMBER, [].as_slice())?),
            Op::TruncateAfter(keep) => {
                let next = keep.map_or(0, |id| id.index + 1);
                log.retain_in(next.., |_, _| false)?;
                self.durable.truncated_after(keep);
                cut.truncated(next);
                self.view.growth.lock().truncated(next);
            }
            Op::Purge(upto) => {
                meta.insert(PURGED, codec::encode_log_id(upto).as_slice())?;
                self.durable.purged_upto(upto);
                self.view.growth.lock().purged(upto.index);
            }
        }
        Ok(())
    }

    fn append(
        &mut self,
        entry: &Entry,
        cut: &mut Cut,
        log: &mut Log<'_>,
    ) -> Result<(), redb::Error> {
        self.scratch.clear();
        codec::encode_entry(entry, &mut self.scratch);
        log.insert(entry.log_id.index, self.scratch.as_slice())?;
        self.durable.appended(entry.log_id);
        cut.wrote(entry.log_id, self.scratch.len());
        Ok(())
    }

    fn remove_garbage(&mut self, log: &mut Log<'_>) -> Result<(), redb::Error> {
        let Some(keep_from) = self.durable.garbage_below() else { return Ok(()) };
        let mut removed = 0;
        for item in log.extract_from_if(..keep_from, |_, _| true)?.take(PURGE_PIECE) {
            item?;
            removed += 1;
        }
        self.durable.set_garbage(removed == PURGE_PIECE);
        Ok(())
    }

    /// openraft may name an entry that this file does not hold: one that a quorum of others has
    /// synced first. Stored as it is, a crash now would leave a node that cannot start again.
    ///
    /// It is a hint that spares a restart some replay, and its page is one more of eight that a
    /// small commit writes: so it goes along only now and then.
    fn put_committed(&mut self, cut: &Cut, meta: &mut Meta<'_>) -> Result<(), redb::Error> {
        let alone = cut.written.is_empty() || self.closing;
        let due = |id: &LogId| alone || id.index >= self.committed + COMMITTED_EVERY;
        if let Some(id) = cut.committed.filter(due).filter(|id| self.durable.holds(*id)) {
            meta.insert(COMMITTED, codec::encode_log_id(id).as_slice())?;
            self.committed = id.index;
        }
        Ok(())
    }

    fn publish(&self, cut: &Cut, started: Instant, write: std::time::Duration) {
        self.view.tail.lock().durable(&cut.written);
        let mut growth = self.view.growth.lock();
        cut.written.iter().for_each(|(id, bytes)| growth.wrote(id.index, *bytes));
        drop(growth);
        if cut.vote.is_some() {
            *self.view.vote.lock() = cut.vote;
        }
        self.setup.observer.synced(&cut.summary(started, write));
    }

    fn fail(&mut self, fault: &StorageFault) {
        let rest = self.queue.fail(fault);
        for queued in self.backlog.drain(..).chain(rest) {
            queued.op.fail(fault);
        }
    }
}
