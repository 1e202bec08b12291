//! The one seam to clock, timers, tasks and randomness.
//!
//! Everything in this crate goes through here, so that a simulation can drive a node: tokio's
//! paused clock already does, since each instant below is tokio's.

#![allow(clippy::disallowed_methods, reason = "this is the seam")]

use std::future::Future;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The monotonic clock. Never stepped; stands still while the machine is suspended, which only
/// makes leases longer.
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// How long ago that was.
pub(crate) fn since(then: Instant) -> Duration {
    now().saturating_duration_since(then)
}

pub(crate) async fn sleep_until(at: Instant) {
    tokio::time::sleep_until(at.into()).await;
}

pub(crate) async fn timeout_at<F: Future>(at: Instant, future: F) -> Option<F::Output> {
    tokio::time::timeout_at(at.into(), future).await.ok()
}

pub(crate) async fn sleep(duration: Duration) {
    tokio::time::sleep(duration).await;
}

/// Runs a task for itself; nobody waits for it.
pub(crate) fn spawn(task: impl Future<Output = ()> + Send + 'static) {
    tokio::spawn(task);
}

/// A task that ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Task(tokio::task::AbortHandle);

impl Task {
    pub(crate) fn spawn(task: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(tokio::spawn(task).abort_handle())
    }

    pub(crate) fn is_over(&self) -> bool {
        self.0.is_finished()
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Starts tasks on the node's own runtime from threads that are not its.
#[derive(Debug, Clone)]
pub(crate) struct Spawner(tokio::runtime::Handle);

impl Spawner {
    /// For the runtime that this is called on.
    pub(crate) fn here() -> Self {
        Self(tokio::runtime::Handle::current())
    }

    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.0.spawn(task);
    }
}

/// Runs work that blocks, away from the tasks that must not.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    tokio::task::spawn_blocking(work).await.ok()
}

/// What is said of blocking work that ended without a result: it panicked, or the process stops.
pub(crate) fn lost() -> std::io::Error {
    std::io::Error::other("the work on the storage was lost")
}

/// For display and retention by age only: it may step.
pub(crate) fn wall_clock_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// 128 bits from the operating system.
///
/// # Panics
/// If the operating system has no randomness to give: nothing unguessable could be given out.
pub(crate) fn random() -> u128 {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("the operating system gives randomness");
    u128::from_le_bytes(bytes)
}

/// Lets others run first.
pub(crate) async fn yield_now() {
    tokio::task::yield_now().await;
}

/// Whole milliseconds, rounded down.
pub(crate) fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
