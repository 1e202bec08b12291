//! Getting the lock: one place in line, however many requests it takes, and leaving it again.

use super::signals::{Signals, ends};
use leasehold_client::{Answer, Client, Error};
use leasehold_wire::{Grant, Mode};
use std::time::Duration;

/// How long tidying up may take.
const GRACE: Duration = Duration::from_secs(5);

/// What is asked for.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    pub(crate) resource: String,
    pub(crate) mode: Mode,
    pub(crate) ttl: Duration,
    pub(crate) wait: Duration,
    pub(crate) request_id: String,
}

/// How an attempt to get the lock ended.
#[derive(Debug)]
pub(crate) enum Got {
    /// Here it is.
    Lock(Box<Answer<Grant<'static>>>),
    /// A signal asked this process to end instead.
    Interrupted,
}

impl Ask {
    /// Waits for the lock until its time is over or a signal ends the wait.
    pub(crate) async fn get(&self, client: &Client, signals: &mut Signals) -> Result<Got, Error> {
        let asked = client
            .acquire(&*self.resource)
            .ttl(self.ttl)
            .mode(self.mode)
            .wait(self.wait)
            .request_id(&*self.request_id);
        let mut granted = Box::pin(asked.grant());
        loop {
            let signal = tokio::select! {
                granted = &mut granted => return self.settle(client, granted).await,
                signal = signals.next() => signal,
            };
            if ends(signal) {
                // The request that waits goes on meanwhile: if the grant comes first, it is
                // known and can be given back, instead of standing until its TTL is over.
                let leaving = async { tokio::join!(self.leave(client), &mut granted).1 };
                if let Ok(Ok(grant)) = tokio::time::timeout(GRACE, leaving).await {
                    give_back(client, &grant).await;
                }
                return Ok(Got::Interrupted);
            }
        }
    }

    async fn settle(
        &self,
        client: &Client,
        granted: Result<Answer<Grant<'static>>, Error>,
    ) -> Result<Got, Error> {
        if matches!(granted, Err(Error::OutcomeUnknown { .. })) {
            self.leave(client).await;
        }
        granted.map(|grant| Got::Lock(Box::new(grant)))
    }

    /// Gives the place up. Whatever comes of it, the service forgets the place by itself soon.
    async fn leave(&self, client: &Client) {
        let _ = client.with_budget(GRACE).cancel_wait(&self.request_id).await;
    }
}

/// A lock that nobody wants any more. If this fails it ends with its TTL.
pub(crate) async fn give_back(client: &Client, grant: &Grant<'_>) {
    let _ = client.with_budget(GRACE).release(&grant.resource, grant.token).await;
}
