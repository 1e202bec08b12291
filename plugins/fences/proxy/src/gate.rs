//! Whether writes may be begun: only while the proxy holds its own lock.

use crate::problem::{Code, Problem};
use leasehold_client::Belief;
use parking_lot::Mutex;
use std::time::Duration;
use tokio::sync::watch;

/// When to come again while the lock is being got.
const AGAIN: Duration = Duration::from_secs(1);

/// Says that a request came in under one tenure of the lock. Between two of them another proxy may
/// have stood before the upstream, and what was judged before is not worth anything after.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry(u64);

#[derive(Debug)]
pub(crate) struct Gate {
    held: Mutex<Held>,
    /// How much of the validity has to be left, so that a write can still be cut in time.
    margin: Duration,
    cut: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct Held {
    belief: Option<Belief>,
    /// How often it was lost, or nearly.
    closed: u64,
}

impl Gate {
    pub(crate) fn new(margin: Duration) -> Self {
        Self { held: Mutex::default(), margin, cut: watch::Sender::new(()) }
    }

    pub(crate) fn margin(&self) -> Duration {
        self.margin
    }

    /// Changes when every write that is under way has to be cut.
    pub(crate) fn cuts(&self) -> watch::Receiver<()> {
        self.cut.subscribe()
    }

    /// Open for as long as this may be believed.
    pub(crate) fn open(&self, belief: Belief) {
        self.held.lock().belief = Some(belief);
    }

    /// Nothing new, and nothing that is under way.
    pub(crate) fn close(&self) {
        let mut held = self.held.lock();
        held.belief = None;
        held.closed += 1;
        drop(held);
        self.cut.send_replace(());
    }

    pub(crate) fn is_open(&self) -> bool {
        self.entry().is_some()
    }

    /// Whether a request may come in at this moment.
    pub(crate) fn pass(&self) -> Result<Entry, Problem> {
        self.entry().ok_or_else(closed)
    }

    /// Whether one that came in may still go on: the lock was held all the time since.
    pub(crate) fn still(&self, entry: Entry) -> Result<(), Problem> {
        if self.entry() == Some(entry) { Ok(()) } else { Err(closed()) }
    }

    fn entry(&self) -> Option<Entry> {
        let held = self.held.lock();
        let open = held.belief.as_ref().is_some_and(|belief| belief.remaining() > self.margin);
        open.then_some(Entry(held.closed))
    }
}

fn closed() -> Problem {
    let detail = "the proxy does not hold its own lock on the upstream at the moment, or got it \
                  again while this request waited: nothing was written";
    Problem::new(Code::NotReady, detail).retry_after(AGAIN)
}
