//! Ends that the leader's clock decides: a lease that was not renewed, a grant that drains, a
//! grant that nobody took.

use crate::command::EndedHow;
use crate::ids::{LeaseId, Token};
use crate::machine::Step;
use crate::outcome::{Outcome, Refusal};

impl Step<'_> {
    /// Ends leases, in pieces if there is more on them than one step may end.
    ///
    /// All of them stop being renewable at once; what is left over is ended by `Continue`.
    pub(crate) fn expire(&mut self, leases: &[LeaseId]) -> Outcome {
        // What is ending already goes on ending as it began.
        let living: Vec<LeaseId> =
            leases.iter().copied().filter(|id| self.living_lease(*id).is_ok()).collect();
        self.end_all(&living, EndedHow::Expired)
    }

    pub(crate) fn end_drained(&mut self, token: Token) -> Outcome {
        match self.state.grants.get(&token).cloned() {
            Some(grant) if grant.draining => {
                self.end_grant(&grant, EndedHow::Forced);
                self.pump(&grant.resource);
                Outcome::Done { more: false }
            }
            _ => Outcome::Refused(Refusal::Void),
        }
    }

    pub(crate) fn pass_on(&mut self, token: Token, attachment: u32) -> Outcome {
        match self.state.grants.get(&token).cloned() {
            // A repeat was told of the grant after the leader had given it up.
            Some(grant) if grant.attachment != attachment => Outcome::Refused(Refusal::Void),
            Some(grant) => {
                self.end_grant(&grant, EndedHow::PassedOn);
                self.pump(&grant.resource);
                Outcome::Done { more: false }
            }
            None => Outcome::Refused(Refusal::NotLive),
        }
    }
}
