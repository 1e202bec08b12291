//! From single commands to log entries: a bounded queue in front of Raft, and who goes first.
//!
//! While one batch is being synced the next one gathers, so the disk's own pace makes the
//! batches and no timer is needed. Only one is under way as a rule: what is handed over behind it
//! would wait for the same disks, and each batch costs every node a sync and a message, whatever it
//! holds. Nothing waits inside Raft: its channel has tens of thousands
//! of places, which at a slow disk would be seconds of latency that no bound here could see.

use crate::answer::Failure;
use crate::hub::cell::ReplyTo;
use crate::runtime;
use leasehold_core::Command;
use leasehold_core::command::Action;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// An entry stays below the bound of a Raft entry (256 KiB) with room for its frame.
const BATCH_BYTES_MAX: usize = 192 << 10;
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
    pub(crate) queued: Instant,
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
    /// Batches that Raft has and has not applied. More than one pays where the way to the other
    /// nodes takes longer than the sync.
    pub in_flight_max: usize,
}

impl Default for QueueSettings {
    fn default() -> Self {
        Self { queue_max: 8_192, batch_max: 512, in_flight_max: 1 }
    }
}

/// The queue of a class is full, and the proposal is dropped.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Full;

/// The queue in front of Raft.
#[derive(Debug)]
pub(crate) struct Proposals {
    queues: Mutex<Queues>,
    settings: QueueSettings,
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
    pub(crate) fn new(settings: QueueSettings) -> Self {
        Self { queues: Mutex::default(), settings }
    }

    pub(crate) fn in_flight_max(&self) -> usize {
        self.settings.in_flight_max
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
        Ok(())
    }

    pub(crate) fn max(&self) -> usize {
        self.settings.queue_max
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
    pub(crate) fn ready_at(&self, now: Instant) -> Option<Instant> {
        let queues = self.queues.lock();
        match queues.urgent {
            0 => queues.asks.front().map(|first| first.queued + PATIENCE),
            _ => Some(now),
        }
    }

    /// The next batch: ends first, then what clients ask for, then the service's own work.
    /// Work whose time is over, or whose client is gone, is dropped before it costs an entry.
    pub(crate) fn cut(&self, now: Instant) -> Vec<Proposal> {
        let mut dropped = Vec::new();
        let mut batch = Batching { proposals: Vec::new(), bytes: 0, max: self.settings.batch_max };
        let mut guard = self.queues.lock();
        let queues = &mut *guard;
        // Room for one of them is kept, or a busy service would never expire anything.
        let kept = queues.background.front().map_or(0, |next| command_bytes(&next.command));
        batch.bytes += kept;
        batch.max -= usize::from(kept > 0 && batch.max > 1);
        batch.fill(&mut queues.ends, usize::MAX, |_| false, &mut dropped);
        let dead = |proposal: &Proposal| {
            proposal.deadline.is_some_and(|at| at <= now) || proposal.reply.is_abandoned()
        };
        batch.fill(&mut queues.asks, usize::MAX, dead, &mut dropped);
        batch.bytes -= kept;
        batch.max = self.settings.batch_max;
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
        Command::Administer(order) => {
            let words = order.by.as_str().len() + order.source.len() + order.reason.len();
            let target = match &order.action {
                Action::ForceRelease { resource, .. } => resource.as_str().len(),
                Action::SetDomain { domain, .. } => domain.len(),
                Action::RevokeLease { .. } | Action::ChangeCluster { .. } => 0,
            };
            FIXED + words + target
        }
        Command::Expire { leases, .. } => FIXED + leases.len() * 20,
        Command::ConfirmEnded { tokens, .. } => FIXED + tokens.len() * 10,
        Command::CancelWait { owner, request_id } => {
            FIXED + owner_bytes(owner) + request_id.as_str().len()
        }
        _ => 2 * FIXED,
    }
}

fn owner_bytes(owner: &leasehold_core::Owner) -> usize {
    owner.principal.as_str().len() + owner.client.as_str().len()
}

#[cfg(test)]
#[path = "propose_tests.rs"]
mod tests;
