//! A second lock table, written from the contract: plain lists, every question answered by
//! looking at everything. Slow, and therefore easy to believe.

use leasehold_core::command::{
    Acquire, Action, Administer, Basis, Caller, Command, EndedHow, Expected, ForceWhen, GrantRef,
    LeftHow, Metadata, Mode, Stage,
};
use leasehold_core::limits::{DomainLimits, DomainSettings, Limits};
use leasehold_core::name::{Owner, RequestId, ResourceName};
use leasehold_core::outcome::{
    AuditRecord, AuditResult, Blockers, Bound, CycleStep, Event, EventKind, Grant, GrantRecord,
    Outcome, Refusal,
};
use leasehold_core::row::{LostGrant, Ticket};
use leasehold_core::{Applied, ClusterId, Header, LeaseId, Revision, TicketId, Token};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
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

// Acquire.
impl Naive {
    fn acquire(&mut self, asked: &Acquire) -> Result<Outcome, Refusal> {
        let known = asked.request_id.as_ref().and_then(|id| self.repeat(asked, id));
        if let Some(answer) = known {
            return answer;
        }
        self.check(asked)?;
        let first = self.first(&asked.resource).map(|ticket| ticket.priority);
        if self.admitted(&asked.resource, asked.mode)
            && first.is_none_or(|first| first < asked.priority)
        {
            return Ok(self.grant_new(asked));
        }
        if !asked.wait {
            return Err(self.blockers(&asked.resource));
        }
        self.check_line(asked)?;
        Ok(self.queue(asked))
    }

    fn repeat(&mut self, asked: &Acquire, id: &RequestId) -> Option<Result<Outcome, Refusal>> {
        let key = (asked.owner.clone(), id.clone());
        let old = self.ended.iter().find_map(|row| match &row.what {
            Memory::Request { owner, id: ended, content, token }
                if *owner == key.0 && *ended == key.1 =>
            {
                let refusal =
                    Refusal::RequestEnded { token: *token, how: row.how, ended_at_ms: row.at_ms };
                Some(if *content == content_of(asked) { refusal } else { Refusal::RequestReused })
            }
            _ => None,
        });
        if let Some(refusal) = old {
            return Some(Err(refusal));
        }
        if *self.requests.get(&key)? != content_of(asked) {
            return Some(Err(Refusal::RequestReused));
        }
        let is_mine = |owner: &Owner, request: &Option<RequestId>| {
            *owner == key.0 && request.as_ref() == Some(id)
        };
        if let Some(slot) =
            self.grants.iter_mut().find(|grant| is_mine(&grant.owner, &grant.request_id))
        {
            let lease = &self.leases[&slot.lease];
            if let Some(how) = lease.ending {
                return Some(Err(Refusal::RequestEnded {
                    token: Some(slot.token),
                    how,
                    ended_at_ms: self.now_ms,
                }));
            }
            // Whoever gave it up for lost before this repeat must see that it is another's now.
            *slot = Arc::new(Grant { attachment: slot.attachment + 1, ..(**slot).clone() });
            return Some(Ok(Outcome::Granted {
                grant: slot.clone(),
                ttl_ms: lease.ttl_ms,
                repeat: true,
            }));
        }
        let ticket =
            self.tickets.iter().find(|ticket| is_mine(&ticket.owner, &ticket.request_id))?.clone();
        if let Err(refusal) = self.living(ticket.lease) {
            return Some(Err(refusal));
        }
        Some(self.attach(&ticket, asked))
    }

