//! Asking for a lock, and waiting for it.

use crate::answer::{Call, Failure, Granted, Holder, Validity, WaitTimeout};
use crate::hub::Hub;
use crate::hub::cell::{Acquirer, Answer, Cell, GrantedAt, Phase, ReplyTo};
use crate::hub::due::Due;
use crate::node::Node;
use crate::propose::{Class, Proposal};
use crate::runtime;
use leasehold_core::command::{Acquire, LeftHow};
use leasehold_core::outcome::{Blockers, Bound, Outcome, Refusal};
use leasehold_core::{Command, LockTable, TicketId};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

impl Node {
    /// Acquires a lock, waiting up to `wait_ms` for it; 0 tries once.
    ///
    /// Dropping the future means that the client is gone: its ticket leaves the line, or keeps
    /// its place for the claim window if the request has an id.
    ///
    /// # Errors
    /// [`Failure::Held`] and [`Failure::WaitTimeout`] when the lock is somebody else's, other
    /// variants as they say.
    pub async fn acquire(
        &self,
        call: Call,
        mut asked: Acquire,
        wait_ms: u64,
    ) -> Result<Granted, Failure> {
        self.check_open()?;
        if !self.is_repeat(&asked) {
            self.check_storage()?;
        }
        asked.wait = wait_ms > 0;
        let patient = self.first_look(&asked).map_err(|refusal| self.explain(refusal))?;
        let request_id = asked.request_id.clone();
        let keep_place = asked.keep_place && request_id.is_some();
        let (mut waiting, mut answer) = self.propose_acquire(asked, call, patient)?;
        self.inner.batcher.kick();
        let wait_ends = call.received + Duration::from_millis(wait_ms);
        let wait_ends = call.deadline.map_or(wait_ends, |deadline| deadline.min(wait_ends));
        let give_up_at = wait_ends.max(call.received + Duration::from_secs(30));
        let first = match wait_ms {
            0 => runtime::timeout_at(call.deadline.unwrap_or(give_up_at), &mut answer).await,
            _ => tokio::select! {
                told = runtime::timeout_at(wait_ends, &mut answer) => told,
                () = self.inner.hub.refused() => None,
            },
        };
        let told = match first {
            Some(told) => {
                told.unwrap_or(Answer::Failed(Failure::OutcomeUnknown { request_id: None }))
            }
            // The client wants an answer now, and the log has none. If it grants after all, the
            // grant finds nobody and passes on.
            None if wait_ms == 0 => return Err(Failure::OutcomeUnknown { request_id }),
            None => {
                let refused = self.inner.hub.is_refusing();
                let keep_place = if refused { request_id.is_some() } else { keep_place };
                let stopped =
                    self.stop_waiting(call, &mut waiting, &mut answer, keep_place, give_up_at);
                // Given up without an answer, the request counts as abandoned, not as told.
                let stopped = stopped.await.map_err(|failure| match failure {
                    Failure::WaitTimeout(_) if refused => Failure::ShuttingDown,
                    // It stands in the line of whoever leads next.
                    Failure::NoLeader => Failure::OutcomeUnknown { request_id: request_id.clone() },
                    other => other.of_request(request_id.as_ref()),
                });
                stopped?
            }
        };
        waiting.over();
        match told {
            Answer::Granted(grant) => Ok(self.granted(call, grant)),
            Answer::Outcome { outcome: Outcome::Refused(refusal), .. } => {
                Err(self.explain(refusal))
            }
            Answer::Outcome { outcome, .. } => {
                Err(Failure::Internal(format!("no answer to an acquire: {outcome:?}")))
            }
            Answer::Failed(failure) => Err(failure.of_request(request_id.as_ref())),
        }
    }

    /// A repeat of what lives takes no room that is not taken already.
    fn is_repeat(&self, asked: &Acquire) -> bool {
        let Some(id) = &asked.request_id else { return false };
        self.inner.shared.table.read().request(&asked.owner, id).is_some()
    }

    /// Whether it will have to stand in line, as far as can be seen from here.
    fn first_look(&self, asked: &Acquire) -> Result<bool, Refusal> {
        let table = self.inner.shared.table.read();
        match refused_from_memory(&table, asked) {
            Some(refusal) => Err(refusal),
            None => Ok(asked.wait && table.is_held(&asked.resource)),
        }
    }

