//! What the leader keeps in memory: deadlines, sleeping requests, batches on their way.
//!
//! All of it belongs to one term. It is dropped when leadership is lost and made anew when it is
//! gained, and whatever is decided from it goes into the log with that term.

pub(crate) mod applied;
pub(crate) mod cell;
pub(crate) mod clock;
pub(crate) mod due;
pub(crate) mod losses;

use crate::answer::Failure;
use crate::runtime;
use cell::{Answer, Cell, ReplyTo};
use clock::LeaseClock;
use due::{Due, DueList};
use leasehold_core::{LeaseId, LockTable, TicketId, Token};
use losses::{Draining, Drains, Losses};
use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, oneshot, watch};

/// The leader's memory.
#[derive(Debug)]
pub(crate) struct Hub {
    /// Which run of which node this is; stands in every batch that it proposes.
    pub(crate) proposer: u64,
    memory: Mutex<Memory>,
    /// Something is due earlier than the keeper knew.
    pub(crate) changed: Notify,
    refusing: watch::Sender<bool>,
    leaving: AtomicBool,
    stopped: watch::Sender<bool>,
}

#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// The term in which this node leads and has applied everything before it.
    pub(crate) term: Option<u64>,
    pub(crate) clock: LeaseClock,
    pub(crate) waiting: HashMap<TicketId, Vec<Sleeper>>,
    pub(crate) batches: HashMap<u64, OnItsWay>,
    pub(crate) due: DueList,
    pub(crate) losses: Losses,
    pub(crate) drains: Drains,
    /// Until when nothing is granted after a restore.
    pub(crate) hold_ends: Option<Instant>,
}

/// A request that stands in line.
#[derive(Debug)]
pub(crate) struct Sleeper {
    pub(crate) cell: Arc<Cell>,
    pub(crate) answer: oneshot::Sender<Answer>,
    pub(crate) has_request_id: bool,
}

/// A batch that was handed to Raft.
#[derive(Debug)]
pub(crate) struct OnItsWay {
    pub(crate) handed: Instant,
    pub(crate) replies: Vec<ReplyTo>,
}

/// A renewal that waits for its round. Dropping it lets the expiry go on.
#[derive(Debug)]
pub(crate) struct Renewing<'a> {
    hub: &'a Hub,
    lease: LeaseId,
    term: u64,
    received: Instant,
}

/// Why a renewal cannot start from memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CannotRenew {
    /// Nobody here may answer.
    NotLeading,
    /// The lease is not on the clock: look at confirmed state.
    NotTimed,
    /// Its expiry is on its way: wait for what comes of it.
    Expiring,
    /// Its only grant is being ended by an operator.
    Draining,
}

