//! One request on its way to the upstream and back, and when a write of it is over.
//!
//! A write is over when its whole answer was read and its whole body was taken. Otherwise nobody
//! knows what the upstream still does, and it counts as in flight for the settle time after its
//! connection ended. Whoever takes part in an exchange holds it; the last one is the connection.

use crate::metrics::Metrics;
use leasehold_client::fence::Pass;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep, sleep_until};

/// What tokio's semaphore can count, and more than there are descriptors.
const SEATS_MAX: u32 = 1 << 20;

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

/// How many writes there may be at a time, with those whose client has gone and those that settle.
#[derive(Debug, Clone)]
pub(crate) struct Seats {
    all: Arc<Semaphore>,
    under_way: Arc<Semaphore>,
    max: u32,
}

/// The seat of a write.
#[derive(Debug)]
pub(crate) struct Seat {
    /// Until it is over, or has settled.
    kept: OwnedSemaphorePermit,
    /// Until its connection has ended.
    under_way: OwnedSemaphorePermit,
}

impl Seats {
    pub(crate) fn new(max: usize) -> Self {
        let max = u32::try_from(max).unwrap_or(u32::MAX).min(SEATS_MAX);
        let seats = || Arc::new(Semaphore::new(max as usize));
        Self { all: seats(), under_way: seats(), max }
    }

    /// Nothing if all are taken.
    pub(crate) fn take(&self) -> Option<Seat> {
        let kept = Arc::clone(&self.all).try_acquire_owned().ok()?;
        let under_way = Arc::clone(&self.under_way).try_acquire_owned().ok()?;
        Some(Seat { kept, under_way })
    }

    /// Resolves once no write is under way.
    pub(crate) async fn left(&self) {
        // Never closed.
        let _ = self.under_way.acquire_many(self.max).await;
    }
}

/// A write, and what it needs in order to be over.
#[derive(Debug)]
pub(crate) struct Write {
    pub(crate) pass: Pass,
    pub(crate) seat: Seat,
    pub(crate) settle: Duration,
    /// No write takes longer.
    pub(crate) ends: Instant,
}

#[derive(Debug)]
pub(crate) struct Exchange {
    write: Mutex<Option<Write>>,
    ends: Option<Instant>,
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
        let Write { pass, seat: Seat { kept, under_way }, settle, .. } = write;
        drop(under_way);
        drop(self.runtime.spawn(async move {
            sleep(settle).await;
            drop((pass, kept, settling));
        }));
    }
}
