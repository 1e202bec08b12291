//! Records that are not in the file yet, and what the writer and the handles tell each other.

use super::generation::Generation;
use super::journal::{Audited, Tail};
use super::tables::Layout;
use super::{FILE, Happened, HistorySetup};
use crate::change::Change;
use crate::fatal::StorageFault;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, watch};

/// How much longer records stay in memory alone while disk space is short. The log has them.
const SPARE_FACTOR: u32 = 12;

/// What is to be forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Retention {
    pub(super) keep: u64,
    pub(super) before_ms: u64,
}

pub(super) struct Pending {
    state: Mutex<State>,
    /// Wakes the writer.
    work: Condvar,
    /// Wakes those who wait for a flush.
    settled: Condvar,
    /// Wakes those who wait for room.
    room: Notify,
    durable: AtomicU64,
    /// Beside the state, because every reader asks.
    before_ms: AtomicU64,
    /// Not behind the state's lock: watchers ask, and must not hold up applying.
    tail: Mutex<Tail>,
    told: watch::Sender<u64>,
    len: AtomicUsize,
    max: usize,
    batch: usize,
    settle: Duration,
    /// Disk space is short: write less often, in larger batches, which take less of it.
    spare: AtomicBool,
}

struct State {
    current: Generation,
    /// Being written; readable until it is in the file.
    writing: Option<Arc<Generation>>,
    since: Option<Instant>,
    applied: u64,
    changes: Vec<Arc<[Change]>>,
    changes_len: usize,
    audits: Vec<Audited>,
    flush: bool,
    closed: bool,
    retention: Retention,
    fault: Option<StorageFault>,
}

/// What the writer is to do next.
pub(super) struct Job {
    pub(super) generation: Arc<Generation>,
    pub(super) changes: Vec<Arc<[Change]>>,
    pub(super) audits: Vec<Audited>,
    pub(super) applied: u64,
    pub(super) retention: Retention,
    /// Nothing comes after this one.
    pub(super) last: bool,
}

impl Pending {
    pub(super) fn new(layout: Layout, setup: &HistorySetup) -> Self {
        let applied = layout.applied;
        let state = State {
            current: Generation::default(),
            writing: None,
            since: None,
            applied,
            changes: Vec::new(),
            changes_len: 0,
            audits: Vec::new(),
            flush: false,
            closed: false,
            retention: Retention { keep: setup.keep, before_ms: layout.before_ms },
            fault: None,
        };
        Self {
            state: Mutex::new(state),
            work: Condvar::new(),
            settled: Condvar::new(),
            room: Notify::new(),
            durable: AtomicU64::new(applied),
            before_ms: AtomicU64::new(layout.before_ms),
            tail: Mutex::new(Tail::default()),
            told: watch::channel(0).0,
            len: AtomicUsize::new(0),
            max: setup.pending_max,
            batch: setup.batch,
            settle: setup.settle,
            spare: AtomicBool::new(false),
        }
    }

    pub(super) async fn room(&self) {
        loop {
            // Made before looking, so that a batch that ends in between wakes it.
            let freed = self.room.notified();
            if self.len.load(Ordering::Acquire) < self.max || self.fault().is_some() {
                return;
            }
            freed.await;
        }
    }

