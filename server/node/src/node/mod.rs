//! The handle that the rest of the service talks to.

mod start;
#[cfg(test)]
pub(crate) mod tests;

pub use start::StartError;

use crate::answer::Failure;
use crate::backup::Turn;
use crate::batcher::{Batcher, NotQueued};
use crate::config::Timing;
use crate::confirm::Confirmer;
use crate::contact::Contact;
use crate::fatal::{Fatal, StorageFault};
use crate::follower_reads::FollowerReads;
use crate::forward::Answers;
use crate::history::History;
use crate::hub::Hub;
use crate::hub::cell::{Answer, ReplyTo};
use crate::membership::OnItsWay;
use crate::metrics::Metrics;
use crate::open::Opened;
use crate::peers::{Forwarder, Identity};
use crate::place::Place;
use crate::propose::{Class, Proposal};
use crate::reserve::Reserve;
use crate::runtime;
use crate::state::Shared;
use crate::status::{Reporter, Survey};
use crate::types::CommittedLeader;
use leasehold_core::{Command, LeaseId, Limits, Outcome};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{oneshot, watch};

/// An outcome that is not known after this is answered as exactly that.
pub(crate) const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// A node that has been ready stays so for this long without a leader: an election must not
/// empty a load balancer.
const READY_WITHOUT_LEADER: Duration = Duration::from_secs(30);

/// One node. Cheap to clone; all clones are the same node.
#[derive(Clone)]
pub struct Node {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) id: u64,
    pub(crate) hub: Arc<Hub>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) batcher: Arc<Batcher>,
    pub(crate) confirmer: Confirmer,
    pub(crate) answers: Answers,
    pub(crate) forwarder: Forwarder,
    pub(crate) follower_reads: FollowerReads,
    pub(crate) history: History,
    pub(crate) metrics: Metrics,
    pub(crate) contact: Arc<Contact>,
    pub(crate) timing: Timing,
    pub(crate) raft: crate::Raft,
    pub(crate) identity: Arc<Identity>,
    pub(crate) leading: watch::Receiver<Option<CommittedLeader>>,
    pub(crate) place: Place,
    pub(crate) reporter: Reporter,
    pub(crate) survey: Survey,
    pub(crate) changes: OnItsWay,
    pub(crate) backups: Turn,
    stop_peers: watch::Sender<bool>,
    pub(crate) reserve: Reserve,
    fatal: Fatal,
    opened: parking_lot::Mutex<Option<Opened>>,
    ready: parking_lot::Mutex<Option<Instant>>,
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node").field("id", &self.inner.id).finish_non_exhaustive()
    }
}

impl Node {
    /// Reports what this node must stop for.
    pub(crate) fn report(&self, fault: &StorageFault) {
        self.inner.fatal.report(fault);
    }

