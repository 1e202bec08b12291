//! From single commands to log entries: a bounded queue in front of Raft, and who goes first.
//!
//! While one batch is being synced the next one gathers, so the disk's own pace makes the
//! batches and no timer is needed. Nothing waits inside Raft: its channel has tens of thousands
//! of places, which at a slow disk would be seconds of latency that no bound here could see.

use crate::answer::Failure;
use crate::hub::cell::ReplyTo;
use crate::hub::{Hub, OnItsWay};
use crate::metrics::Metrics;
use crate::runtime;
use crate::types::{Batch, CommittedLeader, TypeConfig};
use leasehold_core::Command;
use openraft::errors::{ClientWriteError, ForwardReason};
use openraft::impls::ProgressResponder;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, Semaphore, watch};

/// An entry stays below the bound of a Raft entry (256 KiB) with room for its frame.
const BATCH_BYTES_MAX: usize = 192 << 10;
/// How long a batch is offered again while Raft says that its lease has run out.
const RETRY_FOR: Duration = Duration::from_secs(5);
const RETRY_AFTER: Duration = Duration::from_millis(10);
/// How long a command that is in no hurry waits for company. See [`Proposal::patient`].
const PATIENCE: Duration = Duration::from_millis(1);

/// Who goes first when there is more than one batch holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// Ends: release, leave, end of a lease. They make room.
    End,
    /// Everything a client asks for.
    Ask,
    /// Expiries and other work that the service finds by itself. At most one a batch while
    /// anything else waits, so that a storm of expiries leaves room for live traffic.
    Background,
}

/// A command with its way back.
#[derive(Debug)]
pub(crate) struct Proposal {
    pub(crate) command: Command,
    pub(crate) reply: ReplyTo,
    pub(crate) deadline: Option<Instant>,
    queued: Instant,
    patient: bool,
}

impl Proposal {
    pub(crate) fn new(command: Command, reply: ReplyTo, deadline: Option<Instant>) -> Self {
        Self { command, reply, deadline, queued: runtime::now(), patient: false }
    }

    /// It does not hurry a batch along, but goes with the next one that somebody else needs.
    ///
    /// For a request that will stand in line: whether it does so now or a millisecond later is
    /// the same to it, but a sync of its own would stand in the way of the release that it waits
    /// for. On a hot lock this halves the syncs of a handover.
    pub(crate) fn patient(mut self, patient: bool) -> Self {
        self.patient = patient;
        self
    }
}

/// How much is queued and batched. Counts are commands.
#[derive(Debug, Clone, Copy)]
pub struct QueueSettings {
    /// Commands that may wait for a batch; acquires are refused from here on.
    pub queue_max: usize,
    /// Commands in one batch.
    pub batch_max: usize,
    /// Batches that Raft has and has not applied.
    pub in_flight_max: usize,
}

impl Default for QueueSettings {
    fn default() -> Self {
        Self { queue_max: 8_192, batch_max: 512, in_flight_max: 2 }
    }
}

/// The queue of a class is full, and the proposal is dropped.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Full;

/// The queue in front of Raft.
#[derive(Debug)]
pub(crate) struct Proposals {
    queues: Mutex<Queues>,
    arrived: Notify,
    settings: QueueSettings,
    seq: AtomicU64,
}

#[derive(Debug, Default)]
struct Queues {
    ends: VecDeque<Proposal>,
    asks: VecDeque<Proposal>,
    background: VecDeque<Proposal>,
    /// How many of all these are in a hurry.
    urgent: usize,
}

impl Proposals {
    pub(crate) fn new(settings: QueueSettings) -> Arc<Self> {
        Arc::new(Self {
            queues: Mutex::default(),
            arrived: Notify::new(),
            settings,
            seq: AtomicU64::new(0),
        })
    }

    /// Puts a command in its queue, unless that is full. Ends have twice the
    /// room: what frees locks is refused last.
    pub(crate) fn push(&self, class: Class, proposal: Proposal) -> Result<(), Full> {
        let mut queues = self.queues.lock();
        let (queue, max) = match class {
            Class::End => (&mut queues.ends, self.settings.queue_max * 2),
            Class::Ask => (&mut queues.asks, self.settings.queue_max),
            Class::Background => (&mut queues.background, self.settings.queue_max),
        };
        if queue.len() >= max {
            return Err(Full);
        }
        let urgent = usize::from(!proposal.patient);
        queue.push_back(proposal);
        queues.urgent += urgent;
        drop(queues);
        self.arrived.notify_one();
        Ok(())
    }

    pub(crate) fn len(&self) -> usize {
        let queues = self.queues.lock();
        queues.ends.len() + queues.asks.len() + queues.background.len()
    }

    /// Everything that waits, when nobody will ever take it.
    pub(crate) fn drain(&self) -> Vec<Proposal> {
        let mut queues = self.queues.lock();
        let Queues { ends, asks, background, .. } = std::mem::take(&mut *queues);
        ends.into_iter().chain(asks).chain(background).collect()
    }

