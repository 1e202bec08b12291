//! Linearizable reads on a node that does not lead: it asks the leader up to which entry it has to
//! be, and waits until it is there.
//!
//! Source: ReadIndex on followers, Ongaro's dissertation (2014), section 6.4.

use crate::answer::Failure;
use crate::codec::{self, Told};
use crate::node::Node;
use crate::peers::{Identity, Line};
use crate::rounds::{Round, Rounds};
use crate::runtime;
use crate::types::Member;
use openraft::async_runtime::WatchReceiver as _;
use std::sync::Arc;
use std::time::Duration;

/// The leader needs one round of its own for the answer.
const TOLD_WITHIN: Duration = Duration::from_secs(2);
/// How long this node may take to catch up.
const APPLIED_WITHIN: Duration = Duration::from_secs(10);

/// Who leads, and where.
type Leader = (u64, Member);
/// Up to which entry to read.
type ReadIndex = Result<u64, Failure>;

/// The way to the task that asks the leader, once for all who read.
#[derive(Debug)]
pub(crate) struct FollowerReads(Rounds<Leader, ReadIndex>);

impl FollowerReads {
    /// Starts the task; it ends with this.
    pub(crate) fn start(us: Arc<Identity>) -> Self {
        Self(Rounds::start(AskLeader { us, line: None }))
    }
}

struct AskLeader {
    us: Arc<Identity>,
    line: Option<(Leader, Line)>,
}

impl Round<Leader> for AskLeader {
    type Answer = ReadIndex;

    async fn make(&mut self, leader: Leader) -> ReadIndex {
        if self.line.as_ref().is_none_or(|(to, _)| *to != leader) {
            let line = Line::new(self.us.clone(), leader.0, &leader.1);
            self.line = Some((leader, line));
        }
        let Some((_, line)) = self.line.as_mut() else { return Err(Failure::NoLeader) };
        match line.call(codec::encode_read_index(), TOLD_WITHIN).await {
            Ok(Told::ReadIndex(index)) => Ok(index),
            Ok(_) => Err(Failure::NoLeader),
            Err(cause) => {
                tracing::debug!(%cause, "the leader did not say up to where to read");
                Err(Failure::NoLeader)
            }
        }
    }
}

impl Node {
    /// Returns once the state of this node, whoever leads, holds everything that was answered
    /// before this call.
    pub(crate) async fn caught_up(&self) -> Result<(), Failure> {
        match self.check_open() {
            Ok(()) => self.inner.confirmer.confirm().await.map(drop),
            Err(Failure::NoLeader) => {
                let leader = self.leader_elsewhere().ok_or(Failure::NoLeader)?;
                let index = self.inner.follower_reads.0.ask(leader).await??;
                self.applied(index).await
            }
            Err(failure) => Err(failure),
        }
    }

    async fn applied(&self, index: u64) -> Result<(), Failure> {
        let mut progress = self.inner.raft.data_metrics();
        let give_up_at = runtime::now() + APPLIED_WITHIN;
        while self.inner.shared.applied().map_or(0, |id| id.index) < index {
            match runtime::timeout_at(give_up_at, progress.changed()).await {
                Some(Ok(())) => {}
                Some(Err(_)) => return Err(Failure::ShuttingDown),
                None => return Err(Failure::NoLeader),
            }
        }
        Ok(())
    }
}
