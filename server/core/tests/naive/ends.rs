//! Renewals, ends, and what operators do.

use super::*;
use leasehold_core::command::{
    Action, Administer, Caller, EndedHow, Expected, ForceWhen, GrantRef, LeftHow, Metadata, Stage,
};
use leasehold_core::limits::{DomainLimits, DomainSettings};
use leasehold_core::name::{Owner, RequestId, ResourceName};
use leasehold_core::outcome::{
    AuditRecord, AuditResult, Bound, EventKind, Grant, GrantRecord, Outcome, Refusal,
};
use leasehold_core::row::{LostGrant, Ticket};
use leasehold_core::{LeaseId, Revision, TicketId, Token};
use std::sync::Arc;

impl Naive {
    pub(super) fn grant_ended(&mut self, grant: &Arc<Grant>, how: EndedHow) {
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

    pub(super) fn ticket_left(&mut self, ticket: &Ticket, how: LeftHow) {
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

    pub(super) fn request_ended(
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
    pub(super) fn remember(&mut self, what: Memory, how: EndedHow, owner: Option<&Owner>) {
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
    pub(super) fn callers_grant(&self, asked: &GrantRef) -> Result<Arc<Grant>, Refusal> {
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

    pub(super) fn release(&mut self, asked: &GrantRef) -> Result<Outcome, Refusal> {
        let grant = self.callers_grant(asked)?;
        self.grant_ended(&grant, EndedHow::Released);
        self.pump(&grant.resource);
        Ok(Outcome::Released)
    }

    pub(super) fn renew(&mut self, asked: &GrantRef, ttl_ms: u64) -> Result<Outcome, Refusal> {
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

    pub(super) fn open(
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

    pub(super) fn end_lease(&mut self, id: LeaseId, caller: &Caller) -> Result<Outcome, Refusal> {
        if !caller.is(&self.living(id)?.owner) {
            return Err(Refusal::NotOwner);
        }
        Ok(self.end_pieces(&[id], EndedHow::Released))
    }

    pub(super) fn expire(&mut self, leases: &[LeaseId]) -> Outcome {
        let living: Vec<LeaseId> =
            leases.iter().copied().filter(|id| self.living(*id).is_ok()).collect();
        self.end_pieces(&living, EndedHow::Expired)
    }

    /// Tickets first, then grants, each in their order, as many as one step may end; after all
    /// of them the lines they were in.
    pub(super) fn end_pieces(&mut self, leases: &[LeaseId], how: EndedHow) -> Outcome {
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

    pub(super) fn cancel(&mut self, owner: &Owner, id: &RequestId) -> Result<Outcome, Refusal> {
        let mut mine = self
            .tickets
            .iter()
            .filter(|one| *one.owner == *owner && one.request_id.as_ref() == Some(id));
        let ticket = mine.next().cloned().ok_or(Refusal::NotWaiting)?;
        self.ticket_left(&ticket, LeftHow::Cancelled);
        self.pump(&ticket.resource);
        DONE
    }

    pub(super) fn administer(&mut self, order: &Administer) -> Outcome {
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

    pub(super) fn set_domain(
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

    pub(super) fn force(
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

    pub(super) fn drained(&mut self, token: Token) -> Result<Outcome, Refusal> {
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

    pub(super) fn pass_on(&mut self, token: Token, attachment: u32) -> Result<Outcome, Refusal> {
        let grant =
            self.grants.iter().find(|one| one.token == token).cloned().ok_or(Refusal::NotLive)?;
        if grant.attachment != attachment {
            return Err(Refusal::Void);
        }
        self.grant_ended(&grant, EndedHow::PassedOn);
        self.pump(&grant.resource);
        DONE
    }

    pub(super) fn attached_as(&self, id: TicketId, attachment: u32) -> Result<Ticket, Refusal> {
        let ticket = self.ticket(id).ok_or(Refusal::NotWaiting)?;
        if ticket.attachment == attachment { Ok(ticket) } else { Err(Refusal::Void) }
    }

    pub(super) fn detach(&mut self, id: TicketId, attachment: u32) -> Result<Outcome, Refusal> {
        let ticket = self.attached_as(id, attachment)?;
        for one in self.tickets.iter_mut().filter(|one| one.id == id) {
            one.attached = false;
        }
        self.pump(&ticket.resource);
        DONE
    }

    pub(super) fn leave(
        &mut self,
        id: TicketId,
        attachment: u32,
        how: LeftHow,
    ) -> Result<Outcome, Refusal> {
        let ticket = self.attached_as(id, attachment)?;
        self.ticket_left(&ticket, how);
        self.pump(&ticket.resource);
        DONE
    }
}
