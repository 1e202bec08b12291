//! An operator ends a grant against its holder's will.

use crate::command::{EndedHow, ForceWhen};
use crate::ids::Token;
use crate::machine::Step;
use crate::name::ResourceName;
use crate::outcome::{EventKind, Outcome};
use std::sync::Arc;

impl Step<'_> {
    /// Ends the grant now, or lets it run out without renewal. The token is a compare-and-set:
    /// whoever holds the lock under another one is not touched.
    pub(crate) fn force_release(
        &mut self,
        resource: &ResourceName,
        token: Token,
        when: ForceWhen,
    ) -> Outcome {
        let grant = match self.grant_of(resource, token) {
            Ok(grant) => grant,
            Err(refusal) => return Outcome::Refused(refusal),
        };
        match when {
            ForceWhen::Now => {
                self.end_grant(&grant, EndedHow::Forced);
                self.pump(resource);
            }
            ForceWhen::Drain if grant.draining => {}
            ForceWhen::Drain => {
                let mut draining = (*grant).clone();
                draining.draining = true;
                let grant = Arc::new(draining);
                self.state.grants.insert(token, grant.clone());
                self.emit(EventKind::Draining { grant });
            }
        }
        Outcome::Done { more: false }
    }
}