    fn attach(&mut self, ticket: &Ticket, asked: &Acquire) -> Result<Outcome, Refusal> {
        let resource = ticket.resource.clone();
        let before_it = self.line(&resource).into_iter().take_while(|other| other.id != ticket.id);
        let next = before_it.filter(|other| other.attached).count() == 0
            && self.admitted(&resource, ticket.mode);
        if !asked.wait && !next {
            return Err(self.blockers(&resource));
        }
        if !ticket.attached {
            let own = std::iter::once(ticket.lease)
                .chain(ticket.behalf.iter().flat_map(|all| all.iter().copied()));
            if let Some(cycle) = self.cycle(ticket, own.collect()) {
                self.ticket_left(ticket, LeftHow::Deadlock);
                self.pump(&resource);
                return Err(Refusal::WouldDeadlock { cycle });
            }
        }
        let attachment = ticket.attachment + 1;
        if let Some(again) = self.tickets.iter_mut().find(|one| one.id == ticket.id) {
            (again.attached, again.attachment) = (true, attachment);
        }
        self.pump(&resource);
        let granted = self.grants.iter().find(|grant| grant.ticket == Some(ticket.id)).cloned();
        Ok(match granted {
            Some(grant) => {
                Outcome::Granted { ttl_ms: self.leases[&grant.lease].ttl_ms, grant, repeat: true }
            }
            None => Outcome::Queued {
                ticket: ticket.id,
                attachment,
                lease: ticket.lease,
                queue_length: self.line(&resource).len(),
            },
        })
    }

    fn check(&self, asked: &Acquire) -> Result<(), Refusal> {
        let queue_length = self.line(&asked.resource).len();
        let room = |bound, used: u64, max: u64| {
            if used < max { Ok(()) } else { Err(Refusal::Full { bound, max, queue_length }) }
        };
        let limits = &self.limits;
        let ttl_ms = match asked.basis {
            Basis::Single { lease, ttl_ms } => {
                self.check_new_lease(lease, ttl_ms)?;
                room(Bound::Leases, self.leases.len() as u64, limits.leases_max)?;
                ttl_ms
            }
            Basis::Explicit { lease: id } => {
                let lease = self.living(id)?;
                if lease.owner != asked.owner {
                    return Err(Refusal::NotOwner);
                }
                if lease.single {
                    return Err(Refusal::LeaseIsSingle);
                }
                let used = self.on_lease(id) + lease.lost.len();
                room(Bound::LeaseItems, used as u64, u64::from(limits.lease_items_max))?;
                lease.ttl_ms
            }
        };
        if let Some(cap_ms) = asked.ttl_cap_ms.filter(|cap_ms| ttl_ms > *cap_ms) {
            return Err(Refusal::TtlAboveCap { cap_ms });
        }
        room(Bound::Grants, (self.grants.len() + self.tickets.len()) as u64, limits.grants_max)?;
        let more = bytes(asked.metadata.as_ref());
        if more > 0 && self.metadata_bytes() + more > limits.metadata_bytes_max {
            return Err(Refusal::Full {
                bound: Bound::Metadata,
                max: limits.metadata_bytes_max,
                queue_length,
            });
        }
        room(Bound::Tokens, self.last_token + self.tickets.len() as u64, Token::LIMIT - 1)
    }

    fn check_new_lease(&self, id: LeaseId, ttl_ms: u64) -> Result<(), Refusal> {
        let (min_ms, max_ms) = (self.limits.ttl_min_ms, self.limits.ttl_max_ms);
        if ttl_ms < min_ms || ttl_ms > max_ms {
            return Err(Refusal::TtlOutOfRange { min_ms, max_ms });
        }
        // An id that is known, living or not, is somebody's mistake.
        match self.living(id) {
            Err(Refusal::LeaseUnknown) => Ok(()),
            _ => Err(Refusal::Void),
        }
    }

    fn check_line(&self, asked: &Acquire) -> Result<(), Refusal> {
        let queue_length = self.line(&asked.resource).len();
        let of_domain =
            self.domains.get(asked.resource.domain()).and_then(|own| own.limits.queue_max);
        let mine = self.tickets.iter().filter(|ticket| *ticket.owner == asked.owner).count();
        let bounds = [
            (Bound::Queue, queue_length, u64::from(of_domain.unwrap_or(self.limits.queue_max))),
            (Bound::ClientTickets, mine, u64::from(self.limits.client_tickets_max)),
            (Bound::Tickets, self.tickets.len(), self.limits.tickets_max),
        ];
        if let Some((bound, _, max)) =
            bounds.into_iter().find(|(_, used, max)| *used as u64 >= *max)
        {
            return Err(Refusal::Full { bound, max, queue_length });
        }
        let mut own: BTreeSet<LeaseId> = self.behalf(asked);
        if let Basis::Explicit { lease } = asked.basis {
            own.insert(lease);
        }
        let wait = self.ticket_of(asked, TicketId(u64::MAX));
        match self.cycle(&wait, own) {
            Some(cycle) => Err(Refusal::WouldDeadlock { cycle }),
            None => Ok(()),
        }
    }

