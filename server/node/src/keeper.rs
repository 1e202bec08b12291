//! The task that keeps time: it proposes what the leader's clock says is due.
//!
//! It also measures what the clock must not count: time in which this process did not run, or in
//! which nothing could be committed.

use crate::answer::Failure;
use crate::batcher::Batcher;
use crate::confirm::Confirmer;
use crate::history::{Filter, History};
use crate::hub::cell::{Answer, ReplyTo};
use crate::hub::due::{Due, PassOn};
use crate::hub::{Hub, Memory};
use crate::log::LogStore;
use crate::metrics::Metrics;
use crate::propose::{Class, Proposal};
use crate::reserve::Reserve;
use crate::runtime;
use crate::state::{Shared, StateMachine};
use leasehold_core::command::LeftHow;
use leasehold_core::outcome::{Outcome, Refusal};
use leasehold_core::{Command, LeaseId};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// The lease timer wakes at least this often.
const TICK: Duration = Duration::from_millis(100);
/// A wake-up later than this is an outage: the process was frozen, or the machine suspended.
const LATE: Duration = TICK.saturating_mul(2);
/// A quorum that stays silent, or a commit that takes, longer than this is an outage.
pub(crate) const SILENT: Duration = Duration::from_secs(1);
/// Leases in one expiry command. A storm becomes many of them, and live traffic goes between.
const EXPIRE_MAX: usize = 64;
/// Looks at the clock in one pass of the keeper.
const EXPIRE_PASS: usize = 2_000;
/// What did not fit into the queue is tried again after this.
const AGAIN: Duration = Duration::from_millis(50);
/// How often the slow things are looked at: snapshots and gauges.
const CHORES: Duration = Duration::from_secs(1);
/// How often disk space is looked at. Others may fill a disk quickly.
const DISK: Duration = Duration::from_millis(200);
/// How often at most, and how seldom at least, old things are forgotten.
const FORGET: std::ops::RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(10);

pub(crate) struct Keeper {
    pub(crate) hub: Arc<Hub>,
    pub(crate) batcher: Arc<Batcher>,
    pub(crate) confirmer: Confirmer,
    pub(crate) shared: Arc<Shared>,
    pub(crate) metrics: Metrics,
    pub(crate) raft: crate::Raft,
    pub(crate) log: LogStore,
    pub(crate) machine: StateMachine,
    pub(crate) history: History,
    pub(crate) reserve: Reserve,
    pub(crate) snapshot_log_bytes: u64,
}

impl Keeper {
    /// Keeps time until the node stops.
    pub(crate) async fn run(self) {
        let mut woke = runtime::now();
        let (mut chores_at, mut disk_at, mut forget_at) = (woke, woke, woke);
        let mut confirmed_at = woke;
        while !self.hub.is_stopped() {
            let wake_at = self.next_wake(woke);
            tokio::select! {
                () = runtime::sleep_until(wake_at) => {}
                () = self.hub.changed.notified() => {}
            }
            let now = runtime::now();
            // Deadlines are only looked at after the outage was counted, so that a thawed
            // process finds nothing overdue that its clients could not have renewed.
            let lateness = now.saturating_duration_since(wake_at);
            if lateness > LATE {
                self.outage(lateness, now);
            }
            woke = now;
            if now >= disk_at {
                disk_at = now + DISK;
                self.reserve.look().await;
            }
            if now >= chores_at {
                chores_at = now + CHORES;
                self.chores().await;
            }
            let Some(term) = self.hub.term() else {
                confirmed_at = now;
                continue;
            };
            if !self.confirm(&mut confirmed_at).await {
                continue;
            }
            if !self.hub.memory().is_stalled(now) {
                self.expire(term, now);
            }
            self.do_due(term, now);
            if now >= forget_at {
                forget_at = now + self.forget_old(term).await;
            }
        }
    }

    fn next_wake(&self, woke: Instant) -> Instant {
        let memory = self.hub.memory();
        let due = memory.due.next().into_iter().chain(memory.clock.next_due()).min();
        let tick = woke + TICK;
        due.map_or(tick, |due| due.clamp(woke + Duration::from_millis(1), tick))
    }

    fn outage(&self, length: Duration, end: Instant) {
        self.hub.memory().clock.outage(length, end);
        self.metrics.outage_seconds.inc_by(length.as_secs_f64());
        tracing::warn!(
            length_ms = runtime::ms(length),
            "every lease gets this time added: the service was not able to serve"
        );
    }