    pub(super) fn tail(&self) -> MutexGuard<'_, Tail> {
        self.tail.lock()
    }

    pub(super) fn follow(&self) -> watch::Receiver<u64> {
        self.told.subscribe()
    }

    pub(super) fn push(&self, happened: Happened, applied: u64) {
        let mut state = self.state.lock();
        let newest = happened.changes.last().map(|change| change.revision);
        // What comes again is in memory or in the file. (No record is missed at 0: the first
        // entry of a log is its members.) The state was behind it, and so were those who follow.
        if applied <= state.applied {
            drop(state);
            newest.into_iter().for_each(|newest| self.wake(newest));
            return;
        }
        state.applied = applied;
        let Happened { records, changes, audits } = happened;
        let count = records.len() + changes.len();
        if count == 0 {
            return;
        }
        self.tail.lock().push(&changes, &audits);
        records.iter().for_each(|record| state.current.push(record));
        state.changes_len += changes.len();
        state.changes.push(changes);
        state.audits.extend(audits);
        state.since.get_or_insert_with(crate::runtime::now);
        let full = state.is_full(self.batch);
        drop(state);
        self.len.fetch_add(count, Ordering::AcqRel);
        if full {
            self.work.notify_one();
        }
        newest.into_iter().for_each(|newest| self.wake(newest));
    }

    pub(super) fn wake(&self, newest: u64) {
        self.told.send_replace(newest);
    }

    /// The file has everything up to this entry: it came from a peer.
    pub(super) fn jump(&self, applied: u64, before_ms: u64) {
        {
            let mut state = self.state.lock();
            state.applied = state.applied.max(applied);
            self.durable.fetch_max(applied, Ordering::AcqRel);
            // It ends before what came, and would tell whoever is there that this is the end.
            *self.tail.lock() = Tail::default();
        }
        self.set_retention(|retention| retention.before_ms = retention.before_ms.max(before_ms));
    }

    pub(super) fn retention(&self) -> Retention {
        self.state.lock().retention
    }

    pub(super) fn set_retention(&self, change: impl FnOnce(&mut Retention)) {
        let mut state = self.state.lock();
        let before = state.retention;
        change(&mut state.retention);
        self.before_ms.store(state.retention.before_ms, Ordering::Release);
        if state.retention != before {
            // With the next batch, or like a record.
            state.since.get_or_insert_with(crate::runtime::now);
        }
    }

    pub(super) fn set_spare(&self, spare: bool) {
        self.spare.store(spare, Ordering::Relaxed);
    }

    fn patience(&self) -> Duration {
        if self.spare.load(Ordering::Relaxed) { self.settle * SPARE_FACTOR } else { self.settle }
    }

    pub(super) fn before_ms(&self) -> u64 {
        self.before_ms.load(Ordering::Acquire)
    }

    pub(super) fn durable(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    pub(super) fn flush(&self, upto: u64) -> Result<(), StorageFault> {
        let mut state = self.state.lock();
        let upto = upto.min(state.applied);
        while self.durable() < upto {
            if let Some(fault) = &state.fault {
                return Err(fault.clone());
            }
            if state.closed {
                return Err(StorageFault::new(FILE, "flush", "the history is closed"));
            }
            state.flush = true;
            self.work.notify_one();
            self.settled.wait(&mut state);
        }
        Ok(())
    }

    /// Sleeps until there is something to write or to forget.
    pub(super) fn next(&self) -> Job {
        let mut state = self.state.lock();
        while !state.is_due(self.batch, self.patience()) {
            self.work.wait_for(&mut state, self.settle.max(Duration::from_millis(1)));
        }
        let generation = Arc::new(std::mem::take(&mut state.current));
        state.writing = Some(Arc::clone(&generation));
        state.since = None;
        state.flush = false;
        state.changes_len = 0;
        Job {
            generation,
            changes: std::mem::take(&mut state.changes),
            audits: std::mem::take(&mut state.audits),
            applied: state.applied,
            retention: state.retention,
            last: state.closed,
        }
    }

    pub(super) fn done(&self, job: &Job) {
        let written = {
            let mut state = self.state.lock();
            self.durable.fetch_max(job.applied, Ordering::AcqRel);
            state.writing.take()
        };
        let last = job.changes.iter().rev().find_map(|batch| batch.last());
        if let Some(last) = last {
            self.tail.lock().written(last.revision);
        }
        let changes: usize = job.changes.iter().map(|batch| batch.len()).sum();
        self.len.fetch_sub(job.generation.records().len() + changes, Ordering::AcqRel);
        self.settled.notify_all();
        self.room.notify_waiters();
        // Freed here and not under the lock: it can be thousands of records.
        drop(written);
    }

    pub(super) fn fail(&self, fault: &StorageFault) {
        self.state.lock().fault = Some(fault.clone());
        self.settled.notify_all();
        self.room.notify_waiters();
    }

    pub(super) fn fault(&self) -> Option<StorageFault> {
        self.state.lock().fault.clone()
    }

    pub(super) fn close(&self) {
        self.state.lock().closed = true;
        self.work.notify_one();
    }

    /// Looks at what is in memory: the older generation as a whole, the newer one under the lock.
    pub(super) fn read<T>(&self, look: impl Fn(&Generation) -> T) -> (T, Option<T>) {
        let state = self.state.lock();
        let writing = state.writing.clone();
        let newer = look(&state.current);
        drop(state);
        (newer, writing.map(|older| look(&older)))
    }
}

impl State {
    fn is_full(&self, batch: usize) -> bool {
        // A grant makes two changes and one record.
        self.current.records().len() >= batch || self.changes_len >= 4 * batch
    }

    fn is_due(&self, batch: usize, settle: Duration) -> bool {
        self.closed
            || self.flush
            || self.is_full(batch)
            || self.since.is_some_and(|since| crate::runtime::since(since) >= settle)
    }
}
