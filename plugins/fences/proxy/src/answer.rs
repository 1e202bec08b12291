//! One request, from its head to its answer.

use crate::answering::Answering;
use crate::checks::Checks;
use crate::exchange::{Cut, Exchange, Write};
use crate::gate::Gate;
use crate::headers::{self, Seen};
use crate::metrics::Metrics;
use crate::origin::Origin;
use crate::outgoing::Outgoing;
use crate::problem::{Code, Problem};
use crate::rules::{Demand, Rules};
use crate::settings::Limits;
use crate::shown::Shown;
use crate::upstream::{Failure, Upstream};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Either, Full};
use hyper::body::Incoming;
use hyper::header::{CONNECTION, EXPECT, HeaderValue, TRANSFER_ENCODING};
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode, Version};
use leasehold_client::fence::{Fence as _, RedbFence, Refused, Stats, Usage};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};

/// What a client gets: a problem of ours, or what the upstream says.
pub(crate) type AnswerBody = Either<Full<Bytes>, Answering>;

/// How much of a body that nobody wants is read, so that its sender gets to read the refusal
/// before the connection is closed in its face.
const LEFTOVER_BYTES_MAX: usize = 4 * 1024 * 1024;
const LEFTOVER_PATIENCE: Duration = Duration::from_secs(5);

/// Everything that an answer needs.
#[derive(Debug)]
pub(crate) struct Answerer {
    pub(crate) rules: Rules,
    pub(crate) usage: Usage,
    pub(crate) limits: Limits,
    pub(crate) fence: RedbFence,
    pub(crate) checks: Checks,
    pub(crate) gate: Arc<Gate>,
    pub(crate) upstream: Arc<Upstream>,
    /// As many writes are under way as clients are connected.
    pub(crate) seats: Arc<Semaphore>,
    pub(crate) authority: String,
    pub(crate) metrics: Arc<Metrics>,
}