    fn behalf(&self, asked: &Acquire) -> BTreeSet<LeaseId> {
        let held =
            asked.holding.iter().filter_map(|held| self.live(&held.resource, held.token).ok());
        held.filter(|grant| *grant.owner == asked.owner).map(|grant| grant.lease).collect()
    }

    fn ticket_of(&self, asked: &Acquire, id: TicketId) -> Ticket {
        let (Basis::Single { lease, .. } | Basis::Explicit { lease }) = asked.basis;
        let behalf: Vec<LeaseId> = self.behalf(asked).into_iter().collect();
        Ticket {
            id,
            resource: asked.resource.clone(),
            owner: Arc::new(asked.owner.clone()),
            lease,
            mode: asked.mode,
            priority: asked.priority,
            overtaken: 0,
            attached: true,
            attachment: 1,
            request_id: asked.request_id.clone(),
            asked_at_ms: self.now_ms,
            claim_ms: asked.claim_ms,
            keep_place: asked.keep_place,
            behalf: (!behalf.is_empty()).then(|| behalf.into()),
            metadata: asked.metadata.clone(),
            ttl_cap_ms: asked.ttl_cap_ms,
            policies: asked.policies.clone(),
        }
    }

    fn open_single(&mut self, asked: &Acquire) {
        if let Basis::Single { lease, ttl_ms } = asked.basis {
            let owner = asked.owner.clone();
            let new = Lease {
                owner,
                ttl_ms,
                single: true,
                ending: None,
                metadata: None,
                lost: Vec::new(),
            };
            self.leases.insert(lease, new);
        }
        if let Some(id) = &asked.request_id {
            self.requests.insert((asked.owner.clone(), id.clone()), content_of(asked));
        }
    }

    fn grant_new(&mut self, asked: &Acquire) -> Outcome {
        self.open_single(asked);
        let ticket = self.ticket_of(asked, TicketId(u64::MAX));
        let grant = self.grant(&ticket, None);
        self.pump(&asked.resource);
        Outcome::Granted { ttl_ms: self.leases[&grant.lease].ttl_ms, grant, repeat: false }
    }

    fn queue(&mut self, asked: &Acquire) -> Outcome {
        self.open_single(asked);
        self.last_ticket += 1;
        let ticket = self.ticket_of(asked, TicketId(self.last_ticket));
        self.tell(EventKind::Queued {
            ticket: ticket.id,
            resource: ticket.resource.clone(),
            owner: ticket.owner.clone(),
            mode: ticket.mode,
            priority: ticket.priority,
        });
        let (id, lease) = (ticket.id, ticket.lease);
        self.tickets.push(ticket);
        Outcome::Queued {
            ticket: id,
            attachment: 1,
            lease,
            queue_length: self.line(&asked.resource).len(),
        }
    }

    /// Gives the lock to whoever asked; those who waited longer and stand behind are overtaken.
    fn grant(&mut self, asked: &Ticket, ticket: Option<TicketId>) -> Arc<Grant> {
        self.last_token += 1;
        self.tickets.retain(|one| one.id != asked.id);
        for other in self.tickets.iter_mut().filter(|one| one.resource == asked.resource) {
            if other.attached && other.id < asked.id {
                other.overtaken += 1;
                if other.overtaken >= self.limits.overtaken_max {
                    (other.overtaken, other.priority) = (0, other.priority + 1);
                }
            }
        }
        let lease = &self.leases[&asked.lease];
        let grant = Arc::new(Grant {
            token: Token(self.last_token),
            resource: asked.resource.clone(),
            owner: asked.owner.clone(),
            lease: asked.lease,
            single: lease.single,
            mode: asked.mode,
            ticket,
            attachment: asked.attachment,
            request_id: asked.request_id.clone(),
            asked_at_ms: asked.asked_at_ms,
            granted_at_ms: self.now_ms,
            claim_ms: asked.claim_ms,
            ttl_cap_ms: asked.ttl_cap_ms,
            policies: asked.policies.clone(),
            metadata: asked.metadata.clone(),
            draining: false,
        });
        let ttl_ms = lease.ttl_ms;
        self.grants.push(grant.clone());
        self.tell(EventKind::Granted { grant: grant.clone(), ttl_ms });
        grant
    }

