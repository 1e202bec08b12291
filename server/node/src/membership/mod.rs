//! Members come and go: a learner is added, promoted to a voter, removed.
//!
//! | file | holds |
//! | --- | --- |
//! | `add`, `promote`, `remove` | one change a file: what it asks for, and what it refuses |
//! | `refusal` | why a change is not made |
//! | `upkeep` | the task that notices what changes by itself: addresses, the own removal |
//! | `moved` | which addresses are entered anew |
//!
//! Every change is one log entry that moves at most one voter, so any quorum before it and any
//! quorum after it have a node in common, and a leader that dies in the middle leaves nothing half
//! done. One change at a time: each is proposed on condition that the members are still those it
//! was decided on, and that their last change is committed.
//!
//! Source: single-server changes, Ongaro's dissertation (2014), section 4.1, with the rule that a
//! leader first commits an entry of its own term.

mod add;
mod moved;
mod promote;
mod refusal;
mod remove;
mod upkeep;

pub use refusal::MembershipError;
pub(crate) use upkeep::{Upkeep, stranger};

use crate::node::{ANSWER_WITHIN, Node};
use crate::runtime;
use crate::types::{LogId, Member, Membership, Payload, StoredMembership, TypeConfig};
use openraft::async_runtime::WatchReceiver as _;
use openraft::errors::{ClientWriteError, ForwardReason, RaftError};
use openraft::raft::Precondition;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// Members of one cluster: each is asked by each how it is, and a leader feeds all of them.
pub(crate) const MEMBERS_MAX: usize = 31;
/// How often a change is proposed anew while Raft says that its lease has run out, and how soon.
const TRIES: u32 = 200;
const AGAIN: Duration = Duration::from_millis(10);

/// The lives of nodes that are members, as one log entry has them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Members {
    /// The entry.
    pub(crate) at: Option<LogId>,
    /// Incarnations by id.
    pub(crate) lives: BTreeMap<u64, u128>,
}

impl Members {
    pub(crate) fn of(stored: &StoredMembership) -> Self {
        let lives = stored.nodes().map(|(id, member)| (*id, member.incarnation)).collect();
        Self { at: *stored.log_id(), lives }
    }

    pub(crate) fn has(&self, id: u64, incarnation: u128) -> bool {
        self.lives.get(&id) == Some(&incarnation)
    }
}

/// The change that is on its way, in words.
#[derive(Debug, Clone, Default)]
pub(crate) struct OnItsWay {
    change: Arc<Mutex<Option<String>>>,
}

impl OnItsWay {
    fn begin(&self, change: String) -> Result<Turn, MembershipError> {
        let mut current = self.change.lock();
        if let Some(change) = &*current {
            return Err(MembershipError::InProgress { change: change.clone() });
        }
        *current = Some(change);
        Ok(Turn(self.clone()))
    }
}

/// Held by the one change that is on its way.
struct Turn(OnItsWay);

impl Drop for Turn {
    fn drop(&mut self) {
        *self.0.change.lock() = None;
    }
}

/// What the next members are decided on.
struct Base {
    stored: Arc<StoredMembership>,
    voters: BTreeSet<u64>,
    nodes: BTreeMap<u64, Member>,
}

impl Base {
    fn member(&self, id: u64) -> Result<&Member, MembershipError> {
        self.nodes.get(&id).ok_or(MembershipError::NoSuchNode { id })
    }
}

impl Node {
    /// Whether a node counts for the quorum, as far as this one knows.
    #[must_use]
    pub fn is_voter(&self, id: u64) -> bool {
        self.inner.raft.voter_ids().any(|voter| voter == id)
    }

    /// Other members that did not answer when they were last asked how they are.
    #[must_use]
    pub fn members_unreachable(&self) -> u64 {
        self.inner.metrics.members_unreachable()
    }

