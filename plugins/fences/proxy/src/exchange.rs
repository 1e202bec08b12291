//! One request on its way to the upstream and back, and when a write of it is over.
//!
//! A write is over when its whole answer was read and its whole body was taken. Otherwise nobody
//! knows what the upstream still does, and it counts as in flight for the settle time after its
//! connection ended. Whoever takes part in an exchange holds it; the last one is the connection.

use crate::gate::{Gate, Tenure};
use crate::metrics::Metrics;
use crate::problem::Problem;
use leasehold_client::fence::Pass;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep, sleep_until};

/// Why an exchange was cut on this side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cut {
    /// The client went away in the middle of its body.
    ClientGone,
    /// The client was silent in the middle of its body.
    ClientSilent,
    /// The write took longer than a write may.
    TooLong,
    /// The proxy may not write any more.
    NotReady,
}

/// A write, and what it needs in order to be over.
#[derive(Debug)]
pub(crate) struct Write {
    pub(crate) pass: Pass,
    pub(crate) settle: Duration,
    /// In which it was let through.
    pub(crate) tenure: Tenure,
    pub(crate) gate: Arc<Gate>,
    /// Kept until the write is over, whether or not its client is still there.
    pub(crate) seat: OwnedSemaphorePermit,
    /// No write takes longer.
    pub(crate) ends: Instant,
}

#[derive(Debug)]
pub(crate) struct Exchange {
    write: Mutex<Option<Write>>,
    ends: Option<Instant>,
    let_through: Option<(Tenure, Arc<Gate>)>,
    began: AtomicBool,
    body_done: AtomicBool,
    answer_done: AtomicBool,
    turn: Mutex<Turn>,
    cut: OnceLock<Cut>,
    metrics: Arc<Metrics>,
    runtime: Handle,
}

/// Whose turn it is to move.
#[derive(Debug, Clone, Copy)]
enum Turn {
    Client,
    Upstream { since: Instant },
}

impl Exchange {
    pub(crate) fn new(write: Option<Write>, metrics: &Arc<Metrics>) -> Arc<Self> {
        Arc::new(Self {
            ends: write.as_ref().map(|write| write.ends),
            let_through: write.as_ref().map(|write| (write.tenure, Arc::clone(&write.gate))),
            write: Mutex::new(write),
            began: AtomicBool::new(false),
            body_done: AtomicBool::new(false),
            answer_done: AtomicBool::new(false),
            turn: Mutex::new(Turn::Upstream { since: Instant::now() }),
            cut: OnceLock::new(),
            metrics: Arc::clone(metrics),
            runtime: Handle::current(),
        })
    }

    /// Whether it may be begun, or go on, at this moment. Looks at the clock, so that a process
    /// that was frozen knows it before anything else of it has run.
    pub(crate) fn may_go_on(&self) -> Result<(), Problem> {
        self.let_through.as_ref().map_or(Ok(()), |(tenure, gate)| gate.pass_in(*tenure))
    }

    pub(crate) fn is_write(&self) -> bool {
        self.ends.is_some()
    }

    pub(crate) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    pub(crate) fn ends(&self) -> Option<Instant> {
        self.ends
    }

    /// From now on the upstream may have seen some of it.
    pub(crate) fn begin(&self) {
        self.began.store(true, Ordering::Release);
        self.upstream_moves();
    }

    /// The connection gave it back unsent.
    pub(crate) fn unsent(&self) {
        self.began.store(false, Ordering::Release);
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.began.load(Ordering::Acquire)
    }

    pub(crate) fn body_done(&self) {
        self.body_done.store(true, Ordering::Release);
        self.upstream_moves();
    }

    pub(crate) fn is_body_done(&self) -> bool {
        self.body_done.load(Ordering::Acquire)
    }

    pub(crate) fn answer_done(&self) {
        self.answer_done.store(true, Ordering::Release);
    }

    /// It is the client's turn to send.
    pub(crate) fn client_moves(&self) {
        *self.turn.lock() = Turn::Client;
    }

    /// It is the upstream's turn to take or to answer.
    pub(crate) fn upstream_moves(&self) {
        *self.turn.lock() = Turn::Upstream { since: Instant::now() };
    }

    /// Resolves once the upstream has not moved for `limit` while it was its turn.
    pub(crate) async fn upstream_silent(&self, limit: Duration) {
        loop {
            let turn = *self.turn.lock();
            match turn {
                Turn::Upstream { since } if since.elapsed() >= limit => return,
                Turn::Upstream { since } => sleep_until(since + limit).await,
                Turn::Client => sleep(limit).await,
            }
        }
    }

    /// The first reason stays.
    pub(crate) fn cut(&self, why: Cut) {
        let _ = self.cut.set(why);
    }

    pub(crate) fn why_cut(&self) -> Option<Cut> {
        self.cut.get().copied()
    }

    fn is_over(&self) -> bool {
        !self.has_begun() || (self.is_body_done() && self.answer_done.load(Ordering::Acquire))
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        let Some(write) = self.write.get_mut().take() else { return };
        if self.is_over() {
            return;
        }
        let settling = self.metrics.settling();
        drop(self.runtime.spawn(async move {
            sleep(write.settle).await;
            drop((write.pass, write.seat, settling));
        }));
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::settings::Limits;
    use leasehold_client::fence::{Fence as _, Options, RedbFence, Usage};
    use tempfile::TempDir;
    use tokio::sync::Semaphore;

    /// An exchange without a write.
    pub(crate) fn read() -> Arc<Exchange> {
        Exchange::new(None, &Metrics::new(&Limits::default()).expect("metrics"))
    }

    /// The exchange of a write that was let through in the first tenure of a gate.
    pub(crate) async fn write(gate: &Arc<Gate>) -> (Arc<Exchange>, TempDir) {
        let dir = tempfile::tempdir().expect("a directory");
        let fence = RedbFence::open(dir.path().join("fence.redb"), Options::new()).expect("opened");
        let metrics = Metrics::new(&Limits::default()).expect("metrics");
        let write = Write {
            pass: fence.admit("r", 1, Usage::Many).await.expect("new"),
            settle: Duration::ZERO,
            tenure: Tenure::default(),
            gate: Arc::clone(gate),
            seat: Arc::new(Semaphore::new(1)).try_acquire_owned().expect("free"),
            ends: Instant::now() + Duration::from_secs(600),
        };
        (Exchange::new(Some(write), &metrics), dir)
    }
}
