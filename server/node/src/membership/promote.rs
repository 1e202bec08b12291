//! A learner becomes a voter.

use super::MembershipError;
use crate::node::Node;
use crate::propose::Class;
use leasehold_core::Command;
use openraft::async_runtime::WatchReceiver as _;
use std::collections::BTreeSet;

/// A learner may lack so many entries and count as caught up: under load there are always some on
/// their way, and these come in less than an election.
const BEHIND_MAX: u64 = 500;

impl Node {
    /// Gives a learner a vote. A voter stays one.
    ///
    /// # Errors
    /// [`MembershipError::Behind`] while it has not caught up; the others say what else stands in
    /// the way. Nothing has changed then, save with [`MembershipError::OutcomeUnknown`].
    pub async fn promote(&self, id: u64) -> Result<(), MembershipError> {
        let node = self.clone();
        let promoting = async move { node.promote_learner(id).await };
        self.change(format!("promoting node {id}"), promoting).await
    }

    async fn promote_learner(self, id: u64) -> Result<(), MembershipError> {
        let base = self.base()?;
        base.member(id)?;
        if base.voters.contains(&id) {
            return Ok(());
        }
        self.check_caught_up(id)?;
        let mut voters = base.voters.clone();
        voters.insert(id);
        if self.check_quorum(&voters).await?.contains(&id) {
            return Err(MembershipError::NotHeardOf { id });
        }
        self.raise_ttl_min(&voters).await?;
        self.replace(&base, voters, base.nodes.clone()).await
    }

    fn check_caught_up(&self, id: u64) -> Result<(), MembershipError> {
        let metrics = self.inner.raft.metrics().borrow_watched().clone();
        let followed = metrics.replication.and_then(|followed| followed.get(&id).copied());
        let Some(Some(matched)) = followed else {
            return Err(MembershipError::NotHeardOf { id });
        };
        let entries = metrics.last_log_index.unwrap_or(0).saturating_sub(matched.index);
        if entries > BEHIND_MAX {
            return Err(MembershipError::Behind { id, entries });
        }
        Ok(())
    }

    /// Before there are two voters, the limits suit a cluster.
    async fn raise_ttl_min(&self, voters: &BTreeSet<u64>) -> Result<(), MembershipError> {
        let raised = self.inner.timing.raised(&self.limits()).filter(|_| voters.len() > 1);
        let Some(raised) = raised else { return Ok(()) };
        let least = raised.ttl_min_ms;
        let command = Command::SetLimits(Box::new(raised));
        match self.ask(Class::End, command, None).await {
            Ok(_) => {
                tracing::info!(ttl_min_ms = least, "the shortest TTL is now that of a cluster");
                Ok(())
            }
            Err(failure) => Err(MembershipError::Refused {
                cause: format!("the shortest TTL could not be raised to {least} ms: {failure:?}"),
            }),
        }
    }
}
