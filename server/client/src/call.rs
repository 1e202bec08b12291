//! One call: attempts within a budget, on one server after the other.

use crate::answer::Answer;
use crate::backoff;
use crate::client::Client;
use crate::clock::BootInstant;
use crate::error::Error;
use crate::failure::{Failure, refusal};
use crate::servers::Turn;
use crate::transport::Whole;
use crate::verbs::ms;
use crate::vigil::FIRST_SHARE;
use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// What the service may be told about how long its caller waits: a day.
const TIMEOUT_MS_MAX: u64 = 86_400_000;
/// A wait in line ends by the service's own clock, with a proper answer, before ours cuts it off.
const WAIT_SLACK: Duration = Duration::from_millis(250);

/// When a call may be sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// It changes nothing.
    Reading,
    /// Doing it twice is doing it once.
    Freely,
    /// Only while it is certain that no earlier attempt took effect.
    IfNothingWasDone,
}

/// A request that is the same, byte for byte, at every attempt.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    method: Method,
    /// Path and query, encoded.
    target: String,
    body: Bytes,
    headers: HeaderMap,
    repeat: Repeat,
    /// The call stands in line until then.
    wait_ends: Option<Instant>,
    request_id: Option<String>,
}

/// An answer that says that the call was done.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) sent: BootInstant,
    whole: Whole,
}

impl Call {
    pub(crate) fn new(method: Method, target: String, repeat: Repeat) -> Self {
        Self {
            method,
            target,
            body: Bytes::new(),
            headers: HeaderMap::new(),
            repeat,
            wait_ends: None,
            request_id: None,
        }
    }

    pub(crate) fn json<B: Serialize + ?Sized>(mut self, body: &B) -> Result<Self, Error> {
        self.body = serde_json::to_vec(body).map_err(Error::transport)?.into();
        self.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Ok(self)
    }

    pub(crate) fn header(mut self, name: &'static str, value: &str) -> Result<Self, Error> {
        let value = HeaderValue::from_str(value)
            .map_err(|_| Error::invalid(name, format!("`{name}` cannot be sent in a header")))?;
        self.headers.insert(HeaderName::from_static(name), value);
        Ok(self)
    }

    /// The call stands in line until then, under this id.
    pub(crate) fn waiting(mut self, wait_ends: Option<Instant>, request_id: &str) -> Self {
        self.wait_ends = wait_ends;
        self.request_id = Some(request_id.to_owned());
        self
    }

    /// How long one attempt may take, and what the service is told about it.
    fn times(&self, attempt: Duration, left: Duration) -> (Duration, Duration) {
        match self.wait_ends {
            Some(wait_ends) => {
                let wait = wait_ends.saturating_duration_since(Instant::now());
                (left.min(wait + attempt), left.min(wait + WAIT_SLACK))
            }
            None => (left.min(attempt), left.min(attempt)),
        }
    }

    fn request(&self, base: &str, told: Duration) -> Result<Request<Full<Bytes>>, Failure> {
        let mut request = Request::new(Full::new(self.body.clone()));
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = format!("{base}{}", self.target)
            .parse()
            .map_err(|error| Failure::Nonsense(format!("not an address: {error}")))?;
        *request.headers_mut() = self.headers.clone();
        let told = HeaderValue::from(ms(told).clamp(1, TIMEOUT_MS_MAX));
        request.headers_mut().insert("leasehold-timeout-ms", told);
        Ok(request)
    }
}

impl Done {
    pub(crate) fn read<T: DeserializeOwned>(self) -> Result<Answer<T>, Error> {
        let value = serde_json::from_slice(&self.whole.body).map_err(|error| {
            Error::transport(format!("the answer is not of the expected shape: {error}"))
        })?;
        let text = |name| self.whole.headers.get(name)?.to_str().ok();
        let revision = text("leasehold-revision").map(str::to_owned);
        let age_ms = text("leasehold-age-ms").and_then(|age| age.parse().ok());
        Ok(Answer { value, sent: self.sent, revision, age_ms })
    }
}

impl Client {
    /// Makes a call within the client's budget.
    pub(crate) async fn run<T: DeserializeOwned>(&self, call: Call) -> Result<Answer<T>, Error> {
        self.run_until(&call, Instant::now() + self.budget).await?.read()
    }

