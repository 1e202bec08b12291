//! Whether writes may be begun: only while the proxy holds its own lock.

use crate::problem::{Code, Problem};
use leasehold_client::Belief;
use parking_lot::Mutex;
use std::time::Duration;
use tokio::sync::watch;

/// When to come again while the lock is being got.
const AGAIN: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Gate {
    belief: Mutex<Option<Belief>>,
    /// How much of the validity has to be left, so that a write can still be cut in time.
    margin: Duration,
    cut: watch::Sender<()>,
}

impl Gate {
    pub(crate) fn new(margin: Duration) -> Self {
        Self { belief: Mutex::new(None), margin, cut: watch::Sender::new(()) }
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
        *self.belief.lock() = Some(belief);
    }

    /// Nothing new, and nothing that is under way.
    pub(crate) fn close(&self) {
        *self.belief.lock() = None;
        self.cut.send_replace(());
    }

    pub(crate) fn is_open(&self) -> bool {
        let belief = self.belief.lock();
        belief.as_ref().is_some_and(|belief| belief.remaining() > self.margin)
    }

    /// Whether a write may be begun at this moment.
    pub(crate) fn pass(&self) -> Result<(), Problem> {
        if self.is_open() {
            return Ok(());
        }
        let detail = "the proxy does not hold its own lock on the upstream at the moment: nothing \
                      was written";
        Err(Problem::new(Code::NotReady, detail).retry_after(AGAIN))
    }
}
