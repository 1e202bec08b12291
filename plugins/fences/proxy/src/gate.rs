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
    state: Mutex<State>,
    /// How much of the validity has to be left, so that a write can still be cut in time.
    margin: Duration,
    cut: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct State {
    belief: Option<Belief>,
    tenure: Tenure,
}

/// One grant of the lock after another. Between two of them another proxy may have served, so
/// what was decided in one says nothing in the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Tenure(u64);

impl Gate {
    pub(crate) fn new(margin: Duration) -> Self {
        Self { state: Mutex::default(), margin, cut: watch::Sender::new(()) }
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
        self.state.lock().belief = Some(belief);
    }

    /// Nothing new, and nothing that is under way.
    pub(crate) fn close(&self) {
        self.state.lock().belief = None;
        self.cut.send_replace(());
    }

    /// The lock is lost: whoever was let through and has not begun is not let through any more.
    pub(crate) fn end_tenure(&self) {
        self.state.lock().tenure.0 += 1;
        self.close();
    }

    pub(crate) fn is_open(&self) -> bool {
        self.tenure().is_some()
    }

    /// The present one, while the gate is open.
    fn tenure(&self) -> Option<Tenure> {
        let state = self.state.lock();
        let open = state.belief.as_ref().is_some_and(|belief| belief.remaining() > self.margin);
        open.then_some(state.tenure)
    }

    /// Whether a write may be begun at this moment, and in which tenure it is decided upon.
    pub(crate) fn pass(&self) -> Result<Tenure, Problem> {
        self.tenure().ok_or_else(closed)
    }

    /// Whether a write that was decided upon in a tenure may be begun at this moment.
    pub(crate) fn pass_in(&self, tenure: Tenure) -> Result<(), Problem> {
        if self.tenure() == Some(tenure) { Ok(()) } else { Err(closed()) }
    }
}

fn closed() -> Problem {
    let detail = "the proxy does not hold its own lock on the upstream, or lost it while this \
                  waited: nothing was written";
    Problem::new(Code::NotReady, detail).retry_after(AGAIN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold_client::Client;
    use leasehold_client_fake::{Fake, Reply};

    /// Nobody keeps the gate here: it looks at the clock itself.
    #[tokio::test]
    async fn it_is_closed_once_the_validity_is_over_whoever_has_run() {
        let service = Fake::start(|asked| match asked.path() {
            "/v1/acquire-lock" => Reply::grant(asked, 7, 1000),
            _ => Reply::code(503, leasehold_client::wire::Code::NoLeader),
        });
        let service = service.await.expect("a port");
        let client = Client::new(service.url()).expect("a client");
        let guard = client.acquire("a").ttl(Duration::from_secs(1)).guard().await.expect("got");
        let margin = Duration::from_millis(200);
        let gate = Gate::new(margin);
        assert!(gate.pass().is_err());
        gate.open(guard.belief());
        let tenure = gate.pass().expect("it is open");
        guard.closing(margin).await;
        assert!(gate.pass().is_err() && gate.pass_in(tenure).is_err() && !gate.is_open());
    }
}
