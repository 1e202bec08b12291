//! Handing leadership over to another voter while the cluster works.
//!
//! The order keeps clients whole: nothing more is handed to Raft, what it has is committed and
//! answered, and only then the other one is told to stand. What comes meanwhile waits, and is
//! told that nobody leads when the other one does: nothing was done, so it can be asked again.

use crate::leadership::step_down;
use crate::node::Node;
use crate::runtime;
use crate::types::{CommittedLeader, LogId};
use openraft::async_runtime::{Instant as _, WatchReceiver as _};
use std::time::Duration;

/// A voter that lacks more entries than this would keep everybody waiting while it gets them.
const BEHIND_MAX: u64 = 1_000;

/// Why leadership was not handed over.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TransferError {
    /// Only the leader can.
    #[error("this node does not lead")]
    NotLeader {
        /// Who does, if that is known.
        leader: Option<u64>,
    },
    /// No such node.
    #[error("node {id} is not a member of the cluster")]
    Unknown {
        /// Which one.
        id: u64,
    },
    /// It has no vote.
    #[error("node {id} is a learner, and only a voter can lead: promote it first")]
    Learner {
        /// Which one.
        id: u64,
    },
    /// It has not answered for as long as a leader's lease lasts.
    #[error("node {id} does not answer")]
    Silent {
        /// Which one.
        id: u64,
    },
    /// It would first have to get what it lacks.
    #[error("node {id} is {entries} log entries behind: try again when it has caught up")]
    Behind {
        /// Which one.
        id: u64,
        /// How many it lacks.
        entries: u64,
    },
    /// There is no voter that could take over.
    #[error("no other voter answers and has caught up")]
    Nobody,
    /// One at a time.
    #[error("leadership is being handed over already")]
    UnderWay,
    /// It was told to, and nothing came of it. This node has given leadership up all the same.
    #[error(
        "node {id} did not take over within {within_ms} ms: this node has stepped down, and the \
         voters elect a leader among themselves"
    )]
    NotDone {
        /// Which one.
        id: u64,
        /// How long it had, in milliseconds.
        within_ms: u64,
    },
    /// Somebody else was faster.
    #[error("node {leader} leads now, and not node {id}")]
    Another {
        /// Who was to lead.
        id: u64,
        /// Who does.
        leader: u64,
    },
    /// Raft has stopped.
    #[error("the node is stopping")]
    Stopping,
}

/// A voter as the leader sees it.
#[derive(Debug, Clone, Copy)]
struct Voter {
    id: u64,
    /// It has answered within the time of a lease.
    answers: bool,
    /// The newest entry that it is known to have.
    has: Option<LogId>,
}

impl Node {
    /// Hands leadership over to a voter, or to the one that has caught up furthest; answers who
    /// leads then.
    ///
    /// # Errors
    /// [`TransferError`] says why it could not begin; only after [`TransferError::NotDone`] and
    /// [`TransferError::Another`] this node does not lead any more.
    pub async fn transfer(&self, to: Option<u64>) -> Result<u64, TransferError> {
        let inner = &self.inner;
        let leader = *inner.leading.borrow();
        let leader = leader.ok_or_else(|| TransferError::NotLeader { leader: self.leader() })?;
        if to == Some(inner.id) {
            return Ok(inner.id);
        }
        let leads = self.transfer_to(self.heir(to)?, leader).await?;
        match to {
            Some(id) if id != leads => Err(TransferError::Another { id, leader: leads }),
            _ => Ok(leads),
        }
    }

    /// To one that can, from the leadership of the present term.
    pub(crate) async fn transfer_to(
        &self,
        heir: u64,
        leader: CommittedLeader,
    ) -> Result<u64, TransferError> {
        let inner = &self.inner;
        let held = inner.batcher.hold().ok_or(TransferError::UnderWay)?;
        let began = runtime::now();
        // An entry that is not committed by then goes with the log all the same.
        let election = inner.timing.election();
        let _ = runtime::timeout_at(began + election / 2, held.idle()).await;
        inner.raft.trigger().transfer_leader(heir).await.map_err(|_| TransferError::Stopping)?;
        tracing::info!(to = heir, "handing leadership over");
        match runtime::timeout_at(began + election, self.leads_instead(leader)).await {
            Some(told) => told,
            None => {
                step_down(&inner.raft, inner.id, leader).await;
                Err(TransferError::NotDone { id: heir, within_ms: runtime::ms(election) })
            }
        }
    }

    /// Before the node stops: somebody else leads, if anybody can. Those who wait here are told
    /// that the node stops, and have their place with the next leader.
    ///
    /// Takes no longer than an election.
    pub async fn hand_over(&self) {
        if self.inner.leading.borrow().is_none() || self.inner.raft.voter_ids().count() < 2 {
            return;
        }
        self.inner.hub.leave();
        match self.transfer(None).await {
            Ok(to) => tracing::info!(to, "leadership was handed over"),
            Err(why) => tracing::warn!(%why, "leadership was not handed over"),
        }
    }

    /// Who takes over.
    pub(crate) fn heir(&self, to: Option<u64>) -> Result<u64, TransferError> {
        let voters = self.voters();
        let newest = self.inner.raft.data_metrics().borrow_watched().last_log;
        let lacks = |voter: &Voter| lacking(newest, voter.has);
        let Some(id) = to else {
            let can = |voter: &&Voter| voter.answers && lacks(voter) <= BEHIND_MAX;
            let best = voters.iter().filter(can).max_by_key(|voter| voter.has);
            return best.map(|voter| voter.id).ok_or(TransferError::Nobody);
        };
        let Some(voter) = voters.iter().find(|voter| voter.id == id) else {
            let metrics = self.inner.raft.server_metrics();
            return Err(match metrics.borrow_watched().membership_config.get_node(&id) {
                Some(_) => TransferError::Learner { id },
                None => TransferError::Unknown { id },
            });
        };
        match lacks(voter) {
            _ if !voter.answers => Err(TransferError::Silent { id }),
            entries if entries > BEHIND_MAX => Err(TransferError::Behind { id, entries }),
            _ => Ok(id),
        }
    }

    /// The other voters.
    fn voters(&self) -> Vec<Voter> {
        let lease = Duration::from_millis(self.inner.timing.election_max_ms);
        let metrics = self.inner.raft.data_metrics();
        let metrics = metrics.borrow_watched();
        let has = |id| metrics.replication.as_ref().and_then(|all| all.get(&id).copied().flatten());
        let answered = |id| metrics.heartbeat.as_ref()?.get(&id).copied().flatten();
        let answers = |id| answered(id).is_some_and(|at| at.elapsed() < lease);
        let others = self.inner.raft.voter_ids().filter(|id| *id != self.inner.id);
        others.map(|id| Voter { id, answers: answers(id), has: has(id) }).collect()
    }

    /// Returns once another node leads than the one that led in `before`.
    async fn leads_instead(&self, before: CommittedLeader) -> Result<u64, TransferError> {
        let mut metrics = self.inner.raft.server_metrics();
        loop {
            {
                let now = metrics.borrow_watched();
                let term = now.vote.leader_id.term;
                if let Some(leader) = now.current_leader.filter(|_| term > before.term) {
                    return Ok(leader);
                }
            }
            metrics.changed().await.map_err(|_| TransferError::Stopping)?;
        }
    }
}

fn lacking(newest: Option<LogId>, has: Option<LogId>) -> u64 {
    let index = |id: Option<LogId>| id.map_or(0, |id| id.index);
    index(newest).saturating_sub(index(has))
}
