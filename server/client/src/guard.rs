//! One lock that is held.

use crate::answer::Answer;
use crate::belief::Belief;
use crate::call::{Call, Done, Repeat};
use crate::client::Client;
use crate::clock::BootInstant;
use crate::encode::fencing_resource;
use crate::error::Error;
use crate::keeper::{self, Confirmed, Kept};
use crate::lease;
use crate::validity::{Lost, State, Validity};
use crate::wire::{Grant, Mode, Released, Renew, Renewed};
use hyper::Method;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

/// A lock that this client holds, renewed in the background until it is released or dropped.
///
/// Whoever works under it watches [`Guard::lost`], and sends [`Guard::fencing_headers`] (or the
/// token) with every write.
///
/// Dropping it ends belief at once and releases the lock in the background, as well as that goes:
/// when the runtime stops first, the lock stays until its TTL is over. [`Guard::release`] says
/// what came of it.
///
/// ```
/// # use leasehold_client::{Client, Lost, State};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = leasehold_client_fake::Service::start().await?;
/// # let client = Client::new(server.url())?;
/// let guard = client.acquire("a b/1").await?;
/// assert_eq!(guard.state(), State::Held);
/// assert_eq!(
///     guard.fencing_headers(),
///     [
///         ("Fencing-Token", guard.token().to_string()),
///         ("Fencing-Resource", "a%20b/1".to_string()),
///         ("Fencing-Mode", "exclusive".to_string()),
///     ],
/// );
///
/// // A handle that other tasks can ask, also after the guard is gone.
/// let belief = guard.belief();
/// assert!(guard.release().await?.released);
/// assert_eq!(belief.state(), State::Lost);
/// assert_eq!(belief.lost().await, Lost::Released);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "dropping it gives the lock back"]
pub struct Guard {
    grant: Grant<'static>,
    belief: Belief,
    client: Client,
    /// What renews a grant on its own lease, or claims one on another.
    keeper: Option<AbortHandle>,
    /// Of a grant on a lease that was opened before.
    lease: Option<Arc<lease::Shared>>,
    runtime: Handle,
    /// The lock is given back, or left to somebody else.
    settled: bool,
}

impl Guard {
    pub(crate) fn new(
        client: &Client,
        granted: Answer<Grant<'static>>,
        lease: Option<Arc<lease::Shared>>,
        claimed: bool,
    ) -> Self {
        let valid_for = Duration::from_millis(granted.valid_for_ms);
        let belief = Belief::new(Validity::new(granted.sent, valid_for));
        let grant = granted.value;
        let runtime = Handle::current();
        let keeper = match (&lease, renewal(client, &grant)) {
            (Some(lease), Some(call)) => {
                lease.joined(&grant, &belief);
                // The lease's keeper may come too late to claim it.
                claimed.then(|| runtime.spawn(claim(client.clone(), call)).abort_handle())
            }
            (None, Some(call)) => {
                let ttl = Duration::from_millis(grant.ttl_ms);
                let kept = OneGrant { token: grant.token, belief: belief.clone() };
                let task = keeper::keep(client.clone(), kept, call, ttl, claimed);
                Some(runtime.spawn(task).abort_handle())
            }
            (_, None) => None,
        };
        Self { grant, belief, client: client.clone(), keeper, lease, runtime, settled: false }
    }

    /// What is locked.
    #[must_use]
    pub fn resource(&self) -> &str {
        &self.grant.resource
    }

    /// The fencing token: higher than that of every earlier holder of this resource.
    #[must_use]
    pub fn token(&self) -> u64 {
        self.grant.token
    }

