//! Hands batches to Raft, from whichever thread has a reason to: the one that queued a command
//! while there was room, or the one on which an earlier batch was applied.
//!
//! No task stands between a request and Raft. On an idle node that saves a wake-up of another
//! thread a request, which is a good part of what a request costs beyond the sync.

use crate::answer::Failure;
use crate::hub::cell::ReplyTo;
use crate::hub::{Hub, OnItsWay};
use crate::metrics::Metrics;
use crate::propose::{Class, Full, Proposal, Proposals};
use crate::runtime;
use crate::state::Shared;
use crate::types::{Batch, CallBack, CommittedLeader, TypeConfig};
use futures_util::FutureExt as _;
use leasehold_core::Command;
use openraft::errors::{ClientWriteError, ForwardReason};
use parking_lot::Mutex;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Notify, watch};

/// How long a batch is offered again while Raft says that its lease has run out.
const RETRY_FOR: Duration = Duration::from_secs(5);
const RETRY_AFTER: Duration = Duration::from_millis(10);

type Written = openraft::raft::ClientWriteResult<TypeConfig>;

/// The way from the queue of proposals into Raft.
pub(crate) struct Batcher {
    proposals: Proposals,
    hub: Arc<Hub>,
    raft: crate::Raft,
    metrics: Metrics,
    /// Where the level in force is read.
    shared: Arc<Shared>,
    /// The leadership to propose under, if there is one.
    leading: watch::Receiver<Option<CommittedLeader>>,
    /// Held while a batch is cut and handed over, so that batches enter Raft in the order in
    /// which they were cut.
    gate: Mutex<Gate>,
    /// Something waits that nobody has handed over.
    waiting: Notify,
    /// Raft is done with a batch.
    settled: Notify,
    spawner: runtime::Spawner,
}

#[derive(Debug, Default)]
struct Gate {
    in_flight: usize,
    seq: u64,
    /// Raft did not take the last batch at once; nothing may overtake it.
    blocked: bool,
    /// Nothing is handed over while leadership changes hands.
    held: bool,
}

/// While it is there, commands are queued and not handed over.
pub(crate) struct Held(Arc<Batcher>);

impl Held {
    /// Returns when Raft is done with all that it has.
    pub(crate) async fn idle(&self) {
        while self.0.gate.lock().in_flight > 0 {
            self.0.settled.notified().await;
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.gate.lock().held = false;
        self.0.kick();
    }
}

/// Why a command is not queued.
#[derive(Debug, Clone, Copy)]
pub(crate) enum NotQueued {
    /// The queue of its class is full.
    Full,
    /// Not every member knows it yet.
    AboveLevel { needs: u16, level: u16 },
}

impl From<Full> for NotQueued {
    fn from(_: Full) -> Self {
        Self::Full
    }
}

/// A batch that Raft has.
#[derive(Clone)]
struct Handed {
    batch: Arc<Batch>,
    leader: CommittedLeader,
    /// When it was first cut: the measure of its commit time and of how long it is offered again.
    cut: Instant,
}

impl Batcher {
    /// Makes it. Must be called on the node's own runtime.
    pub(crate) fn new(
        proposals: Proposals,
        hub: Arc<Hub>,
        raft: crate::Raft,
        metrics: Metrics,
        shared: Arc<Shared>,
        leading: watch::Receiver<Option<CommittedLeader>>,
    ) -> Arc<Self> {
        let spawner = runtime::Spawner::here();
        let (waiting, settled) = (Notify::new(), Notify::new());
        let gate = Mutex::default();
        Arc::new(Self {
            proposals,
            hub,
            raft,
            metrics,
            shared,
            leading,
            gate,
            waiting,
            settled,
            spawner,
        })
    }

    /// Queues a command. Nothing moves before [`Batcher::kick`], so that commands that belong
    /// together can be queued together. Whoever calls this does not hold the table.
    pub(crate) fn push(&self, class: Class, proposal: Proposal) -> Result<(), NotQueued> {
        let needs = proposal.command.version();
        if needs > Command::FIRST {
            // What is applied is committed, and a level never falls: once true, this stays so.
            let level = self.shared.table.read().level();
            if needs > level {
                return Err(NotQueued::AboveLevel { needs, level });
            }
        }
        Ok(self.proposals.push(class, proposal)?)
    }

    /// Queues the one command that may be above the level, as it raises it. Whoever calls this has
    /// made sure that every member knows that version.
    pub(crate) fn push_raise(&self, to: u16, reply: ReplyTo) -> Result<(), NotQueued> {
        let raise = Proposal::new(Command::RaiseLevel { to }, reply, None);
        Ok(self.proposals.push(Class::End, raise)?)
    }

    pub(crate) fn queued(&self) -> usize {
        self.proposals.len()
    }

    /// How many commands wait, and how many may.
    pub(crate) fn load(&self) -> (u64, u64) {
        (self.proposals.len() as u64, self.proposals.max() as u64)
    }

    /// Everything that waits, when nobody will ever take it.
    pub(crate) fn drain(&self) -> Vec<Proposal> {
        self.proposals.drain()
    }

    /// Hands over what is ready, as far as there is room in flight.
    pub(crate) fn kick(self: &Arc<Self>) {
        if self.hand_over_ready().is_some() {
            // Only patient commands: the task looks after them.
            self.waiting.notify_one();
        }
    }

    /// Hands nothing over any more until the answer is dropped; `None` if somebody else does so.
    pub(crate) fn hold(self: &Arc<Self>) -> Option<Held> {
        let was_held = std::mem::replace(&mut self.gate.lock().held, true);
        (!was_held).then(|| Held(self.clone()))
    }

