//! Requests that only the leader can answer, on their way from here to it.
//!
//! The way itself is the node's. What is decided here is which requests take it, what is told of
//! their clients, and what these are answered when it leads nowhere.
//!
//! When the leader is lost on the way, nobody knows whether it has done what was asked. What only
//! looks, or names its request so that it is known again, is then sent to the next leader; of
//! everything else the client is told, who knows whether it may be repeated.

use crate::app::App;
use crate::ask::Ask;
use crate::failure;
use crate::fault::Fault;
use crate::head::{Head, IDEMPOTENCY_KEY};
use crate::query;
use crate::routes::{Answers, Class, Route};
use futures_util::future::BoxFuture;
use leasehold_core::RequestId;
use leasehold_node::{Failure, Forwarded, ForwardedAnswer, Node};
use serde::Deserialize;
use std::borrow::Cow;
use std::time::{Duration, Instant};

/// What the rim has to know of the other nodes: the node's own view, or one that a test makes up.
pub(crate) trait Onward: Send + Sync {
    /// Whether this node leads.
    fn leads(&self) -> bool;
    /// Who leads, as far as this node knows.
    fn leader(&self) -> Option<u64>;
    /// How old the state of this node is at most, if that is known.
    fn age(&self) -> Option<Duration>;
    /// Brings a request to the leader. Dropping the future tells it that the client is gone.
    fn forward(&self, request: Forwarded) -> BoxFuture<'static, Result<ForwardedAnswer, Failure>>;
    /// Waits until what `before` was asked in vain may be asked again, of another node or of the same
    /// one; says whether that came about in time.
    fn led_again(&self, before: u64, within: Duration) -> BoxFuture<'static, bool>;
}

impl Onward for Node {
    fn leads(&self) -> bool {
        self.is_leading()
    }

    fn leader(&self) -> Option<u64> {
        Self::leader(self)
    }

    fn age(&self) -> Option<Duration> {
        Self::age(self)
    }

    fn forward(&self, request: Forwarded) -> BoxFuture<'static, Result<ForwardedAnswer, Failure>> {
        let node = self.clone();
        Box::pin(async move { Self::forward(&node, request).await })
    }

    fn led_again(&self, before: u64, within: Duration) -> BoxFuture<'static, bool> {
        let node = self.clone();
        Box::pin(async move { Self::led_again(&node, before, within).await })
    }
}

/// How long a stopping node still waits for the answers to what it passed on.
const STOP_PATIENCE: Duration = Duration::from_secs(1);
/// A leader that keeps to a deadline has answered by then.
const OVERDUE: Duration = Duration::from_millis(200);
/// How long a request that lost its leader waits for the next one: longer than most elections take,
/// and shorter than clients wait for an answer.
const NEXT_LEADER_WITHIN: Duration = Duration::from_secs(3);

/// Whether the leader has to answer this.
pub(crate) fn is_leaders(route: &Route, head: &Head) -> bool {
    match route.answers {
        Answers::Here => false,
        Answers::Leader => true,
        Answers::Either => !query::says_stale(head.query_string()),
    }
}

/// The other node that has to answer this, if one leads. With no leader known this node answers
/// after all: that there is none.
pub(crate) fn elsewhere(app: &App, route: &Route, head: &Head) -> Option<u64> {
    if !is_leaders(route, head) || app.onward.leads() {
        return None;
    }
    app.onward.leader().filter(|leader| *leader != app.node.id())
}

/// What became of a request that was passed on.
pub(crate) enum Passed {
    /// This node answered.
    Answered { leader: u64, answer: ForwardedAnswer },
    /// Nobody did, and by now this node leads: it answers itself. `doubt`: somebody may have done
    /// what was asked already.
    Here { doubt: bool },
}

/// Passes a request on and waits for its answer.
pub(crate) async fn pass_on(route: &Route, ask: &Ask, leader: u64) -> Result<Passed, Fault> {
    let mut counted = ask.app.metrics.passing_on();
    let told = tokio::select! {
        biased;
        told = send(route, ask, leader) => told,
        () = stopped(&ask.app) => Err(Failure::OutcomeUnknown { request_id: None }),
        () = overdue(ask.call.deadline) => Err(Failure::OutcomeUnknown { request_id: None }),
    };
    counted.ended(match &told {
        Ok(Passed::Answered { .. }) => "answered",
        Ok(Passed::Here { .. }) | Err(Failure::OutcomeUnknown { .. }) => "no_answer",
        Err(_) => "not_sent",
    });
    told.map_err(|failure| unanswered(route, ask, failure))
}

