//! A lease that can hold many grants.

use crate::acquire::Acquire;
use crate::answer::Answer;
use crate::belief::Belief;
use crate::call::{Call, Done, Repeat};
use crate::client::Client;
use crate::clock::BootInstant;
use crate::error::Error;
use crate::keeper::{self, Confirmed, Kept};
use crate::validity::{Lost, State, Validity};
use crate::wire::{Code, Grant, HexId, KeepAlive, KeptAlive, LeaseOpened};
use hyper::Method;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

/// A lease that this client opened, renewed in the background. One renewal keeps every grant and
/// every place in line on it, and the service sees which waits would never end.
///
/// Dropping it ends it in the background, with everything on it: its guards are lost then.
///
/// ```
/// # use leasehold_client::{Client, State};
/// # use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = leasehold_client_fake::Service::start().await?;
/// # let client = Client::new(server.url())?;
/// let lease = client.open_lease(Duration::from_secs(30)).await?;
/// let from = lease.acquire("accounts/1").await?;
/// let to = lease.acquire("accounts/2").await?;
/// assert_eq!((from.state(), to.state()), (State::Held, State::Held));
///
/// from.release().await?;
/// lease.end().await?;
/// assert_eq!(to.state(), State::Lost);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "dropping it ends the lease"]
pub struct Lease {
    shared: Arc<Shared>,
    client: Client,
    keeper: Option<AbortHandle>,
    runtime: Handle,
    settled: bool,
}

/// What the lease, its keeper and its guards share.
#[derive(Debug)]
pub(crate) struct Shared {
    id: HexId,
    belief: Belief,
    grants: Mutex<Grants>,
}

/// The grants on a lease, by token.
#[derive(Debug, Default)]
struct Grants {
    /// Those that are believed in.
    believed: HashMap<u64, Belief>,
    /// What the last renewal told of grants that it did not keep. The service tells it for a
    /// while, so that this has it when the answer to the acquire itself comes late.
    told: HashMap<u64, Fate>,
}

/// Why a renewal of the lease did not keep a grant.
#[derive(Debug)]
enum Fate {
    Ended(Lost),
    Draining,
}

impl Lease {
    pub(crate) fn new(client: &Client, opened: Answer<LeaseOpened<'static>>) -> Self {
        let valid_for = Duration::from_millis(opened.valid_for_ms);
        let ttl = Duration::from_millis(opened.ttl_ms);
        let shared = Arc::new(Shared {
            id: opened.lease_id,
            belief: Belief::new(Validity::new(opened.sent, valid_for)),
            grants: Mutex::default(),
        });
        let runtime = Handle::current();
        let keeper = renewal(client, shared.id).map(|call| {
            let kept = AllGrants(Arc::clone(&shared));
            runtime.spawn(keeper::keep(client.clone(), kept, call, ttl, false)).abort_handle()
        });
        Self { shared, client: client.clone(), keeper, runtime, settled: false }
    }

    /// Its id. Whoever knows it can use and end the lease.
    #[must_use]
    pub fn id(&self) -> HexId {
        self.shared.id
    }

    /// Asks for a lock on this lease; await it for a [`crate::Guard`].
    pub fn acquire(&self, resource: impl Into<String>) -> Acquire {
        Acquire::on(&self.client, resource.into(), Arc::clone(&self.shared))
    }

    /// What may be believed at this moment.
    #[must_use]
    pub fn state(&self) -> State {
        self.shared.belief.state()
    }

    /// How long the present validity still lasts; zero once it is lost.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.shared.belief.remaining()
    }

    /// The instant at which the present validity is over.
    #[must_use]
    pub fn valid_until(&self) -> BootInstant {
        self.shared.belief.valid_until()
    }

    /// Resolves once it is lost, with the reason.
    pub async fn lost(&self) -> Lost {
        self.shared.belief.lost().await
    }

    /// Resolves once the state is another one than `seen`, with the new one.
    pub async fn changed(&self, seen: State) -> State {
        self.shared.belief.changed(seen).await
    }

    /// A handle on the belief for other tasks. It does not keep the lease.
    #[must_use]
    pub fn belief(&self) -> Belief {
        self.shared.belief.clone()
    }

    /// Ends it with everything on it. Belief ends before the request is sent, whatever comes of it.
    ///
    /// # Errors
    /// [`Error::Ended`] if it had ended before. [`Error::OutcomeUnknown`] and
    /// [`Error::Unavailable`] if the service did not say: it ends with its TTL at the latest.
    pub async fn end(mut self) -> Result<(), Error> {
        self.part();
        let outcome = self.client.end_lease(self.shared.id).await;
        self.settled = true;
        outcome.map(drop)
    }

    /// Ends belief and renewal.
    fn part(&self) {
        self.shared.end(&Lost::Released);
        if let Some(keeper) = &self.keeper {
            keeper.abort();
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.settled {
            return;
        }
        let ended = matches!(self.shared.belief.lost_now(), Some(Lost::Ended { .. }));
        self.part();
        if !ended {
            let (client, id) = (self.client.clone(), self.shared.id);
            drop(self.runtime.spawn(async move {
                if let Err(error) = client.end_lease(id).await {
                    tracing::debug!(lease = ?id, %error, "a dropped lease stays until its TTL is over");
                }
            }));
        }
    }
}