    /// Whoever is first gets what is free.
    fn pump(&mut self, resource: &ResourceName) {
        while let Some(first) = self.first(resource).cloned() {
            if self.living(first.lease).is_err() {
                self.ticket_left(&first, LeftHow::LeaseEnded);
            } else if self.admitted(resource, first.mode) {
                self.grant(&first, Some(first.id));
            } else {
                return;
            }
        }
    }
}

// Deadlock: from wait to wait until one of the caller's own leases is met.
impl Naive {
    pub(crate) fn cycle(&self, new: &Ticket, own: BTreeSet<LeaseId>) -> Option<Vec<CycleStep>> {
        let waits: Vec<&Ticket> =
            self.tickets.iter().filter(|one| one.attached && one.id != new.id).collect();
        let step = |ticket: &Ticket| CycleStep {
            owner: ticket.owner.clone(),
            resource: ticket.resource.clone(),
        };
        let mut paths: Vec<Vec<&Ticket>> = vec![vec![new]];
        let mut seen: BTreeSet<TicketId> = BTreeSet::from([new.id]);
        while let Some(path) = (!paths.is_empty()).then(|| paths.remove(0)) {
            let last = path[path.len() - 1];
            let mut blocked_by = self.in_the_way(last);
            if last.id != new.id && stands_before(new, last) {
                return Some(path.into_iter().map(step).collect());
            }
            if blocked_by.iter().any(|lease| own.contains(lease)) {
                return Some(path.into_iter().map(step).collect());
            }
            blocked_by.sort();
            let next =
                waits.iter().filter(|one| blocked_by.iter().any(|lease| waits_for(one, *lease)));
            for one in next {
                if seen.insert(one.id) {
                    paths.push(path.iter().copied().chain([*one]).collect());
                }
            }
        }
        None
    }

    fn in_the_way(&self, wait: &Ticket) -> Vec<LeaseId> {
        let holders = self.holders(&wait.resource).into_iter();
        let holders = holders.filter(|grant| clash(grant.mode, wait.mode)).map(|grant| grant.lease);
        let line = self
            .tickets
            .iter()
            .filter(|one| one.attached && one.id != wait.id && stands_before(one, wait));
        holders.chain(line.map(|one| one.lease)).collect()
    }
}

fn waits_for(ticket: &Ticket, lease: LeaseId) -> bool {
    ticket.lease == lease || ticket.behalf.iter().any(|all| all.contains(&lease))
}

fn stands_before(one: &Ticket, other: &Ticket) -> bool {
    let earlier = (Reverse(one.priority), one.id) < (Reverse(other.priority), other.id);
    one.resource == other.resource && earlier && clash(one.mode, other.mode)
}

fn clash(one: Mode, other: Mode) -> bool {
    one == Mode::Exclusive || other == Mode::Exclusive
}

// Ends.
impl Naive {
    fn grant_ended(&mut self, grant: &Arc<Grant>, how: EndedHow) {
        self.grants.retain(|one| one.token != grant.token);
        let lease = self.leases.get_mut(&grant.lease).expect("a grant stands on a lease");
        if lease.single {
            self.leases.remove(&grant.lease);
        } else if lease.ending.is_none() && matches!(how, EndedHow::Forced | EndedHow::PassedOn) {
            let (resource, token) = (grant.resource.clone(), grant.token);
            lease.lost.push(LostGrant { resource, token, how, ended_at_ms: self.now_ms });
        }
        self.request_ended(&grant.owner, grant.request_id.as_ref(), Some(grant.token), how);
        let record = GrantRecord { grant: grant.clone(), how, ended_at_ms: self.now_ms };
        self.tell(EventKind::Ended(Arc::new(record)));
    }