    /// Which node this is.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.inner.id
    }

    /// The log is applied, and somebody leads or did so a moment ago.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        if self.inner.hub.is_refusing() {
            return false;
        }
        self.note_leader();
        self.inner.ready.lock().is_some_and(|last| runtime::since(last) < READY_WITHOUT_LEADER)
    }

    /// Keeps when somebody was last known to lead: the grace without a leader counts from then.
    pub(crate) fn note_leader(&self) {
        if self.leader().is_some() {
            *self.inner.ready.lock() = Some(runtime::now());
        }
    }

    /// The limits in force.
    #[must_use]
    pub fn limits(&self) -> Limits {
        Limits::clone(self.inner.shared.table.read().limits())
    }

    /// 128 random bits for a new lease.
    #[must_use]
    pub fn new_lease_id(&self) -> LeaseId {
        LeaseId(runtime::random())
    }

    /// The newest change.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.inner.shared.table.read().revision()
    }

    /// For display only.
    #[must_use]
    pub fn wall_clock_ms(&self) -> u64 {
        runtime::wall_clock_ms()
    }

    /// Returns when the storage has failed for good, with what happened. The process must end:
    /// nothing that was not durable was acknowledged, and nothing may be from here on.
    pub async fn storage_failed(&self) -> StorageFault {
        let mut fatal = self.inner.fatal.subscribe();
        loop {
            if let Some(fault) = self.inner.fatal.get() {
                return fault;
            }
            if fatal.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Answers everybody who waits, so that they come back to another node or later. New
    /// requests are refused from here on.
    pub fn refuse(&self) {
        self.inner.hub.refuse();
    }

    /// A number that two nodes have in common if they are at the same revision and healthy.
    #[must_use]
    pub fn digest(&self) -> u128 {
        self.inner.shared.table.read().freeze().digest()
    }

    #[cfg(test)]
    pub(crate) fn inner_raft(&self) -> &crate::Raft {
        &self.inner.raft
    }

    /// Stops Raft and closes the files.
    pub async fn shutdown(&self) {
        self.refuse();
        self.inner.hub.stop();
        if let Err(error) = self.inner.raft.shutdown().await {
            tracing::warn!(%error, "raft did not stop in order");
        }
        self.inner.stop_peers.send_replace(true);
        for proposal in self.inner.batcher.drain() {
            proposal.reply.fail(Failure::ShuttingDown);
        }
        let opened = self.inner.opened.lock().take();
        if let Some(opened) = opened {
            let closed = runtime::blocking(move || opened.close()).await;
            if let Some(Err(error)) = closed {
                tracing::warn!(%error, "files were not closed in order");
            }
        }
    }

    /// Whether something new may be begun.
    pub(crate) fn check_open(&self) -> Result<(), Failure> {
        if self.inner.hub.is_refusing() {
            return Err(Failure::ShuttingDown);
        }
        self.check_leading()
    }

    /// Whether anything can be answered: what is held is renewed and given back to the last.
    pub(crate) fn check_leading(&self) -> Result<(), Failure> {
        if self.inner.hub.is_stopped() {
            return Err(Failure::ShuttingDown);
        }
        if self.inner.leading.borrow().is_none() {
            return Err(Failure::NoLeader);
        }
        Ok(())
    }

    pub(crate) fn check_storage(&self) -> Result<(), Failure> {
        if self.inner.reserve.refuses() {
            self.inner.metrics.refusals.with_label_values(&["storage"]).inc();
            return Err(Failure::StorageFull);
        }
        Ok(())
    }

    /// Puts a command into the log and waits for its outcome.
    pub(crate) async fn ask(
        &self,
        class: Class,
        command: Command,
        deadline: Option<Instant>,
    ) -> Result<Told, Failure> {
        let (reply, answer) = oneshot::channel();
        self.push(class, Proposal::new(command, ReplyTo::Once(reply), deadline))?;
        self.inner.batcher.kick();
        self.told(answer, deadline).await
    }

    pub(crate) fn push(&self, class: Class, proposal: Proposal) -> Result<(), Failure> {
        self.inner.batcher.push(class, proposal).map_err(|why| match why {
            NotQueued::Full => {
                self.inner.metrics.refusals.with_label_values(&["proposals"]).inc();
                Failure::Overloaded
            }
            NotQueued::AboveLevel { needs, level } => Failure::AboveLevel { needs, level },
        })
    }

    pub(crate) async fn told(
        &self,
        answer: oneshot::Receiver<Answer>,
        deadline: Option<Instant>,
    ) -> Result<Told, Failure> {
        let give_up_at = deadline.unwrap_or_else(|| runtime::now() + ANSWER_WITHIN);
        match runtime::timeout_at(give_up_at, answer).await {
            Some(Ok(Answer::Outcome { outcome, handed, revision })) => {
                Ok(Told { outcome, handed, revision })
            }
            Some(Ok(Answer::Failed(failure))) => Err(failure),
            Some(Ok(Answer::Granted(_))) => {
                Err(Failure::Internal("a grant answered another question".to_owned()))
            }
            Some(Err(_)) | None => Err(Failure::OutcomeUnknown { request_id: None }),
        }
    }
}

/// The outcome of a command.
pub(crate) struct Told {
    pub(crate) outcome: Outcome,
    pub(crate) handed: Instant,
    pub(crate) revision: u64,
}
