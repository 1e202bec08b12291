//! Asking a test to stop, so that it can still tidy up.

use crate::report::Stopped;
use std::time::Duration;
use tokio::sync::watch;

/// A round that is under way has this long to end by itself.
const GRACE: Duration = Duration::from_secs(3);

/// Whether a test is to stop. Clones are the same one.
#[derive(Debug, Clone)]
pub struct Stop(watch::Sender<Option<Stopped>>);

impl Default for Stop {
    fn default() -> Self {
        Self(watch::Sender::new(None))
    }
}

impl Stop {
    /// Asks for it: the test ends after the rounds that are under way, and tidies up.
    pub fn ask(&self, code: &'static str, detail: &str) {
        self.0.send_if_modified(|why| {
            let first = why.is_none();
            why.get_or_insert_with(|| Stopped { code, detail: detail.to_owned() });
            first
        });
    }

    /// Why, the first time that it was asked for.
    #[must_use]
    pub fn why(&self) -> Option<Stopped> {
        self.0.borrow().clone()
    }

    /// Whether it was asked for.
    #[must_use]
    pub fn asked(&self) -> bool {
        self.0.borrow().is_some()
    }

    /// Resolves when it was asked for a while ago: a round that is under way is given up.
    pub(crate) async fn given_up(&self) {
        self.asked_before(GRACE).await;
    }

    /// Resolves when everything is given up, also what is no round.
    pub(crate) async fn overdue(&self) {
        self.asked_before(2 * GRACE).await;
    }

    async fn asked_before(&self, grace: Duration) {
        let mut told = self.0.subscribe();
        // The sender is this one, and outlives the borrow of it.
        if told.wait_for(Option::is_some).await.is_err() {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(grace).await;
    }
}
