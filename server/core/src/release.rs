//! Giving a grant back, and what every end of a grant has in common.

use crate::acquire::metadata_bytes;
use crate::command::{EndedHow, GrantRef};
use crate::ids::Token;
use crate::machine::Step;
use crate::name::ResourceName;
use crate::outcome::{EventKind, Grant, GrantRecord, Outcome, Refusal};
use crate::row::{EndedWhat, LostGrant};
use crate::state::Item;
use std::sync::Arc;

impl Step<'_> {
    /// Ends a grant for its holder and grants to whoever is next, in the same entry.
    pub(crate) fn release(&mut self, asked: &GrantRef) -> Outcome {
        match self.live_grant(asked) {
            Ok(grant) => {
                self.end_grant(&grant, EndedHow::Released);
                self.pump(&grant.resource);
                Outcome::Released
            }
            Err(refusal) => Outcome::Refused(refusal),
        }
    }

    /// The live grant that the caller names, if it may act for it.
    pub(crate) fn live_grant(&self, asked: &GrantRef) -> Result<Arc<Grant>, Refusal> {
        let grant = self.grant_of(&asked.resource, asked.token)?;
        if !asked.caller.is(&grant.owner) {
            return Err(Refusal::NotHolder);
        }
        match self.state.leases.get(&grant.lease).and_then(|lease| lease.ending()) {
            // Its lease has ended; only the piece with this grant has not come up yet.
            Some(how) => Err(Refusal::RequestEnded {
                token: Some(grant.token),
                how,
                ended_at_ms: self.now_ms(),
            }),
            None => Ok(grant),
        }
    }

    pub(crate) fn grant_of(
        &self,
        resource: &ResourceName,
        token: Token,
    ) -> Result<Arc<Grant>, Refusal> {
        match self.state.grants.get(&token) {
            Some(grant) if grant.resource == *resource => Ok(grant.clone()),
            _ => Err(Refusal::NotLive),
        }
    }

    /// Takes a grant out of everything that names it. The caller pumps the line.
    pub(crate) fn end_grant(&mut self, grant: &Arc<Grant>, how: EndedHow) {
        self.state.grants.remove(&grant.token);
        self.state.metadata_bytes -= metadata_bytes(grant.metadata.as_ref());
        if let Some(lock) = self.state.locks.get_mut(&grant.resource) {
            lock.holders.remove(grant.token);
        }
        self.take_off_lease(grant.lease, Item::Grant(grant.token));
        self.note_loss(grant, how);
        self.request_ended(&grant.owner, grant.request_id.as_ref(), Some(grant.token), how);
        let record = GrantRecord { grant: grant.clone(), how, ended_at_ms: self.now_ms() };
        self.emit(EventKind::Ended(Arc::new(record)));
    }

    /// The client of a lease that lives on must learn of what it lost: its renewals go on
    /// succeeding, and would let it believe. Other ends are those of the whole lease.
    fn note_loss(&mut self, grant: &Grant, how: EndedHow) {
        if !matches!(how, EndedHow::Forced | EndedHow::PassedOn) {
            return;
        }
        let ended_at_ms = self.now_ms();
        let lease =
            self.state.leases.get_mut(&grant.lease).filter(|lease| lease.ending().is_none());
        if let Some(lease) = lease {
            let lost = LostGrant {
                resource: grant.resource.clone(),
                token: grant.token,
                how,
                ended_at_ms,
            };
            lease.extra_mut().lost.push(lost);
        }
    }

    /// Remembers how a request ended, so that a late repeat is told instead of granted anew.
    pub(crate) fn request_ended(
        &mut self,
        owner: &Arc<crate::name::Owner>,
        id: Option<&crate::name::RequestId>,
        token: Option<Token>,
        how: EndedHow,
    ) {
        let Some(id) = id else { return };
        let Some(fingerprint) = self.forget_live(owner, id) else { return };
        let what = EndedWhat::Request { owner: owner.clone(), id: id.clone(), fingerprint, token };
        self.remember_ended(how, what);
    }
}
