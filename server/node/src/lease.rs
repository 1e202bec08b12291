//! Leases that hold many grants: opened and ended.

use crate::acquire::validity;
use crate::answer::{AtRevision, Call, Failure, Opened};
use crate::node::Node;
use crate::propose::Class;
use leasehold_core::command::{Caller, OpenLease};
use leasehold_core::outcome::Outcome;
use leasehold_core::{Command, LeaseId};
use std::time::Duration;

impl Node {
    /// Opens a lease.
    ///
    /// # Errors
    /// [`Failure::Refused`] names the limit that is in the way.
    pub async fn open_lease(
        &self,
        call: Call,
        asked: OpenLease,
    ) -> Result<AtRevision<Opened>, Failure> {
        self.check_open()?;
        self.check_storage()?;
        let lease = asked.lease;
        let told = self.ask(Class::Ask, Command::OpenLease(asked), call.deadline).await?;
        match told.outcome {
            Outcome::LeaseOpened { ttl_ms } => {
                let full = told.handed + Duration::from_millis(ttl_ms);
                let deadline = self.inner.hub.deadline(lease).unwrap_or(full);
                let value = Opened { validity: validity(call, full, deadline), ttl_ms };
                Ok(AtRevision { value, revision: told.revision })
            }
            Outcome::Refused(refusal) => Err(self.explain(refusal)),
            other => Err(Failure::Internal(format!("no answer to a new lease: {other:?}"))),
        }
    }

    /// Ends a lease with all that is on it. Much of it is ended in pieces after the answer; from
    /// the answer on the lease is over.
    ///
    /// # Errors
    /// [`Failure::Refused`] if the lease is not the caller's or has ended.
    pub async fn end_lease(
        &self,
        call: Call,
        caller: Caller,
        lease: LeaseId,
    ) -> Result<AtRevision<()>, Failure> {
        self.check_leading()?;
        let told = self.ask(Class::End, Command::EndLease { lease, caller }, call.deadline).await?;
        match told.outcome {
            Outcome::Done { .. } => Ok(AtRevision { value: (), revision: told.revision }),
            Outcome::Refused(refusal) => Err(self.explain(refusal)),
            other => Err(Failure::Internal(format!("no answer to the end of a lease: {other:?}"))),
        }
    }
}
