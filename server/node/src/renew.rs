//! Heartbeats: one confirmation by a quorum, no disk.

use crate::acquire::validity;
use crate::answer::{Call, DrainingGrant, Failure, Renewed};
use crate::hub::cell::ReplyTo;
use crate::hub::{CannotRenew, Renewing};
use crate::node::Node;
use crate::propose::{Class, Proposal};
use leasehold_core::command::{Caller, GrantRef};
use leasehold_core::outcome::{Grant, Outcome, Refusal};
use leasehold_core::row::LostGrant;
use leasehold_core::{Command, LeaseId, Token};
use std::sync::Arc;
use std::time::Instant;

impl Node {
    /// Renews the lease that a grant stands on; with `ttl_ms` it also changes its TTL.
    ///
    /// # Errors
    /// [`Failure::Gone`] when the grant has ended, which is only said from applied state.
    pub async fn renew(
        &self,
        call: Call,
        asked: GrantRef,
        ttl_ms: Option<u64>,
    ) -> Result<Renewed, Failure> {
        self.check_leading()?;
        match ttl_ms {
            Some(ttl_ms) => self.change_ttl(call, asked, ttl_ms).await,
            None => self.renew_grant(call, asked).await,
        }
    }

    /// Through the log. Counts as a renewal from its hand-over on, so like one it holds the expiry
    /// back from its receipt until its outcome is known.
    async fn change_ttl(
        &self,
        call: Call,
        asked: GrantRef,
        ttl_ms: u64,
    ) -> Result<Renewed, Failure> {
        let _renewing = self.hold_back_expiry(call, &asked).await?;
        let command = Command::Renew { grant: asked.clone(), ttl_ms };
        let told = self.ask(Class::End, command, call.deadline).await?;
        match told.outcome {
            Outcome::Renewed { lease, ttl_ms } => {
                let full = told.handed + std::time::Duration::from_millis(ttl_ms);
                let deadline = self.inner.hub.deadline(lease).unwrap_or(full);
                Ok(Renewed {
                    validity: validity(call, full, deadline),
                    lost: Vec::new(),
                    draining: Vec::new(),
                    revision: told.revision,
                })
            }
            Outcome::Refused(Refusal::NotLive) => Err(self.gone(&asked).await?),
            Outcome::Refused(refusal) => Err(self.explain(refusal)),
            other => Err(Failure::Internal(format!("no answer to a renewal: {other:?}"))),
        }
    }

