//! What operators do: each deed leaves a record, also where it was refused.

use crate::command::{Action, Administer, EndedHow, Expected, Stage};
use crate::ids::{LeaseId, Revision};
use crate::limits::{DOMAINS_MAX, DomainLimits, DomainSettings};
use crate::machine::Step;
use crate::outcome::{AuditRecord, AuditResult, Bound, EventKind, Outcome, Refusal};
use std::sync::Arc;

impl Step<'_> {
    pub(crate) fn administer(&mut self, order: &Administer) -> Outcome {
        let outcome = match &order.action {
            Action::ForceRelease { resource, token, when } => {
                self.force_release(resource, *token, *when)
            }
            Action::RevokeLease { lease } => self.revoke_lease(*lease),
            Action::SetDomain { domain, limits, expected } => {
                match self.set_domain(domain, *limits, *expected) {
                    Ok(version) => Outcome::DomainSet { version },
                    Err(refusal) => Outcome::Refused(refusal),
                }
            }
            Action::ChangeCluster { .. } => Outcome::Done { more: false },
        };
        let result = match &order.action {
            Action::ChangeCluster { stage: Stage::Begun, .. } => AuditResult::Begun,
            Action::ChangeCluster { stage: Stage::Refused, .. } => AuditResult::Refused,
            _ => AuditResult::of(&outcome),
        };
        let record = AuditRecord { order: order.clone(), result };
        self.emit(EventKind::Audited(Arc::new(record)));
        outcome
    }

    fn revoke_lease(&mut self, lease: LeaseId) -> Outcome {
        match self.living_lease(lease) {
            Ok(_) => self.end_all(&[lease], EndedHow::Revoked),
            Err(refusal) => Outcome::Refused(refusal),
        }
    }

    fn set_domain(
        &mut self,
        domain: &Arc<str>,
        limits: Option<DomainLimits>,
        expected: Expected,
    ) -> Result<Option<Revision>, Refusal> {
        let before = self.state.domains.get(domain).copied();
        let current = before.map(|settings| settings.version);
        let as_expected = match expected {
            Expected::Any => true,
            Expected::Absent => current.is_none(),
            Expected::Version(version) => current == Some(version),
        };
        if !as_expected {
            return Err(Refusal::VersionDiffers { current });
        }
        if before.is_none() && limits.is_some() && self.state.domains.len() >= DOMAINS_MAX {
            let max = DOMAINS_MAX as u64;
            return Err(Refusal::Full { bound: Bound::Domains, max, queue_length: 0 });
        }
        if before.map(|settings| settings.limits) == limits {
            return Ok(current);
        }
        // That of the event which tells of it.
        let version = Revision(self.state.head.revision + 1);
        match limits {
            Some(limits) => {
                self.state.domains.insert(domain.clone(), DomainSettings { limits, version });
            }
            None => drop(self.state.domains.remove(domain)),
        }
        self.emit(EventKind::DomainChanged { domain: domain.clone() });
        Ok(limits.map(|_| version))
    }
}

impl AuditResult {
    fn of(outcome: &Outcome) -> Self {
        match outcome {
            Outcome::Refused(Refusal::LeaseEnded { .. } | Refusal::LeaseUnknown) => Self::NoLease,
            Outcome::Refused(Refusal::VersionDiffers { .. }) => Self::VersionDiffers,
            Outcome::Refused(Refusal::Full { .. }) => Self::Full,
            Outcome::Refused(_) => Self::NotLive,
            _ => Self::Done,
        }
    }
}