/// Sends a request to whoever leads: once, or until there is an answer where that is safe.
async fn send(route: &Route, ask: &Ask, mut leader: u64) -> Result<Passed, Failure> {
    let unknown = || Failure::OutcomeUnknown { request_id: None };
    let onward = &ask.app.onward;
    // Set once somebody may have done what was asked.
    let mut doubt_ends: Option<Instant> = None;
    loop {
        let told = onward.forward(forwarded(ask)).await;
        match told {
            // Of what was sent before, one who cannot serve says nothing.
            Ok(answer) if doubt_ends.is_some() && answer.status == 503 => {}
            Ok(answer) => return Ok(Passed::Answered { leader, answer }),
            Err(Failure::OutcomeUnknown { .. }) if is_safe_to_repeat(route, ask) => {
                doubt_ends = Some(Instant::now() + patience(ask));
            }
            Err(_) if doubt_ends.is_some() => {}
            // Nothing was sent, and meanwhile somebody else may lead.
            Err(_) if onward.leads() => return Ok(Passed::Here { doubt: false }),
            Err(failure) => match onward.leader().filter(|now| *now != leader) {
                Some(now) => {
                    leader = now;
                    continue;
                }
                None => return Err(failure),
            },
        }
        let left = doubt_ends.map(|ends| ends.saturating_duration_since(Instant::now()));
        let left = left.filter(|left| !left.is_zero()).ok_or_else(unknown)?;
        if !onward.led_again(leader, left).await {
            return Err(unknown());
        }
        if onward.leads() {
            return Ok(Passed::Here { doubt: true });
        }
        leader = onward.leader().unwrap_or(leader);
    }
}

/// How long whoever leads next is waited for, or the same leader again.
fn patience(ask: &Ask) -> Duration {
    let deadline = ask.call.deadline;
    let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
    left.map_or(NEXT_LEADER_WITHIN, |left| left.min(NEXT_LEADER_WITHIN))
}

/// Whether a request may be sent a second time: it only looks, or it has an id by which the service
/// knows it again. A release or a renewal has none: done twice it does no harm, but its client would
/// be told what became of the second one.
fn is_safe_to_repeat(route: &Route, ask: &Ask) -> bool {
    let is_known_again = route.name == "acquire-lock" && request_id_of(ask).is_some();
    route.class == Class::Read || is_known_again
}

/// The answer of this node to a request that another one may have done already: that it cannot
/// serve would be understood as that nothing was done.
pub(crate) fn doubted(route: &Route, ask: &Ask, fault: Fault) -> Fault {
    if fault.problem.status == 503 {
        return unanswered(route, ask, Failure::OutcomeUnknown { request_id: None });
    }
    fault
}

/// Returns when the client's own time is over, and the leader has not said so.
async fn overdue(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until((deadline + OVERDUE).into()).await,
        None => std::future::pending().await,
    }
}

/// Returns a moment after the node began to stop.
async fn stopped(app: &App) {
    let mut stopping = app.stop_signal();
    // An error would mean that the application is gone, and with it whoever asks here.
    let _ = stopping.wait_for(|stopping| *stopping).await;
    tokio::time::sleep(STOP_PATIENCE).await;
}

fn forwarded(ask: &Ask) -> Forwarded {
    let (head, caller) = (&ask.head, &ask.caller);
    let now = Instant::now();
    let headers = head.headers.iter();
    Forwarded {
        method: head.method.as_str().to_owned(),
        target: head.uri.path_and_query().map_or("/", |target| target.as_str()).to_owned(),
        headers: headers
            .map(|(name, value)| (name.as_str().to_owned(), value.as_bytes().to_vec()))
            .collect(),
        body: ask.body.clone(),
        principal: caller.principal.as_str().to_owned(),
        role: caller.role.as_str().to_owned(),
        source: caller.source,
        elapsed: now.saturating_duration_since(ask.call.received),
        remaining: ask.call.deadline.map(|deadline| deadline.saturating_duration_since(now)),
    }
}

/// What a client is told whose request has no answer of the leader.
fn unanswered(route: &Route, ask: &Ask, failure: Failure) -> Fault {
    match failure {
        Failure::OutcomeUnknown { .. } if route.class == Class::Read => {
            failure::leader_silent().into()
        }
        Failure::OutcomeUnknown { request_id } => {
            Failure::OutcomeUnknown { request_id: request_id.or_else(|| request_id_of(ask)) }.into()
        }
        other => other.into(),
    }
}

/// The one thing of a body that is looked at where it is not answered.
#[derive(Deserialize)]
struct Named<'a> {
    #[serde(borrow)]
    request_id: Cow<'a, str>,
}

/// What the client can repeat its request with. Whether the rest of the body is right, only the
/// leader says.
fn request_id_of(ask: &Ask) -> Option<RequestId> {
    let named = serde_json::from_slice::<Named<'_>>(&ask.body).ok();
    let key = ask.head.header(IDEMPOTENCY_KEY).and_then(|value| value.to_str().ok());
    RequestId::parse(named.as_ref().map(|named| &*named.request_id).or(key)?).ok()
}

#[cfg(test)]
#[path = "forward_tests.rs"]
mod tests;
