//! Gaining and losing leadership, and what must have happened before a leader answers.

use crate::confirm::Confirmer;
use crate::hub::Hub;
use crate::metrics::Metrics;
use crate::runtime;
use crate::state::Shared;
use crate::types::CommittedLeader;
use openraft::async_runtime::WatchReceiver;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

pub(crate) struct Leadership {
    pub(crate) raft: crate::Raft,
    pub(crate) hub: Arc<Hub>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) confirmer: Confirmer,
    pub(crate) metrics: Metrics,
    /// Told to the batcher and to whoever asks whether this node leads.
    pub(crate) leading: watch::Sender<Option<CommittedLeader>>,
}

impl Leadership {
    /// Follows Raft until it stops.
    pub(crate) async fn run(self) {
        let mut metrics = self.raft.server_metrics();
        let mut led = None;
        loop {
            let now = self.raft.as_leader().ok().map(|leader| leader.to_committed_leader_id());
            if now != led {
                if led.take().is_some() {
                    self.lose();
                }
                if let Some(leader) = now {
                    // Not yet, if the round failed: asked again at the next change or after a while.
                    if self.gain(leader).await {
                        led = Some(leader);
                    }
                }
            }
            let changed = tokio::select! {
                changed = metrics.changed() => changed.is_ok(),
                () = runtime::sleep(Duration::from_millis(100)), if now != led => true,
            };
            if !changed {
                self.lose();
                return;
            }
        }
    }

    /// Waits until an entry of the own term is applied: whatever an earlier leader had committed
    /// is in the state by then. Only after that is anything timed or answered.
    async fn gain(&self, leader: CommittedLeader) -> bool {
        if self.confirmer.confirm().await.is_err() {
            return false;
        }
        let still = self.raft.as_leader().ok().map(|leader| leader.to_committed_leader_id());
        if still != Some(leader) {
            return false;
        }
        // The table is held, so that no entry of this term is applied before its deadlines start.
        let table = self.shared.table.read();
        self.hub.begin(leader.term, &table);
        drop(table);
        self.metrics.leader_changes.inc();
        self.metrics.leading.set(1);
        tracing::info!(term = leader.term, "leading");
        self.leading.send_replace(Some(leader));
        true
    }

    fn lose(&self) {
        self.leading.send_replace(None);
        self.metrics.leading.set(0);
        self.hub.end();
        tracing::warn!("not leading any more");
    }
}
