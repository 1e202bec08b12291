//! Records that are not in the file yet, and what the writer and the handles tell each other.

use super::generation::Generation;
use super::tables::Layout;
use super::{FILE, HistorySetup};
use crate::fatal::StorageFault;
use leasehold_core::outcome::GrantRecord;
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

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
    len: AtomicUsize,
    max: usize,
    batch: usize,
    settle: Duration,
}

struct State {
    current: Generation,
    /// Being written; readable until it is in the file.
    writing: Option<Arc<Generation>>,
    since: Option<Instant>,
    applied: u64,
    flush: bool,
    closed: bool,
    retention: Retention,
    fault: Option<StorageFault>,
}

/// What the writer is to do next.
pub(super) struct Job {
    pub(super) generation: Arc<Generation>,
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
            len: AtomicUsize::new(0),
            max: setup.pending_max,
            batch: setup.batch,
            settle: setup.settle,
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

    pub(super) fn push(&self, records: &[Arc<GrantRecord>], applied: u64) {
        let mut state = self.state.lock();
        // What comes again is in memory or in the file. (No record is missed at 0: the first
        // entry of a log is its members.)
        if applied <= state.applied {
            return;
        }
        state.applied = applied;
        if records.is_empty() {
            return;
        }
        records.iter().for_each(|record| state.current.push(record));
        state.since.get_or_insert_with(crate::runtime::now);
        let full = state.current.records().len() >= self.batch;
        drop(state);
        self.len.fetch_add(records.len(), Ordering::AcqRel);
        if full {
            self.work.notify_one();
        }
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
        while !state.is_due(self.batch, self.settle) {
            self.work.wait_for(&mut state, self.settle.max(Duration::from_millis(1)));
        }
        let generation = Arc::new(std::mem::take(&mut state.current));
        state.writing = Some(Arc::clone(&generation));
        state.since = None;
        state.flush = false;
        let (applied, retention) = (state.applied, state.retention);
        Job { generation, applied, retention, last: state.closed }
    }

    pub(super) fn done(&self, job: &Job) {
        let written = {
            let mut state = self.state.lock();
            self.durable.store(job.applied, Ordering::Release);
            state.writing.take()
        };
        self.len.fetch_sub(job.generation.records().len(), Ordering::AcqRel);
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
    fn is_due(&self, batch: usize, settle: Duration) -> bool {
        self.closed
            || self.flush
            || self.current.records().len() >= batch
            || self.since.is_some_and(|since| crate::runtime::since(since) >= settle)
    }
}
