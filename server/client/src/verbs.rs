//! The calls that change locks and leases, as they are: nothing renews, nothing believes.
//!
//! [`Client::acquire`] and [`Client::open_lease`] are what most callers want.

use crate::acquire::Acquire;
use crate::answer::Answer;
use crate::call::{Call, Repeat};
use crate::client::Client;
use crate::encode::with_query;
use crate::error::Error;
use crate::lease::Lease;
use crate::wire::batch::{RawOperation, Verb};
use crate::wire::{
    Batch, BatchResults, CancelWait, Code, HexId, KeepAlive, KeptAlive, LeaseEnded, LeaseOpened,
    OpenLease, Operation, Release, Released, Renew, Renewed, WaitCancelled,
};
use hyper::Method;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::time::Duration;

impl Client {
    /// Asks for a lock; await it for a [`crate::Guard`]. Tries once unless [`Acquire::wait`] says
    /// how long to stand in line.
    pub fn acquire(&self, resource: impl Into<String>) -> Acquire {
        Acquire::new(self, resource.into())
    }

    /// Asks for a lock once, without standing in line: the same as [`Client::acquire`] without a
    /// wait, for those who want to read it.
    pub fn try_acquire(&self, resource: impl Into<String>) -> Acquire {
        self.acquire(resource)
    }

    /// Opens a lease that can hold many grants, and renews it in the background.
    ///
    /// # Errors
    /// [`Error::OutcomeUnknown`] if the answer was lost: the lease may be open, with nothing on
    /// it, until its TTL is over. It is not asked for again, since that could open two.
    pub async fn open_lease(&self, ttl: Duration) -> Result<Lease, Error> {
        let body =
            OpenLease { client_id: self.client_id().into(), ttl_ms: ms(ttl), metadata: None };
        let opened = self.open_lease_raw(&body).await?;
        Ok(Lease::new(self, opened))
    }

