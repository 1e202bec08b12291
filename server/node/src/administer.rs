//! What operators do to what is not their own, and the record of it.

use crate::answer::{AtRevision, Call, Failure, Page};
use crate::history::Audited;
use crate::node::{Node, Told};
use crate::propose::Class;
use crate::runtime;
use leasehold_core::command::{
    Action, Administer, Caller, ClusterChange, Expected, ForceWhen, GrantRef, Stage,
};
use leasehold_core::limits::{DomainLimits, DomainSettings};
use leasehold_core::outcome::{AuditRecord, Outcome, Refusal};
use leasehold_core::{Command, LeaseId, Principal, ResourceName, Revision, Token};
use std::sync::Arc;

/// Who does something, from where and why.
#[derive(Debug, Clone)]
pub struct Operator {
    /// Who.
    pub by: Principal,
    /// The address that the request came from.
    pub source: Arc<str>,
    /// Why, in the operator's words.
    pub reason: Arc<str>,
}

/// What a forced release did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ForceReleased {
    /// The grant has ended; if not, it ends at its deadline.
    pub ended: bool,
    /// Milliseconds until the deadline; 0 if it has ended.
    pub expires_in_ms: u64,
    /// The old holder may still believe that it holds, although another may by now.
    pub overlap: bool,
}

/// One thing that an operator did.
#[derive(Debug, Clone)]
pub struct Deed {
    /// The number of the change.
    pub revision: u64,
    /// When, by the proposer's wall clock.
    pub at_ms: u64,
    /// Who, what, why and with what result.
    pub record: Arc<AuditRecord>,
}

impl From<Audited> for Deed {
    fn from(audited: Audited) -> Self {
        Self { revision: audited.revision, at_ms: audited.at_ms, record: audited.record }
    }
}

impl Node {
    /// Ends a grant against its holder's will: at its deadline, or now.
    ///
    /// # Errors
    /// [`Failure::Gone`] if the token does not hold the resource (any more).
    pub async fn force_release(
        &self,
        call: Call,
        operator: Operator,
        resource: ResourceName,
        token: Token,
        when: ForceWhen,
    ) -> Result<AtRevision<ForceReleased>, Failure> {
        self.check_leading()?;
        let lease = self.inner.shared.table.read().grant(token).map(|grant| grant.lease);
        // Whoever's deadline is not known here may well believe.
        let believed = lease.and_then(|lease| self.inner.hub.deadline(lease));
        let overlap = believed.is_none_or(|at| at > runtime::now());
        let action = Action::ForceRelease { resource: resource.clone(), token, when };
        let told = self.administer(call, operator.clone(), action).await?;
        match told.outcome {
            Outcome::Done { .. } => {}
            Outcome::Refused(Refusal::NotLive) => {
                // An operator may know of everybody's grants.
                let owner = self.owner_of(token).await?;
                let caller = Caller { principal: owner.unwrap_or(operator.by), client: None };
                return Err(self.gone(&GrantRef { resource, token, caller }).await?);
            }
            outcome => return Err(self.unexpected(outcome)),
        }
        let hub = &self.inner.hub;
        let value = match when {
            ForceWhen::Drain => ForceReleased {
                ended: false,
                expires_in_ms: lease
                    .and_then(|lease| hub.grant_expires_in_ms(lease, token))
                    .unwrap_or(0),
                overlap: false,
            },
            ForceWhen::Now => ForceReleased { ended: true, expires_in_ms: 0, overlap },
        };
        Ok(AtRevision { value, revision: told.revision })
    }

    async fn owner_of(&self, token: Token) -> Result<Option<Principal>, Failure> {
        let record = self.record(token).await?;
        Ok(record.map(|record| record.grant.owner.principal.clone()))
    }

    /// Ends a lease with all that is on it, whoever it belongs to.
    ///
    /// # Errors
    /// [`Failure::Refused`] if it has ended or was never there.
    pub async fn revoke_lease(
        &self,
        call: Call,
        operator: Operator,
        lease: LeaseId,
    ) -> Result<AtRevision<()>, Failure> {
        self.check_leading()?;
        self.done(self.administer(call, operator, Action::RevokeLease { lease }).await?)
    }

