//! One call: attempts within a budget, on one server after the other.

use crate::answer::Answer;
use crate::backoff;
use crate::client::Client;
use crate::clock::BootInstant;
use crate::error::Error;
use crate::servers::Turn;
use crate::transport::{Cut, Whole};
use crate::verbs::ms;
use crate::wire::{Code, Problem};
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

/// What came of one attempt that was not done.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Nothing left this machine.
    NotSent(String),
    /// It may or may not have been done.
    Unanswered(String),
    /// The service said no.
    Refused(Box<Problem<'static>>),
    /// Something that is not this service answered.
    Nonsense(String),
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

impl Failure {
    /// The attempt cannot have changed anything.
    fn nothing_was_done(&self) -> bool {
        match self {
            Self::NotSent(_) => true,
            Self::Refused(problem) => problem.code != Code::OutcomeUnknown,
            Self::Unanswered(_) | Self::Nonsense(_) => false,
        }
    }

    /// A later attempt may fare better.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            Self::NotSent(_) | Self::Unanswered(_) => true,
            Self::Refused(problem) => problem.status == 503,
            Self::Nonsense(_) => false,
        }
    }

    /// Refused to protect others, for as long as there is no room.
    pub(crate) fn is_shed(&self) -> bool {
        matches!(self, Self::Refused(problem) if problem.code == Code::Shed)
    }

    /// Another server may fare better right now.
    fn is_of_the_server(&self) -> bool {
        match self {
            Self::NotSent(_) | Self::Unanswered(_) => true,
            Self::Refused(problem) => matches!(
                problem.code,
                Code::NoLeader | Code::ShuttingDown | Code::NotReady | Code::StorageFull
            ),
            Self::Nonsense(_) => false,
        }
    }

    pub(crate) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused(problem) => problem.retry_after_ms.map(Duration::from_millis),
            _ => None,
        }
    }

    fn told(self) -> (String, Option<Box<Problem<'static>>>) {
        match self {
            Self::NotSent(detail) | Self::Unanswered(detail) | Self::Nonsense(detail) => {
                (detail, None)
            }
            Self::Refused(problem) => (problem.detail.to_string(), Some(problem)),
        }
    }

    /// The error for a read that ends here.
    pub(crate) fn of_reading(self) -> Error {
        self.into_error(Repeat::Reading, None, false)
    }

    /// The error for a call that ends here. `doubt`: some attempt may have been done.
    fn into_error(self, repeat: Repeat, request_id: Option<&str>, doubt: bool) -> Error {
        match self {
            Self::Nonsense(detail) => Error::Transport { detail },
            Self::Refused(problem) if problem.status != 503 => (*problem).into(),
            other if doubt && repeat != Repeat::Reading => {
                let (detail, problem) = other.told();
                Error::OutcomeUnknown { detail, problem, request_id: request_id.map(str::to_owned) }
            }
            other => {
                let (detail, problem) = other.told();
                Error::Unavailable { detail, problem }
            }
        }
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
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let failure = match self.once(call, left).await {
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
                return Err(failure.into_error(call.repeat, call.request_id.as_deref(), doubt));
            }
            tracing::debug!(target = call.target, ?failure, ?pause, "repeating a call");
            sleep(pause).await;
        }
    }

    /// How long to wait after a failure: not at all while there is a server that was not asked.
    pub(crate) fn pause(&self, failure: &Failure, failures: u32) -> Duration {
        let servers = u32::try_from(self.inner.servers.count()).unwrap_or(u32::MAX);
        if failure.is_of_the_server() && !failures.is_multiple_of(servers) {
            return Duration::ZERO;
        }
        backoff::pause(failures / servers, failure.retry_after())
    }

    /// One attempt of at most `limit`. Moves on to the next server for later ones if this one
    /// cannot serve.
    pub(crate) async fn once(&self, call: &Call, limit: Duration) -> Result<Done, Failure> {
        let turn = self.inner.servers.turn();
        let outcome = self.attempt(call, turn, limit).await;
        if outcome.as_ref().is_err_and(Failure::is_of_the_server) {
            self.inner.servers.move_on(turn);
        }
        outcome
    }

    async fn attempt(&self, call: &Call, turn: Turn, limit: Duration) -> Result<Done, Failure> {
        let (limit, told) = call.times(self.inner.times.attempt, limit);
        if limit.is_zero() {
            return Err(Failure::NotSent("no time was left".to_owned()));
        }
        let request = call.request(self.inner.servers.base(turn), told)?;
        // Before the first byte, and before any connection: too early is safe, too late is not.
        let sent = BootInstant::now();
        match timeout(limit, self.inner.transport.send(request)).await {
            Ok(Ok(whole)) if whole.status.is_success() => Ok(Done { sent, whole }),
            Ok(Ok(whole)) => Err(refusal(&whole)),
            Ok(Err(Cut::NotSent(detail))) => Err(Failure::NotSent(detail)),
            Ok(Err(Cut::Sent(detail))) => Err(Failure::Unanswered(detail)),
            Err(_) => Err(Failure::Unanswered(format!("no answer within {limit:?}"))),
        }
    }
}

/// What an answer that is no success says.
pub(crate) fn refusal(whole: &Whole) -> Failure {
    match serde_json::from_slice::<Problem<'static>>(&whole.body) {
        Ok(problem) => Failure::Refused(Box::new(problem)),
        // A proxy on the way that lost its server: the request may have gone through.
        Err(_) if matches!(whole.status.as_u16(), 502..=504) => {
            Failure::Unanswered(format!("status {} without a problem", whole.status))
        }
        Err(_) => Failure::Nonsense(format!("status {} without a problem", whole.status)),
    }
}
