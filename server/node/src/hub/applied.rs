//! What an applied entry means for the leader's memory: deadlines start and stop, sleepers wake.
//!
//! Runs on the applying task, under the table's lock and in log order, so that a waiter is in
//! its place before any later entry can grant to it.

use super::cell::{Acquirer, Answer, Cell, GrantedAt, Phase, ReplyTo};
use super::due::{Due, PassOn};
use super::{Hub, Memory, OnItsWay, Sleeper};
use crate::runtime;
use crate::state::Sink;
use crate::types::Batch;
use leasehold_core::command::LeftHow;
use leasehold_core::outcome::{EventKind, Grant, Outcome, Refusal};
use leasehold_core::{Applied, Command, LockTable, TicketId, Token};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

impl Sink for Hub {
    fn applied(&self, index: u64, term: u64, batch: &Batch, applied: Applied, table: &LockTable) {
        if cfg!(debug_assertions) {
            check_now_and_then(index, table);
        }
        let mut memory = self.memory();
        let own =
            if batch.proposer == self.proposer { memory.batches.remove(&batch.seq) } else { None };
        let leading = memory.term == Some(term);
        if !leading && own.is_none() {
            return;
        }
        let before = memory.due.next();
        let (handed, replies) = match own {
            Some(OnItsWay { handed, replies }) => (handed, replies),
            None => (runtime::now(), Vec::new()),
        };
        memory.count_stall(handed);
        let mut step = Step { memory: &mut memory, handed, table, unclaimed: BTreeMap::new() };
        step.run(batch, applied, replies);
        let sooner = memory.due.next() != before;
        drop(memory);
        if sooner {
            self.changed.notify_one();
        }
    }

    fn replaced(&self, _table: &LockTable) {}
}

struct Step<'a> {
    memory: &'a mut Memory,
    handed: Instant,
    table: &'a LockTable,
    /// Grants of this entry that no live request was told of yet, and when they pass on.
    unclaimed: BTreeMap<Token, (Instant, Arc<Grant>)>,
}