    fn ticket_left(&mut self, ticket: &Ticket, how: LeftHow) {
        self.tickets.retain(|one| one.id != ticket.id);
        if self.leases[&ticket.lease].single {
            self.leases.remove(&ticket.lease);
        }
        if how == LeftHow::Cancelled {
            self.request_ended(
                &ticket.owner,
                ticket.request_id.as_ref(),
                None,
                EndedHow::Cancelled,
            );
        } else if let Some(id) = &ticket.request_id {
            self.requests.remove(&((*ticket.owner).clone(), id.clone()));
        }
        self.tell(EventKind::Left {
            ticket: ticket.id,
            resource: ticket.resource.clone(),
            owner: ticket.owner.clone(),
            how,
        });
    }

    fn request_ended(
        &mut self,
        owner: &Owner,
        id: Option<&RequestId>,
        token: Option<Token>,
        how: EndedHow,
    ) {
        let Some(id) = id else { return };
        let Some(content) = self.requests.remove(&(owner.clone(), id.clone())) else { return };
        let what = Memory::Request { owner: owner.clone(), id: id.clone(), content, token };
        self.remember(what, how, Some(owner));
    }

    /// The oldest go first; at most two for one that came.
    fn remember(&mut self, what: Memory, how: EndedHow, owner: Option<&Owner>) {
        self.ended.push(Ended { what, how, at_ms: self.now_ms });
        for _ in 0..2 {
            let is_mine = |row: &Ended| matches!(&row.what, Memory::Request { owner: of, .. } if Some(of) == owner);
            if self.ended.iter().filter(|row| is_mine(row)).count()
                > self.limits.client_ended_max as usize
            {
                let oldest = self.ended.iter().position(is_mine).expect("counted above");
                self.ended.remove(oldest);
            }
            if self.ended.len() as u64 > self.limits.ended_max {
                self.ended.remove(0);
            }
        }
    }

    /// A lease whose pieces are still to come counts as ended for its client.
    fn callers_grant(&self, asked: &GrantRef) -> Result<Arc<Grant>, Refusal> {
        let grant = self.live(&asked.resource, asked.token)?;
        if !asked.caller.is(&grant.owner) {
            return Err(Refusal::NotHolder);
        }
        match self.leases[&grant.lease].ending {
            Some(how) => Err(Refusal::RequestEnded {
                token: Some(grant.token),
                how,
                ended_at_ms: self.now_ms,
            }),
            None => Ok(grant),
        }
    }

    fn release(&mut self, asked: &GrantRef) -> Result<Outcome, Refusal> {
        let grant = self.callers_grant(asked)?;
        self.grant_ended(&grant, EndedHow::Released);
        self.pump(&grant.resource);
        Ok(Outcome::Released)
    }

    fn renew(&mut self, asked: &GrantRef, ttl_ms: u64) -> Result<Outcome, Refusal> {
        let grant = self.callers_grant(asked)?;
        let (min_ms, max_ms) = (self.limits.ttl_min_ms, self.limits.ttl_max_ms);
        let cap_ms = grant.ttl_cap_ms.unwrap_or(u64::MAX);
        match () {
            () if !grant.single => return Err(Refusal::LeaseIsExplicit),
            () if grant.draining => return Err(Refusal::Draining),
            () if ttl_ms < min_ms || ttl_ms > max_ms => {
                return Err(Refusal::TtlOutOfRange { min_ms, max_ms });
            }
            () if ttl_ms > cap_ms => return Err(Refusal::TtlAboveCap { cap_ms }),
            () => {}
        }
        self.leases.get_mut(&grant.lease).expect("a grant stands on a lease").ttl_ms = ttl_ms;
        self.tell(EventKind::LeaseChanged { lease: grant.lease, ttl_ms });
        Ok(Outcome::Renewed { lease: grant.lease, ttl_ms })
    }

    fn open(
        &mut self,
        id: LeaseId,
        owner: &Owner,
        ttl_ms: u64,
        metadata: Option<&Metadata>,
    ) -> Result<Outcome, Refusal> {
        self.check_new_lease(id, ttl_ms)?;
        let full = |bound, max| Err(Refusal::Full { bound, max, queue_length: 0 });
        if self.leases.len() as u64 >= self.limits.leases_max {
            return full(Bound::Leases, self.limits.leases_max);
        }
        if bytes(metadata) > 0
            && self.metadata_bytes() + bytes(metadata) > self.limits.metadata_bytes_max
        {
            return full(Bound::Metadata, self.limits.metadata_bytes_max);
        }
        let metadata = metadata.cloned();
        let new = Lease {
            owner: owner.clone(),
            ttl_ms,
            single: false,
            ending: None,
            metadata,
            lost: Vec::new(),
        };
        self.leases.insert(id, new);
        self.tell(EventKind::LeaseOpened { lease: id, owner: Arc::new(owner.clone()), ttl_ms });
        Ok(Outcome::LeaseOpened { ttl_ms })
    }

