//! Giving a lock back, and what is said of one that is gone already.

use crate::answer::{AtRevision, Call, Failure, Gone, Released};
use crate::node::{Node, Told};
use crate::propose::Class;
use leasehold_core::command::{EndedHow, GrantRef};
use leasehold_core::outcome::{Blockers, Outcome, Refusal};
use leasehold_core::{Command, Owner, RequestId};

impl Node {
    /// Gives a lock back. Twice is fine: the second answer says so.
    ///
    /// # Errors
    /// [`Failure::Gone`] when it ended another way or was never the caller's.
    pub async fn release(
        &self,
        call: Call,
        asked: GrantRef,
    ) -> Result<AtRevision<Released>, Failure> {
        self.check_leading()?;
        let told = self.ask(Class::End, Command::Release(asked.clone()), call.deadline).await?;
        let revision = told.revision;
        let value = self.released(&asked, told).await?;
        Ok(AtRevision { value, revision })
    }

    pub(crate) async fn released(&self, asked: &GrantRef, told: Told) -> Result<Released, Failure> {
        match told.outcome {
            Outcome::Released => Ok(Released::Now),
            Outcome::Refused(Refusal::NotLive) => match self.gone(asked).await? {
                Failure::Gone(Gone::Known(record)) if record.how == EndedHow::Released => {
                    Ok(Released::Before)
                }
                failure => Err(failure),
            },
            Outcome::Refused(refusal) => Err(self.explain(refusal)),
            other => Err(Failure::Internal(format!("no answer to a release: {other:?}"))),
        }
    }

    /// What is known of a grant that is not live. The caller has seen a state that is newer than
    /// the question.
    pub(crate) async fn gone(&self, asked: &GrantRef) -> Result<Failure, Failure> {
        let record = self.record(asked.token).await?;
        Ok(match record {
            Some(record)
                if record.grant.resource == asked.resource
                    && asked.caller.is(&record.grant.owner) =>
            {
                Failure::Gone(Gone::Known(record))
            }
            Some(_) => self.never(asked),
            None => self.forgotten_or_never(asked),
        })
    }

    /// Every token that was given out is live or has ended, so one that is neither live nor on
    /// record has ended, and its record was trimmed.
    fn forgotten_or_never(&self, asked: &GrantRef) -> Failure {
        let table = self.inner.shared.table.read();
        let ended = asked.token <= table.last_token() && table.grant(asked.token).is_none();
        drop(table);
        if ended { Failure::Gone(Gone::Forgotten) } else { self.never(asked) }
    }

    fn never(&self, asked: &GrantRef) -> Failure {
        let table = self.inner.shared.table.read();
        let grants: Vec<_> =
            table.holders(&asked.resource).take(Blockers::SHOWN).cloned().collect();
        drop(table);
        Failure::Gone(Gone::Never {
            holders: grants.iter().map(|grant| self.holder(grant)).collect(),
        })
    }

    /// Takes a waiting request out of its line; false if it did not wait.
    ///
    /// # Errors
    /// Only if the log did not take it.
    pub async fn cancel_wait(
        &self,
        call: Call,
        owner: Owner,
        request_id: RequestId,
    ) -> Result<AtRevision<bool>, Failure> {
        self.check_leading()?;
        let told =
            self.ask(Class::End, Command::CancelWait { owner, request_id }, call.deadline).await?;
        let value = matches!(told.outcome, Outcome::Done { .. });
        Ok(AtRevision { value, revision: told.revision })
    }
}