impl Step<'_> {
    fn run(&mut self, batch: &Batch, applied: Applied, replies: Vec<ReplyTo>) {
        // First the places in line: a later command of this entry may grant to one of them.
        let mut direct = Vec::with_capacity(replies.len());
        for (reply, outcome) in replies.into_iter().zip(applied.outcomes) {
            match (reply, outcome) {
                (ReplyTo::Acquire(acquirer), Outcome::Queued { ticket, attachment, .. }) => {
                    self.queued(acquirer, ticket, attachment);
                }
                (reply, outcome) => direct.push((reply, outcome)),
            }
        }
        for event in &applied.events {
            self.happened(&event.kind);
        }
        for (reply, outcome) in direct {
            self.answer(reply, outcome);
        }
        self.go_on_ending(batch);
        for (pass_on_at, grant) in std::mem::take(&mut self.unclaimed).into_values() {
            self.memory.due.add(pass_on_at, Due::PassOn(PassOn::of(&grant, false)));
        }
    }

    fn queued(&mut self, acquirer: Acquirer, ticket: TicketId, attachment: u32) {
        let window_ms = self.table.limits().claim_window_ms;
        let Acquirer { cell, answer, has_request_id } = acquirer;
        let sleeper = Sleeper { cell, answer, has_request_id };
        if sleeper.cell.advance(Phase::Queued { ticket, attachment }) {
            let sleepers = self.memory.waiting.entry(ticket).or_default();
            // Earlier requests for the same place whose clients are gone.
            sleepers.retain(|earlier| !earlier.answer.is_closed());
            sleepers.push(sleeper);
        } else {
            self.memory.connection_lost(
                ticket,
                attachment,
                has_request_id,
                runtime::now(),
                window_ms,
            );
        }
    }

    fn happened(&mut self, kind: &EventKind) {
        match kind {
            EventKind::Granted { grant, ttl_ms } => self.granted(grant, *ttl_ms),
            EventKind::Ended(record) => {
                self.memory.due.kept(record.grant.token);
                self.memory.drains.ended(&record.grant);
                if record.grant.single {
                    self.memory.clock.remove(record.grant.lease);
                }
            }
            EventKind::LeaseOpened { lease, ttl_ms, .. }
            | EventKind::LeaseChanged { lease, ttl_ms } => {
                self.memory.clock.start(*lease, self.handed, *ttl_ms);
                self.memory.due.claimed(*lease);
            }
            EventKind::LeaseEnded { lease, .. } => {
                self.memory.clock.remove(*lease);
                self.memory.losses.forget(*lease);
            }
            EventKind::Draining { grant, .. } => self.memory.drain(grant),
            EventKind::Left { ticket, how, .. } => self.left(*ticket, *how),
            EventKind::Ending { lease } => {
                if let Some(timed) = self.memory.clock.get_mut(*lease) {
                    timed.expiring = true;
                }
                self.memory.due.add(runtime::now(), Due::Continue(*lease));
            }
            _ => {}
        }
    }

    fn granted(&mut self, grant: &Arc<Grant>, ttl_ms: u64) {
        if grant.single {
            self.memory.clock.start(grant.lease, self.handed, ttl_ms);
        }
        let Some(ticket) = grant.ticket else { return };
        let mut sleepers = self.memory.waiting.remove(&ticket).unwrap_or_default();
        let has_request_id = grant.request_id.is_some();
        let mut lost_at = runtime::now();
        sleepers.retain(|sleeper| match sleeper.cell.phase() {
            Phase::Abandoned { at } => {
                lost_at = at;
                false
            }
            _ => true,
        });
        // With several, one that goes away unheard must not end what another one heard.
        let alone = sleepers.len() == 1;
        let mut told = false;
        for sleeper in sleepers {
            told |= self.tell(sleeper, grant, ttl_ms, alone);
        }
        if !told {
            let window = if has_request_id { self.table.limits().claim_window_ms } else { 0 };
            let pass_on_at = lost_at + Duration::from_millis(window);
            self.unclaimed.insert(grant.token, (pass_on_at, grant.clone()));
        }
    }

    fn tell(&mut self, sleeper: Sleeper, grant: &Arc<Grant>, ttl_ms: u64, alone: bool) -> bool {
        if self.table.grant(grant.token).is_none() {
            self.answer_ended(sleeper.cell, sleeper.answer, grant);
            return true;
        }
        let phase = if alone { phase_of(grant) } else { Phase::Over };
        if !sleeper.cell.advance(phase) {
            return false;
        }
        let answer = Answer::Granted(self.granted_at(grant, ttl_ms, true));
        sleeper.answer.send(answer).is_ok()
    }

    /// `unclaimed`: a claim window, if the client asked for one, starts or starts again.
    fn granted_at(&mut self, grant: &Arc<Grant>, ttl_ms: u64, unclaimed: bool) -> GrantedAt {
        let (mut promised, mut deadline) = self.ends_of(grant, ttl_ms);
        let claim = grant.claim_ms.filter(|claim_ms| unclaimed && *claim_ms < ttl_ms);
        if let Some(claim_ms) = claim {
            // Whoever lets a grant pass on early must not believe in it for longer.
            let at = self.handed + Duration::from_millis(claim_ms);
            (promised, deadline) = (promised.min(at), deadline.min(at));
            self.memory.due.add(at, Due::PassOn(PassOn::of(grant, true)));
        }
        GrantedAt {
            grant: grant.clone(),
            ttl_ms,
            handed: self.handed,
            promised,
            deadline,
            revision: self.table.revision(),
        }
    }

    fn ends_of(&self, grant: &Grant, ttl_ms: u64) -> (Instant, Instant) {
        if grant.draining {
            // What an earlier answer promised still stands; nothing is promised anew.
            return (self.handed, self.handed);
        }
        let full = self.handed + Duration::from_millis(ttl_ms);
        let clock = &self.memory.clock;
        match (clock.promised(grant.lease), clock.deadline(grant.lease)) {
            (Some(promised), Some(deadline)) => (promised, deadline),
            // Only leaders time leases; a deposed one can promise what the entry itself carries
            // for a lease of its own, and nothing for another.
            _ if grant.single => (full, full),
            _ => (self.handed, self.handed),
        }
    }

    fn left(&mut self, ticket: TicketId, how: LeftHow) {
        let sleepers = self.memory.waiting.remove(&ticket).unwrap_or_default();
        for sleeper in sleepers {
            // Who timed out asked for this and has its own answer; the others must be woken.
            let refusal = match how {
                LeftHow::LeaseEnded => Refusal::LeaseEnded { how: None, ended_at_ms: None },
                LeftHow::Deadlock => Refusal::WouldDeadlock { cycle: Vec::new() },
                LeftHow::Cancelled | LeftHow::TimedOut | LeftHow::Disconnected => {
                    Refusal::NotWaiting
                }
            };
            sleeper.cell.advance(Phase::Over);
            let _ = sleeper.answer.send(Answer::Outcome {
                outcome: Outcome::Refused(refusal),
                handed: self.handed,
                revision: self.table.revision(),
            });
        }
    }

    fn answer(&mut self, reply: ReplyTo, outcome: Outcome) {
        let revision = self.table.revision();
        let handed = self.handed;
        match (reply, outcome) {
            (ReplyTo::Acquire(acquirer), Outcome::Granted { grant, ttl_ms, repeat }) => {
                self.answer_grant(acquirer, &grant, ttl_ms, repeat);
            }
            (ReplyTo::Acquire(acquirer), outcome) => {
                acquirer.cell.advance(Phase::Over);
                let _ = acquirer.answer.send(Answer::Outcome { outcome, handed, revision });
            }
            (ReplyTo::Once(answer), outcome) => {
                let _ = answer.send(Answer::Outcome { outcome, handed, revision });
            }
        }
    }

    fn answer_grant(&mut self, acquirer: Acquirer, grant: &Arc<Grant>, ttl_ms: u64, repeat: bool) {
        if self.table.grant(grant.token).is_none() {
            return self.answer_ended(acquirer.cell, acquirer.answer, grant);
        }
        let ends = self.memory.clock.get(grant.lease).is_some_and(|timed| timed.ends_soon());
        if repeat && grant.single && !grant.draining && !ends {
            // The entry was committed after this request had come: that confirms it like a round.
            // Not if an end of the lease is on its way already: then nothing is promised anew.
            self.memory.clock.renew(grant.lease, self.handed);
        }
        let token = grant.token;
        let passed_on_at =
            self.memory.due.kept(token).or(self.unclaimed.get(&token).map(|(at, _)| *at));
        // A repeat whose client goes away again must not end what an earlier answer handed out.
        let phase = if repeat && passed_on_at.is_none() { Phase::Over } else { phase_of(grant) };
        let told = acquirer.cell.advance(phase) && {
            let unclaimed = !repeat || passed_on_at.is_some();
            let answer = Answer::Granted(self.granted_at(grant, ttl_ms, unclaimed));
            acquirer.answer.send(answer).is_ok()
        };
        if told {
            self.unclaimed.remove(&token);
        } else if !repeat || passed_on_at.is_some() {
            let window =
                if acquirer.has_request_id { self.table.limits().claim_window_ms } else { 0 };
            let pass_on_at = runtime::now() + Duration::from_millis(window);
            // Never earlier than what an earlier answer let its client believe.
            let pass_on_at = passed_on_at.map_or(pass_on_at, |before| before.max(pass_on_at));
            self.unclaimed.insert(token, (pass_on_at, grant.clone()));
        }
    }

    /// Granted and ended within one entry: answers are built from the state after it.
    fn answer_ended(
        &mut self,
        cell: Arc<Cell>,
        answer: oneshot::Sender<Answer>,
        grant: &Arc<Grant>,
    ) {
        cell.advance(Phase::Over);
        let refusal = Refusal::RequestEnded {
            token: Some(grant.token),
            how: leasehold_core::command::EndedHow::Expired,
            ended_at_ms: self.table.at_ms(),
        };
        let _ = answer.send(Answer::Outcome {
            outcome: Outcome::Refused(refusal),
            handed: self.handed,
            revision: self.table.revision(),
        });
    }

    fn go_on_ending(&mut self, batch: &Batch) {
        for command in &batch.commands {
            if let Command::Continue { lease } = command
                && self.table.ending_leases().any(|id| id == *lease)
            {
                self.memory.due.add(runtime::now(), Due::Continue(*lease));
            }
        }
    }
}

/// Debug builds check every invariant while the state is small enough for that.
fn check_now_and_then(index: u64, table: &LockTable) {
    let counts = table.counts();
    if index.is_multiple_of(16) && counts.grants + counts.tickets + counts.ended < 2_000 {
        let breaches = table.sound();
        assert!(breaches.is_empty(), "after entry {index}: {breaches:?}");
    }
}

fn phase_of(grant: &Grant) -> Phase {
    Phase::Granted(PassOn::of(grant, false))
}

impl Memory {
    /// A request that stood in line is gone: its ticket leaves, or its place is kept a while.
    pub(crate) fn connection_lost(
        &mut self,
        ticket: TicketId,
        attachment: u32,
        has_request_id: bool,
        at: Instant,
        window_ms: u64,
    ) {
        let now = runtime::now();
        if has_request_id {
            let window_ends = at + Duration::from_millis(window_ms);
            self.due.add(now, Due::Detach { ticket, attachment, window_ends });
        } else {
            self.due.add(now, Due::Leave { ticket, attachment });
        }
    }
}