    /// Replaces, or with `None` removes, what a domain has set for itself; answers the version
    /// that it has from now on.
    ///
    /// # Errors
    /// [`Failure::Refused`] with [`Refusal::VersionDiffers`] if it is not as expected.
    pub async fn set_domain(
        &self,
        call: Call,
        operator: Operator,
        domain: Arc<str>,
        limits: Option<DomainLimits>,
        expected: Expected,
    ) -> Result<AtRevision<Option<Revision>>, Failure> {
        self.check_open()?;
        let action = Action::SetDomain { domain, limits, expected };
        let told = self.administer(call, operator, action).await?;
        match told.outcome {
            Outcome::DomainSet { version } => {
                Ok(AtRevision { value: version, revision: told.revision })
            }
            outcome => Err(self.unexpected(outcome)),
        }
    }

    /// Records that a change of the cluster is about to be made, or was refused.
    ///
    /// # Errors
    /// As of any change; then it must not be made.
    pub async fn note_cluster_change(
        &self,
        call: Call,
        operator: Operator,
        change: ClusterChange,
        stage: Stage,
    ) -> Result<AtRevision<()>, Failure> {
        self.check_leading()?;
        self.done(self.administer(call, operator, Action::ChangeCluster { change, stage }).await?)
    }

    async fn administer(
        &self,
        call: Call,
        operator: Operator,
        action: Action,
    ) -> Result<Told, Failure> {
        let Operator { by, source, reason } = operator;
        let order = Administer { by, source, reason, action };
        self.ask(Class::End, Command::Administer(Box::new(order)), call.deadline).await
    }

    fn done(&self, told: Told) -> Result<AtRevision<()>, Failure> {
        match told.outcome {
            Outcome::Done { .. } => Ok(AtRevision { value: (), revision: told.revision }),
            outcome => Err(self.unexpected(outcome)),
        }
    }

    fn unexpected(&self, outcome: Outcome) -> Failure {
        match outcome {
            Outcome::Refused(refusal) => self.explain(refusal),
            other => Failure::Internal(format!("no answer to an operator: {other:?}")),
        }
    }

    /// What a domain has set for itself.
    ///
    /// # Errors
    /// [`Failure::NoLeader`] if the answer could not be confirmed.
    pub async fn domain(
        &self,
        _call: Call,
        domain: &str,
    ) -> Result<AtRevision<Option<DomainSettings>>, Failure> {
        self.fresh(false).await?;
        let table = self.inner.shared.table.read();
        Ok(AtRevision { value: table.domain(domain), revision: table.revision() })
    }

    /// Domains with settings of their own, by name, a page at a time.
    ///
    /// # Errors
    /// [`Failure::NoLeader`] if the answer could not be confirmed.
    pub async fn domains(
        &self,
        _call: Call,
        after: Option<&str>,
        limit: usize,
    ) -> Result<AtRevision<Page<(Arc<str>, DomainSettings)>>, Failure> {
        self.fresh(false).await?;
        let table = self.inner.shared.table.read();
        let slice = table.domains(after, limit);
        let total = Some(table.domains_len() as u64);
        let next = slice.next.map(|name| name.to_string());
        let value = Page { items: slice.items, next, total };
        Ok(AtRevision { value, revision: table.revision() })
    }

    /// What operators did, newest first, before the change `before`.
    ///
    /// # Errors
    /// [`Failure::NoLeader`] if the answer could not be confirmed.
    pub async fn audit(
        &self,
        _call: Call,
        before: Option<u64>,
        limit: usize,
    ) -> Result<AtRevision<Page<Deed>>, Failure> {
        self.fresh(false).await?;
        let revision = self.inner.shared.table.read().revision();
        let mut found = self.read_history(move |history| history.audit(before, limit + 1)).await?;
        let more = found.len() > limit;
        found.truncate(limit);
        let next = found.last().filter(|_| more).map(|last| last.revision.to_string());
        let items = found.into_iter().map(Deed::from).collect();
        Ok(AtRevision { value: Page { items, next, total: None }, revision })
    }
}
