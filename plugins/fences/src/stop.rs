//! Asking a test to stop, so that it can still tidy up.

use std::time::Duration;
use tokio::sync::watch;

/// A round that is under way has this long to end by itself.
const GRACE: Duration = Duration::from_secs(3);

/// Whether a test is to stop. Clones are the same one.
#[derive(Debug, Clone)]
pub struct Stop(watch::Sender<bool>);

impl Default for Stop {
    fn default() -> Self {
        Self(watch::Sender::new(false))
    }
}

impl Stop {
    /// Asks for it: the test ends after the rounds that are under way, and tidies up.
    pub fn ask(&self) {
        self.0.send_replace(true);
    }

    /// Whether it was asked for.
    #[must_use]
    pub fn asked(&self) -> bool {
        *self.0.borrow()
    }

    /// Resolves when it was asked for a while ago.
    pub(crate) async fn given_up(&self) {
        let mut told = self.0.subscribe();
        // The sender is this one, and outlives the borrow of it.
        if told.wait_for(|asked| *asked).await.is_err() {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(GRACE).await;
    }
}