impl Answerer {
    /// Answers whatever comes.
    pub(crate) async fn answer(
        &self,
        request: Request<Incoming>,
        client: IpAddr,
    ) -> Response<AnswerBody> {
        let began = std::time::Instant::now();
        let (head, body) = request.into_parts();
        let mut body = Some(body);
        let mut answer = match self.pass_on(&head, &mut body, client).await {
            Ok(answer) => {
                self.metrics.passed();
                answer.map(Either::Right)
            }
            Err(problem) => {
                if let Some(body) = body {
                    read_leftover(&head, body);
                }
                self.refuse(&head, &problem)
            }
        };
        if head.headers.contains_key(TRANSFER_ENCODING) {
            // It may have had a Content-Length as well, which the parser drops. Whoever believed
            // that one sees the next request begin elsewhere: so there is no next request.
            answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        self.metrics.took(began);
        answer
    }

    /// The story: what is asked, whether the fence lets it through, and then through with it. The
    /// body is left where it is until then.
    async fn pass_on(
        &self,
        head: &Parts,
        body: &mut Option<Incoming>,
        client: IpAddr,
    ) -> Result<Response<Answering>, Problem> {
        let origin = Origin::of(head, &self.authority)?;
        let demand = self.rules.demand(head)?;
        let write = match &demand {
            Demand::Nothing => None,
            Demand::Seal(shown) => self.seal(shown).await.map(|()| None)?,
            Demand::Write(shown) => {
                headers::check_connection(&head.headers)?;
                Some(self.admit(shown).await?)
            }
        };
        let shown = match &demand {
            Demand::Nothing => None,
            Demand::Seal(shown) | Demand::Write(shown) => Some(shown),
        };
        let mut sent = Request::new(());
        *sent.method_mut() = head.method.clone();
        *sent.uri_mut() = origin.target;
        *sent.headers_mut() = head.headers.clone();
        headers::to_upstream(sent.headers_mut(), &Seen { client, host: &origin.host, shown });
        let Some(body) = body.take() else {
            return Err(Problem::new(Code::InvalidRequest, "no body"));
        };
        self.exchange(sent, body, write).await
    }

    /// Lets a write through, and nothing of it before: stale tokens first, for they are refused
    /// whatever else is wrong; then those that nobody issued; then it waits for older writes.
    async fn admit(&self, shown: &Shown) -> Result<Write, Problem> {
        let tenure = self.gate.pass()?;
        let seat = self.seat()?;
        self.examine(shown).await?;
        let pass = self.fence.admit(&shown.resource, shown.token, self.usage).await;
        let pass = pass.map_err(|why| self.refused(why))?;
        if self.checks.is_suspect(shown) {
            // While it waited, another proxy may have let a newer one through.
            self.checks.check(shown).await?;
        }
        let settle = self.limits.upstream_settle;
        let (gate, ends) = (Arc::clone(&self.gate), Instant::now() + self.limits.write_max);
        Ok(Write { pass, settle, tenure, gate, seat, ends })
    }

    /// Leave to be under way. Writes go on without their clients, so that these alone do not
    /// bound them.
    fn seat(&self) -> Result<OwnedSemaphorePermit, Problem> {
        Arc::clone(&self.seats).try_acquire_owned().map_err(|_| {
            let max = self.limits.connections_max;
            let detail = format!("{max} writes are under way or have not settled yet");
            Problem::new(Code::Overloaded, detail).retry_after(Duration::from_secs(1))
        })
    }

    /// Resolves once no write is under way any more and all have settled. None is let through
    /// from then on.
    pub(crate) async fn all_over(&self) {
        let all = u32::try_from(self.limits.connections_max).unwrap_or(u32::MAX);
        if let Ok(seats) = self.seats.acquire_many(all).await {
            seats.forget();
        }
    }

    /// What the fence says, as a problem.
    fn refused(&self, why: Refused) -> Problem {
        let Stats { floor, held_for, .. } = self.fence.stats();
        match &why {
            Refused::OlderInFlight { resource, token, retry_after } if !held_for.is_zero() => {
                Problem::on_hold(resource, *token, held_for).retry_after(*retry_after)
            }
            Refused::Stale { resource, token, highest } if *highest == floor => {
                Problem::below_floor(resource, *token, floor)
            }
            _ => refused(why),
        }
    }

    /// Records the token of a reader who is going to write: what it reads stays what it read.
    async fn seal(&self, shown: &Shown) -> Result<(), Problem> {
        let tenure = self.gate.pass()?;
        self.examine(shown).await?;
        let sealed = self.fence.seal(&shown.resource, shown.token).await;
        sealed.map_err(|why| self.refused(why))?;
        self.gate.pass_in(tenure)
    }

    async fn examine(&self, shown: &Shown) -> Result<(), Problem> {
        let highest = self.fence.highest(&shown.resource).await.map_err(refused)?;
        if highest.is_some_and(|highest| shown.token < highest) {
            // The fence itself refuses it, and counts it.
            return Ok(());
        }
        if self.checks.is_new(shown, highest) {
            self.checks.check(shown).await?;
        }
        Ok(())
    }

    async fn exchange(
        &self,
        sent: Request<()>,
        body: Incoming,
        write: Option<Write>,
    ) -> Result<Response<Answering>, Problem> {
        let exchange = Exchange::new(write, &self.metrics);
        let body = Outgoing::new(body, &exchange, self.limits.client_timeout);
        let sending = self.send(sent.map(|()| body), Arc::clone(&exchange));
        let got =
            if exchange.is_write() { without_its_client(sending).await } else { sending.await };
        got.map_err(|failure| failed(failure, &exchange))
    }

    fn send(
        &self,
        sent: Request<Outgoing>,
        exchange: Arc<Exchange>,
    ) -> impl Future<Output = Result<Response<Answering>, Failure>> + use<> {
        let upstream = Arc::clone(&self.upstream);
        let patience = self.limits.upstream_timeout;
        let of_head = sent.method() == Method::HEAD;
        async move {
            let (answer, line) = upstream.send(sent, &exchange).await?;
            let (mut head, body) = answer.into_parts();
            if head.status == StatusCode::SWITCHING_PROTOCOLS {
                let detail = "it switches protocols, which nobody has asked for";
                return Err(Failure::Broken(detail.to_owned()));
            }
            headers::to_client(
                &mut head.headers,
                of_head || head.status == StatusCode::NOT_MODIFIED,
            );
            head.version = Version::HTTP_11;
            let body = Answering::new(body, line, &exchange, &upstream, patience);
            Ok(Response::from_parts(head, body))
        }
    }

    fn refuse(&self, head: &Parts, problem: &Problem) -> Response<AnswerBody> {
        self.metrics.outcome(problem.code.as_str());
        let trace_id = leasehold_client::new_request_id().unwrap_or_else(|_| "none".to_owned());
        tracing::info!(
            target: "leasehold_fence_proxy::refused",
            code = problem.code.as_str(),
            %trace_id,
            method = %head.method,
            resource = problem.resource,
            token = problem.token,
            highest_token = problem.highest_token,
            detail = problem.detail,
            "refused"
        );
        problem.answer(&trace_id).map(|body| Either::Left(Full::new(body)))
    }
}

/// Goes on when the client goes away: what was sent whole is answered sooner than it settles.
async fn without_its_client(
    sending: impl Future<Output = Result<Response<Answering>, Failure>> + Send + 'static,
) -> Result<Response<Answering>, Failure> {
    let sent = tokio::spawn(sending).await;
    sent.unwrap_or_else(|error| Err(Failure::Broken(error.to_string())))
}

/// A client that waits for a word before it sends its body is not asked for it.
fn read_leftover(head: &Parts, mut body: Incoming) {
    if head.headers.contains_key(EXPECT) {
        return;
    }
    drop(tokio::spawn(timeout(LEFTOVER_PATIENCE, async move {
        let mut left = LEFTOVER_BYTES_MAX;
        while let Some(Ok(frame)) = body.frame().await {
            left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
            if left == 0 {
                return;
            }
        }
    })));
}

/// What the fence says, as a problem.
fn refused(refused: Refused) -> Problem {
    let detail = refused.to_string();
    let problem = match &refused {
        Refused::Stale { resource, token, highest } => Problem::stale(resource, *token, *highest),
        Refused::Used { resource, token, .. } => {
            Problem::about(Code::TokenUsed, resource, *token, detail)
        }
        Refused::OlderInFlight { resource, token, .. } => {
            Problem::about(Code::OlderInFlight, resource, *token, detail)
        }
        Refused::Invalid { .. } => Problem::new(Code::InvalidRequest, detail),
        Refused::Full { .. } => Problem::new(Code::Overloaded, detail),
        other => {
            tracing::error!(error = %other, "the highest token could not be recorded");
            Problem::new(Code::StorageFailed, detail)
        }
    };
    match refused.retry_after() {
        Some(after) => problem.retry_after(after),
        None if problem.code.status() == 503 => problem.retry_after(Duration::from_secs(1)),
        None => problem,
    }
}

/// What went wrong on the way to the upstream and back, and what became of the request there.
fn failed(failure: Failure, exchange: &Exchange) -> Problem {
    let fate = match (exchange.has_begun(), exchange.is_write()) {
        (false, _) => "nothing was sent to it",
        (true, true) => "the write may have happened; a newer token waits until it has settled",
        (true, false) => "whether it has done anything is not known",
    };
    match (exchange.why_cut(), failure) {
        (Some(Cut::ClientSilent), _) => {
            Problem::new(Code::RequestTimeout, format!("the body did not arrive in time: {fate}"))
        }
        (Some(Cut::ClientGone), _) => {
            Problem::new(Code::InvalidRequest, format!("the body ended early: {fate}"))
        }
        (Some(Cut::TooLong), _) => {
            Problem::new(Code::UpstreamTimeout, format!("the write took too long: {fate}"))
        }
        (Some(Cut::NotReady), _) => {
            let detail = format!("the proxy lost its lock on the upstream: {fate}");
            Problem::new(Code::NotReady, detail).retry_after(Duration::from_secs(1))
        }
        (None, Failure::Closed(problem)) => problem,
        (None, Failure::Unreachable(why)) => Problem::new(
            Code::UpstreamFailed,
            format!("the upstream cannot be reached: {why}; {fate}"),
        ),
        (None, Failure::Broken(why)) => Problem::new(
            Code::UpstreamFailed,
            format!("the upstream did not answer: {why}; {fate}"),
        ),
        (None, Failure::Silent) => Problem::new(
            Code::UpstreamTimeout,
            format!("the upstream was silent for too long; {fate}"),
        ),
    }
}