    /// Nothing ends while leadership cannot be confirmed, and the time of it is added.
    async fn confirm(&self, confirmed_at: &mut Instant) -> bool {
        let confirmed = self.confirmer.confirm().await.is_ok();
        let now = runtime::now();
        if confirmed {
            let silent = now.saturating_duration_since(*confirmed_at);
            *confirmed_at = now;
            if silent > SILENT {
                self.outage(silent, now);
            }
        }
        confirmed
    }

    fn expire(&self, term: u64, now: Instant) {
        for _ in 0..EXPIRE_PASS {
            let (expired, next) = {
                let mut memory = self.hub.memory();
                (memory.clock.expired(now, EXPIRE_MAX), memory.clock.next_due())
            };
            if expired.is_empty() {
                // Renewed leases came up with old bounds; there may be expired ones behind them.
                if next.is_none_or(|next| next > now) {
                    return;
                }
                continue;
            }
            let leases = expired.len() as u64;
            let command = Command::Expire { leases: expired.clone(), term };
            match self.propose(Class::Background, command) {
                Some(answer) => {
                    let (hub, metrics) = (self.hub.clone(), self.metrics.clone());
                    runtime::spawn(async move {
                        match answer.await {
                            Ok(Answer::Outcome { .. }) => metrics.expired.inc_by(leases),
                            // Retried until it is applied or somebody else leads.
                            _ => not_expired(&hub, &expired, term),
                        }
                    });
                }
                None => return not_expired(&self.hub, &expired, term),
            }
        }
    }

    fn do_due(&self, term: u64, now: Instant) {
        loop {
            let due = self.hub.memory().due.pop(now);
            let Some(due) = due else { return };
            let Some((class, command)) = self.command(due, term, now) else { continue };
            match self.propose(class, command) {
                Some(answer) => {
                    let (hub, metrics) = (self.hub.clone(), self.metrics.clone());
                    runtime::spawn(
                        async move { settle(&hub, &metrics, due, term, answer.await).await },
                    );
                }
                None => self.hub.add_due(term, now + AGAIN, due),
            }
        }
    }

    /// What a due thing is in the log; `None` if it has been put off.
    fn command(&self, due: Due, term: u64, now: Instant) -> Option<(Class, Command)> {
        Some(match due {
            Due::Leave { ticket, attachment } => (
                Class::End,
                Command::Leave { ticket, attachment, how: LeftHow::Disconnected, term },
            ),
            Due::Detach { ticket, attachment, .. } => {
                (Class::End, Command::Detach { ticket, attachment, term })
            }
            Due::PassOn(PassOn { token, attachment, lease, single, .. }) => {
                let mut memory = self.hub.memory();
                if memory.is_renewing(lease) {
                    memory.due.add(now + AGAIN, due);
                    return None;
                }
                if single {
                    memory.set_passing_on(lease, true);
                }
                (Class::End, Command::PassOn { token, attachment, term })
            }
            Due::EndDrained { token, outages } => {
                let mut memory = self.hub.memory();
                let added = memory.clock.outages().saturating_sub(outages);
                if !added.is_zero() {
                    let outages = memory.clock.outages();
                    memory.due.add(
                        now + added.min(Duration::from_secs(30)),
                        Due::EndDrained { token, outages },
                    );
                    return None;
                }
                (Class::End, Command::EndDrained { token, term })
            }
            Due::EndHold => (Class::End, Command::EndHold { term }),
            Due::Continue(lease) => (Class::Background, Command::Continue { lease }),
        })
    }

    fn propose(&self, class: Class, command: Command) -> Option<oneshot::Receiver<Answer>> {
        let (reply, answer) = oneshot::channel();
        self.batcher.push(class, Proposal::new(command, ReplyTo::Once(reply), None)).ok()?;
        self.batcher.kick();
        Some(answer)
    }

    async fn chores(&self) {
        self.history.keep_at_most(self.shared.table.read().limits().history_max);
        self.gauges();
        let since = self.machine.snapshot_index();
        let enough = self.machine.snapshot_bytes().max(self.snapshot_log_bytes);
        // A snapshot of everything would take the space that is kept for what frees some of it.
        let short = self.reserve.is_needed();
        self.history.spare_space(short);
        if !short
            && self.log.bytes_since(since) >= enough
            && let Err(fatal) = self.raft.trigger().snapshot().await
        {
            tracing::warn!(error = %fatal, "no snapshot was started");
        }
    }