    /// Repeats a call until it is done, refused, or `deadline` is near.
    pub(crate) async fn run_until(&self, call: &Call, deadline: Instant) -> Result<Done, Error> {
        let (mut failures, mut doubt) = (0, false);
        let mut said = None;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let failure = match self.once(call, self.patience(call, failures), left).await {
                Ok(done) => return Ok(done),
                Err(failure) => failure,
            };
            doubt |= !failure.nothing_was_done();
            let may_repeat = !doubt || call.repeat != Repeat::IfNothingWasDone;
            if !failure.may_pass() || !may_repeat {
                return Err(failure.into_error(call.repeat, call.request_id.as_deref(), doubt));
            }
            failures += 1;
            let pause = self.pause(&failure, failures);
            let left = deadline.saturating_duration_since(Instant::now());
            if pause >= left {
                let failure = failure.or_what_was(said);
                return Err(failure.into_error(call.repeat, call.request_id.as_deref(), doubt));
            }
            tracing::debug!(target = call.target, ?failure, ?pause, "repeating a call");
            if matches!(failure, Failure::Refused(_)) {
                said = Some(failure);
            }
            sleep(pause).await;
        }
    }

    /// How long a server has for its answer. With others to turn to, little at first: a frozen one
    /// must not use up the time in which they could serve. More with every round, so that what
    /// takes long gets done.
    pub(crate) fn patience(&self, call: &Call, failures: u32) -> Duration {
        match call.repeat {
            Repeat::IfNothingWasDone => self.inner.times.attempt,
            Repeat::Reading | Repeat::Freely => self.brief(failures),
        }
    }

    /// The same for whatever may be repeated.
    pub(crate) fn brief(&self, failures: u32) -> Duration {
        let (attempt, servers) = (self.inner.times.attempt, self.servers());
        if servers == 1 {
            return attempt;
        }
        let doublings = (failures / servers).min(16);
        attempt.mul_f64(FIRST_SHARE).saturating_mul(1 << doublings).min(attempt)
    }

    pub(crate) fn servers(&self) -> u32 {
        u32::try_from(self.inner.servers.count()).unwrap_or(u32::MAX)
    }

    /// How long to wait after a failure: not at all while there is a server that was not asked.
    pub(crate) fn pause(&self, failure: &Failure, failures: u32) -> Duration {
        let servers = self.servers();
        if failure.of_the_server().is_some() && !failures.is_multiple_of(servers) {
            return Duration::ZERO;
        }
        backoff::pause(failures / servers, failure.retry_after())
    }

    /// One attempt with this much patience and of at most `limit`; a wait in line comes on top of
    /// the patience, not of the limit. Moves on to another server for later ones if this one
    /// cannot serve.
    pub(crate) async fn once(
        &self,
        call: &Call,
        patience: Duration,
        limit: Duration,
    ) -> Result<Done, Failure> {
        let turn = self.inner.servers.turn();
        let outcome = self.attempt(call, turn, patience, limit).await;
        match outcome.as_ref().map_err(Failure::of_the_server) {
            Ok(_) => self.inner.servers.served(turn),
            Err(Some(fault)) => self.inner.servers.move_on(turn, fault),
            Err(None) => {}
        }
        outcome
    }

    async fn attempt(
        &self,
        call: &Call,
        turn: Turn,
        patience: Duration,
        limit: Duration,
    ) -> Result<Done, Failure> {
        let (within, told) = call.times(patience, limit);
        if within.is_zero() {
            return Err(Failure::NotSent("no time was left".to_owned()));
        }
        let request = call.request(self.inner.servers.base(turn), told)?;
        // Before the first byte, and before any connection: too early is safe, too late is not.
        let sent = BootInstant::now();
        let answered = tokio::select! {
            answered = timeout(within, self.inner.transport.send(request)) => answered,
            () = self.silence(turn, patience), if call.wait_ends.is_some() => {
                return Err(Failure::Silent("the server is silent".to_owned()));
            }
        };
        if let Ok(Ok(whole)) = &answered {
            self.inner.servers.heard(turn);
            self.take_hint(turn, whole);
        }
        match answered {
            Ok(Ok(whole)) if whole.status.is_success() => Ok(Done { sent, whole }),
            Ok(Ok(whole)) => Err(refusal(&whole)),
            Ok(Err(cut)) => Err(cut.into()),
            // A caller in a hurry says nothing about the server.
            Err(_) if within < patience => {
                Err(Failure::Unanswered(format!("no answer within {within:?}")))
            }
            Err(_) => Err(Failure::Silent(format!("no answer within {within:?}"))),
        }
    }
}