impl Hub {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            proposer: runtime::random() as u64,
            memory: Mutex::default(),
            changed: Notify::new(),
            refusing: watch::Sender::new(false),
            leaving: AtomicBool::new(false),
            stopped: watch::Sender::new(false),
        })
    }

    pub(crate) fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock()
    }

    pub(crate) fn term(&self) -> Option<u64> {
        self.memory().term
    }

    /// New requests are refused; what was begun goes on.
    pub(crate) fn is_refusing(&self) -> bool {
        *self.refusing.borrow()
    }

    /// The node is about to stop: who waits when its leadership ends is told so.
    pub(crate) fn leave(&self) {
        self.leaving.store(true, Ordering::Release);
    }

    /// Nothing is proposed any more.
    pub(crate) fn is_stopped(&self) -> bool {
        *self.stopped.borrow()
    }

    /// Returns when nothing is proposed any more.
    pub(crate) async fn ended(&self) {
        let mut stopped = self.stopped.subscribe();
        // The sender lives as long as this, so there is no other end.
        let _ = stopped.wait_for(|stopped| *stopped).await;
    }

    pub(crate) fn stop(&self) {
        self.stopped.send_replace(true);
        self.changed.notify_one();
    }

    /// Takes over in `term`: every lease gets its full TTL from the instant at which the election
    /// was won. What has passed since, if it was long, is time in which nobody could renew. The
    /// caller holds the table, so that nothing is applied meanwhile.
    pub(crate) fn begin(&self, term: u64, won_at: Instant, table: &LockTable) {
        let now = runtime::now();
        let mut memory = self.memory();
        memory.forget();
        for (lease, ttl_ms) in table.watched_leases() {
            memory.clock.start(lease, won_at, ttl_ms);
        }
        let idle = now.saturating_duration_since(won_at);
        if idle > crate::keeper::SILENT {
            memory.clock.outage(idle, now);
        }
        for grant in table.grants().filter(|grant| grant.draining) {
            memory.drain(grant);
        }
        for lease in table.ending_leases() {
            memory.due.add(now, Due::Continue(lease));
        }
        memory.hold_ends = match table.hold_ms() {
            0 => None,
            hold_ms => {
                tracing::warn!(hold_ms, "the state was restored: nothing is granted before that");
                let at = now + Duration::from_millis(hold_ms);
                memory.due.add(at, Due::EndHold);
                Some(at)
            }
        };
        // No connection of an earlier leader reaches this one. Who can come back keeps its place
        // for its TTL; meanwhile nothing is granted to it.
        for ticket in table.tickets() {
            let (id, attachment) = (ticket.id, ticket.attachment);
            let ttl_ms = table.lease(ticket.lease).map_or(0, |(_, ttl_ms)| ttl_ms);
            let window_ends =
                now + Duration::from_millis(ttl_ms.max(table.limits().claim_window_ms));
            match (&ticket.request_id, ticket.attached) {
                (None, _) => memory.due.add(now, Due::Leave { ticket: id, attachment }),
                (Some(_), true) => {
                    memory.due.add(now, Due::Detach { ticket: id, attachment, window_ends })
                }
                (Some(_), false) => {
                    memory.due.add(window_ends, Due::Leave { ticket: id, attachment })
                }
            }
        }
        memory.term = Some(term);
        drop(memory);
        self.changed.notify_one();
    }

    /// Leadership is lost: nothing in memory counts any more.
    pub(crate) fn end(&self) {
        let mut memory = self.memory();
        memory.term = None;
        let lost = memory.forget();
        drop(memory);
        let failure = match self.leaving.load(Ordering::Acquire) {
            true => Failure::ShuttingDown,
            false => Failure::OutcomeUnknown { request_id: None },
        };
        for reply in lost {
            reply.fail(failure.clone());
        }
    }

    /// New requests are refused from here on, and whoever waits stops waiting.
    pub(crate) fn refuse(&self) {
        self.refusing.send_replace(true);
    }

    /// Returns when the node refuses new requests.
    pub(crate) async fn refused(&self) {
        let mut refusing = self.refusing.subscribe();
        // The sender lives as long as this, so there is no other end.
        let _ = refusing.wait_for(|refusing| *refusing).await;
    }

    pub(crate) fn on_its_way(&self, seq: u64, batch: OnItsWay) {
        self.memory().batches.insert(seq, batch);
    }

    /// Raft did not take the batch: its replies come back.
    pub(crate) fn take_back(&self, seq: u64) -> Option<OnItsWay> {
        self.memory().batches.remove(&seq)
    }

    /// A renewal was received: from now until its round has ended the lease does not expire.
    pub(crate) fn start_renewal(
        &self,
        lease: LeaseId,
        received: Instant,
    ) -> Result<Renewing<'_>, CannotRenew> {
        let mut memory = self.memory();
        let term = memory.term.ok_or(CannotRenew::NotLeading)?;
        let timed = memory.clock.get_mut(lease).ok_or(CannotRenew::NotTimed)?;
        if timed.ends_soon() {
            return Err(CannotRenew::Expiring);
        }
        if timed.draining {
            return Err(CannotRenew::Draining);
        }
        timed.renewing += 1;
        Ok(Renewing { hub: self, lease, term, received })
    }

    /// The deadline of a lease and until when its client may count on it.
    pub(crate) fn deadline(&self, lease: LeaseId) -> Option<Instant> {
        self.memory().clock.deadline(lease)
    }

    /// Asks the keeper to do something at `at`, if the term in which that was decided lasts.
    pub(crate) fn add_due(&self, term: u64, at: Instant, due: Due) {
        let mut memory = self.memory();
        if memory.term == Some(term) {
            memory.due.add(at, due);
            drop(memory);
            self.changed.notify_one();
        }
    }

    /// What a renewal of this lease is about to name; answers what need not be named any more.
    pub(crate) fn name_losses(&self, lease: LeaseId, tokens: &[Token]) -> Vec<Token> {
        let mut memory = self.memory();
        let Some(ttl) = memory.clock.get(lease).map(|timed| timed.ttl) else { return Vec::new() };
        memory.losses.name(lease, tokens, ttl, runtime::now())
    }

    /// Grants of a lease that run out although it is renewed.
    pub(crate) fn draining_on(&self, lease: LeaseId) -> Vec<Draining> {
        self.memory().drains.of(lease)
    }

    /// Milliseconds until locks are granted after a restore, which only the leader knows.
    pub(crate) fn hold_left_ms(&self) -> Option<u64> {
        let ends = self.memory().hold_ends;
        ends.map(|at| runtime::ms(at.saturating_duration_since(runtime::now())))
    }

    /// Milliseconds until the service may end a grant, which only the leader knows.
    pub(crate) fn grant_expires_in_ms(&self, lease: LeaseId, token: Token) -> Option<u64> {
        let memory = self.memory();
        let ends = memory.drains.get(lease, token).map(|draining| draining.ends);
        let ends = ends.or_else(|| memory.clock.deadline(lease));
        ends.map(|at| runtime::ms(at.saturating_duration_since(runtime::now())))
    }
}