    fn gauges(&self) {
        let (counts, level) = {
            let table = self.shared.table.read();
            (table.counts(), table.level())
        };
        self.metrics.command_level.set(i64::from(level));
        let as_i64 = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        self.metrics.locks.set(as_i64(counts.locks));
        self.metrics.grants.set(as_i64(counts.grants));
        self.metrics.waiters.set(as_i64(counts.tickets));
        self.metrics.leases.set(as_i64(counts.leases));
        self.metrics.clients.set(as_i64(counts.clients));
        self.metrics.remembered.set(as_i64(counts.ended));
        self.metrics.metadata_bytes.set(i64::try_from(counts.metadata_bytes).unwrap_or(i64::MAX));
        self.metrics.proposals.set(as_i64(self.batcher.queued()));
        if let Ok(records) = self.history.len() {
            self.metrics.history_records.set(i64::try_from(records).unwrap_or(i64::MAX));
        }
        let index = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        self.metrics.log_queue_operations.set(as_i64(self.log.queued()));
        self.metrics.log_index.set(index(self.log.last_index().unwrap_or(0)));
        self.metrics.applied_index.set(index(self.shared.applied().map_or(0, |id| id.index)));
        self.metrics.history_durable_index.set(index(self.history.durable_index()));
        self.metrics
            .snapshot_bytes
            .set(i64::try_from(self.machine.snapshot_bytes()).unwrap_or(i64::MAX));
    }

    /// Forgets ended requests and old records; answers when to look again. Age is counted by the
    /// wall clock, for nothing else depends on it.
    async fn forget_old(&self, term: u64) -> Duration {
        let (limits, oldest, at_ms) = {
            let table = self.shared.table.read();
            (table.limits().clone(), table.oldest_ended_at_ms(), table.at_ms())
        };
        let now_ms = runtime::wall_clock_ms().max(at_ms);
        let ended_before_ms = now_ms.saturating_sub(limits.remember_ms);
        let history_before_ms = now_ms.saturating_sub(limits.history_ms);
        let requests = oldest.is_some_and(|oldest| oldest < ended_before_ms);
        let records = self.has_records_before(history_before_ms).await;
        if (requests || records) && self.hub.term() == Some(term) {
            drop(
                self.propose(
                    Class::Background,
                    Command::Trim { ended_before_ms, history_before_ms },
                ),
            );
        }
        let age_ms = limits.remember_ms.min(limits.history_ms);
        Duration::from_millis(age_ms / 16).clamp(*FORGET.start(), *FORGET.end())
    }
}

impl Keeper {
    async fn has_records_before(&self, ended_before_ms: u64) -> bool {
        let history = self.history.clone();
        let until = Filter::EndedUntil(ended_before_ms.saturating_sub(1));
        let page = runtime::blocking(move || history.page(&until, None, 1)).await;
        page.and_then(Result::ok).is_some_and(|page| !page.records.is_empty())
    }
}

fn not_expired(hub: &Hub, leases: &[LeaseId], term: u64) {
    let again_at = runtime::now() + AGAIN;
    let mut memory = hub.memory();
    if memory.term == Some(term) {
        for lease in leases {
            memory.clock.not_expired(*lease, again_at);
        }
    }
}

async fn settle(
    hub: &Hub,
    metrics: &Metrics,
    due: Due,
    term: u64,
    answer: Result<Answer, oneshot::error::RecvError>,
) {
    let now = runtime::now();
    let outcome = match answer {
        Ok(Answer::Outcome { outcome, .. }) => outcome,
        // Not in the log, or not known: try again as long as this term lasts.
        Ok(Answer::Failed(Failure::ShuttingDown)) => return,
        _ => {
            return hub.add_due(term, now + AGAIN, due);
        }
    };
    match (due, outcome) {
        (Due::Detach { ticket, attachment, window_ends }, Outcome::Done { .. }) => {
            hub.add_due(term, window_ends, Due::Leave { ticket, attachment });
        }
        (Due::PassOn(_), Outcome::Done { .. }) => metrics.passed_on.inc(),
        (Due::PassOn(PassOn { lease, single: true, .. }), Outcome::Refused(Refusal::Void)) => {
            hub.memory().set_passing_on(lease, false);
        }
        _ => {}
    }
}

impl Memory {
    /// Something was handed to Raft long ago and is not applied: nothing can be committed.
    fn is_stalled(&self, now: Instant) -> bool {
        self.batches.values().any(|batch| now.saturating_duration_since(batch.handed) > SILENT)
    }

    fn is_renewing(&self, lease: LeaseId) -> bool {
        self.clock.get(lease).is_some_and(|timed| timed.renewing > 0)
    }

    /// While its only grant is on its way to somebody else, a lease is not renewed from memory:
    /// the renewal waits for what comes of it.
    fn set_passing_on(&mut self, lease: LeaseId, passing_on: bool) {
        if let Some(timed) = self.clock.get_mut(lease) {
            timed.passing_on = passing_on;
        }
    }
}