    /// Runs a change to its end, whether or not somebody still waits for it: it is in the log by
    /// then, and the next one has to know.
    async fn change<F>(&self, what: String, run: F) -> Result<(), MembershipError>
    where
        F: Future<Output = Result<(), MembershipError>> + Send + 'static,
    {
        if self.check_leading().is_err() {
            return Err(MembershipError::NotLeading { leader: self.leader() });
        }
        if self.inner.identity.member().peer.is_empty() {
            return Err(MembershipError::Alone);
        }
        let turn = self.inner.changes.begin(what.clone())?;
        let (tell, told) = oneshot::channel();
        runtime::spawn(async move {
            let result = run.await;
            drop(turn);
            match &result {
                Ok(()) => tracing::info!(change = what, "members changed"),
                Err(why) => tracing::warn!(change = what, %why, "members not changed"),
            }
            let _ = tell.send(result);
        });
        let told = runtime::timeout_at(runtime::now() + ANSWER_WITHIN, told).await;
        told.and_then(Result::ok).unwrap_or(Err(MembershipError::OutcomeUnknown))
    }

    /// The members now, if their last change is committed.
    fn base(&self) -> Result<Base, MembershipError> {
        let metrics = self.inner.raft.server_metrics().borrow_watched().clone();
        let stored = metrics.membership_config;
        if stored.log_id() != metrics.committed_membership_config.log_id() {
            let change = "an earlier change that is not committed yet".to_owned();
            return Err(MembershipError::InProgress { change });
        }
        let voters = stored.voter_ids().collect();
        let nodes = stored.nodes().map(|(id, member)| (*id, member.clone())).collect();
        Ok(Base { stored, voters, nodes })
    }

    /// Makes these the members, if they are still what `base` was.
    async fn replace(
        &self,
        base: &Base,
        voters: BTreeSet<u64>,
        nodes: BTreeMap<u64, Member>,
    ) -> Result<(), MembershipError> {
        let refused = |cause: String| MembershipError::Refused { cause };
        let next = Membership::new(vec![voters], nodes).map_err(|e| refused(e.to_string()))?;
        let last_membership_log_id = *base.stored.log_id();
        for _ in 0..TRIES {
            let unchanged = Precondition::LastMembershipLogId { last_membership_log_id };
            let raft = &self.inner.raft;
            match raft.append_membership(next.clone(), Payload::Blank, [unchanged]).await {
                Ok(_) => return Ok(()),
                Err(error) if is_passing(&error) => runtime::sleep(AGAIN).await,
                Err(error) => return Err(error.into()),
            }
        }
        Err(MembershipError::NotLeading { leader: self.leader() })
    }

    /// Whether a quorum of `voters` is there: if not, a change to them could not be undone, since
    /// nothing would be decided any more. Answers those that are not.
    async fn check_quorum(&self, voters: &BTreeSet<u64>) -> Result<Vec<u64>, MembershipError> {
        let round = self.inner.survey.round().await;
        let own = self.inner.id;
        let answers = |id: &u64| *id == own || round.get(id).is_some_and(|one| one.told.is_ok());
        let silent: Vec<u64> = voters.iter().copied().filter(|id| !answers(id)).collect();
        let needed = voters.len() / 2 + 1;
        if voters.len() - silent.len() < needed {
            return Err(MembershipError::QuorumAtRisk { voters: voters.len(), needed, silent });
        }
        Ok(silent)
    }
}

/// It is not refused for good: the lease runs out when a quorum was slow, and a new leader has to
/// commit an entry of its own first.
fn is_passing(error: &RaftError<TypeConfig, ClientWriteError<TypeConfig>>) -> bool {
    use openraft::errors::ChangeMembershipError::UncommittedLeaderLog;
    match error {
        RaftError::APIError(ClientWriteError::ForwardToLeader(forward)) => {
            forward.reason == ForwardReason::LeaseExpired
        }
        RaftError::APIError(ClientWriteError::ChangeMembershipError(UncommittedLeaderLog(_))) => {
            true
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests;
