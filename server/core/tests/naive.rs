//! A second lock table, written from the contract: plain lists, every question answered by
//! looking at everything. Slow, and therefore easy to believe.

mod acquire;
mod deadlock;
mod ends;

use leasehold_core::command::{Command, EndedHow, Metadata, Mode};
use leasehold_core::limits::{DomainSettings, Limits};
use leasehold_core::name::{Owner, RequestId, ResourceName};
use leasehold_core::outcome::{Blockers, Event, EventKind, Grant, Outcome, Refusal};
use leasehold_core::row::{LostGrant, Ticket};
use leasehold_core::{Applied, ClusterId, Header, LeaseId, Revision, TicketId, Token};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Debug, Clone)]
struct Lease {
    owner: Owner,
    ttl_ms: u64,
    single: bool,
    ending: Option<EndedHow>,
    metadata: Option<Metadata>,
    lost: Vec<LostGrant>,
}

/// What must be equal in a repeat: resource, mode, lease or TTL, metadata.
type Content = (ResourceName, Mode, Option<LeaseId>, u64, Vec<(Arc<str>, Arc<str>)>);

#[derive(Debug, Clone)]
enum Memory {
    Request { owner: Owner, id: RequestId, content: Content, token: Option<Token> },
    Lease(LeaseId),
}

#[derive(Debug, Clone)]
struct Ended {
    what: Memory,
    how: EndedHow,
    at_ms: u64,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Naive {
    cluster: Option<ClusterId>,
    level: u16,
    limits: Limits,
    domains: BTreeMap<String, DomainSettings>,
    now_ms: u64,
    term: u64,
    revision: u64,
    last_token: u64,
    last_ticket: u64,
    grants: Vec<Arc<Grant>>,
    tickets: Vec<Ticket>,
    leases: BTreeMap<LeaseId, Lease>,
    /// Live requests; what they have become is found by looking at grants and tickets.
    requests: BTreeMap<(Owner, RequestId), Content>,
    /// Oldest first.
    ended: Vec<Ended>,
    events: Vec<Event>,
}

impl Naive {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { limits, level: Command::FIRST, ..Self::default() }
    }

    pub(crate) fn level(&self) -> u16 {
        self.level
    }

    pub(crate) fn apply(&mut self, header: Header, commands: &[Command]) -> Applied {
        self.now_ms = self.now_ms.max(header.at_ms);
        self.term = header.term;
        let outcomes = commands.iter().map(|command| self.run(command)).collect();
        Applied { outcomes, events: std::mem::take(&mut self.events) }
    }

    pub(crate) fn grants(&self) -> &[Arc<Grant>] {
        &self.grants
    }

    pub(crate) fn tickets(&self) -> &[Ticket] {
        &self.tickets
    }

    /// Ids, owners, and whether they are for one thing.
    pub(crate) fn leases(&self) -> impl Iterator<Item = (LeaseId, &Owner, bool)> {
        self.leases.iter().map(|(id, lease)| (*id, &lease.owner, lease.single))
    }

    /// What is remembered of ended things, for the bounds.
    pub(crate) fn ended_len(&self) -> usize {
        self.ended.len()
    }

    fn run(&mut self, command: &Command) -> Outcome {
        let result = match command {
            Command::Acquire(asked) => self.acquire(asked),
            Command::Release(asked) => self.release(asked),
            Command::OpenLease(open) => {
                self.open(open.lease, &open.owner, open.ttl_ms, open.metadata.as_ref())
            }
            Command::Renew { grant, ttl_ms } => self.renew(grant, *ttl_ms),
            Command::EndLease { lease, caller } => self.end_lease(*lease, caller),
            Command::CancelWait { owner, request_id } => self.cancel(owner, request_id),
            Command::Administer(order) => Ok(self.administer(order)),
            Command::Expire { leases, term } => self.in_term(*term).map(|()| self.expire(leases)),
            Command::EndDrained { token, term } => {
                self.in_term(*term).and_then(|()| self.drained(*token))
            }
            Command::PassOn { token, attachment, term } => {
                self.in_term(*term).and_then(|()| self.pass_on(*token, *attachment))
            }
            Command::Detach { ticket, attachment, term } => {
                self.in_term(*term).and_then(|()| self.detach(*ticket, *attachment))
            }
            Command::Leave { ticket, attachment, how, term } => {
                self.in_term(*term).and_then(|()| self.leave(*ticket, *attachment, *how))
            }
            Command::Continue { lease } => {
                match self.leases.get(lease).and_then(|lease| lease.ending) {
                    Some(how) => Ok(self.end_pieces(&[*lease], how)),
                    None => Err(Refusal::Void),
                }
            }
            Command::Trim { ended_before_ms, history_before_ms } => {
                let above = self.ended.len().saturating_sub(self.limits.ended_max as usize);
                let young = self.ended.iter().position(|row| row.at_ms >= *ended_before_ms);
                self.ended.drain(..young.unwrap_or(self.ended.len()).max(above));
                if *history_before_ms > 0 {
                    self.tell(EventKind::HistoryTrimmed { before_ms: *history_before_ms });
                }
                DONE
            }
            Command::Found { cluster, limits } => {
                let mut fresh = false;
                let founded = *self.cluster.get_or_insert_with(|| {
                    fresh = true;
                    *cluster
                });
                if fresh {
                    self.limits = (**limits).clone();
                    self.tell(EventKind::LimitsChanged);
                }
                if founded == *cluster { DONE } else { Err(Refusal::Void) }
            }
            Command::SetLimits(limits) => {
                if self.limits != **limits {
                    self.limits = (**limits).clone();
                    self.tell(EventKind::LimitsChanged);
                }
                DONE
            }
            // Histories are not restored, so nothing is on hold.
            Command::EndHold { .. } => Err(Refusal::Void),
            Command::ConfirmEnded { lease, tokens } => {
                self.living(*lease).map(|_| ()).and_then(|()| {
                    let lease = self.leases.get_mut(lease).ok_or(Refusal::LeaseUnknown)?;
                    lease.lost.retain(|lost| !tokens.contains(&lost.token));
                    DONE
                })
            }
            Command::RaiseLevel { to } => {
                self.level = self.level.max(*to);
                DONE
            }
        };
        result.unwrap_or_else(Outcome::Refused)
    }

