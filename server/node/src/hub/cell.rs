//! One request that hangs between its client and the log.
//!
//! Both ends may let go at any moment: the client hangs up, or the log grants. Whoever comes
//! second finds here what the first one did.

use crate::answer::Failure;
use crate::hub::due::PassOn;
use leasehold_core::TicketId;
use leasehold_core::outcome::{Grant, Outcome};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::{Notify, oneshot};

/// How far a request has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Its command is in the queue of proposals or in the log.
    Proposed,
    /// It stands in line.
    Queued { ticket: TicketId, attachment: u32 },
    /// The log granted it, and the client has not been told. If it never is, this passes on.
    Granted(PassOn),
    /// It was answered.
    Over,
    /// The client is gone.
    Abandoned { at: Instant },
}

/// Shared by the request's future and the hub.
#[derive(Debug)]
pub(crate) struct Cell {
    phase: Mutex<Phase>,
    changed: Notify,
}

impl Cell {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { phase: Mutex::new(Phase::Proposed), changed: Notify::new() })
    }

    pub(crate) fn phase(&self) -> Phase {
        *self.phase.lock()
    }

    /// The log got further with it; false if the client is gone.
    pub(crate) fn advance(&self, next: Phase) -> bool {
        let mut phase = self.phase.lock();
        if matches!(*phase, Phase::Abandoned { .. }) {
            return false;
        }
        *phase = next;
        drop(phase);
        self.changed.notify_one();
        true
    }

    /// Returns when the log got further with it, also if that was before this call.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// The client is gone; answers how far it had come.
    pub(crate) fn abandon(&self, at: Instant) -> Phase {
        let mut phase = self.phase.lock();
        match *phase {
            Phase::Over => Phase::Over,
            before => {
                *phase = Phase::Abandoned { at };
                before
            }
        }
    }
}

/// What the hub tells a request.
#[derive(Debug)]
pub(crate) enum Answer {
    /// A grant, and the anchor of its validity.
    Granted(GrantedAt),
    /// Any other outcome of a command.
    Outcome {
        outcome: Outcome,
        /// When the entry was handed to Raft.
        handed: Instant,
        revision: u64,
    },
    /// There is no outcome, or none is known.
    Failed(Failure),
}

#[derive(Debug)]
pub(crate) struct GrantedAt {
    pub(crate) grant: Arc<Grant>,
    pub(crate) ttl_ms: u64,
    /// When the granting entry was handed to Raft.
    pub(crate) handed: Instant,
    /// Until when the client may count on it.
    pub(crate) promised: Instant,
    /// Until when the service counts.
    pub(crate) deadline: Instant,
    pub(crate) revision: u64,
}

/// Where an outcome goes.
#[derive(Debug)]
pub(crate) enum ReplyTo {
    /// A request that has one answer.
    Once(oneshot::Sender<Answer>),
    /// An acquire, which may have to stand in line first.
    Acquire(Acquirer),
}

/// An acquire whose client may hang up.
#[derive(Debug)]
pub(crate) struct Acquirer {
    pub(crate) cell: Arc<Cell>,
    pub(crate) answer: oneshot::Sender<Answer>,
    /// With a request id its place is kept for the claim window.
    pub(crate) has_request_id: bool,
}

impl ReplyTo {
    pub(crate) fn fail(self, failure: Failure) {
        let answer = match self {
            Self::Once(answer) => answer,
            Self::Acquire(acquirer) => {
                acquirer.cell.advance(Phase::Over);
                acquirer.answer
            }
        };
        // An error means that the client is gone, which is as well.
        let _ = answer.send(Answer::Failed(failure));
    }

    /// The client is gone, so that nothing need be begun for it.
    pub(crate) fn is_abandoned(&self) -> bool {
        match self {
            Self::Acquire(acquirer) => matches!(acquirer.cell.phase(), Phase::Abandoned { .. }),
            Self::Once(_) => false,
        }
    }
}