    /// Answers when the next command becomes ready, if that is a matter of time.
    fn hand_over_ready(self: &Arc<Self>) -> Option<Instant> {
        let mut gate = self.gate.lock();
        loop {
            // Whatever Raft still has of an earlier term: without a leader nothing may wait for it.
            let Some(leader) = *self.leading.borrow() else {
                self.refuse_all();
                return None;
            };
            if gate.in_flight >= self.proposals.in_flight_max() || gate.blocked || gate.held {
                // Whoever makes room hands over what waits for it.
                return None;
            }
            let now = runtime::now();
            match self.proposals.ready_at(now) {
                None => return None,
                Some(at) if at > now => return Some(at),
                Some(_) => {}
            }
            let proposals = self.proposals.cut(now);
            if proposals.is_empty() {
                continue;
            }
            self.hand_over(&mut gate, leader, proposals, now);
        }
    }

    fn refuse_all(&self) {
        for proposal in self.proposals.drain() {
            proposal.reply.fail(Failure::NoLeader);
        }
    }

    fn hand_over(
        self: &Arc<Self>,
        gate: &mut Gate,
        leader: CommittedLeader,
        proposals: Vec<Proposal>,
        cut: Instant,
    ) {
        gate.seq += 1;
        gate.in_flight += 1;
        let seq = gate.seq;
        let mut commands = Vec::with_capacity(proposals.len());
        let mut replies = Vec::with_capacity(proposals.len());
        for proposal in proposals {
            self.metrics.queued.observe((cut - proposal.queued).as_secs_f64());
            commands.push(proposal.command);
            replies.push(proposal.reply);
        }
        self.metrics.batch_commands.observe(commands.len() as f64);
        let at_ms = runtime::wall_clock_ms();
        let batch = Arc::new(Batch { proposer: self.hub.proposer, seq, at_ms, commands });
        // The anchor of every validity in this batch: read before Raft can have it.
        self.hub.on_its_way(seq, OnItsWay { handed: runtime::now(), replies });
        let mut write = self.write(Handed { batch, leader, cut });
        if write.as_mut().now_or_never().is_none() {
            // Raft's channel is full, or this task has used up its share. The request that came
            // along may be dropped at any time; the batch, which is not its alone, must not be.
            gate.blocked = true;
            let this = self.clone();
            self.spawner.spawn(async move {
                write.await;
                this.gate.lock().blocked = false;
                this.kick();
            });
        }
    }

    /// Gives a batch to Raft; the result comes back by itself.
    fn write(self: &Arc<Self>, handed: Handed) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let this = self.clone();
        Box::pin(async move {
            let (batch, leader, seq) = (handed.batch.clone(), handed.leader, handed.batch.seq);
            let back = this.clone();
            let respond = CallBack::new(move |written| back.settle(handed, written));
            let sent = this.raft.write(batch).with_leader(leader).responder(respond).await;
            if let Err(fatal) = sent {
                tracing::error!(error = %fatal, "raft has stopped");
                this.give_up(seq, &Failure::OutcomeUnknown { request_id: None });
            }
        })
    }

    /// Raft has the last word on a batch. Its commands were answered when it was applied; here
    /// only those are that were not.
    fn settle(self: &Arc<Self>, handed: Handed, written: Written) {
        let now = runtime::now();
        match written {
            Ok(_) => self.committed(&handed, now),
            // Not a change of leader: the quorum's last word is too old. Offer it again.
            Err(ClientWriteError::ForwardToLeader(forward))
                if forward.reason == ForwardReason::LeaseExpired
                    && now < handed.cut + RETRY_FOR =>
            {
                return self.offer_again(handed);
            }
            Err(ClientWriteError::ForwardToLeader(_)) => {
                self.give_up(handed.batch.seq, &Failure::NoLeader)
            }
            Err(_) => {
                self.give_up(handed.batch.seq, &Failure::OutcomeUnknown { request_id: None });
            }
        }
        self.gate.lock().in_flight -= 1;
        self.settled.notify_one();
        self.kick();
    }

    fn committed(&self, handed: &Handed, now: Instant) {
        let took = now - handed.cut;
        self.metrics.committed.observe(took.as_secs_f64());
        if took > crate::keeper::SILENT {
            self.metrics.outage_seconds.inc_by(took.as_secs_f64());
        }
    }

    fn offer_again(self: &Arc<Self>, handed: Handed) {
        let this = self.clone();
        self.spawner.spawn(async move {
            runtime::sleep(RETRY_AFTER).await;
            let seq = handed.batch.seq;
            // It was refused before it was appended, so its anchor may move to now.
            if let Some(mut on_its_way) = this.hub.take_back(seq) {
                on_its_way.handed = runtime::now();
                this.hub.on_its_way(seq, on_its_way);
            }
            this.write(handed).await;
        });
    }

    fn give_up(&self, seq: u64, failure: &Failure) {
        let Some(batch) = self.hub.take_back(seq) else { return };
        for reply in batch.replies {
            reply.fail(failure.clone());
        }
    }

    /// Looks after what nobody else hands over: commands that wait for company, and those that
    /// were queued around a change of leader. Ends when the node stops.
    pub(crate) async fn run(self: Arc<Self>) {
        let mut leading = self.leading.clone();
        loop {
            // Also what became ready before this task looked: whoever queued it went by then.
            let ready_at = self.hand_over_ready();
            let ready = async {
                match ready_at {
                    Some(at) => runtime::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.waiting.notified() => {}
                () = ready => {}
                changed = leading.changed() => if changed.is_err() { return },
            }
        }
    }
}

impl std::fmt::Debug for Batcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batcher").field("queued", &self.queued()).finish_non_exhaustive()
    }
}