    fn end_lease(&mut self, id: LeaseId, caller: &Caller) -> Result<Outcome, Refusal> {
        if !caller.is(&self.living(id)?.owner) {
            return Err(Refusal::NotOwner);
        }
        Ok(self.end_pieces(&[id], EndedHow::Released))
    }

    fn expire(&mut self, leases: &[LeaseId]) -> Outcome {
        let living: Vec<LeaseId> =
            leases.iter().copied().filter(|id| self.living(*id).is_ok()).collect();
        self.end_pieces(&living, EndedHow::Expired)
    }

    /// Tickets first, then grants, each in their order, as many as one step may end; after all
    /// of them the lines they were in.
    fn end_pieces(&mut self, leases: &[LeaseId], how: EndedHow) -> Outcome {
        let mut budget = self.limits.piece_max.max(1) as usize;
        let mut lines = Vec::new();
        let mut more = false;
        for id in leases {
            let Some(lease) = self.leases.get(id).cloned() else { continue };
            if self.on_lease(*id) > budget && lease.ending.is_none() {
                self.leases.get_mut(id).expect("looked at above").ending = Some(how);
                self.tell(EventKind::Ending { lease: *id });
            }
            let tickets: Vec<Ticket> =
                self.tickets.iter().filter(|one| one.lease == *id).cloned().collect();
            for ticket in tickets.into_iter().take(budget) {
                budget -= 1;
                self.ticket_left(&ticket, LeftHow::LeaseEnded);
                lines.push(ticket.resource);
            }
            let grants: Vec<Arc<Grant>> =
                self.grants.iter().filter(|one| one.lease == *id).cloned().collect();
            for grant in grants.into_iter().take(budget) {
                budget -= 1;
                self.grant_ended(&grant, how);
                lines.push(grant.resource.clone());
            }
            if self.on_lease(*id) > 0 {
                more = true;
            } else if !lease.single {
                self.leases.remove(id);
                self.remember(Memory::Lease(*id), how, None);
                let owner = Arc::new(lease.owner);
                self.tell(EventKind::LeaseEnded { lease: *id, owner, how });
            }
        }
        for resource in lines {
            self.pump(&resource);
        }
        Outcome::Done { more }
    }

    fn cancel(&mut self, owner: &Owner, id: &RequestId) -> Result<Outcome, Refusal> {
        let mut mine = self
            .tickets
            .iter()
            .filter(|one| *one.owner == *owner && one.request_id.as_ref() == Some(id));
        let ticket = mine.next().cloned().ok_or(Refusal::NotWaiting)?;
        self.ticket_left(&ticket, LeftHow::Cancelled);
        self.pump(&ticket.resource);
        DONE
    }

    fn administer(&mut self, order: &Administer) -> Outcome {
        let done = match &order.action {
            Action::ForceRelease { resource, token, when } => {
                self.force(resource, *token, *when == ForceWhen::Now)
            }
            Action::RevokeLease { lease } => match self.living(*lease) {
                Ok(_) => Ok(self.end_pieces(&[*lease], EndedHow::Revoked)),
                Err(refusal) => Err(refusal),
            },
            Action::SetDomain { domain, limits, expected } => {
                self.set_domain(domain, *limits, *expected)
            }
            Action::ChangeCluster { .. } => DONE,
        };
        let result = match &done {
            Ok(_) if matches!(order.action, Action::ChangeCluster { stage: Stage::Begun, .. }) => {
                AuditResult::Begun
            }
            Ok(_) if matches!(order.action, Action::ChangeCluster { .. }) => AuditResult::Refused,
            Ok(_) => AuditResult::Done,
            Err(Refusal::NotLive) => AuditResult::NotLive,
            Err(Refusal::VersionDiffers { .. }) => AuditResult::VersionDiffers,
            Err(_) => AuditResult::NoLease,
        };
        let record = AuditRecord { order: order.clone(), result };
        self.tell(EventKind::Audited(Arc::new(record)));
        done.unwrap_or_else(Outcome::Refused)
    }