    /// `None` if there is nothing on the clock that could expire: the log will say why.
    async fn hold_back_expiry(
        &self,
        call: Call,
        asked: &GrantRef,
    ) -> Result<Option<Renewing<'_>>, Failure> {
        let Some(lease) = self.live(asked).map(|grant| grant.lease) else { return Ok(None) };
        match self.inner.hub.start_renewal(lease, call.received) {
            Ok(renewing) => Ok(Some(renewing)),
            Err(CannotRenew::NotLeading) => Err(Failure::NoLeader),
            Err(CannotRenew::NotTimed | CannotRenew::Draining) => Ok(None),
            Err(CannotRenew::Expiring) => {
                self.wait_for_end(call, lease).await?;
                // If it lives on, its end was void, and it is on the clock again.
                Ok(self.inner.hub.start_renewal(lease, call.received).ok())
            }
        }
    }

    async fn renew_grant(&self, call: Call, asked: GrantRef) -> Result<Renewed, Failure> {
        let Some(grant) = self.live(&asked) else {
            // Perhaps it is only not applied here yet: look again at confirmed state.
            self.inner.confirmer.confirm().await?;
            return match self.live(&asked) {
                Some(grant) => self.renew_live(call, &grant, &asked.caller).await,
                None => Err(self.gone(&asked).await?),
            };
        };
        self.renew_live(call, &grant, &asked.caller).await
    }

    async fn renew_live(
        &self,
        call: Call,
        grant: &Arc<Grant>,
        caller: &Caller,
    ) -> Result<Renewed, Failure> {
        if !caller.is(&grant.owner) {
            return Err(Failure::Refused(Refusal::NotHolder));
        }
        if grant.draining {
            return Err(Failure::Refused(Refusal::Draining));
        }
        let asked = GrantRef {
            resource: grant.resource.clone(),
            token: grant.token,
            caller: caller.clone(),
        };
        match self.renew_lease(call, grant.lease).await {
            Err(Failure::Refused(Refusal::LeaseUnknown | Refusal::LeaseEnded { .. })) => {
                Err(self.gone(&asked).await?)
            }
            Ok(_) if self.live(&asked).is_none() => Err(self.gone(&asked).await?),
            renewed => renewed,
        }
    }

    fn live(&self, asked: &GrantRef) -> Option<Arc<Grant>> {
        let table = self.inner.shared.table.read();
        table.grant(asked.token).filter(|grant| grant.resource == asked.resource).cloned()
    }

    /// Renews leases; one round serves them all.
    ///
    /// # Errors
    /// The outer one if nothing can be said of any of them; the inner ones say why one lease was
    /// not renewed.
    pub async fn keep_alive(
        &self,
        call: Call,
        caller: Caller,
        leases: Vec<LeaseId>,
    ) -> Result<Vec<Result<Renewed, Failure>>, Failure> {
        self.check_leading()?;
        let renewals = leases.into_iter().map(|lease| self.keep_one_alive(call, &caller, lease));
        Ok(futures_util::future::join_all(renewals).await)
    }

    async fn keep_one_alive(
        &self,
        call: Call,
        caller: &Caller,
        lease: LeaseId,
    ) -> Result<Renewed, Failure> {
        let owned =
            self.inner.shared.table.read().lease(lease).ok().map(|(owner, _)| caller.is(owner));
        match owned {
            Some(true) => self.renew_lease(call, lease).await,
            Some(false) => Err(Failure::Refused(Refusal::NotOwner)),
            None => self.confirmed_end(lease).await,
        }
    }

    /// Renews a lease from leader memory.
    ///
    /// The order is what makes it safe: receipt, then the round, then a second look at the lease.
    /// A renewal received before the deadline holds the expiry back until the round has ended;
    /// one that finds the expiry on its way waits for what comes of it.
    pub(crate) async fn renew_lease(&self, call: Call, lease: LeaseId) -> Result<Renewed, Failure> {
        let renewing = match self.inner.hub.start_renewal(lease, call.received) {
            Ok(renewing) => renewing,
            Err(CannotRenew::NotLeading) => return Err(Failure::NoLeader),
            Err(CannotRenew::Draining) => return Err(Failure::Refused(Refusal::Draining)),
            Err(CannotRenew::NotTimed) => return self.confirmed_end(lease).await,
            Err(CannotRenew::Expiring) => return self.after_expiry(call, lease).await,
        };
        let term = self.inner.confirmer.confirm().await?;
        match renewing.confirmed(term) {
            Some((promised, deadline)) => self.renewed(call, lease, promised, deadline),
            None => self.confirmed_end(lease).await,
        }
    }

    fn renewed(
        &self,
        call: Call,
        lease: LeaseId,
        promised: Instant,
        deadline: Instant,
    ) -> Result<Renewed, Failure> {
        let (lost, revision): (Vec<LostGrant>, u64) = {
            let table = self.inner.shared.table.read();
            table.lease(lease).map_err(Failure::Refused)?;
            (table.lost_on(lease).to_vec(), table.revision())
        };
        self.inner.metrics.renewals.inc();
        let tokens: Vec<_> = lost.iter().map(|lost| lost.token).collect();
        let known = self.inner.hub.name_losses(lease, &tokens);
        if !known.is_empty() {
            self.forget_losses(lease, known);
        }
        // Looked at after the lease was renewed: whatever was drained before is among them, and
        // whatever is drained later ends no earlier than this answer promises.
        let draining = self.inner.hub.draining_on(lease);
        let draining = draining.into_iter().map(|grant| DrainingGrant {
            validity: validity(call, grant.promised, grant.ends),
            resource: grant.resource,
            token: grant.token,
        });
        Ok(Renewed {
            validity: validity(call, promised, deadline),
            lost,
            draining: draining.collect(),
            revision,
        })
    }

    /// Nobody waits for it: if it gets lost, the next renewal names the losses once more.
    fn forget_losses(&self, lease: LeaseId, tokens: Vec<Token>) {
        let (reply, _) = tokio::sync::oneshot::channel();
        let command = Command::ConfirmEnded { lease, tokens };
        let proposal = Proposal::new(command, ReplyTo::Once(reply), None);
        if self.push(Class::Background, proposal).is_ok() {
            self.inner.batcher.kick();
        }
    }

    /// What confirmed state says of a lease that cannot be renewed.
    async fn confirmed_end(&self, lease: LeaseId) -> Result<Renewed, Failure> {
        self.inner.confirmer.confirm().await?;
        match self.inner.shared.table.read().lease(lease) {
            Ok(_) => Err(Failure::NoLeader),
            Err(refusal) => Err(Failure::Refused(refusal)),
        }
    }

    /// The expiry was handed over: an entry after it knows what came of it.
    async fn after_expiry(&self, call: Call, lease: LeaseId) -> Result<Renewed, Failure> {
        self.wait_for_end(call, lease).await?;
        let ended = self.inner.shared.table.read().lease(lease).err();
        match ended {
            // The expiry was void, so the lease is timed again.
            None => Box::pin(self.renew_lease(call, lease)).await,
            Some(refusal) => Err(Failure::Refused(refusal)),
        }
    }

    async fn wait_for_end(&self, call: Call, lease: LeaseId) -> Result<(), Failure> {
        let command = Command::ConfirmEnded { lease, tokens: Vec::new() };
        self.ask(Class::Background, command, call.deadline).await.map(drop)
    }
}
