//! Gaining and losing leadership, and what must have happened before a leader answers.
//!
//! A term is led here at most once. Whoever loses it has left it in Raft as well, so that the term
//! alone says whether what was decided from memory still counts: nothing that an earlier stint had
//! on its way can take effect in a later one.
//!
//! A leader that no quorum answers does not stay one. It could do nothing but refuse and claim what
//! is not true any more, and where only one direction of its network is cut its heartbeats would
//! keep the others from electing somebody who can work. Source: Ongaro's dissertation (2014),
//! section 6.2.

use crate::batcher::Batcher;
use crate::config::Timing;
use crate::confirm::Confirmer;
use crate::contact::Contact;
use crate::history::History;
use crate::hub::Hub;
use crate::hub::cell::ReplyTo;
use crate::level::Raising;
use crate::metrics::Metrics;
use crate::peers::Identity;
use crate::propose::{Class, Proposal};
use crate::runtime;
use crate::state::Shared;
use crate::types::{CommittedLeader, LeaderId, LogId, Vote, VoteAsk};
use leasehold_core::{ClusterId, Command, Limits};
use openraft::async_runtime::WatchReceiver;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{oneshot, watch};

const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// To step down takes one write to the log file.
const STEP_DOWN_WITHIN: Duration = Duration::from_secs(10);

pub(crate) struct Leadership {
    pub(crate) id: u64,
    pub(crate) raft: crate::Raft,
    pub(crate) hub: Arc<Hub>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) confirmer: Confirmer,
    pub(crate) contact: Arc<Contact>,
    pub(crate) metrics: Metrics,
    /// Told to the batcher and to whoever asks whether this node leads.
    pub(crate) leading: watch::Sender<Option<CommittedLeader>>,
    pub(crate) batcher: Arc<Batcher>,
    pub(crate) timing: Timing,
    pub(crate) identity: Arc<Identity>,
    pub(crate) history: History,
    /// The limits of a cluster that is founded here.
    pub(crate) seed: Limits,
}

/// An election that this node won.
struct Won {
    leader: CommittedLeader,
    /// When it was seen to have won: not before the last vote was in.
    at: Instant,
    /// Whether it answers as the leader.
    began: bool,
    silence: Silence,
}

