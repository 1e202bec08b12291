//! The one entrance: a log entry goes in, outcomes and events come out.

use crate::command::{Command, Header};
use crate::ids::Revision;
use crate::limits::Limits;
use crate::outcome::{Applied, Event, EventKind, Outcome, Refusal};
use crate::state::State;
use std::sync::Arc;

/// All locks, leases, lines and remembered requests.
///
/// Source: the replicated state machine approach (Schneider 1990); leases after Gray and
/// Cheriton 1989; tokens as Chubby's sequencers (Burrows 2006).
#[derive(Debug, Clone, Default)]
pub struct LockTable {
    pub(crate) state: State,
}

impl LockTable {
    /// An empty table with these limits.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self { state: State { limits: Arc::new(limits), ..State::default() } }
    }

    /// Applies one log entry. Commands take effect in order, each alone: a refused one neither
    /// undoes nor stops its neighbours.
    ///
    /// Answers one outcome a command and one event a change. Never fails.
    pub fn apply(&mut self, header: Header, commands: &[Command]) -> Applied {
        self.state.head.at_ms = self.state.head.at_ms.max(header.at_ms);
        let mut events = Vec::with_capacity(commands.len() * 2);
        let mut step = Step::new(&mut self.state, header.term, &mut events);
        let outcomes = commands.iter().map(|command| step.run(command)).collect();
        Applied { outcomes, events }
    }
}

/// One entry being applied.
pub(crate) struct Step<'a> {
    pub(crate) state: &'a mut State,
    term: u64,
    events: &'a mut Vec<Event>,
}

impl<'a> Step<'a> {
    pub(crate) fn new(state: &'a mut State, term: u64, events: &'a mut Vec<Event>) -> Self {
        Self { state, term, events }
    }
}

impl Step<'_> {
    fn run(&mut self, command: &Command) -> Outcome {
        if decided_in(command).is_some_and(|term| term != self.term) {
            return Outcome::Refused(Refusal::Void);
        }
        match command {
            Command::Acquire(acquire) => self.acquire(acquire),
            Command::Release(grant) => self.release(grant),
            Command::OpenLease(open) => self.open_lease(open),
            Command::Renew { grant, ttl_ms } => self.renew(grant, *ttl_ms),
            Command::EndLease { lease, caller } => self.end_lease(*lease, caller),
            Command::CancelWait { owner, request_id } => self.cancel_wait(owner, request_id),
            Command::Administer(order) => self.administer(order),
            Command::Expire { leases, .. } => self.expire(leases),
            Command::EndDrained { token, .. } => self.end_drained(*token),
            Command::PassOn { token, attachment, .. } => self.pass_on(*token, *attachment),
            Command::Detach { ticket, attachment, .. } => self.detach(*ticket, *attachment),
            Command::Leave { ticket, attachment, how, .. } => {
                self.leave(*ticket, *attachment, *how)
            }
            Command::Continue { lease } => self.continue_ending(*lease),
            Command::Trim { ended_before_ms, history_before_ms } => {
                self.trim(*ended_before_ms, *history_before_ms)
            }
            Command::Found { cluster, limits } => self.found(*cluster, limits),
            Command::SetLimits(limits) => self.set_limits(limits),
            Command::ConfirmEnded { lease, tokens } => self.confirm_ended(*lease, tokens),
            Command::RaiseLevel { to } => self.raise_level(*to),
            Command::EndHold { .. } => self.end_hold(),
        }
    }

    pub(crate) fn emit(&mut self, kind: EventKind) {
        self.state.head.revision += 1;
        let revision = Revision(self.state.head.revision);
        self.events.push(Event { revision, at_ms: self.state.head.at_ms, kind });
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.state.head.at_ms
    }
}

/// The term in which a leader decided this from its memory.
fn decided_in(command: &Command) -> Option<u64> {
    match command {
        Command::Expire { term, .. }
        | Command::EndDrained { term, .. }
        | Command::PassOn { term, .. }
        | Command::Detach { term, .. }
        | Command::Leave { term, .. }
        | Command::EndHold { term } => Some(*term),
        _ => None,
    }
}