    /// When there is something to cut; `None` if nothing waits.
    fn ready_at(&self, now: Instant) -> Option<Instant> {
        let queues = self.queues.lock();
        match queues.urgent {
            0 => queues.asks.front().map(|first| first.queued + PATIENCE),
            _ => Some(now),
        }
    }

    /// The next batch: ends first, then what clients ask for, then the service's own work.
    /// Work whose time is over, or whose client is gone, is dropped before it costs an entry.
    fn cut(&self, now: Instant) -> Vec<Proposal> {
        let mut dropped = Vec::new();
        let mut batch = Batching { proposals: Vec::new(), bytes: 0, max: self.settings.batch_max };
        let mut guard = self.queues.lock();
        let queues = &mut *guard;
        batch.fill(&mut queues.ends, usize::MAX, |_| false, &mut dropped);
        let dead = |proposal: &Proposal| {
            proposal.deadline.is_some_and(|at| at <= now) || proposal.reply.is_abandoned()
        };
        batch.fill(&mut queues.asks, usize::MAX, dead, &mut dropped);
        let background_max = if batch.proposals.is_empty() { 8 } else { 1 };
        batch.fill(&mut queues.background, background_max, |_| false, &mut dropped);
        let taken = batch.proposals.iter().chain(&dropped);
        queues.urgent -= taken.filter(|proposal| !proposal.patient).count();
        drop(guard);
        for proposal in dropped {
            proposal.reply.fail(Failure::DeadlinePassed);
        }
        batch.proposals
    }
}

struct Batching {
    proposals: Vec<Proposal>,
    bytes: usize,
    max: usize,
}

impl Batching {
    fn fill(
        &mut self,
        queue: &mut VecDeque<Proposal>,
        at_most: usize,
        dead: impl Fn(&Proposal) -> bool,
        dropped: &mut Vec<Proposal>,
    ) {
        let mut taken = 0;
        while let Some(next) = queue.front() {
            let bytes = command_bytes(&next.command);
            let full = self.proposals.len() >= self.max || self.bytes + bytes > BATCH_BYTES_MAX;
            if taken >= at_most || (full && !self.proposals.is_empty()) {
                return;
            }
            let Some(proposal) = queue.pop_front() else { return };
            if dead(&proposal) {
                dropped.push(proposal);
                continue;
            }
            taken += 1;
            self.bytes += bytes;
            self.proposals.push(proposal);
        }
    }
}

/// What the batcher needs of the node.
pub(crate) struct Batcher {
    pub(crate) proposals: Arc<Proposals>,
    pub(crate) hub: Arc<Hub>,
    pub(crate) raft: crate::Raft,
    pub(crate) metrics: Metrics,
    /// The leadership to propose under, if there is one.
    pub(crate) leading: watch::Receiver<Option<CommittedLeader>>,
}

impl Batcher {
    /// Cuts and hands over batches until the node stops.
    pub(crate) async fn run(mut self) {
        let in_flight = Arc::new(Semaphore::new(self.proposals.settings.in_flight_max));
        loop {
            let Ok(place) = in_flight.clone().acquire_owned().await else { return };
            let Some(batch) = self.next_batch().await else { return };
            let leader = *self.leading.borrow();
            match leader {
                Some(leader) => self.hand_over(leader, batch, place).await,
                None => {
                    batch.into_iter().for_each(|proposal| proposal.reply.fail(Failure::NoLeader))
                }
            }
        }
    }

