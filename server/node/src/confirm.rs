//! Leadership confirmed by a quorum: the round behind every renewal and linearizable read.
//!
//! One round serves everybody who came before its first message was sent, and nobody who came
//! after. ReadIndex, never the vote lease: openraft forgets that lease on restart, and a
//! transfer of leadership breaks it.

use crate::answer::Failure;
use crate::runtime;
use openraft::ReadPolicy;
use openraft::errors::{ForwardReason, LinearizableReadError, RaftError};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// Requests that may wait for a round.
const WAITING_MAX: usize = 65_536;
/// How often a round is tried again while Raft says that its lease has run out.
const TRIES: u32 = 500;

/// The term whose leadership was confirmed.
type Confirmed = Result<u64, Failure>;
type Ask = oneshot::Sender<Confirmed>;

/// The way to the task that makes the rounds.
#[derive(Debug, Clone)]
pub(crate) struct Confirmer {
    asks: mpsc::Sender<Ask>,
}

impl Confirmer {
    /// Starts the task; it ends with the last `Confirmer`.
    pub(crate) fn start(raft: crate::Raft) -> Self {
        let (asks, waiting) = mpsc::channel(WAITING_MAX);
        runtime::spawn(make_rounds(raft, waiting));
        Self { asks }
    }

    /// Returns once a round that began after this call was acknowledged by a quorum, and the
    /// state is at least as new as that round. Answers the term in which this node led.
    pub(crate) async fn confirm(&self) -> Confirmed {
        let (ask, answer) = oneshot::channel();
        self.asks.try_send(ask).map_err(|_| Failure::Overloaded)?;
        answer.await.unwrap_or(Err(Failure::ShuttingDown))
    }
}

async fn make_rounds(raft: crate::Raft, mut waiting: mpsc::Receiver<Ask>) {
    while let Some(first) = waiting.recv().await {
        let mut served = vec![first];
        while let Ok(next) = waiting.try_recv() {
            served.push(next);
        }
        let result = round(&raft).await;
        for ask in served {
            let _ = ask.send(result.clone());
        }
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
