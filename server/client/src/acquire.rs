//! Asking for a lock: once, or in line for any length of time.

use crate::answer::Answer;
use crate::backoff;
use crate::builder::SPAN_MAX;
use crate::call::{Call, Repeat};
use crate::client::Client;
use crate::clock::BootInstant;
use crate::error::Error;
use crate::guard::Guard;
use crate::lease;
use crate::verbs::{ms, new_request_id};
use crate::wire::{self, Code, Grant, Holding, Metadata, Mode};
use hyper::Method;
use std::future::IntoFuture;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};

const TTL: Duration = Duration::from_secs(10);
/// The longest wait of one request; longer ones are several requests.
const PART_MAX: Duration = Duration::from_millis(wire::Acquire::WAIT_MS_MAX);
/// The shortest: without a wait, a request that stands in line already would be answered as if
/// it had not waited, and its place would be kept.
const PART_MIN: Duration = Duration::from_millis(1);
/// How long an acquire that nobody waits for any more is tidied up behind.
const TIDY_BUDGET: Duration = Duration::from_secs(10);

/// A lock to be asked for; await it for a [`Guard`].
///
/// Dropping the future on the way is safe: the client leaves the line, or gives back what it may
/// have been granted, in the background.
#[derive(Debug, Clone)]
#[must_use = "nothing is asked for until it is awaited"]
pub struct Acquire {
    client: Client,
    resource: String,
    basis: Basis,
    mode: Mode,
    wait: Duration,
    metadata: Vec<(String, String)>,
    holding: Vec<(String, u64)>,
    claim: Option<Duration>,
    request_id: Option<String>,
}

#[derive(Debug, Clone)]
enum Basis {
    Ttl(Duration),
    Lease(Arc<lease::Shared>),
}

impl Acquire {
    pub(crate) fn new(client: &Client, resource: String) -> Self {
        Self {
            client: client.clone(),
            resource,
            basis: Basis::Ttl(TTL),
            mode: Mode::Exclusive,
            wait: Duration::ZERO,
            metadata: Vec::new(),
            holding: Vec::new(),
            claim: None,
            request_id: None,
        }
    }

    pub(crate) fn on(client: &Client, resource: String, lease: Arc<lease::Shared>) -> Self {
        Self { basis: Basis::Lease(lease), ..Self::new(client, resource) }
    }

