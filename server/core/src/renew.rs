//! Changing the TTL of a lease. Renewals with the same TTL never come here: the leader keeps
//! deadlines in its memory, and only what the next leader must know goes through the log.

use crate::command::GrantRef;
use crate::ids::{LeaseId, Token};
use crate::machine::Step;
use crate::outcome::{EventKind, Outcome, Refusal};
use std::collections::BTreeSet;

impl Step<'_> {
    pub(crate) fn renew(&mut self, asked: &GrantRef, ttl_ms: u64) -> Outcome {
        match self.check_renew(asked, ttl_ms) {
            Ok(lease) => {
                if let Some(living) = self.state.leases.get_mut(&lease) {
                    living.ttl_ms = ttl_ms;
                    living.longest_ttl_ms = living.longest_ttl_ms.max(ttl_ms);
                }
                self.emit(EventKind::LeaseChanged { lease, ttl_ms });
                Outcome::Renewed { lease, ttl_ms }
            }
            Err(refusal) => Outcome::Refused(refusal),
        }
    }

    fn check_renew(&self, asked: &GrantRef, ttl_ms: u64) -> Result<LeaseId, Refusal> {
        let grant = self.live_grant(asked)?;
        let limits = &self.state.limits;
        if !grant.single {
            return Err(Refusal::LeaseIsExplicit);
        }
        if grant.draining {
            return Err(Refusal::Draining);
        }
        if !(limits.ttl_min_ms..=limits.ttl_max_ms).contains(&ttl_ms) {
            return Err(self.ttl_out_of_range());
        }
        match grant.ttl_cap_ms {
            Some(cap_ms) if ttl_ms > cap_ms => Err(Refusal::TtlAboveCap { cap_ms }),
            _ => Ok(grant.lease),
        }
    }

    pub(crate) fn ttl_out_of_range(&self) -> Refusal {
        let limits = &self.state.limits;
        Refusal::TtlOutOfRange { min_ms: limits.ttl_min_ms, max_ms: limits.ttl_max_ms }
    }

    pub(crate) fn confirm_ended(&mut self, id: LeaseId, tokens: &[Token]) -> Outcome {
        if let Err(refusal) = self.living_lease(id) {
            return Outcome::Refused(refusal);
        }
        let told: BTreeSet<Token> = tokens.iter().copied().collect();
        // Looked at first: changing nothing must not copy what a snapshot shares.
        let lost = self.state.lost_on(id).iter().any(|lost| told.contains(&lost.token));
        if let Some(lease) = self.state.leases.get_mut(&id).filter(|_| lost) {
            lease.extra_mut().lost.retain(|lost| !told.contains(&lost.token));
        }
        Outcome::Done { more: false }
    }
}