    /// Opens a lease that nothing renews but [`Client::keep_alive`].
    ///
    /// # Errors
    /// As of [`Client::open_lease`].
    pub async fn open_lease_raw(
        &self,
        asked: &OpenLease<'_>,
    ) -> Result<Answer<LeaseOpened<'static>>, Error> {
        let call = Call::new(Method::POST, "/v1/leases".into(), Repeat::IfNothingWasDone);
        self.run(call.json(asked)?).await
    }

    /// Renews a lease and everything on it.
    ///
    /// # Errors
    /// [`Error::Ended`] if it has ended.
    pub async fn keep_alive(&self, lease: HexId) -> Result<Answer<KeptAlive<'static>>, Error> {
        let body = KeepAlive { client_id: Some(self.client_id().into()) };
        self.post(&format!("/v1/leases/{lease}/keep-alive"), &body).await
    }

    /// Ends a lease with all its grants and places in line.
    ///
    /// # Errors
    /// [`Error::Ended`] if it has ended before.
    pub async fn end_lease(&self, lease: HexId) -> Result<Answer<LeaseEnded>, Error> {
        let path = format!("/v1/leases/{lease}");
        let target = with_query(&path, [("client_id", self.client_id())]);
        self.run(Call::new(Method::DELETE, target, Repeat::Freely)).await
    }

    /// Renews a grant, with a new TTL if one is given.
    ///
    /// # Errors
    /// [`Error::Ended`] if it has ended, or is somebody else's.
    pub async fn renew(
        &self,
        resource: &str,
        token: u64,
        ttl: Option<Duration>,
    ) -> Result<Answer<Renewed<'static>>, Error> {
        let body = Renew {
            resource: resource.into(),
            token,
            client_id: Some(self.client_id().into()),
            ttl_ms: ttl.map(ms),
        };
        self.post("/v1/renew-lock", &body).await
    }

    /// Gives a grant back.
    ///
    /// # Errors
    /// [`Error::Ended`] if it had ended otherwise before, or is somebody else's.
    pub async fn release(&self, resource: &str, token: u64) -> Result<Answer<Released>, Error> {
        let body =
            Release { resource: resource.into(), token, client_id: Some(self.client_id().into()) };
        self.post("/v1/release-lock", &body).await
    }

    /// Leaves the line on purpose. Says whether such a request stood in line: if not, it may have
    /// been granted.
    ///
    /// # Errors
    /// As of any call.
    pub async fn cancel_wait(&self, request_id: &str) -> Result<bool, Error> {
        let body = CancelWait { client_id: self.client_id().into(), request_id: request_id.into() };
        match self.post::<WaitCancelled, _>("/v1/cancel-wait", &body).await {
            Ok(answer) => Ok(answer.cancelled),
            Err(error) if error.code() == Some(Code::NotFound) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Does up to 256 operations in order, each with its own outcome. Every acquire without a
    /// `request_id` gets one, so that the whole can be repeated.
    ///
    /// # Errors
    /// As of any call. What comes of one operation is in its result.
    pub async fn batch(
        &self,
        operations: Vec<Operation<'_>>,
    ) -> Result<Answer<BatchResults<'static>>, Error> {
        let operations = operations.into_iter().map(raw).collect::<Result<_, _>>()?;
        self.post("/v1/batch", &Batch { operations }).await
    }

    /// Any read that this version has no method for. `path` is encoded already, the values of the
    /// query are not.
    ///
    /// # Errors
    /// As of any read.
    pub async fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &[(&str, &str)],
    ) -> Result<Answer<T>, Error> {
        let target = with_query(path, query.iter().copied());
        self.run(Call::new(Method::GET, target, Repeat::Reading)).await
    }

    /// Any post that this version has no method for, repeated until it is answered: doing it
    /// twice must be doing it once.
    ///
    /// # Errors
    /// As of any call.
    pub async fn post<T: DeserializeOwned, B: Serialize + ?Sized>(
        &self,
        path: &str,
        body: &B,
    ) -> Result<Answer<T>, Error> {
        self.run(Call::new(Method::POST, path.into(), Repeat::Freely).json(body)?).await
    }
}

/// Whole milliseconds, rounded up so that a short time does not become none.
pub(crate) fn ms(span: Duration) -> u64 {
    u64::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// A new id for a request, for [`Acquire::request_id`]: 128 random bits, in hexadecimal.
///
/// # Errors
/// [`Error::Transport`] when the machine has no randomness to give.
pub fn new_request_id() -> Result<String, Error> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)
        .map_err(|error| Error::transport(format!("no randomness for a request id: {error}")))?;
    Ok(format!("{:032x}", u128::from_be_bytes(bytes)))
}

fn raw(operation: Operation<'_>) -> Result<RawOperation<'_>, Error> {
    let bare = |op, resource| RawOperation {
        op,
        resource,
        client_id: None,
        token: None,
        ttl_ms: None,
        lease_id: None,
        mode: None,
        request_id: None,
        claim_ms: None,
        holding: None,
        metadata: None,
    };
    Ok(match operation {
        Operation::Acquire(asked) => RawOperation {
            client_id: Some(asked.client_id),
            ttl_ms: asked.ttl_ms,
            lease_id: asked.lease_id,
            mode: Some(asked.mode),
            request_id: match asked.request_id {
                Some(id) => Some(id),
                None => Some(new_request_id()?.into()),
            },
            claim_ms: asked.claim_ms,
            holding: (!asked.holding.is_empty()).then_some(asked.holding),
            metadata: asked.metadata,
            ..bare(Verb::Acquire, asked.resource)
        },
        Operation::Renew(asked) => RawOperation {
            client_id: asked.client_id,
            token: Some(asked.token),
            ttl_ms: asked.ttl_ms,
            ..bare(Verb::Renew, asked.resource)
        },
        Operation::Release(asked) => RawOperation {
            client_id: asked.client_id,
            token: Some(asked.token),
            ..bare(Verb::Release, asked.resource)
        },
    })
}
