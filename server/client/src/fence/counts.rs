//! What a fence counts.

use super::options::Stats;
use super::refused::Refused;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

#[derive(Debug, Default)]
pub(super) struct Counts {
    waiting: AtomicUsize,
    recording: AtomicUsize,
    passes: AtomicU64,
    seals: AtomicU64,
    stale: AtomicU64,
    used: AtomicU64,
    timed_out: AtomicU64,
    full: AtomicU64,
    failed: AtomicU64,
    raises: AtomicU64,
    commits: AtomicU64,
    folded: AtomicU64,
    resources: AtomicU64,
    floor: AtomicU64,
}

/// What a call waits for; each is counted, and bounded, by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Queue {
    /// Older writes in flight, for as long as their storage takes.
    Older,
    /// The disk, for as long as a sync takes.
    Record,
}

/// Leave to wait.
#[derive(Debug)]
pub(super) struct Permit {
    queue: Queue,
    counts: Arc<Counts>,
}

impl Permit {
    pub(super) fn queue(&self) -> Queue {
        self.queue
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.counts.queue(self.queue).fetch_sub(1, Relaxed);
    }
}

impl Counts {
    /// Leave to wait in a queue, unless `max` calls do already.
    pub(super) fn permit(counts: &Arc<Self>, queue: Queue, max: usize) -> Option<Permit> {
        let more = |waiting: usize| (waiting < max).then_some(waiting + 1);
        counts.queue(queue).fetch_update(Relaxed, Relaxed, more).ok()?;
        Some(Permit { queue, counts: Arc::clone(counts) })
    }

    fn queue(&self, queue: Queue) -> &AtomicUsize {
        match queue {
            Queue::Older => &self.waiting,
            Queue::Record => &self.recording,
        }
    }

    pub(super) fn passed(&self) {
        self.passes.fetch_add(1, Relaxed);
    }

    pub(super) fn sealed(&self) {
        self.seals.fetch_add(1, Relaxed);
    }

    pub(super) fn refused(&self, refused: &Refused) {
        let counter = match refused {
            Refused::Stale { .. } => &self.stale,
            Refused::Used { .. } => &self.used,
            Refused::OlderInFlight { .. } => &self.timed_out,
            Refused::Full { .. } => &self.full,
            Refused::Storage(_) => &self.failed,
            Refused::Invalid { .. } => return,
        };
        counter.fetch_add(1, Relaxed);
    }

    /// One transaction with some changes is durable.
    pub(super) fn committed(&self, raises: u64, folded: u64) {
        self.commits.fetch_add(1, Relaxed);
        self.raises.fetch_add(raises, Relaxed);
        self.folded.fetch_add(folded, Relaxed);
    }

    /// What the storage holds.
    pub(super) fn holds(&self, resources: u64, floor: u64) {
        self.resources.store(resources, Relaxed);
        self.floor.store(floor, Relaxed);
    }

    /// All but what the lanes know.
    pub(super) fn stats(&self) -> Stats {
        let read = |counter: &AtomicU64| counter.load(Relaxed);
        Stats {
            waiting: self.waiting.load(Relaxed) as u64,
            recording: self.recording.load(Relaxed) as u64,
            passes: read(&self.passes),
            seals: read(&self.seals),
            stale: read(&self.stale),
            used: read(&self.used),
            timed_out: read(&self.timed_out),
            full: read(&self.full),
            failed: read(&self.failed),
            raises: read(&self.raises),
            commits: read(&self.commits),
            folded: read(&self.folded),
            resources: read(&self.resources),
            floor: read(&self.floor),
            ..Stats::default()
        }
    }
}