    fn set_domain(
        &mut self,
        domain: &Arc<str>,
        limits: Option<DomainLimits>,
        expected: Expected,
    ) -> Result<Outcome, Refusal> {
        let before = self.domains.get(&**domain).copied();
        let current = before.map(|own| own.version);
        let fits = match expected {
            Expected::Any => true,
            Expected::Absent => before.is_none(),
            Expected::Version(_) => expected == current.map_or(Expected::Absent, Expected::Version),
        };
        if !fits {
            return Err(Refusal::VersionDiffers { current });
        }
        if before.map(|own| own.limits) != limits {
            self.tell(EventKind::DomainChanged { domain: domain.clone() });
            let version = Revision(self.revision);
            self.domains.remove(&**domain);
            let own = limits.map(|limits| DomainSettings { limits, version });
            self.domains.extend(own.map(|own| (domain.to_string(), own)));
        }
        let version = self.domains.get(&**domain).map(|own| own.version);
        Ok(Outcome::DomainSet { version })
    }

    fn force(
        &mut self,
        resource: &ResourceName,
        token: Token,
        now: bool,
    ) -> Result<Outcome, Refusal> {
        let grant = self.live(resource, token)?;
        if now {
            self.grant_ended(&grant, EndedHow::Forced);
            self.pump(resource);
        } else if !grant.draining {
            let grant = Arc::new(Grant { draining: true, ..(*grant).clone() });
            let slot = self.grants.iter_mut().find(|one| one.token == token).expect("found above");
            *slot = grant.clone();
            self.tell(EventKind::Draining { grant });
        }
        DONE
    }

    fn drained(&mut self, token: Token) -> Result<Outcome, Refusal> {
        let grant = self
            .grants
            .iter()
            .find(|one| one.token == token && one.draining)
            .cloned()
            .ok_or(Refusal::Void)?;
        self.grant_ended(&grant, EndedHow::Forced);
        self.pump(&grant.resource);
        DONE
    }

    fn pass_on(&mut self, token: Token, attachment: u32) -> Result<Outcome, Refusal> {
        let grant =
            self.grants.iter().find(|one| one.token == token).cloned().ok_or(Refusal::NotLive)?;
        if grant.attachment != attachment {
            return Err(Refusal::Void);
        }
        self.grant_ended(&grant, EndedHow::PassedOn);
        self.pump(&grant.resource);
        DONE
    }

    fn attached_as(&self, id: TicketId, attachment: u32) -> Result<Ticket, Refusal> {
        let ticket = self.ticket(id).ok_or(Refusal::NotWaiting)?;
        if ticket.attachment == attachment { Ok(ticket) } else { Err(Refusal::Void) }
    }

    fn detach(&mut self, id: TicketId, attachment: u32) -> Result<Outcome, Refusal> {
        let ticket = self.attached_as(id, attachment)?;
        for one in self.tickets.iter_mut().filter(|one| one.id == id) {
            one.attached = false;
        }
        self.pump(&ticket.resource);
        DONE
    }

    fn leave(&mut self, id: TicketId, attachment: u32, how: LeftHow) -> Result<Outcome, Refusal> {
        let ticket = self.attached_as(id, attachment)?;
        self.ticket_left(&ticket, how);
        self.pump(&ticket.resource);
        DONE
    }
}

fn bytes(metadata: Option<&Metadata>) -> u64 {
    metadata
        .map_or(0, |pairs| pairs.iter().map(|(key, value)| (key.len() + value.len()) as u64).sum())
}

fn content_of(asked: &Acquire) -> Content {
    let (lease, ttl_ms) = match asked.basis {
        Basis::Single { ttl_ms, .. } => (None, ttl_ms),
        Basis::Explicit { lease } => (Some(lease), 0),
    };
    let metadata = asked.metadata.iter().flat_map(|pairs| pairs.iter().cloned()).collect();
    (asked.resource.clone(), asked.mode, lease, ttl_ms, metadata)
}
