//! Many operations in one request, each with its own outcome.

use crate::acquire::Waiting;
use crate::answer::{AtRevision, Call, Failure, Granted, Released, Renewed};
use crate::hub::cell::{Answer, ReplyTo};
use crate::node::{ANSWER_WITHIN, Node};
use crate::propose::{Class, Proposal};
use crate::runtime;
use leasehold_core::Command;
use leasehold_core::command::{Acquire, GrantRef};
use leasehold_core::outcome::{Outcome, Refusal};
use tokio::sync::oneshot;

/// One operation of a batch.
#[derive(Debug, Clone)]
pub enum Operation {
    /// Acquire without waiting.
    Acquire(Acquire),
    /// Renew, or with a number change the TTL.
    Renew(GrantRef, Option<u64>),
    /// Release.
    Release(GrantRef),
}

/// What came of one operation.
#[derive(Debug, Clone)]
pub enum Operated {
    /// The lock is the caller's.
    Granted(Granted),
    /// The lease is renewed.
    Renewed(Renewed),
    /// The lock is given back.
    Released(Released),
}

/// An operation that is in the queue of proposals.
enum Pending<'a> {
    Acquire(Waiting<'a>, oneshot::Receiver<Answer>),
    Release(GrantRef, oneshot::Receiver<Answer>),
    Renew(GrantRef, Option<u64>),
    Failed(Failure),
}

impl Node {
    /// Does operations in order; each has its own result. Those that need the log are queued
    /// together, so that they share as few entries as possible.
    ///
    /// # Errors
    /// Only if nothing was begun.
    pub async fn batch(
        &self,
        call: Call,
        operations: Vec<Operation>,
    ) -> Result<AtRevision<Vec<Result<Operated, Failure>>>, Failure> {
        self.check_open()?;
        let mut results = Vec::with_capacity(operations.len());
        let mut pending = Vec::new();
        // Nothing is told before all of it is: a client that goes away meanwhile heard of no grant.
        let mut untold = Vec::new();
        for operation in operations {
            // A renewal takes no entry: what came before it in the batch is settled first.
            if matches!(operation, Operation::Renew(..)) {
                self.settle_all(call, &mut pending, &mut results, &mut untold).await;
            }
            pending.push(self.begin(call, operation));
            if matches!(pending.last(), Some(Pending::Renew(..))) {
                self.settle_all(call, &mut pending, &mut results, &mut untold).await;
            }
        }
        self.settle_all(call, &mut pending, &mut results, &mut untold).await;
        untold.iter_mut().for_each(Waiting::over);
        let revision = self.inner.shared.table.read().revision();
        Ok(AtRevision { value: results, revision })
    }

    fn begin(&self, call: Call, operation: Operation) -> Pending<'_> {
        match operation {
            Operation::Acquire(mut asked) => {
                asked.wait = false;
                let begun =
                    self.check_storage().and_then(|()| self.propose_acquire(asked, call, false));
                begun.map_or_else(Pending::Failed, |(waiting, answer)| {
                    Pending::Acquire(waiting, answer)
                })
            }
            Operation::Release(grant) => {
                let (reply, answer) = oneshot::channel();
                let command = Command::Release(grant.clone());
                // In the same queue as the acquires of this batch, to keep its order.
                let pushed = self
                    .push(Class::Ask, Proposal::new(command, ReplyTo::Once(reply), call.deadline));
                pushed.map_or_else(Pending::Failed, |()| Pending::Release(grant, answer))
            }
            Operation::Renew(grant, ttl_ms) => Pending::Renew(grant, ttl_ms),
        }
    }

    async fn settle_all<'a>(
        &'a self,
        call: Call,
        pending: &mut Vec<Pending<'a>>,
        results: &mut Vec<Result<Operated, Failure>>,
        untold: &mut Vec<Waiting<'a>>,
    ) {
        self.inner.batcher.kick();
        for operation in pending.drain(..) {
            results.push(self.settle(call, operation, untold).await);
        }
    }

    async fn settle<'a>(
        &'a self,
        call: Call,
        pending: Pending<'a>,
        untold: &mut Vec<Waiting<'a>>,
    ) -> Result<Operated, Failure> {
        match pending {
            Pending::Acquire(waiting, answer) => {
                let give_up_at = call.deadline.unwrap_or_else(|| runtime::now() + ANSWER_WITHIN);
                let told = runtime::timeout_at(give_up_at, answer).await;
                let told = told
                    .and_then(Result::ok)
                    .ok_or(Failure::OutcomeUnknown { request_id: None })?;
                untold.push(waiting);
                match told {
                    Answer::Granted(at) => Ok(Operated::Granted(self.granted(call, at))),
                    Answer::Outcome { outcome: Outcome::Refused(refusal), .. } => {
                        Err(self.explain(refusal))
                    }
                    Answer::Outcome { .. } => Err(Failure::Refused(Refusal::NotWaiting)),
                    Answer::Failed(failure) => Err(failure),
                }
            }
            Pending::Release(grant, answer) => {
                let told = self.told(answer, call.deadline).await?;
                self.released(&grant, told).await.map(Operated::Released)
            }
            Pending::Renew(grant, ttl_ms) => {
                self.renew(call, grant, ttl_ms).await.map(Operated::Renewed)
            }
            Pending::Failed(failure) => Err(failure),
        }
    }
}