    /// How long the lock outlives the last renewal: 10 s unless it is said otherwise. On a lease
    /// that was opened before it is that lease's, and this has no effect.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        if let Basis::Ttl(own) = &mut self.basis {
            *own = ttl;
        }
        self
    }

    /// Exclusive unless it is said otherwise.
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// Many may hold it in this mode at a time, for reading: the tokens do not fence.
    pub fn shared(self) -> Self {
        self.mode(Mode::Shared)
    }

    /// How long to stand in line, however long: not at all unless it is said otherwise.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait.min(SPAN_MAX);
        self
    }

    /// Attaches a string pair, which readers of the lock see.
    pub fn metadata(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.metadata.push((name.into(), value.into()));
        self
    }

    /// Says what this client holds already, so that the service sees waits for each other.
    pub fn holding(mut self, guard: &Guard) -> Self {
        self.holding.push((guard.resource().to_owned(), guard.token()));
        self
    }

    /// The same for a grant without a guard.
    pub fn holding_token(mut self, resource: impl Into<String>, token: u64) -> Self {
        self.holding.push((resource.into(), token));
        self
    }

    /// The grant passes on to the next in line unless the client is heard of within this time: a
    /// short one keeps a client that died on the way from blocking the others for a whole TTL.
    pub fn claim(mut self, claim: Duration) -> Self {
        self.claim = Some(claim);
        self
    }

    /// Repeats an earlier request, or gives this one an id that outlives the process. Left out:
    /// a new random one. After [`Error::OutcomeUnknown`] the place in line is then left alone, so
    /// that a repeat finds it.
    pub fn request_id(mut self, request_id: impl Into<String>) -> Self {
        self.request_id = Some(request_id.into());
        self
    }

    /// Asks, and has the guard renew what was granted.
    ///
    /// # Errors
    /// [`Error::Held`] without a wait, [`Error::WaitTimeout`] after one; [`Error::WouldDeadlock`],
    /// [`Error::Denied`], [`Error::Shed`], [`Error::Invalid`] when the service refuses;
    /// [`Error::Unavailable`] and [`Error::OutcomeUnknown`] when the budget is over.
    pub async fn guard(self) -> Result<Guard, Error> {
        let client = self.client.clone();
        let claimed = self.claim.is_some();
        let lease = match &self.basis {
            Basis::Ttl(_) => None,
            Basis::Lease(lease) => Some(Arc::clone(lease)),
        };
        Ok(Guard::new(&client, self.grant().await?, lease, claimed))
    }

    /// Asks, and leaves renewal and release to the caller: [`Client::renew`], [`Client::release`].
    ///
    /// # Errors
    /// As of [`Acquire::guard`].
    pub async fn grant(self) -> Result<Answer<Grant<'static>>, Error> {
        let request_id = match &self.request_id {
            Some(id) => id.clone(),
            None => new_request_id()?,
        };
        let wait_ends = Instant::now() + self.wait;
        let deadline = wait_ends + self.client.budget;
        let mut tidy = Tidy::new(&self, &request_id)?;
        let mut late = false;
        for part in 0.. {
            let asked = Instant::now();
            let left = wait_ends.saturating_duration_since(asked);
            let last = left <= PART_MAX;
            match self.ask(&request_id, left, last, deadline).await {
                Ok(granted) if !is_over(&granted) => {
                    tidy.armed = false;
                    return Ok(granted);
                }
                // The answer was on its way for too long; a repeat confirms the grant.
                Ok(_) => late = true,
                Err(Error::WaitTimeout(_)) if !last => {}
                Err(Error::Unavailable { .. }) if late => break,
                Err(error) => {
                    tidy.armed = self.leaves_something(&error);
                    return Err(error);
                }
            }
            if asked.elapsed() < PART_MAX / 2 {
                // Whoever ends a part so early may do so again at once.
                sleep(backoff::pause(part, None)).await;
            }
        }
        Err(too_late(request_id))
    }

    /// One request, with as much of the wait as one request may have.
    async fn ask(
        &self,
        request_id: &str,
        left: Duration,
        last: bool,
        deadline: Instant,
    ) -> Result<Answer<Grant<'static>>, Error> {
        let wait = if self.wait.is_zero() { self.wait } else { left.clamp(PART_MIN, PART_MAX) };
        let call = self.call(request_id, wait, !last)?;
        // A part of a longer wait has its own end, and the same slack as the whole.
        let deadline = deadline.min(Instant::now() + wait + self.client.budget);
        self.client.run_until(&call, deadline).await?.read()
    }

    fn call(&self, request_id: &str, wait: Duration, keep_place: bool) -> Result<Call, Error> {
        let (ttl_ms, lease_id) = match &self.basis {
            Basis::Ttl(ttl) => (Some(ms(*ttl)), None),
            Basis::Lease(lease) => (None, Some(lease.id().to_string().into())),
        };
        let pair = |(name, value): &(String, String)| (name.clone().into(), value.clone().into());
        let body = wire::Acquire {
            resource: self.resource.as_str().into(),
            client_id: self.client.client_id().into(),
            ttl_ms,
            lease_id,
            mode: self.mode,
            wait_ms: ms(wait),
            request_id: Some(request_id.into()),
            claim_ms: self.claim.map(ms),
            keep_place,
            holding: self.holding.iter().map(held).collect(),
            metadata: (!self.metadata.is_empty())
                .then(|| Metadata(self.metadata.iter().map(pair).collect())),
        };
        let wait_ends = (!wait.is_zero()).then(|| Instant::now() + wait);
        let call = Call::new(Method::POST, "/v1/acquire-lock".into(), Repeat::Freely);
        Ok(call.json(&body)?.waiting(wait_ends, request_id))
    }

    /// Whether a place in line or a grant may be left behind by a call that ends so.
    fn leaves_something(&self, error: &Error) -> bool {
        match error {
            Error::OutcomeUnknown { .. } => self.request_id.is_none(),
            Error::Unavailable { .. } | Error::Transport { .. } => true,
            // A fault of the service may have come after the grant.
            other => matches!(other.code(), Some(Code::RequestTimeout | Code::Internal)),
        }
    }
}

impl IntoFuture for Acquire {
    type Output = Result<Guard, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.guard())
    }
}

fn held((resource, token): &(String, u64)) -> Holding<'_> {
    Holding { resource: resource.into(), token: *token }
}

fn is_over(granted: &Answer<Grant<'static>>) -> bool {
    let valid_for = Duration::from_millis(granted.valid_for_ms);
    BootInstant::now() >= granted.sent.saturating_add(valid_for)
}

fn too_late(request_id: String) -> Error {
    Error::OutcomeUnknown {
        detail: "the grant came too late to be of use".to_owned(),
        problem: None,
        request_id: Some(request_id),
    }
}

/// Leaves the line, or gives the grant back, when the acquire ends without its caller having got
/// either: dropped on the way, or out of time.
struct Tidy {
    armed: bool,
    client: Client,
    resource: String,
    request_id: String,
    /// The same request, without a wait: finds the grant if there is one.
    find: Call,
    runtime: Handle,
}

impl Tidy {
    fn new(acquire: &Acquire, request_id: &str) -> Result<Self, Error> {
        Ok(Self {
            armed: true,
            client: acquire.client.with_budget(TIDY_BUDGET),
            resource: acquire.resource.clone(),
            request_id: request_id.to_owned(),
            find: acquire.call(request_id, Duration::ZERO, false)?,
            runtime: Handle::current(),
        })
    }
}

impl Drop for Tidy {
    fn drop(&mut self) {
        if self.armed {
            let (client, find) = (self.client.clone(), self.find.clone());
            let (resource, request_id) =
                (std::mem::take(&mut self.resource), std::mem::take(&mut self.request_id));
            drop(self.runtime.spawn(async move {
                leave(&client, find, &resource, &request_id).await;
            }));
        }
    }
}

async fn leave(client: &Client, find: Call, resource: &str, request_id: &str) {
    if let Ok(true) = client.cancel_wait(request_id).await {
        return;
    }
    // Not in line: it was granted, or has not arrived. A request that was refused meanwhile leaves
    // nothing behind, and one that is granted now is given back at once.
    if let Ok(granted) = client.run::<Grant<'static>>(find).await
        && let Err(error) = client.release(resource, granted.token).await
    {
        tracing::debug!(resource, %error, "an abandoned grant stays until its TTL is over");
    }
}