    /// `None` when the node stops.
    async fn next_batch(&mut self) -> Option<Vec<Proposal>> {
        loop {
            let now = runtime::now();
            let ready_at = self.proposals.ready_at(now);
            if ready_at.is_some_and(|at| at <= now) {
                let batch = self.proposals.cut(now);
                if !batch.is_empty() {
                    return Some(batch);
                }
                continue;
            }
            let ready = async {
                match ready_at {
                    Some(at) => runtime::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.proposals.arrived.notified() => {}
                () = ready => {}
                changed = self.leading.changed() => if changed.is_err() { return None },
            }
        }
    }

    async fn hand_over(
        &self,
        leader: CommittedLeader,
        proposals: Vec<Proposal>,
        place: tokio::sync::OwnedSemaphorePermit,
    ) {
        let seq = self.proposals.seq.fetch_add(1, Ordering::Relaxed);
        let mut commands = Vec::with_capacity(proposals.len());
        let mut replies = Vec::with_capacity(proposals.len());
        let cut = runtime::now();
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
        let (responder, applied) = ProgressResponder::<TypeConfig, _>::complete_only();
        let written = self.raft.write(batch.clone()).with_leader(leader).responder(responder).await;
        if let Err(fatal) = written {
            tracing::error!(error = %fatal, "raft has stopped");
            return give_up(&self.hub, seq, Failure::OutcomeUnknown { request_id: None });
        }
        let watch = Watch {
            hub: self.hub.clone(),
            raft: self.raft.clone(),
            metrics: self.metrics.clone(),
            leader,
            batch,
            handed: cut,
        };
        runtime::spawn(async move {
            let result = applied.await.ok();
            watch.settle(result).await;
            drop(place);
        });
    }
}

/// Waits for what became of one batch.
struct Watch {
    hub: Arc<Hub>,
    raft: crate::Raft,
    metrics: Metrics,
    leader: CommittedLeader,
    batch: Arc<Batch>,
    handed: Instant,
}

type Written = openraft::raft::ClientWriteResult<TypeConfig>;

impl Watch {
    async fn settle(self, mut result: Option<Written>) {
        let give_up_at = self.handed + RETRY_FOR;
        loop {
            match result {
                Some(Ok(_)) => {
                    let took = runtime::now() - self.handed;
                    self.metrics.committed.observe(took.as_secs_f64());
                    if took > crate::keeper::SILENT {
                        self.metrics.outage_seconds.inc_by(took.as_secs_f64());
                        self.hub.memory().clock.outage(took, runtime::now());
                    }
                    return;
                }
                // Not a change of leader: the quorum's last word is too old. Offer it again.
                Some(Err(ClientWriteError::ForwardToLeader(ref forward)))
                    if forward.reason == ForwardReason::LeaseExpired
                        && runtime::now() < give_up_at =>
                {
                    runtime::sleep(RETRY_AFTER).await;
                    result = self.offer_again().await;
                }
                Some(Err(ClientWriteError::ForwardToLeader(_))) => {
                    return give_up(&self.hub, self.batch.seq, Failure::NoLeader);
                }
                Some(Err(_)) | None => {
                    return give_up(
                        &self.hub,
                        self.batch.seq,
                        Failure::OutcomeUnknown { request_id: None },
                    );
                }
            }
        }
    }

    async fn offer_again(&self) -> Option<Written> {
        // It was refused before it was appended, so its anchor may move to now.
        let mut on_its_way = self.hub.take_back(self.batch.seq)?;
        on_its_way.handed = runtime::now();
        self.hub.on_its_way(self.batch.seq, on_its_way);
        let (responder, applied) = ProgressResponder::<TypeConfig, _>::complete_only();
        let write =
            self.raft.write(self.batch.clone()).with_leader(self.leader).responder(responder);
        write.await.ok()?;
        applied.await.ok()
    }
}

fn give_up(hub: &Hub, seq: u64, failure: Failure) {
    let Some(batch) = hub.take_back(seq) else { return };
    for reply in batch.replies {
        reply.fail(failure.clone());
    }
}

/// At least as many bytes as the command takes in an entry.
fn command_bytes(command: &Command) -> usize {
    /// Numbers, tags and lengths of any one command.
    const FIXED: usize = 160;
    match command {
        Command::Acquire(asked) => {
            let holding: usize =
                asked.holding.iter().map(|held| held.resource.as_str().len() + 16).sum();
            let metadata = asked.metadata.iter().flat_map(|pairs| pairs.iter());
            let metadata: usize = metadata.map(|(key, value)| key.len() + value.len() + 8).sum();
            let policies = asked.policies.iter().flat_map(|all| all.iter());
            let policies: usize =
                policies.map(|p| p.name.len() + p.version.len() + p.verdict.len() + 12).sum();
            let names = asked.resource.as_str().len() + owner_bytes(&asked.owner);
            FIXED
                + names
                + asked.request_id.as_ref().map_or(0, |id| id.as_str().len())
                + holding
                + metadata
                + policies
        }
        Command::Release(grant) | Command::Renew { grant, .. } => {
            let client = grant.caller.client.as_ref().map_or(0, |client| client.as_str().len());
            FIXED + grant.resource.as_str().len() + client + grant.caller.principal.as_str().len()
        }
        Command::OpenLease(open) => {
            let metadata = open.metadata.iter().flat_map(|pairs| pairs.iter());
            FIXED
                + owner_bytes(&open.owner)
                + metadata.map(|(key, value)| key.len() + value.len() + 8).sum::<usize>()
        }
        Command::ForceRelease { resource, reason, by, .. } => {
            FIXED + resource.as_str().len() + reason.len() + by.as_str().len()
        }
        Command::Expire { leases, .. } => FIXED + leases.len() * 20,
        Command::ConfirmEnded { tokens, .. } => FIXED + tokens.len() * 10,
        Command::CancelWait { owner, request_id } => {
            FIXED + owner_bytes(owner) + request_id.as_str().len()
        }
        Command::SetDomain { domain, .. } => FIXED + domain.len(),
        _ => 2 * FIXED,
    }
}

fn owner_bytes(owner: &leasehold_core::Owner) -> usize {
    owner.principal.as_str().len() + owner.client.as_str().len()
}
