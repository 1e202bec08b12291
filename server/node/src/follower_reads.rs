//! Linearizable reads on a node that does not lead: it asks the leader up to which entry it has to
//! be, and waits until it is there.
//!
//! Source: ReadIndex on followers, Ongaro's dissertation (2014), section 6.4.

use crate::answer::Failure;
use crate::codec::{self, Told};
use crate::node::Node;
use crate::peers::{Identity, Line};
use crate::runtime;
use crate::types::Member;
use openraft::async_runtime::WatchReceiver as _;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;

/// The leader needs one round of its own for the answer.
const TOLD_WITHIN: Duration = Duration::from_secs(2);
/// How long this node may take to catch up.
const APPLIED_WITHIN: Duration = Duration::from_secs(10);

/// The connection on which the leader is asked.
#[derive(Debug)]
pub(crate) struct FollowerReads {
    us: Arc<Identity>,
    line: Mutex<Option<(u64, Member, Line)>>,
}

impl FollowerReads {
    pub(crate) fn new(us: Arc<Identity>) -> Self {
        Self { us, line: Mutex::new(None) }
    }

    async fn read_index(&self, leader: u64, member: &Member) -> Result<u64, Failure> {
        let mut kept = self.line.lock().await;
        if kept.as_ref().is_none_or(|(id, at, _)| *id != leader || at != member) {
            let line = Line::new(self.us.clone(), leader, member);
            *kept = Some((leader, member.clone(), line));
        }
        let Some((.., line)) = kept.as_mut() else { return Err(Failure::NoLeader) };
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
                let (leader, member) = self.leader_elsewhere().ok_or(Failure::NoLeader)?;
                let index = self.inner.follower_reads.read_index(leader, &member).await?;
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
