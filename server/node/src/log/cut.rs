//! One transaction of the writer: what went into it, and whom it answers.

use super::LogSync;
use super::queue::Queued;
use crate::fatal::StorageFault;
use crate::types::{IoFlushed, LogId, Vote};
use std::io;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// A transaction takes up at most this much, so that the first to wait in it is not held up by
/// thousands behind it.
const OPS_MAX: usize = 8192;
const BYTES_MAX: usize = 8 << 20;

pub(super) enum Waiting {
    Append(IoFlushed),
    Vote(oneshot::Sender<io::Result<()>>),
}

impl Waiting {
    fn answer(self, result: Result<(), &StorageFault>) {
        let result = result.map_err(StorageFault::to_io);
        match self {
            Self::Append(done) => done.io_completed(result),
            Self::Vote(done) => drop(done.send(result)),
        }
    }
}

#[derive(Default)]
pub(super) struct Cut {
    pub(super) waiting: Vec<Waiting>,
    pub(super) written: Vec<(LogId, usize)>,
    pub(super) vote: Option<Vote>,
    /// The newest `committed` of those in line.
    pub(super) committed: Option<LogId>,
    ops: usize,
    bytes: usize,
    oldest: Option<Instant>,
}

impl Cut {
    pub(super) fn is_full(&self) -> bool {
        self.ops >= OPS_MAX || self.bytes >= BYTES_MAX
    }

    pub(super) fn took(&mut self, queued: &Queued) {
        self.ops += 1;
        if queued.op.is_urgent() {
            self.oldest.get_or_insert(queued.since);
        }
    }

    pub(super) fn wrote(&mut self, id: LogId, bytes: usize) {
        self.bytes += bytes;
        self.written.push((id, bytes));
    }

    /// Entries of this very transaction can go again before it commits.
    pub(super) fn truncated(&mut self, next: u64) {
        self.written.retain(|(id, _)| id.index < next);
    }

    pub(super) fn summary(&self, started: Instant, write: Duration) -> LogSync {
        LogSync {
            entries: self.written.len(),
            bytes: self.bytes,
            queued: self.oldest.map_or(Duration::ZERO, |since| started.duration_since(since)),
            write,
            sync: crate::runtime::since(started).saturating_sub(write),
        }
    }

    pub(super) fn answer(self, result: Result<(), &StorageFault>) {
        for waiting in self.waiting {
            waiting.answer(result);
        }
    }
}