    fn tell(&mut self, kind: EventKind) {
        self.revision += 1;
        self.events.push(Event { revision: Revision(self.revision), at_ms: self.now_ms, kind });
    }

    fn in_term(&self, term: u64) -> Result<(), Refusal> {
        if term == self.term { Ok(()) } else { Err(Refusal::Void) }
    }
}

const DONE: Result<Outcome, Refusal> = Ok(Outcome::Done { more: false });

// What is where.
impl Naive {
    pub(crate) fn holders(&self, resource: &ResourceName) -> Vec<&Arc<Grant>> {
        self.grants.iter().filter(|grant| grant.resource == *resource).collect()
    }

    fn admitted(&self, resource: &ResourceName, mode: Mode) -> bool {
        self.holders(resource)
            .iter()
            .all(|grant| grant.mode == Mode::Shared && mode == Mode::Shared)
    }

    /// The whole line, first first.
    pub(crate) fn line(&self, resource: &ResourceName) -> Vec<&Ticket> {
        let mut line: Vec<&Ticket> =
            self.tickets.iter().filter(|ticket| ticket.resource == *resource).collect();
        line.sort_by_key(|ticket| (Reverse(ticket.priority), ticket.id));
        line
    }

    fn first(&self, resource: &ResourceName) -> Option<&Ticket> {
        self.line(resource).into_iter().find(|ticket| ticket.attached)
    }

    fn ticket(&self, id: TicketId) -> Option<Ticket> {
        self.tickets.iter().find(|ticket| ticket.id == id).cloned()
    }

    fn live(&self, resource: &ResourceName, token: Token) -> Result<Arc<Grant>, Refusal> {
        self.holders(resource)
            .into_iter()
            .find(|grant| grant.token == token)
            .cloned()
            .ok_or(Refusal::NotLive)
    }

    fn living(&self, id: LeaseId) -> Result<&Lease, Refusal> {
        if let Some(lease) = self.leases.get(&id) {
            return match lease.ending {
                Some(how) => {
                    Err(Refusal::LeaseEnded { how: Some(how), ended_at_ms: Some(self.now_ms) })
                }
                None => Ok(lease),
            };
        }
        let remembered =
            self.ended.iter().find(|row| matches!(row.what, Memory::Lease(ended) if ended == id));
        Err(remembered.map_or(Refusal::LeaseUnknown, |row| Refusal::LeaseEnded {
            how: Some(row.how),
            ended_at_ms: Some(row.at_ms),
        }))
    }

    fn on_lease(&self, id: LeaseId) -> usize {
        self.grants.iter().filter(|grant| grant.lease == id).count()
            + self.tickets.iter().filter(|ticket| ticket.lease == id).count()
    }

    fn metadata_bytes(&self) -> u64 {
        let grants = self.grants.iter().map(|grant| bytes(grant.metadata.as_ref()));
        let tickets = self.tickets.iter().map(|ticket| bytes(ticket.metadata.as_ref()));
        let leases = self.leases.values().map(|lease| bytes(lease.metadata.as_ref()));
        grants.chain(tickets).chain(leases).sum()
    }

    fn blockers(&self, resource: &ResourceName) -> Refusal {
        let holders = self.holders(resource);
        Refusal::Held(Blockers {
            holders: holders.iter().take(Blockers::SHOWN).map(|grant| (*grant).clone()).collect(),
            holders_total: holders.len(),
            queue_length: self.line(resource).len(),
        })
    }
}

fn bytes(metadata: Option<&Metadata>) -> u64 {
    metadata
        .map_or(0, |pairs| pairs.iter().map(|(key, value)| (key.len() + value.len()) as u64).sum())
}