impl Renewing<'_> {
    /// The round that began after the receipt has ended well, in the leadership of `term`. Looks
    /// at the lease once more; answers its promise and its deadline, or `None` if it is not ours
    /// to renew any more.
    pub(crate) fn confirmed(self, term: u64) -> Option<(Instant, Instant)> {
        let mut memory = self.hub.memory();
        if memory.term != Some(self.term) || term != self.term {
            return None;
        }
        let timed = memory.clock.get(self.lease)?;
        if timed.ends_soon() || timed.draining {
            return None;
        }
        memory.clock.renew(self.lease, self.received);
        // A claim is a renewal: what would have passed on stays.
        memory.due.claimed(self.lease);
        Some((memory.clock.promised(self.lease)?, memory.clock.deadline(self.lease)?))
    }
}

impl Drop for Renewing<'_> {
    fn drop(&mut self) {
        let mut memory = self.hub.memory();
        if memory.term == Some(self.term)
            && let Some(timed) = memory.clock.get_mut(self.lease)
        {
            timed.renewing = timed.renewing.saturating_sub(1);
        }
    }
}

impl Memory {
    /// Drops everything of a term; answers the replies that nobody will ever send.
    fn forget(&mut self) -> Vec<ReplyTo> {
        self.clock.clear();
        self.due = DueList::default();
        self.losses.clear();
        self.drains.clear();
        self.hold_ends = None;
        let batches = self.batches.drain().flat_map(|(_, batch)| batch.replies);
        let mut replies: Vec<ReplyTo> = batches.collect();
        for sleeper in self.waiting.drain().flat_map(|(_, all)| all) {
            replies.push(ReplyTo::Acquire(cell::Acquirer {
                cell: sleeper.cell,
                answer: sleeper.answer,
                has_request_id: sleeper.has_request_id,
            }));
        }
        replies
    }

    /// An entry that took this long to be applied was one that nothing could overtake: nothing
    /// could be committed meanwhile.
    pub(crate) fn count_stall(&mut self, handed: Instant) {
        let now = runtime::now();
        let took = now.saturating_duration_since(handed);
        if took > crate::keeper::SILENT {
            self.clock.outage(took, now);
        }
    }

    /// A draining grant ends at the deadline that its lease has now.
    pub(crate) fn drain(&mut self, grant: &leasehold_core::outcome::Grant) {
        let at = self.clock.deadline(grant.lease).unwrap_or_else(runtime::now);
        let promised = self.clock.promised(grant.lease).unwrap_or(at);
        self.drains.add(grant, promised, at);
        if grant.single
            && let Some(timed) = self.clock.get_mut(grant.lease)
        {
            timed.draining = true;
        }
        let outages = self.clock.outages();
        self.due.add(at, Due::EndDrained { token: grant.token, outages });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold_core::command::{Header, OpenLease};
    use leasehold_core::{ClientId, Command, Limits, Owner, Principal};

    const LEASE: LeaseId = LeaseId(7);
    const TTL: Duration = Duration::from_secs(60);

    fn taken_over(won_at: Instant) -> Instant {
        let mut table = LockTable::new(Limits::default());
        let owner = Owner {
            principal: Principal::parse("anonymous").expect("a name"),
            client: ClientId::parse("w1").expect("a name"),
        };
        let open = OpenLease { lease: LEASE, owner, ttl_ms: 60_000, metadata: None };
        table.apply(Header { term: 1, at_ms: 1 }, &[Command::OpenLease(open)]);
        let hub = Hub::new();
        hub.begin(2, won_at, &table);
        hub.deadline(LEASE).expect("it is timed")
    }

    #[test]
    fn a_lease_counts_from_the_votes_that_its_leader_won() {
        let won_at = Instant::now();
        assert_eq!(taken_over(won_at), won_at + TTL);
    }

    #[test]
    fn a_leader_that_could_not_serve_for_long_after_its_votes_adds_that_time() {
        let now = Instant::now();
        let idle = Duration::from_secs(5);
        let deadline = taken_over(now.checked_sub(idle).expect("the machine runs for longer"));
        assert!(now + TTL <= deadline && deadline <= Instant::now() + TTL);
    }
}