    pub(crate) fn propose_acquire(
        &self,
        asked: Acquire,
        call: Call,
        patient: bool,
    ) -> Result<(Waiting<'_>, oneshot::Receiver<Answer>), Failure> {
        let cell = Cell::new();
        let (answer, told) = oneshot::channel();
        let has_request_id = asked.request_id.is_some();
        let acquirer = Acquirer { cell: cell.clone(), answer, has_request_id };
        let command = Command::Acquire(Box::new(asked));
        let proposal = Proposal::new(command, ReplyTo::Acquire(acquirer), call.deadline);
        self.push(Class::Ask, proposal.patient(patient))?;
        Ok((Waiting { hub: &self.inner.hub, node: self, cell, has_request_id }, told))
    }

    /// The wait is over. The ticket leaves in the log before that is answered; if it was granted
    /// meanwhile, the grant is the answer.
    async fn stop_waiting(
        &self,
        call: Call,
        waiting: &mut Waiting<'_>,
        answer: &mut oneshot::Receiver<Answer>,
        keep_place: bool,
        give_up_at: Instant,
    ) -> Result<Answer, Failure> {
        let unknown = Failure::OutcomeUnknown { request_id: None };
        loop {
            if let Phase::Queued { ticket, attachment } = waiting.cell.phase() {
                let timeout = self.wait_timeout(call, ticket);
                return match self.leave(ticket, attachment, keep_place).await? {
                    Outcome::Refused(Refusal::NotWaiting) => answer.await.map_err(|_| unknown),
                    _ => {
                        waiting.over();
                        Err(Failure::WaitTimeout(Box::new(timeout)))
                    }
                };
            }
            // Its command has no outcome yet, or its answer is on the way here.
            tokio::select! {
                told = &mut *answer => return told.map_err(|_| unknown),
                () = waiting.cell.changed() => {}
                () = runtime::sleep_until(give_up_at) => return Err(unknown),
            }
        }
    }

    async fn leave(
        &self,
        ticket: TicketId,
        attachment: u32,
        keep_place: bool,
    ) -> Result<Outcome, Failure> {
        let term = self.inner.hub.term().ok_or(Failure::NoLeader)?;
        if keep_place {
            let command = Command::Detach { ticket, attachment, term };
            let outcome = self.ask(Class::End, command, None).await?.outcome;
            if matches!(outcome, Outcome::Done { .. }) {
                let window = Duration::from_millis(self.limits().claim_window_ms);
                let at = runtime::now() + window;
                self.inner.hub.add_due(term, at, Due::Leave { ticket, attachment });
            }
            return Ok(outcome);
        }
        let command = Command::Leave { ticket, attachment, how: LeftHow::TimedOut, term };
        Ok(self.ask(Class::End, command, None).await?.outcome)
    }

    fn wait_timeout(&self, call: Call, id: TicketId) -> WaitTimeout {
        let table = self.inner.shared.table.read();
        let ticket = table.ticket(id).cloned();
        let position = ticket.as_ref().and_then(|ticket| table.position(ticket)).unwrap_or(1);
        let view = ticket.and_then(|ticket| table.lock_view(&ticket.resource, Blockers::SHOWN));
        drop(table);
        let grants = view.as_ref().map(|view| view.holders.as_slice()).unwrap_or_default();
        WaitTimeout {
            waited_ms: runtime::ms(runtime::now() - call.received),
            position,
            holders: grants.iter().take(Blockers::SHOWN).map(|grant| self.holder(grant)).collect(),
            holders_total: view.as_ref().map_or(0, |view| view.holders_total),
            queue_length: view.as_ref().map_or(0, |view| view.queue_length),
        }
    }

    pub(crate) fn granted(&self, call: Call, at: GrantedAt) -> Granted {
        // Rounded down: of the wait only what surely lay before the anchor counts for the client.
        let waited = at.handed.saturating_duration_since(call.received);
        Granted {
            validity: validity(call, at.promised, at.deadline),
            grant: at.grant,
            ttl_ms: at.ttl_ms,
            waited_ms: runtime::ms(waited),
            revision: at.revision,
        }
    }