impl Shared {
    pub(crate) fn id(&self) -> HexId {
        self.id
    }

    /// A grant is on it from now on, unless it has ended in between.
    pub(crate) fn joined(&self, grant: &Grant<'_>, belief: &Belief) {
        let mut grants = self.grants.lock();
        if let Some(lost) = self.belief.lost_now() {
            belief.end(lost);
        } else {
            grants.believed.insert(grant.token, belief.clone());
            grants.meet_fates();
        }
    }

    /// Its guard gives it back.
    pub(crate) fn parted(&self, token: u64) {
        self.grants.lock().believed.remove(&token);
    }

    /// Ends belief in the lease and in everything on it.
    fn end(&self, why: &Lost) {
        // Under the lock, so that a grant that joins meanwhile sees the one or is seen by the other.
        let mut grants = self.grants.lock();
        self.belief.end(why.clone());
        for (_, belief) in grants.believed.drain() {
            belief.end(why.clone());
        }
    }
}

impl Grants {
    /// Ends belief in what has ended, and fixes the end of what is draining.
    fn meet_fates(&mut self) {
        for (token, fate) in &self.told {
            let Some(belief) = self.believed.get(token) else { continue };
            match fate {
                Fate::Draining => belief.drain(),
                Fate::Ended(lost) => {
                    belief.end(lost.clone());
                    self.believed.remove(token);
                }
            }
        }
    }
}

/// What an answer tells of the grants that it does not keep.
fn fates(confirmed: &Confirmed) -> HashMap<u64, Fate> {
    let draining = confirmed.draining_grants.iter().map(|grant| (grant.token, Fate::Draining));
    let ended = confirmed.ended_grants.iter().map(|grant| {
        let how = Some(grant.how.clone().into_owned());
        (grant.token, Fate::Ended(Lost::Ended { code: Code::GrantEnded, how }))
    });
    draining.chain(ended).collect()
}

fn renewal(client: &Client, lease: HexId) -> Option<Call> {
    let body = KeepAlive { client_id: Some(client.client_id().into()) };
    let path = format!("/v1/leases/{lease}/keep-alive");
    Call::new(Method::POST, path, Repeat::Freely).json(&body).ok()
}

struct AllGrants(Arc<Shared>);

impl Kept for AllGrants {
    fn belief(&self) -> &Belief {
        &self.0.belief
    }

    fn read(&self, done: Done) -> Result<Confirmed, Error> {
        let kept = done.read::<KeptAlive<'static>>()?;
        let Some(valid_for_ms) = kept.valid_for_ms else {
            return Err(Error::transport("a renewal without `valid_for_ms`"));
        };
        Ok(Confirmed {
            sent: kept.sent,
            valid_for: Duration::from_millis(valid_for_ms),
            ended_grants: kept.value.ended_grants,
            draining_grants: kept.value.draining_grants,
        })
    }

    fn confirm(&self, confirmed: &Confirmed) {
        let mut grants = self.0.grants.lock();
        self.0.belief.confirm(confirmed.sent, confirmed.valid_for);
        grants.told = fates(confirmed);
        grants.meet_fates();
        for belief in grants.believed.values() {
            belief.confirm(confirmed.sent, confirmed.valid_for);
        }
    }

    fn doubt(&self) {
        self.0.belief.doubt();
        for belief in self.0.grants.lock().believed.values() {
            belief.doubt();
        }
    }

    fn end(&self, why: &Lost) {
        self.0.end(why);
    }
}