    /// Exclusive or shared. Only the token of an exclusive grant fences.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.grant.mode
    }

    /// The grant as the service answered it.
    #[must_use]
    pub fn grant(&self) -> &Grant<'static> {
        &self.grant
    }

    /// The headers that tell storage which grant a request is made under.
    ///
    /// Those of a shared grant say `Fencing-Mode: shared`, and a fence refuses a write that bears
    /// them: were a reader's token recorded, the next reader's would make it stale.
    #[must_use]
    pub fn fencing_headers(&self) -> [(&'static str, String); 3] {
        let mode = match self.mode() {
            Mode::Exclusive => "exclusive",
            Mode::Shared => "shared",
        };
        [
            ("Fencing-Token", self.token().to_string()),
            ("Fencing-Resource", fencing_resource(self.resource())),
            ("Fencing-Mode", mode.to_owned()),
        ]
    }

    /// What may be believed at this moment.
    #[must_use]
    pub fn state(&self) -> State {
        self.belief.state()
    }

    /// How long the present validity still lasts; zero once it is lost.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.belief.remaining()
    }

    /// The instant at which the present validity is over.
    #[must_use]
    pub fn valid_until(&self) -> BootInstant {
        self.belief.valid_until()
    }

    /// Resolves once it is lost, with the reason: at the latest when the validity is over, also
    /// after a suspend.
    pub async fn lost(&self) -> Lost {
        self.belief.lost().await
    }

    /// Resolves once no more than `margin` of the validity is left, or it is lost: the moment to
    /// stop work that takes up to `margin` to stop.
    pub async fn closing(&self, margin: Duration) {
        self.belief.closing(margin).await;
    }

    /// Resolves once the state is another one than `seen`, with the new one.
    pub async fn changed(&self, seen: State) -> State {
        self.belief.changed(seen).await
    }

    /// A handle on the belief for other tasks. It does not keep the lock.
    #[must_use]
    pub fn belief(&self) -> Belief {
        self.belief.clone()
    }

    /// Gives the lock back. Belief ends before the request is sent, whatever comes of it.
    ///
    /// # Errors
    /// [`Error::Ended`] if it had ended otherwise before. [`Error::OutcomeUnknown`] and
    /// [`Error::Unavailable`] if the service did not say: the lock ends with its TTL at the latest.
    pub async fn release(mut self) -> Result<Released, Error> {
        self.part();
        // Settled only afterwards, so that a release that is dropped on the way goes on.
        let outcome = self.client.release(&self.grant.resource, self.grant.token).await;
        self.settled = true;
        outcome.map(|answer| answer.value)
    }

    /// Stops renewing and hands the grant over to the caller, who renews and releases it with
    /// [`Client::renew`] and [`Client::release`]. Every [`Belief`] in this guard ends.
    #[must_use]
    pub fn into_grant(mut self) -> Grant<'static> {
        self.part();
        self.settled = true;
        self.grant.clone()
    }

    /// Ends belief and renewal.
    fn part(&self) {
        self.belief.end(Lost::Released);
        if let Some(keeper) = &self.keeper {
            keeper.abort();
        }
        if let Some(lease) = &self.lease {
            lease.parted(self.grant.token);
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.settled {
            return;
        }
        // Nothing is left to give back where the service itself ended it.
        let ended = matches!(self.belief.lost_now(), Some(Lost::Ended { .. }));
        self.part();
        if !ended {
            let (client, grant) = (self.client.clone(), self.grant.clone());
            drop(self.runtime.spawn(async move {
                if let Err(error) = client.release(&grant.resource, grant.token).await {
                    tracing::debug!(resource = %grant.resource, %error, "a dropped guard stays until its TTL is over");
                }
            }));
        }
    }
}

fn renewal(client: &Client, grant: &Grant<'_>) -> Option<Call> {
    let body = Renew {
        resource: grant.resource.as_ref().into(),
        token: grant.token,
        client_id: Some(client.client_id().into()),
        ttl_ms: None,
    };
    Call::new(Method::POST, "/v1/renew-lock".into(), Repeat::Freely).json(&body).ok()
}

/// Lets the service hear of the client once. What the answer says, the lease's keeper learns too.
async fn claim(client: Client, renewal: Call) {
    if let Err(error) = client.run::<Renewed<'static>>(renewal).await {
        tracing::debug!(%error, "a grant could not be claimed");
    }
}

struct OneGrant {
    token: u64,
    belief: Belief,
}

impl Kept for OneGrant {
    fn belief(&self) -> &Belief {
        &self.belief
    }

    fn read(&self, done: Done) -> Result<Confirmed, Error> {
        let renewed = done.read::<Renewed<'static>>()?;
        Ok(Confirmed {
            sent: renewed.sent,
            valid_for: Duration::from_millis(renewed.valid_for_ms),
            ended_grants: renewed.value.ended_grants,
            draining_grants: renewed.value.draining_grants,
        })
    }

    fn confirm(&self, confirmed: &Confirmed) {
        if confirmed.draining_grants.iter().any(|grant| grant.token == self.token) {
            self.belief.drain();
        }
        self.belief.confirm(confirmed.sent, confirmed.valid_for);
    }

    fn doubt(&self) {
        self.belief.doubt();
    }

    fn end(&self, why: &Lost) {
        self.belief.end(why.clone());
    }
}
