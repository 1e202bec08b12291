//! Leadership confirmed by a quorum: the round behind every renewal and linearizable read.
//!
//! One round serves everybody who came before its first message was sent, and nobody who came
//! after. ReadIndex, never the vote lease: openraft forgets that lease on restart, and a
//! transfer of leadership breaks it.

use crate::answer::Failure;
use crate::rounds::{Round, Rounds};
use crate::runtime;
use openraft::ReadPolicy;
use openraft::errors::{ForwardReason, LinearizableReadError, RaftError};
use std::time::Duration;

/// How often a round is tried again while Raft says that its lease has run out.
const TRIES: u32 = 500;

/// The term whose leadership was confirmed.
type Confirmed = Result<u64, Failure>;

/// The way to the task that makes the rounds.
#[derive(Debug, Clone)]
pub(crate) struct Confirmer(Rounds<(), Confirmed>);

impl Confirmer {
    /// Starts the task; it ends with the last `Confirmer`.
    pub(crate) fn start(raft: crate::Raft) -> Self {
        Self(Rounds::start(ByQuorum(raft)))
    }

    /// Returns once a round that began after this call was acknowledged by a quorum, and the
    /// state is at least as new as that round. Answers the term in which this node led.
    pub(crate) async fn confirm(&self) -> Confirmed {
        self.0.ask(()).await?
    }
}

struct ByQuorum(crate::Raft);

impl Round<()> for ByQuorum {
    type Answer = Confirmed;

    async fn make(&mut self, (): ()) -> Confirmed {
        round(&self.0).await
    }
}

async fn round(raft: &crate::Raft) -> Confirmed {
    for _ in 0..TRIES {
        match raft.ensure_linearizable(ReadPolicy::ReadIndex).await {
            Ok(read) => return Ok(read.committed_leader_id().term),
            Err(RaftError::APIError(LinearizableReadError::ForwardToLeader(forward)))
                if forward.reason == ForwardReason::LeaseExpired =>
            {
                runtime::sleep(Duration::from_millis(10)).await;
            }
            Err(RaftError::APIError(_)) => return Err(Failure::NoLeader),
            Err(RaftError::Fatal(_)) => return Err(Failure::ShuttingDown),
        }
    }
    Err(Failure::NoLeader)
}
