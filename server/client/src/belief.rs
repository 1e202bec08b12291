//! A shared handle on the belief in one grant or lease: ask it, or wait for it to change.

use crate::clock::BootInstant;
use crate::timer;
use crate::validity::{Lost, State, Validity};
use parking_lot::Mutex;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// What may be believed about one grant or lease, now and later. Cheap to clone, and good for as
/// long as you like: it does not keep the lock, it only tells about it.
#[derive(Debug, Clone)]
pub struct Belief {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    validity: Mutex<Validity>,
    /// Counts the changes of `validity`, so that whoever sleeps looks again.
    changes: watch::Sender<u64>,
}

impl Belief {
    pub(crate) fn new(validity: Validity) -> Self {
        let shared = Shared { validity: Mutex::new(validity), changes: watch::Sender::new(0) };
        Self { shared: Arc::new(shared) }
    }

    /// What may be believed at this moment. Reads the clock: no task has to have run for it.
    #[must_use]
    pub fn state(&self) -> State {
        let mut validity = self.shared.validity.lock();
        let now = BootInstant::now();
        validity.settle(now);
        validity.state(now)
    }

    /// How long the present validity still lasts; zero once it is lost.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.shared.validity.lock().remaining(BootInstant::now())
    }

    /// The instant at which the present validity is over.
    #[must_use]
    pub fn valid_until(&self) -> BootInstant {
        self.shared.validity.lock().until()
    }

    /// Resolves once it is lost, with the reason: at the latest when the validity is over.
    pub async fn lost(&self) -> Lost {
        self.when(|validity, now| match validity.lost(now) {
            Some(lost) => Ok(lost),
            None => Err(Some(validity.until())),
        })
        .await
    }

    /// Resolves once no more than `margin` of the validity is left, or it is lost: the moment to
    /// stop work that takes up to `margin` to stop.
    pub async fn closing(&self, margin: Duration) {
        self.when(|validity, now| match validity.remaining(now) {
            left if left <= margin => Ok(()),
            _ => Err(Some(validity.until().saturating_sub(margin))),
        })
        .await;
    }

    /// Resolves once the state is another one than `seen`, with the new one. Never resolves after
    /// [`State::Lost`], which is final.
    ///
    /// A state that came and went between two calls is not told; what is told is always present.
    pub async fn changed(&self, seen: State) -> State {
        self.when(|validity, now| match validity.state(now) {
            State::Lost if seen == State::Lost => Err(None),
            state if state == seen => Err(Some(validity.until())),
            state => Ok(state),
        })
        .await
    }

    /// Why it is lost, if it is.
    #[must_use]
    pub fn lost_now(&self) -> Option<Lost> {
        self.shared.validity.lock().lost(BootInstant::now())
    }

    pub(crate) fn confirm(&self, sent: BootInstant, valid_for: Duration) {
        self.change(|validity, now| validity.confirm(now, sent, valid_for));
    }

    pub(crate) fn doubt(&self) {
        self.change(|validity, now| validity.doubt(now));
    }

    pub(crate) fn drain(&self) {
        self.change(|validity, now| validity.drain(now));
    }

    pub(crate) fn end(&self, why: Lost) {
        self.change(|validity, now| validity.end(now, why));
    }

    fn change(&self, change: impl FnOnce(&mut Validity, BootInstant)) {
        change(&mut self.shared.validity.lock(), BootInstant::now());
        self.shared.changes.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Looks after every change, and at the instant that the last look named.
    fn when<T>(
        &self,
        look: impl Fn(&Validity, BootInstant) -> Result<T, Option<BootInstant>>,
    ) -> impl Future<Output = T> {
        let shared = Arc::clone(&self.shared);
        async move {
            let mut changes = shared.changes.subscribe();
            loop {
                let again_at = {
                    let mut validity = shared.validity.lock();
                    let now = BootInstant::now();
                    validity.settle(now);
                    match look(&validity, now) {
                        Ok(told) => return told,
                        Err(again_at) => again_at,
                    }
                };
                let Some(again_at) = again_at else { return std::future::pending().await };
                tokio::select! {
                    // The sender is in `shared`, so this cannot fail.
                    _ = changes.changed() => {}
                    () = timer::sleep_until(again_at) => {}
                }
            }
        }
    }
}