    pub(crate) fn holder(&self, grant: &Arc<leasehold_core::outcome::Grant>) -> Holder {
        let expires_in_ms = self.inner.hub.grant_expires_in_ms(grant.lease, grant.token);
        Holder { expires_in_ms, grant: grant.clone() }
    }

    /// A refusal with what only the leader's clock knows, and counted if it names a bound.
    pub(crate) fn explain(&self, refusal: Refusal) -> Failure {
        match refusal {
            Refusal::Held(Blockers { holders, holders_total, queue_length }) => Failure::Held {
                holders: holders.iter().map(|grant| self.holder(grant)).collect(),
                holders_total,
                queue_length,
            },
            Refusal::Full { bound, .. } => {
                self.inner.metrics.refusals.with_label_values(&[bound_name(bound)]).inc();
                Failure::Refused(refusal)
            }
            Refusal::OnHold { hold_ms } => {
                let hold_ms = self.inner.hub.hold_left_ms().unwrap_or(hold_ms);
                Failure::Refused(Refusal::OnHold { hold_ms })
            }
            other => Failure::Refused(other),
        }
    }
}

/// `valid_for` counts from the sending of the request, which was before its receipt; a margin for
/// the difference of clock rates is taken off.
pub(crate) fn validity(call: Call, promised: Instant, deadline: Instant) -> Validity {
    let valid = runtime::ms(promised.saturating_duration_since(call.received));
    let margin = 20 + valid.div_ceil(100);
    let left = deadline.saturating_duration_since(runtime::now());
    Validity { expires_in_ms: runtime::ms(left), valid_for_ms: valid.saturating_sub(margin) }
}

/// Refusals that promise nothing are given from the leader's present state, without an entry: a
/// crowd in front of one lock costs the log nothing. What may be a repeat goes through the log.
fn refused_from_memory(table: &LockTable, asked: &Acquire) -> Option<Refusal> {
    if asked.request_id.as_ref().is_some_and(|id| table.request(&asked.owner, id).is_some()) {
        return None;
    }
    table.sure_refusal(asked)
}

fn bound_name(bound: Bound) -> &'static str {
    match bound {
        Bound::Queue => "queue",
        Bound::ClientTickets => "client_waiters",
        Bound::Tickets => "waiters",
        Bound::Grants => "grants",
        Bound::Leases => "leases",
        Bound::LeaseItems => "lease_grants",
        Bound::Metadata => "metadata",
        Bound::Tokens => "tokens",
        Bound::Domains => "domains",
    }
}

/// A request on its way. Dropped before it was answered, it tells the hub that its client is
/// gone.
pub(crate) struct Waiting<'a> {
    hub: &'a Hub,
    node: &'a Node,
    cell: Arc<Cell>,
    has_request_id: bool,
}

impl Waiting<'_> {
    /// The answer is on its way to the client: from here on the grant counts as handed out.
    pub(crate) fn over(&mut self) {
        self.cell.advance(Phase::Over);
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let now = runtime::now();
        let abandoned = self.cell.abandon(now);
        if matches!(abandoned, Phase::Over | Phase::Proposed | Phase::Abandoned { .. }) {
            // Nobody waits, or whoever applies the command will find the client gone.
            return;
        }
        let window_ms = self.node.limits().claim_window_ms;
        let mut memory = self.hub.memory();
        match abandoned {
            Phase::Queued { ticket, attachment } => {
                memory.connection_lost(ticket, attachment, self.has_request_id, now, window_ms);
            }
            Phase::Granted(pass_on) => {
                let window = if self.has_request_id { window_ms } else { 0 };
                let at = now + Duration::from_millis(window);
                // Never earlier than what an earlier answer let its client believe.
                let at = memory.due.kept(pass_on.token).map_or(at, |before| before.max(at));
                memory.due.add(at, Due::PassOn(pass_on));
            }
            Phase::Over | Phase::Proposed | Phase::Abandoned { .. } => {}
        }
        drop(memory);
        self.hub.changed.notify_one();
    }
}
