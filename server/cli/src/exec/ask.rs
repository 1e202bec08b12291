//! Getting the lock: one place in line, however many requests it takes, and leaving it again.

use super::signals::{Signals, ends};
use super::terminal;
use leasehold_client::{Acquire, Answer, Client, Error};
use leasehold_wire::{Grant, Mode};
use rustix::process::Signal;
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
        let mut granted = Box::pin(self.request(client).wait(self.wait).grant());
        loop {
            let signal = tokio::select! {
                granted = &mut granted => return self.settle(client, granted).await,
                signal = signals.next() => signal,
            };
            if signal == Signal::TSTP {
                // The place in line is that of the request, and outlives the connection.
                terminal::stop();
            }
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
            let _ = tokio::time::timeout(GRACE, self.undo(client)).await;
        }
        granted.map(|grant| Got::Lock(Box::new(grant)))
    }

    /// The same request at every call, as far as the service compares it.
    fn request(&self, client: &Client) -> Acquire {
        let asked = client.acquire(&*self.resource).ttl(self.ttl).mode(self.mode);
        asked.request_id(&*self.request_id)
    }

    /// Gives the place up. Whatever comes of it, the service forgets the place by itself soon.
    /// Says whether there was one.
    async fn leave(&self, client: &Client) -> bool {
        let left = client.with_budget(GRACE).cancel_wait(&self.request_id).await;
        matches!(left, Ok(true))
    }

    /// Gives the place up, or the lock that was granted without an answer that arrived.
    async fn undo(&self, client: &Client) {
        if self.leave(client).await {
            return;
        }
        if let Ok(grant) = self.request(&client.with_budget(GRACE)).grant().await {
            give_back(client, &grant).await;
        }
    }
}

/// A lock that nobody wants any more. If this fails it ends with its TTL.
pub(crate) async fn give_back(client: &Client, grant: &Grant<'_>) {
    let _ = client.with_budget(GRACE).release(&grant.resource, grant.token).await;
}