impl Leadership {
    /// Follows Raft until it stops.
    pub(crate) async fn run(self) {
        let mut metrics = self.raft.server_metrics();
        let (mut won, mut over) = (None, None);
        loop {
            self.look(&mut won, &mut over).await;
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

    /// `over`: the newest term that was lost here.
    async fn look(&self, won: &mut Option<Won>, over: &mut Option<CommittedLeader>) {
        let now = self.leader();
        if let Some(before) = won.take_if(|won| Some(won.leader) != now) {
            *over = Some(before.leader);
            if before.began {
                self.lose();
            }
        }
        let Some(leader) = now else { return };
        if *over == Some(leader) {
            return step_down(&self.raft, self.id, leader).await;
        }
        let won_now = won.get_or_insert_with(|| Won::now(leader, self.timing));
        if self.is_cut_off(won_now) {
            tracing::warn!(term = leader.term, "no quorum answers: stepping down");
            self.metrics.step_downs.inc();
            if won_now.began {
                self.lose();
            }
            (*won, *over) = (None, Some(leader));
            return step_down(&self.raft, self.id, leader).await;
        }
        if !won_now.began {
            won_now.began = self.gain(leader, won_now.at).await;
        }
    }

    /// The leadership of this node. Both are asked: a restarted node still has the vote that made
    /// it a leader once.
    fn leader(&self) -> Option<CommittedLeader> {
        let leader = self.raft.as_leader().ok().filter(|_| self.raft.is_leader());
        leader.map(|leader| leader.to_committed_leader_id())
    }

    fn is_cut_off(&self, won: &mut Won) -> bool {
        if self.raft.voter_ids().eq([self.id]) {
            self.contact.acknowledged(runtime::now());
            return false;
        }
        let acked = self.contact.last_quorum_acked();
        if let Some(at) = acked {
            // Before it has begun the state may lack what an earlier leader had committed.
            if won.began {
                self.contact.acknowledged(at);
            } else {
                self.contact.touch(at);
            }
        }
        won.silence.lasts(runtime::now(), acked.unwrap_or(won.at).max(won.at))
    }

    /// Waits until an entry of the own term is applied: whatever an earlier leader had committed
    /// is in the state by then. Only after that is anything timed or answered.
    ///
    /// Deadlines count from `won_at`. That is early enough for the bound (a lease ends within its
    /// TTL and one election after the last change of leaders, however long the round here takes),
    /// and late enough for the promise: a validity that an earlier leader gave is anchored before
    /// a quorum acknowledged that leader, and one of that quorum voted for this node after that.
    async fn gain(&self, leader: CommittedLeader, won_at: Instant) -> bool {
        if self.confirmer.confirm().await.is_err() || !self.begin_history().await {
            return false;
        }
        if self.leader() != Some(leader) {
            return false;
        }
        // The table is held, so that no entry of this term is applied before its deadlines start.
        let table = self.shared.table.read();
        self.hub.begin(leader.term, won_at, &table);
        drop(table);
        self.metrics.leader_changes.inc();
        self.metrics.leading.set(1);
        tracing::info!(term = leader.term, "leading");
        self.leading.send_replace(Some(leader));
        let order = Order {
            shared: self.shared.clone(),
            batcher: self.batcher.clone(),
            leading: self.leading.subscribe(),
        };
        let (seed, timing) = (self.seed.clone(), self.timing);
        let is_alone = self.raft.voter_ids().count() < 2;
        runtime::spawn(async move {
            order.found(seed).await;
            if !is_alone {
                order.raise_ttl_min(timing).await;
            }
        });
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

    /// The history of a state that was brought back is whole from here on, as its hold begins here.
    /// Before anything is answered and anybody joins.
    async fn begin_history(&self) -> bool {
        let at_ms = self.shared.table.read().at_ms();
        let (history, now_ms) = (self.history.clone(), runtime::wall_clock_ms().max(at_ms));
        let begun = runtime::blocking(move || history.begin(now_ms)).await;
        begun.is_some_and(|begun| begun.is_ok())
    }

    fn lose(&self) {
        let led = self.leading.send_replace(None).is_some();
        self.metrics.leading.set(0);
        self.hub.end();
        match (led, self.hub.is_stopped()) {
            (false, _) => {}
            (true, true) => tracing::info!("stopped leading"),
            (true, false) => tracing::warn!("not leading any more"),
        }
    }
}

impl Won {
    fn now(leader: CommittedLeader, timing: Timing) -> Self {
        let at = runtime::now();
        let (limit, grace) = (timing.election(), timing.awake());
        let silence = Silence { limit, grace, looked: at, overdue: Duration::ZERO };
        Self { leader, at, began: false, silence }
    }
}

/// Whether a quorum has been silent for too long. Beyond the limit only time counts in which this
/// process ran: one that was frozen first hears what came for it meanwhile.
struct Silence {
    limit: Duration,
    grace: Duration,
    looked: Instant,
    overdue: Duration,
}

impl Silence {
    /// `acked`: when the newest message was sent that a quorum has answered.
    fn lasts(&mut self, now: Instant, acked: Instant) -> bool {
        let ran = now.saturating_duration_since(self.looked).min(2 * LOOK_AGAIN);
        self.looked = now;
        if now.saturating_duration_since(acked) < self.limit {
            self.overdue = Duration::ZERO;
        } else {
            self.overdue += ran;
        }
        self.overdue >= self.grace
    }
}

/// Leaves the leadership of a term for good, by voting for another member in the next one. Nobody
/// counts this vote unless that member stands in that term and its log is long enough.
///
/// openraft has no way of its own to do this: without a higher vote a leader stays one, and after a
/// transfer that led nowhere it is one that refuses every entry.
pub(crate) async fn step_down(raft: &crate::Raft, id: u64, of: CommittedLeader) {
    let Some(other) = raft.voter_ids().find(|voter| *voter != id) else { return };
    let term = of.term.saturating_add(1);
    let ask = VoteAsk {
        vote: Vote { leader_id: LeaderId { term, voted_for: other }, committed: false },
        // Longer than any log, since it is not the other one that asks.
        last_log_id: Some(LogId::new(CommittedLeader::new(term), u64::MAX)),
        leadership_transfer: true,
    };
    let voted = runtime::timeout_at(runtime::now() + STEP_DOWN_WITHIN, raft.vote(ask)).await;
    match voted {
        Some(Ok(told)) => tracing::debug!(term, granted = told.vote_granted, "stepped down"),
        Some(Err(error)) => tracing::warn!(%error, "raft has stopped"),
        None => tracing::warn!("stepping down waits for the disk"),
    }
}

/// What a new leader sees to as long as it leads.
struct Order {
    shared: Arc<Shared>,
    batcher: Arc<Batcher>,
    leading: watch::Receiver<Option<CommittedLeader>>,
}

impl Order {
    fn leads(&self) -> bool {
        self.leading.borrow().is_some()
    }

    /// Gives a new cluster its id and its limits, unless it has them. Whoever leads first does it:
    /// the founder may be gone before its entry is committed.
    async fn found(&self, seed: Limits) {
        let cluster = ClusterId(runtime::random());
        while self.shared.table.read().cluster().is_none() && self.leads() {
            self.offer(Command::Found { cluster, limits: Box::new(seed.clone()) }).await;
        }
    }

    /// The limits suit the cluster, also after its elections were made longer.
    async fn raise_ttl_min(&self, timing: Timing) {
        while self.leads() {
            let raised = timing.raised(self.shared.table.read().limits());
            let Some(raised) = raised else { return };
            self.offer(Command::SetLimits(Box::new(raised))).await;
        }
    }

    /// Returns when it was answered, or when it is time to offer it again.
    async fn offer(&self, command: Command) {
        let (reply, answer) = oneshot::channel();
        let proposal = Proposal::new(command, ReplyTo::Once(reply), None);
        if self.batcher.push(Class::End, proposal).is_ok() {
            self.batcher.kick();
            let _ = answer.await;
        } else {
            runtime::sleep(LOOK_AGAIN).await;
        }
    }
}

#[cfg(test)]
#[path = "leadership_tests.rs"]
mod tests;
