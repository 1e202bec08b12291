//! Gaining and losing leadership, and what must have happened before a leader answers.

use crate::batcher::Batcher;
use crate::confirm::Confirmer;
use crate::hub::Hub;
use crate::hub::cell::ReplyTo;
use crate::level::Raising;
use crate::metrics::Metrics;
use crate::peers::Identity;
use crate::propose::{Class, Proposal};
use crate::runtime;
use crate::state::Shared;
use crate::types::CommittedLeader;
use leasehold_core::{ClusterId, Command, Limits};
use openraft::async_runtime::WatchReceiver;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{oneshot, watch};

const LOOK_AGAIN: Duration = Duration::from_millis(50);

pub(crate) struct Leadership {
    pub(crate) raft: crate::Raft,
    pub(crate) hub: Arc<Hub>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) confirmer: Confirmer,
    pub(crate) metrics: Metrics,
    /// Told to the batcher and to whoever asks whether this node leads.
    pub(crate) leading: watch::Sender<Option<CommittedLeader>>,
    pub(crate) batcher: Arc<Batcher>,
    pub(crate) identity: Arc<Identity>,
    /// The limits of a cluster that is founded here.
    pub(crate) seed: Limits,
}

impl Leadership {
    /// Follows Raft until it stops.
    pub(crate) async fn run(self) {
        let mut metrics = self.raft.server_metrics();
        let mut led = None;
        loop {
            let now = self.leader();
            if now != led {
                if led.take().is_some() {
                    self.lose();
                }
                if let Some(leader) = now
                    && self.gain(leader).await
                {
                    led = Some(leader);
                }
            }
            // Raft tells of a change through one channel and of the leader through another, which
            // may lag behind: so the second is looked at again even if nothing more is told.
            let changed = tokio::select! {
                changed = metrics.changed() => changed.is_ok(),
                () = runtime::sleep(LOOK_AGAIN) => true,
            };
            if !changed {
                self.lose();
                return;
            }
        }
    }

    /// The leadership of this node. Both are asked: a restarted node still has the vote that made
    /// it a leader once.
    fn leader(&self) -> Option<CommittedLeader> {
        let leader = self.raft.as_leader().ok().filter(|_| self.raft.is_leader());
        leader.map(|leader| leader.to_committed_leader_id())
    }

    /// Waits until an entry of the own term is applied: whatever an earlier leader had committed
    /// is in the state by then. Only after that is anything timed or answered.
    async fn gain(&self, leader: CommittedLeader) -> bool {
        if self.confirmer.confirm().await.is_err() {
            return false;
        }
        if self.leader() != Some(leader) {
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
        runtime::spawn(found(
            self.shared.clone(),
            self.batcher.clone(),
            self.leading.subscribe(),
            self.seed.clone(),
        ));
        let raising = Raising {
            raft: self.raft.clone(),
            shared: self.shared.clone(),
            batcher: self.batcher.clone(),
            identity: self.identity.clone(),
            leading: self.leading.subscribe(),
        };
        runtime::spawn(raising.run(leader));
        true
    }

    fn lose(&self) {
        self.leading.send_replace(None);
        self.metrics.leading.set(0);
        self.hub.end();
        if self.hub.is_stopped() {
            tracing::info!("stopped leading");
        } else {
            tracing::warn!("not leading any more");
        }
    }
}

/// Gives a new cluster its id and its limits, unless it has them. Whoever leads first does it: the
/// founder may be gone before its entry is committed.
async fn found(
    shared: Arc<Shared>,
    batcher: Arc<Batcher>,
    leading: watch::Receiver<Option<CommittedLeader>>,
    seed: Limits,
) {
    let cluster = ClusterId(runtime::random());
    while shared.table.read().cluster().is_none() && leading.borrow().is_some() {
        let command = Command::Found { cluster, limits: Box::new(seed.clone()) };
        let (reply, answer) = oneshot::channel();
        if batcher.push(Class::End, Proposal::new(command, ReplyTo::Once(reply), None)).is_ok() {
            batcher.kick();
            let _ = answer.await;
        } else {
            runtime::sleep(LOOK_AGAIN).await;
        }
    }
}
